//! One pool's part of the ledger: its map, its grants, its counters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use usher_engine::{ObjectKey, Text, Uid};
use usher_operator::view::Index;

use super::line::{Line, Unserved};
use super::recount::Recalculation;
use super::roll::Roll;
use crate::api::FINALIZER;
use crate::plan::map::AddressMap;
use crate::records::{ClaimRecord, PoolRecord, SubnetRecord};

/// Who holds a range.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A Subnet, by uid.
    Subnet(Uid),
    /// A Bound claim, by uid: its range stays held even if somebody forces its Subnet away.
    Claim(Uid),
    /// A grant whose Subnet is not in view yet, by claim uid.
    Grant(Uid),
    /// A Subnet's name that is taken by an object not in view yet.
    Unseen(Box<str>),
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
    /// Whom it is for.
    pub cluster_id: Text,
    /// When it was made.
    pub at: Timestamp,
    /// The create request was sent: it may take effect at any time from then on.
    pub sent: bool,
}

/// One pool's part of the ledger. It exists also for pools that do not (yet): claims may wait for them.
#[derive(Debug, Clone, Default)]
pub struct Account {
    /// The map, while the pool is in view.
    pub map: Option<AddressMap<Holder>>,
    /// Grants by claim uid.
    pub grants: BTreeMap<Uid, Grant>,
    /// When the last one was made.
    pub last_grant: Option<Timestamp>,
    /// Who waits.
    pub line: Line,
    /// The block kept for a claim that waited too long (R15).
    pub target: Option<Target>,
    /// Subnets that hold a range, by uid.
    pub subnets: Roll<SubnetRecord>,
    /// How many of them are Allocated or Released.
    pub settled: usize,
    /// Pairs of those that overlap. Only data from before Usher can have them.
    pub overlaps: usize,
    /// How many of them lie outside the pool.
    pub out_of_range: usize,
    /// How many of them lie in what the pool excludes.
    pub excluded_in_use: usize,
    /// Settled Subnets that met another one on their range, by uid; some may be alone by now.
    pub doubles: BTreeSet<Uid>,
    /// Settled Subnets of claims that lack our finalizer: made by upstream (R38).
    pub unadopted: BTreeSet<Uid>,
    /// Subnets that ask for no range at present, by uid. They may come back.
    pub withdrawn: Roll<SubnetRecord>,
    /// Their ranges: whoever comes or goes asks which of them it concerns.
    pub(super) given_up: Ranges,
    /// Ranges of holders that wait for room, by uid: they were promised, and go before the queue (R16).
    pub awaited: BTreeMap<Uid, IpNet>,
    /// Subnets whose commit was answered, while their echo is under way: subnet uid to claim uid.
    pub committed: BTreeMap<Uid, Uid>,
    /// Claims whose Subnet the API server refused, by uid: they hold nothing and do not wait, until they ask again.
    pub refused: BTreeMap<Uid, Refusal>,
    /// Names of Subnets that are taken by objects not in view, with the range we wanted.
    pub unseen: BTreeMap<Box<str>, IpNet>,
    /// The recalculation under way, or the last one (R50).
    pub recalculation: Recalculation,
    /// Bound claims by uid.
    pub(super) claims: Roll<ClaimRecord>,
    pub(super) excluded: Vec<IpNet>,
    /// Claims that have a Subnet in view, with how many: they do not wait.
    pub(super) placed: BTreeMap<Uid, u32>,
    /// The Subnets that hold a range by clusterID (R11).
    pub(super) by_cluster: ByCluster,
    /// ClusterIDs of grants, with the uid of their claim (R11).
    pub(super) granted: BTreeSet<(Text, Uid)>,
    /// Subnets that have no range yet, by uid.
    pub candidates: BTreeSet<Uid>,
}

/// A block that nothing else is granted in, until its claim has it (R15).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The claim's uid.
    pub uid: Uid,
    /// The block.
    pub cidr: IpNet,
    /// Since when.
    pub since: Timestamp,
}

/// A Subnet that the API server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// When.
    pub at: Timestamp,
    /// In which words.
    pub message: String,
}

impl Account {
    /// Promises `cidr` to a claim, if it still waits and the range is still free. Says whether it now has the grant.
    pub fn grant(&mut self, uid: &Uid, wanted: Grant) -> bool {
        let (cidr, generation) = (wanted.cidr, wanted.generation);
        if let Some(grant) = self.grants.get(uid) {
            return grant.cidr == cidr && grant.generation == generation;
        }
        let waits = self
            .line
            .waits(uid)
            .is_some_and(|unserved| unserved.generation == generation);
        let Some(map) = &mut self.map else { return false };
        if !waits || map.reserve_exact(cidr, Holder::Grant(uid.clone())).is_err() {
            return false;
        }
        self.last_grant = Some(wanted.at);
        let cluster_id = wanted.cluster_id.clone();
        self.grants.insert(uid.clone(), wanted);
        if self.target.as_ref().is_some_and(|target| target.uid == *uid) {
            self.target = None;
        }
        self.take(&cluster_id, uid);
        self.line_up(uid);
        true
    }

    /// Takes a grant back; the claim, if it is still there, has its old place in the queue again.
    pub fn revoke(&mut self, uid: &Uid) {
        if let Some(grant) = self.grants.remove(uid) {
            if let Some(map) = &mut self.map {
                map.release(grant.cidr, &Holder::Grant(uid.clone()));
            }
            self.granted.remove(&(grant.cluster_id.clone(), uid.clone()));
            self.line_up_all(&grant.cluster_id);
        }
        self.line_up(uid);
    }

    /// A grant of this clusterID; whoever else asks for it shares, and does not wait for room.
    pub(super) fn take(&mut self, cluster_id: &Text, by: &Uid) {
        self.granted.insert((cluster_id.clone(), by.clone()));
        self.line_up_all(cluster_id);
    }

    /// Whether a Subnet or a grant of this clusterID is there (R11).
    pub fn is_taken(&self, namespace: &str, cluster_id: &Text) -> bool {
        let mut grants = self.granted.range((cluster_id.clone(), Uid::NIL)..);
        let granted = grants.next().is_some_and(|(id, _)| id == cluster_id);
        granted || self.of_cluster(namespace, cluster_id).next().is_some()
    }

    /// The Subnets of this clusterID that hold a range, or ask for one.
    pub fn of_cluster<'a>(
        &'a self,
        namespace: &'a str,
        cluster_id: &Text,
    ) -> impl Iterator<Item = &'a Arc<SubnetRecord>> + use<'a> {
        self.by_cluster.0.get(namespace, cluster_id.clone())
    }

    /// The API server refused the claim's Subnet: its grant goes back, and it stands aside.
    pub fn refuse(&mut self, uid: &Uid, refusal: Refusal) {
        if self.line.knows(uid) {
            self.refused.insert(uid.clone(), refusal);
        }
        self.revoke(uid);
    }

    /// A refused claim asks again, in its old place.
    pub fn queue_again(&mut self, uid: &Uid) {
        self.refused.remove(uid);
        self.line_up(uid);
    }

    /// The name of a Subnet we wanted to create is taken by one that is not in view: its range counts as held until it is.
    ///
    /// A name that is in view already needs no such note.
    pub fn hold_unseen(&mut self, name: &str, cidr: IpNet) {
        let name: Box<str> = name.into();
        if self.unseen.insert(name.clone(), cidr).is_none()
            && let Some(map) = &mut self.map
        {
            map.hold(cidr, Holder::Unseen(name));
        }
    }

    /// Subnets other than `except` that hold a range overlapping `cidr`.
    pub fn overlapping(&self, cidr: IpNet, except: Option<&Uid>) -> impl Iterator<Item = &Arc<SubnetRecord>> {
        self.map
            .iter()
            .flat_map(move |map| map.overlapping(cidr))
            .filter_map(move |(_, holder)| match holder {
                Holder::Subnet(uid) if Some(uid) != except => self.subnets.get(uid),
                _ => None,
            })
    }

    /// Bound claims whose range overlaps `cidr`.
    pub fn promised(&self, cidr: IpNet) -> impl Iterator<Item = &ObjectKey> {
        self.map
            .iter()
            .flat_map(move |map| map.overlapping(cidr))
            .filter_map(|(_, holder)| match holder {
                Holder::Claim(uid) => self.claims.get(uid).map(|claim| &claim.meta.key),
                _ => None,
            })
    }

    /// One pair of settled Subnets that overlap.
    pub fn a_double(&self) -> Option<(&SubnetRecord, &SubnetRecord)> {
        self.doubles.iter().find_map(|uid| {
            let subnet = self.subnets.get(uid).filter(|subnet| subnet.settled())?;
            let other = self.overlapping(subnet.cidr, Some(uid)).find(|other| other.settled())?;
            Some((&**subnet, &**other))
        })
    }

    /// Nothing of that name exists (any more), or its Subnet speaks for itself.
    pub fn clear_unseen(&mut self, name: &str) {
        if let Some(cidr) = self.unseen.remove(name)
            && let Some(map) = &mut self.map
        {
            map.release(cidr, &Holder::Unseen(name.into()));
        }
    }

    /// Whether any claim is Bound to a range of the pool.
    pub fn has_promises(&self) -> bool {
        !self.claims.is_empty()
    }

    /// Whether any Subnet of the pool is in view.
    pub fn has_subnets(&self) -> bool {
        !self.subnets.is_empty() || !self.withdrawn.is_empty()
    }

    /// Whether a Subnet of this claim is in view, be it on its way out.
    pub fn has_subnet_of(&self, claim: &Uid) -> bool {
        self.placed.contains_key(claim)
    }

    pub(super) fn enter(&mut self, subnet: &Arc<SubnetRecord>) {
        let uid = &subnet.meta.uid;
        if subnet.settled() {
            self.committed.remove(uid);
        }
        // One that is being deleted takes no finalizer any more.
        let stays = subnet.settled() && subnet.meta.deleting.is_none();
        if stays && !subnet.by_hand() && !subnet.meta.has_finalizer(FINALIZER) {
            self.unadopted.insert(uid.clone());
        } else {
            self.unadopted.remove(uid);
        }
        if subnet.withdrawn() && subnet.child().is_some() && subnet.meta.deleting.is_none() {
            self.awaited.insert(uid.clone(), subnet.cidr);
        } else {
            self.awaited.remove(uid);
        }
        if subnet.withdrawn() {
            self.withdraw(uid, Some(subnet));
            self.seat(uid, None);
        } else {
            self.seat(uid, Some(subnet));
            self.withdraw(uid, None);
        }
        // The Subnet speaks for itself now.
        if let Some(claim) = subnet.claim_uid() {
            *self.placed.entry(claim.clone()).or_default() += 1;
            self.revoke(claim);
        }
        self.clear_unseen(subnet.meta.key.name());
    }

    /// Takes out the old state of a Subnet; `new` is the state just entered, where it is still in this pool.
    pub(super) fn strike(&mut self, old: &SubnetRecord, new: Option<&SubnetRecord>) {
        let uid = &old.meta.uid;
        if new.is_none_or(|new| new.meta.uid != *uid) {
            self.committed.remove(uid);
            self.withdraw(uid, None);
            self.unadopted.remove(uid);
            self.awaited.remove(uid);
            self.seat(uid, None);
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

    /// Withdrawn Subnets that overlap `cidr`.
    pub fn withdrawn_over(&self, cidr: IpNet) -> impl Iterator<Item = &Arc<SubnetRecord>> {
        let ranges = self.given_up.0.iter();
        let uids = ranges
            .flat_map(move |ranges| ranges.overlapping(cidr))
            .map(|(_, uid)| uid);
        uids.filter_map(|uid| self.withdrawn.get(uid))
    }

    fn withdraw(&mut self, uid: &Uid, new: Option<&Arc<SubnetRecord>>) {
        let old = match new {
            Some(new) => self.withdrawn.put(new.clone()),
            None => self.withdrawn.remove(uid),
        };
        let (was, is) = (old.map(|subnet| subnet.cidr), new.map(|subnet| subnet.cidr));
        if was == is {
            return;
        }
        if let Some(cidr) = is {
            let ranges = self.given_up.0.get_or_insert_with(|| AddressMap::new(cidr));
            ranges.hold(cidr, uid.clone());
        }
        if let (Some(ranges), Some(cidr)) = (&mut self.given_up.0, was) {
            ranges.release(cidr, uid);
        }
    }

    /// The one place where Subnets enter and leave the map; the running counters follow.
    fn seat(&mut self, uid: &Uid, new: Option<&Arc<SubnetRecord>>) {
        let old = self.subnets.remove(uid);
        if let Some(old) = old.as_ref().filter(|subnet| subnet.settled()) {
            let weight = self.weigh(uid, old);
            self.settled = self.settled.saturating_sub(1);
            self.overlaps = self.overlaps.saturating_sub(weight.overlaps);
            self.out_of_range = self.out_of_range.saturating_sub(weight.outside);
            self.excluded_in_use = self.excluded_in_use.saturating_sub(weight.excluded);
            self.doubles.remove(uid);
        }
        let (was, is) = (old.as_ref().map(|subnet| subnet.cidr), new.map(|subnet| subnet.cidr));
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
        if let Some(subnet) = new {
            if subnet.settled() {
                let weight = self.weigh(uid, subnet);
                self.settled += 1;
                self.add(uid, weight);
            }
            self.subnets.put(subnet.clone());
        }
        let (was, is) = (
            old.as_ref().map(|subnet| &subnet.cluster_id),
            new.map(|subnet| &subnet.cluster_id),
        );
        if let Some(old) = &old {
            self.by_cluster.0.remove(old);
        }
        if let Some(new) = new {
            self.by_cluster.0.insert(new);
        }
        if was != is {
            for id in [is, was].into_iter().flatten() {
                self.line_up_all(id);
            }
        }
        if new.is_some_and(|subnet| !subnet.settled()) {
            self.candidates.insert(uid.clone());
        } else {
            self.candidates.remove(uid);
        }
    }

    fn add(&mut self, uid: &Uid, weight: Weight) {
        self.overlaps += weight.overlaps;
        self.out_of_range += weight.outside;
        self.excluded_in_use += weight.excluded;
        if weight.overlaps > 0 {
            self.doubles.insert(uid.clone());
        }
    }

    /// What one settled Subnet adds to the counters.
    fn weigh(&self, uid: &Uid, subnet: &SubnetRecord) -> Weight {
        let Some(map) = &self.map else { return Weight::default() };
        let excluded = self.excluded.iter().any(|e| overlap(*e, subnet.cidr));
        Weight {
            overlaps: self
                .overlapping(subnet.cidr, Some(uid))
                .filter(|other| other.settled())
                .count(),
            outside: usize::from(!map.base().contains(&subnet.cidr)),
            excluded: usize::from(excluded),
        }
    }

    /// The pool is there, with this range to serve from: its own, or what its holder leaves of that.
    pub(super) fn open(&mut self, pool: &PoolRecord, base: IpNet) {
        let excluded = std::mem::replace(&mut self.excluded, pool.exclude.clone());
        let same = self.map.as_ref().is_some_and(|map| map.base() == base) && excluded == pool.exclude;
        match &mut self.map {
            Some(map) if map.base() == base => {}
            Some(map) => {
                if map.grow(base).is_err() {
                    map.rebuild(base);
                }
            }
            None => self.map = Some(self.draw(base)),
        }
        if let Some(map) = &mut self.map {
            for cidr in &pool.exclude {
                map.hold(*cidr, Holder::Excluded);
            }
            for cidr in excluded.iter().filter(|cidr| !pool.exclude.contains(cidr)) {
                map.release(*cidr, &Holder::Excluded);
            }
        }
        if !same {
            self.recount();
        }
    }

    /// A new map from what is known.
    fn draw(&self, base: IpNet) -> AddressMap<Holder> {
        let mut map = AddressMap::new(base);
        for subnet in self.subnets.iter() {
            map.hold(subnet.cidr, Holder::Subnet(subnet.meta.uid.clone()));
        }
        for claim in self.claims.iter() {
            if let Some(cidr) = claim.bound() {
                map.hold(cidr, Holder::Claim(claim.meta.uid.clone()));
            }
        }
        for (uid, grant) in &self.grants {
            map.hold(grant.cidr, Holder::Grant(uid.clone()));
        }
        for (name, cidr) in &self.unseen {
            map.hold(*cidr, Holder::Unseen(name.clone()));
        }
        map
    }

    /// The counters that depend on the pool's range and exclusions, anew: only when those change.
    fn recount(&mut self) {
        (self.overlaps, self.out_of_range, self.excluded_in_use) = (0, 0, 0);
        self.doubles.clear();
        let settled = self.subnets.iter().filter(|subnet| subnet.settled());
        let weights: Vec<_> = settled
            .map(|subnet| (subnet.meta.uid.clone(), self.weigh(&subnet.meta.uid, subnet)))
            .collect();
        for (uid, weight) in weights {
            self.add(&uid, weight);
        }
        // Each pair was met from both sides.
        self.overlaps /= 2;
    }

    pub(super) fn close(&mut self) {
        self.map = None;
        self.target = None;
        self.excluded.clear();
        self.doubles.clear();
        (self.overlaps, self.out_of_range, self.excluded_in_use) = (0, 0, 0);
        let unsent: Vec<Uid> = self
            .grants
            .iter()
            .filter(|(_, g)| !g.sent)
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in unsent {
            self.revoke(&uid);
        }
    }

    pub(super) fn remember_claim(&mut self, claim: &Arc<ClaimRecord>) {
        let uid = &claim.meta.uid;
        if let Some(cidr) = claim.bound() {
            let before = self.claims.put(claim.clone()).and_then(|before| before.bound());
            if before != Some(cidr)
                && let Some(map) = &mut self.map
            {
                map.hold(cidr, Holder::Claim(uid.clone()));
            }
        } else if claim.meta.deleting.is_none() {
            self.line.remember(Unserved::of(claim));
        }
        self.line_up(uid);
    }

    /// `same_range`: the claim goes on with the same promised range, which must not be free in between.
    pub(super) fn forget_claim(&mut self, claim: &ClaimRecord, same_range: bool) {
        let uid = &claim.meta.uid;
        self.line.forget(uid);
        if same_range {
            return;
        }
        // What was kept for it was kept for what it asked then.
        if self.target.as_ref().is_some_and(|target| target.uid == *uid) {
            self.target = None;
        }
        if let Some(cidr) = self.claims.remove(uid).and_then(|before| before.bound())
            && let Some(map) = &mut self.map
        {
            map.release(cidr, &Holder::Claim(uid.clone()));
        }
    }

    /// Puts a claim where it belongs: in the queue if it is unserved, without Subnet and without grant, and nobody has
    /// its clusterID already; else out of it.
    fn line_up(&mut self, uid: &Uid) {
        let Some(unserved) = self.line.get(uid) else { return };
        let served = self.placed.contains_key(uid)
            || self.grants.contains_key(uid)
            || self.refused.contains_key(uid)
            || self.is_taken(unserved.place.claim.namespace(), &unserved.cluster_id);
        self.line.stand(uid, !served);
    }

    fn line_up_all(&mut self, cluster_id: &str) {
        for uid in self.line.of_cluster(cluster_id) {
            self.line_up(&uid);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.map.is_none()
            && !self.has_subnets()
            && self.line.knows_nobody()
            && self.grants.is_empty()
            && self.claims.is_empty()
            && self.unseen.is_empty()
    }
}

/// Ranges by whom they are of; nothing is ever taken from it.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranges(Option<AddressMap<Uid>>);

#[derive(Debug, Clone)]
pub(super) struct ByCluster(Index<SubnetRecord>);

impl Default for ByCluster {
    fn default() -> Self {
        Self(Index::new(|subnet| vec![subnet.cluster_id.clone()]))
    }
}

/// What one settled Subnet adds to the counters.
#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    overlaps: usize,
    outside: usize,
    excluded: usize,
}

/// Whether two ranges share an address.
pub fn overlap(a: IpNet, b: IpNet) -> bool {
    a.contains(&b) || b.contains(&a)
}
