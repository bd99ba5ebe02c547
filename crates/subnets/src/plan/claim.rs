//! What a claim does next: make its Subnet, and say where it stands.

use std::time::Duration;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use usher_engine::{Conditions, Finding, ObjectKey, Plan, Stance, Step, Tell};

use super::map::{Conflict, Fit};
use super::{PoolState, Request, fulfils, request};
use crate::api::{ClaimPhase, FINALIZER, SubnetClaimStatus};
use crate::ledger::{Account, Grant, Holder, Refusal};
use crate::records::{ClaimRecord, PoolRecord, SubnetRecord};

/// A claim that is neither bound nor refused after this long says so (R19); before, its next write is Bound.
const QUIET: SignedDuration = SignedDuration::from_secs(2);

/// A Subnet that the API server refused is tried again after this long: policies and quotas change without our being told.
const REFUSED_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// A step of a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum ClaimStep {
    /// Creates the Subnet for a granted range: the candidacy.
    CreateSubnet {
        /// The pool.
        pool: ObjectKey,
        /// The range.
        cidr: IpNet,
    },
    /// Takes its old place in the queue again, after its Subnet was refused.
    QueueAgain {
        /// The pool.
        pool: ObjectKey,
    },
}

impl Step for ClaimStep {
    fn name(&self) -> &'static str {
        match self {
            ClaimStep::CreateSubnet { .. } => "CreateSubnet",
            ClaimStep::QueueAgain { .. } => "QueueAgain",
        }
    }

    fn describe(&self) -> String {
        match self {
            ClaimStep::CreateSubnet { pool, cidr } => format!("create the Subnet for {cidr} of pool {}", pool.name()),
            ClaimStep::QueueAgain { pool } => format!("wait for a range of pool {} again", pool.name()),
        }
    }

    fn disruptive(&self) -> bool {
        false
    }
}

/// What a claim's plan is made from.
#[derive(Debug)]
pub struct ClaimView<'v> {
    /// Its pool.
    pub pool: Option<&'v PoolRecord>,
    /// Its pool's account.
    pub account: Option<&'v Account>,
    /// Its Subnet, if there is one that is not withdrawn.
    pub subnet: Option<&'v SubnetRecord>,
    /// What it was promised in memory.
    pub grant: Option<&'v Grant>,
}

/// Where an unbound claim stands.
enum Standing {
    /// Its next write is Bound.
    OnItsWay,
    /// It must wait for somebody else.
    Waiting {
        reason: &'static str,
        event: Option<&'static str>,
        message: String,
    },
    /// It can never be served as it stands.
    Invalid { message: String },
}

/// The decision.
pub fn plan(claim: &ClaimRecord, seen: &ClaimView<'_>, now: Timestamp) -> Plan<ClaimStep, SubnetClaimStatus> {
    if claim.meta.deleting.is_some() || claim.bound().is_some() {
        return Plan::report(claim.status.clone());
    }
    if let Some(subnet) = seen.subnet
        && committed(subnet, seen.account)
        && fulfils(claim, &subnet.pool, &subnet.cluster_id, subnet.cidr)
    {
        return bind(claim, subnet, now);
    }
    if let Some(refusal) = seen.account.and_then(|account| account.refused.get(&claim.meta.uid)) {
        return refused(claim, refusal, now);
    }
    let standing = standing(claim, seen);
    let plan = match &standing {
        Standing::Waiting { reason, event, message } => {
            let mut finding =
                Finding::new(Stance::Waiting, event.unwrap_or(reason), message.clone()).since(claim.meta.created);
            if event.is_some() {
                finding = finding.told(Tell::Warning);
            }
            Plan::report(report(claim, ClaimPhase::Pending, reason, message, now)).finding(finding)
        }
        Standing::Invalid { message } => Plan::report(report(claim, ClaimPhase::Error, "InvalidRequest", message, now))
            .finding(Finding::new(Stance::Blocked, "ValidationFailed", message.clone()).told(Tell::Warning)),
        Standing::OnItsWay => {
            let begun = seen
                .subnet
                .map(|s| s.meta.created)
                .or(seen.grant.map(|g| g.at))
                .unwrap_or(claim.meta.created);
            let late = now.duration_since(begun) >= QUIET && (claim.status.phase.is_none() || is_served(seen));
            let recovered = claim.status.phase == Some(ClaimPhase::Error);
            let message = "a range is being placed for this claim";
            // Nothing is said that the next write overwrites anyway; but nobody waits in silence either.
            let plan = if late || recovered {
                Plan::report(report(claim, ClaimPhase::Pending, "Placing", message, now))
            } else {
                Plan::report(claim.status.clone())
            };
            plan.finding(Finding::new(Stance::Doing, "Placing", message))
                .again_after(Duration::from_secs(2))
        }
    };
    match (seen.grant, seen.pool) {
        (Some(grant), Some(pool))
            if seen.subnet.is_none()
                && pool.meta.has_finalizer(FINALIZER)
                && PoolState::of(pool) == PoolState::Serving
                && matches!(standing, Standing::OnItsWay) =>
        {
            plan.step(ClaimStep::CreateSubnet {
                pool: pool.meta.key.clone(),
                cidr: grant.cidr,
            })
        }
        _ => plan,
    }
}

/// Allocated in view, or its commit was answered and the echo is under way (R19: write 3 follows the answer of 2).
fn committed(subnet: &SubnetRecord, account: Option<&Account>) -> bool {
    subnet.settled() || account.is_some_and(|account| account.committed.contains_key(&subnet.meta.uid))
}

/// The API server refused its Subnet (a policy, a quota, a right): said so, and asked again after a while. Meanwhile it
/// holds no range and nobody waits behind it.
fn refused(claim: &ClaimRecord, refusal: &Refusal, now: Timestamp) -> Plan<ClaimStep, SubnetClaimStatus> {
    let message = &refusal.message;
    let plan = Plan::report(report(claim, ClaimPhase::Pending, "Refused", message, now))
        .finding(Finding::new(Stance::Blocked, "Refused", message.clone()).since(refusal.at));
    let rest = REFUSED_AGAIN.saturating_sub(now.duration_since(refusal.at));
    if rest > SignedDuration::ZERO {
        return plan.again_after(Duration::try_from(rest).unwrap_or(Duration::from_secs(1)));
    }
    match claim.meta.key.sibling(&claim.pool) {
        Some(pool) => plan.step(ClaimStep::QueueAgain { pool }),
        None => plan,
    }
}

/// Its range is chosen: by a grant, or by a Subnet that asks for it.
fn is_served(seen: &ClaimView<'_>) -> bool {
    seen.grant.is_some() || seen.subnet.is_some()
}

fn bind(claim: &ClaimRecord, subnet: &SubnetRecord, now: Timestamp) -> Plan<ClaimStep, SubnetClaimStatus> {
    let message = format!("{} of pool {} is allocated", subnet.cidr, subnet.pool);
    let mut conditions = Conditions::from_existing(&claim.status.conditions);
    conditions.set("Ready", true, "Allocated", message.clone(), claim.meta.generation, now);
    conditions.remove("Stalled");
    Plan::report(SubnetClaimStatus {
        observed_generation: Some(claim.meta.generation),
        phase: Some(ClaimPhase::Bound),
        allocated_cidr: Some(subnet.cidr.to_string()),
        subnet_ref: Some(subnet.meta.key.name().to_owned()),
        message: None,
        conditions: conditions.into_vec(),
    })
    .finding(Finding::new(Stance::Done, "SubnetAllocated", message).told(Tell::Normal))
}

fn standing(claim: &ClaimRecord, seen: &ClaimView<'_>) -> Standing {
    let waiting = |reason, message| Standing::Waiting {
        reason,
        event: None,
        message,
    };
    let Some(pool) = seen.pool else {
        let message = format!(
            "pool {} does not exist in namespace {}; create it",
            claim.pool,
            claim.meta.key.namespace()
        );
        return waiting("PoolNotFound", message);
    };
    let asked = match request(claim.ask, pool) {
        Ok(asked) => asked,
        Err(message) => return Standing::Invalid { message },
    };
    let state = PoolState::of(pool);
    if state != PoolState::Serving {
        return waiting("PoolNotReady", state.sentence(pool));
    }
    let Some(map) = seen.account.and_then(|account| account.map.as_ref()) else {
        return Standing::OnItsWay;
    };
    if is_served(seen) {
        return Standing::OnItsWay;
    }
    if seen
        .account
        .is_some_and(|account| account.has_subnet_of(&claim.meta.uid))
    {
        return waiting(
            "RangeReleasing",
            "an earlier range of this claim is being released; it is served after that".into(),
        );
    }
    let name = pool.meta.key.name();
    match asked {
        Request::Length(length) if map.fit(length, Fit::First).is_none() => {
            let largest = match map.largest_free() {
                Some(length) => format!("the largest free block is /{length}"),
                None => "it is full".into(),
            };
            let message = format!(
                "no free /{length} in pool {name}, {largest}; waiting since {}",
                claim.meta.created
            );
            Standing::Waiting {
                reason: "PoolExhausted",
                event: Some("SubnetPoolExhausted"),
                message,
            }
        }
        Request::Exact(cidr) if !map.is_free(cidr) => {
            let holder = map
                .overlay()
                .reserve(cidr)
                .err()
                .map_or_else(|| "somebody else".into(), |c| holder(&c, seen.account));
            let message = format!(
                "{cidr} of pool {name} is held by {holder}; waiting since {}",
                claim.meta.created
            );
            Standing::Waiting {
                reason: "RequestedCIDRInUse",
                event: Some("AllocationConflict"),
                message,
            }
        }
        _ => Standing::OnItsWay,
    }
}

/// The holder of a range, for people.
fn holder(conflict: &Conflict<Holder>, account: Option<&Account>) -> String {
    let Conflict::Held { holder, .. } = conflict else {
        return "nobody: it lies outside".into();
    };
    match holder {
        Holder::Subnet(uid) => match account.and_then(|account| account.subnets.get(uid)) {
            Some(seat) => format!("Subnet {} ({})", seat.key.name(), seat.cidr),
            None => "a Subnet".into(),
        },
        Holder::Claim(_) => "a Bound claim".into(),
        Holder::Grant(_) => "a claim that is being served".into(),
        Holder::Unseen(name) => format!("Subnet {name}"),
        Holder::Excluded => "the pool's exclusions".into(),
    }
}

fn report(claim: &ClaimRecord, phase: ClaimPhase, reason: &str, message: &str, now: Timestamp) -> SubnetClaimStatus {
    let generation = claim.meta.generation;
    let mut conditions = Conditions::from_existing(&claim.status.conditions);
    conditions.set("Ready", false, reason, message, generation, now);
    if phase == ClaimPhase::Error {
        conditions.set("Stalled", true, reason, message, generation, now);
    } else {
        conditions.remove("Stalled");
    }
    SubnetClaimStatus {
        observed_generation: Some(generation),
        phase: Some(phase),
        allocated_cidr: None,
        subnet_ref: None,
        message: Some(message.to_owned()),
        conditions: conditions.into_vec(),
    }
}
