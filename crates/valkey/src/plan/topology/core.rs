//! Which servers are the cluster.
//!
//! Servers that list each other, directly or through others, belong together. Of several such groups the cluster is the one
//! whose servers own the most slots, then the larger one, then the one with the lowest ordinal: a pod from an earlier life
//! that lists us, while nobody lists it, is a group of its own and takes no part. A pod that the cluster lists belongs to it
//! even before it lists us: it is being met.

use std::collections::{BTreeMap, BTreeSet};

use crate::seen::{Observation, Says};
use crate::words::{NodeId, Ordinal, SlotSet};

/// The pods whose servers are the cluster. Empty where no server answers.
pub fn of(seen: &Observation) -> BTreeSet<Ordinal> {
    let servers: Vec<(Ordinal, &Says)> = seen
        .pods
        .keys()
        .filter_map(|ordinal| Some((*ordinal, seen.says(*ordinal)?)))
        .collect();
    let lists = lists(&servers);
    let weight = |group: &Vec<usize>| {
        let members: Vec<&(Ordinal, &Says)> = group.iter().filter_map(|at| servers.get(*at)).collect();
        let slots = members
            .iter()
            .fold(SlotSet::new(), |all, (_, says)| all.union(&says.own_slots()));
        let lowest = members.iter().map(|(ordinal, _)| *ordinal).min();
        (slots.count(), members.len(), std::cmp::Reverse(lowest))
    };
    let cluster = groups(&lists).into_iter().max_by_key(weight).unwrap_or_default();
    let all = match cluster.first() {
        Some(first) if cluster.len() < servers.len() => reached(*first, &lists),
        _ => cluster.into_iter().collect(),
    };
    all.into_iter().filter_map(|at| Some(servers.get(at)?.0)).collect()
}

/// Whom each server lists, of those that answer.
fn lists(servers: &[(Ordinal, &Says)]) -> Vec<Vec<usize>> {
    let number: BTreeMap<&NodeId, usize> = servers
        .iter()
        .enumerate()
        .map(|(at, (_, says))| (&says.id, at))
        .collect();
    servers.iter().map(|(_, says)| listed(says, &number)).collect()
}

/// The groups of servers that reach each other through what they list.
fn groups(lists: &[Vec<usize>]) -> Vec<Vec<usize>> {
    // The usual case, and the one that must be fast at 500 pods: everybody lists everybody.
    if !lists.is_empty() && lists.iter().all(|list| list.len() == lists.len()) {
        return vec![(0..lists.len()).collect()];
    }
    let mut listed_by = vec![Vec::new(); lists.len()];
    for (at, list) in lists.iter().enumerate() {
        for peer in list {
            if let Some(by) = listed_by.get_mut(*peer) {
                by.push(at);
            }
        }
    }
    let mut grouped: BTreeSet<usize> = BTreeSet::new();
    let mut groups = Vec::new();
    for at in 0..lists.len() {
        if grouped.contains(&at) {
            continue;
        }
        let back = reached(at, &listed_by);
        let group: Vec<usize> = reached(at, lists).intersection(&back).copied().collect();
        grouped.extend(&group);
        groups.push(group);
    }
    groups
}

/// Whom a server lists among those that answer; itself always.
fn listed(says: &Says, number: &BTreeMap<&NodeId, usize>) -> Vec<usize> {
    let mut peers = says.view.iter().peekable();
    let mut found = Vec::with_capacity(number.len());
    // Both are in order of ids: one walk.
    for (id, at) in number {
        while peers.next_if(|(peer, _)| peer < id).is_some() {}
        let lists = peers
            .peek()
            .is_some_and(|(peer, line)| peer == id && !line.flags.handshake);
        if lists || **id == says.id {
            found.push(*at);
        }
    }
    found
}

fn reached(from: usize, edges: &[Vec<usize>]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::from([from]);
    let mut next = vec![from];
    while let Some(at) = next.pop() {
        for peer in edges.get(at).into_iter().flatten() {
            if reached.insert(*peer) {
                next.push(*peer);
            }
        }
    }
    reached
}
