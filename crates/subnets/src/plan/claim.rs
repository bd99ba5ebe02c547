//! What a claim does next: make its Subnet, and say where it stands.

use std::time::Duration;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use usher_engine::{Conditions, Finding, ObjectKey, Plan, Stance, Step, Tell};

use super::map::Conflict;
use super::promise::{Sharing, keep_promise, share};
use super::{PoolState, Request, Standing, fulfils, not_ready, request};
use crate::api::{ClaimPhase, FINALIZER, SubnetClaimStatus};
use crate::ledger::{Account, Grant, Holder, Refusal};
use crate::records::{ClaimRecord, SubnetRecord};

/// Reason of a claim whose next write is Bound.
pub const PLACING: &str = "Placing";

/// A claim that is neither bound nor refused after this long says so (R19); before, its next write is Bound.
const QUIET: SignedDuration = SignedDuration::from_secs(2);

/// When a claim that is to be served looks again: soon, where it has a range or may have to say something; later, in a queue
/// that moves, where there are very many of them.
const SOON: Duration = Duration::from_secs(2);
const LATER: Duration = Duration::from_secs(10);

/// In a queue that moves, it has its turn before it says anything; but nobody waits in silence for longer than this.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

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
    /// Becomes a further owner of a Subnet of the same clusterID (R11).
    Share {
        /// The Subnet.
        subnet: ObjectKey,
    },
    /// Asks the API server whether the Subnet of a Bound claim is really gone, and whether somebody has its range.
    ConfirmLoss {
        /// The pool.
        pool: ObjectKey,
        /// The range.
        cidr: IpNet,
    },
    /// Creates the Subnet of a Bound claim again: it was taken away by force (R31).
    Restore {
        /// The pool.
        pool: ObjectKey,
        /// The range.
        cidr: IpNet,
    },
    /// Deletes a claim that was made for a pool claim which is gone for good.
    DeleteOrphan,
    /// Lets such a claim go.
    DropFinalizer,
}

impl Step for ClaimStep {
    fn name(&self) -> &'static str {
        match self {
            ClaimStep::CreateSubnet { .. } => "CreateSubnet",
            ClaimStep::QueueAgain { .. } => "QueueAgain",
            ClaimStep::Share { .. } => "AddSubnetOwner",
            ClaimStep::ConfirmLoss { .. } => "ConfirmLoss",
            ClaimStep::Restore { .. } => "RestoreSubnet",
            ClaimStep::DeleteOrphan => "DeleteOrphan",
            ClaimStep::DropFinalizer => "DropInternalClaimFinalizer",
        }
    }

    fn describe(&self) -> String {
        match self {
            ClaimStep::CreateSubnet { pool, cidr } => format!("create the Subnet for {cidr} of pool {}", pool.name()),
            ClaimStep::QueueAgain { pool } => format!("wait for a range of pool {} again", pool.name()),
            ClaimStep::Share { subnet } => {
                format!("share Subnet {}, which has the same clusterID", subnet.name())
            }
            ClaimStep::ConfirmLoss { cidr, .. } => {
                format!("ask the API server whether the Subnet of {cidr} is really gone")
            }
            ClaimStep::Restore { cidr, .. } => {
                format!("create the Subnet for {cidr} again: it was taken away by force")
            }
            ClaimStep::DeleteOrphan => "delete the claim: the pool claim it was made for is gone".into(),
            ClaimStep::DropFinalizer => "remove the claim's finalizer: the pool claim it was made for is gone".into(),
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
    pub pool: Option<Standing<'v>>,
    /// Its pool's account.
    pub account: Option<&'v Account>,
    /// Its Subnet, if there is one that is not withdrawn: its own, or for a Bound claim the one it shares or imported.
    pub subnet: Option<&'v SubnetRecord>,
    /// Another Subnet of the pool with its clusterID that is not withdrawn (R11).
    pub namesake: Option<&'v SubnetRecord>,
    /// What it was promised in memory.
    pub grant: Option<&'v Grant>,
    /// What a quorum read said of its lost Subnet.
    pub loss: Option<&'v Loss>,
    /// The pool claim it was made for is gone for good.
    pub orphaned: bool,
    /// How long this operator has known it.
    pub known_for: SignedDuration,
}

/// The Subnet of a Bound claim is gone: confirmed by a quorum read.
#[derive(Debug, Clone, PartialEq)]
pub struct Loss {
    /// The range it was bound to.
    pub cidr: IpNet,
    /// The Subnet that has the range now, if any.
    pub taken_by: Option<ObjectKey>,
    /// When that was asked.
    pub at: Timestamp,
}

/// How an unbound claim stands.
pub(super) enum Prospect {
    /// Its next write is Bound.
    OnItsWay,
    /// It must wait for somebody else.
    Waiting {
        reason: &'static str,
        event: Option<&'static str>,
        message: String,
    },
    /// It can never be served as it stands.
    Invalid {
        reason: &'static str,
        event: &'static str,
        message: String,
    },
}

pub(super) type ClaimPlan = Plan<ClaimStep, SubnetClaimStatus>;

/// The decision.
pub fn plan(claim: &ClaimRecord, seen: &ClaimView<'_>, now: Timestamp) -> ClaimPlan {
    let keep = || Plan::report(claim.status());
    // As the garbage collector would; it may not be there.
    if claim.internal() && seen.orphaned {
        return match claim.meta.deleting {
            None => keep().step(ClaimStep::DeleteOrphan),
            Some(_) => keep().step(ClaimStep::DropFinalizer),
        };
    }
    if claim.meta.deleting.is_some() {
        return keep();
    }
    if let Some(range) = claim.bound() {
        return keep_promise(claim, range, seen, now);
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
    if let Some(other) = seen.namesake.filter(|_| seen.subnet.is_none()) {
        match share(claim, other) {
            Sharing::Bind => return bind(claim, other, now),
            Sharing::Join => {
                return keep()
                    .step(ClaimStep::Share {
                        subnet: other.meta.key.clone(),
                    })
                    .again_after(Duration::from_secs(2));
            }
            Sharing::No(prospect) => return say(claim, &prospect, now),
        }
    }
    let prospect = prospect(claim, seen);
    if !matches!(prospect, Prospect::OnItsWay) {
        return say(claim, &prospect, now);
    }
    let begun = seen.subnet.map(|s| s.meta.created.into()).or(seen.grant.map(|g| g.at));
    let waited = begun.map_or(seen.known_for, |begun: Timestamp| now.duration_since(begun));
    let last_grant = seen.account.and_then(|account| account.last_grant);
    let moving = last_grant.is_some_and(|at| now.duration_since(at) < QUIET);
    let patience = if moving && begun.is_none() { PATIENCE } else { QUIET };
    let silent = claim.phase().is_none() || is_served(seen);
    let late = waited >= patience && silent;
    let recovered = claim.phase() == Some(ClaimPhase::Error);
    let message = "a range is being placed for this claim";
    // Nothing is said that the next write overwrites anyway; but nobody waits in silence either.
    let plan = if late || recovered {
        Plan::report(report(claim, ClaimPhase::Pending, PLACING, message, now))
    } else {
        keep()
    };
    let mut plan = plan.finding(Finding::new(Stance::Doing, PLACING, message));
    // The queue may come to stand still, or the room may go to others.
    let soon = is_served(seen) || (silent && !moving);
    plan = plan.again_after(if soon { SOON } else { LATER });
    match (seen.grant, &seen.pool) {
        (Some(grant), Some(standing))
            if seen.subnet.is_none()
                && standing.pool.meta.has_finalizer(FINALIZER)
                && matches!(standing.state(), PoolState::Serving | PoolState::Rebuilding) =>
        {
            plan.step(ClaimStep::CreateSubnet {
                pool: standing.pool.meta.key.clone(),
                cidr: grant.cidr,
            })
        }
        _ => plan,
    }
}

/// Tells a claim that it must wait, or that it asks in vain.
fn say(claim: &ClaimRecord, prospect: &Prospect, now: Timestamp) -> ClaimPlan {
    match prospect {
        Prospect::Waiting { reason, event, message } => {
            let mut finding =
                Finding::new(Stance::Waiting, event.unwrap_or(reason), message.clone()).since(claim.meta.created);
            if event.is_some() {
                finding = finding.told(Tell::Warning);
            }
            Plan::report(report(claim, ClaimPhase::Pending, reason, message, now)).finding(finding)
        }
        Prospect::Invalid { reason, event, message } => {
            Plan::report(report(claim, ClaimPhase::Error, reason, message, now))
                .finding(Finding::new(Stance::Blocked, event, message.clone()).told(Tell::Warning))
        }
        Prospect::OnItsWay => Plan::report(claim.status()),
    }
}

/// Allocated in view, or its commit was answered and the echo is under way (R19: write 3 follows the answer of 2).
pub(super) fn committed(subnet: &SubnetRecord, account: Option<&Account>) -> bool {
    subnet.settled() || account.is_some_and(|account| account.committed.contains_key(&subnet.meta.uid))
}

/// The API server refused its Subnet (a policy, a quota, a right): said so, and asked again after a while. Meanwhile it
/// holds no range and nobody waits behind it.
fn refused(claim: &ClaimRecord, refusal: &Refusal, now: Timestamp) -> ClaimPlan {
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

pub(super) fn bind(claim: &ClaimRecord, subnet: &SubnetRecord, now: Timestamp) -> ClaimPlan {
    let conditions = Conditions::from_existing(&claim.status().conditions);
    let (name, generation) = (subnet.meta.key.name(), claim.meta.generation);
    Plan::report(SubnetClaimStatus::bound_beside(
        conditions,
        generation,
        subnet.cidr,
        &subnet.pool,
        name,
        now,
    ))
    .finding(
        Finding::new(
            Stance::Done,
            "SubnetAllocated",
            format!("{} of pool {} is allocated", subnet.cidr, subnet.pool),
        )
        .told(Tell::Normal),
    )
}

fn prospect(claim: &ClaimRecord, seen: &ClaimView<'_>) -> Prospect {
    let waiting = |reason, message| Prospect::Waiting {
        reason,
        event: None,
        message,
    };
    let Some(standing) = &seen.pool else {
        let message = format!(
            "pool {} does not exist in namespace {}; create it",
            claim.pool,
            claim.meta.key.namespace()
        );
        return waiting("PoolNotFound", message);
    };
    let pool = standing.pool;
    let state = standing.state();
    let asked = match request(claim.ask, pool, standing.serving().unwrap_or(pool.cidr)) {
        Ok(asked) => asked,
        Err(message) => {
            return Prospect::Invalid {
                reason: "InvalidRequest",
                event: "ValidationFailed",
                message,
            };
        }
    };
    if !matches!(state, PoolState::Serving | PoolState::Rebuilding) {
        return waiting("PoolNotReady", standing.sentence());
    }
    let Some(account) = seen.account else {
        return Prospect::OnItsWay;
    };
    let Some(map) = account.map.as_ref() else {
        return Prospect::OnItsWay;
    };
    if is_served(seen) {
        return Prospect::OnItsWay;
    }
    if account.has_subnet_of(&claim.meta.uid) {
        return waiting(
            "RangeReleasing",
            "an earlier range of this claim is being released; it is served after that".into(),
        );
    }
    let name = pool.meta.key.name();
    if account.is_taken(claim.meta.key.namespace(), &claim.cluster_id) {
        let message = format!(
            "another claim of clusterID {} is being served; this one shares its range",
            claim.cluster_id
        );
        return waiting("RangeReleasing", message);
    }
    // What is kept for others is not there for this one.
    let mut free = map.overlay();
    let kept = account.target.as_ref().filter(|target| target.uid != claim.meta.uid);
    for cidr in account.awaited.values().copied().chain(kept.map(|target| target.cidr)) {
        free.withhold(cidr);
    }
    match asked {
        Request::Length(length) if !free.fits(length) => {
            let largest = match map.largest_free() {
                Some(shorter) if shorter <= length => match awaited(account) {
                    Some(holder) => format!(
                        "what is free is kept for Subnet {} ({}), which waits for a pool's range",
                        holder.meta.key.name(),
                        holder.cidr
                    ),
                    None => "what is free is kept for claims that wait longer".into(),
                },
                Some(length) => format!("the largest free block is /{length}"),
                None => "it is full".into(),
            };
            // Nothing here that only this process knows: two of them would correct each other without end.
            let message = format!(
                "no free /{length} in pool {name}, {largest}; waiting since {}",
                claim.meta.created
            );
            Prospect::Waiting {
                reason: "PoolExhausted",
                event: Some("SubnetPoolExhausted"),
                message,
            }
        }
        Request::Exact(cidr) if !free.is_free(cidr) => {
            let holder = map
                .overlay()
                .reserve(cidr)
                .err()
                .map_or_else(|| "a claim that waits longer".into(), |c| holder(&c, seen.account));
            let message = format!(
                "{cidr} of pool {name} is held by {holder}; waiting since {}",
                claim.meta.created
            );
            Prospect::Waiting {
                reason: "RequestedCIDRInUse",
                event: Some("AllocationConflict"),
                message,
            }
        }
        _ => Prospect::OnItsWay,
    }
}

/// The Subnet of a child pool that waits for room, if there is one.
fn awaited(account: &Account) -> Option<&SubnetRecord> {
    let uid = account.awaited.keys().next()?;
    account.withdrawn.get(uid).map(AsRef::as_ref)
}

/// The holder of a range, for people.
fn holder(conflict: &Conflict<Holder>, account: Option<&Account>) -> String {
    let Conflict::Held { holder, .. } = conflict else {
        return "nobody: it lies outside".into();
    };
    match holder {
        Holder::Subnet(uid) => match account.and_then(|account| account.subnets.get(uid)) {
            Some(subnet) => format!("Subnet {} ({})", subnet.meta.key.name(), subnet.cidr),
            None => "a Subnet".into(),
        },
        Holder::Claim(_) => "a Bound claim".into(),
        Holder::Grant(_) => "a claim that is being served".into(),
        Holder::Unseen(name) => format!("Subnet {name}"),
        Holder::Excluded => "the pool's exclusions".into(),
    }
}

pub(super) fn report(
    claim: &ClaimRecord,
    phase: ClaimPhase,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> SubnetClaimStatus {
    let generation = claim.meta.generation;
    SubnetClaimStatus {
        observed_generation: Some(generation),
        phase: Some(phase),
        allocated_cidr: None,
        subnet_ref: None,
        message: Some(message.to_owned()),
        conditions: not_ready(&claim.status().conditions, phase, (reason, message), generation, now),
    }
}
