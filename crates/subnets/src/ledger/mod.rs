//! The ledger: one address map per pool, its grants, and who waits.
//!
//! Derived from the records, fed by the same watch events in the same order, so the two never disagree. Only grants are
//! more than that: promises in memory, of which nothing is lost if the process dies, since no object speaks of them yet.
//! One pass per pool at a time makes the map the single authority inside this process; overlap-freedom between processes
//! is the commit rule's work (`plan/subnet.rs`).
//!
//! [`account`] is one pool's part, [`line`] its queue, [`roll`] its records by uid, [`recount`] holds it against the records (R50, R51).

mod account;
mod line;
mod recount;
mod roll;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use usher_engine::{ObjectKey, Text, Uid};
use usher_operator::view::Change;

pub use account::{Account, Grant, Holder, Refusal, Target, overlap};
pub use line::{Line, Place, Unserved};
pub use recount::{Asked, Cursor, Difference, Done, Recalculation};
pub use roll::Roll;

use crate::records::{ClaimRecord, PoolRecord, SubnetRecord};

/// All pools' accounts.
#[derive(Debug, Default)]
pub struct Ledger {
    accounts: BTreeMap<ObjectKey, Account>,
    /// Child pools by the clusterID of their holder.
    children: BTreeMap<Text, BTreeMap<ObjectKey, Arc<PoolRecord>>>,
    /// Subnets that may hold a pool, by clusterID and uid.
    holders: BTreeMap<Text, BTreeMap<Uid, Held>>,
}

/// A Subnet that may hold a pool.
type Held = Arc<SubnetRecord>;

impl Ledger {
    /// A pool's account; none where nothing was ever heard of the pool.
    pub fn account(&self, pool: &ObjectKey) -> Option<&Account> {
        self.accounts.get(pool)
    }

    /// To change a pool's account by an in-memory step.
    pub fn account_mut(&mut self, pool: &ObjectKey) -> Option<&mut Account> {
        self.accounts.get_mut(pool)
    }

    /// Every account.
    pub fn accounts(&self) -> impl Iterator<Item = (&ObjectKey, &Account)> {
        self.accounts.iter()
    }

    /// Takes in a change of a Subnet.
    pub fn subnet(&mut self, change: &Change<SubnetRecord>) {
        // The new state is entered before the old one is taken out, so that a range is never free in between.
        if let Some(new) = &change.new
            && let Some(pool) = new.meta.key.sibling(&new.pool)
        {
            let account = self.accounts.entry(pool).or_default();
            account.enter(new);
        }
        if let Some(old) = &change.old
            && let Some(pool) = old.meta.key.sibling(&old.pool)
            && let Some(account) = self.accounts.get_mut(&pool)
        {
            account.strike(old, change.new.as_deref().filter(|new| new.pool == old.pool));
            self.tidy(&pool);
        }
        self.holder(change);
    }

    /// A holder that came or went changes what its child pools serve.
    fn holder(&mut self, change: &Change<SubnetRecord>) {
        let mut touched = BTreeSet::new();
        if let Some(old) = change.old.as_deref().filter(|subnet| subnet.may_hold_a_pool())
            && let Some(of_id) = self.holders.get_mut(&old.cluster_id)
        {
            of_id.remove(&old.meta.uid);
            if of_id.is_empty() {
                self.holders.remove(&old.cluster_id);
            }
            touched.insert(old.cluster_id.clone());
        }
        if let Some(new) = change.new.as_ref().filter(|subnet| subnet.may_hold_a_pool()) {
            let of_id = self.holders.entry(new.cluster_id.clone()).or_default();
            of_id.insert(new.meta.uid.clone(), new.clone());
            touched.insert(new.cluster_id.clone());
        }
        for id in touched {
            let children = self.children.get(&id).cloned().unwrap_or_default();
            for (key, pool) in children {
                let base = self.base(&pool);
                self.accounts.entry(key).or_default().open(&pool, base);
            }
        }
    }

    /// Subnets in view that may be the holder of a pool with this id.
    pub fn holders<'l>(&'l self, id: &str) -> impl Iterator<Item = &'l Arc<SubnetRecord>> + use<'l> {
        self.holders.get(id).into_iter().flat_map(BTreeMap::values)
    }

    /// Those of them that are in another pool, as a holder is: the one that counts first.
    pub fn holders_of(&self, pool: &PoolRecord) -> Vec<&Arc<SubnetRecord>> {
        let (namespace, name) = (pool.meta.key.namespace(), pool.meta.key.name());
        // A clusterID is what somebody wrote; it means nothing in another namespace.
        let theirs = |held: &&Arc<SubnetRecord>| held.meta.key.namespace() == namespace && *held.pool != *name;
        let mut holders: Vec<_> = self.holders(&pool.holder_id()).filter(theirs).collect();
        holders.sort_by_key(|held| {
            let elsewhere = pool.parent.as_ref().is_some_and(|parent| *parent != held.pool);
            (!held.settled(), elsewhere, held.meta.created, held.meta.key.name())
        });
        holders
    }

    /// Pools in view whose holder has this clusterID.
    pub fn children<'l>(&'l self, id: &str) -> impl Iterator<Item = &'l Arc<PoolRecord>> + use<'l> {
        self.children.get(id).into_iter().flat_map(BTreeMap::values)
    }

    /// What a pool may serve from (R39): its range, cut to its holder where it has one.
    pub fn base(&self, pool: &PoolRecord) -> IpNet {
        if !pool.is_child() {
            return pool.cidr;
        }
        let holder = self.holders_of(pool).into_iter().find(|holder| holder.settled());
        let range = holder.and_then(|holder| shared(holder.cidr, pool.cidr));
        range.unwrap_or(pool.cidr)
    }

    /// Takes in a change of a pool.
    pub fn pool(&mut self, change: &Change<PoolRecord>) {
        let Some(key) = change.latest().map(|pool| pool.meta.key.clone()) else {
            return;
        };
        if let Some(old) = change.old.as_deref()
            && let Some(of_id) = self.children.get_mut(&old.holder_id())
        {
            of_id.remove(&key);
            if of_id.is_empty() {
                self.children.remove(&old.holder_id());
            }
        }
        if let Some(new) = change.new.as_ref().filter(|pool| pool.is_child()) {
            let of_id = self.children.entry(new.holder_id()).or_default();
            of_id.insert(key.clone(), new.clone());
        }
        let base = change.new.as_deref().map(|pool| self.base(pool));
        let account = self.accounts.entry(key.clone()).or_default();
        match (&change.new, base) {
            (Some(pool), Some(base)) => account.open(pool, base),
            _ => account.close(),
        }
        self.tidy(&key);
    }

    /// Takes in a change of a claim.
    pub fn claim(&mut self, change: &Change<ClaimRecord>) {
        if let Some(old) = &change.old
            && let Some(pool) = old.meta.key.sibling(&old.pool)
            && let Some(account) = self.accounts.get_mut(&pool)
        {
            let stays = change.new.as_ref().filter(|new| new.pool == old.pool);
            // A refusal was about that spec of that claim.
            if stays.is_none_or(|new| new.meta.generation != old.meta.generation) {
                account.refused.remove(&old.meta.uid);
            }
            let asks_the_same = stays.is_some_and(|new| new.bound() == old.bound() && new.ask == old.ask);
            account.forget_claim(old, asks_the_same);
            self.tidy(&pool);
        }
        if let Some(new) = &change.new
            && let Some(pool) = new.meta.key.sibling(&new.pool)
        {
            self.accounts.entry(pool).or_default().remember_claim(new);
        }
    }

    fn tidy(&mut self, pool: &ObjectKey) {
        if self.accounts.get(pool).is_some_and(Account::is_empty) {
            self.accounts.remove(pool);
        }
    }
}

/// What two ranges have in common: one of them, or nothing.
pub fn shared(a: IpNet, b: IpNet) -> Option<IpNet> {
    if a.contains(&b) {
        Some(b)
    } else if b.contains(&a) {
        Some(a)
    } else {
        None
    }
}
