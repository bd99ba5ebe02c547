//! The members of the cluster: every id that the core lists, whose pod it is (R1), what it owns, and its shard.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{Binding, Member, Past, Shard, Standing, is_trouble};
use crate::seen::{Observation, Peer, Says};
use crate::words::{Epoch, NodeId, Ordinal, ShardId, SlotSet};

/// What the core's views say of one id, gathered.
struct Gathered<'a> {
    /// The line with the highest epoch; of several the one of the lowest ordinal.
    line: &'a Peer,
    /// How many servers other than itself list it, and how many of them as failed.
    listed: usize,
    failed: usize,
    /// Some server cannot reach it.
    troubled: bool,
    /// Some server can.
    reached: bool,
}

/// Every id that the core lists, handshakes apart.
pub fn of(seen: &Observation, past: &Past, views: &[(Ordinal, &Says)]) -> BTreeMap<NodeId, Member> {
    let gathered = gather(views);
    let answering: BTreeMap<&NodeId, Ordinal> = views.iter().map(|(ordinal, says)| (&says.id, *ordinal)).collect();
    // The newest of a pod's and of a member's bindings: later ones take the place of earlier ones.
    let bound: BTreeMap<&NodeId, &Binding> = past.bindings.iter().map(|binding| (&binding.id, binding)).collect();
    let newest: BTreeMap<Ordinal, &NodeId> = past.bindings.iter().map(|one| (one.ordinal, &one.id)).collect();
    let mut slots = owners(views);
    let mut members = BTreeMap::new();
    for (id, about) in gathered {
        let owned = slots.remove(id).unwrap_or_default();
        let binding = bound.get(id).copied();
        let is_newest = binding.is_some_and(|binding| newest.get(&binding.ordinal) == Some(&id));
        let live = answering.get(id).copied();
        let standing = match binding {
            _ if live.is_some() => Standing::Live,
            Some(binding) if is_newest && holds(seen, binding) => Standing::Silent,
            // Once ours. Peers may still show a link for some seconds after its server was reset or its pod replaced.
            Some(_) => Standing::Orphan,
            None if !owned.is_empty() || about.reached => Standing::Foreign,
            None => Standing::Orphan,
        };
        let says = live.and_then(|ordinal| seen.says(ordinal));
        let line = says.and_then(Says::myself).unwrap_or(about.line);
        let member = Member {
            id: id.clone(),
            standing,
            ordinal: live.or(binding.map(|binding| binding.ordinal)),
            shard: says
                .map(|says| says.shard.clone())
                .or_else(|| binding.map(|binding| binding.shard.clone()))
                .unwrap_or_else(|| id.as_shard()),
            primary: line.primary.clone(),
            epoch: line.epoch,
            slots: owned,
            failed: about.listed > 0 && about.failed == about.listed,
            troubled: about.troubled,
        };
        members.insert(id.clone(), member);
    }
    members
}

/// One walk per view: all of them are in order of ids, and nearly always of the same.
fn gather<'a>(views: &[(Ordinal, &'a Says)]) -> Vec<(&'a NodeId, Gathered<'a>)> {
    let mut gathered: Vec<(&NodeId, Gathered<'_>)> = Vec::new();
    for (_, says) in views {
        let mut at = 0;
        let mut unknown = Vec::new();
        for (id, line) in says.view.iter().filter(|(_, line)| !line.flags.handshake) {
            while gathered.get(at).is_some_and(|(known, _)| *known < id) {
                at += 1;
            }
            let by_another = *id != says.id;
            match gathered.get_mut(at).filter(|(known, _)| *known == id) {
                Some((_, about)) => about.hear(line, by_another),
                None => {
                    let mut about = Gathered {
                        line,
                        listed: 0,
                        failed: 0,
                        troubled: false,
                        reached: false,
                    };
                    about.hear(line, by_another);
                    unknown.push((id, about));
                }
            }
        }
        if !unknown.is_empty() {
            gathered.extend(unknown);
            gathered.sort_by_key(|(id, _)| *id);
        }
    }
    gathered
}

impl<'a> Gathered<'a> {
    fn hear(&mut self, line: &'a Peer, by_another: bool) {
        if line.epoch > self.line.epoch {
            self.line = line;
        }
        if by_another {
            self.listed += 1;
            self.failed += usize::from(line.flags.failed);
            self.troubled |= is_trouble(line);
            self.reached |= !is_trouble(line);
        }
    }
}

/// Slots by owner: the claim with the highest epoch in any view wins (R3).
fn owners(views: &[(Ordinal, &Says)]) -> BTreeMap<NodeId, SlotSet> {
    let mut claims: BTreeMap<(Reverse<Epoch>, &NodeId), SlotSet> = BTreeMap::new();
    for (_, says) in views {
        for (id, line) in &says.view {
            if line.slots.is_empty() || line.flags.handshake {
                continue;
            }
            let claimed = claims.entry((Reverse(line.epoch), id)).or_default();
            if *claimed != line.slots {
                *claimed = claimed.union(&line.slots);
            }
        }
    }
    let mut taken = SlotSet::new();
    let mut owners: BTreeMap<NodeId, SlotSet> = BTreeMap::new();
    for ((_, id), claimed) in claims {
        let left = claimed.minus(&taken);
        if !left.is_empty() {
            taken = taken.union(&left);
            let owned = owners.entry(id.clone()).or_default();
            *owned = owned.union(&left);
        }
    }
    owners
}

/// R1: whether a pod that does not answer is still the member of this binding.
fn holds(seen: &Observation, binding: &Binding) -> bool {
    if seen.says(binding.ordinal).is_some() {
        return false;
    }
    match &binding.volume {
        // A claim that is not there says nothing: it may not have been read yet.
        Some(_) => !volume_is_another(seen, binding),
        None => seen
            .pods
            .get(&binding.ordinal)
            .is_some_and(|pod| pod.uid == binding.pod),
    }
}

/// Whether the claim of this place has another uid than the one that the member wrote to.
pub fn volume_is_another(seen: &Observation, binding: &Binding) -> bool {
    let now = seen.volumes.get(&binding.ordinal);
    binding
        .volume
        .as_ref()
        .is_some_and(|volume| now.is_some_and(|now| now != volume))
}

/// The shards: every member with the primary that it follows, and primaries of one shard id together, as after a failover
/// that the old primary has not heard of.
pub fn shards(members: &BTreeMap<NodeId, Member>) -> Vec<Shard> {
    let mut by_id: BTreeMap<ShardId, Vec<&Member>> = BTreeMap::new();
    for member in members.values() {
        by_id.entry(shard_of(members, member)).or_default().push(member);
    }
    let mut shards: Vec<Shard> = by_id
        .into_iter()
        .filter_map(|(id, members)| shard(id, members))
        .collect();
    let lowest = |shard: &Shard| {
        let ordinals = shard.members().filter_map(|id| members.get(id)?.ordinal);
        ordinals.min().map_or(u32::MAX, |ordinal| ordinal.0.into())
    };
    shards.sort_by_cached_key(|shard| match shard.slots.lowest() {
        Some(slot) => (0, u32::from(slot.0), shard.id.clone()),
        None => (1, lowest(shard), shard.id.clone()),
    });
    shards
}

/// The id of the shard that a member is in: that of the primary it follows. A chain of replicas ends with its first
/// primary; one that does not end is its own.
fn shard_of(members: &BTreeMap<NodeId, Member>, member: &Member) -> ShardId {
    let mut passed = BTreeSet::new();
    let mut at = member;
    while let Some(primary) = at.primary.as_ref().and_then(|id| members.get(id)) {
        if !passed.insert(&at.id) {
            return member.shard.clone();
        }
        at = primary;
    }
    at.shard.clone()
}

fn shard(id: ShardId, mut members: Vec<&Member>) -> Option<Shard> {
    let rank = |member: &&Member| {
        (
            !member.slots.is_empty(),
            member.is_primary(),
            member.is_live(),
            member.epoch,
            Reverse(member.ordinal),
        )
    };
    let primary = members.iter().copied().max_by_key(rank)?;
    members.retain(|member| member.id != primary.id);
    members.sort_by_key(|member| (member.ordinal.is_none(), member.ordinal, &member.id));
    let slots = members
        .iter()
        .fold(primary.slots.clone(), |all, member| all.union(&member.slots));
    Some(Shard {
        id,
        primary: primary.id.clone(),
        replicas: members.into_iter().map(|member| member.id.clone()).collect(),
        slots,
    })
}
