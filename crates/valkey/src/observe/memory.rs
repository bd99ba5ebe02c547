//! Since when things are as they are: what a pass remembers of those before it.
//!
//! [`Memory::after`] is pure: the same for the process and for the model. [`Memories`] keeps one per cluster for the process.
//! Everything in it can be lost: what waits for a time to have passed then waits that time again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use usher_engine::{Text, Uid};

use super::seen::{Answer, Job, JobState, Memory, Observation, RoleSaid};
use crate::plan::topology::{Past, Size, Topology};
use crate::words::{NodeId, ShardId};

/// How long a MEET is remembered: R8 asks whether one was sent in the last 5 s.
const MET_FOR: SignedDuration = SignedDuration::from_secs(60);
/// How long a failover that did not come about is remembered: R28 holds for 60 s after three of them.
const FAILOVER_FOR: SignedDuration = SignedDuration::from_secs(60);

impl Memory {
    /// What to remember after having seen this.
    #[must_use]
    pub fn after(&self, seen: &Observation, now: Timestamp) -> Self {
        let past = Past::default();
        let size = Size {
            masters: 0,
            replicas: 0,
            surge: false,
        };
        let topology = Topology::of(seen, &past, size);
        let members = || topology.members.values();
        let silent = seen.answers.iter().filter_map(|(pod, answer)| match answer {
            Answer::Silent { .. } | Answer::Loading { .. } => Some(pod.clone()),
            Answer::Says(_) => None,
        });
        let failed = members().filter(|member| member.failed).map(|member| member.id.clone());
        let slotless = members().filter(|member| member.is_live() && member.slots.is_empty());
        let none_ready = !seen.pods.is_empty() && !seen.pods.values().any(|pod| pod.ready);
        let jobs = jobs(seen);
        let moving = moving(&jobs);
        let stands_still = |name: &Text| self.moving.get(name) == moving.get(name);
        let over: BTreeSet<Text> = names(&jobs, Job::is_over);
        let primaries = self.primaries_seen(&topology);
        let changed = primaries.iter().any(|(shard, primary)| {
            let before = self.primaries.get(shard);
            before.is_some_and(|before| before != primary)
        });
        Self {
            primaries_changed: if changed { Some(now) } else { self.primaries_changed },
            primaries,
            began: Some(self.began.unwrap_or(now)),
            silent_since: since(&self.silent_since, silent, now),
            failed_since: since(&self.failed_since, failed, now),
            slotless_since: since(&self.slotless_since, slotless.map(|member| member.id.clone()), now),
            disagreeing_since: (!topology.agrees()).then(|| self.disagreeing_since.unwrap_or(now)),
            none_ready_since: none_ready.then(|| self.none_ready_since.unwrap_or(now)),
            met: recent(&self.met, |at| now.duration_since(*at) < MET_FOR),
            failovers: recent(&self.failovers, |(at, _)| now.duration_since(*at) < FAILOVER_FOR)
                .into_iter()
                .filter(|(shard, _)| !self.has_taken_over(shard, seen))
                .collect(),
            promised: self.promised.clone(),
            still_since: since(
                &self.still_since,
                moving.keys().filter(|name| stands_still(name)).cloned(),
                now,
            ),
            judged: self.judged_by(&jobs, &over, seen),
            moving,
            over,
        }
        .tidied()
    }

    /// Who serves each shard; as before while the views do not agree.
    fn primaries_seen(&self, topology: &Topology<'_>) -> BTreeMap<ShardId, NodeId> {
        if !topology.agrees() {
            return self.primaries.clone();
        }
        let owning = topology.owning();
        owning.map(|shard| (shard.id.clone(), shard.primary.clone())).collect()
    }

    /// Whether the failover that was asked for came about.
    fn has_taken_over(&self, shard: &ShardId, seen: &Observation) -> bool {
        let promised = self.promised.get(shard);
        seen.answers.values().any(|answer| match answer {
            Answer::Says(says) => Some(&says.id) == promised && matches!(says.role, RoleSaid::Primary { .. }),
            Answer::Silent { .. } | Answer::Loading { .. } => false,
        })
    }

    /// What was over when a pass before this one looked. Names that no server lists any more go, once all have been asked.
    fn judged_by(&self, jobs: &BTreeMap<Text, &Job>, over: &BTreeSet<Text>, seen: &Observation) -> BTreeSet<Text> {
        if self.began.is_none() {
            return over.clone();
        }
        let all_speak = seen.answers.values().all(|answer| matches!(answer, Answer::Says(_)));
        let judged = self.judged.union(&self.over);
        judged
            .filter(|name| !all_speak || jobs.contains_key(*name))
            .cloned()
            .collect()
    }

    /// Promises go with what they were made for.
    fn tidied(mut self) -> Self {
        self.promised.retain(|shard, _| self.failovers.contains_key(shard));
        self
    }

    /// A MEET was sent for this member's address.
    pub fn note_met(&mut self, member: NodeId, now: Timestamp) {
        self.met.insert(member, now);
    }

    /// This one was asked to take over.
    pub fn note_failover(&mut self, shard: ShardId, to: NodeId, now: Timestamp) {
        let tries = self.failovers.get(&shard).map_or(0, |(_, tries)| *tries);
        self.failovers.insert(shard.clone(), (now, tries + 1));
        self.promised.insert(shard, to);
    }
}

/// Since when each of these is so: as before where it was so before, else since now.
fn since<K: Ord>(
    before: &BTreeMap<K, Timestamp>,
    so: impl Iterator<Item = K>,
    now: Timestamp,
) -> BTreeMap<K, Timestamp> {
    so.map(|key| {
        let since = before.get(&key).copied().unwrap_or(now);
        (key, since)
    })
    .collect()
}

fn recent<K: Ord + Clone, V: Clone>(before: &BTreeMap<K, V>, keeps: impl Fn(&V) -> bool) -> BTreeMap<K, V> {
    let kept = before.iter().filter(|(_, value)| keeps(value));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Jobs by name. Both ends tell of one under the same name; the giving end knows first.
fn jobs(seen: &Observation) -> BTreeMap<Text, &Job> {
    let mut jobs: BTreeMap<Text, &Job> = BTreeMap::new();
    for answer in seen.answers.values() {
        let Answer::Says(says) = answer else { continue };
        for job in &says.jobs {
            let known = jobs.entry(job.name.clone()).or_insert(job);
            if job.exports {
                *known = job;
            }
        }
    }
    jobs
}

fn names(jobs: &BTreeMap<Text, &Job>, which: impl Fn(&Job) -> bool) -> BTreeSet<Text> {
    let chosen = jobs.iter().filter(|(_, job)| which(job));
    chosen.map(|(name, _)| name.clone()).collect()
}

/// What a job that goes on shows anew.
type Progress = (JobState, Option<Timestamp>, Option<u64>);

fn moving(jobs: &BTreeMap<Text, &Job>) -> BTreeMap<Text, Progress> {
    let in_flight = jobs.iter().filter(|(_, job)| !job.is_over());
    in_flight
        .map(|(name, job)| (name.clone(), (job.state.clone(), job.updated, job.remaining)))
        .collect()
}

/// The process's memories, one per cluster.
#[derive(Debug, Default)]
pub struct Memories {
    kept: Mutex<BTreeMap<Uid, Memory>>,
}

impl Memories {
    /// What is remembered of a cluster.
    pub fn of(&self, cluster: &Uid) -> Memory {
        self.all().get(cluster).cloned().unwrap_or_default()
    }

    /// Remembers what was seen of a cluster, and says what is remembered now.
    pub fn look(&self, cluster: &Uid, seen: &Observation, now: Timestamp) -> Memory {
        let memory = self.of(cluster).after(seen, now);
        self.all().insert(cluster.clone(), memory.clone());
        memory
    }

    /// Remembers what was done.
    pub fn note(&self, cluster: &Uid, note: impl FnOnce(&mut Memory)) {
        note(self.all().entry(cluster.clone()).or_default());
    }

    /// Forgets a cluster that is gone.
    pub fn forget(&self, cluster: &Uid) {
        self.all().remove(cluster);
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<Uid, Memory>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
