//! Who takes over, when, and when not (R28 to R33).
//!
//! A planned hand-over is asked for only when everything that makes it succeed was seen in this pass; a forced one only when
//! the primary is provably gone, or as good as. The servers' own failovers are theirs: they are reported, never undone.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use usher_engine::{Tell, Text};

use super::step::ClusterStep;
use super::topology::{Difference, Member, Shard, Topology};
use super::work::{Work, seconds_since, waiting};
use crate::seen::{Link, OpenSlot, RoleSaid};
use crate::words::{NodeId, Ordinal, ShardId};

/// A replica that is further behind is not handed over to: the primary's writes would stand for too long (R28).
pub const LAG_MAX_BYTES: u64 = 1 << 20;
/// A hand-over that was accepted comes about within this, or it did not (R28).
pub const HANDOVER_SECONDS: i64 = 10;
/// How often it is asked for in a row …
const TRIES_MAX: u32 = 3;
/// … before this pause.
const HELD_SECONDS: i64 = 60;
/// A primary that is silent, failed in all views and without a pod is given up after this (R32).
const GIVEN_UP_SECONDS: i64 = 60;
/// The servers' own election has this long before one that is provably gone is replaced by force: they need 7 s.
const ELECTION_SECONDS: i64 = 20;
/// Spreading primaries disturbs, so seldom (R33).
const SPREAD_SECONDS: i64 = 60;

/// How much a hand-over is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Everything of R28 must hold.
    Planned,
    /// The primary goes in seconds, whatever we do (R30): its moves end with it, and views may differ on others.
    Terminating,
}

/// The shard for which a hand-over was asked and may still come about.
pub fn in_flight<'t>(topology: &'t Topology<'_>, now: Timestamp) -> Option<&'t ShardId> {
    let mut asked = topology.seen.memory.failovers.iter();
    asked
        .find(|(_, (since, _))| seconds_since(*since, now) < HANDOVER_SECONDS)
        .map(|(shard, _)| shard)
}

/// Asks for a hand-over within this shard, to the best candidate among those that `fit`; or says what it waits for.
/// `wanted` is the revision that candidates should have, where one is.
pub fn hand_over(
    topology: &Topology<'_>,
    shard: &Shard,
    urgency: Urgency,
    wanted: Option<&Text>,
    now: Timestamp,
    fit: impl Fn(&Member) -> bool,
) -> Result<ClusterStep, String> {
    may_begin(topology, shard, urgency, now)?;
    let mut best: Option<&Member> = None;
    let mut why_not = None;
    for member in candidates(topology, shard, wanted)
        .into_iter()
        .filter(|member| fit(member))
    {
        match may_take_over(topology, shard, member, urgency) {
            Ok(()) => {
                best = Some(member);
                break;
            }
            Err(why) => {
                why_not.get_or_insert(why);
            }
        }
    }
    let index = topology.shard(&shard.id).map_or(0, |(index, _)| index);
    let none = || why_not.unwrap_or_else(|| format!("shard {index} has no replica that could take over"));
    let to = best.ok_or_else(none)?;
    let unreachable = || format!("shard {index} changed while it was looked at");
    Ok(ClusterStep::Failover {
        shard: shard.id.clone(),
        from: topology.server(&shard.primary).ok_or_else(unreachable)?,
        to: topology.server(&to.id).ok_or_else(unreachable)?,
        epoch: topology
            .member(&shard.primary)
            .map(|member| member.epoch)
            .unwrap_or_default(),
    })
}

/// What must hold of the shard and the cluster (R28).
fn may_begin(topology: &Topology<'_>, shard: &Shard, urgency: Urgency, now: Timestamp) -> Result<(), String> {
    let mut differences = topology.differences.iter();
    let differs = match urgency {
        Urgency::Planned => differences.next(),
        Urgency::Terminating => differences.find(|difference| concerns(difference, shard)),
    };
    if let Some(difference) = differs {
        return Err(format!("views do not agree: {difference}"));
    }
    if !topology.has_majority() {
        return Err("no majority of the primaries answers".into());
    }
    if !topology.primary_serves(shard) {
        return Err(format!("primary {} does not answer", shard.primary.short()));
    }
    if let Some(other) = in_flight(topology, now) {
        return Err(format!("the hand-over of shard {} is under way", other.short()));
    }
    if let Some((asked, tries)) = topology.seen.memory.failovers.get(&shard.id)
        && *tries >= TRIES_MAX
        && seconds_since(*asked, now) < HELD_SECONDS
        && urgency == Urgency::Planned
    {
        return Err(format!(
            "shard {} was asked {tries} times to hand over and did not; asked again {HELD_SECONDS} s after {asked}",
            shard.id.short()
        ));
    }
    match (urgency, busy(topology, shard)) {
        (Urgency::Planned, Some(why)) => Err(why),
        _ => Ok(()),
    }
}

/// What must hold of the one that takes over (R28).
fn may_take_over(topology: &Topology<'_>, shard: &Shard, to: &Member, urgency: Urgency) -> Result<(), String> {
    let name = name_of(topology, to);
    let Some(says) = topology.says(&to.id) else {
        return Err(format!("{name} does not answer"));
    };
    match says.role {
        RoleSaid::Primary { .. } => return Err(format!("{name} is no replica")),
        RoleSaid::Replica {
            link: Link::Syncing, ..
        } => return Err(format!("{name} is being synced")),
        RoleSaid::Replica { link: Link::Down, .. } => return Err(format!("the link of {name} to its primary is down")),
        RoleSaid::Replica { link: Link::Up, .. } => {}
    }
    if !says.state_ok {
        return Err(format!("{name} does not say cluster_state:ok"));
    }
    match topology.lag_bytes(&to.id) {
        Some(lag) if lag <= LAG_MAX_BYTES || urgency == Urgency::Terminating => {}
        Some(lag) => return Err(format!("{name} is {lag} bytes behind")),
        None => return Err(format!("how far {name} is behind is not known")),
    }
    // A primary that does not know its replica answers OK, and nothing happens.
    let known = topology
        .says(&shard.primary)
        .and_then(|primary| primary.view.get(&to.id))
        .is_some_and(|line| line.primary.as_ref() == Some(&shard.primary));
    if known {
        Ok(())
    } else {
        Err(format!("its primary does not list {name} as its replica yet"))
    }
}

/// The replicas of a shard, the best first (R29).
fn candidates<'t>(topology: &'t Topology<'_>, shard: &'t Shard, wanted: Option<&Text>) -> Vec<&'t Member> {
    let primaries = primaries_by_place(topology);
    let mut members: Vec<&Member> = shard.replicas.iter().filter_map(|id| topology.member(id)).collect();
    members.sort_by_key(|member| {
        let pod = member.ordinal.and_then(|ordinal| topology.seen.pods.get(&ordinal));
        let place = member.ordinal.and_then(|ordinal| topology.place_of(ordinal));
        (
            topology.lag_bytes(&member.id).unwrap_or(u64::MAX),
            wanted.is_some() && pod.and_then(|pod| pod.template.as_ref()) != wanted,
            place
                .and_then(|place| primaries.get(place))
                .copied()
                .unwrap_or_default(),
            member.ordinal,
            &member.id,
        )
    });
    members
}

/// How many owning primaries each place has.
fn primaries_by_place<'t>(topology: &'t Topology<'_>) -> BTreeMap<&'t Text, usize> {
    let mut count = BTreeMap::new();
    for shard in topology.owning() {
        let ordinal = topology.member(&shard.primary).and_then(|member| member.ordinal);
        if let Some(place) = ordinal.and_then(|ordinal| topology.place_of(ordinal)) {
            *count.entry(place).or_default() += 1;
        }
    }
    count
}

/// Why a shard is busy with its slots, if it is.
pub fn busy(topology: &Topology<'_>, shard: &Shard) -> Option<String> {
    let ours = |id: &NodeId| shard.members().any(|member| member == id);
    let jobs = super::moves::in_flight(topology);
    if let Some(job) = jobs.iter().find(|job| ours(&job.source) || ours(&job.target)) {
        return Some(format!("slots {} are on their way (job {})", job.slots, job.name));
    }
    for (ordinal, says) in topology.views() {
        let open = says.myself().map(|line| line.open.as_slice()).unwrap_or_default();
        let touches = |open: &&OpenSlot| match open {
            OpenSlot::Migrating { to: other, .. } | OpenSlot::Importing { from: other, .. } => {
                ours(&says.id) || ours(other)
            }
        };
        if open.iter().any(|open| touches(&open)) {
            return Some(format!("pod {ordinal} has an open slot"));
        }
    }
    None
}

fn concerns(difference: &Difference, shard: &Shard) -> bool {
    let ours = |id: &NodeId| shard.members().any(|member| member == id);
    match difference {
        Difference::Unknown { member, .. } | Difference::Primary { member, .. } => ours(member),
        Difference::Owner { owner, .. } => ours(owner),
        Difference::Epoch { one, other, .. } => ours(one) || ours(other),
    }
}

fn name_of(topology: &Topology<'_>, member: &Member) -> String {
    let pod = member.ordinal.and_then(|ordinal| topology.seen.pods.get(&ordinal));
    pod.map_or_else(|| member.id.short().to_owned(), |pod| pod.name.to_string())
}

/// R30: hands over before a primary's pod goes, ahead of everything.
pub fn terminating(topology: &Topology<'_>, now: Timestamp) -> Work {
    let deleting = |ordinal: Option<Ordinal>| {
        let pod = ordinal.and_then(|ordinal| topology.seen.pods.get(&ordinal));
        pod.is_some_and(|pod| pod.deleting.is_some())
    };
    let mut findings = Vec::new();
    for shard in topology.owning() {
        let Some(primary) = topology.member(&shard.primary) else {
            continue;
        };
        let asked = in_flight(topology, now) == Some(&shard.id);
        if !primary.is_live() || !deleting(primary.ordinal) || shard.replicas.is_empty() || asked {
            continue;
        }
        match hand_over(topology, shard, Urgency::Terminating, None, now, |member| {
            !deleting(member.ordinal)
        }) {
            Ok(step) => {
                return Work {
                    steps: vec![step],
                    findings,
                    again: None,
                };
            }
            Err(why) => {
                let message = format!("{} is going and has not handed over: {why}", name_of(topology, primary));
                findings.push(waiting("HandOverHeld", message).told(Tell::Warning));
            }
        }
    }
    Work {
        findings,
        ..Work::default()
    }
}

/// R32: promotes a replica of a primary that does not come back.
pub fn forced(topology: &Topology<'_>, now: Timestamp) -> Work {
    let mut findings = Vec::new();
    if in_flight(topology, now).is_some() {
        return Work::default();
    }
    let quorum = topology.has_majority();
    let owning: Vec<&Shard> = topology.owning().collect();
    let gone = owning.iter().filter(|shard| topology.is_gone(&shard.primary)).count();
    for (index, shard) in owning.iter().enumerate() {
        let Some(primary) = topology.member(&shard.primary).filter(|member| !member.is_live()) else {
            continue;
        };
        let live: Vec<&NodeId> = shard.replicas.iter().filter(|id| topology.says(id).is_some()).collect();
        if live.is_empty() {
            continue;
        }
        let failed_for = topology
            .seen
            .memory
            .failed_since
            .get(&primary.id)
            .map(|since| seconds_since(*since, now));
        let pod_is_there = primary
            .ordinal
            .is_some_and(|ordinal| topology.seen.pods.contains_key(&ordinal));
        let provably = topology.is_gone(&primary.id);
        let given_up = !pod_is_there && failed_for.is_some_and(|seconds| seconds >= GIVEN_UP_SECONDS);
        let wait = |message: String| waiting("PrimaryLost", message).told(Tell::Warning);
        // Who does not answer may have read more than those who do.
        let unheard = shard
            .replicas
            .iter()
            .find(|id| topology.says(id).is_none() && !topology.is_gone(id));
        let may = match (quorum, provably) {
            // Their own election first: it is theirs.
            (true, true) => failed_for.is_some_and(|seconds| seconds >= ELECTION_SECONDS),
            (true, false) => given_up,
            (false, _) => provably && gone * 2 > owning.len(),
        };
        if !may {
            findings.push(wait(format!(
                "shard {index}: primary {} does not answer; its replicas take over by themselves, or it comes back",
                primary.id.short()
            )));
            continue;
        }
        if let Some(unheard) = unheard {
            findings.push(wait(format!(
                "shard {index}: replica {} does not answer, and may have read more than the others: no promotion without it",
                unheard.short()
            )));
            continue;
        }
        let Some(to) = furthest(topology, &live).and_then(|id| topology.server(id)) else {
            continue;
        };
        let step = ClusterStep::ForceFailover {
            shard: shard.id.clone(),
            to,
            takeover: !quorum,
        };
        return Work {
            steps: vec![step],
            findings,
            again: None,
        };
    }
    Work {
        findings,
        ..Work::default()
    }
}

/// The replica that has read the most.
fn furthest<'t>(topology: &Topology<'_>, replicas: &[&'t NodeId]) -> Option<&'t NodeId> {
    let read = |id: &NodeId| match topology.says(id)?.role {
        RoleSaid::Replica { offset, .. } => Some(offset),
        RoleSaid::Primary { .. } => None,
    };
    replicas
        .iter()
        .copied()
        .filter_map(|id| Some((read(id)?, Reverse(topology.member(id)?.ordinal), id)))
        .max()
        .map(|(_, _, id)| id)
}

/// R33: at rest, moves one primary away from a place whose loss would take the majority.
pub fn spread(topology: &Topology<'_>, now: Timestamp) -> Option<ClusterStep> {
    let memory = &topology.seen.memory;
    // What this process has not watched for long enough may have just happened.
    let quiet_since = memory.primaries_changed.max(memory.began)?;
    if seconds_since(quiet_since, now) < SPREAD_SECONDS {
        return None;
    }
    let count = primaries_by_place(topology);
    let majority = (usize::from(topology.size.masters).saturating_sub(1)) / 2 + 1;
    let (worst, most) = count
        .iter()
        .map(|(place, count)| (*place, *count))
        .max_by_key(|(place, count)| (*count, Reverse(*place)))?;
    if most < majority {
        return None;
    }
    let place_of = |id: &NodeId| {
        let ordinal = topology.member(id)?.ordinal?;
        topology.place_of(ordinal)
    };
    topology
        .owning()
        .filter(|shard| place_of(&shard.primary) == Some(worst))
        .find_map(|shard| {
            let lowers = |member: &Member| {
                place_of(&member.id).is_some_and(|place| count.get(place).copied().unwrap_or_default() + 1 < most)
            };
            hand_over(topology, shard, Urgency::Planned, None, now, lowers).ok()
        })
}

/// `usher.dev/switchover`: promotes the pod that somebody named; clears the wish when it is fulfilled.
pub fn switchover(topology: &Topology<'_>, pod: &str, now: Timestamp) -> Result<ClusterStep, String> {
    let named = topology.seen.pods.iter().find(|(_, seen)| seen.name == *pod);
    let Some((ordinal, _)) = named else {
        return Err(format!(
            "there is no pod {pod}: correct the annotation usher.dev/switchover, or remove it"
        ));
    };
    let Some(member) = topology.at(*ordinal) else {
        return Err(format!("pod {pod} is not in the cluster yet"));
    };
    let Some((_, shard)) = topology.shard_of(&member.id) else {
        return Err(format!("pod {pod} is in no shard"));
    };
    if shard.primary == member.id {
        return Ok(ClusterStep::ClearAnnotation {
            annotation: crate::api::annotations::SWITCHOVER,
        });
    }
    hand_over(topology, shard, Urgency::Planned, None, now, |other| {
        other.id == member.id
    })
}

#[cfg(test)]
mod tests;
