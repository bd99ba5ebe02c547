//! The arithmetic of slots (R18, R19): how many each shard gets, and who gives which to whom. No more slots move than the
//! numbers demand, and each moves once.

use std::cmp::Reverse;

use crate::words::SlotSet;

/// A shard's slots, and whether it is to have any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// What it owns.
    pub slots: SlotSet,
    /// Whether it stays; a shard that does not gives everything away.
    pub stays: bool,
}

/// One move: positions of the shards in the list that it was worked out from, and the slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Who gives.
    pub from: usize,
    /// Who takes.
    pub to: usize,
    /// Which slots.
    pub slots: SlotSet,
}

/// R18: how many slots each is to have, of `slots` in all: an equal share for everybody who stays, and what is left over
/// goes, one each, to those who have the most now (ties: the first), so that the least has to move.
pub fn targets(holdings: &[Holding], slots: u16) -> Vec<u16> {
    let mut staying: Vec<usize> = (0..holdings.len()).filter(|at| stays(holdings, *at)).collect();
    let Ok(count) = u16::try_from(staying.len()) else {
        return vec![0; holdings.len()];
    };
    let (share, over) = match count {
        0 => return vec![0; holdings.len()],
        count => (slots / count, slots % count),
    };
    staying.sort_by_key(|at| Reverse(holdings.get(*at).map_or(0, |holding| holding.slots.count())));
    let mut targets = vec![0; holdings.len()];
    for (rank, at) in staying.into_iter().enumerate() {
        if let Some(target) = targets.get_mut(at) {
            *target = share + u16::from(rank < usize::from(over));
        }
    }
    targets
}

/// R19: the moves that lead to the targets, in the order in which they are to begin: largest surplus with largest deficit
/// (ties: the first), as much as both allow, and again. Where a shard has already taken the slots next to the highest of a
/// giver and still lacks some, these two go first: what was begun in batches then goes on as one range.
pub fn moves(holdings: &[Holding], targets: &[u16]) -> Vec<Move> {
    let mut left: Vec<SlotSet> = holdings.iter().map(|holding| holding.slots.clone()).collect();
    let mut lacks: Vec<u16> = holdings
        .iter()
        .zip(targets)
        .map(|(holding, target)| target.saturating_sub(holding.slots.count()))
        .collect();
    let surplus = |left: &[SlotSet], at: usize| {
        let target = targets.get(at).copied().unwrap_or(0);
        left.get(at).map_or(0, |slots| slots.count().saturating_sub(target))
    };
    let mut moves = Vec::new();
    loop {
        let givers = || (0..holdings.len()).filter(|at| surplus(&left, *at) > 0);
        let takers = || (0..holdings.len()).filter(|at| lack(&lacks, *at) > 0);
        let begun = givers().find_map(|from| {
            let next = left.get(from)?.top()?.0.checked_add(1)?;
            let holds = |at: &usize| {
                holdings
                    .get(*at)
                    .is_some_and(|taker| taker.slots.contains(crate::words::Slot(next)))
            };
            Some((from, takers().find(holds)?))
        });
        let largest = || {
            let from = givers().max_by_key(|at| (surplus(&left, *at), Reverse(*at)))?;
            let to = takers().max_by_key(|at| (lack(&lacks, *at), Reverse(*at)))?;
            Some((from, to))
        };
        let Some((from, to)) = begun.or_else(largest) else {
            return moves;
        };
        let count = surplus(&left, from).min(lack(&lacks, to));
        let (Some(giver), Some(lacking)) = (left.get_mut(from), lacks.get_mut(to)) else {
            return moves;
        };
        let slots = giver.highest(count);
        *giver = giver.minus(&slots);
        *lacking -= count;
        moves.push(Move { from, to, slots });
    }
}

/// The least number of slots that must move: what there is above the targets.
pub fn least(holdings: &[Holding], targets: &[u16]) -> u32 {
    let above = holdings
        .iter()
        .zip(targets)
        .map(|(holding, target)| u32::from(holding.slots.count().saturating_sub(*target)));
    above.sum()
}

fn stays(holdings: &[Holding], at: usize) -> bool {
    holdings.get(at).is_some_and(|holding| holding.stays)
}

fn lack(lacks: &[u16], at: usize) -> u16 {
    lacks.get(at).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
