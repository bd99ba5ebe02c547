//! Whether all is as the spec says (`ClusterHealthy`), and where not, the first thing that is not.

use super::topology::{Standing, Topology};
use super::work::seconds_since;
use crate::seen::PodSeen;
use crate::words::{Ordinal, SlotSet};
use jiff::Timestamp;

/// A pod that should be Ready and is not for this long is a loss that somebody should hear of …
pub const DEGRADED_SECONDS: i64 = 10;
/// … and while a scale is on its way, one that has held it for this long.
pub const SCALE_HELD_SECONDS: i64 = 60;

/// What is not as it should be, the most telling first; empty: healthy.
pub fn troubles(topology: &Topology<'_>) -> Vec<String> {
    let mut troubles = Vec::new();
    let seen = topology.seen;
    if !topology.unowned.is_empty() {
        troubles.push(format!("slots {} have no owner", topology.unowned));
    }
    for (index, shard) in topology.shards.iter().enumerate() {
        if shard.owns() && !topology.primary_serves(shard) {
            troubles.push(format!(
                "shard {index}: primary {} does not answer",
                shard.primary.short()
            ));
        }
    }
    troubles.extend(topology.unheard.iter().map(ToString::to_string));
    for (ordinal, pod) in &seen.pods {
        if pod.deleting.is_some() {
            troubles.push(format!("pod {} is going", pod.name));
        } else if !pod.ready {
            troubles.push(format!("pod {} is not Ready", pod.name));
        } else if topology.outside.contains_key(ordinal) {
            troubles.push(format!("pod {} is not in the cluster yet", pod.name));
        }
    }
    troubles.extend(
        topology
            .differences
            .first()
            .map(|difference| format!("views do not agree: {difference}")),
    );
    for member in topology.members.values() {
        let what = match member.standing {
            Standing::Orphan => "is in the list of members, and no pod is it",
            Standing::Foreign => "is a member and none of ours",
            Standing::Silent => "does not answer",
            Standing::Live if member.troubled => "is not reached by everybody",
            Standing::Live => continue,
        };
        troubles.push(format!("{} {what}", member.id.short()));
    }
    for (ordinal, says) in topology.views() {
        if !says.state_ok {
            troubles.push(format!("pod {ordinal} does not say cluster_state:ok"));
        }
    }
    let size = seen.set.as_ref().map(|set| set.replicas);
    if size != Some(topology.size.pods()) {
        let has = size.map_or("not there".to_owned(), |size| format!("{size} pods"));
        troubles.push(format!("the StatefulSet is {has}, not {}", topology.size.pods()));
    }
    let owning = topology.owning().count();
    if owning != usize::from(topology.size.masters) {
        troubles.push(format!("{owning} shards own slots, not {}", topology.size.masters));
    }
    for (index, shard) in topology.shards.iter().enumerate().filter(|(_, shard)| shard.owns()) {
        let in_sync = topology.in_sync(shard).count();
        if in_sync < usize::from(topology.size.replicas) {
            troubles.push(format!(
                "shard {index} has {in_sync} replicas in sync, not {}",
                topology.size.replicas
            ));
        }
    }
    if !slots_rest(topology) {
        troubles.push("slots are on their way".into());
    }
    troubles
}

/// Whether no slot is open and no job in flight.
pub fn slots_rest(topology: &Topology<'_>) -> bool {
    let mut views = topology.views();
    let open = views.any(|(_, says)| says.myself().is_some_and(|line| !line.open.is_empty()));
    !open && super::moves::in_flight(topology).is_empty()
}

/// The slots whose primary answers.
pub fn served(topology: &Topology<'_>) -> SlotSet {
    topology
        .owning()
        .filter(|shard| topology.primary_serves(shard))
        .fold(SlotSet::new(), |all, shard| all.union(&shard.slots))
}

/// The first pod that should be Ready, is not, and has not been for so long. `excused` are those that nobody misses yet.
pub fn missing<'a>(
    topology: &'a Topology<'_>,
    seconds: i64,
    now: Timestamp,
    excused: impl Fn(Ordinal, &PodSeen) -> bool,
) -> Option<&'a PodSeen> {
    let mut pods = topology.seen.pods.iter();
    let (_, pod) = pods.find(|(ordinal, pod)| {
        !pod.ready && seconds_since(pod.ready_changed, now) >= seconds && !excused(**ordinal, pod)
    })?;
    Some(pod)
}
