//! The four kinds as the runtime sees them: each a few lines that name its rooms.

use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::registry::Registry;
use usher_engine::Plan;
use usher_operator::error::Failure;
use usher_operator::events::Within;
use usher_operator::kind::{Kind, Pace, Passed};
use usher_operator::pass::Pass;
use usher_operator::queue::Why;
use usher_operator::turn::Rank;
use usher_operator::view::{View, Wake};
use usher_operator::window::Window;

use crate::api::{SubnetClaimStatus, SubnetPhase, SubnetPoolClaimStatus, SubnetPoolStatus, SubnetStatus};
use crate::ledger::{Account, Ledger};
use crate::plan::claim::{self, ClaimStep, ClaimView};
use crate::plan::pool::{self, Limits, PoolStep, PoolView};
use crate::plan::pool_claim::{self, PoolClaimStep, PoolClaimView};
use crate::plan::subnet::{self, SubnetStep, SubnetView};
use crate::records::{ClaimRecord, Owner, PoolClaimRecord, PoolRecord, SubnetRecord};
use crate::{act, metrics, observe, rank, tell, wake};

/// Name of the pool kind.
pub const POOL: &str = "SubnetPool";
/// Name of the claim kind.
pub const CLAIM: &str = "SubnetClaim";
/// Name of the Subnet kind.
pub const SUBNET: &str = "Subnet";
/// Name of the pool claim kind.
pub const POOL_CLAIM: &str = "SubnetPoolClaim";

/// How long a pool's counts may wait for a place among the writes.
const COUNTS_MAY_WAIT: Duration = Duration::from_secs(10);
/// How long a claim may wait for one to say that it is being placed.
const PLACING_MAY_WAIT: Duration = Duration::from_secs(60);

/// Runs SubnetPools.
#[derive(Debug, Clone, Copy)]
pub struct Pools {
    /// At most one ordinary status write per pool in this time (R48).
    pub status_every: Duration,
    /// What else people may set.
    pub limits: Limits,
}

impl Default for Pools {
    fn default() -> Self {
        Self {
            status_every: Duration::from_secs(1),
            limits: Limits::default(),
        }
    }
}

impl Kind for Pools {
    type Resource = PoolRecord;
    type Fetched = ();
    type Observation<'v> = Option<PoolView<'v>>;
    type Status = SubnetPoolStatus;
    type Step = PoolStep;
    const NAME: &'static str = POOL;
    const QUEUE: &'static str = "PoolStatus";

    fn register(&self, view: &mut View) {
        wake::register(view);
        metrics::register(view);
    }

    fn measure(&self, registry: &mut Registry, window: &Window) {
        metrics::measure(registry, window);
    }

    fn passed(&self, view: &View, pass: &Passed<'_, Self>) {
        metrics::pool_passed(view, pass);
    }

    async fn fetch(&self, _: &Pass, _: &PoolRecord) -> Result<(), Failure> {
        Ok(())
    }

    fn observe<'v>(&self, view: &'v View, pool: &'v PoolRecord, (): &'v ()) -> Option<PoolView<'v>> {
        observe::pool(view, pool, self.limits)
    }

    fn plan(&self, pool: &PoolRecord, seen: &Option<PoolView<'_>>, now: Timestamp) -> Plan<PoolStep, SubnetPoolStatus> {
        match seen {
            Some(seen) => pool::plan(pool, seen, now),
            None => Plan::report(pool.status.clone()),
        }
    }

    async fn act(&self, pass: &Pass, pool: &PoolRecord, step: &PoolStep) -> Result<(), Failure> {
        act::pool::step(pass, pool, step).await
    }

    fn rank(&self, step: Option<&PoolStep>, _: &SubnetPoolStatus) -> Rank {
        rank::pool(step)
    }

    fn pace(&self) -> Pace {
        // R48: a change of a condition at once, at most 5 times per second.
        Pace {
            ordinary: self.status_every,
            urgent: Duration::from_millis(200),
        }
    }

    fn urgent(&self, pool: &PoolRecord, new: &SubnetPoolStatus) -> bool {
        let verdicts = |status: &SubnetPoolStatus| -> Vec<_> {
            status
                .conditions
                .iter()
                .map(|c| (c.type_.clone(), c.status, c.reason.clone()))
                .collect()
        };
        verdicts(&pool.status) != verdicts(new)
    }

    /// Counts may be some seconds older while the API server is busy with claims.
    fn may_wait(&self, pool: &PoolRecord, new: &SubnetPoolStatus) -> Option<Duration> {
        (!self.urgent(pool, new)).then_some(COUNTS_MAY_WAIT)
    }
}

/// Runs SubnetClaims.
#[derive(Debug, Clone, Copy, Default)]
pub struct Claims;

impl Kind for Claims {
    type Resource = ClaimRecord;
    type Fetched = ();
    type Observation<'v> = ClaimView<'v>;
    type Status = SubnetClaimStatus;
    type Step = ClaimStep;
    const NAME: &'static str = CLAIM;
    const QUEUE: &'static str = "SubnetClaim";
    const PASSES_AT_ONCE: usize = 64;

    fn register(&self, _: &mut View) {}

    async fn fetch(&self, _: &Pass, _: &ClaimRecord) -> Result<(), Failure> {
        Ok(())
    }

    fn observe<'v>(&self, view: &'v View, claim: &'v ClaimRecord, (): &'v ()) -> ClaimView<'v> {
        observe::claim(view, claim)
    }

    fn plan(&self, claim: &ClaimRecord, seen: &ClaimView<'_>, now: Timestamp) -> Plan<ClaimStep, SubnetClaimStatus> {
        claim::plan(claim, seen, now)
    }

    async fn act(&self, pass: &Pass, claim: &ClaimRecord, step: &ClaimStep) -> Result<(), Failure> {
        act::claim::step(pass, claim, step).await
    }

    /// R19: that a range is being placed is said only where there is time for it; the next write says which one.
    fn may_wait(&self, _: &ClaimRecord, new: &SubnetClaimStatus) -> Option<Duration> {
        let ready = new.conditions.iter().find(|c| c.type_ == "Ready");
        ready.filter(|c| c.reason == claim::PLACING).map(|_| PLACING_MAY_WAIT)
    }

    fn rank(&self, step: Option<&ClaimStep>, status: &SubnetClaimStatus) -> Rank {
        rank::claim(step, status)
    }

    fn within(&self, view: &View, claim: &ClaimRecord, reason: &'static str) -> Option<Within> {
        tell::within(view, &claim.meta.key, &claim.pool, reason)
    }

    fn passed(&self, view: &View, pass: &Passed<'_, Self>) {
        metrics::claim_passed(view, pass);
    }
}

/// Runs Subnets.
#[derive(Debug, Clone, Copy, Default)]
pub struct Subnets;

impl Kind for Subnets {
    type Resource = SubnetRecord;
    type Fetched = ();
    type Observation<'v> = SubnetView<'v>;
    type Status = SubnetStatus;
    type Step = SubnetStep;
    const NAME: &'static str = SUBNET;
    const QUEUE: &'static str = "Subnet";
    const PASSES_AT_ONCE: usize = 64;

    fn register(&self, _: &mut View) {}

    async fn fetch(&self, _: &Pass, _: &SubnetRecord) -> Result<(), Failure> {
        Ok(())
    }

    fn observe<'v>(&self, view: &'v View, subnet: &'v SubnetRecord, (): &'v ()) -> SubnetView<'v> {
        observe::subnet(view, subnet)
    }

    fn plan(&self, subnet: &SubnetRecord, seen: &SubnetView<'_>, now: Timestamp) -> Plan<SubnetStep, SubnetStatus> {
        subnet::plan(subnet, seen, now)
    }

    async fn act(&self, pass: &Pass, subnet: &SubnetRecord, step: &SubnetStep) -> Result<(), Failure> {
        act::subnet::step(pass, subnet, step).await
    }

    fn rank(&self, step: Option<&SubnetStep>, status: &SubnetStatus) -> Rank {
        rank::subnet(step, status)
    }

    fn within(&self, view: &View, subnet: &SubnetRecord, reason: &'static str) -> Option<Within> {
        tell::within(view, &subnet.meta.key, &subnet.pool, reason)
    }

    fn passed(&self, view: &View, pass: &Passed<'_, Self>) {
        metrics::subnet_passed(view, pass);
    }

    /// R19: the claim is bound on the answer of the commit, without waiting for its echo.
    fn recorded(&self, view: &mut View, subnet: &SubnetRecord, status: &SubnetStatus, _: u64) -> Vec<Wake> {
        let Some(Owner { name, uid, .. }) = subnet.claim().filter(|_| status.phase == Some(SubnetPhase::Allocated))
        else {
            return Vec::new();
        };
        let key = &subnet.meta.key;
        let in_view = view
            .get::<SubnetRecord>(key)
            .is_some_and(|now| now.meta.uid == subnet.meta.uid && !now.settled());
        let account: Option<&mut Account> = key
            .sibling(&subnet.pool)
            .and_then(|pool| view.derived_mut::<Ledger>()?.account_mut(&pool));
        if let Some(account) = account.filter(|_| in_view) {
            account.committed.insert(subnet.meta.uid.clone(), uid.clone());
        }
        key.sibling(name)
            .map(|claim| Wake::now(CLAIM, claim, Why("committed")))
            .into_iter()
            .collect()
    }
}

/// Runs SubnetPoolClaims.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolClaims;

impl Kind for PoolClaims {
    type Resource = PoolClaimRecord;
    type Fetched = ();
    type Observation<'v> = PoolClaimView<'v>;
    type Status = SubnetPoolClaimStatus;
    type Step = PoolClaimStep;
    const NAME: &'static str = POOL_CLAIM;
    const QUEUE: &'static str = "SubnetPoolClaim";

    fn register(&self, _: &mut View) {}

    async fn fetch(&self, _: &Pass, _: &PoolClaimRecord) -> Result<(), Failure> {
        Ok(())
    }

    fn observe<'v>(&self, view: &'v View, claim: &'v PoolClaimRecord, (): &'v ()) -> PoolClaimView<'v> {
        observe::pool_claim(view, claim)
    }

    fn plan(
        &self,
        claim: &PoolClaimRecord,
        seen: &PoolClaimView<'_>,
        now: Timestamp,
    ) -> Plan<PoolClaimStep, SubnetPoolClaimStatus> {
        pool_claim::plan(claim, seen, now)
    }

    async fn act(&self, pass: &Pass, claim: &PoolClaimRecord, step: &PoolClaimStep) -> Result<(), Failure> {
        act::pool_claim::step(pass, claim, step).await
    }

    fn rank(&self, _: Option<&PoolClaimStep>, _: &SubnetPoolClaimStatus) -> Rank {
        rank::POOL_CLAIM
    }
}
