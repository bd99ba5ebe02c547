//! Healing (R7): what is done in every phase once there is something to lose, Failed included.

use super::facts::Ground;
use super::phase::Phase;
use super::places::{Which, settle};
use super::step::ClusterStep;
use super::topology::Standing;
use super::work::Work;
use super::{failover, join, moves};
use crate::seen::SetSeen;

impl Ground<'_> {
    /// R7: healing goes on in every phase once there is something to lose, Failed included.
    pub(super) fn heal(&self, phase: Phase, unserved: &moves::Unserved) -> Work {
        let mut work = Work::default();
        if self.record.wishes.paused {
            return work;
        }
        if !self.formed() {
            return work;
        }
        work.and(self.raise_set());
        if self.topology.has_majority() {
            work.and(failover::terminating(self.topology, self.now));
        } else {
            work.block(
                "QuorumLost",
                "no majority of the primaries answers; nothing is changed but what brings them back",
            );
        }
        let topology = self.topology;
        work.and(join::addresses(topology, self.now));
        // New pods of a scale come in together, when all of them run.
        if !matches!(phase, Phase::ScalingUpStatefulSet | Phase::WaitingForNewPods) {
            work.and(join::join(topology, self.now));
        }
        work.and(join::forget_orphans(topology, self.terms, self.now));
        work.and(join::foreign(topology));
        work.and(failover::forced(topology, self.now));
        work.and(unserved.work.clone());
        if topology.has_majority() {
            work.and(moves::open_slots(topology, self.places));
            work.and(self.replace());
        }
        work
    }

    /// Somebody made the set smaller than its members: it is raised at once (5.9).
    fn raise_set(&self) -> Work {
        let Some(set) = self.topology.seen.set.as_ref().filter(|set| set.ours && !set.deleting) else {
            return Work::default();
        };
        let bound = self.topology.standing(Standing::Live);
        let bound = bound.chain(self.topology.standing(Standing::Silent));
        let needed = bound
            .filter_map(|member| Some(member.ordinal?.0 + 1))
            .max()
            .unwrap_or_default();
        match needed > set.replicas {
            true => Work::of(self.resize(set, needed)),
            false => Work::default(),
        }
    }

    pub(super) fn resize(&self, set: &SetSeen, to: u16) -> ClusterStep {
        ClusterStep::SetReplicas {
            from: set.replicas,
            to,
            set: set.uid.clone(),
            revision: set.revision,
        }
    }

    /// R10: a pod that came back as another member takes its old place again. While a roll is under way the scale path,
    /// which would do it, is closed: then whoever is free fills what is missing.
    fn replace(&self) -> Work {
        let rolls = self.record.status.roll.is_some() || self.outdated();
        let mut work = settle(self.topology, self.places, Which::All);
        work.steps.retain(|step| match step {
            ClusterStep::Replicate { on, .. } => {
                let home = self.places.home_of(&on.id).filter(|home| !home.is_new());
                home.is_some_and(|home| rolls || self.returns(home, &on.id))
            }
            _ => false,
        });
        work.findings.clear();
        work
    }
}
