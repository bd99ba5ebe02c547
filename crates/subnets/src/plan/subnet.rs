//! What a Subnet does next: commit, withdraw, come back, or give its range up.
//!
//! The commit rule (R21) is what makes overlaps impossible with any number of operators, pauses and stale caches: a
//! Subnet becomes Allocated only if every other Subnet of its pool in view that overlaps it is withdrawn, by a write that
//! carries the version of it that is in view. Of two that overlap, whoever asked later saw the earlier one, and had to see
//! it withdrawn; then the earlier one's own commit fails on its version.

use jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use usher_engine::condition::whole_seconds;
use usher_engine::{Finding, ObjectKey, Plan, Stance, Step, Tell};

use super::{PoolState, fulfils};
use crate::api::{FINALIZER, SubnetPhase, SubnetStatus};
use crate::records::{ClaimRecord, PoolRecord, SubnetRecord};

/// A step of a Subnet.
#[derive(Debug, Clone, PartialEq)]
pub enum SubnetStep {
    /// Deletes it, if it is still this version: a candidacy withdrawn, or a range given up.
    Delete {
        /// Why, for people.
        why: String,
    },
    /// Lets it go: its range is free when it is gone.
    DropFinalizer,
    /// Gives it up because its claim, never bound, asks for something else now; the claim is read once more first.
    GiveUp {
        /// The claim.
        claim: ObjectKey,
    },
    /// Asks the API server whether the owner is really gone: the view cannot tell.
    ConfirmOwner {
        /// The claim.
        claim: ObjectKey,
        /// Its uid.
        uid: std::sync::Arc<str>,
    },
}

impl Step for SubnetStep {
    fn name(&self) -> &'static str {
        match self {
            SubnetStep::Delete { .. } => "DeleteSubnet",
            SubnetStep::DropFinalizer => "DropSubnetFinalizer",
            SubnetStep::GiveUp { .. } => "GiveUpSubnet",
            SubnetStep::ConfirmOwner { .. } => "ConfirmOwner",
        }
    }

    fn describe(&self) -> String {
        match self {
            SubnetStep::Delete { why } => format!("delete the Subnet: {why}"),
            SubnetStep::DropFinalizer => "remove the Subnet's finalizer; its range is free when it is gone".into(),
            SubnetStep::GiveUp { claim } => {
                format!("give the range up: SubnetClaim {claim} asks for something else now")
            }
            SubnetStep::ConfirmOwner { claim, .. } => format!("ask the API server whether SubnetClaim {claim} is gone"),
        }
    }

    fn disruptive(&self) -> bool {
        false
    }
}

/// What is known of those a Subnet belongs to.
#[derive(Debug, Clone, PartialEq)]
pub enum Owners {
    /// Nobody: made by hand, or orphaned on purpose.
    None,
    /// At least one of them lives.
    Alive,
    /// All of them are gone for good.
    Gone,
    /// The view does not show it, which proves nothing.
    Unknown {
        /// The claim.
        claim: ObjectKey,
        /// Its uid.
        uid: std::sync::Arc<str>,
    },
}

/// What a Subnet's plan is made from.
#[derive(Debug)]
pub struct SubnetView<'v> {
    /// Its pool.
    pub pool: Option<&'v PoolRecord>,
    /// Its claim, while that lives.
    pub claim: Option<&'v ClaimRecord>,
    /// Those it belongs to.
    pub owners: Owners,
    /// Other Subnets of the pool that overlap it and are not withdrawn.
    pub overlapping: Vec<&'v SubnetRecord>,
    /// Other Subnets of the same claim that are not withdrawn.
    pub twins: Vec<&'v SubnetRecord>,
    /// Names the claim's present Subnet, for each Subnet: a Bound claim names it.
    pub named: fn(&SubnetRecord, Option<&ClaimRecord>) -> bool,
}

/// Whether a Bound claim names this Subnet.
pub fn named_by_claim(subnet: &SubnetRecord, claim: Option<&ClaimRecord>) -> bool {
    claim.is_some_and(|claim| {
        Some(&claim.meta.uid) == subnet.claim_uid()
            && claim.bound() == Some(subnet.cidr)
            && claim.status.subnet_ref.as_deref() == Some(subnet.meta.key.name())
    })
}

/// Who goes first when candidates overlap (R24). Total: names are unique.
fn rank(subnet: &SubnetRecord, named: bool) -> (bool, bool, Timestamp, &str) {
    (!subnet.settled(), !named, subnet.meta.created, subnet.meta.key.name())
}

/// The decision.
pub fn plan(subnet: &SubnetRecord, seen: &SubnetView<'_>, now: Timestamp) -> Plan<SubnetStep, SubnetStatus> {
    let keep = || Plan::report(subnet.status.clone());
    match (subnet.phase(), subnet.meta.deleting) {
        (Some(SubnetPhase::Allocated | SubnetPhase::Released), _) => settled(subnet, seen, now),
        // A withdrawn candidate goes as soon as nothing holds it back. Only ours has a finalizer.
        (_, Some(_)) if subnet.meta.has_finalizer(FINALIZER) => keep().step(SubnetStep::DropFinalizer),
        (_, Some(_)) => keep(),
        (Some(SubnetPhase::Failed), None) => match obstacle(subnet, seen) {
            Some(Obstacle::Hard { reason, message }) => failed(subnet, reason, &message),
            // R23: back through Pending, and only then to a commit.
            _ => Plan::report(SubnetStatus {
                phase: Some(SubnetPhase::Pending),
                observed_generation: Some(subnet.meta.generation),
                reason: None,
                message: None,
                ..subnet.status.clone()
            }),
        },
        (Some(SubnetPhase::Pending) | None, None) if subnet.claim.is_some() => of_claim(subnet, seen, now),
        (Some(SubnetPhase::Pending) | None, None) => by_hand(subnet, seen, now),
    }
}

/// What keeps a candidate from its range.
enum Obstacle {
    /// It must withdraw.
    Hard { reason: &'static str, message: String },
    /// It waits.
    Soft { reason: &'static str, message: String },
}

fn obstacle(subnet: &SubnetRecord, seen: &SubnetView<'_>) -> Option<Obstacle> {
    let hard = |reason, message| Some(Obstacle::Hard { reason, message });
    let soft = |reason, message| Some(Obstacle::Soft { reason, message });
    let Some(pool) = seen.pool else {
        return hard(
            "PoolNotFound",
            format!("pool {} does not exist; create it", subnet.pool),
        );
    };
    let (name, state) = (pool.meta.key.name(), PoolState::of(pool));
    if state == PoolState::Terminating {
        return hard("PoolTerminating", format!("pool {name} is being deleted"));
    }
    if !pool.cidr.contains(&subnet.cidr) {
        return hard(
            "OutOfRange",
            format!(
                "{} is not inside pool {name} ({}); correct spec.cidr",
                subnet.cidr, pool.cidr
            ),
        );
    }
    let mine = rank(subnet, (seen.named)(subnet, seen.claim));
    let ahead = seen
        .overlapping
        .iter()
        .find(|other| rank(other, (seen.named)(other, seen.claim)) < mine);
    if let Some(other) = ahead {
        let message = format!(
            "{} overlaps Subnet {} ({}), which came first",
            subnet.cidr,
            other.meta.key.name(),
            other.cidr
        );
        return hard("Overlap", message);
    }
    if let Some(other) = seen.overlapping.first() {
        return soft(
            "Contested",
            format!("Subnet {} ({}) must withdraw first", other.meta.key.name(), other.cidr),
        );
    }
    if state != PoolState::Serving {
        return soft("PoolNotReady", state.sentence(pool));
    }
    if !pool.meta.has_finalizer(FINALIZER) {
        return soft("PoolNotReady", format!("pool {name} has no finalizer yet"));
    }
    None
}

/// A candidate made by hand: it waits, fails with a reason, or commits.
fn by_hand(subnet: &SubnetRecord, seen: &SubnetView<'_>, now: Timestamp) -> Plan<SubnetStep, SubnetStatus> {
    match obstacle(subnet, seen) {
        None => commit(subnet, now),
        Some(Obstacle::Hard { reason, message }) => failed(subnet, reason, &message),
        // An edited Subnet gives its old range up by saying Pending for its new generation.
        Some(Obstacle::Soft { reason, message }) => Plan::report(SubnetStatus {
            phase: Some(SubnetPhase::Pending),
            observed_generation: Some(subnet.meta.generation),
            reason: Some(reason.into()),
            message: Some(message.clone()),
            ..subnet.status.clone()
        })
        .finding(Finding::new(Stance::Waiting, reason, message)),
    }
}

/// A claim's candidate: it waits, commits, or is deleted and its claim queues again.
fn of_claim(subnet: &SubnetRecord, seen: &SubnetView<'_>, now: Timestamp) -> Plan<SubnetStep, SubnetStatus> {
    let keep = || Plan::report(subnet.status.clone());
    let delete = |why: String| keep().step(SubnetStep::Delete { why });
    match &seen.owners {
        Owners::Gone => return delete("its claim is gone".into()),
        Owners::Unknown { claim, uid } => {
            return keep().step(SubnetStep::ConfirmOwner {
                claim: claim.clone(),
                uid: uid.clone(),
            });
        }
        Owners::Alive | Owners::None => {}
    }
    let Some(claim) = seen.claim else { return keep() };
    if !fulfils(claim, &subnet.pool, &subnet.cluster_id, subnet.cidr) {
        return delete("its claim asks for something else now".into());
    }
    let mine = rank(subnet, (seen.named)(subnet, seen.claim));
    if claim.bound().is_some_and(|bound| bound != subnet.cidr)
        || seen
            .twins
            .iter()
            .any(|twin| rank(twin, (seen.named)(twin, seen.claim)) < mine)
    {
        return delete("its claim has another Subnet".into());
    }
    match obstacle(subnet, seen) {
        None => commit(subnet, now),
        // The pool went by force; nothing is taken from a claim for that, it may come back.
        Some(Obstacle::Hard {
            reason: "PoolNotFound",
            message,
        }) => keep().finding(Finding::new(Stance::Waiting, "PoolNotFound", message)),
        Some(Obstacle::Hard { message, .. }) => delete(message),
        Some(Obstacle::Soft { reason, message }) => keep().finding(Finding::new(Stance::Waiting, reason, message)),
    }
}

fn commit(subnet: &SubnetRecord, now: Timestamp) -> Plan<SubnetStep, SubnetStatus> {
    Plan::report(SubnetStatus {
        observed_generation: Some(subnet.meta.generation),
        phase: Some(SubnetPhase::Allocated),
        allocated_at: subnet.status.allocated_at.or(Some(whole_seconds(now))),
        released_at: None,
        reason: None,
        message: None,
    })
    .finding(Finding::new(
        Stance::Done,
        "Committed",
        format!("{} is allocated", subnet.cidr),
    ))
}

fn failed(subnet: &SubnetRecord, reason: &'static str, message: &str) -> Plan<SubnetStep, SubnetStatus> {
    let event = if reason == "Overlap" {
        "AllocationConflict"
    } else {
        reason
    };
    Plan::report(SubnetStatus {
        observed_generation: Some(subnet.meta.generation),
        phase: Some(SubnetPhase::Failed),
        reason: Some(reason.into()),
        message: Some(message.to_owned()),
        ..subnet.status.clone()
    })
    .finding(Finding::new(Stance::Blocked, event, message).told(Tell::Warning))
}

/// Allocated or Released: kept until nobody needs it, then given up in order (R34-R37).
fn settled(subnet: &SubnetRecord, seen: &SubnetView<'_>, now: Timestamp) -> Plan<SubnetStep, SubnetStatus> {
    let keep = || Plan::report(subnet.status.clone());
    let ours = subnet.meta.has_finalizer(FINALIZER);
    let releasable = match &seen.owners {
        Owners::Gone => true,
        Owners::None => subnet.meta.deleting.is_some(),
        Owners::Alive => false,
        Owners::Unknown { claim, uid } => {
            return keep().step(SubnetStep::ConfirmOwner {
                claim: claim.clone(),
                uid: uid.clone(),
            });
        }
    };
    // R32: the claim changed before it was bound; its range is released first, then it is served anew.
    if let Some(claim) = seen.claim.filter(|claim| abandoned(subnet, claim)) {
        return keep().step(SubnetStep::GiveUp {
            claim: claim.meta.key.clone(),
        });
    }
    // R30: two Subnets of one claim; the one it is not Bound to goes.
    let spare = seen
        .claim
        .is_some_and(|claim| claim.bound().is_some_and(|bound| bound != subnet.cidr))
        && seen
            .twins
            .iter()
            .any(|twin| (seen.named)(twin, seen.claim) && twin.settled());
    if !releasable && !spare {
        let plan = keep();
        return match subnet.meta.deleting {
            // Like a volume claim in use: deleted, and kept until its claim is.
            Some(since) => plan.finding(
                Finding::new(
                    Stance::Waiting,
                    "InUse",
                    format!("{} is in use by its claim; delete the claim to release it", subnet.cidr),
                )
                .since(since),
            ),
            None => plan,
        };
    }
    let Some(marked) = subnet.meta.deleting else {
        // R33: what was made by hand is never deleted by us.
        return if subnet.claim.is_some() {
            keep().step(SubnetStep::Delete {
                why: "its claim is gone".into(),
            })
        } else {
            keep()
        };
    };
    if !ours {
        return keep();
    }
    let delay = SignedDuration::from_secs(seen.pool.map_or(0, |pool| pool.reuse_delay_seconds));
    let rest = delay.saturating_sub(now.duration_since(marked));
    if rest > SignedDuration::ZERO && subnet.claim.is_some() {
        let message = format!("{} is not granted again for {} s", subnet.cidr, rest.as_secs().max(1));
        return Plan::report(SubnetStatus {
            phase: Some(SubnetPhase::Released),
            released_at: Some(marked),
            ..subnet.status.clone()
        })
        .finding(Finding::new(Stance::Waiting, "ReuseDelay", message).since(marked))
        .again_after(Duration::try_from(rest).unwrap_or(Duration::from_secs(1)));
    }
    keep().step(SubnetStep::DropFinalizer).finding(
        Finding::new(
            Stance::Doing,
            "SubnetReleased",
            format!("{} is free again", subnet.cidr),
        )
        .told(Tell::Normal),
    )
}

/// Whether a claim that was never bound has no use for this Subnet any more.
pub fn abandoned(subnet: &SubnetRecord, claim: &ClaimRecord) -> bool {
    claim.bound().is_none() && !fulfils(claim, &subnet.pool, &subnet.cluster_id, subnet.cidr)
}
