//! What a claim has by others' work or by an earlier promise: a Subnet that it shares (R11), a range that it keeps (R31).

use std::time::Duration;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use usher_engine::{Finding, Plan, Stance, Tell};

use super::claim::{ClaimPlan, ClaimStep, ClaimView, Prospect, bind, committed, report};
use super::{PoolState, fulfils};
use crate::api::{ClaimPhase, FINALIZER, SubnetClaimStatus, SubnetPhase};
use crate::records::{ClaimRecord, SubnetRecord};

/// What the API server said of a lost Subnet and the view does not confirm is asked again after this long.
const ASKED_AGAIN: SignedDuration = SignedDuration::from_secs(1);

/// What a claim makes of a Subnet that has its clusterID already.
pub(super) enum Sharing {
    /// It is the claim's as well.
    Bind,
    /// The claim becomes a further owner first.
    Join,
    /// Not, or not now.
    No(Prospect),
}

/// R11: within a pool, one live Subnet per clusterID.
pub(super) fn share(claim: &ClaimRecord, other: &SubnetRecord) -> Sharing {
    let (id, name) = (&claim.cluster_id, other.meta.key.name());
    // One that it has joined stays as long as it does, also if somebody deletes it (R37).
    let joined = other.meta.owned_by(&claim.meta.uid);
    if other.phase() != Some(SubnetPhase::Allocated) || (other.meta.deleting.is_some() && !joined) {
        let message = format!(
            "clusterID {id} has Subnet {name} ({}), which is not settled; this claim is served after that",
            other.cidr
        );
        return Sharing::No(Prospect::Waiting {
            reason: "RangeReleasing",
            event: None,
            message,
        });
    }
    let fits = fulfils(claim, &other.pool, &other.cluster_id, other.cidr);
    if !fits || other.child().is_some() {
        let message = format!(
            "clusterID {id} has Subnet {name} ({}) of this pool already; ask for that size, or use another clusterID",
            other.cidr
        );
        return Sharing::No(Prospect::Invalid {
            reason: "ClusterIDConflict",
            event: "ValidationFailed",
            message,
        });
    }
    if other.by_hand() || joined {
        return Sharing::Bind;
    }
    Sharing::Join
}

/// R31: a Bound claim has its range, gets it again, or is told that it is lost; never another one.
pub(super) fn keep_promise(claim: &ClaimRecord, range: IpNet, seen: &ClaimView<'_>, now: Timestamp) -> ClaimPlan {
    let keep = || Plan::report(claim.status());
    if let Some(subnet) = seen.subnet.filter(|subnet| subnet.cidr == range) {
        let lost = claim.phase() == Some(ClaimPhase::Error);
        return match committed(subnet, seen.account) {
            // Restored, it may have another name than what was there before.
            true if lost || claim.subnet_ref() != Some(subnet.meta.key.name()) => bind(claim, subnet, now),
            true => keep(),
            false => keep().finding(Finding::new(
                Stance::Doing,
                "Restoring",
                format!("Subnet {} is being restored", subnet.meta.key.name()),
            )),
        };
    }
    // Somebody of its clusterID has the range, or restores it for them both (R11).
    if let Some(other) = seen
        .namesake
        .filter(|other| other.cidr == range && other.child().is_none())
    {
        let doing = Finding::new(
            Stance::Doing,
            "Restoring",
            format!("Subnet {} is to be shared", other.meta.key.name()),
        );
        let plan = keep().finding(doing).again_after(Duration::from_secs(2));
        return match share(claim, other) {
            Sharing::Bind => bind(claim, other, now),
            Sharing::Join => plan.step(ClaimStep::Share {
                subnet: other.meta.key.clone(),
            }),
            Sharing::No(_) => plan,
        };
    }
    let Some(standing) = &seen.pool else {
        let message = format!(
            "the Subnet of {range} is gone, and so is pool {}; create it",
            claim.pool
        );
        return keep().finding(Finding::new(Stance::Waiting, "PoolNotFound", message));
    };
    let pool = standing.pool.meta.key.clone();
    let Some(loss) = seen.loss.filter(|loss| loss.cidr == range) else {
        return keep().step(ClaimStep::ConfirmLoss { pool, cidr: range });
    };
    let mut seats = seen
        .account
        .into_iter()
        .flat_map(|account| account.overlapping(range, None));
    let taken = seats.find(|subnet| subnet.settled()).map(|subnet| &subnet.meta.key);
    if taken != loss.taken_by.as_ref() {
        // What was answered and what is in view must agree; one of them is behind.
        let rest = ASKED_AGAIN.saturating_sub(now.duration_since(loss.at));
        return match Duration::try_from(rest) {
            Ok(rest) if !rest.is_zero() => keep().again_after(rest),
            _ => keep().step(ClaimStep::ConfirmLoss { pool, cidr: range }),
        };
    }
    if let Some(by) = taken {
        let message = format!(
            "{range} of pool {} was taken away by force, and Subnet {} has it now; delete that Subnet or this claim",
            pool.name(),
            by.name()
        );
        return Plan::report(lost(claim, &message, now))
            .finding(Finding::new(Stance::Blocked, "RangeLost", message).told(Tell::Warning));
    }
    if !standing.pool.meta.has_finalizer(FINALIZER) || standing.state() == PoolState::Terminating {
        return keep().finding(Finding::new(Stance::Waiting, "PoolNotReady", standing.sentence()));
    }
    keep()
        .finding(Finding::new(
            Stance::Doing,
            "Restoring",
            format!("the Subnet of {range} is gone; it is made again"),
        ))
        .step(ClaimStep::Restore { pool, cidr: range })
        .again_after(Duration::from_secs(2))
}

/// The promise stays on record, as what is to be restored.
fn lost(claim: &ClaimRecord, message: &str, now: Timestamp) -> SubnetClaimStatus {
    let SubnetClaimStatus {
        allocated_cidr,
        subnet_ref,
        ..
    } = claim.status();
    SubnetClaimStatus {
        allocated_cidr,
        subnet_ref,
        ..report(claim, ClaimPhase::Error, "RangeLost", message, now)
    }
}
