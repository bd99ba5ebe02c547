//! Filling places (R16): primaries of new shards first, then replicas, shard by shard.

use std::collections::{BTreeMap, BTreeSet};

use usher_engine::Text;

use super::{Home, home};
use crate::plan::topology::{Member, Topology};
use crate::words::{NodeId, Ordinal, ShardId, SlotSet};

/// New shards, made of free members; these are taken out of `free`.
pub fn new_homes(
    topology: &Topology<'_>,
    homes: &[Home],
    free: &mut Vec<NodeId>,
    wanted: usize,
    recorded: &[ShardId],
    former: &Former,
) -> Vec<Home> {
    let mut primaries: BTreeMap<&Text, usize> = BTreeMap::new();
    for home in homes {
        if let Some(place) = place(topology, &home.primary) {
            *primaries.entry(place).or_default() += 1;
        }
    }
    let mut chosen: Vec<NodeId> = Vec::new();
    while chosen.len() < wanted {
        let candidates = free
            .iter()
            .filter(|id| !chosen.contains(id) && !owes_its_place(homes, former, id));
        let rank = |id: &&NodeId| {
            let crowd = place(topology, id).and_then(|place| primaries.get(place)).copied();
            (kind(topology, id, recorded), crowd.unwrap_or(0), ordinal(topology, id))
        };
        let Some(next) = candidates.min_by_key(rank).cloned() else {
            break;
        };
        if let Some(place) = place(topology, &next) {
            *primaries.entry(place).or_default() += 1;
        }
        chosen.push(next);
    }
    chosen.sort_by_key(|id| ordinal(topology, id));
    free.retain(|id| !chosen.contains(id));
    let mut made: Vec<Home> = chosen.iter().map(|id| new_home(topology, id)).collect();
    for home in &mut made {
        // Who follows it already stays, unless it is to be a primary itself.
        home.stays.retain(|id| *id == home.primary || !chosen.contains(id));
        home.lacks = topology.size.quota().saturating_sub(home.stays.len());
        free.retain(|id| !home.stays.contains(id));
    }
    made
}

/// What a free member is, the first choice first: a new shard in the making, a fresh one, one that was drained, a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    InTheMaking,
    Fresh,
    Drained,
    Replica,
}

fn kind(topology: &Topology<'_>, id: &NodeId, recorded: &[ShardId]) -> Kind {
    let Some((_, shard)) = topology.shard_of(id).filter(|(_, shard)| shard.primary == *id) else {
        return Kind::Replica;
    };
    let followed = shard
        .replicas
        .iter()
        .any(|id| topology.says(id).is_some() && topology.is_head_member(id));
    match (followed, recorded.contains(&shard.id)) {
        (true, false) => Kind::InTheMaking,
        (false, false) => Kind::Fresh,
        (_, true) => Kind::Drained,
    }
}

fn new_home(topology: &Topology<'_>, id: &NodeId) -> Home {
    match topology.shard_of(id).filter(|(_, shard)| shard.primary == *id) {
        Some((_, shard)) => home(topology, shard),
        None => Home {
            shard: None,
            primary: id.clone(),
            slots: SlotSet::new(),
            stays: vec![id.clone()],
            attach: Vec::new(),
            lacks: topology.size.quota().saturating_sub(1),
        },
    }
}

/// Which shard each free member's pod was in before, as another member (R10). Few have been anything before.
pub type Former = BTreeMap<NodeId, ShardId>;

/// Works it out from the bindings of the last passes.
pub fn former(topology: &Topology<'_>, free: &[NodeId]) -> Former {
    let mut at: BTreeMap<Ordinal, &NodeId> = BTreeMap::new();
    for id in free {
        at.extend(ordinal(topology, id).map(|ordinal| (ordinal, id)));
    }
    let mut former = Former::new();
    // Oldest first, so that the newest stands.
    for binding in &topology.past.bindings {
        match at.get(&binding.ordinal) {
            Some(id) if binding.id != **id => former.insert((*id).clone(), binding.shard.clone()),
            _ => None,
        };
    }
    former.retain(|id, shard| topology.member(id).is_some_and(|member| member.shard != *shard));
    former
}

/// R10: whether a pod that came back as another member belongs to the shard that it was in before, which lacks it.
fn owes_its_place(homes: &[Home], former: &Former, id: &NodeId) -> bool {
    let Some(before) = former.get(id) else {
        return false;
    };
    homes
        .iter()
        .any(|home| home.lacks > 0 && home.shard.as_ref() == Some(before))
}

/// Gives the free members to the shards that lack some, in index order; who is left stays in `free`.
pub fn fill(topology: &Topology<'_>, homes: &mut [Home], free: &mut Vec<NodeId>, former: &Former) {
    let mut crowd: BTreeMap<&Text, usize> = BTreeMap::new();
    for id in homes.iter().flat_map(|home| &home.stays) {
        if let Some(place) = place(topology, id) {
            *crowd.entry(place).or_default() += 1;
        }
    }
    for at in 0..homes.len() {
        while let Some(next) = replica_for(topology, homes, at, free, &crowd, former) {
            free.retain(|id| *id != next);
            if let Some(place) = place(topology, &next) {
                *crowd.entry(place).or_default() += 1;
            }
            if let Some(home) = homes.get_mut(at) {
                home.lacks = home.lacks.saturating_sub(1);
                home.attach.push(next);
            }
        }
    }
    spread(topology, homes, free);
}

fn replica_for(
    topology: &Topology<'_>,
    homes: &[Home],
    at: usize,
    free: &[NodeId],
    crowd: &BTreeMap<&Text, usize>,
    former: &Former,
) -> Option<NodeId> {
    let home = homes.get(at).filter(|home| home.lacks > 0)?;
    let used = places(topology, home, None);
    let rank = |id: &&NodeId| {
        let place = place(topology, id);
        let here = home.shard.is_some() && former.get(id) == home.shard.as_ref();
        (
            !here,
            owes_its_place(homes, former, id),
            place.is_some_and(|place| used.contains(place)),
            place.and_then(|place| crowd.get(place)).copied().unwrap_or(0),
            // A primary follows nobody before its own replicas have gone elsewhere: these go first.
            topology.leads(id),
            topology.member(id).is_some_and(|member| !member.is_primary()),
            ordinal(topology, id),
        )
    };
    free.iter().min_by_key(rank).cloned()
}

/// Choosing shard by shard can leave the last one with members of one place only. Two newcomers change places where that
/// brings fewer shards with two members in one place.
fn spread(topology: &Topology<'_>, homes: &mut [Home], free: &mut [NodeId]) {
    // Each exchange ends one clash at least, so that there are no more of them than newcomers.
    let newcomers: usize = homes.iter().map(|home| home.attach.len()).sum();
    for _ in 0..newcomers {
        let Some((one, other)) = exchange(topology, homes, free) else {
            return;
        };
        for id in homes
            .iter_mut()
            .flat_map(|home| &mut home.attach)
            .chain(free.iter_mut())
        {
            if *id == one {
                *id = other.clone();
            } else if *id == other {
                *id = one.clone();
            }
        }
    }
}

/// Two newcomers of different shards, or one and a free member, that should change places.
fn exchange(topology: &Topology<'_>, homes: &[Home], free: &[NodeId]) -> Option<(NodeId, NodeId)> {
    let clashes = |home: &Home, without: &NodeId, with: &NodeId| {
        place(topology, with).is_some_and(|place| places(topology, home, Some(without)).contains(place))
    };
    for home in homes {
        for one in home.attach.iter().filter(|one| clashes(home, one, one)) {
            for third in homes.iter().filter(|third| third.primary != home.primary) {
                let fits = |other: &&NodeId| !clashes(home, one, other) && !clashes(third, other, one);
                if let Some(other) = third.attach.iter().find(fits) {
                    return Some((one.clone(), other.clone()));
                }
            }
            if let Some(other) = free.iter().find(|other| !clashes(home, one, other)) {
                return Some((one.clone(), other.clone()));
            }
        }
    }
    None
}

/// The places that a shard's members use, one of them apart.
fn places<'t>(topology: &Topology<'t>, home: &Home, without: Option<&NodeId>) -> BTreeSet<&'t Text> {
    let members = std::iter::once(&home.primary).chain(&home.stays).chain(&home.attach);
    members
        .filter(|id| Some(*id) != without)
        .filter(|id| topology.is_head_member(id))
        .filter_map(|id| place(topology, id))
        .collect()
}

fn place<'t>(topology: &Topology<'t>, id: &NodeId) -> Option<&'t Text> {
    topology.place_of(ordinal(topology, id)?)
}

fn ordinal(topology: &Topology<'_>, id: &NodeId) -> Option<Ordinal> {
    topology.member(id).and_then(|member: &Member| member.ordinal)
}
