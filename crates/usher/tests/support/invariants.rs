//! What must hold at every point of a history, checked over all of it (*all unique*, in the words of the spec).
//!
//! - I1: no two Allocated or Released Subnets of a pool overlap.
//! - I2: a Subnet is allocated in a child pool only inside that pool's Allocated holder.
//! - I3: a Bound claim's range is that of a live Allocated Subnet that it owns, shares, or imported.
//! - I4: no two Bound claims of different clusterID have overlapping ranges in one tree of pools.
//! - I6: Bound never becomes Pending, a Bound range never changes, Allocated never becomes Failed or a candidate.
//! - I10: no pool disappears before its Subnets, no holder before its child, no pool claim before both.
//!
//! What a test breaks by force is named in [`Exceptions`], object by object; nothing else is excused.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use kube::ResourceExt;
use usher_subnets::api::{ClaimPhase, PARENT_LABEL, Subnet, SubnetClaim, SubnetPhase, SubnetPool, SubnetPoolClaim};

use super::history::{Entry, History, Seen};
use super::story::Story;

/// What was looked at: a proof over nothing proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Proof {
    pub changes: usize,
    pub claims_bound: usize,
    pub subnets_allocated: usize,
    /// Of those, in child pools: each inside its holder.
    pub in_child_pools: usize,
    pub pool_claims_bound: usize,
    pub pools_held: usize,
    pub pools_gone: usize,
    pub most_at_once: usize,
    pub gaps: usize,
}

/// What a test did by force, by the names of the objects.
#[derive(Debug, Clone, Copy, Default)]
pub struct Exceptions<'e> {
    /// Objects whose status the test itself wrote nonsense into: left out altogether.
    pub tampered: &'e [&'e str],
    /// Subnets that were there, Allocated, before Usher: they may overlap each other and lie where they like.
    pub legacy: &'e [&'e str],
    /// Objects that the test took away by force, or edited as nobody may: Subnets whose finalizer it stripped, Subnets
    /// made by hand that a claim had imported and the test deleted. Claims that had them are being restored (R31).
    pub forced: &'e [&'e str],
}

/// A range as text, host bits cleared.
pub fn net(text: &str) -> IpNet {
    text.parse::<IpNet>()
        .unwrap_or_else(|e| panic!("{text:?}: {e}"))
        .trunc()
}

pub fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// The phase as section 2.3 reads it. The deletion mark counts as a generation and changes no spec.
pub fn phase(subnet: &Subnet) -> Option<SubnetPhase> {
    let status = subnet.status.as_ref()?;
    let generation = subnet.metadata.generation.unwrap_or(0);
    let spec_generation = generation - i64::from(subnet.metadata.deletion_timestamp.is_some());
    status
        .phase
        .filter(|_| status.observed_generation.is_none_or(|seen| seen >= spec_generation))
}

/// Allocated or Released.
pub fn settled(subnet: &Subnet) -> bool {
    matches!(phase(subnet), Some(SubnetPhase::Allocated | SubnetPhase::Released))
}

/// The range a claim was told it has.
pub fn bound(claim: &SubnetClaim) -> Option<IpNet> {
    let status = claim
        .status
        .as_ref()
        .filter(|status| status.phase == Some(ClaimPhase::Bound))?;
    let range: Option<IpNet> = status.allocated_cidr.as_deref()?.parse().ok();
    range.map(|range| range.trunc())
}

/// Whether a pool says that its parent holds its range.
pub fn held(pool: &SubnetPool) -> bool {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .any(|c| c.type_ == "Held" && format!("{:?}", c.status) == "True")
}

/// The uid of an owner of this kind.
pub fn owner<K: ResourceExt>(object: &K, kind: &str) -> Option<String> {
    let owners = object.owner_references().iter();
    owners
        .filter(|owner| owner.kind == kind)
        .map(|owner| owner.uid.clone())
        .next()
}

impl History {
    /// Checks the whole history; panics with the first thing that does not hold.
    pub fn check(&self) -> Proof {
        self.check_with(&Exceptions::default(), u64::MAX)
    }

    /// As [`History::check`], leaving out objects whose status the test itself wrote nonsense into.
    pub fn check_but(&self, tampered: &[&str]) -> Proof {
        let exceptions = Exceptions {
            tampered,
            ..Exceptions::default()
        };
        self.check_with(&exceptions, u64::MAX)
    }

    /// As [`History::check`], up to a revision, excusing what is named.
    pub fn check_with(&self, exceptions: &Exceptions<'_>, until: u64) -> Proof {
        let mut state = State {
            exceptions: *exceptions,
            proof: Proof {
                gaps: self.gaps(),
                ..Proof::default()
            },
            ..State::default()
        };
        let entries = self.entries();
        for entry in entries.iter().filter(|entry| entry.revision <= until) {
            if !exceptions.tampered.contains(&name(entry).as_str()) {
                let story = Story {
                    entries: &entries,
                    entry,
                };
                state.take_in(entry);
                std::mem::forget(story);
            }
        }
        state.proof
    }

    /// Claims in the order in which they were bound.
    pub fn bound_order(&self) -> Vec<String> {
        let (mut order, mut known) = (Vec::new(), BTreeSet::new());
        for entry in self.entries() {
            if let Seen::Claim(claim) = &entry.object
                && bound(claim).is_some()
                && known.insert(claim.name_any())
            {
                order.push(claim.name_any());
            }
        }
        order
    }

    /// When objects disappeared, as `kind name`, in etcd's order.
    pub fn departures(&self) -> Vec<String> {
        let gone = |entry: &Entry| {
            let kind = match &entry.object {
                Seen::Pool(_) => "pool",
                Seen::Claim(_) => "claim",
                Seen::PoolClaim(_) => "pool claim",
                Seen::Subnet(_) => "subnet",
                Seen::Lease(_) => "lease",
            };
            entry.gone.then(|| format!("{kind} {}", name(entry)))
        };
        self.entries().iter().filter_map(gone).collect()
    }
}

fn name(entry: &Entry) -> String {
    match &entry.object {
        Seen::Pool(object) => object.name_any(),
        Seen::Claim(object) => object.name_any(),
        Seen::PoolClaim(object) => object.name_any(),
        Seen::Subnet(object) => object.name_any(),
        Seen::Lease(object) => object.name_any(),
    }
}

/// Ranges and whose they are; who overlaps a range is found without looking at all of them.
#[derive(Default)]
struct Ranges(BTreeMap<(bool, u128, u8), BTreeSet<String>>);

impl Ranges {
    fn key(range: &IpNet) -> (bool, u128, u8) {
        let address = match range {
            IpNet::V4(v4) => u128::from(u32::from(v4.network())),
            IpNet::V6(v6) => u128::from(v6.network()),
        };
        (range.addr().is_ipv6(), address, range.prefix_len())
    }

    fn insert(&mut self, range: &IpNet, who: &str) {
        self.0.entry(Self::key(range)).or_default().insert(who.to_owned());
    }

    fn remove(&mut self, range: &IpNet, who: &str) {
        if let Some(at) = self.0.get_mut(&Self::key(range)) {
            at.remove(who);
        }
    }

    /// Those around it, then itself and those inside.
    fn overlapping(&self, range: &IpNet) -> impl Iterator<Item = &String> {
        let around = (0..range.prefix_len()).filter_map(|length| {
            let wider = IpNet::new(range.addr(), length).unwrap().trunc();
            self.0.get(&Self::key(&wider))
        });
        let last = IpNet::new(range.broadcast(), range.max_prefix_len()).unwrap();
        let (family, end, _) = Self::key(&last);
        let (_, begin, length) = Self::key(range);
        let inside = self.0.range((family, begin, length)..=(family, end, u8::MAX));
        let inside = inside.filter(move |((_, _, l), _)| *l >= length).map(|(_, who)| who);
        around.chain(inside).flatten()
    }
}

/// A Subnet that has its range.
#[derive(Clone)]
struct Held {
    pool: String,
    range: IpNet,
    name: String,
    cluster_id: String,
    allocated: bool,
    owners: BTreeSet<String>,
    by_hand: bool,
}

/// A live Bound claim.
struct Bound {
    pool: String,
    range: IpNet,
    name: String,
    cluster_id: String,
    /// Made for a pool claim: nobody uses its range but the pool.
    internal: bool,
}

struct Pool {
    name: String,
    /// What the clusterID of its holder is: its own uid, or that of the pool claim it was made for.
    holder_id: String,
    pool_claim: Option<String>,
    /// Since it was made and ever since: one that is labelled later was right to grant without.
    born_a_child: bool,
    held: bool,
}

/// The world as replayed so far; by uid, so that a second object of a name is another.
#[derive(Default)]
struct State<'e> {
    exceptions: Exceptions<'e>,
    settled: BTreeMap<String, Held>,
    /// Those by pool.
    of_pool: BTreeMap<String, Ranges>,
    /// Those by clusterID: a holder is found by it.
    of_cluster: BTreeMap<String, BTreeSet<String>>,
    bound: BTreeMap<String, Bound>,
    bound_ranges: Ranges,
    pools: BTreeMap<String, Pool>,
    pool_claims: BTreeMap<String, (String, Option<String>)>,
    ever_bound: BTreeSet<String>,
    ever_allocated: BTreeSet<String>,
    ever_held: BTreeSet<String>,
    pool_claims_bound: BTreeSet<String>,
    proof: Proof,
}

impl State<'_> {
    fn take_in(&mut self, entry: &Entry) {
        self.proof.changes += 1;
        let (gone, revision) = (entry.gone, entry.revision);
        match &entry.object {
            Seen::Subnet(subnet) => self.subnet(subnet, gone, revision),
            Seen::Claim(claim) => self.claim(claim, gone, revision),
            Seen::Pool(pool) => self.pool(pool, gone, revision),
            Seen::PoolClaim(claim) => self.pool_claim(claim, gone, revision),
            Seen::Lease(_) => return,
        }
        self.proof.most_at_once = self.proof.most_at_once.max(self.settled.len());
        self.proof.claims_bound = self.ever_bound.len();
        self.proof.subnets_allocated = self.ever_allocated.len();
        self.proof.pools_held = self.ever_held.len();
        self.proof.pool_claims_bound = self.pool_claims_bound.len();
    }

    fn forced(&self, name: &str) -> bool {
        self.exceptions.forced.contains(&name)
    }

    fn subnet(&mut self, subnet: &Subnet, gone: bool, revision: u64) {
        let (uid, name) = (subnet.uid().unwrap(), subnet.name_any());
        let range = net(&subnet.spec.cidr);
        let before = self.strike(&uid);
        if gone || !settled(subnet) {
            if let Some(was) = before
                .as_ref()
                .filter(|was| !gone && was.range == range && was.pool == subnet.spec.pool_ref)
            {
                panic!(
                    "I6, revision {revision}: Subnet {name} had {} and is {:?} now",
                    was.range,
                    phase(subnet)
                );
            }
            if let Some(was) = before.filter(|_| !self.forced(&name)) {
                self.those_who_had(&was, revision);
                self.no_child_is_left_without(&was, revision);
            }
            return;
        }
        let owners: BTreeSet<String> = subnet.owner_references().iter().map(|o| o.uid.clone()).collect();
        let now = Held {
            pool: subnet.spec.pool_ref.clone(),
            range,
            name: name.clone(),
            cluster_id: subnet.spec.cluster_id.clone(),
            allocated: phase(subnet) == Some(SubnetPhase::Allocated),
            by_hand: subnet.spec.claim_ref.is_none() && owners.is_empty(),
            owners,
        };
        let ranges = self.of_pool.entry(now.pool.clone()).or_default();
        let others = ranges.overlapping(&range).map(|other| &self.settled[other]);
        let legacy = |name: &str| self.exceptions.legacy.contains(&name);
        if let Some(other) = others.into_iter().find(|other| !(legacy(&name) && legacy(&other.name))) {
            panic!(
                "I1, revision {revision}: Subnet {name} ({range}) overlaps Subnet {} ({}) of pool {}",
                other.name, other.range, now.pool
            );
        }
        ranges.insert(&range, &uid);
        let ids = self.of_cluster.entry(now.cluster_id.clone()).or_default();
        ids.insert(uid.clone());
        let fresh = before
            .as_ref()
            .is_none_or(|was| was.range != range || was.pool != now.pool);
        if fresh && self.proof.gaps == 0 && !self.exceptions.legacy.contains(&name.as_str()) {
            self.lies_in_its_holder(&now, revision);
        }
        self.ever_allocated.insert(uid.clone());
        self.settled.insert(uid, now);
        if let Some(was) = before.filter(|_| !self.forced(&name)) {
            self.those_who_had(&was, revision);
        }
    }

    fn strike(&mut self, uid: &str) -> Option<Held> {
        let was = self.settled.remove(uid)?;
        if let Some(ranges) = self.of_pool.get_mut(&was.pool) {
            ranges.remove(&was.range, uid);
        }
        if let Some(ids) = self.of_cluster.get_mut(&was.cluster_id) {
            ids.remove(uid);
        }
        Some(was)
    }

    /// The Subnets that stand for whoever has this id.
    fn holders(&self, id: &str) -> impl Iterator<Item = &Held> {
        let uids = self.of_cluster.get(id).into_iter().flatten();
        uids.map(|uid| &self.settled[uid])
    }

    fn pool_named(&self, name: &str) -> Option<&Pool> {
        self.pools.values().find(|pool| pool.name == name)
    }

    /// I2, first half.
    fn lies_in_its_holder(&mut self, subnet: &Held, revision: u64) {
        let Some(pool) = self.pool_named(&subnet.pool) else {
            return;
        };
        if !(pool.held || pool.born_a_child) {
            return;
        }
        let inside = self
            .holders(&pool.holder_id)
            .any(|holder| holder.allocated && holder.range.contains(&subnet.range) && holder.pool != pool.name);
        assert!(
            inside && pool.held,
            "I2, revision {revision}: Subnet {} ({}) was allocated in child pool {} (Held: {}), and lies in no holder of it",
            subnet.name,
            subnet.range,
            pool.name,
            pool.held
        );
        self.proof.in_child_pools += 1;
    }

    /// I2, second half, and I10: what a child pool stands on is there as long as the pool is.
    fn no_child_is_left_without(&self, was: &Held, revision: u64) {
        if self.proof.gaps > 0 || self.holders(&was.cluster_id).any(|other| other.range == was.range) {
            return;
        }
        let child = self.pools.values().find(|pool| pool.holder_id == was.cluster_id);
        if let Some(child) = child.filter(|child| !self.forced(&child.name)) {
            panic!(
                "I2 and I10, revision {revision}: holder {} ({}) went before its child, pool {}",
                was.name, was.range, child.name
            );
        }
    }

    /// The claims that had, or may have had, a Subnet that has changed.
    fn those_who_had(&self, was: &Held, revision: u64) {
        for owner in &was.owners {
            self.bound_claim_has_its_range(owner, revision);
        }
        let importers = self.bound_ranges.overlapping(&was.range).filter(|_| was.by_hand);
        for uid in importers {
            self.bound_claim_has_its_range(uid, revision);
        }
    }

    fn claim(&mut self, claim: &SubnetClaim, gone: bool, revision: u64) {
        let (uid, name) = (claim.uid().unwrap(), claim.name_any());
        let before = self.bound.remove(&uid);
        if let Some(was) = &before {
            self.bound_ranges.remove(&was.range, &uid);
        }
        // Deleted in the foreground, a claim stays until its Subnet is gone.
        if gone || claim.metadata.deletion_timestamp.is_some() {
            return;
        }
        let range = bound(claim);
        if let Some(was) = before
            && range != Some(was.range)
            && !self.forced(&name)
        {
            panic!(
                "I6, revision {revision}: claim {name} was Bound to {} and has {range:?} now",
                was.range
            );
        }
        let Some(range) = range else { return };
        let now = Bound {
            pool: claim.spec.pool_ref.clone(),
            range,
            name: name.clone(),
            cluster_id: claim.spec.cluster_id.clone(),
            internal: owner(claim, "SubnetPoolClaim").is_some(),
        };
        self.nobody_else_uses(&now, revision);
        self.bound_ranges.insert(&range, &uid);
        self.bound.insert(uid.clone(), now);
        self.ever_bound.insert(uid.clone());
        if !self.forced(&name) {
            self.bound_claim_has_its_range(&uid, revision);
        }
    }

    /// The pool at the top of a pool's tree, by the holders that there are.
    fn root(&self, pool: &str) -> String {
        let mut name = pool.to_owned();
        for _ in 0..64 {
            let up = self
                .pool_named(&name)
                .and_then(|pool| self.holders(&pool.holder_id).next());
            match up.filter(|holder| holder.pool != name) {
                Some(holder) => name = holder.pool.clone(),
                None => break,
            }
        }
        name
    }

    /// I4.
    fn nobody_else_uses(&self, claim: &Bound, revision: u64) {
        let others = self.bound_ranges.overlapping(&claim.range).map(|uid| &self.bound[uid]);
        for other in others.filter(|other| other.cluster_id != claim.cluster_id) {
            // Across pools, a pool's own claim is what those in the pool live from.
            let same_pool = other.pool == claim.pool;
            let tree = self.proof.gaps == 0 && !claim.internal && !other.internal;
            let clash = same_pool || (tree && self.root(&other.pool) == self.root(&claim.pool));
            assert!(
                !clash || self.forced(&other.name) || self.forced(&claim.name),
                "I4, revision {revision}: claims {} ({} of pool {}) and {} ({} of pool {}) overlap",
                claim.name,
                claim.range,
                claim.pool,
                other.name,
                other.range,
                other.pool
            );
        }
    }

    /// I3. Two types side by side: only where nothing went unseen are their revisions comparable.
    fn bound_claim_has_its_range(&self, uid: &str, revision: u64) {
        if self.proof.gaps > 0 {
            return;
        }
        let Some(claim) = self.bound.get(uid).filter(|claim| !self.forced(&claim.name)) else {
            return;
        };
        let of_cluster = self.of_cluster.get(&claim.cluster_id).into_iter().flatten();
        let has = of_cluster.map(|subnet| &self.settled[subnet]).any(|subnet| {
            let ours = subnet.owners.contains(uid) || subnet.by_hand;
            ours && subnet.allocated && subnet.range == claim.range && subnet.pool == claim.pool
        });
        assert!(
            has,
            "I3, revision {revision}: claim {} is Bound to {} of pool {}, and no Allocated Subnet that it owns, shares or imported has that",
            claim.name, claim.range, claim.pool
        );
    }

    fn pool(&mut self, pool: &SubnetPool, gone: bool, revision: u64) {
        let (uid, name) = (pool.uid().unwrap(), pool.name_any());
        let before = self.pools.remove(&uid);
        if gone {
            self.proof.pools_gone += 1;
            let left = self.settled.values().find(|subnet| subnet.pool == name);
            if let Some(left) =
                left.filter(|left| self.proof.gaps == 0 && !self.forced(&left.name) && !self.forced(&name))
            {
                panic!(
                    "I10, revision {revision}: pool {name} went before its Subnet {} ({})",
                    left.name, left.range
                );
            }
            return;
        }
        let pool_claim = owner(pool, "SubnetPoolClaim");
        let labelled = pool.labels().contains_key(PARENT_LABEL);
        let was_held = before.as_ref().is_some_and(|was| was.held);
        if held(pool) {
            self.ever_held.insert(uid.clone());
        }
        assert!(
            !was_held || held(pool),
            "R26, revision {revision}: pool {name} was Held, which is never taken back"
        );
        self.pools.insert(
            uid.clone(),
            Pool {
                name,
                holder_id: pool_claim.clone().unwrap_or(uid),
                born_a_child: before.is_none_or(|was| was.born_a_child) && (labelled || pool_claim.is_some()),
                pool_claim,
                held: held(pool),
            },
        );
    }

    fn pool_claim(&mut self, claim: &SubnetPoolClaim, gone: bool, revision: u64) {
        let (uid, name) = (claim.uid().unwrap(), claim.name_any());
        let before = self.pool_claims.remove(&uid);
        if gone {
            // A pool that was never Held gives nothing to anybody (R26): a create that was under way when the last look was
            // taken may still land, and the garbage collector takes it away.
            let of_claim = |pool: &&Pool| pool.pool_claim.as_ref() == Some(&uid) && pool.held;
            let pool = self.pools.values().find(of_claim);
            let holder = self.holders(&uid).next();
            let left = pool.map(|pool| &pool.name).or(holder.map(|holder| &holder.name));
            if let Some(left) = left.filter(|left| self.proof.gaps == 0 && !self.forced(left)) {
                panic!("I10, revision {revision}: pool claim {name} went before {left}");
            }
            return;
        }
        let status = claim.status.clone().unwrap_or_default();
        let bound = status
            .bound_pool_name
            .filter(|_| status.phase == Some(ClaimPhase::Bound));
        if let Some((_, Some(was))) = &before
            && bound.as_ref() != Some(was)
        {
            panic!("I6, revision {revision}: pool claim {name} was Bound to pool {was} and has {bound:?} now");
        }
        if bound.is_some() {
            self.pool_claims_bound.insert(uid.clone());
        }
        self.pool_claims.insert(uid, (name, bound));
    }
}
