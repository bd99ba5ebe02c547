//! Which of the nodes that would do is best: the reference's scores with its weights. Ties go by name.

use super::amounts::Amounts;
use super::facts::Wanted;
use super::snapshot::{NodeState, Snapshot};
use super::terms::{term_selects, tolerates};
use super::{neighbours, spread};

/// The best of these nodes.
pub(super) fn best<'a>(wanted: &Wanted, snapshot: &Snapshot, nodes: &[&'a NodeState]) -> Option<&'a NodeState> {
    let [_, _, ..] = nodes else {
        return nodes.first().copied();
    };
    let mut totals: Vec<i64> = nodes
        .iter()
        .map(|node| least_allocated(wanted, node) + balanced(wanted, node))
        .collect();
    let mut add = |weight: i64, scores: Option<Vec<i64>>| {
        for (total, score) in totals.iter_mut().zip(scores.unwrap_or_default()) {
            *total += weight * score;
        }
    };
    add(3, taints(wanted, nodes));
    add(2, affinity(wanted, nodes));
    add(2, spread::scores(wanted, snapshot, nodes));
    add(2, neighbours::scores(wanted, snapshot, nodes));
    let mut best: Option<(&NodeState, i64)> = None;
    for (node, total) in nodes.iter().zip(totals) {
        // Nodes come in the order of their names.
        if best.is_none_or(|(_, most)| total > most) {
            best = Some((node, total));
        }
    }
    best.map(|(node, _)| node)
}

fn taints(wanted: &Wanted, nodes: &[&NodeState]) -> Option<Vec<i64>> {
    let raw = nodes.iter().map(|node| {
        let bad = node
            .taints
            .iter()
            .filter(|taint| taint.effect == "PreferNoSchedule" && !tolerates(&wanted.tolerations, taint));
        i64::try_from(bad.count()).unwrap_or(i64::MAX)
    });
    let raw: Vec<i64> = raw.collect();
    let most = raw.iter().max().copied().filter(|most| *most > 0)?;
    Some(raw.into_iter().map(|raw| 100 - 100 * raw / most).collect())
}

fn affinity(wanted: &Wanted, nodes: &[&NodeState]) -> Option<Vec<i64>> {
    let raw = nodes.iter().map(|node| {
        let liked = wanted
            .node_liked
            .iter()
            .filter(|liked| term_selects(&liked.preference, &node.name, &node.labels));
        liked.map(|liked| i64::from(liked.weight)).sum()
    });
    let raw: Vec<i64> = raw.collect();
    let most = raw.iter().max().copied().filter(|most| *most > 0)?;
    Some(raw.into_iter().map(|raw| 100 * raw / most).collect())
}

fn with(wanted: &Wanted, node: &NodeState) -> Amounts {
    let mut with = node.compared.clone();
    with.add(&wanted.facts.compared);
    with
}

fn least_allocated(wanted: &Wanted, node: &NodeState) -> i64 {
    let with = with(wanted, node);
    let parts = [(with.cpu, node.has.cpu), (with.memory, node.has.memory)];
    let free = |(used, has): (i64, i64)| match has {
        0 => None,
        has if used > has => Some((0, has)),
        has => Some((hundredths(has - used, has), has)),
    };
    let scores: Vec<i64> = parts.into_iter().filter_map(free).map(|(score, _)| score).collect();
    let count = i64::try_from(scores.len()).unwrap_or(1).max(1);
    scores.into_iter().sum::<i64>() / count
}

fn hundredths(part: i64, whole: i64) -> i64 {
    i64::try_from(i128::from(part) * 100 / i128::from(whole.max(1))).unwrap_or(100)
}

/// Whether the pod brings cpu and memory nearer to each other: 50 to 100, 75 for no change.
fn balanced(wanted: &Wanted, node: &NodeState) -> i64 {
    let balance = |used: &Amounts| {
        if node.has.cpu == 0 || node.has.memory == 0 {
            return 100;
        }
        #[expect(clippy::cast_precision_loss, reason = "shares of a node need no more digits")]
        let share = |used: i64, has: i64| (used as f64 / has as f64).min(1.0);
        let (cpu, memory) = (share(used.cpu, node.has.cpu), share(used.memory, node.has.memory));
        #[expect(clippy::cast_possible_truncation, reason = "0 to 100")]
        {
            ((1.0 - ((cpu - memory) / 2.0).abs()) * 100.0) as i64
        }
    };
    // The reference compares by what is asked for, not by what is assumed.
    let mut after = node.used.clone();
    after.add(&wanted.facts.requests);
    50 + (50 + balance(&after) - balance(&node.used)) / 2
}
