//! The metrics of clusters (spec, section 9).
//!
//! What servers say is known only while a pass looks at it, so each pass leaves its figures here ([`Figures`]); what happened
//! is counted as it is seen to have happened. A scrape writes down what is there ([`scrape`]); the series of a cluster end
//! with it.

pub mod names;
mod scrape;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use usher_engine::{Backoff, ConditionStatus, ObjectKey, Text, Uid};
use usher_operator::metrics::seconds;
use usher_operator::window::Window;

use crate::api::{Method, Phase, ValkeyClusterStatus};
use crate::observe::{Answer, Job, JobState, Observation};
use crate::plan::order::ClusterPlan;
use crate::plan::step::ClusterStep;
use crate::plan::topology::{Past, Size, Standing, Topology};
use crate::plan::{health, work::seconds_since};
use crate::records::ClusterRecord;
use crate::words::{NodeId, ShardId};

/// A failover is forgotten if it has not come about by then.
const ASKED_FOR: i64 = 60;

/// What was last seen of one cluster, and what has happened to it since this process began.
struct Sheet {
    uid: Uid,
    unserved: u16,
    remaining: i32,
    lags: BTreeMap<Text, u64>,
    members: BTreeMap<&'static str, usize>,
    shards: BTreeMap<&'static str, usize>,
    disagree_seconds: i64,
    at_risk: usize,
    stuck: BTreeMap<&'static str, bool>,
    moved: BTreeMap<&'static str, u64>,
    jobs: BTreeMap<(&'static str, &'static str), u64>,
    job_seconds: Histogram,
    failovers: BTreeMap<&'static str, u64>,
    failover_seconds: Histogram,
    /// Jobs in flight, and when they were first seen.
    running: BTreeMap<Text, Timestamp>,
    /// Jobs that are over and counted.
    counted: BTreeSet<Text>,
    /// Who was primary of which shard.
    primaries: BTreeMap<ShardId, NodeId>,
    /// Since when a primary has failed.
    failing: BTreeMap<ShardId, Timestamp>,
    /// Failovers that were asked for.
    asked: BTreeMap<ShardId, (&'static str, Timestamp)>,
    /// Steps that failed in a row.
    failures: u32,
    /// Whether a pass has looked before: what was over by then is not counted.
    looked: bool,
}

impl Sheet {
    fn new(uid: Uid) -> Self {
        Self {
            uid,
            unserved: 0,
            remaining: 0,
            lags: BTreeMap::new(),
            members: BTreeMap::new(),
            shards: BTreeMap::new(),
            disagree_seconds: 0,
            at_risk: 0,
            stuck: BTreeMap::new(),
            moved: BTreeMap::from(METHODS.map(|method| (method, 0))),
            jobs: BTreeMap::from(OUTCOMES.map(|outcome| ((METHODS[0], outcome), 0))),
            job_seconds: seconds(),
            failovers: BTreeMap::from(FAILOVERS.map(|kind| (kind, 0))),
            failover_seconds: seconds(),
            running: BTreeMap::new(),
            counted: BTreeSet::new(),
            primaries: BTreeMap::new(),
            failing: BTreeMap::new(),
            asked: BTreeMap::new(),
            failures: 0,
            looked: false,
        }
    }
}

/// Labels that are there from the start, so that the first of each is seen as an increase.
const METHODS: [&str; 2] = ["atomic", "key_by_key"];
const OUTCOMES: [&str; 3] = ["success", "failed", "cancelled"];
const FAILOVERS: [&str; 3] = ["planned", "unplanned", "forced"];

/// All clusters' figures. Cheap to clone.
#[derive(Clone, Default)]
pub struct Figures(Arc<Mutex<BTreeMap<ObjectKey, Sheet>>>);

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Figures").finish_non_exhaustive()
    }
}

/// Puts them into the registry.
pub fn measure(registry: &mut Registry, window: &Window, figures: &Figures) {
    let window = window.clone();
    registry.register_collector(Box::new(scrape::Scrape::new(figures.clone(), move |keep| {
        window.view(|view| keep(&|key| view.get::<ClusterRecord>(key).is_some()));
    })));
}

impl Figures {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Sheet>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with(&self, cluster: &ClusterRecord, change: impl FnOnce(&mut Sheet)) {
        let mut sheets = self.lock();
        let sheet = sheets
            .entry(cluster.meta.key.clone())
            .or_insert_with(|| Sheet::new(cluster.meta.uid.clone()));
        if sheet.uid != cluster.meta.uid {
            *sheet = Sheet::new(cluster.meta.uid.clone());
        }
        change(sheet);
    }

    /// The cluster is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// A pass went well.
    pub fn succeeded(&self, key: &ObjectKey) {
        if let Some(sheet) = self.lock().get_mut(key) {
            sheet.failures = 0;
        }
    }

    /// A step failed: how often in a row, and when it is tried again at the latest.
    pub fn failed(&self, key: &ObjectKey) -> (u32, Duration) {
        let mut sheets = self.lock();
        let failures = sheets.get_mut(key).map_or(1, |sheet| {
            sheet.failures = sheet.failures.saturating_add(1);
            sheet.failures
        });
        (failures, Backoff::default().delay(failures))
    }

    /// What a pass sees.
    pub fn seen(&self, cluster: &ClusterRecord, seen: &Observation, now: Timestamp) {
        let past = Past::of(&cluster.status);
        let size = Size {
            masters: cluster.masters(),
            replicas: cluster.replicas_per_master(),
            surge: cluster.wishes.surge,
        };
        let topology = Topology::of(seen, &past, size);
        self.with(cluster, |sheet| {
            sheet.look(cluster, &topology, now);
            sheet.count_jobs(seen, now);
            sheet.count_failovers(&topology, now);
            sheet.looked = true;
        });
    }

    /// A step is begun.
    pub fn begun(&self, cluster: &ClusterRecord, step: &ClusterStep, now: Timestamp) {
        let (shard, kind) = match step {
            ClusterStep::Failover { shard, .. } => (shard, "planned"),
            ClusterStep::ForceFailover { shard, .. } => (shard, "forced"),
            _ => return,
        };
        self.with(cluster, |sheet| {
            sheet.asked.entry(shard.clone()).or_insert((kind, now));
        });
    }

    /// A pass is over: what it says.
    pub fn planned(&self, cluster: &ClusterRecord, plan: &ClusterPlan) {
        self.with(cluster, |sheet| {
            let moved = |status: &ValkeyClusterStatus| status.slot_migration.as_ref().map(|moves| moves.moved);
            let (before, after) = (moved(&cluster.status).unwrap_or(0), moved(&plan.status).unwrap_or(0));
            let method = plan.status.slot_migration.as_ref().map(|moves| moves.method);
            let method = match method {
                Some(Method::KeyByKey) => METHODS[1],
                Some(Method::Atomic) | None => METHODS[0],
            };
            *sheet.moved.entry(method).or_default() += u64::try_from(after - before).unwrap_or(0);
            let left = plan.status.slot_migration.as_ref();
            sheet.remaining = left.map_or(0, |moves| (moves.total - moves.moved).max(0));
            sheet.stuck = stuck(&plan.status, plan.findings.iter().map(|finding| finding.reason));
        });
    }
}

/// What a cluster is stuck in, one series each.
fn stuck<'f>(status: &ValkeyClusterStatus, reasons: impl Iterator<Item = &'f str>) -> BTreeMap<&'static str, bool> {
    let reasons: BTreeSet<_> = reasons.collect();
    let progress = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Progressing");
    let late = progress.is_some_and(|progress| {
        progress.status == ConditionStatus::False && progress.reason == "ProgressDeadlineExceeded"
    });
    let scaling = status.phase.is_some_and(Phase::is_scaling);
    BTreeMap::from([
        ("failed", status.phase == Some(Phase::Failed)),
        ("scale", late && scaling),
        ("roll", reasons.contains("RollStalled")),
    ])
}

impl Sheet {
    fn look(&mut self, cluster: &ClusterRecord, topology: &Topology<'_>, now: Timestamp) {
        let seen = topology.seen;
        let formed = topology.past.owned_any() || topology.owning().next().is_some();
        let served = health::served(topology).count();
        // Before there was a first owner nothing is missing.
        self.unserved = if formed { seen.slots.saturating_sub(served) } else { 0 };
        let count = |standing| topology.standing(standing).count();
        self.members = BTreeMap::from([
            ("live", count(Standing::Live)),
            ("silent", count(Standing::Silent)),
            ("orphan", count(Standing::Orphan)),
            ("foreign", count(Standing::Foreign)),
        ]);
        let wants = cluster.replicas_per_master() > 0;
        let alone = topology
            .owning()
            .filter(|shard| wants && topology.in_sync(shard).next().is_none());
        self.shards = BTreeMap::from([
            ("wanted", usize::from(cluster.masters())),
            ("owning", topology.owning().count()),
            ("unreplicated", alone.count()),
        ]);
        let replicas = topology.shards.iter().flat_map(|shard| &shard.replicas);
        self.lags = replicas
            .filter_map(|id| {
                let pod = &seen.pods.get(&topology.member(id)?.ordinal?)?.name;
                Some((pod.clone(), topology.lag_bytes(id)?))
            })
            .collect();
        let since = seen.memory.disagreeing_since;
        self.disagree_seconds = since.map_or(0, |since| seconds_since(since, now));
        self.at_risk = at_risk(topology);
    }

    fn count_jobs(&mut self, seen: &Observation, now: Timestamp) {
        let jobs: BTreeMap<&Text, &Job> = seen
            .answers
            .values()
            .filter_map(|answer| match answer {
                Answer::Says(says) => Some(says),
                Answer::Silent { .. } | Answer::Loading { .. } => None,
            })
            .flat_map(|says| says.jobs.iter())
            .filter(|job| job.exports)
            .map(|job| (&job.name, job))
            .collect();
        for (name, job) in &jobs {
            let outcome = match job.state {
                JobState::InFlight(_) => {
                    self.running.entry((*name).clone()).or_insert(now);
                    continue;
                }
                JobState::Success => OUTCOMES[0],
                JobState::Failed => OUTCOMES[1],
                JobState::Cancelled => OUTCOMES[2],
            };
            let began = self.running.remove(*name);
            if self.counted.insert((*name).clone()) && self.looked {
                *self.jobs.entry((METHODS[0], outcome)).or_default() += 1;
                let took = began.map_or(0, |began| now.duration_since(began).as_millis().max(0));
                self.job_seconds.observe(took as f64 / 1000.0);
            }
        }
        // Their log is in memory and bounded: what is out of it is never seen again.
        self.counted.retain(|name| jobs.contains_key(name));
        self.running.retain(|name, _| jobs.contains_key(name));
    }

    fn count_failovers(&mut self, topology: &Topology<'_>, now: Timestamp) {
        for shard in topology.owning().filter(|shard| topology.primary_serves(shard)) {
            let before = self.primaries.insert(shard.id.clone(), shard.primary.clone());
            let failing = self.failing.remove(&shard.id);
            if before.is_none_or(|before| before == shard.primary) {
                continue;
            }
            let (kind, began) = match self.asked.remove(&shard.id) {
                Some((kind, at)) => (kind, at),
                None => ("unplanned", failing.unwrap_or(now)),
            };
            *self.failovers.entry(kind).or_default() += 1;
            let took = now.duration_since(began).as_millis().max(0);
            self.failover_seconds.observe(took as f64 / 1000.0);
        }
        for shard in topology.owning().filter(|shard| !topology.primary_serves(shard)) {
            self.failing.entry(shard.id.clone()).or_insert(now);
        }
        self.asked.retain(|_, (_, at)| seconds_since(*at, now) < ASKED_FOR);
        let known: BTreeSet<_> = topology.shards.iter().map(|shard| &shard.id).collect();
        self.primaries.retain(|shard, _| known.contains(shard));
        self.failing.retain(|shard, _| known.contains(shard));
    }
}

/// Primaries in one place whose loss would take the majority of them (R33).
fn at_risk(topology: &Topology<'_>) -> usize {
    let mut by_place: BTreeMap<&Text, usize> = BTreeMap::new();
    let primaries: Vec<_> = topology
        .owning()
        .filter_map(|shard| topology.member(&shard.primary)?.ordinal)
        .collect();
    for place in primaries.iter().filter_map(|ordinal| topology.place_of(*ordinal)) {
        *by_place.entry(place).or_default() += 1;
    }
    // With one place there is nowhere else to go.
    let places: BTreeSet<_> = topology.seen.places.values().collect();
    let most = by_place.into_values().max().unwrap_or(0);
    let majority = primaries.len().saturating_sub(1) / 2 + 1;
    if places.len() > 1 && most >= majority { most } else { 0 }
}

#[cfg(test)]
mod tests;
