//! What must hold in the true state at every point, and what must have come about at the end.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use usher_operator::record::Record;
use usher_subnets::api::{FINALIZER, SubnetPhase};
use usher_subnets::ledger::{Ledger, overlap};
use usher_subnets::plan::{self, PoolState};
use usher_subnets::records::{
    CLAIMS, ClaimRecord, POOL_CLAIMS, POOLS, PoolClaimRecord, PoolRecord, SUBNETS, SubnetRecord,
};

use super::world::{Operator, Server, text};

/// Looks at everything that happened since the last look.
#[derive(Default)]
pub struct Judge {
    judged: usize,
    /// Bound claims by uid, with their range.
    bound: BTreeMap<String, String>,
    /// Settled Subnets by uid, with the range they had.
    settled: BTreeMap<String, String>,
    /// Settled Subnets that were in their pool before it was a child: nothing is promised of them in the tree (I2).
    early: BTreeSet<String>,
    /// Subnets that somebody may take away at any time, as they were Allocated: by pool, clusterID and range (R31).
    unprotected: BTreeSet<(String, String, String)>,
    /// Somebody takes away those of claims, too.
    force: bool,
}

fn record<R: Record>(object: &Value) -> R {
    usher_operator::record::read(&serde_json::from_value(object.clone()).unwrap()).unwrap()
}

/// The holder that is in place for a pool.
fn holder<'s>(pool: &PoolRecord, settled: &'s [SubnetRecord]) -> Option<&'s SubnetRecord> {
    settled
        .iter()
        .find(|s| s.cluster_id == *pool.holder_id() && *s.pool != *pool.meta.key.name())
}

impl Judge {
    pub fn new(force: bool) -> Self {
        Self {
            force,
            ..Self::default()
        }
    }

    pub fn look(&mut self, server: &Server) {
        if self.judged == server.log.len() {
            return;
        }
        let pools = server.all::<PoolRecord>();
        let all = server.all::<SubnetRecord>();
        let settled: Vec<SubnetRecord> = all.into_iter().filter(SubnetRecord::settled).collect();
        for entry in &server.log[self.judged..] {
            let uid = text(&entry.object, "/metadata/uid").to_owned();
            match entry.kind {
                CLAIMS => self.claim(uid, &entry.object, &settled),
                SUBNETS => self.subnet(uid, &entry.object, entry.gone, &pools),
                _ => {}
            }
            if entry.gone {
                order(
                    server,
                    &entry.object,
                    entry.kind == POOLS,
                    entry.kind == POOL_CLAIMS,
                    &settled,
                );
            }
        }
        for (i, a) in settled.iter().enumerate() {
            for b in &settled[i + 1..] {
                assert!(
                    a.pool != b.pool || !overlap(a.cidr, b.cidr),
                    "I1: {} ({}) and {} ({}) overlap",
                    a.meta.key,
                    a.cidr,
                    b.meta.key,
                    b.cidr
                );
            }
        }
        self.trees(&pools, &settled);
        self.judged = server.log.len();
    }

    fn claim(&mut self, uid: String, object: &Value, settled: &[SubnetRecord]) {
        let (now, cidr) = (text(object, "/status/phase"), text(object, "/status/allocatedCIDR"));
        if let Some(before) = self.bound.get(&uid) {
            let lost = now == "Error" && text(object, "/status/conditions/0/reason") == "RangeLost";
            assert!(now == "Bound" || lost, "I6: a Bound claim is {now} now");
            assert_eq!(cidr, before, "I6: a Bound claim keeps its range");
            return;
        }
        if now != "Bound" {
            return;
        }
        let claim: ClaimRecord = record(object);
        let has = |s: &&SubnetRecord| {
            let its = s.meta.owned_by(&claim.meta.uid) || (s.by_hand() && s.cluster_id == claim.cluster_id);
            its && Some(s.cidr) == claim.bound() && s.pool == claim.pool
        };
        let restorable = (claim.pool.to_string(), claim.cluster_id.to_string(), cidr.to_owned());
        assert!(
            settled.iter().any(|s| has(&s)) || self.unprotected.contains(&restorable),
            "I3: {} is Bound to a Subnet that is not Allocated",
            claim.meta.key
        );
        self.bound.insert(uid, cidr.to_owned());
    }

    fn subnet(&mut self, uid: String, object: &Value, gone: bool, pools: &[PoolRecord]) {
        let subnet: SubnetRecord = record(object);
        let before = self.settled.remove(&uid);
        if gone || !subnet.settled() {
            if let Some(before) = before.filter(|before| !gone && *before == subnet.cidr.to_string()) {
                panic!("I6: {} had {before} and is {:?} now", subnet.meta.key, subnet.phase());
            }
            return;
        }
        let pool = pools.iter().find(|pool| *pool.meta.key.name() == *subnet.pool);
        if before.is_none() && pool.is_none_or(|pool| !pool.held) {
            self.early.insert(uid.clone());
        }
        let range = subnet.cidr.to_string();
        if subnet.by_hand() || self.force {
            let whose = (subnet.pool.to_string(), subnet.cluster_id.to_string(), range.clone());
            self.unprotected.insert(whose);
        }
        self.settled.insert(uid, range);
    }

    /// I2 and I4: what is allocated in a child lies in its holder, so nothing in a tree overlaps.
    fn trees(&self, pools: &[PoolRecord], settled: &[SubnetRecord]) {
        for pool in pools.iter().filter(|pool| pool.held) {
            let holder = holder(pool, settled)
                .unwrap_or_else(|| panic!("I2: pool {} was Held and has no holder", pool.meta.key));
            for subnet in settled.iter().filter(|s| *s.pool == *pool.meta.key.name()) {
                assert!(
                    self.early.contains(&subnet.meta.uid.to_string()) || holder.cidr.contains(&subnet.cidr),
                    "I2: {} ({}) lies outside the holder {} of its pool",
                    subnet.meta.key,
                    subnet.cidr,
                    holder.cidr
                );
            }
        }
    }
}

/// I10: no pool disappears before its Subnets, no holder before its child, no pool claim before both.
fn order(server: &Server, gone: &Value, pool: bool, pool_claim: bool, settled: &[SubnetRecord]) {
    let (name, uid) = (text(gone, "/metadata/name"), text(gone, "/metadata/uid"));
    let had_finalizer = gone.pointer("/metadata/finalizers").is_some();
    if pool && had_finalizer {
        let left = settled.iter().find(|s| *s.pool == *name);
        // One of that name may have been made anew, with Subnets of its own.
        let anew = server.get(POOLS, name).is_some();
        assert!(
            left.is_none() || anew,
            "I10: pool {name} went before {}",
            left.unwrap().meta.key
        );
    }
    if pool_claim {
        let pools = server.all::<PoolRecord>();
        let left = pools.iter().find(|pool| pool.meta.owned_by(&uid.into()));
        assert!(
            left.is_none(),
            "I10: pool claim {name} went before pool {}",
            left.unwrap().meta.key
        );
        let holder = settled.iter().find(|s| *s.cluster_id == *uid);
        assert!(
            holder.is_none(),
            "I10: pool claim {name} went before {}",
            holder.unwrap().meta.key
        );
    }
}

/// Faults are over and nothing is left to do: everybody has what can be had, and what can go is gone.
pub fn served(server: &Server, operator: &Operator) {
    let claims = server.all::<ClaimRecord>();
    let subnets = server.all::<SubnetRecord>();
    let pools = server.all::<PoolRecord>();
    let memory = operator.memory();
    let view = &memory.view;
    let serving = |name: &str| {
        let pool = pools.iter().find(|pool| pool.meta.key.name() == name);
        pool.is_some_and(|pool| usher_subnets::observe::standing(view, pool).state() == PoolState::Serving)
    };
    for subnet in &subnets {
        let mut owners = subnet.claim_owners().peekable();
        let orphan = owners.peek().is_some() && !owners.any(|o| claims.iter().any(|c| c.meta.uid == o.uid));
        let keeps = pools.iter().any(|pool| pool.holder_id() == subnet.cluster_id);
        assert!(!orphan || keeps, "{} outlived its claim", subnet.meta.key);
        let of_child = subnet.child();
        let childless = of_child.is_some_and(|child| !pools.iter().any(|pool| pool.meta.uid == child.uid));
        assert!(!childless, "{} outlived its pool", subnet.meta.key);
        let decided = matches!(subnet.phase(), Some(SubnetPhase::Allocated | SubnetPhase::Failed));
        assert!(
            decided || !serving(&subnet.pool),
            "{} is undecided: {:?}",
            subnet.meta.key,
            subnet.status()
        );
    }
    for pool in &pools {
        let account = view.derived::<Ledger>().unwrap().account(&pool.meta.key).unwrap();
        assert!(account.grants.is_empty(), "a grant is left over: {:?}", account.grants);
        assert_eq!(account.recalculation.asked, None, "a recalculation is left over");
        let own: Vec<_> = subnets.iter().filter(|s| *s.pool == *pool.meta.key.name()).collect();
        if pool.meta.deleting.is_some() {
            let held_back = own.iter().any(|s| !s.withdrawn()) || !pool.meta.has_finalizer(FINALIZER);
            assert!(held_back, "pool {} could go", pool.meta.key);
        }
        assert_eq!(
            usize::try_from(pool.status.allocated_count).unwrap(),
            own.iter().filter(|s| s.settled()).count(),
            "pool {}",
            pool.meta.key
        );
        if let Some(done) = &pool.status.recalculated {
            assert_eq!(done.drift, 0, "R50: {}", pool.meta.key);
        }
        let Some(map) = account.map.as_ref().filter(|_| serving(pool.meta.key.name())) else {
            continue;
        };
        let kept = account.target.is_some() || !account.awaited.is_empty();
        for claim in claims.iter().filter(|c| account.line.waits(&c.meta.uid).is_some()) {
            let fits = match plan::request(claim.ask, pool, map.base()) {
                Ok(plan::Request::Length(length)) => map.fit(length, plan::map::Fit::First).is_some(),
                Ok(plan::Request::Exact(cidr)) => map.is_free(cidr),
                Err(_) => false,
            };
            assert!(
                !fits || kept,
                "{} fits and was not served: {:?}",
                claim.meta.key,
                claim.status()
            );
        }
    }
    for claim in claims.iter().filter(|claim| claim.meta.deleting.is_none()) {
        assert!(claim.phase().is_some(), "{} was told nothing", claim.meta.key);
    }
    for claim in server.all::<PoolClaimRecord>() {
        let waits = pools.iter().any(|pool| pool.meta.owned_by(&claim.meta.uid));
        assert!(
            claim.meta.deleting.is_none() || waits,
            "pool claim {} could go: {:?}",
            claim.meta.key,
            claim.status
        );
    }
}
