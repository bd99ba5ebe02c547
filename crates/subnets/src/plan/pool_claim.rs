//! What a pool claim does next: a claim in the parent, a pool of what that gets, and both taken down in order (R44).
//!
//! The order is what makes it safe. Upwards: internal claim, its Subnet (the holder), child pool, Held. Downwards: child
//! pool, when its own Subnets are gone; then the internal claim, and with it the holder; then the pool claim.

use jiff::Timestamp;
use usher_engine::name::MAX_NAME_LENGTH;
use usher_engine::{Conditions, Finding, Plan, Stance, Step, Tell};

use super::not_ready;
use super::pool_report::some;
use crate::api::{ClaimPhase, FINALIZER, SubnetPoolClaimStatus};
use crate::records::{Ask, ClaimRecord, Meta, PoolClaimRecord, PoolRecord, SubnetRecord};

/// A step of a pool claim.
#[derive(Debug, Clone, PartialEq)]
pub enum PoolClaimStep {
    /// Puts the finalizer on the pool claim, before anything is made for it.
    AddFinalizer,
    /// Creates the claim in the parent.
    CreateInternalClaim,
    /// Creates the child pool, of what the internal claim got.
    CreateChildPool,
    /// Deletes a child pool.
    DeleteChildPool {
        /// The pool.
        pool: Box<Meta>,
    },
    /// Deletes the internal claim.
    DeleteInternalClaim {
        /// The claim.
        claim: Box<Meta>,
    },
    /// Lets the internal claim go.
    DropInternalClaimFinalizer {
        /// The claim.
        claim: Box<Meta>,
    },
    /// Lets the pool claim go, after a quorum list shows that nothing of it is left.
    DropFinalizer,
}

impl Step for PoolClaimStep {
    fn name(&self) -> &'static str {
        match self {
            PoolClaimStep::AddFinalizer => "AddPoolClaimFinalizer",
            PoolClaimStep::CreateInternalClaim => "CreateInternalClaim",
            PoolClaimStep::CreateChildPool => "CreateChildPool",
            PoolClaimStep::DeleteChildPool { .. } => "DeleteChildPool",
            PoolClaimStep::DeleteInternalClaim { .. } => "DeleteInternalClaim",
            PoolClaimStep::DropInternalClaimFinalizer { .. } => "DropInternalClaimFinalizer",
            PoolClaimStep::DropFinalizer => "DropPoolClaimFinalizer",
        }
    }

    fn describe(&self) -> String {
        match self {
            PoolClaimStep::AddFinalizer => "put the finalizer on the pool claim, before anything is made for it".into(),
            PoolClaimStep::CreateInternalClaim => "claim a range of the parent for the new pool".into(),
            PoolClaimStep::CreateChildPool => "create the pool, of the range that was claimed for it".into(),
            PoolClaimStep::DeleteChildPool { pool } => format!("delete pool {}", pool.key.name()),
            PoolClaimStep::DeleteInternalClaim { claim } => format!("delete SubnetClaim {}", claim.key.name()),
            PoolClaimStep::DropInternalClaimFinalizer { claim } => {
                format!("remove the finalizer of SubnetClaim {}", claim.key.name())
            }
            PoolClaimStep::DropFinalizer => "check that nothing of the pool claim is left, then let it go".into(),
        }
    }

    fn disruptive(&self) -> bool {
        false
    }
}

/// What a pool claim's plan is made from.
#[derive(Debug)]
pub struct PoolClaimView<'v> {
    /// Its claims in the parent, oldest first. Usher makes one; upstream may have left more.
    pub claims: Vec<&'v ClaimRecord>,
    /// Its child pools, oldest first. Usher makes one; upstream may have left more.
    pub pools: Vec<&'v PoolRecord>,
    /// The Subnet in the parent that stands for it.
    pub holder: Option<&'v SubnetRecord>,
    /// A Subnet that was made for it and must go before it does.
    pub kept_by: Option<&'v SubnetRecord>,
    /// How many Subnets the child pools have.
    pub subnets_in_pools: usize,
}

impl<'v> PoolClaimView<'v> {
    /// The child pool that counts: the one it is Bound to, else the oldest.
    pub fn child(&self, bound: Option<&str>) -> Option<&'v PoolRecord> {
        let named = self.pools.iter().find(|pool| Some(pool.meta.key.name()) == bound);
        named.or(self.pools.first()).copied()
    }
}

type PoolClaimPlan = Plan<PoolClaimStep, SubnetPoolClaimStatus>;

/// The decision.
pub fn plan(claim: &PoolClaimRecord, seen: &PoolClaimView<'_>, now: Timestamp) -> PoolClaimPlan {
    if claim.meta.deleting.is_some() {
        let mut plan = Plan::report(claim.status.clone());
        let ours = claim.meta.has_finalizer(FINALIZER);
        return match take_down(seen, &seen.claims) {
            Down::Step(step) => plan.step(step),
            Down::Waiting(message) => {
                plan.status = report(claim, seen, Pending, "ClaimPending", &message, now);
                plan.finding(Finding::new(Stance::Waiting, "Terminating", message))
            }
            Down::Done if ours => plan.step(PoolClaimStep::DropFinalizer),
            Down::Done => plan,
        };
    }
    if claim.parent.len() > MAX_NAME_LENGTH {
        let message = format!(
            "spec.parentPoolRef {} has more than {MAX_NAME_LENGTH} characters, which a label cannot carry; use a pool with a shorter name",
            claim.parent
        );
        return Plan::report(report(claim, seen, ClaimPhase::Error, "Error", &message, now))
            .finding(Finding::new(Stance::Blocked, "ValidationFailed", message).told(Tell::Warning));
    }
    if !claim.meta.has_finalizer(FINALIZER) {
        return Plan::report(claim.status.clone()).step(PoolClaimStep::AddFinalizer);
    }
    // R44: asked for something else before it was Bound. What was made for the old wish goes first.
    let bound = claim.status.phase == Some(ClaimPhase::Bound);
    let outdated: Vec<&ClaimRecord> = seen.claims.iter().copied().filter(|c| !serves(c, claim)).collect();
    if !bound && !outdated.is_empty() {
        let message = "what was claimed for the earlier request is being released";
        let plan = Plan::report(report(claim, seen, Pending, "ClaimPending", message, now));
        return match take_down(seen, &outdated) {
            Down::Step(step) => plan.step(step),
            Down::Waiting(message) => plan.finding(Finding::new(Stance::Waiting, "ClaimPending", message)),
            Down::Done => plan,
        };
    }
    make(claim, seen, now)
}

use ClaimPhase::Pending;

/// Whether an internal claim is what the pool claim asks for.
fn serves(internal: &ClaimRecord, claim: &PoolClaimRecord) -> bool {
    internal.pool == claim.parent && internal.ask == Ask::Length(claim.length)
}

/// Upwards: internal claim, holder, child pool, Held.
fn make(claim: &PoolClaimRecord, seen: &PoolClaimView<'_>, now: Timestamp) -> PoolClaimPlan {
    let pending = |message: &str| Plan::report(report(claim, seen, Pending, "ClaimPending", message, now));
    let Some(internal) = seen.claims.first() else {
        return pending("a range of the parent is being claimed").step(PoolClaimStep::CreateInternalClaim);
    };
    let served = internal.phase() == Some(ClaimPhase::Bound) && internal.bound().is_some();
    let child = seen.child(claim.status.bound_pool_name.as_deref());
    // Somebody deleted its Subnet in the parent: no pool can be confirmed on that any more. A pool that was goes on (R37);
    // another one goes, and then the range, and all is made again.
    let leaving = seen
        .holder
        .filter(|holder| holder.pool == claim.parent && holder.settled() && holder.meta.deleting.is_some());
    let lost = leaving.is_some() && !seen.pools.iter().any(|pool| pool.held);
    if let (Some(holder), true) = (leaving, lost && (served || child.is_some())) {
        let message = format!(
            "Subnet {} of the parent was deleted; the pool is made again once it is gone",
            holder.meta.key.name()
        );
        let plan = pending(&message).finding(Finding::new(Stance::Waiting, "ClaimPending", message));
        return match take_down(seen, &seen.claims) {
            Down::Step(step) => plan.step(step),
            Down::Waiting(_) | Down::Done => plan,
        };
    }
    if internal.meta.deleting.is_some() && seen.claims.len() == 1 && claim.status.phase != Some(ClaimPhase::Bound) {
        // Deleted by hand: it goes, and is made again.
        return pending("its claim in the parent is being released").step(PoolClaimStep::DropInternalClaimFinalizer {
            claim: Box::new(internal.meta.clone()),
        });
    }
    match child {
        None if !served => mirrored(claim, seen, internal, now),
        None => match seen.holder.filter(|holder| holder.settled()) {
            Some(_) => pending("its pool is being made")
                .step(PoolClaimStep::CreateChildPool)
                .finding(Finding::new(Stance::Doing, "ChildPoolCreated", "the pool is being made").told(Tell::Normal)),
            None => pending("its range is being placed in the parent"),
        },
        Some(pool) if pool.held && pool.meta.deleting.is_none() => {
            let mut plan = Plan::report(bound(claim, seen, pool, now));
            if seen.pools.len() > 1 {
                let others: Vec<&str> = seen
                    .pools
                    .iter()
                    .filter(|other| other.meta.uid != pool.meta.uid)
                    .map(|other| other.meta.key.name())
                    .collect();
                let message = format!(
                    "more than one pool was made for this claim: {} besides {}; delete what is not used",
                    others.join(", "),
                    pool.meta.key.name()
                );
                plan = plan.finding(Finding::new(Stance::Blocked, "DuplicateChildPools", message).told(Tell::Warning));
            }
            plan
        }
        // Deleted by hand: it is made again once it is gone. What was Bound stays Bound meanwhile: the range is kept.
        Some(pool) if pool.meta.deleting.is_some() => {
            let message = format!(
                "pool {} is being deleted; it is made again once it is gone",
                pool.meta.key.name()
            );
            keep_or(claim, seen, &message, now).finding(Finding::new(Stance::Waiting, "ClaimPending", message))
        }
        Some(pool) => {
            let message = format!("pool {} waits for its range to be confirmed", pool.meta.key.name());
            keep_or(claim, seen, &message, now).finding(Finding::new(Stance::Waiting, "ClaimPending", message))
        }
    }
}

/// A claim that is Bound says so still; another one says what it waits for.
fn keep_or(claim: &PoolClaimRecord, seen: &PoolClaimView<'_>, message: &str, now: Timestamp) -> PoolClaimPlan {
    match claim.status.phase {
        Some(ClaimPhase::Bound) => Plan::report(claim.status.clone()),
        _ => Plan::report(report(claim, seen, Pending, "ClaimPending", message, now)),
    }
}

/// The internal claim waits or is wrong: so is the pool claim, in the same words.
fn mirrored(
    claim: &PoolClaimRecord,
    seen: &PoolClaimView<'_>,
    internal: &ClaimRecord,
    now: Timestamp,
) -> PoolClaimPlan {
    let message = internal.message();
    if internal.phase() == Some(ClaimPhase::Error) {
        let message = message.unwrap_or("its claim in the parent cannot be served");
        return Plan::report(report(claim, seen, ClaimPhase::Error, "Error", message, now))
            .finding(Finding::new(Stance::Blocked, "ValidationFailed", message).told(Tell::Warning));
    }
    let message = message.unwrap_or("its claim in the parent is being served");
    Plan::report(report(claim, seen, Pending, "ClaimPending", message, now))
        .finding(Finding::new(Stance::Waiting, "ClaimPending", message).since(claim.meta.created))
}

/// Downwards, one step at a time.
enum Down {
    Step(PoolClaimStep),
    Waiting(String),
    Done,
}

fn take_down(seen: &PoolClaimView<'_>, claims: &[&ClaimRecord]) -> Down {
    let of = |meta: &Meta| Box::new(meta.clone());
    if let Some(pool) = seen.pools.iter().find(|pool| pool.meta.deleting.is_none()) {
        return Down::Step(PoolClaimStep::DeleteChildPool { pool: of(&pool.meta) });
    }
    if let Some(pool) = seen.pools.first() {
        return Down::Waiting(format!(
            "waiting for pool {} to go, which has {}; delete their claims",
            pool.meta.key.name(),
            some(seen.subnets_in_pools, "Subnet")
        ));
    }
    if let Some(claim) = claims.iter().find(|claim| claim.meta.deleting.is_none()) {
        return Down::Step(PoolClaimStep::DeleteInternalClaim { claim: of(&claim.meta) });
    }
    if let Some(claim) = claims.iter().find(|claim| claim.meta.has_finalizer(FINALIZER)) {
        return Down::Step(PoolClaimStep::DropInternalClaimFinalizer { claim: of(&claim.meta) });
    }
    if let Some(claim) = claims.first() {
        return Down::Waiting(format!("waiting for SubnetClaim {} to go", claim.meta.key.name()));
    }
    match seen.kept_by {
        Some(holder) => Down::Waiting(format!("waiting for {} to be released in the parent", holder.cidr)),
        None => Down::Done,
    }
}

fn bound(
    claim: &PoolClaimRecord,
    seen: &PoolClaimView<'_>,
    pool: &PoolRecord,
    now: Timestamp,
) -> SubnetPoolClaimStatus {
    let name = pool.meta.key.name();
    let mut conditions = Conditions::from_existing(&claim.status.conditions);
    let message = format!("pool {name} serves {}", pool.cidr);
    conditions.set("Ready", true, "Bound", message, claim.meta.generation, now);
    conditions.remove("Stalled");
    SubnetPoolClaimStatus {
        observed_generation: Some(claim.meta.generation),
        phase: Some(ClaimPhase::Bound),
        bound_pool_name: Some(name.to_owned()),
        subnet_ref: seen.holder.map(|holder| holder.meta.key.name().to_owned()),
        message: None,
        conditions: conditions.into_vec(),
    }
}

fn report(
    claim: &PoolClaimRecord,
    seen: &PoolClaimView<'_>,
    phase: ClaimPhase,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> SubnetPoolClaimStatus {
    // I6 for pool claims: Bound never becomes Pending.
    let was_bound = claim.status.phase == Some(ClaimPhase::Bound);
    let generation = claim.meta.generation;
    SubnetPoolClaimStatus {
        observed_generation: Some(generation),
        phase: Some(if was_bound { ClaimPhase::Bound } else { phase }),
        bound_pool_name: claim.status.bound_pool_name.clone().filter(|_| was_bound),
        subnet_ref: seen.holder.map(|holder| holder.meta.key.name().to_owned()),
        message: Some(message.to_owned()),
        conditions: not_ready(&claim.status.conditions, phase, (reason, message), generation, now),
    }
}
