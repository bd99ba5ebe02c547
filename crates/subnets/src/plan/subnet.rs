//! What a Subnet does next: commit, withdraw, come back, or give its range up.
//!
//! The commit rule (R21) is what makes overlaps impossible with any number of operators, pauses and stale caches: a
//! Subnet becomes Allocated only if every other Subnet of its pool in view that overlaps it is withdrawn, by a write that
//! carries the version of it that is in view. Of two that overlap, whoever asked later saw the earlier one, and had to see
//! it withdrawn; then the earlier one's own commit fails on its version.

use jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use usher_engine::condition::whole_seconds;
use usher_engine::{Finding, ObjectKey, Plan, Second, Stance, Step, Tell, Uid};

use super::footing::{Footing, Ground};
use super::{PoolState, Standing, fulfils};
use crate::api::{FINALIZER, SubnetPhase, SubnetStatus};
use crate::records::{ApiType, ClaimRecord, Owner, PoolRecord, SubnetRecord};

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
    /// Gives it up because its claim, never bound, asks for something else now; those that own it are read once more first.
    GiveUp {
        /// The claim.
        claim: ObjectKey,
    },
    /// Takes a claim that has no use for it from its owners; others have. The claim is read once more first.
    DropOwner {
        /// The claim.
        claim: Box<Owner>,
    },
    /// Asks the API server whether the owner is really gone: the view cannot tell.
    ConfirmOwner {
        /// What the owner is.
        kind: ApiType,
        /// The owner.
        owner: ObjectKey,
        /// Its uid.
        uid: Uid,
    },
    /// Reads what it stands on from a quorum: a child pool that is Held and alive (R25), a pool claim that nobody
    /// deletes (R44).
    Confirm {
        /// The pool or the pool claim.
        ground: Ground,
    },
}

impl Step for SubnetStep {
    fn name(&self) -> &'static str {
        match self {
            SubnetStep::Delete { .. } => "DeleteSubnet",
            SubnetStep::DropFinalizer => "DropSubnetFinalizer",
            SubnetStep::GiveUp { .. } => "GiveUpSubnet",
            SubnetStep::DropOwner { .. } => "DropSubnetOwner",
            SubnetStep::ConfirmOwner { .. } => "ConfirmOwner",
            SubnetStep::Confirm {
                ground: Ground::Pool(_),
            } => "ConfirmPool",
            SubnetStep::Confirm {
                ground: Ground::PoolClaim(_),
            } => "ConfirmPoolClaim",
        }
    }

    fn describe(&self) -> String {
        match self {
            SubnetStep::Delete { why } => format!("delete the Subnet: {why}"),
            SubnetStep::DropFinalizer => "remove the Subnet's finalizer; its range is free when it is gone".into(),
            SubnetStep::GiveUp { claim } => {
                format!("give the range up: SubnetClaim {claim} asks for something else now")
            }
            SubnetStep::DropOwner { claim } => format!(
                "take SubnetClaim {} from the owners: it asks for something else now",
                claim.name
            ),
            SubnetStep::ConfirmOwner { kind, owner, .. } => {
                format!("ask the API server whether {} {owner} is gone", kind.kind)
            }
            SubnetStep::Confirm { ground } => format!("ask the API server whether {ground} still stands"),
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
        /// What the owner is.
        kind: ApiType,
        /// The owner.
        owner: ObjectKey,
        /// Its uid.
        uid: Uid,
    },
}

/// What a Subnet's plan is made from.
#[derive(Debug)]
pub struct SubnetView<'v> {
    /// Its pool.
    pub pool: Option<Standing<'v>>,
    /// What it stands on, and what a quorum read said of that: its pool, if that is a child (R25), and the pool claim it
    /// is made for (R44).
    pub grounds: Vec<(Ground, Footing)>,
    /// The claim it was made for, while that lives.
    pub claim: Option<&'v ClaimRecord>,
    /// Another claim shares it, and has a use for it (R11).
    pub shared: bool,
    /// Claims among its owners that live, were never bound, and ask for something else now (R32).
    pub idle: Vec<&'v Owner>,
    /// Those it belongs to.
    pub owners: Owners,
    /// Pools in view that it holds a range for.
    pub children: Vec<&'v PoolRecord>,
    /// A Bound claim names it.
    pub named: bool,
    /// Other Subnets of the pool that overlap it and are not withdrawn.
    pub overlapping: Vec<Rival<'v>>,
    /// Other Subnets of the same claim that are not withdrawn.
    pub twins: Vec<Rival<'v>>,
}

/// Another Subnet that wants, or has, what this one wants.
#[derive(Debug, Clone, Copy)]
pub struct Rival<'v> {
    /// The Subnet.
    pub subnet: &'v SubnetRecord,
    /// A Bound claim names it.
    pub named: bool,
}

/// Whether a Bound claim names this Subnet.
pub fn named_by_claim(subnet: &SubnetRecord, claim: Option<&ClaimRecord>) -> bool {
    claim.is_some_and(|claim| {
        Some(&claim.meta.uid) == subnet.claim_uid()
            && claim.bound() == Some(subnet.cidr)
            && claim.subnet_ref() == Some(subnet.meta.key.name())
    })
}

/// Who goes first when candidates overlap (R24). Total: names are unique.
fn rank(subnet: &SubnetRecord, named: bool) -> (bool, bool, Second, &str) {
    (!subnet.settled(), !named, subnet.meta.created, subnet.meta.key.name())
}

type SubnetPlan = Plan<SubnetStep, SubnetStatus>;

/// The decision.
pub fn plan(subnet: &SubnetRecord, seen: &SubnetView<'_>, now: Timestamp) -> SubnetPlan {
    let keep = || Plan::report(subnet.status());
    match (subnet.phase(), subnet.meta.deleting) {
        (Some(SubnetPhase::Allocated | SubnetPhase::Released), _) => settled(subnet, seen, now),
        // A withdrawn candidate goes as soon as nothing holds it back. Only ours has a finalizer.
        (_, Some(_)) if subnet.meta.has_finalizer(FINALIZER) => keep().step(SubnetStep::DropFinalizer),
        (_, Some(_)) => keep(),
        // The holder of a pool that is gone has nothing to wait for.
        _ if subnet.child().is_some() && seen.owners == Owners::Gone => keep().step(SubnetStep::Delete {
            why: "the pool it was to stand for is gone".into(),
        }),
        // R45: its pool lost the label before it had its range, and stands on its own now.
        _ if subnet.child().is_some() && seen.owners == Owners::Alive && seen.children.is_empty() => {
            keep().step(SubnetStep::Delete {
                why: "the pool it was to stand for names no parent any more".into(),
            })
        }
        (Some(SubnetPhase::Failed), None) => match obstacle(subnet, seen, now) {
            Some(Obstacle::Hard { reason, message }) => failed(subnet, reason, &message),
            // R23: back through Pending, and only then to a commit.
            _ => Plan::report(SubnetStatus {
                phase: Some(SubnetPhase::Pending),
                observed_generation: Some(subnet.meta.generation),
                reason: None,
                message: None,
                ..subnet.status()
            }),
        },
        (Some(SubnetPhase::Pending) | None, None) if subnet.claim().is_some() => of_claim(subnet, seen, now),
        (Some(SubnetPhase::Pending) | None, None) => by_hand(subnet, seen, now),
    }
}

/// What keeps a candidate from its range.
enum Obstacle {
    /// It must withdraw.
    Hard { reason: &'static str, message: String },
    /// It waits.
    Soft { reason: &'static str, message: String },
    /// What it stands on must be asked for first.
    Unconfirmed { ground: Ground },
}

fn obstacle(subnet: &SubnetRecord, seen: &SubnetView<'_>, now: Timestamp) -> Option<Obstacle> {
    let hard = |reason, message| Some(Obstacle::Hard { reason, message });
    let soft = |reason, message| Some(Obstacle::Soft { reason, message });
    let Some(standing) = &seen.pool else {
        return hard(
            "PoolNotFound",
            format!("pool {} does not exist; create it", subnet.pool),
        );
    };
    let pool = standing.pool;
    let (name, state) = (pool.meta.key.name(), standing.state());
    if state == PoolState::Terminating {
        return hard("PoolTerminating", format!("pool {name} is being deleted"));
    }
    // What a child pool will serve from is not known before it is Held: its Subnets wait as it does.
    if state == PoolState::WaitingParent {
        return soft("PoolNotReady", standing.sentence());
    }
    let serving = standing.serving().unwrap_or(pool.cidr);
    // A range that was promised once is restored also where a root pool would not grant it now (R31, R40).
    let promised = seen.named && standing.lineage == super::Lineage::Root;
    if !serving.contains(&subnet.cidr) && !promised {
        return hard(
            "OutOfRange",
            format!(
                "{} is not inside pool {name} ({serving}); correct spec.cidr",
                subnet.cidr
            ),
        );
    }
    let mine = rank(subnet, seen.named);
    let ahead = seen
        .overlapping
        .iter()
        .find(|rival| rank(rival.subnet, rival.named) < mine);
    if let Some(Rival { subnet: other, .. }) = ahead {
        let message = format!(
            "{} overlaps Subnet {} ({}), which came first",
            subnet.cidr,
            other.meta.key.name(),
            other.cidr
        );
        return hard("Overlap", message);
    }
    if let Some(Rival { subnet: other, .. }) = seen.overlapping.first() {
        return soft(
            "Contested",
            format!("Subnet {} ({}) must withdraw first", other.meta.key.name(), other.cidr),
        );
    }
    if !matches!(state, PoolState::Serving | PoolState::Rebuilding) {
        return soft("PoolNotReady", standing.sentence());
    }
    if !pool.meta.has_finalizer(FINALIZER) {
        return soft("PoolNotReady", format!("pool {name} has no finalizer yet"));
    }
    // R25 and R44, after everything else: a question is asked only where its answer decides.
    match seen.grounds.iter().find(|(_, footing)| *footing != Footing::Confirmed) {
        None => None,
        // For good: a deletion mark is not taken back, and a uid does not return. It goes when its claim does, which the
        // pool claim takes down before itself; that news wakes it.
        Some((ground @ Ground::PoolClaim(_), Footing::Denied { .. })) => soft(
            "PoolClaimTerminating",
            format!("{ground} is being deleted; this Subnet goes with it"),
        ),
        Some((ground, footing)) if footing.is_open(now) => Some(Obstacle::Unconfirmed { ground: ground.clone() }),
        Some((ground, _)) => soft(UNCONFIRMED, format!("{ground} is being confirmed")),
    }
}

const UNCONFIRMED: &str = "PoolUnconfirmed";

/// How long a Subnet waits for the answer to a question that somebody else asked.
const CONFIRMED_AGAIN: Duration = Duration::from_secs(1);

fn confirm(plan: SubnetPlan, ground: Ground) -> SubnetPlan {
    plan.step(SubnetStep::Confirm { ground })
}

/// A candidate made by hand: it waits, fails with a reason, or commits.
fn by_hand(subnet: &SubnetRecord, seen: &SubnetView<'_>, now: Timestamp) -> SubnetPlan {
    match obstacle(subnet, seen, now) {
        None => commit(subnet, now),
        Some(Obstacle::Unconfirmed { ground }) => confirm(Plan::report(subnet.status()), ground),
        Some(Obstacle::Hard { reason, message }) => failed(subnet, reason, &message),
        // An edited Subnet gives its old range up by saying Pending for its new generation.
        Some(Obstacle::Soft { reason, message }) => Plan::report(SubnetStatus {
            phase: Some(SubnetPhase::Pending),
            observed_generation: Some(subnet.meta.generation),
            reason: Some(reason.into()),
            message: Some(message.clone()),
            ..subnet.status()
        })
        .finding(Finding::new(Stance::Waiting, reason, message))
        .again_after_if(reason == UNCONFIRMED, CONFIRMED_AGAIN),
    }
}

/// A claim's candidate: it waits, commits, or is deleted and its claim queues again.
fn of_claim(subnet: &SubnetRecord, seen: &SubnetView<'_>, now: Timestamp) -> SubnetPlan {
    let keep = || Plan::report(subnet.status());
    let delete = |why: String| keep().step(SubnetStep::Delete { why });
    match &seen.owners {
        Owners::Gone => return delete("its claim is gone".into()),
        Owners::Unknown { kind, owner, uid } => return keep().step(ask_after(*kind, owner, uid)),
        Owners::Alive | Owners::None => {}
    }
    let Some(claim) = seen.claim else { return keep() };
    if !fulfils(claim, &subnet.pool, &subnet.cluster_id, subnet.cidr) {
        return delete("its claim asks for something else now".into());
    }
    let mine = rank(subnet, seen.named);
    if claim.bound().is_some_and(|bound| bound != subnet.cidr)
        || seen.twins.iter().any(|twin| rank(twin.subnet, twin.named) < mine)
    {
        return delete("its claim has another Subnet".into());
    }
    match obstacle(subnet, seen, now) {
        None => commit(subnet, now),
        Some(Obstacle::Unconfirmed { ground }) => confirm(keep(), ground),
        // The pool went by force; nothing is taken from a claim for that, it may come back.
        Some(Obstacle::Hard {
            reason: "PoolNotFound",
            message,
        }) => keep().finding(Finding::new(Stance::Waiting, "PoolNotFound", message)),
        // A promise outlives what the pool is at present; deleting and restoring in turn would help nobody (R31).
        Some(Obstacle::Hard {
            reason: "OutOfRange",
            message,
        }) if seen.named => keep().finding(Finding::new(Stance::Waiting, "OutOfRange", message)),
        Some(Obstacle::Hard { message, .. }) => delete(message),
        Some(Obstacle::Soft { reason, message }) => {
            let plan = keep().finding(Finding::new(Stance::Waiting, reason, message));
            plan.again_after_if(reason == UNCONFIRMED, CONFIRMED_AGAIN)
        }
    }
}

fn commit(subnet: &SubnetRecord, now: Timestamp) -> SubnetPlan {
    Plan::report(SubnetStatus {
        observed_generation: Some(subnet.meta.generation),
        phase: Some(SubnetPhase::Allocated),
        allocated_at: subnet
            .allocated_at
            .map_or(Some(whole_seconds(now)), |at| Some(at.into())),
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

fn failed(subnet: &SubnetRecord, reason: &'static str, message: &str) -> SubnetPlan {
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
        ..subnet.status()
    })
    .finding(Finding::new(Stance::Blocked, event, message).told(Tell::Warning))
}

/// Allocated or Released: kept until nobody needs it, then given up in order (R34-R37).
fn settled(subnet: &SubnetRecord, seen: &SubnetView<'_>, now: Timestamp) -> SubnetPlan {
    let keep = || Plan::report(subnet.status());
    let ours = subnet.meta.has_finalizer(FINALIZER);
    let releasable = match &seen.owners {
        Owners::Gone => true,
        Owners::None => subnet.meta.deleting.is_some(),
        Owners::Alive => false,
        Owners::Unknown { kind, owner, uid } => return keep().step(ask_after(*kind, owner, uid)),
    };
    // R26: as long as a pool lives from it, it stays, whoever made that pool is gone or not.
    let releasable = releasable && seen.children.is_empty();
    // R32: a claim changed before it was bound; its range is released first, unless others have it too, and then it is
    // served anew.
    if let Some(idle) = seen.idle.first().filter(|_| !subnet.by_hand()) {
        let used = seen.shared || seen.claim.is_some_and(|claim| uses(subnet, claim));
        // What was never bound was never used; what somebody else was bound to rests as any other (R36).
        let never_bound = seen.idle.iter().any(|owner| Some(&owner.uid) == subnet.claim_uid());
        let resting = resting(subnet, seen, now).filter(|_| !used && !never_bound);
        return match (resting, used, subnet.meta.key.sibling(&idle.name)) {
            (Some(resting), ..) => resting,
            (None, false, Some(claim)) => keep().step(SubnetStep::GiveUp { claim }),
            _ => keep().step(SubnetStep::DropOwner {
                claim: Box::new((*idle).clone()),
            }),
        };
    }
    // R30: two Subnets of one claim; the one it is not Bound to goes.
    let spare = seen
        .claim
        .is_some_and(|claim| claim.bound().is_some_and(|bound| bound != subnet.cidr))
        && !seen.shared
        && seen.twins.iter().any(|twin| twin.named && twin.subnet.settled());
    if !releasable && !spare {
        let plan = keep();
        return match subnet.meta.deleting {
            // Like a volume claim in use: deleted, and kept until its claim is.
            Some(since) => {
                let message = in_use(subnet, seen);
                plan.finding(
                    Finding::new(Stance::Waiting, "InUse", message)
                        .since(since)
                        .told(Tell::Warning),
                )
            }
            None => plan,
        };
    }
    if subnet.meta.deleting.is_none() {
        // R33: what was made by hand is never deleted by us.
        return match subnet.by_hand() {
            false => {
                let owner = if subnet.child().is_some() {
                    "the pool it stood for"
                } else {
                    "its claim"
                };
                keep().step(SubnetStep::Delete {
                    why: format!("{owner} is gone"),
                })
            }
            true => keep(),
        };
    }
    if !ours {
        return keep();
    }
    if let Some(resting) = resting(subnet, seen, now).filter(|_| !subnet.by_hand()) {
        return resting;
    }
    keep().step(SubnetStep::DropFinalizer).finding(
        Finding::new(
            Stance::Doing,
            "SubnetReleased",
            format!("{} is being released", subnet.cidr),
        )
        .told(Tell::Normal),
    )
}

/// One that was given up rests for as long as its pool says (R36). `None`: that is over.
fn resting(subnet: &SubnetRecord, seen: &SubnetView<'_>, now: Timestamp) -> Option<SubnetPlan> {
    let marked = subnet.meta.deleting?;
    let delay = seen
        .pool
        .as_ref()
        .map_or(0, |standing| standing.pool.reuse_delay_seconds);
    let rest = SignedDuration::from_secs(delay).saturating_sub(now.duration_since(marked.into()));
    if rest <= SignedDuration::ZERO {
        return None;
    }
    let message = format!("{} is not granted again for {} s", subnet.cidr, rest.as_secs().max(1));
    let plan = Plan::report(SubnetStatus {
        phase: Some(SubnetPhase::Released),
        released_at: Some(marked.into()),
        ..subnet.status()
    });
    let plan = plan.finding(Finding::new(Stance::Waiting, "ReuseDelay", message).since(marked));
    Some(plan.again_after(Duration::try_from(rest).unwrap_or(Duration::from_secs(1))))
}

/// Whether a claim that owns a Subnet has a use for it: it is Bound to it, or may be.
pub fn uses(subnet: &SubnetRecord, claim: &ClaimRecord) -> bool {
    match claim.bound() {
        Some(range) => range == subnet.cidr,
        None => fulfils(claim, &subnet.pool, &subnet.cluster_id, subnet.cidr),
    }
}

fn ask_after(kind: ApiType, owner: &ObjectKey, uid: &Uid) -> SubnetStep {
    SubnetStep::ConfirmOwner {
        kind,
        owner: owner.clone(),
        uid: uid.clone(),
    }
}

/// Who keeps a Subnet that somebody deleted.
fn in_use(subnet: &SubnetRecord, seen: &SubnetView<'_>) -> String {
    match seen.children.first() {
        Some(child) => format!(
            "{} is what pool {} serves from; delete that pool first",
            subnet.cidr,
            child.meta.key.name()
        ),
        None => format!("{} is in use by its claim; delete the claim to release it", subnet.cidr),
    }
}
