//! What plans are made from: slices of the view, borrowed. The API is the whole world of subnets; nothing is asked here.

use std::sync::Arc;

use usher_operator::view::View;

use crate::ledger::{Account, Ledger};
use crate::plan::claim::ClaimView;
use crate::plan::pool::PoolView;
use crate::plan::subnet::{Owners, SubnetView, named_by_claim};
use crate::records::{ClaimRecord, PoolRecord, SubnetRecord};
use crate::wake::{BY_OWNER, BY_POOL};

/// A pool's view; `None` only if the ledger has not heard of it, which its own watch event precludes.
pub fn pool<'v>(view: &'v View, pool: &'v PoolRecord) -> Option<PoolView<'v>> {
    let key = &pool.meta.key;
    let account = view.derived::<Ledger>()?.account(key)?;
    let stale = |(uid, grant): &(&'v Arc<str>, &'v crate::ledger::Grant)| {
        let claim = view.get::<ClaimRecord>(&grant.claim).map(AsRef::as_ref);
        !PoolView::wanted(grant, claim, uid, pool)
    };
    // Only a pool that is being deleted asks what is left; the list is short for whoever deletes in order.
    let mut left = Vec::new();
    if pool.meta.deleting.is_some() {
        left = view
            .by::<SubnetRecord>(BY_POOL, key.namespace(), key.name())
            .filter(|s| !s.withdrawn())
            .collect();
    }
    Some(PoolView {
        account,
        child_pools: 0,
        stale_grants: account.grants.iter().filter(stale).collect(),
        interrupted: view.interrupted_since(),
        left: left.len(),
        example: left.first().map(|subnet| &subnet.meta.key),
    })
}

/// A claim's view.
pub fn claim<'v>(view: &'v View, claim: &'v ClaimRecord) -> ClaimView<'v> {
    let key = &claim.meta.key;
    let pool_key = key.sibling(&claim.pool);
    let account: Option<&Account> = pool_key
        .as_ref()
        .and_then(|pool| view.derived::<Ledger>()?.account(pool));
    let subnets = view.by::<SubnetRecord>(BY_OWNER, key.namespace(), &claim.meta.uid);
    ClaimView {
        pool: pool_key
            .as_ref()
            .and_then(|pool| view.get::<PoolRecord>(pool))
            .map(AsRef::as_ref),
        account,
        subnet: subnets
            .map(AsRef::as_ref)
            // One that is Allocated and marked for deletion counts: it stays as long as its claim does (R37).
            .filter(|s: &&SubnetRecord| s.claim_uid() == Some(&claim.meta.uid) && !s.withdrawn())
            // The one it is Bound to, before any other.
            .min_by_key(|s| {
                (
                    Some(s.cidr) != claim.bound(),
                    !s.settled(),
                    s.meta.created,
                    s.meta.key.name(),
                )
            }),
        grant: account
            .and_then(|account| account.grants.get(&claim.meta.uid))
            .filter(|grant| grant.generation == claim.meta.generation),
    }
}

/// A Subnet's view.
pub fn subnet<'v>(view: &'v View, subnet: &'v SubnetRecord) -> SubnetView<'v> {
    let key = &subnet.meta.key;
    let pool_key = key.sibling(&subnet.pool);
    let account = pool_key
        .as_ref()
        .and_then(|pool| view.derived::<Ledger>()?.account(pool));
    let record = |key| view.get::<SubnetRecord>(key).map(AsRef::as_ref);
    let claim = subnet.claim.as_ref().and_then(|(name, uid)| {
        let claim = view.get::<ClaimRecord>(&key.sibling(name)?)?;
        (claim.meta.uid == *uid && !claim.leaving()).then_some(claim.as_ref())
    });
    let twins = subnet.claim_uid().map(|uid| {
        view.by::<SubnetRecord>(BY_OWNER, key.namespace(), uid)
            .map(AsRef::as_ref)
            .filter(|other: &&SubnetRecord| other.meta.uid != subnet.meta.uid && !other.withdrawn())
            .collect()
    });
    SubnetView {
        pool: pool_key
            .as_ref()
            .and_then(|pool| view.get::<PoolRecord>(pool))
            .map(AsRef::as_ref),
        claim,
        owners: owners(view, subnet),
        overlapping: account
            .map(|a| {
                a.overlapping(subnet.cidr, &subnet.meta.uid)
                    .filter_map(|seat| record(&seat.key))
                    .collect()
            })
            .unwrap_or_default(),
        twins: twins.unwrap_or_default(),
        named: named_by_claim,
    }
}

/// Whether those a Subnet belongs to are gone. Absence from the view is proof only as `View::absent_for_good` says.
fn owners(view: &View, subnet: &SubnetRecord) -> Owners {
    let key = &subnet.meta.key;
    let since = view
        .entry::<SubnetRecord>(key)
        .map_or(u64::MAX, |entry| entry.first_seen);
    let gone = view.derived::<Confirmed>();
    let mut verdict = Owners::None;
    for owner in subnet.meta.owners.iter().filter(|owner| &*owner.kind == "SubnetClaim") {
        let Some(claim_key) = key.sibling(&owner.name) else {
            continue;
        };
        let claim = view
            .get::<ClaimRecord>(&claim_key)
            .filter(|claim| claim.meta.uid == owner.uid);
        match claim {
            Some(claim) if !claim.leaving() => return Owners::Alive,
            Some(_) => {}
            None if view.absent_for_good::<ClaimRecord>(&claim_key, &owner.uid, since) => {}
            None if gone.is_some_and(|gone| gone.contains(&owner.uid)) => {}
            None => {
                return Owners::Unknown {
                    claim: claim_key,
                    uid: owner.uid.clone(),
                };
            }
        }
        verdict = Owners::Gone;
    }
    verdict
}

/// Claims that the API server said are gone, by uid, where the view could not tell. Bounded: the oldest are asked again.
#[derive(Debug, Default)]
pub struct Confirmed {
    uids: std::collections::BTreeSet<Arc<str>>,
    order: std::collections::VecDeque<Arc<str>>,
}

impl Confirmed {
    const KEPT: usize = 10_000;

    /// The API server says that this claim is gone.
    pub fn insert(&mut self, uid: Arc<str>) {
        if self.uids.insert(uid.clone()) {
            self.order.push_back(uid);
        }
        while self.order.len() > Self::KEPT {
            if let Some(oldest) = self.order.pop_front() {
                self.uids.remove(&oldest);
            }
        }
    }

    fn contains(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }
}
