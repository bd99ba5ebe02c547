//! What must hold at every point of a history, checked over all of it (*all unique*, in the words of the spec).
//!
//! - I1: no two Allocated or Released Subnets of a pool overlap.
//! - I3: a Bound claim's range is that of a live Allocated Subnet that it owns.
//! - I4, as far as claims go: no two Bound claims of a pool overlap.
//! - I6: Bound never becomes Pending, a Bound range never changes, Allocated never becomes Failed or a candidate.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use kube::ResourceExt;
use usher_subnets::api::{ClaimPhase, Subnet, SubnetClaim, SubnetPhase};

use super::history::{Entry, History, Seen};

/// What was looked at: a proof over nothing proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Proof {
    pub changes: usize,
    pub claims_bound: usize,
    pub subnets_allocated: usize,
    pub most_at_once: usize,
    pub gaps: usize,
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

impl History {
    /// Checks the whole history; panics with the first thing that does not hold.
    pub fn check(&self) -> Proof {
        self.check_but(&[])
    }

    /// As [`History::check`], leaving out objects whose status the test itself wrote nonsense into.
    pub fn check_but(&self, tampered: &[&str]) -> Proof {
        let mut state = State {
            proof: Proof {
                gaps: self.gaps(),
                ..Proof::default()
            },
            ..State::default()
        };
        for entry in self.entries() {
            if !tampered.contains(&name(&entry).as_str()) {
                state.take_in(&entry);
            }
        }
        state.proof
    }

    /// Claims in the order in which they were bound.
    pub fn bound_order(&self) -> Vec<String> {
        let mut order = Vec::new();
        for entry in self.entries() {
            if let Seen::Claim(claim) = &entry.object
                && bound(claim).is_some()
                && !order.contains(&claim.name_any())
            {
                order.push(claim.name_any());
            }
        }
        order
    }
}

fn name(entry: &Entry) -> String {
    match &entry.object {
        Seen::Pool(object) => object.name_any(),
        Seen::Claim(object) => object.name_any(),
        Seen::Subnet(object) => object.name_any(),
        Seen::Lease(object) => object.name_any(),
    }
}

/// The world as replayed so far; by uid, so that a second object of a name is another.
#[derive(Default)]
struct State {
    /// Pool, range, name and phase of the settled Subnets.
    settled: BTreeMap<String, (String, IpNet, String)>,
    /// Pool, range and name of live Bound claims.
    bound: BTreeMap<String, (String, IpNet, String)>,
    /// Ranges of Allocated Subnets, by the claim that owns them.
    owned: BTreeMap<String, BTreeMap<String, IpNet>>,
    ever_bound: BTreeSet<String>,
    ever_allocated: BTreeSet<String>,
    proof: Proof,
}

impl State {
    fn take_in(&mut self, entry: &Entry) {
        self.proof.changes += 1;
        match &entry.object {
            Seen::Subnet(subnet) => self.subnet(subnet, entry.gone, entry.revision),
            Seen::Claim(claim) => self.claim(claim, entry.gone, entry.revision),
            Seen::Pool(_) | Seen::Lease(_) => return,
        }
        self.proof.most_at_once = self.proof.most_at_once.max(self.settled.len());
        self.proof.claims_bound = self.ever_bound.len();
        self.proof.subnets_allocated = self.ever_allocated.len();
    }

    fn subnet(&mut self, subnet: &Subnet, gone: bool, revision: u64) {
        let (uid, name) = (subnet.uid().unwrap(), subnet.name_any());
        let (pool, range) = (&subnet.spec.pool_ref, net(&subnet.spec.cidr));
        let owner = subnet.spec.claim_ref.as_ref().map(|claim| claim.uid.clone());
        let before = self.settled.remove(&uid);
        if gone || !settled(subnet) {
            if let Some((_, was, _)) = before.filter(|(_, was, _)| !gone && *was == range) {
                panic!(
                    "I6, revision {revision}: Subnet {name} had {was} and is {:?} now",
                    phase(subnet)
                );
            }
            if let Some(owner) = owner {
                self.owned.entry(owner.clone()).or_default().remove(&uid);
                self.bound_claim_has_its_range(&owner, revision);
            }
            return;
        }
        let taken = self
            .settled
            .values()
            .find(|(p, other, _)| p == pool && overlap(other, &range));
        if let Some((_, other, whose)) = taken {
            panic!("I1, revision {revision}: Subnet {name} ({range}) overlaps Subnet {whose} ({other}) of pool {pool}");
        }
        self.settled.insert(uid.clone(), (pool.clone(), range, name));
        self.ever_allocated.insert(uid.clone());
        if let Some(owner) = owner {
            self.owned.entry(owner).or_default().insert(uid, range);
        }
    }

    fn claim(&mut self, claim: &SubnetClaim, gone: bool, revision: u64) {
        let (uid, name) = (claim.uid().unwrap(), claim.name_any());
        let before = self.bound.remove(&uid);
        // Deleted in the foreground, a claim stays until its Subnet is gone.
        if gone || claim.metadata.deletion_timestamp.is_some() {
            return;
        }
        let range = bound(claim);
        if let Some((_, was, _)) = before
            && range != Some(was)
        {
            panic!("I6, revision {revision}: claim {name} was Bound to {was} and has {range:?} now");
        }
        let Some(range) = range else { return };
        let pool = &claim.spec.pool_ref;
        if let Some((_, other, whose)) = self
            .bound
            .values()
            .find(|(p, other, _)| p == pool && overlap(other, &range))
        {
            panic!("I4, revision {revision}: claims {name} ({range}) and {whose} ({other}) of pool {pool} overlap");
        }
        self.bound.insert(uid.clone(), (pool.clone(), range, name));
        self.ever_bound.insert(uid.clone());
        self.bound_claim_has_its_range(&uid, revision);
    }

    /// Two types side by side: only where nothing went unseen are their revisions comparable.
    fn bound_claim_has_its_range(&self, claim: &str, revision: u64) {
        if self.proof.gaps > 0 {
            return;
        }
        let Some((pool, range, name)) = self.bound.get(claim) else {
            return;
        };
        let has = self
            .owned
            .get(claim)
            .is_some_and(|owned| owned.values().any(|r| r == range));
        assert!(
            has,
            "I3, revision {revision}: claim {name} is Bound to {range} of pool {pool}, and no Allocated Subnet of it has that"
        );
    }
}
