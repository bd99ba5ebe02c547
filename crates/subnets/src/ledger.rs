//! The ledger: one address map per pool, its grants, and who waits.
//!
//! Derived from the records, fed by the same watch events in the same order, so the two never disagree. Only grants are
//! more than that: promises in memory, of which nothing is lost if the process dies, since no object speaks of them yet.
//! One pass per pool at a time makes the map the single authority inside this process; overlap-freedom between processes
//! is the commit rule's work (`plan/subnet.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use usher_engine::ObjectKey;
use usher_operator::view::Change;

use crate::plan::map::AddressMap;
use crate::records::{Ask, ClaimRecord, PoolRecord, SubnetRecord};

/// Who holds a range.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A Subnet, by uid.
    Subnet(Arc<str>),
    /// A Bound claim, by uid: its range stays held even if somebody forces its Subnet away.
    Claim(Arc<str>),
    /// A grant whose Subnet is not in view yet, by claim uid.
    Grant(Arc<str>),
    /// A Subnet's name that is taken by an object not in view yet.
    Unseen(Arc<str>),
    /// The pool's own exclusion.
    Excluded,
}

/// A range promised to a claim, before its Subnet is in view.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// The range.
    pub cidr: IpNet,
    /// The claim.
    pub claim: ObjectKey,
    /// The claim's generation it was made for.
    pub generation: i64,
    /// When it was made.
    pub at: Timestamp,
    /// The create request was sent: it may take effect at any time from then on.
    pub sent: bool,
}

/// A claim's place in its pool's queue: by age, then by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// When the claim was created.
    pub created: Timestamp,
    /// Its key.
    pub claim: ObjectKey,
}

/// What the queue knows of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The claim's uid.
    pub uid: Arc<str>,
    /// Its generation.
    pub generation: i64,
}

/// One pool's part of the ledger. It exists also for pools that do not (yet): claims may wait for them.
#[derive(Debug, Default)]
pub struct Account {
    /// The map, while the pool is in view.
    pub map: Option<AddressMap<Holder>>,
    /// Grants by claim uid.
    pub grants: BTreeMap<Arc<str>, Grant>,
    /// Who waits, by what they ask for.
    pub waiting: BTreeMap<Ask, BTreeMap<Place, Waiting>>,
    /// Subnets that hold a range, by uid.
    pub subnets: BTreeMap<Arc<str>, Seat>,
    /// How many of them are Allocated or Released.
    pub settled: usize,
    /// Pairs of those that overlap. Only data from before Usher can have them.
    pub overlaps: usize,
    /// How many of them lie outside the pool.
    pub out_of_range: usize,
    /// Subnets that ask for no range at present, by uid. They may come back.
    pub withdrawn: BTreeMap<Arc<str>, Seat>,
    /// Subnets whose commit was answered, while their echo is under way: subnet uid to claim uid.
    pub committed: BTreeMap<Arc<str>, Arc<str>>,
    /// Claims whose Subnet the API server refused, by uid: they hold nothing and do not wait, until they ask again.
    pub refused: BTreeMap<Arc<str>, Refusal>,
    claims: BTreeMap<Arc<str>, IpNet>,
    /// Names of Subnets that are taken by objects not in view, with the range we wanted.
    pub unseen: BTreeMap<Arc<str>, IpNet>,
    excluded: Vec<IpNet>,
    /// Claims that have a Subnet in view, with how many: they do not wait.
    placed: BTreeMap<Arc<str>, usize>,
    /// Claims that are not Bound, by uid. Those that have neither Subnet nor grant are in `waiting`.
    unserved: BTreeMap<Arc<str>, (Ask, Place, i64)>,
    waiting_count: usize,
}

/// A Subnet that the API server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// When.
    pub at: Timestamp,
    /// In which words.
    pub message: String,
}

/// One Subnet that holds a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Its key.
    pub key: ObjectKey,
    /// Its range.
    pub cidr: IpNet,
    /// Whom it is for.
    pub cluster_id: Arc<str>,
    /// Allocated or Released.
    pub settled: bool,
}

/// All pools' accounts.
#[derive(Debug, Default)]
pub struct Ledger {
    accounts: BTreeMap<ObjectKey, Account>,
}

impl Ledger {
    /// A pool's account; none where nothing was ever heard of the pool.
    pub fn account(&self, pool: &ObjectKey) -> Option<&Account> {
        self.accounts.get(pool)
    }

    /// To change a pool's account by an in-memory step.
    pub fn account_mut(&mut self, pool: &ObjectKey) -> Option<&mut Account> {
        self.accounts.get_mut(pool)
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
    }

    /// Takes in a change of a pool.
    pub fn pool(&mut self, change: &Change<PoolRecord>) {
        let Some(key) = change.latest().map(|pool| pool.meta.key.clone()) else {
            return;
        };
        let account = self.accounts.entry(key.clone()).or_default();
        match &change.new {
            Some(pool) => account.open(pool),
            None => account.close(),
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
            account.forget_claim(old, stays.is_some_and(|new| new.bound() == old.bound()));
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

impl Account {
    /// Promises `cidr` to a claim, if it still waits and the range is still free. Says whether it now has the grant.
    pub fn grant(&mut self, uid: &Arc<str>, wanted: Grant) -> bool {
        let (cidr, generation) = (wanted.cidr, wanted.generation);
        if let Some(grant) = self.grants.get(uid) {
            return grant.cidr == cidr && grant.generation == generation;
        }
        let waits = !self.placed.contains_key(uid)
            && self
                .unserved
                .get(uid)
                .is_some_and(|(_, _, present)| *present == generation);
        let Some(map) = &mut self.map else { return false };
        if !waits || map.reserve_exact(cidr, Holder::Grant(uid.clone())).is_err() {
            return false;
        }
        self.grants.insert(uid.clone(), wanted);
        self.line_up(uid);
        true
    }

    /// Takes a grant back; the claim, if it is still there, has its old place in the queue again.
    pub fn revoke(&mut self, uid: &Arc<str>) {
        if let Some(grant) = self.grants.remove(uid)
            && let Some(map) = &mut self.map
        {
            map.release(grant.cidr, &Holder::Grant(uid.clone()));
        }
        self.line_up(uid);
    }

    /// The API server refused the claim's Subnet: its grant goes back, and it stands aside.
    pub fn refuse(&mut self, uid: &Arc<str>, refusal: Refusal) {
        if self.unserved.contains_key(uid) {
            self.refused.insert(uid.clone(), refusal);
        }
        self.revoke(uid);
    }

    /// A refused claim asks again, in its old place.
    pub fn queue_again(&mut self, uid: &Arc<str>) {
        self.refused.remove(uid);
        self.line_up(uid);
    }

    /// The name of a Subnet we wanted to create is taken by one that is not in view: its range counts as held until it is.
    ///
    /// A name that is in view already needs no such note.
    pub fn hold_unseen(&mut self, name: &str, cidr: IpNet) {
        let name: Arc<str> = name.into();
        if self.unseen.insert(name.clone(), cidr).is_none()
            && let Some(map) = &mut self.map
        {
            map.hold(cidr, Holder::Unseen(name));
        }
    }

    /// Subnets other than `except` that hold a range overlapping `cidr`.
    pub fn overlapping(&self, cidr: IpNet, except: &str) -> impl Iterator<Item = &Seat> {
        self.map
            .iter()
            .flat_map(move |map| map.overlapping(cidr))
            .filter_map(move |(_, holder)| match holder {
                Holder::Subnet(uid) if &**uid != except => self.subnets.get(uid),
                _ => None,
            })
    }

    /// Number of claims that wait.
    pub fn waiting_count(&self) -> usize {
        self.waiting_count
    }

    /// Nothing of that name exists (any more), or its Subnet speaks for itself.
    pub fn clear_unseen(&mut self, name: &str) {
        if let Some(cidr) = self.unseen.remove(name)
            && let Some(map) = &mut self.map
        {
            map.release(cidr, &Holder::Unseen(name.into()));
        }
    }

    /// Whether any Subnet of the pool is in view.
    pub fn has_subnets(&self) -> bool {
        !self.subnets.is_empty() || !self.withdrawn.is_empty()
    }

    /// Whether a Subnet of this claim is in view, be it on its way out.
    pub fn has_subnet_of(&self, claim: &str) -> bool {
        self.placed.contains_key(claim)
    }

    fn enter(&mut self, subnet: &SubnetRecord) {
        let uid = &subnet.meta.uid;
        if subnet.settled() {
            self.committed.remove(uid);
        }
        let seat = Seat {
            key: subnet.meta.key.clone(),
            cidr: subnet.cidr,
            cluster_id: subnet.cluster_id.clone(),
            settled: subnet.settled(),
        };
        if subnet.withdrawn() {
            self.withdrawn.insert(uid.clone(), seat);
            self.set_seat(uid, None);
        } else {
            self.set_seat(uid, Some(seat));
            self.withdrawn.remove(uid);
        }
        // The Subnet speaks for itself now.
        if let Some(claim) = subnet.claim_uid() {
            *self.placed.entry(claim.clone()).or_default() += 1;
            self.revoke(claim);
        }
        self.clear_unseen(subnet.meta.key.name());
    }

    /// Takes out the old state of a Subnet; `new` is the state just entered, where it is still in this pool.
    fn strike(&mut self, old: &SubnetRecord, new: Option<&SubnetRecord>) {
        let uid = &old.meta.uid;
        if new.is_none_or(|new| new.meta.uid != *uid) {
            self.committed.remove(uid);
            self.withdrawn.remove(uid);
            self.set_seat(uid, None);
            self.clear_unseen(old.meta.key.name());
        }
        if let Some(claim) = old.claim_uid()
            && let Some(count) = self.placed.get_mut(claim)
        {
            *count -= 1;
            if *count == 0 {
                self.placed.remove(claim);
                self.line_up(claim);
            }
        }
    }

    /// The one place where Subnets enter and leave the map; the running counters follow.
    fn set_seat(&mut self, uid: &Arc<str>, new: Option<Seat>) {
        let old = self.subnets.remove(uid);
        if let Some(old) = old.as_ref().filter(|seat| seat.settled) {
            let (overlaps, outside) = self.weigh(uid, old);
            self.settled = self.settled.saturating_sub(1);
            self.overlaps = self.overlaps.saturating_sub(overlaps);
            self.out_of_range = self.out_of_range.saturating_sub(outside);
        }
        let (was, is) = (old.map(|seat| seat.cidr), new.as_ref().map(|seat| seat.cidr));
        if was != is
            && let Some(map) = &mut self.map
        {
            if let Some(cidr) = is {
                map.hold(cidr, Holder::Subnet(uid.clone()));
            }
            if let Some(cidr) = was {
                map.release(cidr, &Holder::Subnet(uid.clone()));
            }
        }
        let Some(seat) = new else { return };
        if seat.settled {
            let (overlaps, outside) = self.weigh(uid, &seat);
            self.settled += 1;
            self.overlaps += overlaps;
            self.out_of_range += outside;
        }
        self.subnets.insert(uid.clone(), seat);
    }

    /// What one settled seat adds to the counters: overlaps with other settled ones, and 1 if it lies outside.
    fn weigh(&self, uid: &str, seat: &Seat) -> (usize, usize) {
        let Some(map) = &self.map else { return (0, 0) };
        let overlaps = self.overlapping(seat.cidr, uid).filter(|other| other.settled).count();
        (overlaps, usize::from(!map.base().contains(&seat.cidr)))
    }

    fn open(&mut self, pool: &PoolRecord) {
        let before = self.map.as_ref().map(AddressMap::base);
        match &mut self.map {
            Some(map) if map.base() == pool.cidr => {}
            Some(map) => {
                if map.grow(pool.cidr).is_err() {
                    map.rebuild(pool.cidr);
                }
            }
            None => self.map = Some(self.draw(pool.cidr)),
        }
        if let Some(map) = &mut self.map
            && self.excluded != pool.exclude
        {
            for cidr in &pool.exclude {
                map.hold(*cidr, Holder::Excluded);
            }
            for cidr in self.excluded.iter().filter(|cidr| !pool.exclude.contains(cidr)) {
                map.release(*cidr, &Holder::Excluded);
            }
            self.excluded = pool.exclude.clone();
        }
        if before != Some(pool.cidr) {
            self.recount();
        }
    }

    /// A new map from what is known.
    fn draw(&self, base: IpNet) -> AddressMap<Holder> {
        let mut map = AddressMap::new(base);
        for (uid, seat) in &self.subnets {
            map.hold(seat.cidr, Holder::Subnet(uid.clone()));
        }
        for (uid, cidr) in &self.claims {
            map.hold(*cidr, Holder::Claim(uid.clone()));
        }
        for (uid, grant) in &self.grants {
            map.hold(grant.cidr, Holder::Grant(uid.clone()));
        }
        for (name, cidr) in &self.unseen {
            map.hold(*cidr, Holder::Unseen(name.clone()));
        }
        map
    }

    /// The counters that depend on the pool's range, anew: only when that range changes.
    fn recount(&mut self) {
        let (mut twice, mut outside) = (0, 0);
        for (uid, seat) in self.subnets.iter().filter(|(_, seat)| seat.settled) {
            let weight = self.weigh(uid, seat);
            twice += weight.0;
            outside += weight.1;
        }
        self.overlaps = twice / 2;
        self.out_of_range = outside;
    }

    fn close(&mut self) {
        self.map = None;
        self.excluded.clear();
        self.overlaps = 0;
        self.out_of_range = 0;
        let unsent: Vec<Arc<str>> = self
            .grants
            .iter()
            .filter(|(_, g)| !g.sent)
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in unsent {
            self.revoke(&uid);
        }
    }

    fn remember_claim(&mut self, claim: &ClaimRecord) {
        let uid = &claim.meta.uid;
        if let Some(cidr) = claim.bound() {
            if self.claims.insert(uid.clone(), cidr) != Some(cidr)
                && let Some(map) = &mut self.map
            {
                map.hold(cidr, Holder::Claim(uid.clone()));
            }
        } else if claim.meta.deleting.is_none() {
            let place = Place {
                created: claim.meta.created,
                claim: claim.meta.key.clone(),
            };
            self.unserved
                .insert(uid.clone(), (claim.ask, place, claim.meta.generation));
        }
        self.line_up(uid);
    }

    /// `same_range`: the claim goes on with the same promised range, which must not be free in between.
    fn forget_claim(&mut self, claim: &ClaimRecord, same_range: bool) {
        let uid = &claim.meta.uid;
        self.leave(uid);
        self.unserved.remove(uid);
        if same_range {
            return;
        }
        if let Some(cidr) = self.claims.remove(uid)
            && let Some(map) = &mut self.map
        {
            map.release(cidr, &Holder::Claim(uid.clone()));
        }
    }

    /// Puts a claim where it belongs: in the queue if it is unserved, without Subnet and without grant; else out of it.
    fn line_up(&mut self, uid: &Arc<str>) {
        let served = self.placed.contains_key(uid) || self.grants.contains_key(uid) || self.refused.contains_key(uid);
        let Some((ask, place, generation)) = self.unserved.get(uid).filter(|_| !served).cloned() else {
            self.leave(uid);
            return;
        };
        let waiting = Waiting {
            uid: uid.clone(),
            generation,
        };
        if self.waiting.entry(ask).or_default().insert(place, waiting).is_none() {
            self.waiting_count += 1;
        }
    }

    fn leave(&mut self, uid: &Arc<str>) {
        let Some((ask, place, _)) = self.unserved.get(uid) else {
            return;
        };
        if let Some(line) = self.waiting.get_mut(ask) {
            if line.remove(place).is_some() {
                self.waiting_count -= 1;
            }
            if line.is_empty() {
                self.waiting.remove(ask);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.map.is_none()
            && !self.has_subnets()
            && self.unserved.is_empty()
            && self.grants.is_empty()
            && self.claims.is_empty()
            && self.unseen.is_empty()
    }
}
