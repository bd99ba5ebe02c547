//! Coming in: addresses that changed (R8), pods that join (R9), and entries that nobody answers for any more (R10).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::places::disagreement;
use super::step::{ClusterStep, Server};
use super::terms::Terms;
use super::topology::{Member, Standing, Topology, is_trouble};
use super::work::Work;
use crate::seen::{RoleSaid, Says};
use crate::words::{Epoch, NodeId, Ordinal};

/// R8: a MEET for one member is repeated after this long.
const MEET_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// Servers that come in are looked at again after this long.
const JOINING: Duration = Duration::from_secs(1);
/// MEETs of one pass: 500 pods that all changed their address are done in a few passes.
const MEETS: usize = 500;

/// R8: makes members known where they are now.
pub fn addresses(topology: &Topology<'_>, now: Timestamp) -> Work {
    let mut work = Work::default();
    let due = |member: &&Member| member.troubled && !met_lately(topology, &member.id, now);
    let troubled: Vec<&Member> = topology.standing(Standing::Live).filter(due).collect();
    if troubled.is_empty() {
        return work;
    }
    let primaries: Vec<&Member> = topology
        .owning()
        .filter_map(|shard| topology.member(&shard.primary))
        .collect();
    let pairs: Vec<(&NodeId, &NodeId)> = if is_connected(topology, &primaries) {
        let known: Vec<&Member> = match primaries.iter().any(|member| member.is_live()) {
            true => primaries.iter().copied().filter(|member| member.is_live()).collect(),
            false => topology.standing(Standing::Live).collect(),
        };
        let meets = troubled.iter().filter_map(|member| {
            let others = || known.iter().filter(|from| from.id != member.id);
            let cannot = |from: &&&Member| shows_trouble(topology, &from.id, &member.id);
            let from = others().find(cannot).or_else(|| others().next())?;
            Some((&from.id, &member.id))
        });
        meets.collect()
    } else {
        // Nobody can carry the news: everybody is told of every primary.
        let live = topology.standing(Standing::Live);
        let every = live.flat_map(|from| {
            let told = troubled.iter().filter(|to| primaries.is_empty() || to.is_primary());
            told.map(move |to| (&from.id, &to.id))
        });
        every
            .filter(|(from, to)| from != to && shows_trouble(topology, from, to))
            .collect()
    };
    for (from, to) in pairs.into_iter().take(MEETS) {
        if let (Some(from), Some(to)) = (topology.server(from), topology.server(to)) {
            work.steps.push(ClusterStep::Meet { from, to });
        }
    }
    work.look_again(JOINING);
    work
}

fn met_lately(topology: &Topology<'_>, id: &NodeId, now: Timestamp) -> bool {
    let met = topology.seen.memory.met.get(id);
    met.is_some_and(|met| now.duration_since(*met) < MEET_AGAIN)
}

fn shows_trouble(topology: &Topology<'_>, viewer: &NodeId, of: &NodeId) -> bool {
    let line = topology.says(viewer).and_then(|says| says.view.get(of));
    line.is_some_and(is_trouble)
}

/// Whether some primary reaches a majority of those that own slots, itself included.
fn is_connected(topology: &Topology<'_>, primaries: &[&Member]) -> bool {
    let reaches = |from: &&Member| {
        let reached = primaries.iter().filter(|to| {
            let line = topology.says(&from.id).and_then(|says| says.view.get(&to.id));
            to.id == from.id || line.is_some_and(|line| !is_trouble(line))
        });
        topology.says(&from.id).is_some() && reached.count() * 2 > primaries.len()
    };
    primaries.is_empty() || primaries.iter().any(reaches)
}

/// R9: what a pod that nobody knows brings along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Luggage {
    /// Nothing.
    Empty,
    /// Keys, slots, or peers of another life.
    Foreign,
}

fn luggage(topology: &Topology<'_>, says: &Says) -> Luggage {
    // One that is being met lists us a moment before we list it; a temporary name of a handshake is nobody.
    let stranger = |id: &NodeId| *id != says.id && !topology.members.contains_key(id);
    let strangers = says
        .view
        .iter()
        .any(|(id, line)| !line.flags.handshake && stranger(id) && !is_outside(topology, id));
    let replica = matches!(says.role, RoleSaid::Replica { .. });
    match says.keys > 0 || !says.own_slots().is_empty() || strangers || replica {
        true => Luggage::Foreign,
        false => Luggage::Empty,
    }
}

fn is_outside(topology: &Topology<'_>, id: &NodeId) -> bool {
    topology.outside.values().any(|outside| outside == id)
}

/// R9: brings in the pods of the wanted size that are not in the cluster yet, all in one pass. What they bring along is
/// removed only where every slot has a live owner: then it cannot be what is missing.
pub fn join(topology: &Topology<'_>, now: Timestamp) -> Work {
    let mut work = Work::default();
    let staying = |ordinal: &Ordinal| {
        let pod = topology.seen.pods.get(ordinal);
        topology.is_head(*ordinal) && pod.is_some_and(|pod| pod.deleting.is_none())
    };
    let newcomers: Vec<(Ordinal, &Says)> = topology
        .outside
        .keys()
        .filter(|ordinal| staying(ordinal))
        .filter_map(|ordinal| Some((*ordinal, topology.seen.says(*ordinal)?)))
        .collect();
    let Some(seed) = seed(topology).filter(|_| !newcomers.is_empty()) else {
        return work;
    };
    work.look_again(JOINING);
    let mut empty = Vec::new();
    for (ordinal, says) in newcomers {
        match (luggage(topology, says), topology.all_served()) {
            (Luggage::Empty, _) => empty.push((ordinal, says)),
            (Luggage::Foreign, true) => {
                let on = topology.server_at(ordinal);
                work.steps.extend(on.map(|on| ClusterStep::CleanMember { on }));
            }
            (Luggage::Foreign, false) => work.block("ForeignData", foreign_data(topology, ordinal, says)),
        }
    }
    epochs(topology, &seed, &empty, &mut work);
    for (ordinal, says) in &empty {
        if met_lately(topology, &says.id, now) {
            continue;
        }
        if let Some(to) = topology.server_at(*ordinal) {
            work.steps.push(ClusterStep::Meet { from: seed.clone(), to });
        }
    }
    work
}

fn foreign_data(topology: &Topology<'_>, ordinal: Ordinal, says: &Says) -> String {
    let pod = topology.seen.pods.get(&ordinal).map(|pod| pod.name.clone());
    let name = pod.unwrap_or_else(|| format!("pod {ordinal}").as_str().into());
    format!(
        "{name} holds {} keys and slots {} that no member knows, and it is not emptied while some slots of the cluster have \
         no live owner: bring the missing members back, or delete its volume data-{name} if it is from another cluster",
        says.keys,
        says.own_slots(),
    )
}

/// Who tells the others: a live primary with slots, else the member of the lowest ordinal.
fn seed(topology: &Topology<'_>) -> Option<Server> {
    let owning = topology.owning().find_map(|shard| topology.server(&shard.primary));
    owning.or_else(|| {
        let live = topology.standing(Standing::Live);
        let first = live.min_by_key(|member| member.ordinal)?;
        topology.server(&first.id)
    })
}

/// Everybody who knows nobody and has no epoch gets one of its own, so that no two have to fight for it.
fn epochs(topology: &Topology<'_>, seed: &Server, newcomers: &[(Ordinal, &Says)], work: &mut Work) {
    let seen = topology.seen;
    let said = seen.pods.keys().filter_map(|ordinal| seen.says(*ordinal));
    let mut highest = said.fold(0, |highest, says| {
        let lines = says.view.values().map(|line| line.epoch.0).max().unwrap_or(0);
        highest.max(says.current_epoch.0).max(lines)
    });
    let seed = seen.says(seed.ordinal).map(|says| (seed.ordinal, says));
    for (ordinal, says) in seed.iter().chain(newcomers) {
        let unset = says.myself().is_some_and(|line| line.epoch == Epoch(0));
        if !says.is_alone() || !unset {
            continue;
        }
        highest += 1;
        if let Some(on) = topology.server_at(*ordinal) {
            work.steps.push(ClusterStep::SetConfigEpoch {
                on,
                epoch: Epoch(highest),
            });
        }
    }
}

/// R10: strikes off what no pod answers for any more: its pod is somebody else now, or is gone for good.
pub fn forget_orphans(topology: &Topology<'_>, terms: &Terms, now: Timestamp) -> Work {
    let mut work = Work::default();
    let orphans: BTreeSet<&NodeId> = topology
        .standing(Standing::Orphan)
        .filter(|member| member.slots.is_empty())
        .map(|member| &member.id)
        .collect();
    if orphans.is_empty() {
        return work;
    }
    if !topology.agrees_but_for(&orphans) {
        work.wait("ViewsDisagree", disagreement(topology));
        return work;
    }
    for id in orphans {
        if let Some(why) = keeps_its_entry(topology, terms, id, now) {
            work.wait(
                "WaitingToForget",
                format!("{} is not struck off yet: {why}", id.short()),
            );
            work.look_again(JOINING);
            continue;
        }
        work.steps.extend(forget(topology, id));
    }
    work
}

/// Every server that lists a member strikes it off.
pub fn forget(topology: &Topology<'_>, member: &NodeId) -> Vec<ClusterStep> {
    let listing = topology.views().filter(|(_, says)| says.view.contains_key(member));
    listing
        .filter(|(_, says)| says.id != *member)
        .filter_map(|(ordinal, _)| topology.server_at(ordinal))
        .map(|by| ClusterStep::Forget {
            member: member.clone(),
            by,
        })
        .collect()
}

/// Whether a live member follows this one.
pub fn is_followed(topology: &Topology<'_>, id: &NodeId) -> bool {
    topology
        .standing(Standing::Live)
        .any(|member| member.primary.as_ref() == Some(id))
}

/// Why an orphan may not be struck off yet; `None`: it may.
fn keeps_its_entry(topology: &Topology<'_>, terms: &Terms, id: &NodeId, now: Timestamp) -> Option<String> {
    if is_followed(topology, id) {
        return Some("a member still follows it".into());
    }
    if let Some((_, shard)) = topology.shard_of(id) {
        // R31: until the replica is promoted, nothing is taken from its shard.
        let waits = shard.owns() && !topology.primary_serves(shard) && topology.in_sync(shard).next().is_some();
        if waits {
            return Some("its shard has no primary at the moment".into());
        }
    }
    let seen = topology.seen;
    let size = seen.set.as_ref().map_or(0, |set| set.replicas);
    match topology.past.bindings.iter().rfind(|binding| binding.id == *id) {
        Some(binding) => {
            let replaced = seen.says(binding.ordinal).is_some();
            let removed = binding.ordinal.0 >= size && !seen.pods.contains_key(&binding.ordinal);
            if !replaced && !removed {
                return Some(format!("pod {} has not answered as somebody else yet", binding.ordinal));
            }
        }
        // Which pod it was is not known: every pod has to say that it is another.
        None => {
            if let Some(unheard) = topology.unheard.first() {
                return Some(unheard.to_string());
            }
        }
    }
    let failed = seen.memory.failed_since.get(id);
    let patience = SignedDuration::try_from(terms.node_timeout.saturating_mul(2)).unwrap_or(SignedDuration::MAX);
    let long_failed = failed.is_some_and(|since| now.duration_since(*since) >= patience);
    (!long_failed).then(|| "it has not been failing for twice the node timeout".into())
}

/// R10: members that are not ours. They are never touched, and nothing is scaled while they are there.
pub fn foreign(topology: &Topology<'_>) -> Work {
    let mut work = Work::default();
    let addresses: BTreeMap<&NodeId, String> = topology
        .views()
        .flat_map(|(_, says)| &says.view)
        .filter_map(|(id, line)| Some((id, line.address?.to_string())))
        .collect();
    for member in topology.standing(Standing::Foreign) {
        let at = addresses.get(&member.id).map_or("an unknown address", String::as_str);
        let message = match member.slots.is_empty() {
            true => format!(
                "{} at {at} answers from outside our pods: if it does not belong here, reset it and have every server \
                 forget it (CLUSTER RESET, CLUSTER FORGET)",
                member.id.short()
            ),
            false => format!(
                "{} at {at} owns slots {} and is no pod of ours: move them away by hand (CLUSTER MIGRATESLOTS), then \
                 reset it and have every server forget it",
                member.id.short(),
                member.slots
            ),
        };
        work.block("ForeignMember", message);
    }
    work
}

#[cfg(test)]
mod tests;
