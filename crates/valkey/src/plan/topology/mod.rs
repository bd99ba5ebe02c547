//! Who is who, worked out from every server's own words and from the bindings of the last pass (R1 to R4, R12).
//!
//! A member is a node id. Its pod is the one that answers with it now; where that pod is silent, the one it was last bound
//! to, as long as the pod (without volumes) or the volume is still the same. Nothing here trusts one chosen server: a slot
//! belongs to the claim with the highest epoch in any view, and what the views do not agree on is listed in
//! [`Topology::differences`].
//!
//! The cluster is the servers that know each other ([`core`]). A pod that nobody lists is outside of it, whatever it may
//! have on its volume: it joins by R9.

mod agree;
mod core;
mod members;
mod past;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use usher_engine::Text;

use super::step::Server;
use crate::seen::{Answer, Link, Observation, Peer, RoleSaid, Says};
use crate::words::{Epoch, NodeId, Ordinal, ShardId, SlotSet};

pub use agree::Difference;
pub use past::{Binding, Past};

/// How many of what the spec wants, and while surging one pod more (R36).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// `spec.masters`.
    pub masters: u16,
    /// R: `spec.replicasPerMaster`.
    pub replicas: u16,
    /// Whether a roll has asked for one pod more.
    pub surge: bool,
}

impl Size {
    /// N: how many pods.
    pub fn pods(self) -> u16 {
        self.masters
            .saturating_mul(self.replicas.saturating_add(1))
            .saturating_add(u16::from(self.surge))
    }

    /// Members of one shard: 1 + R.
    pub fn quota(self) -> usize {
        usize::from(self.replicas) + 1
    }
}

/// What is known of a member's whereabouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Its pod's server answers.
    Live,
    /// It is bound to a pod of ours that does not answer now, or that is not there now: nothing follows from that (R2).
    Silent,
    /// Views list it, and no pod of ours is it any more, as far as is known.
    Orphan,
    /// It answers from outside our pods, or it owns slots and no pod was ever bound to it (R10).
    Foreign,
}

/// A member of the cluster: every id that a server of the core lists.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Who.
    pub id: NodeId,
    /// Whether it answers, and whose it is.
    pub standing: Standing,
    /// The pod that it is, or was last.
    pub ordinal: Option<Ordinal>,
    /// Its shard.
    pub shard: ShardId,
    /// Whose replica it is, by its own word where it answers; `None`: a primary.
    pub primary: Option<NodeId>,
    /// Its config epoch.
    pub epoch: Epoch,
    /// The slots that are its own by the highest epoch.
    pub slots: SlotSet,
    /// Every other server of the core that lists it shows it as failed.
    pub failed: bool,
    /// Some server of the core shows it as failed, suspected, without address, or disconnected.
    pub troubled: bool,
}

impl Member {
    /// Whether its server answers.
    pub fn is_live(&self) -> bool {
        self.standing == Standing::Live
    }

    /// Whether it is a primary.
    pub fn is_primary(&self) -> bool {
        self.primary.is_none()
    }
}

/// A primary and those that follow it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shard {
    /// Its id, as its members say.
    pub id: ShardId,
    /// Its primary: of several that call themselves so, the one with the slots, then the one with the highest epoch.
    pub primary: NodeId,
    /// Everybody else in it, by ordinal; those without a pod last.
    pub replicas: Vec<NodeId>,
    /// What its members own.
    pub slots: SlotSet,
}

impl Shard {
    /// Whether it owns any slot.
    pub fn owns(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Its primary, then the others.
    pub fn members(&self) -> impl Iterator<Item = &NodeId> {
        std::iter::once(&self.primary).chain(&self.replicas)
    }
}

/// Why a pod's server does not speak for itself in this pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unheard {
    /// Which pod.
    pub ordinal: Ordinal,
    /// Its name.
    pub pod: Text,
    /// What is the matter, and since when where that is known.
    pub why: String,
}

/// `waiting for <pod>: <error>, since` (R2).
impl fmt::Display for Unheard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waiting for {}: {}", self.pod, self.why)
    }
}

/// The cluster as it stands in this pass.
#[derive(Debug, Clone)]
pub struct Topology<'a> {
    /// What it was worked out from.
    pub seen: &'a Observation,
    /// What the last passes said.
    pub past: &'a Past,
    /// The size that tells head from tail.
    pub size: Size,
    /// Everybody that a server of the core lists, handshakes apart.
    pub members: BTreeMap<NodeId, Member>,
    /// Pods that answer and that no server of the core lists: they are to join, or to be cleaned (R9).
    pub outside: BTreeMap<Ordinal, NodeId>,
    /// In index order: by lowest slot, then those without slots by their lowest ordinal.
    pub shards: Vec<Shard>,
    /// Slots that nobody owns in any view.
    pub unowned: SlotSet,
    /// What the core's views do not agree on (R3).
    pub differences: Vec<Difference>,
    /// Pods of the set that did not speak.
    pub unheard: Vec<Unheard>,
    /// The pods whose servers are the core.
    core: BTreeSet<Ordinal>,
    /// The index of each member's shard.
    seats: BTreeMap<NodeId, usize>,
}

impl<'a> Topology<'a> {
    /// Works it out.
    pub fn of(seen: &'a Observation, past: &'a Past, size: Size) -> Self {
        let core = core::of(seen);
        let views: Vec<(Ordinal, &Says)> = core
            .iter()
            .filter_map(|ordinal| Some((*ordinal, seen.says(*ordinal)?)))
            .collect();
        let members = members::of(seen, past, &views);
        let owned = members
            .values()
            .fold(SlotSet::new(), |all, member| all.union(&member.slots));
        let outside = seen
            .pods
            .keys()
            .filter(|ordinal| !core.contains(ordinal))
            .filter_map(|ordinal| Some((*ordinal, seen.says(*ordinal)?.id.clone())))
            .collect();
        let shards = members::shards(&members);
        let mut seats = BTreeMap::new();
        for (index, shard) in shards.iter().enumerate() {
            seats.extend(shard.members().map(|id| (id.clone(), index)));
        }
        Self {
            differences: agree::differences(&views, &members),
            shards,
            seats,
            unowned: SlotSet::first(seen.slots).minus(&owned),
            unheard: unheard(seen),
            members,
            outside,
            core,
            seen,
            past,
            size,
        }
    }

    /// R3: whether the servers of the core tell one story.
    pub fn agrees(&self) -> bool {
        self.differences.is_empty()
    }

    /// R3, but for members that are being struck off: some servers have done so already, and the others are to follow.
    pub fn agrees_but_for(&self, gone: &BTreeSet<&NodeId>) -> bool {
        // Who came after a member's death never hears of it from itself, nor of its slots.
        let settled = |difference: &Difference| match difference {
            Difference::Unknown { member, .. } | Difference::Primary { member, .. } => gone.contains(member),
            Difference::Owner { owner, .. } => gone.contains(owner),
            Difference::Epoch { .. } => false,
        };
        self.differences.iter().all(settled)
    }

    /// R4: whether a majority of the primaries that own slots answers, as a primary. Before there are any: whether there
    /// never were.
    pub fn has_majority(&self) -> bool {
        let owning = self.owning();
        let answering = owning.clone().filter(|shard| self.primary_serves(shard)).count();
        match owning.count() {
            0 => !self.past.owned_any(),
            all => answering * 2 > all,
        }
    }

    /// Whether its primary answers, and calls itself one.
    pub fn primary_serves(&self, shard: &Shard) -> bool {
        let says = self.says(&shard.primary);
        says.is_some_and(|says| matches!(says.role, RoleSaid::Primary { .. }))
    }

    /// Whether every slot has a live primary (R5).
    pub fn all_served(&self) -> bool {
        self.unowned.is_empty() && self.owning().all(|shard| self.primary_serves(shard))
    }

    /// The shards with slots, in index order.
    pub fn owning(&self) -> impl Iterator<Item = &Shard> + Clone {
        self.shards.iter().filter(|shard| shard.owns())
    }

    /// The shard that a member is in, with its index.
    pub fn shard_of(&self, id: &NodeId) -> Option<(usize, &Shard)> {
        let index = *self.seats.get(id)?;
        Some((index, self.shards.get(index)?))
    }

    /// The shard of this id, with its index.
    pub fn shard(&self, id: &ShardId) -> Option<(usize, &Shard)> {
        self.shards.iter().enumerate().find(|(_, shard)| shard.id == *id)
    }

    /// The member of this id.
    pub fn member(&self, id: &NodeId) -> Option<&Member> {
        self.members.get(id)
    }

    /// What a live member says.
    pub fn says(&self, id: &NodeId) -> Option<&'a Says> {
        let member = self.members.get(id).filter(|member| member.is_live())?;
        self.seen.says(member.ordinal?)
    }

    /// How a command reaches a live member.
    pub fn server(&self, id: &NodeId) -> Option<Server> {
        let member = self.members.get(id).filter(|member| member.is_live())?;
        self.server_at(member.ordinal?)
    }

    /// How a command reaches the server of a pod that answers, in the cluster or outside.
    pub fn server_at(&self, ordinal: Ordinal) -> Option<Server> {
        Some(Server {
            ordinal,
            pod: self.seen.pods.get(&ordinal)?.uid.clone(),
            id: self.seen.says(ordinal)?.id.clone(),
        })
    }

    /// The member that a pod is: the one it answers as, else the one it is bound to.
    pub fn at(&self, ordinal: Ordinal) -> Option<&Member> {
        let mut bound = self.members.values().filter(|member| member.ordinal == Some(ordinal));
        bound.find(|member| matches!(member.standing, Standing::Live | Standing::Silent))
    }

    /// The views of the core, by pod.
    pub fn views(&self) -> impl Iterator<Item = (Ordinal, &'a Says)> {
        self.core
            .iter()
            .filter_map(|ordinal| Some((*ordinal, self.seen.says(*ordinal)?)))
    }

    /// Whether a pod's place stays with the size that is wanted.
    pub fn is_head(&self, ordinal: Ordinal) -> bool {
        ordinal.0 < self.size.pods()
    }

    /// Whether a member sits on a pod that stays. One without a pod does not.
    pub fn is_head_member(&self, id: &NodeId) -> bool {
        let member = self.members.get(id);
        member
            .and_then(|member| member.ordinal)
            .is_some_and(|ordinal| self.is_head(ordinal))
    }

    /// Members on pods that do not stay.
    pub fn leaving(&self) -> impl Iterator<Item = &Member> {
        let bound = |member: &&Member| matches!(member.standing, Standing::Live | Standing::Silent);
        self.members
            .values()
            .filter(bound)
            .filter(|member| member.ordinal.is_some_and(|ordinal| !self.is_head(ordinal)))
    }

    /// Members of one standing.
    pub fn standing(&self, standing: Standing) -> impl Iterator<Item = &Member> {
        self.members.values().filter(move |member| member.standing == standing)
    }

    /// Whether a replica answers, its link is up and no sync is running.
    pub fn link_up(&self, id: &NodeId) -> bool {
        let says = self.says(id);
        says.is_some_and(|says| matches!(says.role, RoleSaid::Replica { link: Link::Up, .. }))
    }

    /// How many bytes a live replica is behind its live primary. `None`: not known.
    pub fn lag_bytes(&self, replica: &NodeId) -> Option<u64> {
        let primary = self.members.get(replica)?.primary.as_ref()?;
        match (&self.says(replica)?.role, &self.says(primary)?.role) {
            (RoleSaid::Replica { offset, .. }, RoleSaid::Primary { offset: written, .. }) => {
                Some(written.saturating_sub(*offset))
            }
            _ => None,
        }
    }

    /// The replicas of a shard that answer, with their link up.
    pub fn in_sync<'t>(&'t self, shard: &'t Shard) -> impl Iterator<Item = &'t NodeId> {
        shard.replicas.iter().filter(|id| self.link_up(id))
    }

    /// Whether a primary has a replica that answers.
    pub fn leads(&self, id: &NodeId) -> bool {
        let shard = self
            .shard_of(id)
            .map(|(_, shard)| shard)
            .filter(|shard| shard.primary == *id);
        shard.is_some_and(|shard| shard.replicas.iter().any(|replica| self.says(replica).is_some()))
    }

    /// Whether a member is provably gone (R26): its pod answers as somebody else, or its volume is another one now.
    pub fn is_gone(&self, id: &NodeId) -> bool {
        if self.says(id).is_some() {
            return false;
        }
        let Some(binding) = self.past.bindings.iter().rfind(|binding| binding.id == *id) else {
            return false;
        };
        let other = self.seen.says(binding.ordinal).is_some_and(|says| says.id != *id);
        other || members::volume_is_another(self.seen, binding)
    }

    /// Where a pod runs, in the words of `scheduling.topologyKey`, else its node.
    pub fn place_of(&self, ordinal: Ordinal) -> Option<&'a Text> {
        let node = self.seen.pods.get(&ordinal)?.node.as_ref()?;
        Some(self.seen.places.get(node).unwrap_or(node))
    }
}

/// Whether a server's line says that a peer cannot be reached.
pub fn is_trouble(peer: &Peer) -> bool {
    let flags = peer.flags;
    flags.failed || flags.suspected || flags.no_address || !peer.connected
}

fn unheard(seen: &Observation) -> Vec<Unheard> {
    let size = seen.set.as_ref().map_or(0, |set| set.replicas);
    let beyond = seen.pods.keys().filter(|ordinal| ordinal.0 >= size).copied();
    let mut unheard = Vec::new();
    for ordinal in (0..size).map(Ordinal).chain(beyond) {
        let Some(pod) = seen.pods.get(&ordinal) else {
            unheard.push(Unheard {
                ordinal,
                pod: format!("pod {ordinal}").as_str().into(),
                why: "it is not there".into(),
            });
            continue;
        };
        let why = match seen.answers.get(&pod.uid) {
            Some(Answer::Says(_)) => continue,
            Some(Answer::Silent { error, since, .. }) => format!("{error}, since {since}"),
            Some(Answer::Loading { since }) => format!("it is reading its data, since {since}"),
            None => pod.trouble.clone().unwrap_or_else(|| "it has no address".into()),
        };
        unheard.push(Unheard {
            ordinal,
            pod: pod.name.clone(),
            why,
        });
    }
    unheard
}
