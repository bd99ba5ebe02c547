//! Open slots (R25): markers of moves key by key that nobody is finishing, looked for in every pass.

use std::collections::BTreeMap;

use super::Field;
use crate::plan::places::{Places, name};
use crate::plan::slots;
use crate::plan::step::ClusterStep;
use crate::plan::topology::{Standing, Topology};
use crate::plan::work::Work;
use crate::seen::OpenSlot;
use crate::words::{NodeId, Slot};

/// Who has which marker for a slot.
#[derive(Debug, Default)]
struct Markers<'a> {
    /// Those who give it, and to whom.
    giving: Vec<(&'a NodeId, &'a NodeId)>,
    /// Those who take it, and from whom.
    taking: Vec<(&'a NodeId, &'a NodeId)>,
}

fn markers<'a>(topology: &'a Topology<'_>) -> BTreeMap<Slot, Markers<'a>> {
    let mut markers: BTreeMap<Slot, Markers<'_>> = BTreeMap::new();
    // Replicas repeat what their primary says.
    for member in topology.standing(Standing::Live).filter(|member| member.is_primary()) {
        let line = topology.says(&member.id).and_then(|says| says.myself());
        for marker in line.into_iter().flat_map(|line| &line.open) {
            match marker {
                OpenSlot::Migrating { slot, to } => markers.entry(*slot).or_default().giving.push((&member.id, to)),
                OpenSlot::Importing { slot, from } => markers.entry(*slot).or_default().taking.push((&member.id, from)),
            }
        }
    }
    markers
}

/// Whether any slot is open.
pub fn has_open_slots(topology: &Topology<'_>) -> bool {
    !markers(topology).is_empty()
}

/// Whether this member has a marker.
pub fn is_open(topology: &Topology<'_>, id: &NodeId) -> bool {
    let line = topology.says(id).and_then(|says| says.myself());
    line.is_some_and(|line| !line.open.is_empty())
}

/// Closes what is open: what the plan wants to move is moved to its end, everything else goes back to its owner.
pub fn open_slots(topology: &Topology<'_>, places: &Places) -> Work {
    let mut work = Work::default();
    let field = Field::of(topology, places);
    for (slot, markers) in markers(topology) {
        let owner = topology.members.values().find(|member| member.slots.contains(slot));
        let Some(owner) = owner.map(|owner| &owner.id) else {
            continue;
        };
        let Some(owning) = topology.server(owner) else {
            let name = name(topology, owner);
            work.wait(
                "OpenSlot",
                format!("slot {} is open: waiting for {name}, which owns it", slot.0),
            );
            continue;
        };
        let goes_to = |to: &NodeId| markers.giving.contains(&(owner, to));
        let taker = markers.taking.iter().find(|(by, from)| *from == owner && goes_to(by));
        if let Some((to, _)) = taker.filter(|(to, _)| wants(&field, owner, to))
            && let (Some(to), Some((_, shard))) = (topology.server(to), topology.shard_of(owner))
        {
            work.steps.push(ClusterStep::MoveSlotByKeys {
                slot,
                from: owning,
                shard: shard.id.clone(),
                to,
            });
            continue;
        }
        // Whoever takes gives back before the owner's own marker goes: clients are sent along to the end.
        let takers = markers.taking.iter().map(|(on, _)| *on);
        let givers = markers.giving.iter().map(|(on, _)| *on);
        let mut closing: Vec<&NodeId> = takers.chain(givers).collect();
        closing.sort_by_key(|on| *on == owner);
        for on in closing {
            let Some(server) = topology.server(on) else {
                continue;
            };
            work.steps.push(ClusterStep::StabilizeSlot {
                slot,
                on: server,
                owner: (on != owner).then(|| owning.clone()),
            });
        }
    }
    work
}

/// Whether the plan moves slots from one to the other: the first has too many, the other too few.
fn wants(field: &Field<'_>, from: &NodeId, to: &NodeId) -> bool {
    let targets = slots::targets(&field.holdings, field.slots);
    let count = |id: &NodeId| {
        let at = field.at(id)?;
        Some((field.holdings.get(at)?.slots.count(), *targets.get(at)?))
    };
    let (Some((giver, least)), Some((taker, most))) = (count(from), count(to)) else {
        return false;
    };
    giver > least && taker < most
}
