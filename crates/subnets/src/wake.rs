//! Which events wake which resource: mappers and indexes.
//!
//! Mappers are pure and total: (old object, new object) to keys. A key has its namespace by type; an empty reference
//! gives no key. A change of status alone does not wake a pool, so that our own writes make no loop; it is taken into the
//! ledger all the same, and the pool's counters make its status due.

use std::time::Duration;

use usher_engine::ObjectKey;
use usher_operator::queue::Why;
use usher_operator::view::{Change, View, Wake};

use crate::kinds::{CLAIM, POOL, SUBNET};
use crate::ledger::Ledger;
use crate::records::{ClaimRecord, PoolRecord, SubnetRecord};
use usher_operator::record::Meta;

/// Subnets and claims by the pool they name.
pub const BY_POOL: &str = "poolRef";
/// Subnets by the uid of an owner.
pub const BY_OWNER: &str = "ownerUid";

/// A pool's counters changed: its status is due, together with whatever else happens in this time.
const COUNTERS_DUE: Duration = Duration::from_millis(50);

/// Declares what the view keeps, and who is woken by what. Subnets are listed first and claims last: a Subnet whose claim
/// is missing from the claims' list has lost it for good.
pub fn register(view: &mut View) {
    let _ = view
        .watch::<SubnetRecord>()
        .index(BY_POOL, |subnet| vec![subnet.pool.clone()])
        .index(BY_OWNER, |subnet| {
            subnet.meta.owners.iter().map(|owner| owner.uid.clone()).collect()
        })
        .ingest::<Ledger>(Ledger::subnet)
        .wake(subnet_changed);
    let _ = view
        .watch::<PoolRecord>()
        .ingest::<Ledger>(Ledger::pool)
        .wake(pool_changed);
    let _ = view
        .watch::<ClaimRecord>()
        .index(BY_POOL, |claim| vec![claim.pool.clone()])
        .ingest::<Ledger>(Ledger::claim)
        .wake(claim_changed);
}

/// How an object changed, as far as waking goes.
fn why<R>(change: &Change<R>) -> Why {
    match (&change.old, &change.new) {
        (None, _) => Why::CREATE,
        (_, None) => Why::DELETE,
        _ => Why::UPDATE,
    }
}

/// Created, gone, spec changed or marked for deletion: more than a status.
fn substantial(old: Option<&Meta>, new: Option<&Meta>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => {
            old.uid != new.uid || old.generation != new.generation || old.deleting.is_some() != new.deleting.is_some()
        }
        _ => true,
    }
}

fn subnet_changed(view: &View, change: &Change<SubnetRecord>) -> Vec<Wake> {
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    let why = why(change);
    let mut wakes = Vec::new();
    let versions = || [old, new].into_iter().flatten();
    // Row 1: its pool, old and new; by a status alone only the counters.
    let substantial = substantial(old.map(|s| &s.meta), new.map(|s| &s.meta));
    for pool in versions().filter_map(|s| s.meta.key.sibling(&s.pool)) {
        wakes.push(if substantial {
            Wake::now(POOL, pool, why)
        } else {
            Wake::after(POOL, pool, Why::TIMER, COUNTERS_DUE)
        });
    }
    for subnet in versions() {
        // Row 8: itself, the claims that own it, and the Subnets it overlaps or overlapped.
        wakes.push(Wake::now(SUBNET, subnet.meta.key.clone(), why));
        let claims = subnet.meta.owners.iter().filter(|owner| &*owner.kind == "SubnetClaim");
        wakes.extend(
            claims
                .filter_map(|owner| subnet.meta.key.sibling(&owner.name))
                .filter(|claim| view.get::<ClaimRecord>(claim).is_some())
                .map(|claim| Wake::now(CLAIM, claim, why)),
        );
        wakes.extend(
            neighbours(view, subnet)
                .into_iter()
                .map(|key| Wake::now(SUBNET, key, why)),
        );
        if let Some(claim) = subnet.claim_uid() {
            wakes.extend(twins(view, subnet.meta.key.namespace(), claim, why));
        }
    }
    dedup(wakes)
}

/// The Subnets of one claim, where there are several: all but one are to go (R30), and which one stays may be clear now.
fn twins(view: &View, namespace: &str, claim: &str, why: Why) -> Vec<Wake> {
    let owned: Vec<_> = view.by::<SubnetRecord>(BY_OWNER, namespace, claim).collect();
    let several = owned.len() > 1;
    let keys = owned.into_iter().filter(|_| several).map(|s| s.meta.key.clone());
    keys.map(|key| Wake::now(SUBNET, key, why)).collect()
}

/// Other Subnets of the pool that overlap this one: those in the map, and the withdrawn ones, which may come back.
fn neighbours(view: &View, subnet: &SubnetRecord) -> Vec<ObjectKey> {
    let Some(pool) = subnet.meta.key.sibling(&subnet.pool) else {
        return Vec::new();
    };
    let Some(account) = view.derived::<Ledger>().and_then(|ledger| ledger.account(&pool)) else {
        return Vec::new();
    };
    let mut keys: Vec<ObjectKey> = account
        .overlapping(subnet.cidr, &subnet.meta.uid)
        .map(|seat| seat.key.clone())
        .collect();
    let withdrawn = account.withdrawn.iter().filter(|(uid, seat)| {
        ***uid != *subnet.meta.uid && (seat.cidr.contains(&subnet.cidr) || subnet.cidr.contains(&seat.cidr))
    });
    keys.extend(withdrawn.map(|(_, seat)| seat.key.clone()));
    keys
}

fn pool_changed(view: &View, change: &Change<PoolRecord>) -> Vec<Wake> {
    let Some(pool) = change.latest() else { return Vec::new() };
    let why = why(change);
    let key = &pool.meta.key;
    let mut wakes = Vec::new();
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    let annotated = old.map(|p| (p.paused, &p.parent)) != new.map(|p| (p.paused, &p.parent));
    // The first finalizer is what grants and commits wait for.
    let finalizers = old.map(|p| &p.meta.finalizers) != new.map(|p| &p.meta.finalizers);
    if !annotated && !finalizers && !substantial(old.map(|p| &p.meta), new.map(|p| &p.meta)) {
        return wakes;
    }
    // Row 4: itself, its Subnets that are not settled, and (row 10) its queue.
    if change.new.is_some() {
        wakes.push(Wake::now(POOL, key.clone(), why));
    }
    let subnets = view.by::<SubnetRecord>(BY_POOL, key.namespace(), key.name());
    wakes.extend(
        subnets
            .filter(|s| !s.settled())
            .map(|s| Wake::now(SUBNET, s.meta.key.clone(), why)),
    );
    let claims = view.by::<ClaimRecord>(BY_POOL, key.namespace(), key.name());
    wakes.extend(
        claims
            .filter(|c| c.bound().is_none())
            .map(|c| Wake::now(CLAIM, c.meta.key.clone(), why)),
    );
    wakes
}

fn claim_changed(view: &View, change: &Change<ClaimRecord>) -> Vec<Wake> {
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    let why = why(change);
    let mut wakes: Vec<Wake> = new
        .map(|c| Wake::now(CLAIM, c.meta.key.clone(), why))
        .into_iter()
        .collect();
    for claim in [old, new].into_iter().flatten() {
        // A range that is promised, or no longer, changes what the pool has to give.
        if old.map(|c| c.bound()) != new.map(|c| c.bound()) {
            wakes.extend(
                claim
                    .meta
                    .key
                    .sibling(&claim.pool)
                    .map(|pool| Wake::after(POOL, pool, Why::TIMER, COUNTERS_DUE)),
            );
            wakes.extend(twins(view, claim.meta.key.namespace(), &claim.meta.uid, why));
        }
        // Row 7: its pool, old and new, and the Subnets it owns.
        if substantial(old.map(|c| &c.meta), new.map(|c| &c.meta)) {
            wakes.extend(
                claim
                    .meta
                    .key
                    .sibling(&claim.pool)
                    .map(|pool| Wake::now(POOL, pool, why)),
            );
            let owned = view.by::<SubnetRecord>(BY_OWNER, claim.meta.key.namespace(), &claim.meta.uid);
            wakes.extend(owned.map(|subnet| Wake::now(SUBNET, subnet.meta.key.clone(), why)));
        }
    }
    dedup(wakes)
}

fn dedup(mut wakes: Vec<Wake>) -> Vec<Wake> {
    wakes.sort();
    wakes.dedup();
    wakes
}
