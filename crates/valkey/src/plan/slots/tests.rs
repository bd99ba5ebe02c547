//! R18, R19, I6: no more moves than the numbers demand, each slot once, few ranges, whatever the batches and their order.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::words::{SLOTS, Slot};

fn even(shards: u16) -> Vec<Holding> {
    let mut left = SlotSet::first(SLOTS);
    (0..shards)
        .map(|at| {
            let slots = left.lowest_of(SLOTS / shards + u16::from(at < SLOTS % shards));
            left = left.minus(&slots);
            Holding { slots, stays: true }
        })
        .collect()
}

fn empty() -> Holding {
    Holding {
        slots: SlotSet::new(),
        stays: true,
    }
}

fn grown(from: u16, to: u16) -> Vec<Holding> {
    let mut holdings = even(from);
    holdings.resize(to.into(), empty());
    holdings
}

fn shrunk(from: u16, to: u16) -> Vec<Holding> {
    let mut holdings = even(from);
    for holding in holdings.iter_mut().skip(to.into()) {
        holding.stays = false;
    }
    holdings
}

fn moved(holdings: &[Holding]) -> u32 {
    let targets = targets(holdings, SLOTS);
    let moves = moves(holdings, &targets);
    let count = moves.iter().map(|one| u32::from(one.slots.count())).sum();
    assert_eq!(count, least(holdings, &targets));
    count
}

#[test]
fn r18_as_many_slots_move_as_the_numbers_demand() {
    let up = [(3, 4, 4096), (4, 5, 3276), (5, 6, 2730), (3, 6, 8191), (3, 3, 0)];
    for (from, to, count) in up {
        assert_eq!(moved(&grown(from, to)), count, "{from} to {to}");
    }
    // From a cluster as it was made. Which shards of equal right go decides about one slot.
    for (from, to, count) in [(6, 3, 8191), (4, 3, 4096), (5, 3, 6553)] {
        assert!(moved(&shrunk(from, to)).abs_diff(count) <= 1, "{from} to {to}");
    }
}

#[test]
fn r18_the_first_of_equals_get_what_is_left_over() {
    let holdings = grown(3, 5);
    assert_eq!(targets(&holdings, SLOTS), [3277, 3277, 3277, 3277, 3276]);
    assert_eq!(targets(&holdings, 8), [2, 2, 2, 1, 1]);
    assert_eq!(targets(&[], SLOTS), Vec::<u16>::new());
    assert_eq!(targets(&shrunk(3, 0), SLOTS), [0, 0, 0]);
}

#[test]
fn r19_the_largest_surplus_meets_the_largest_deficit_and_gives_its_highest_slots() {
    let holdings = grown(3, 4);
    let moves = moves(&holdings, &targets(&holdings, SLOTS));
    let told: Vec<String> = moves
        .iter()
        .map(|one| format!("{} to {}: {}", one.from, one.to, one.slots))
        .collect();
    assert_eq!(told, ["0 to 3: 4096-5461", "1 to 3: 9558-10922", "2 to 3: 15019-16383"]);
}

/// Moves slots as jobs do: batch by batch, several shards at a time, worked out anew after each. Returns how many moved and
/// the holdings at the end.
fn run(mut holdings: Vec<Holding>, slots: u16, batches: &[u16]) -> (u32, Vec<Holding>) {
    let mut moved = BTreeSet::new();
    for turn in 0..usize::MAX {
        let moves = moves(&holdings, &targets(&holdings, slots));
        assert!(
            moves.len() < holdings.len().max(1),
            "at most givers and takers less one"
        );
        let batch = batches[turn % batches.len()];
        let at = turn % batches.len() % moves.len().max(1);
        let Some(one) = moves.get(at) else {
            return (u32::try_from(moved.len()).unwrap(), holdings);
        };
        let part = one.slots.highest(batch);
        for slot in part.iter() {
            assert!(moved.insert(slot), "{slot:?} moves twice");
        }
        holdings[one.from].slots = holdings[one.from].slots.minus(&part);
        holdings[one.to].slots = holdings[one.to].slots.union(&part);
    }
    unreachable!()
}

fn scattered(slots: u16) -> impl Strategy<Value = Vec<Holding>> {
    // Some shards, each slot range of a few to one of them; the last ones may own nothing.
    (
        2usize..7,
        0usize..4,
        proptest::collection::vec((1u16..=slots / 4, 0usize..7), 1..20),
    )
        .prop_flat_map(move |(shards, fresh, pieces)| {
            let mut holdings = vec![empty(); shards + fresh];
            let mut left = SlotSet::first(slots);
            for (size, owner) in pieces {
                let piece = left.lowest_of(size);
                left = left.minus(&piece);
                let holding = &mut holdings[owner % shards];
                holding.slots = holding.slots.union(&piece);
            }
            holdings[0].slots = holdings[0].slots.union(&left);
            proptest::collection::vec(prop::bool::weighted(0.7), holdings.len()).prop_map(move |stay| {
                let mut holdings = holdings.clone();
                for (holding, stays) in holdings.iter_mut().zip(stay) {
                    holding.stays = stays;
                }
                holdings.last_mut().unwrap().stays = true;
                holdings
            })
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn i6_whatever_the_batches_the_least_moves_and_no_slot_twice(
        holdings in prop_oneof![scattered(SLOTS), scattered(64)],
        batches in proptest::collection::vec(prop_oneof![Just(512u16), Just(2048), 40u16..600], 1..6),
    ) {
        let slots = holdings.iter().fold(SlotSet::new(), |all, one| all.union(&one.slots));
        let wanted = targets(&holdings, slots.count());
        prop_assert_eq!(wanted.iter().sum::<u16>(), slots.count());
        let least = least(&holdings, &wanted);
        let (moved, end) = run(holdings, slots.count(), &batches);
        prop_assert_eq!(moved, least);
        let mut counts: Vec<u16> = end.iter().map(|one| one.slots.count()).collect();
        let mut wanted = wanted;
        counts.sort_unstable();
        wanted.sort_unstable();
        prop_assert_eq!(counts, wanted);
    }
}

#[test]
fn r19_what_was_begun_in_batches_goes_on_as_one_range() {
    let (_, end) = run(grown(3, 9), SLOTS, &[512]);
    let ranges: Vec<usize> = end.iter().map(|holding| holding.slots.ranges().len()).collect();
    assert_eq!(ranges, [1; 9]);
}

#[test]
fn a8_ranges_stay_few_over_a_chain_of_scales() {
    let mut holdings = even(3);
    let mut legs = 0;
    for size in [4usize, 5, 3, 9, 3] {
        legs += 1;
        holdings.retain(|holding| !holding.slots.is_empty());
        holdings.sort_by_key(|holding| holding.slots.lowest());
        for (at, holding) in holdings.iter_mut().enumerate() {
            holding.stays = at < size;
        }
        while holdings.len() < size {
            holdings.push(empty());
        }
        holdings = run(holdings, SLOTS, &[512]).1;
        let ranges = holdings
            .iter()
            .map(|holding| holding.slots.ranges().len())
            .max()
            .unwrap();
        assert!(ranges <= 4 * legs, "{ranges} ranges after {legs} legs");
    }
    let all = holdings.iter().fold(SlotSet::new(), |all, one| all.union(&one.slots));
    assert_eq!(all.count(), SLOTS);
    assert!(all.contains(Slot(0)));
}
