//! The work of each phase (5.1): what is to be done before the next row of the table can be taken.

use super::facts::Ground;
use super::failover::{self, Urgency};
use super::phase::Phase;
use super::places::{Which, settle};
use super::step::{ClusterStep, Server};
use super::topology::Member;
use super::work::{Work, waiting};
use super::{join, leave, moves};
use crate::objects;

impl Ground<'_> {
    /// The work of a phase.
    pub(super) fn phase_work(&self, phase: Phase, unserved: &moves::Unserved) -> Work {
        let (topology, places) = (self.topology, self.places);
        let mut work = Work::default();
        match phase {
            Phase::WaitingForPods | Phase::Creating => work.and(self.follow_spec()),
            Phase::InitializingCluster | Phase::AssigningSlots if !self.formed() => {
                work.and(self.follow_spec());
                work.and(join::join(topology, self.now));
                if phase == Phase::AssigningSlots {
                    work.and(unserved.work.clone());
                }
            }
            Phase::ConfiguringReplicas | Phase::ConfiguringNewReplicas => {
                work.and(settle(topology, places, Which::All))
            }
            Phase::ScalingUpStatefulSet => work.steps.extend(leave::grow(topology)),
            Phase::WaitingForNewPods => {}
            Phase::AddingNodesToCluster => work.and(settle(topology, places, Which::New)),
            Phase::RebalancingSlots => {
                let moves = self.moves(phase);
                // A shard that is to take slots and lacks replicas gets them first, or both would wait for each other.
                let stands =
                    |moves: &moves::Moves| moves.left > 0 && moves.in_flight == 0 && moves.work.steps.is_empty();
                if moves.as_ref().is_some_and(stands) {
                    work.and(settle(topology, places, Which::All));
                }
                work.and(moves.map(|moves| moves.work).unwrap_or_default());
            }
            Phase::EvacuatingSlots => {
                work.and(settle(topology, places, Which::All));
                work.and(self.moves(phase).map(|moves| moves.work).unwrap_or_default());
                work.and(self.hand_over_tail());
            }
            Phase::RemovingNodesFromCluster => {
                let leave = leave::leave(topology, places, self.terms, self.now);
                let mut settle = settle(topology, places, Which::All);
                // Who is taken out in this pass need not be let go first.
                settle.steps.retain(|step| {
                    let out = |on: &Server| leave.steps.contains(&ClusterStep::ResetMember { on: on.clone() });
                    !matches!(step, ClusterStep::Detach { on } if out(on))
                });
                work.and(settle);
                work.and(leave);
            }
            Phase::ScalingDownStatefulSet => work.and(leave::shrink(topology)),
            Phase::Pending
            | Phase::VerifyingClusterHealth
            | Phase::Running
            | Phase::Degraded
            | Phase::Failed
            | Phase::Deleting
            | Phase::InitializingCluster
            | Phase::AssigningSlots => {}
        }
        if let Phase::WaitingForPods | Phase::WaitingForNewPods = phase {
            let unheard = topology
                .unheard
                .iter()
                .map(|unheard| waiting("WaitingForPods", unheard.to_string()));
            work.findings.extend(unheard);
        }
        work
    }

    /// Before the first slot has an owner the set just follows the spec, both ways; kept volumes apart (R9).
    fn follow_spec(&self) -> Work {
        let Some(set) = self.topology.seen.set.as_ref().filter(|set| set.ours) else {
            return Work::default();
        };
        let wanted = objects::set::first_size(self.record, &self.topology.seen.volumes);
        match self.formed() || wanted == set.replicas {
            true => Work::default(),
            false => Work::of(self.resize(set, wanted)),
        }
    }

    /// R17: a shard that stays hands over from a pod that does not.
    fn hand_over_tail(&self) -> Work {
        let topology = self.topology;
        let mut work = Work::default();
        for home in self.places.hand_overs(topology) {
            let Some((index, shard)) = home.shard.as_ref().and_then(|id| topology.shard(id)) else {
                continue;
            };
            let heads = |member: &Member| home.stays.contains(&member.id) && topology.is_head_member(&member.id);
            match failover::hand_over(topology, shard, Urgency::Planned, None, self.now, heads) {
                Ok(step) => {
                    work.steps.push(step);
                    return work;
                }
                Err(why) => work.wait(
                    "HandOverHeld",
                    format!("shard {index} is to be served by a pod that stays: {why}"),
                ),
            }
        }
        work
    }
}
