//! R20: which write goes first when more wait than may be in flight. What is begun is finished first, so that a claim that
//! has its range is Bound before the next one is begun, and the claims served under load are served fast.

use usher_operator::turn::Rank;

use crate::api::{ClaimPhase, SubnetClaimStatus, SubnetPhase, SubnetStatus};
use crate::plan::claim::ClaimStep;
use crate::plan::pool::PoolStep;
use crate::plan::subnet::SubnetStep;

/// The promise to the user.
pub const BIND: Rank = Rank(10);
/// The commit, and what it waits for: those that yield.
pub const COMMIT: Rank = Rank(20);
/// Giving a range up.
pub const RELEASE: Rank = Rank(30);
/// The candidacy, and the finalizer that must come before it.
pub const CREATE: Rank = Rank(40);
/// Whatever is written for a SubnetPoolClaim.
pub const POOL_CLAIM: Rank = Rank(50);
/// Reports: of a pool, and of a claim that must wait.
pub const POOL_STATUS: Rank = Rank(60);
/// Finalizers for Subnets made by others (R38).
pub const ADOPTION: Rank = Rank(70);

/// Of a pool's writes.
pub fn pool(step: Option<&PoolStep>) -> Rank {
    match step {
        None => POOL_STATUS,
        Some(PoolStep::DropFinalizer | PoolStep::DeleteOrphan | PoolStep::ReplaceHolder { .. }) => RELEASE,
        Some(PoolStep::Adopt { .. }) => ADOPTION,
        Some(PoolStep::AddFinalizer | PoolStep::CreateHolder { .. }) => CREATE,
        // These write nothing.
        Some(
            PoolStep::Grant { .. }
            | PoolStep::RevokeGrant { .. }
            | PoolStep::KeepTarget { .. }
            | PoolStep::ConfirmTaken { .. }
            | PoolStep::ConfirmHolder { .. }
            | PoolStep::ListForRecount { .. }
            | PoolStep::Recalculate { .. }
            | PoolStep::CheckSlice,
        ) => POOL_STATUS,
    }
}

/// Of a claim's writes.
pub fn claim(step: Option<&ClaimStep>, status: &SubnetClaimStatus) -> Rank {
    match step {
        None if status.phase == Some(ClaimPhase::Bound) => BIND,
        None => POOL_STATUS,
        // The Subnet is there already; only this is between it and Bound.
        Some(ClaimStep::Share { .. }) => COMMIT,
        Some(ClaimStep::DeleteOrphan | ClaimStep::DropFinalizer) => RELEASE,
        Some(ClaimStep::CreateSubnet { .. } | ClaimStep::Restore { .. }) => CREATE,
        // These write nothing.
        Some(ClaimStep::QueueAgain { .. } | ClaimStep::ConfirmLoss { .. }) => POOL_STATUS,
    }
}

/// Of a Subnet's writes.
pub fn subnet(step: Option<&SubnetStep>, status: &SubnetStatus) -> Rank {
    match step {
        None if status.phase == Some(SubnetPhase::Released) => RELEASE,
        None => COMMIT,
        Some(_) => RELEASE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r20_ranks_are_in_the_order_of_the_spec() {
        let order = [BIND, COMMIT, RELEASE, CREATE, POOL_CLAIM, POOL_STATUS, ADOPTION];
        assert!(order.is_sorted() && order.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn r20_the_three_writes_of_an_allocation_rank_the_later_the_higher() {
        let create = ClaimStep::CreateSubnet {
            pool: usher_engine::ObjectKey::new("ns", "p").unwrap(),
            cidr: "10.0.0.0/24".parse().unwrap(),
        };
        let claimed = |phase| SubnetClaimStatus {
            phase,
            ..SubnetClaimStatus::default()
        };
        let placed = |phase| SubnetStatus {
            phase,
            ..SubnetStatus::default()
        };
        assert_eq!(claim(None, &claimed(Some(ClaimPhase::Bound))), BIND);
        assert_eq!(subnet(None, &placed(Some(SubnetPhase::Allocated))), COMMIT);
        assert_eq!(claim(Some(&create), &claimed(None)), CREATE);
        // A claim that must wait is in no hurry to say so.
        assert_eq!(claim(None, &claimed(Some(ClaimPhase::Pending))), POOL_STATUS);
        assert_eq!(subnet(Some(&SubnetStep::DropFinalizer), &placed(None)), RELEASE);
        assert_eq!(subnet(None, &placed(Some(SubnetPhase::Released))), RELEASE);
        assert_eq!(pool(None), POOL_STATUS);
        assert_eq!(pool(Some(&PoolStep::DropFinalizer)), RELEASE);
        assert_eq!(pool(Some(&PoolStep::AddFinalizer)), CREATE);
        assert_eq!(pool(Some(&PoolStep::Adopt { subnets: Vec::new() })), ADOPTION);
    }
}
