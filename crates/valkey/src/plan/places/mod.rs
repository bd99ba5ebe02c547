//! Who belongs where (R12 to R17): which shards stay, which are drained, who stays in a shard, and who fills what is
//! missing.
//!
//! Worked out anew in every pass from what the servers say; only the list of drained shards is kept in `status.scale`. What
//! has begun is found again as it stands: an empty primary that already has a replica is a new shard in the making, and a
//! member that sits in its shard's quota stays there.

mod fill;
mod settle;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::topology::{Member, Shard, Standing, Topology};
use crate::seen::RoleSaid;
use crate::words::{NodeId, Ordinal, ShardId, SlotSet};

pub use settle::{Which, disagreement, name, reads, settle};

/// A shard of the wanted size: one that is there, or one that is being made.
#[derive(Debug, Clone, PartialEq)]
pub struct Home {
    /// Its id; `None` while its primary is still a surplus replica elsewhere.
    pub shard: Option<ShardId>,
    /// Its primary, now or to be.
    pub primary: NodeId,
    /// What it owns.
    pub slots: SlotSet,
    /// Its members on pods that stay, up to the quota, the primary first where it is one of them (R15).
    pub stays: Vec<NodeId>,
    /// Free members that become its replicas (R16).
    pub attach: Vec<NodeId>,
    /// How many members it still lacks after that.
    pub lacks: usize,
}

impl Home {
    /// Whether it is new: it owns nothing yet.
    pub fn is_new(&self) -> bool {
        self.slots.is_empty()
    }
}

/// The shards of the wanted size, and everybody's place.
#[derive(Debug, Clone, PartialEq)]
pub struct Places {
    /// The shards that stay, in index order, then new ones by the ordinal of their primary.
    pub homes: Vec<Home>,
    /// The shards that give all their slots away (R14), the first to go first.
    pub drain: Vec<ShardId>,
    /// Live members on pods that stay, for which there is no place.
    pub spare: Vec<NodeId>,
    /// How many shards there is no primary for.
    pub missing: usize,
}

impl Places {
    /// Works it out. `recorded` is `status.scale.drain`: what was chosen stays chosen while it has slots.
    pub fn of(topology: &Topology<'_>, recorded: &[ShardId]) -> Self {
        let drain = drained(topology, recorded);
        let masters = usize::from(topology.size.masters);
        let mut homes: Vec<Home> = topology
            .owning()
            .filter(|shard| !drain.contains(&shard.id))
            .map(|shard| home(topology, shard))
            .collect();
        let wanted = masters.saturating_sub(homes.len());
        let mut free = free(topology, &homes, &drain);
        let former = fill::former(topology, &free);
        let mut made = fill::new_homes(topology, &homes, &mut free, wanted, recorded, &former);
        let missing = wanted.saturating_sub(made.len());
        homes.append(&mut made);
        fill::fill(topology, &mut homes, &mut free, &former);
        Self {
            homes,
            drain,
            spare: free,
            missing,
        }
    }

    /// The place that a member has, now or soon.
    pub fn home_of(&self, id: &NodeId) -> Option<&Home> {
        self.homes
            .iter()
            .find(|home| home.stays.contains(id) || home.attach.contains(id))
    }

    /// The home of this shard.
    pub fn home(&self, shard: &ShardId) -> Option<&Home> {
        self.homes.iter().find(|home| home.shard.as_ref() == Some(shard))
    }

    /// Whether everybody who can be placed is: nobody is to be attached or made a primary.
    pub fn is_settled(&self, topology: &Topology<'_>) -> bool {
        self.homes
            .iter()
            .all(|home| home.attach.is_empty() && topology.member(&home.primary).is_some_and(Member::is_primary))
    }

    /// Whether every shard has a primary that answers as one.
    pub fn has_primaries(&self, topology: &Topology<'_>) -> bool {
        let says = |home: &Home| topology.says(&home.primary);
        self.homes
            .iter()
            .all(|home| says(home).is_some_and(|says| matches!(says.role, RoleSaid::Primary { .. })))
    }

    /// Shards that stay and whose primary sits on a pod that does not: they hand over to one that stays (R17).
    pub fn hand_overs<'p>(&'p self, topology: &'p Topology<'_>) -> impl Iterator<Item = &'p Home> {
        let homes = self.homes.iter().filter(|home| home.shard.is_some());
        homes.filter(|home| !topology.is_head_member(&home.primary))
    }
}

/// R14: which of the owning shards are one too many.
fn drained(topology: &Topology<'_>, recorded: &[ShardId]) -> Vec<ShardId> {
    let masters = usize::from(topology.size.masters);
    let mut owning: Vec<&Shard> = topology.owning().collect();
    let surplus = owning.len().saturating_sub(masters);
    owning.sort_by_cached_key(|shard| {
        let heads = shard.members().filter(|id| topology.is_head_member(id)).count();
        let live = shard.replicas.iter().filter(|id| topology.says(id).is_some()).count();
        let lowest = shard.members().filter_map(|id| topology.member(id)?.ordinal).min();
        (
            // What was chosen stays chosen, in the order of the list.
            recorded.iter().position(|id| *id == shard.id).unwrap_or(recorded.len()),
            heads,
            topology.is_head_member(&shard.primary),
            shard.slots.count(),
            live,
            Reverse(lowest),
            shard.id.clone(),
        )
    });
    owning.into_iter().take(surplus).map(|shard| shard.id.clone()).collect()
}

/// A shard that is there, with those who stay in it (R15).
fn home(topology: &Topology<'_>, shard: &Shard) -> Home {
    let quota = topology.size.quota();
    let mut heads: Vec<&Member> = shard
        .members()
        .filter_map(|id| topology.member(id))
        .filter(|member| matches!(member.standing, Standing::Live | Standing::Silent))
        .filter(|member| member.ordinal.is_some_and(|ordinal| topology.is_head(ordinal)))
        .collect();
    let mut stays: Vec<NodeId> = Vec::new();
    let mut used = BTreeSet::new();
    while stays.len() < quota {
        let rank = |member: &&Member| {
            let place = place(topology, member);
            (
                member.id != shard.primary,
                !topology.link_up(&member.id),
                place.is_some_and(|place| used.contains(&place)),
                member.ordinal,
            )
        };
        let Some(next) = heads.iter().copied().min_by_key(rank) else {
            break;
        };
        heads.retain(|member| member.id != next.id);
        used.extend(place(topology, next));
        stays.push(next.id.clone());
    }
    Home {
        shard: Some(shard.id.clone()),
        primary: shard.primary.clone(),
        slots: shard.slots.clone(),
        lacks: quota.saturating_sub(stays.len()),
        stays,
        attach: Vec::new(),
    }
}

fn place<'t>(topology: &Topology<'t>, member: &Member) -> Option<&'t usher_engine::Text> {
    topology.place_of(member.ordinal?)
}

/// Live members on pods that stay and that are in no quota: of shards without slots, and surplus replicas. A member of a
/// shard that still drains is not free: it has the only other copy.
fn free(topology: &Topology<'_>, homes: &[Home], drain: &[ShardId]) -> Vec<NodeId> {
    let placed: BTreeSet<&NodeId> = homes.iter().flat_map(|home| &home.stays).collect();
    let usable = |id: &&NodeId| {
        let Some(member) = topology.member(id).filter(|member| member.is_live()) else {
            return false;
        };
        let stays = |ordinal: &Ordinal| {
            let pod = topology.seen.pods.get(ordinal);
            topology.is_head(*ordinal) && pod.is_some_and(|pod| pod.deleting.is_none())
        };
        member.ordinal.as_ref().is_some_and(stays) && member.slots.is_empty() && !placed.contains(id)
    };
    let mut free: Vec<NodeId> = topology
        .shards
        .iter()
        .filter(|shard| !drain.contains(&shard.id))
        .flat_map(|shard| {
            // An owning shard's primary on a pod that stays is in its quota, always; here it is only its surplus.
            shard.members().filter(usable).cloned().collect::<Vec<_>>()
        })
        .collect();
    free.sort_by_key(|id| topology.member(id).and_then(|member| member.ordinal));
    free
}
