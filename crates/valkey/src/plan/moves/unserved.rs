//! Slots that nobody serves (R26): given for the first time, waited for, or lost.

use std::collections::BTreeSet;

use usher_engine::{Finding, Stance, Tell};

use super::Field;
use crate::plan::join::forget;
use crate::plan::places::{Places, disagreement};
use crate::plan::slots;
use crate::plan::step::ClusterStep;
use crate::plan::terms::Terms;
use crate::plan::topology::{Shard, Topology};
use crate::plan::work::Work;
use crate::words::{NodeId, ShardId, SlotSet};

/// Slots whose data is gone for good, and that a person has to give up (`SlotsLost`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The shard that had them: `usher.dev/accept-data-loss` names it.
    pub shard: ShardId,
    /// Which.
    pub slots: SlotSet,
}

impl Lost {
    /// For people: what is lost, and what to do.
    pub fn message(&self) -> String {
        format!(
            "slots {} are lost: no volume of shard {} is there any more; bring one back, or give their keys up with the \
             annotation usher.dev/accept-data-loss: {}",
            self.slots, self.shard, self.shard
        )
    }
}

/// What is done about slots that nobody serves.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Unserved {
    /// Steps and reasons.
    pub work: Work,
    /// What only a person can decide; the cluster is Failed while there is any.
    pub lost: Vec<Lost>,
}

/// Gives slots that never had an owner, waits for owners that may come back, and makes anew what is gone for good and may
/// be.
pub fn unserved(topology: &Topology<'_>, places: &Places, terms: &Terms) -> Unserved {
    let mut result = Unserved::default();
    for shard in topology.owning().filter(|shard| !topology.primary_serves(shard)) {
        let copy = shard.members().any(|id| topology.says(id).is_some());
        match copy {
            // A replica lives, or the primary answers and is being demoted: R31 and R32 see to it.
            true => {}
            false if is_gone(topology, shard) => gone(topology, terms, shard, &mut result),
            false => wait(topology, shard, &mut result.work),
        }
    }
    if !topology.unowned.is_empty() {
        give(topology, places, terms, &mut result);
    }
    result
}

/// Whether nothing can bring a shard's data back: every pod of it answers as somebody else, or has another volume.
fn is_gone(topology: &Topology<'_>, shard: &Shard) -> bool {
    let bound = topology
        .past
        .bindings
        .iter()
        .filter(|binding| binding.shard == shard.id);
    let mut members: BTreeSet<&NodeId> = bound.map(|binding| &binding.id).collect();
    members.extend(shard.members());
    members.into_iter().all(|id| topology.is_gone(id))
}

fn wait(topology: &Topology<'_>, shard: &Shard, work: &mut Work) {
    let pods: BTreeSet<_> = shard.members().filter_map(|id| topology.member(id)?.ordinal).collect();
    let unheard: Vec<String> = topology
        .unheard
        .iter()
        .filter(|unheard| pods.contains(&unheard.ordinal))
        .map(ToString::to_string)
        .collect();
    let why = match unheard.is_empty() {
        true => format!("waiting for shard {} to come back", shard.id.as_str()),
        false => unheard.join("; "),
    };
    work.wait(
        "SlotsUnserved",
        format!("slots {} have no live owner: {why}", shard.slots),
    );
}

/// A shard whose data is gone: whoever took its place has joined, then its dead members are struck off everywhere, and the
/// slots are nobody's.
fn gone(topology: &Topology<'_>, terms: &Terms, shard: &Shard, result: &mut Unserved) {
    if !may_be_made_anew(terms, &shard.id) {
        result.lost.push(Lost {
            shard: shard.id.clone(),
            slots: shard.slots.clone(),
        });
        return;
    }
    let dead: BTreeSet<&NodeId> = shard.members().collect();
    let joins = topology.outside.keys().any(|ordinal| topology.is_head(*ordinal));
    if joins {
        let message = format!("slots {} are made anew when the new members have joined", shard.slots);
        return result.work.wait("SlotsUnserved", message);
    }
    if !topology.agrees_but_for(&dead) {
        return result.work.wait("ViewsDisagree", disagreement(topology));
    }
    for id in dead {
        let slots = topology
            .member(id)
            .map(|member| member.slots.clone())
            .unwrap_or_default();
        let given_up = forget(topology, id).into_iter().map(|step| match step {
            ClusterStep::Forget { member, by } => ClusterStep::ForgetLost {
                member,
                by,
                slots: slots.clone(),
            },
            step => step,
        });
        result.work.steps.extend(given_up);
    }
}

fn may_be_made_anew(terms: &Terms, shard: &ShardId) -> bool {
    !terms.persistent || terms.accepted_loss.as_ref() == Some(shard)
}

/// Slots that no view gives to anybody. Who had them gets them back where it lives; where nobody ever had them, or where
/// their data is given up, those who lack some get them, in index order.
fn give(topology: &Topology<'_>, places: &Places, terms: &Terms, result: &mut Unserved) {
    let mut free = topology.unowned.clone();
    let mut anew = SlotSet::new();
    let mut steps = Vec::new();
    for (shard, slots) in topology.remembered() {
        free = free.minus(&slots);
        let alive = topology
            .shard(&shard)
            .filter(|(_, shard)| topology.primary_serves(shard));
        match alive.and_then(|(_, shard)| topology.server(&shard.primary)) {
            Some(to) => steps.push(ClusterStep::AddSlots { to, slots }),
            None if may_be_made_anew(terms, &shard) => {
                anew = anew.union(&slots);
                free = free.union(&slots);
            }
            None => result.lost.push(Lost { shard, slots }),
        }
    }
    let why = match () {
        () if !topology.unheard.is_empty() => topology.unheard.first().map(ToString::to_string),
        () if topology.outside.keys().any(|ordinal| topology.is_head(*ordinal)) => {
            Some("some pods have not joined".into())
        }
        () if !topology.agrees() => Some(disagreement(topology)),
        () if places.missing > 0 || !places.has_primaries(topology) => {
            Some("some shards have no live primary yet".into())
        }
        () => None,
    };
    if let Some(why) = why {
        let slots = &topology.unowned;
        return result
            .work
            .wait("SlotsUnserved", format!("slots {slots} have no owner: {why}"));
    }
    let field = Field::of(topology, places);
    let targets = slots::targets(&field.holdings, field.slots);
    for (at, holding) in field.holdings.iter().enumerate() {
        let target = targets.get(at).copied().unwrap_or(0);
        let lacks = target.saturating_sub(holding.slots.count());
        // The last one takes what the others have no right to: nothing is left over.
        let last = at + 1 == places.homes.len();
        let slots = if last { free.clone() } else { free.lowest_of(lacks) };
        free = free.minus(&slots);
        let to = field.primary(at).and_then(|id| topology.server(id));
        if let Some(to) = to.filter(|_| !slots.is_empty()) {
            steps.push(ClusterStep::AddSlots { to, slots });
        }
    }
    result.work.steps.extend(steps);
    if !anew.is_empty() {
        let message = format!("slots {anew} are made anew, without the keys that they had");
        let finding = Finding::new(Stance::Doing, "SlotsRecreated", message);
        result.work.findings.push(finding.told(Tell::Warning));
    }
}
