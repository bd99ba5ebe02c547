//! What a pool does next: serve its queue, say what it has, end when it is empty.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use usher_engine::{Conditions, Finding, ObjectKey, Plan, Stance, Step, Tell};

use super::map::Fit;
use super::{PoolState, Request, request};
use crate::api::{FINALIZER, Strategy, SubnetPoolStatus};
use crate::ledger::{Account, Grant, Place, Waiting};
use crate::records::{Ask, ClaimRecord, PoolRecord};

/// Grants per pass; then the pass ends and others have their turn (R17).
pub const GRANTS_PER_PASS: usize = 512;
/// Grants whose Subnet is not in view yet, per pool (R17): bounds what a crash makes us decide again.
pub const GRANTS_OUTSTANDING: usize = 256;
/// Allocations listed one by one in the status, up to this many (R47) …
const LISTED_MAX: usize = 500;
/// … and again once there are no more than this, so that the list does not come and go.
const LISTED_AGAIN: usize = 400;
/// How often a taken name that the view does not show is asked after.
const UNSEEN_AGAIN: Duration = Duration::from_secs(5);
/// Without a running watch for this long, nothing is granted: the map may be out of date.
const GRANTS_STOP_AFTER: SignedDuration = SignedDuration::from_secs(5);

/// A step of a pool.
#[derive(Debug, Clone, PartialEq)]
pub enum PoolStep {
    /// Puts the finalizer on the pool, before anything is taken from it.
    AddFinalizer,
    /// Promises a range to a claim, in memory.
    Grant {
        /// The claim's uid.
        uid: Arc<str>,
        /// What it is promised.
        grant: Grant,
    },
    /// Takes back a grant that nobody wants any more.
    RevokeGrant {
        /// The claim's uid.
        uid: Arc<str>,
        /// The range.
        cidr: IpNet,
        /// Its create request was sent: ask the API server first whether it took effect.
        sent: bool,
    },
    /// Asks whether a name that was taken is still taken: the view has not shown by whom.
    ConfirmTaken {
        /// The Subnet's name.
        name: Arc<str>,
    },
    /// Lets the pool go, after a quorum list shows that nothing of it is left.
    DropFinalizer,
}

impl Step for PoolStep {
    fn name(&self) -> &'static str {
        match self {
            PoolStep::AddFinalizer => "AddPoolFinalizer",
            PoolStep::Grant { .. } => "Grant",
            PoolStep::RevokeGrant { .. } => "RevokeGrant",
            PoolStep::ConfirmTaken { .. } => "ConfirmTaken",
            PoolStep::DropFinalizer => "DropPoolFinalizer",
        }
    }

    fn describe(&self) -> String {
        match self {
            PoolStep::AddFinalizer => "put the finalizer on the pool, before the first range is taken from it".into(),
            PoolStep::Grant { grant, .. } => format!("grant {} to SubnetClaim {}", grant.cidr, grant.claim),
            PoolStep::RevokeGrant { cidr, .. } => {
                format!("take back the grant of {cidr}; its claim is gone or changed")
            }
            PoolStep::ConfirmTaken { name } => format!("ask the API server whether Subnet {name} exists"),
            PoolStep::DropFinalizer => "check that no Subnet of the pool is left, then let it go".into(),
        }
    }

    fn disruptive(&self) -> bool {
        false
    }
}

/// What a pool's plan is made from.
#[derive(Debug)]
pub struct PoolView<'v> {
    /// Its account.
    pub account: &'v Account,
    /// Pools that name it as their parent.
    pub child_pools: usize,
    /// Grants whose claim is gone, changed, or elsewhere.
    pub stale_grants: Vec<(&'v Arc<str>, &'v Grant)>,
    /// A watch is broken since then.
    pub interrupted: Option<Timestamp>,
    /// Subnets that keep the pool from going: how many, and one of them.
    pub left: usize,
    /// One of those.
    pub example: Option<&'v ObjectKey>,
}

impl PoolView<'_> {
    /// Whether a grant is still wanted by its claim and still possible in its pool (R18).
    pub fn wanted(grant: &Grant, claim: Option<&ClaimRecord>, uid: &str, pool: &PoolRecord) -> bool {
        let possible = PoolState::of(pool) == PoolState::Serving
            && pool.cidr.contains(&grant.cidr)
            && !pool
                .exclude
                .iter()
                .any(|e| e.contains(&grant.cidr) || grant.cidr.contains(e));
        possible
            && claim.is_some_and(|claim| {
                &*claim.meta.uid == uid
                    && claim.meta.generation == grant.generation
                    && claim.meta.deleting.is_none()
                    && claim.bound().is_none()
                    && *claim.pool == *pool.meta.key.name()
            })
    }
}

/// The decision.
pub fn plan(pool: &PoolRecord, seen: &PoolView<'_>, now: Timestamp) -> Plan<PoolStep, SubnetPoolStatus> {
    let state = PoolState::of(pool);
    let mut plan = Plan::report(status(pool, seen, state, now));
    for (uid, grant) in &seen.stale_grants {
        plan = plan.step(PoolStep::RevokeGrant {
            uid: (*uid).clone(),
            cidr: grant.cidr,
            sent: grant.sent,
        });
    }
    if !seen.account.unseen.is_empty() {
        // The watch event clears this; the question is for the one that was missed.
        plan = plan.again_after(UNSEEN_AGAIN);
        for name in seen.account.unseen.keys() {
            plan = plan.step(PoolStep::ConfirmTaken { name: name.clone() });
        }
    }
    if state == PoolState::Terminating {
        return terminate(pool, seen, plan);
    }
    let used = seen.account.has_subnets() || waiting(pool, seen.account) > 0 || !seen.account.grants.is_empty();
    if used && !pool.meta.has_finalizer(FINALIZER) {
        // Grants follow once the finalizer is in view.
        return plan.step(PoolStep::AddFinalizer);
    }
    if state != PoolState::Serving {
        return plan.finding(Finding::new(Stance::Blocked, state.reason(), state.sentence(pool)));
    }
    if let Some(since) = seen
        .interrupted
        .filter(|since| now.duration_since(*since) > GRANTS_STOP_AFTER)
    {
        return plan
            .finding(
                Finding::new(
                    Stance::Waiting,
                    "WatchLost",
                    "a watch is broken, nothing is granted until it runs again",
                )
                .since(since),
            )
            .again_after(Duration::from_secs(1));
    }
    serve(pool, seen.account, plan, now)
}

fn terminate(
    pool: &PoolRecord,
    seen: &PoolView<'_>,
    plan: Plan<PoolStep, SubnetPoolStatus>,
) -> Plan<PoolStep, SubnetPoolStatus> {
    if !pool.meta.has_finalizer(FINALIZER) {
        return plan;
    }
    match seen.example {
        None if seen.account.grants.is_empty() => plan.step(PoolStep::DropFinalizer),
        None => plan.again_after(Duration::from_secs(1)),
        Some(example) => plan.finding(
            Finding::new(
                Stance::Blocked,
                "PoolDeletionBlocked",
                format!(
                    "pool {} cannot go before what is taken from it: {}, {example} among them; delete the claims",
                    pool.meta.key.name(),
                    some(seen.left, "Subnet")
                ),
            )
            .told(Tell::Warning),
        ),
    }
}

/// Serves the queue, oldest first (R13): among the heads of the lines, the oldest that fits, until none does. Whoever is
/// passed over because nothing fits it makes those behind it take the tightest place, so that no big block is split for
/// them without need (R14).
fn serve(
    pool: &PoolRecord,
    account: &Account,
    mut plan: Plan<PoolStep, SubnetPoolStatus>,
    now: Timestamp,
) -> Plan<PoolStep, SubnetPoolStatus> {
    let Some(map) = &account.map else { return plan };
    let room = GRANTS_OUTSTANDING
        .saturating_sub(account.grants.len())
        .min(GRANTS_PER_PASS);
    let mut overlay = map.overlay();
    // Everybody in a line asks the same, so only its head needs to be looked at.
    let mut lines: Vec<_> = account
        .waiting
        .iter()
        .map(|(ask, line)| (request(*ask, pool), line.iter()))
        .collect();
    let mut heads: BTreeMap<&Place, (Request, usize, &Waiting)> = BTreeMap::new();
    for (at, (asked, line)) in lines.iter_mut().enumerate() {
        if let Ok(asked) = asked
            && let Some((place, waiting)) = line.next()
        {
            heads.insert(place, (*asked, at, waiting));
        }
    }
    let usual = match pool.strategy {
        Strategy::Linear => Fit::First,
        Strategy::Buddy => Fit::Best,
    };
    let (mut granted, mut passed_over) = (0, false);
    while granted < room
        && let Some((place, (asked, at, waiting))) = heads.pop_first()
    {
        let taken = match asked {
            Request::Length(length) => overlay.take(length, if passed_over { Fit::Best } else { usual }),
            Request::Exact(cidr) => overlay.reserve(cidr).is_ok().then_some(cidr),
        };
        let Some(cidr) = taken else {
            // Room only shrinks while we serve: nobody in this line is served in this pass.
            passed_over = true;
            continue;
        };
        plan = plan.step(PoolStep::Grant {
            uid: waiting.uid.clone(),
            grant: Grant {
                cidr,
                claim: place.claim.clone(),
                generation: waiting.generation,
                at: now,
                sent: false,
            },
        });
        granted += 1;
        if let Some((place, waiting)) = lines.get_mut(at).and_then(|(_, line)| line.next()) {
            heads.insert(place, (asked, at, waiting));
        }
    }
    if granted > 0 {
        plan = plan.finding(Finding::new(
            Stance::Doing,
            "Granting",
            format!("granting a range to {} now", some(granted, "waiting claim")),
        ));
    }
    let left = waiting(pool, account).saturating_sub(granted);
    if granted == room && left > 0 {
        // More would fit, perhaps; go on when these are placed, and let others have their turn.
        let soon = if room > 0 {
            Duration::from_millis(20)
        } else {
            Duration::from_secs(1)
        };
        plan = plan.again_after(soon);
    } else if left > 0 {
        plan = plan.finding(Finding::new(
            Stance::Waiting,
            "ClaimsWaiting",
            format!(
                "waiting for room in pool {}: {}",
                pool.meta.key.name(),
                some(left, "claim")
            ),
        ));
    }
    plan
}

/// What the pool reports, from running counters (R46, R47).
fn status(pool: &PoolRecord, seen: &PoolView<'_>, state: PoolState, now: Timestamp) -> SubnetPoolStatus {
    let account = seen.account;
    let (mut by_size, mut exact) = (BTreeMap::new(), BTreeMap::new());
    let (mut largest, mut used_percent) = (String::new(), 0);
    if let Some(map) = &account.map {
        let reported = if pool.cidr.addr().is_ipv4() { 28 } else { 64 };
        for (length, count) in map.counts().filter(|(length, _)| *length <= pool.longest.max(reported)) {
            by_size.insert(length.to_string(), i64::try_from(count).unwrap_or(i64::MAX));
            if count > (1 << 53) - 1 {
                exact.insert(length.to_string(), count.to_string());
            }
        }
        // Upstream's dashboards read the count of /24 under this key as well.
        if let Some(count) = by_size.get("24").copied() {
            by_size.insert("/24".into(), count);
        }
        largest = map
            .largest_free()
            .map(|length| format!("/{length}"))
            .unwrap_or_default();
        used_percent = i64::from(map.used_percent());
    }
    let omitted_before = pool.status.allocated_cidrs_omitted;
    let omitted = account.settled > if omitted_before { LISTED_AGAIN } else { LISTED_MAX };
    let listed = if omitted {
        BTreeMap::new()
    } else {
        let settled = account.subnets.values().filter(|seat| seat.settled);
        settled
            .map(|seat| (seat.cidr.to_string(), seat.cluster_id.to_string()))
            .collect()
    };
    SubnetPoolStatus {
        observed_generation: Some(pool.meta.generation),
        allocated_count: count(account.settled),
        free_count_by_size: by_size,
        free_count_exact: exact,
        allocated_cidrs: listed,
        allocated_cidrs_omitted: omitted,
        largest_free_block: largest,
        used_percent,
        waiting_claims: count(waiting(pool, account)),
        child_pools: count(seen.child_pools),
        out_of_range: count(account.out_of_range),
        overlaps: count(account.overlaps),
        recalculated: pool.status.recalculated.clone(),
        conditions: conditions(pool, seen, state, now),
    }
}

/// Claims that wait for room. Those that ask for what the pool never grants do not wait, they are told so.
fn waiting(pool: &PoolRecord, account: &Account) -> usize {
    account
        .waiting
        .iter()
        .filter(|(ask, _)| request(**ask, pool).is_ok())
        .map(|(_, line)| line.len())
        .sum()
}

/// A number of things, for people.
fn some(n: usize, thing: &str) -> String {
    if n == 1 {
        format!("1 {thing}")
    } else {
        format!("{n} {thing}s")
    }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn conditions(
    pool: &PoolRecord,
    seen: &PoolView<'_>,
    state: PoolState,
    now: Timestamp,
) -> Vec<usher_engine::Condition> {
    let account = seen.account;
    let generation = pool.meta.generation;
    let mut conditions = Conditions::from_existing(&pool.status.conditions);
    let ready = match state {
        PoolState::Terminating => format!("waiting for {} to go; delete the claims", some(seen.left, "Subnet")),
        other => other.sentence(pool),
    };
    conditions.set(
        "Ready",
        state == PoolState::Serving,
        state.reason(),
        ready,
        generation,
        now,
    );

    let room = account
        .map
        .as_ref()
        .is_some_and(|map| map.fit(pool.default, Fit::First).is_some());
    match (waiting(pool, account), room) {
        (0, true) => conditions.set("Exhausted", false, "Room", "", generation, now),
        (0, false) => {
            let message = format!("no free block of the default size /{}", pool.default);
            conditions.set("Exhausted", true, "NoBlockOfDefaultSize", message, generation, now);
        }
        // A queue that is about to be served is no exhaustion: only who fits nowhere counts.
        (_, _) if account.waiting.keys().any(|ask| is_stuck(*ask, pool, account)) => {
            conditions.set(
                "Exhausted",
                true,
                "ClaimsWaiting",
                "claims wait for room",
                generation,
                now,
            );
        }
        _ => conditions.set(
            "Exhausted",
            !room,
            if room { "Room" } else { "NoBlockOfDefaultSize" },
            "",
            generation,
            now,
        ),
    }
    match (account.overlaps, account.out_of_range) {
        (0, 0) => conditions.set("Conflicted", false, "NoConflict", "", generation, now),
        (0, outside) => {
            let message = format!(
                "outside {}: {}; nothing is taken from them",
                pool.cidr,
                some(outside, "Subnet")
            );
            conditions.set("Conflicted", true, "OutOfRange", message, generation, now);
        }
        (pairs, _) => {
            let message = format!("{} of Subnets overlap; delete one of each", some(pairs, "pair"));
            conditions.set("Conflicted", true, "Overlap", message, generation, now);
        }
    }
    if state == PoolState::Invalid {
        conditions.set("Stalled", true, "Error", state.sentence(pool), generation, now);
    } else {
        conditions.remove("Stalled");
    }
    conditions.into_vec()
}

fn is_stuck(ask: Ask, pool: &PoolRecord, account: &Account) -> bool {
    match (request(ask, pool), &account.map) {
        (Ok(Request::Length(length)), Some(map)) => map.fit(length, Fit::First).is_none(),
        (Ok(Request::Exact(cidr)), Some(map)) => !map.is_free(cidr),
        _ => false,
    }
}
