//! Which events wake which resource: mappers and indexes.
//!
//! Mappers are pure and total: (old object, new object) to keys. A key has its namespace by type; an empty reference
//! gives no key. A change of status alone does not wake a pool, so that our own writes make no loop; it is taken into the
//! ledger all the same, and the pool's counters make its status due.

use std::collections::BTreeSet;
use std::time::Duration;

use usher_engine::{ObjectKey, Uid};
use usher_operator::queue::Why;
use usher_operator::record::Meta;
use usher_operator::view::{Change, View, Wake};

use crate::answers::Answers;
use crate::kinds::{CLAIM, POOL, POOL_CLAIM, SUBNET};
use crate::ledger::{Account, Ledger};
use crate::records::{ClaimRecord, Owner, PoolClaimRecord, PoolRecord, SubnetRecord};

/// Subnets and claims by the pool they name.
pub const BY_POOL: &str = "poolRef";
/// Subnets by the uid of an owner; claims and pools by that of the pool claim they were made for.
pub const BY_OWNER: &str = "ownerUid";
/// Pool claims by their own uid.
pub const BY_UID: &str = "uid";
/// Pools by the parent their label names.
pub const BY_PARENT: &str = "parent";

/// A pool looks at its Subnets together, as they come and go: at most fifty times a second, however many there are.
const TOGETHER: Duration = Duration::from_millis(20);

/// A pool's counters changed: its status is due, together with whatever else happens in this time.
const COUNTERS_DUE: Duration = Duration::from_millis(50);

/// What wakes a pool beside rows 1 to 6 has words of its own: metrics count `create`, `update`, `delete` and `external`.
const ITS_CLAIMS: Why = Why("claim");
const ITS_HOLDER: Why = Why("holder");

/// Declares what the view keeps, and who is woken by what. Subnets are listed first, then pools, claims and pool claims:
/// what names an owner is listed before its owner, so that an owner missing from its own list is gone for good.
pub fn register(view: &mut View) {
    view.keep::<Answers>();
    let _ = view
        .watch::<SubnetRecord>()
        .index(BY_POOL, |subnet| vec![subnet.pool.clone()])
        .index(BY_OWNER, |subnet| {
            subnet.meta.owners.iter().map(|owner| (&owner.uid).into()).collect()
        })
        .ingest::<Ledger>(Ledger::subnet)
        .wake(subnet_changed);
    let _ = view
        .watch::<PoolRecord>()
        .index(BY_PARENT, |pool| pool.parent.iter().cloned().collect())
        .index(BY_OWNER, |pool| {
            pool.owner().map(|claim| (&claim.uid).into()).into_iter().collect()
        })
        .ingest::<Ledger>(Ledger::pool)
        .wake(pool_changed);
    let _ = view
        .watch::<ClaimRecord>()
        .index(BY_POOL, |claim| vec![claim.pool.clone()])
        .index(BY_OWNER, |claim| {
            claim.owner().map(|claim| (&claim.uid).into()).into_iter().collect()
        })
        .ingest::<Ledger>(Ledger::claim)
        .wake(claim_changed);
    let _ = view
        .watch::<PoolClaimRecord>()
        .index(BY_UID, |claim| vec![(&claim.meta.uid).into()])
        .wake(pool_claim_changed);
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

fn account<'v>(view: &'v View, pool: &ObjectKey) -> Option<&'v Account> {
    view.derived::<Ledger>()?.account(pool)
}

fn subnet_changed(view: &View, change: &Change<SubnetRecord>) -> Vec<Wake> {
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    let why = why(change);
    let mut wakes = Vec::new();
    let versions = || [old, new].into_iter().flatten();
    // Row 1: its pool, old and new; by a status alone only the counters.
    let substantial = substantial(old.map(|s| &s.meta), new.map(|s| &s.meta));
    for (subnet, pool) in versions().filter_map(|s| Some((s, s.meta.key.sibling(&s.pool)?))) {
        if substantial {
            tracing::debug!(
                ns = pool.namespace(),
                pool = pool.name(),
                event = why.0,
                subnet = subnet.meta.key.name(),
                "parent_pool_mapped"
            );
        }
        wakes.push(if substantial {
            Wake::after(POOL, pool, why, TOGETHER)
        } else {
            Wake::after(POOL, pool, Why::TIMER, COUNTERS_DUE)
        });
    }
    for subnet in versions() {
        // Row 8: itself, the claims that own it, and the Subnets it overlaps or overlapped.
        let key = &subnet.meta.key;
        wakes.push(Wake::now(SUBNET, key.clone(), why));
        wakes.extend(
            subnet
                .claim_owners()
                .filter_map(|owner| key.sibling(&owner.name))
                .filter(|claim| view.get::<ClaimRecord>(claim).is_some())
                .map(|claim| Wake::now(CLAIM, claim, why)),
        );
        wakes.extend(
            neighbours(view, subnet)
                .into_iter()
                .map(|key| Wake::now(SUBNET, key, why)),
        );
        if let Some(claim) = subnet.claim_uid() {
            wakes.extend(twins(view, key.namespace(), claim, why));
        }
        wakes.extend(
            concerned(view, subnet)
                .into_iter()
                .map(|key| Wake::now(CLAIM, key, why)),
        );
        if subnet.may_hold_a_pool() {
            wakes.extend(held(view, subnet, why));
        }
    }
    dedup(wakes)
}

/// Claims that do not own a Subnet and yet depend on it: those of its clusterID that have no range (R11), and those that
/// are bound to a range it overlaps (R31).
fn concerned(view: &View, subnet: &SubnetRecord) -> Vec<ObjectKey> {
    let pool = subnet.meta.key.sibling(&subnet.pool);
    let Some(account) = pool.and_then(|pool| account(view, &pool)) else {
        return Vec::new();
    };
    let mut keys = account.line.sharers(&subnet.cluster_id);
    keys.extend(account.promised(subnet.cidr).cloned());
    keys
}

/// The pools a Subnet stands for, and the pool claim behind them. A pool that may serve now has claims and Subnets that
/// wait for that.
fn held(view: &View, holder: &SubnetRecord, why: Why) -> Vec<Wake> {
    let ledger = view.derived::<Ledger>().into_iter();
    let children = ledger.flat_map(|ledger| ledger.children(&holder.cluster_id));
    let mut wakes = Vec::new();
    for pool in children.filter(|pool| pool.meta.key.namespace() == holder.meta.key.namespace()) {
        wakes.push(Wake::now(POOL, pool.meta.key.clone(), ITS_HOLDER));
        wakes.extend(pool_claim_of(&pool.meta.key, pool.owner(), why));
        wakes.extend(dependants(view, &pool.meta.key, why));
    }
    let claims = holder
        .claim_owners()
        .filter_map(|owner| holder.meta.key.sibling(&owner.name));
    for claim in claims.filter_map(|key| view.get::<ClaimRecord>(&key)) {
        wakes.extend(pool_claim_of(&claim.meta.key, claim.owner(), why));
    }
    // Its claim may be gone already: the pool claim is then known by its uid alone.
    let by_uid = view.by::<PoolClaimRecord>(BY_UID, holder.meta.key.namespace(), holder.cluster_id.clone());
    wakes.extend(by_uid.map(|claim| Wake::now(POOL_CLAIM, claim.meta.key.clone(), why)));
    wakes
}

fn pool_claim_of(key: &ObjectKey, owner: Option<&Owner>, why: Why) -> Option<Wake> {
    let claim = key.sibling(&owner?.name)?;
    Some(Wake::now(POOL_CLAIM, claim, why))
}

/// The Subnets of one claim, where there are several: all but one are to go (R30), and which one stays may be clear now.
fn twins(view: &View, namespace: &str, claim: &Uid, why: Why) -> Vec<Wake> {
    let owned: Vec<_> = view.by::<SubnetRecord>(BY_OWNER, namespace, claim.into()).collect();
    let several = owned.len() > 1;
    let keys = owned.into_iter().filter(|_| several).map(|s| s.meta.key.clone());
    keys.map(|key| Wake::now(SUBNET, key, why)).collect()
}

/// Other Subnets of the pool that overlap this one: those in the map, and the withdrawn ones, which may come back.
fn neighbours(view: &View, subnet: &SubnetRecord) -> Vec<ObjectKey> {
    let pool = subnet.meta.key.sibling(&subnet.pool);
    let Some(account) = pool.and_then(|pool| account(view, &pool)) else {
        return Vec::new();
    };
    let mut keys: Vec<ObjectKey> = account
        .overlapping(subnet.cidr, Some(&subnet.meta.uid))
        .map(|other| other.meta.key.clone())
        .collect();
    let withdrawn = account
        .withdrawn_over(subnet.cidr)
        .filter(|other| other.meta.uid != subnet.meta.uid);
    keys.extend(withdrawn.map(|other| other.meta.key.clone()));
    keys
}

/// Those of a pool that wait for it: Subnets that are not settled, claims that have no range.
fn dependants(view: &View, pool: &ObjectKey, why: Why) -> Vec<Wake> {
    let subnets = view.by::<SubnetRecord>(BY_POOL, pool.namespace(), pool.name().into());
    let subnets = subnets
        .filter(|s| !s.settled())
        .map(|s| Wake::now(SUBNET, s.meta.key.clone(), why));
    let claims = view.by::<ClaimRecord>(BY_POOL, pool.namespace(), pool.name().into());
    let claims = claims
        .filter(|c| c.bound().is_none() || !has_subnet(view, c))
        .map(|c| Wake::now(CLAIM, c.meta.key.clone(), why));
    subnets.chain(claims).collect()
}

/// The pools below a pool, by their labels.
fn descendants<'v>(view: &'v View, pool: &'v ObjectKey) -> BTreeSet<&'v ObjectKey> {
    let children = |key: &'v ObjectKey| -> Vec<&'v ObjectKey> {
        let children = view.by::<PoolRecord>(BY_PARENT, key.namespace(), key.name().into());
        children.map(|child| &child.meta.key).collect()
    };
    let (mut all, mut next) = (BTreeSet::new(), children(pool));
    while let Some(key) = next.pop() {
        if all.insert(key) {
            next.extend(children(key));
        }
    }
    all
}

/// Whether a claim owns any Subnet: a Bound one that does not is to be restored (R31), or imported what it has.
fn has_subnet(view: &View, claim: &ClaimRecord) -> bool {
    let mut owned = view.by::<SubnetRecord>(BY_OWNER, claim.meta.key.namespace(), (&claim.meta.uid).into());
    owned.next().is_some()
}

fn pool_changed(view: &View, change: &Change<PoolRecord>) -> Vec<Wake> {
    let Some(pool) = change.latest() else { return Vec::new() };
    let why = why(change);
    let key = &pool.meta.key;
    let mut wakes = Vec::new();
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    // Row 9: the pool claim it was made for, whatever happened.
    for pool in [old, new].into_iter().flatten() {
        wakes.extend(pool_claim_of(key, pool.owner(), why));
    }
    // One that upstream made twice for a pool claim may be the one that counts now.
    if let Some(claim) = old.filter(|_| new.is_none()).and_then(|pool| pool.owner()) {
        let spare = view.by::<PoolRecord>(BY_OWNER, key.namespace(), (&claim.uid).into());
        wakes.extend(spare.map(|pool| Wake::now(POOL, pool.meta.key.clone(), why)));
    }
    let marks = |p: &PoolRecord| (p.paused, p.parent.clone(), p.recalculate.clone(), p.held);
    let marked = old.map(marks) != new.map(marks);
    // The first finalizer is what grants and commits wait for.
    let finalizers = old.map(|p| &p.meta.finalizers) != new.map(|p| &p.meta.finalizers);
    if !marked && !finalizers && !substantial(old.map(|p| &p.meta), new.map(|p| &p.meta)) {
        return dedup(wakes);
    }
    // Rows 2 and 3: its parent, old and new.
    let parents = [old, new]
        .into_iter()
        .flatten()
        .filter_map(|p| key.sibling(p.parent.as_deref()?));
    wakes.extend(parents.map(|parent| Wake::now(POOL, parent, why)));
    // Row 4: itself, its child pools, its Subnets that are not settled, and (row 10) its queue.
    // Row 5: somebody asked from outside, by the annotation that the trigger over HTTP sets too.
    if let Some(new) = new {
        let asked = old.is_some_and(|old| new.recalculate.is_some() && new.recalculate != old.recalculate);
        wakes.push(Wake::now(POOL, key.clone(), if asked { Why::EXTERNAL } else { why }));
    }
    for child in descendants(view, key) {
        wakes.push(Wake::now(POOL, child.clone(), why));
        // A circle that is broken, or closed, changes what all of them may do.
        if marked {
            wakes.extend(dependants(view, child, why));
        }
    }
    wakes.extend(dependants(view, key, why));
    // Its holder, which goes when it is gone, and follows what it asks for before that.
    for pool in [old, new].into_iter().flatten() {
        let ledger = view.derived::<Ledger>().into_iter();
        let holders = ledger.flat_map(|ledger| ledger.holders(&pool.holder_id()));
        wakes.extend(holders.map(|holder| Wake::now(SUBNET, holder.meta.key.clone(), why)));
    }
    dedup(wakes)
}

fn claim_changed(view: &View, change: &Change<ClaimRecord>) -> Vec<Wake> {
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    let why = why(change);
    let mut wakes: Vec<Wake> = new
        .map(|c| Wake::now(CLAIM, c.meta.key.clone(), why))
        .into_iter()
        .collect();
    for claim in [old, new].into_iter().flatten() {
        let (key, pool) = (&claim.meta.key, claim.meta.key.sibling(&claim.pool));
        // Row 9: a pool claim mirrors its claim.
        wakes.extend(pool_claim_of(key, claim.owner(), why));
        // A range that is promised, or no longer, changes what the pool has to give.
        if old.map(|c| c.bound()) != new.map(|c| c.bound()) {
            wakes.extend(
                pool.clone()
                    .map(|pool| Wake::after(POOL, pool, Why::TIMER, COUNTERS_DUE)),
            );
            wakes.extend(twins(view, key.namespace(), &claim.meta.uid, why));
            // One that it shared, and has no use for since it is Bound to another.
            let owned = view.by::<SubnetRecord>(BY_OWNER, key.namespace(), (&claim.meta.uid).into());
            let idle = owned.filter(|subnet| claim.bound().is_some_and(|bound| bound != subnet.cidr));
            wakes.extend(idle.map(|subnet| Wake::now(SUBNET, subnet.meta.key.clone(), why)));
        }
        // Row 7: its pool, old and new, and the Subnets it owns.
        if substantial(old.map(|c| &c.meta), new.map(|c| &c.meta)) {
            wakes.extend(pool.map(|pool| Wake::now(POOL, pool, ITS_CLAIMS)));
            let owned = view.by::<SubnetRecord>(BY_OWNER, key.namespace(), (&claim.meta.uid).into());
            wakes.extend(owned.map(|subnet| Wake::now(SUBNET, subnet.meta.key.clone(), why)));
        }
    }
    dedup(wakes)
}

fn pool_claim_changed(view: &View, change: &Change<PoolClaimRecord>) -> Vec<Wake> {
    let Some(claim) = change.latest() else {
        return Vec::new();
    };
    let (why, key) = (why(change), &claim.meta.key);
    let mut wakes: Vec<Wake> = Vec::new();
    if change.new.is_some() {
        wakes.push(Wake::now(POOL_CLAIM, key.clone(), why));
    } else {
        // What was made for it goes with it, should it not have gone before.
        let claims = view.by::<ClaimRecord>(BY_OWNER, key.namespace(), (&claim.meta.uid).into());
        wakes.extend(claims.map(|claim| Wake::now(CLAIM, claim.meta.key.clone(), why)));
        let pools = view.by::<PoolRecord>(BY_OWNER, key.namespace(), (&claim.meta.uid).into());
        wakes.extend(pools.map(|pool| Wake::now(POOL, pool.meta.key.clone(), ITS_CLAIMS)));
    }
    wakes
}

fn dedup(mut wakes: Vec<Wake>) -> Vec<Wake> {
    wakes.sort();
    wakes.dedup();
    wakes
}
