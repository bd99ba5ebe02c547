//! Ways to get it wrong. Each is a wrapper around what the shipped decisions are shown, or around what becomes of them, so
//! that it runs in every test run without a patched source. The search must find harm in each; one that it does not find
//! means that the search, or the rule, is worth nothing.

use jiff::Timestamp;
use usher_valkey::observe::{Answer, Observation, Says};
use usher_valkey::plan::step::{ClusterStep, Server};
use usher_valkey::records::ClusterRecord;
use usher_valkey::words::{Epoch, NodeId, Ordinal};

use super::Decision;

/// A forgotten guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// R21: a destination that has just joined counts as ready.
    NotReadyIsReady,
    /// R11: who leaves does not linger.
    NoLinger,
    /// R11: who leaves is forgotten, and not reset before.
    NoReset,
    /// R11: the set shrinks although views know the leaving.
    ShrinksEarly,
    /// R9: what is on a volume from an earlier life is not looked at.
    DirtyIsClean,
    /// R28, R30: primaries are restarted and removed without handing over.
    NoHandOver,
    /// R12: the highest ordinals are removed whoever they are.
    TailIsReplica,
    /// R35: all outdated pods at once.
    RestartsAll,
    /// R28: a hand-over does not ask the primary.
    TakesOver,
    /// R28: hand-overs of all shards at once.
    HandOversPileUp,
    /// R11: who leaves is reset before its slots have moved.
    ResetsBeforeMoving,
}

impl Mutant {
    pub const ALL: [Mutant; 11] = [
        Mutant::NotReadyIsReady,
        Mutant::NoLinger,
        Mutant::NoReset,
        Mutant::ShrinksEarly,
        Mutant::DirtyIsClean,
        Mutant::NoHandOver,
        Mutant::TailIsReplica,
        Mutant::RestartsAll,
        Mutant::TakesOver,
        Mutant::HandOversPileUp,
        Mutant::ResetsBeforeMoving,
    ];

    /// Whether steps do not look again before they act: a guard that stands twice is forgotten twice.
    pub fn is_blind(self) -> bool {
        true
    }

    /// What the decision is shown.
    pub fn sees(self, seen: &mut Observation) {
        match self {
            Mutant::NotReadyIsReady => each(seen, |says| says.state_ok = true),
            Mutant::NoLinger => {
                let long_ago = Timestamp::UNIX_EPOCH;
                seen.memory
                    .slotless_since
                    .values_mut()
                    .for_each(|since| *since = long_ago);
            }
            Mutant::DirtyIsClean => each(seen, |says| {
                if says.is_alone() {
                    says.keys = 0;
                    let id = says.id.clone();
                    if let Some(own) = says.view.get_mut(&id) {
                        own.slots = usher_valkey::words::SlotSet::new();
                        own.open.clear();
                    }
                }
            }),
            _ => {}
        }
    }

    /// What becomes of the decision.
    pub fn decides(self, decision: &mut Decision, record: &ClusterRecord) {
        match self {
            Mutant::NoReset => decision
                .steps
                .retain(|step| !matches!(step, ClusterStep::ResetMember { .. })),
            Mutant::ShrinksEarly | Mutant::TailIsReplica => {
                let early = self == Mutant::TailIsReplica
                    || decision
                        .steps
                        .iter()
                        .any(|step| matches!(step, ClusterStep::ResetMember { .. } | ClusterStep::Forget { .. }));
                let shrinks = decision.seen.set.as_ref().filter(|set| set.replicas > record.size());
                if let (true, Some(set)) = (early, shrinks) {
                    decision.steps = vec![ClusterStep::SetReplicas {
                        from: set.replicas,
                        to: record.size(),
                        set: set.uid.clone(),
                        revision: set.revision,
                    }];
                }
            }
            Mutant::NoHandOver | Mutant::RestartsAll => {
                let outdated = decision.seen.set.as_ref().and_then(|set| set.template.clone());
                let rolls = decision
                    .steps
                    .iter()
                    .any(|step| matches!(step, ClusterStep::Failover { .. } | ClusterStep::DeletePod { .. }));
                let pods = decision.seen.pods.values().filter(|pod| pod.template != outdated);
                let all: Vec<ClusterStep> = pods
                    .map(|pod| ClusterStep::DeletePod {
                        name: pod.name.clone(),
                        uid: pod.uid.clone(),
                        revision: pod.revision,
                        why: "mutant".into(),
                    })
                    .collect();
                let one = self == Mutant::NoHandOver;
                if rolls && !all.is_empty() {
                    decision.steps = all.into_iter().take(if one { 1 } else { usize::MAX }).collect();
                }
            }
            Mutant::TakesOver => {
                for step in &mut decision.steps {
                    if let ClusterStep::Failover { shard, to, .. } = step {
                        *step = ClusterStep::ForceFailover {
                            shard: shard.clone(),
                            to: to.clone(),
                            takeover: true,
                        };
                    }
                }
            }
            Mutant::HandOversPileUp => {
                let hands_over = decision
                    .steps
                    .iter()
                    .any(|step| matches!(step, ClusterStep::Failover { .. }));
                if hands_over {
                    decision.steps = every_hand_over(&decision.seen);
                }
            }
            Mutant::ResetsBeforeMoving => {
                let moves = decision
                    .steps
                    .iter()
                    .any(|step| matches!(step, ClusterStep::MigrateSlots { .. }));
                let leaving = decision.seen.pods.keys().filter(|at| at.0 >= record.size());
                let resets = leaving
                    .filter_map(|at| named(&decision.seen, *at))
                    .map(|on| ClusterStep::ResetMember { on });
                let resets: Vec<ClusterStep> = resets.collect();
                if moves && !resets.is_empty() {
                    decision.steps = resets;
                }
            }
            _ => {}
        }
    }
}

/// The server of a pod, as steps name it.
fn named(seen: &Observation, ordinal: Ordinal) -> Option<Server> {
    Some(Server {
        ordinal,
        pod: seen.pods.get(&ordinal)?.uid.clone(),
        id: seen.says(ordinal)?.id.clone(),
    })
}

/// Every replica takes over from its primary.
fn every_hand_over(seen: &Observation) -> Vec<ClusterStep> {
    let find = |id: &NodeId| {
        seen.pods
            .keys()
            .copied()
            .find(|at| seen.says(*at).is_some_and(|says| says.id == *id))
    };
    let mut steps = Vec::new();
    for ordinal in seen.pods.keys() {
        let Some(replica) = seen.says(*ordinal) else { continue };
        let Some(primary) = replica.myself().and_then(|own| own.primary.clone()) else {
            continue;
        };
        let Some(from) = find(&primary).and_then(|at| named(seen, at)) else {
            continue;
        };
        let Some(to) = named(seen, *ordinal) else { continue };
        let epoch = replica.view.get(&primary).map_or(Epoch(0), |peer| peer.epoch);
        let shard = replica.shard.clone();
        steps.push(ClusterStep::Failover { shard, from, to, epoch });
    }
    steps
}

fn each(seen: &mut Observation, mut change: impl FnMut(&mut Says)) {
    for answer in seen.answers.values_mut() {
        if let Answer::Says(says) = answer {
            change(says);
        }
    }
}
