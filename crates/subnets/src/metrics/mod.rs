//! The metrics of subnets (spec, section 9), and the log line of a claim that was bound.
//!
//! Three sources. What *is* (free blocks, waiting claims, overlaps) is read from the view and the ledger when somebody
//! asks ([`scrape`]): it costs events nothing, and the series of a pool go when the pool goes because there is nothing
//! left to read. What *happened* is counted when a pass is over ([`pool_passed`], [`claim_passed`], [`subnet_passed`]),
//! into the [`Tally`]. The one number in between, claims by phase, is kept by the Tally as the watch brings it: to count
//! 300,000 claims at every scrape would be too dear.

pub mod names;
mod scrape;

pub use scrape::text;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use usher_engine::{Condition, ObjectKey, Uid};
use usher_operator::kind::Passed;
use usher_operator::metrics::seconds;
use usher_operator::queue::Why;
use usher_operator::view::{Change, View};
use usher_operator::window::Window;

use crate::api::{ClaimPhase, SubnetClaimStatus, SubnetPhase};
use crate::kinds::{Claims, Pools, Subnets};
use crate::ledger::Ledger;
use crate::plan::subnet::SubnetStep;
use crate::records::{Ask, ClaimRecord, PoolRecord};

/// The wakes of rows 1 to 6 of the spec's section 7. What else wakes a pool (its claims, timers, echoes) has other words.
const COUNTED: [Why; 5] = [Why::CREATE, Why::UPDATE, Why::DELETE, Why::EXTERNAL, Why::RETRY];
/// A claim that found its name taken more often than this counts as this often: labels are bounded.
const MOST_RETRIES: u32 = 10;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequeueLabel {
    event_type: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

fn verdict(well: bool) -> &'static str {
    if well { "success" } else { "error" }
}

/// What became of a claim's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Success,
    Validation,
    Exhausted,
    Conflict,
}

impl Outcome {
    const ALL: [Outcome; 4] = [
        Outcome::Success,
        Outcome::Validation,
        Outcome::Exhausted,
        Outcome::Conflict,
    ];

    fn label(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::Validation => "validation",
            Outcome::Exhausted => "exhausted",
            Outcome::Conflict => "conflict",
        }
    }

    /// What a claim is told. `None`: nothing yet, or something that is no answer to its request.
    fn of(status: &SubnetClaimStatus) -> Option<Self> {
        if status.phase == Some(ClaimPhase::Bound) {
            return Some(Outcome::Success);
        }
        let ready = |condition: &&Condition| condition.type_ == "Ready";
        match status.conditions.iter().find(ready)?.reason.as_str() {
            "InvalidRequest" => Some(Outcome::Validation),
            "PoolExhausted" => Some(Outcome::Exhausted),
            "RequestedCIDRInUse" | "ClusterIDConflict" => Some(Outcome::Conflict),
            _ => None,
        }
    }
}

/// Claims of one namespace by phase, in the order of [`PHASES`].
type Phases = [i64; 3];
const PHASES: [&str; 3] = ["Pending", "Bound", "Error"];

fn phase(claim: &ClaimRecord) -> usize {
    match claim.phase() {
        Some(ClaimPhase::Pending) | None => 0,
        Some(ClaimPhase::Bound) => 1,
        Some(ClaimPhase::Error) => 2,
    }
}

/// What is counted. Kept in the view, fed by the same events in the same order.
#[derive(Debug)]
pub struct Tally {
    claims: BTreeMap<String, Phases>,
    requeues: Family<RequeueLabel, Counter>,
    durations: Family<ResultLabel, Histogram>,
    latency: Family<ResultLabel, Histogram>,
    contests: Counter,
    drift: Counter,
    /// Only pools in view have an entry.
    pools: Mutex<BTreeMap<ObjectKey, PoolTally>>,
    /// How often each unbound claim found its name taken, by uid.
    retries: Mutex<BTreeMap<Uid, u32>>,
}

/// What was counted of one pool.
#[derive(Debug, Clone, Default)]
struct PoolTally {
    allocations: BTreeMap<(u8, Outcome), u64>,
    retries: BTreeMap<u32, u64>,
}

impl Default for Tally {
    fn default() -> Self {
        let tally = Self {
            claims: BTreeMap::new(),
            requeues: Family::default(),
            durations: Family::new_with_constructor(seconds),
            latency: Family::new_with_constructor(seconds),
            contests: Counter::default(),
            drift: Counter::default(),
            pools: Mutex::default(),
            retries: Mutex::default(),
        };
        // A series that begins at its first increment hides that increment from `rate`.
        for well in [true, false] {
            let result = verdict(well);
            for why in COUNTED {
                let event_type = why.0;
                drop(tally.requeues.get_or_create(&RequeueLabel { event_type, result }));
            }
            drop(tally.durations.get_or_create(&ResultLabel { result }));
        }
        let result = Outcome::Success.label();
        drop(tally.latency.get_or_create(&ResultLabel { result }));
        tally
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    fn claim(&mut self, change: &Change<ClaimRecord>) {
        if let Some(old) = &change.old {
            self.add(old, -1);
        }
        if let Some(new) = &change.new {
            self.add(new, 1);
        }
        let served = change.new.as_ref().is_none_or(|new| new.bound().is_some());
        if let Some(claim) = change.latest().filter(|_| served) {
            lock(&self.retries).remove(&claim.meta.uid);
        }
    }

    fn add(&mut self, claim: &ClaimRecord, one: i64) {
        let namespace = claim.meta.key.namespace();
        if !self.claims.contains_key(namespace) {
            self.claims.insert(namespace.to_owned(), Phases::default());
        }
        if let Some(phases) = self.claims.get_mut(namespace) {
            if let Some(count) = phases.get_mut(phase(claim)) {
                *count += one;
            }
            if phases.iter().all(|count| *count == 0) {
                self.claims.remove(namespace);
            }
        }
    }

    fn pool(&mut self, change: &Change<PoolRecord>) {
        if let (None, Some(old)) = (&change.new, &change.old) {
            lock(&self.pools).remove(&old.meta.key);
        }
    }
}

/// Keeps the Tally in the view, beside the ledger.
pub fn register(view: &mut View) {
    let _ = view.watch::<ClaimRecord>().ingest::<Tally>(Tally::claim);
    let _ = view.watch::<PoolRecord>().ingest::<Tally>(Tally::pool);
}

/// Puts the metrics into the registry.
pub fn measure(registry: &mut Registry, window: &Window) {
    window.view(|view| {
        let Some(tally) = view.derived::<Tally>() else { return };
        registry.register(
            "subnetpool_parent_requeue",
            "Wakes of pools by event, counted when the pass that served them ends",
            tally.requeues.clone(),
        );
        registry.register(
            "subnetpool_parent_reconcile_duration_seconds",
            "Duration of a pool's pass",
            tally.durations.clone(),
        );
        registry.register(
            "aquanaut_subnet_alloc_latency_seconds",
            "From when a claim was seen until its Bound was answered",
            tally.latency.clone(),
        );
        registry.register(
            "usher_subnets_contests",
            "Candidates that overlapped another and withdrew",
            tally.contests.clone(),
        );
        registry.register(
            "usher_subnets_drift",
            "Holdings in which a map differed from what it was made from",
            tally.drift.clone(),
        );
    });
    registry.register_collector(Box::new(scrape::Scrape(window.clone())));
}

/// A pool's pass is over.
pub fn pool_passed(view: &View, pass: &Passed<'_, Pools>) {
    let (Some(tally), Some(well)) = (view.derived::<Tally>(), pass.outcome.verdict()) else {
        return;
    };
    let result = verdict(well);
    for (why, times) in pass.whys.iter().filter(|(why, _)| COUNTED.contains(why)) {
        let event_type = why.0;
        let label = RequeueLabel { event_type, result };
        tally.requeues.get_or_create(&label).inc_by(u64::from(*times));
    }
    tally
        .durations
        .get_or_create(&ResultLabel { result })
        .observe(pass.took.as_secs_f64());
}

/// A claim's pass is over: what it was told, if that is new.
pub fn claim_passed(view: &View, pass: &Passed<'_, Claims>) {
    let Some((claim, plan)) = pass.planned.filter(|_| pass.reported) else {
        return;
    };
    let told = Outcome::of(&plan.status);
    let (Some(outcome), Some(tally)) = (
        told.filter(|_| told != Outcome::of(&claim.status())),
        view.derived::<Tally>(),
    ) else {
        return;
    };
    if outcome == Outcome::Success {
        let seen = view
            .entry::<ClaimRecord>(pass.key)
            .map_or(pass.now, |entry| entry.since());
        let took = pass.now.since(seen);
        let result = outcome.label();
        tally
            .latency
            .get_or_create(&ResultLabel { result })
            .observe(took.as_secs_f64());
        let (cidr, ms) = (plan.status.allocated_cidr.as_deref(), took.as_millis());
        tracing::info!(claim = %pass.key, pool = &*claim.pool, cidr, ms, "bound");
    }
    let Some(key) = pass.key.sibling(&claim.pool) else {
        return;
    };
    // Only pools in view are counted for: what goes with the pool must not come back after it.
    let Some(pool) = view.get::<PoolRecord>(&key) else {
        return;
    };
    let given = plan
        .status
        .allocated_cidr
        .as_deref()
        .and_then(|cidr| cidr.rsplit('/').next()?.parse().ok());
    let size = given.unwrap_or(match claim.ask {
        Ask::Default => pool.default,
        Ask::Length(length) => length,
        Ask::Exact(cidr) => cidr.prefix_len(),
    });
    let mut pools = lock(&tally.pools);
    *pools
        .entry(key)
        .or_default()
        .allocations
        .entry((size, outcome))
        .or_default() += 1;
}

/// A Subnet's pass is over: whether it withdrew in favour of another that it overlaps (R24).
pub fn subnet_passed(view: &View, pass: &Passed<'_, Subnets>) {
    let Some((subnet, plan)) = pass.planned.filter(|_| pass.outcome.verdict() == Some(true)) else {
        return;
    };
    let failed = pass.reported && plan.status.phase == Some(SubnetPhase::Failed);
    let deleted = plan.steps.iter().any(|step| matches!(step, SubnetStep::Delete { .. }));
    if subnet.settled() || !(failed || deleted) {
        return;
    }
    let pool = pass.key.sibling(&subnet.pool);
    let account = pool.and_then(|pool| view.derived::<Ledger>()?.account(&pool));
    let contested = account.is_some_and(|account| {
        account
            .overlapping(subnet.cidr, Some(&subnet.meta.uid))
            .next()
            .is_some()
    });
    if let Some(tally) = view.derived::<Tally>().filter(|_| contested) {
        tally.contests.inc();
    }
}

/// R28: the name of a claim's Subnet was taken, and the claim waits for another range.
pub fn retried(view: &View, pool: &ObjectKey, claim: &Uid) {
    let Some(tally) = view
        .derived::<Tally>()
        .filter(|_| view.get::<PoolRecord>(pool).is_some())
    else {
        return;
    };
    let mut retries = lock(&tally.retries);
    let times = retries.entry(claim.clone()).or_default();
    *times = times.saturating_add(1).min(MOST_RETRIES);
    let times = *times;
    drop(retries);
    let mut pools = lock(&tally.pools);
    *pools.entry(pool.clone()).or_default().retries.entry(times).or_default() += 1;
}

/// R50, R51: a map differed from what it was made from, in so many holdings.
pub fn drifted(view: &View, holdings: u64) {
    if let Some(tally) = view.derived::<Tally>() {
        tally.drift.inc_by(holdings);
    }
}

#[cfg(test)]
mod tests;
