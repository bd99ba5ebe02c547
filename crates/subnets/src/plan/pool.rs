//! What a pool does next: serve its queue, say what it has, end when it is empty.

use std::time::Duration;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use usher_engine::{Finding, ObjectKey, Plan, Stance, Step, Tell, Text, Uid};

use super::pool_report::{conflict, some, status, waiting};
use super::serve::serve;
use super::{PoolState, Standing, gives, holder};
use crate::api::{FINALIZER, SubnetPoolStatus};
use crate::ledger::{Account, Grant, Target};
use crate::records::{ClaimRecord, Meta, PoolRecord};

/// Grants per pass; then the pass ends and others have their turn (R17).
pub const GRANTS_PER_PASS: usize = 512;
/// Grants whose Subnet is not in view yet, per pool (R17): bounds what a crash makes us decide again.
pub const GRANTS_OUTSTANDING: usize = 256;
/// Subnets that get our finalizer at a time, at most one such batch per second over all pools (R38).
pub const ADOPTED_AT_ONCE: usize = 20;
/// How often a taken name that the view does not show is asked after.
const UNSEEN_AGAIN: Duration = Duration::from_secs(5);
/// Without a running watch for this long, nothing is granted: the map may be out of date.
const GRANTS_STOP_AFTER: SignedDuration = SignedDuration::from_secs(5);
/// A recalculation that takes longer than this is told.
const REBUILDING_TOLD_AFTER: SignedDuration = SignedDuration::from_secs(2);
/// How often a recalculation looks whether the view has caught up.
const CAUGHT_UP_AGAIN: Duration = Duration::from_millis(50);

/// What people may set for all pools.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// A claim that waited this long while others were served gets a block kept for it (R15).
    pub target_after: SignedDuration,
    /// Allocations listed one by one in the status, up to this many (R47).
    pub listed_max: usize,
    /// Each map is held against the records this often (R51) …
    pub check_every: SignedDuration,
    /// … counted from here: when the process started. Never, where that is not said.
    pub checked_from: Option<Timestamp>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            target_after: SignedDuration::from_secs(300),
            listed_max: 500,
            check_every: SignedDuration::from_secs(600),
            checked_from: None,
        }
    }
}

/// A step of a pool.
#[derive(Debug, Clone, PartialEq)]
pub enum PoolStep {
    /// Puts the finalizer on the pool, before anything is taken from it.
    AddFinalizer,
    /// Promises a range to a claim, in memory.
    Grant {
        /// The claim's uid.
        uid: Uid,
        /// What it is promised.
        grant: Grant,
    },
    /// Takes back a grant that nobody wants any more.
    RevokeGrant {
        /// The claim's uid.
        uid: Uid,
        /// The range.
        cidr: IpNet,
        /// Its create request was sent: ask the API server first whether it took effect.
        sent: bool,
    },
    /// Keeps a block for a claim that waited too long, in memory.
    KeepTarget {
        /// The claim.
        claim: ObjectKey,
        /// The block.
        target: Target,
    },
    /// Asks whether a name that was taken is still taken: the view has not shown by whom.
    ConfirmTaken {
        /// The Subnet's name.
        name: Box<str>,
    },
    /// Creates the Subnet that stands for this pool in its parent.
    CreateHolder {
        /// The parent.
        parent: ObjectKey,
    },
    /// Withdraws a holder that has no range yet: the pool asks for another one now.
    ReplaceHolder {
        /// The holder, as it is in view.
        holder: Box<Meta>,
    },
    /// Reads the holder from a quorum: the pool is Held if that shows it Allocated.
    ConfirmHolder {
        /// The holder.
        holder: ObjectKey,
    },
    /// Puts our finalizer on Subnets that upstream made.
    Adopt {
        /// Which.
        subnets: Vec<ObjectKey>,
    },
    /// Lists what the API server has, so that the map can be counted anew from no less.
    ListForRecount {
        /// The request's value.
        trigger: Text,
    },
    /// Counts the map anew from the records, and compares.
    Recalculate {
        /// The request's value.
        trigger: Text,
    },
    /// Holds the next slice of the map against the records.
    CheckSlice,
    /// Lets the pool go, after a quorum list shows that nothing of it is left.
    DropFinalizer,
    /// Deletes a child pool whose pool claim is gone for good, as a garbage collector would.
    DeleteOrphan,
}

impl Step for PoolStep {
    fn name(&self) -> &'static str {
        match self {
            PoolStep::AddFinalizer => "AddPoolFinalizer",
            PoolStep::Grant { .. } => "Grant",
            PoolStep::RevokeGrant { .. } => "RevokeGrant",
            PoolStep::KeepTarget { .. } => "KeepTarget",
            PoolStep::ConfirmTaken { .. } => "ConfirmTaken",
            PoolStep::CreateHolder { .. } => "CreateHolder",
            PoolStep::ReplaceHolder { .. } => "ReplaceHolder",
            PoolStep::ConfirmHolder { .. } => "ConfirmHolder",
            PoolStep::Adopt { .. } => "AdoptSubnet",
            PoolStep::ListForRecount { .. } => "ListForRecount",
            PoolStep::Recalculate { .. } => "Recalculate",
            PoolStep::CheckSlice => "CheckSlice",
            PoolStep::DropFinalizer => "DropPoolFinalizer",
            PoolStep::DeleteOrphan => "DeleteOrphan",
        }
    }

    fn describe(&self) -> String {
        match self {
            PoolStep::AddFinalizer => "put the finalizer on the pool, before the first range is taken from it".into(),
            PoolStep::Grant { grant, .. } => format!("grant {} to SubnetClaim {}", grant.cidr, grant.claim),
            PoolStep::RevokeGrant { cidr, .. } => {
                format!("take back the grant of {cidr}; its claim is gone or changed")
            }
            PoolStep::KeepTarget { claim, target } => {
                format!("keep {} for SubnetClaim {claim}, which has waited longest", target.cidr)
            }
            PoolStep::ConfirmTaken { name } => format!("ask the API server whether Subnet {name} exists"),
            PoolStep::CreateHolder { parent } => {
                format!("create the Subnet that stands for this pool in {}", parent.name())
            }
            PoolStep::ReplaceHolder { holder } => {
                format!(
                    "withdraw Subnet {}; the pool asks for another range now",
                    holder.key.name()
                )
            }
            PoolStep::ConfirmHolder { holder } => format!("ask the API server whether Subnet {holder} is Allocated"),
            PoolStep::Adopt { subnets } => {
                format!(
                    "put the finalizer on {} made before Usher",
                    some(subnets.len(), "Subnet")
                )
            }
            PoolStep::ListForRecount { .. } => "list the Subnets and claims, to count the map anew".into(),
            PoolStep::Recalculate { .. } => "count the map anew from the records, and compare".into(),
            PoolStep::CheckSlice => "hold a slice of the map against the records".into(),
            PoolStep::DropFinalizer => "check that no Subnet of the pool is left, then let it go".into(),
            PoolStep::DeleteOrphan => "delete the pool: the pool claim it was made for is gone".into(),
        }
    }

    fn disruptive(&self) -> bool {
        false
    }
}

/// What a pool's plan is made from.
#[derive(Debug)]
pub struct PoolView<'v> {
    /// The pool among others.
    pub standing: Standing<'v>,
    /// Its account.
    pub account: &'v Account,
    /// Pools that name it as their parent.
    pub child_pools: usize,
    /// A quorum read showed its holder Allocated (R26).
    pub holder_confirmed: bool,
    /// A withdrawn holder is still there.
    pub holder_leaving: bool,
    /// The pool claim it was made for is gone for good.
    pub orphaned: bool,
    /// Grants whose claim is gone, changed, or elsewhere.
    pub stale_grants: Vec<(&'v Uid, &'v Grant)>,
    /// The view has seen all that the API server listed for the recalculation under way.
    pub caught_up: bool,
    /// A watch is broken since then.
    pub interrupted: Option<Timestamp>,
    /// Subnets that keep the pool from going: how many, and one of them.
    pub left: usize,
    /// One of those.
    pub example: Option<&'v ObjectKey>,
    /// What people have set.
    pub limits: Limits,
}

impl PoolView<'_> {
    /// What the pool serves from, or would.
    pub fn serving(&self) -> IpNet {
        self.standing.serving().unwrap_or(self.standing.pool.cidr)
    }

    /// The state to tell people: a recalculation is told only when it takes long.
    pub fn reported_state(&self, now: Timestamp) -> PoolState {
        let begun = self.account.recalculation.asked.as_ref().map(|asked| asked.at);
        match self.standing.state() {
            PoolState::Rebuilding if begun.is_none_or(|at| now.duration_since(at) < REBUILDING_TOLD_AFTER) => {
                Standing {
                    rebuilding: false,
                    ..self.standing.clone()
                }
                .state()
            }
            state => state,
        }
    }

    /// Whether a grant is still wanted by its claim and still possible in its pool (R18).
    pub fn wanted(
        grant: &Grant,
        claim: Option<&ClaimRecord>,
        uid: &Uid,
        account: &Account,
        standing: &Standing<'_>,
    ) -> bool {
        let pool = standing.pool;
        let state = standing.state();
        let Some(serving) = standing.serving() else {
            return false;
        };
        let possible = matches!(state, PoolState::Serving | PoolState::Rebuilding);
        // Somebody else of its clusterID has a Subnet: it shares that, or asks in vain (R11).
        let shares = |claim: &ClaimRecord| {
            let mut namesakes = account.of_cluster(claim.meta.key.namespace(), &claim.cluster_id);
            namesakes.any(|subnet| subnet.claim_uid() != Some(uid))
        };
        possible
            && claim.is_some_and(|claim| {
                claim.meta.uid == *uid
                    && claim.meta.generation == grant.generation
                    && claim.meta.deleting.is_none()
                    && claim.bound().is_none()
                    && *claim.pool == *pool.meta.key.name()
                    // What the pool does not give any more its claim does not take.
                    && gives(pool, serving, claim.ask, grant.cidr)
                    && !shares(claim)
            })
    }
}

pub(super) type PoolPlan = Plan<PoolStep, SubnetPoolStatus>;

/// The decision.
pub fn plan(pool: &PoolRecord, seen: &PoolView<'_>, now: Timestamp) -> PoolPlan {
    if let Some(since) = seen.interrupted {
        return without_news(pool, since, now);
    }
    let state = seen.standing.state();
    let mut plan = Plan::report(status(pool, seen, now));
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
    if seen.orphaned {
        return plan.step(PoolStep::DeleteOrphan);
    }
    plan = say_conflicts(pool, seen, plan);
    let account = seen.account;
    let used = account.has_subnets()
        || account.has_promises()
        || seen.child_pools > 0
        || waiting(pool, seen) > 0
        || !account.grants.is_empty();
    if used && !pool.meta.has_finalizer(FINALIZER) {
        // Grants follow once the finalizer is in view.
        return plan.step(PoolStep::AddFinalizer);
    }
    if let Some(next) = holder::next(pool, seen) {
        plan = plan.finding(Finding::new(next.stance, "WaitingParent", seen.standing.sentence()));
        plan.steps.extend(next.step);
    }
    plan = recount(pool, seen, plan, now);
    let counting = |step: &PoolStep| matches!(step, PoolStep::ListForRecount { .. });
    plan = match state {
        // Grants pause from the moment a recalculation begins.
        PoolState::Serving if plan.steps.iter().any(counting) => plan,
        PoolState::Serving => serve(pool, seen, plan, now),
        // Said above.
        PoolState::WaitingParent | PoolState::Rebuilding => plan,
        _ => plan.finding(Finding::new(Stance::Blocked, state.reason(), seen.standing.sentence())),
    };
    // Nobody waits for this one.
    if !account.unadopted.is_empty() {
        plan = adopt(account, plan, now);
    }
    plan
}

/// A watch is broken: nothing is known to be so any more, and nothing is said that may not be.
fn without_news(pool: &PoolRecord, since: Timestamp, now: Timestamp) -> PoolPlan {
    let plan = Plan::report(pool.status.clone()).again_after(Duration::from_secs(1));
    if now.duration_since(since) <= GRANTS_STOP_AFTER {
        return plan;
    }
    let message = "a watch is broken, nothing is granted until it runs again";
    plan.finding(Finding::new(Stance::Waiting, "WatchLost", message).since(since))
}

fn terminate(pool: &PoolRecord, seen: &PoolView<'_>, plan: PoolPlan) -> PoolPlan {
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
                    "pool {} cannot go before what is taken from it: {}, {example} among them; delete who has them",
                    pool.meta.key.name(),
                    some(seen.left, "Subnet")
                ),
            )
            .told(Tell::Warning),
        ),
    }
}

/// What is wrong with what is allocated is told as events, too.
fn say_conflicts(pool: &PoolRecord, seen: &PoolView<'_>, plan: PoolPlan) -> PoolPlan {
    let event = match conflict(pool, seen, seen.account) {
        (true, "Overlap", message) => Some(("SubnetOverlap", message)),
        (true, reason, message) => Some((reason, message)),
        _ => None,
    };
    match event {
        Some((reason, message)) => plan.finding(Finding::new(Stance::Blocked, reason, message).told(Tell::Warning)),
        None => plan,
    }
}

fn adopt(account: &Account, plan: PoolPlan, now: Timestamp) -> PoolPlan {
    let count = account.unadopted.len();
    // Each second others come first: those that are refused keep nobody out.
    let batch = usize::try_from(now.as_second()).unwrap_or(0);
    let turn = batch.wrapping_mul(ADOPTED_AT_ONCE).checked_rem(count).unwrap_or(0);
    let uids = account.unadopted.iter().cycle().skip(turn).take(count);
    let subnets = uids
        .filter_map(|uid| account.subnets.get(uid))
        .take(ADOPTED_AT_ONCE)
        .map(|subnet| subnet.meta.key.clone())
        .collect();
    plan.step(PoolStep::Adopt { subnets })
        .again_after(Duration::from_secs(1))
}

/// R50: what somebody asked for, or what a slice check found wrong. R51: the next slice, when it is due.
fn recount(pool: &PoolRecord, seen: &PoolView<'_>, plan: PoolPlan, now: Timestamp) -> PoolPlan {
    let recalculation = &seen.account.recalculation;
    let answered = pool.status.recalculated.as_ref();
    let mut plan = plan;
    // What the status is about to say, and has not said yet.
    if let Some(done) = &recalculation.done
        && plan.status.recalculated.as_ref() != answered
    {
        let finding = match done.drift {
            0 => {
                Finding::new(Stance::Done, "Recalculated", "the map was counted anew: no difference").told(Tell::Normal)
            }
            drift => {
                let message = format!(
                    "the map was counted anew: {} repaired; please report this as a bug",
                    some(drift, "difference")
                );
                Finding::new(Stance::Done, "DriftRepaired", message).told(Tell::Warning)
            }
        };
        plan = plan.finding(finding);
    }
    if let Some(asked) = &recalculation.asked {
        let trigger = asked.trigger.clone();
        return match seen.caught_up {
            true => plan.step(PoolStep::Recalculate { trigger }),
            false => plan.again_after(CAUGHT_UP_AGAIN),
        };
    }
    let done = recalculation.done.as_ref().map(|done| &*done.trigger);
    let told = answered.map(|told| told.trigger.as_str());
    let wanted = pool.recalculate.as_ref().filter(|value| {
        let value = Some(&***value);
        value != done && value != told
    });
    if let Some(trigger) = wanted {
        let trigger = trigger.clone();
        return plan.step(PoolStep::ListForRecount { trigger });
    }
    if recalculation.suspected {
        let trigger = told.or(done).unwrap_or("drift-check").into();
        return plan.step(PoolStep::ListForRecount { trigger });
    }
    // A fresh map is right by construction: the first round is due as long after the start as the others among each other.
    match recalculation.checked.or(seen.limits.checked_from) {
        _ if recalculation.cursor.is_some() => plan.step(PoolStep::CheckSlice),
        None => plan,
        Some(checked) => {
            let rest = seen.limits.check_every.saturating_sub(now.duration_since(checked));
            match Duration::try_from(rest) {
                Ok(rest) if !rest.is_zero() => plan.again_after(rest),
                _ => plan.step(PoolStep::CheckSlice),
            }
        }
    }
}
