//! What is true of a cluster as it was seen: the events of the phase table (5.1), worked out.

use std::time::Duration;

use jiff::Timestamp;
use usher_engine::Text;

use super::health::{self, DEGRADED_SECONDS, SCALE_HELD_SECONDS};
use super::leave;
use super::moves::{self, Leg, Moves};
use super::phase::{Facts, Hop, Phase, begins_scale};
use super::places::{Home, Places};
use super::roll;
use super::terms::Terms;
use super::topology::{Member, Standing, Topology};
use super::work::seconds_since;
use crate::objects::conf;
use crate::records::ClusterRecord;
use crate::seen::{PodPhase, PodSeen, RoleSaid};
use crate::words::{NodeId, Ordinal};

/// No pod Ready for this long: it is not just a restart (PodsLost).
const LOST_SECONDS: i64 = 30;

/// What decisions are made from.
#[derive(Debug, Clone, Copy)]
pub struct Ground<'a> {
    /// The cluster.
    pub record: &'a ClusterRecord,
    /// As it was seen.
    pub topology: &'a Topology<'a>,
    /// Who belongs where.
    pub places: &'a Places,
    /// The revision that the spec asks for.
    pub wanted: &'a Text,
    /// In which manner.
    pub terms: &'a Terms,
    /// Now.
    pub now: Timestamp,
}

impl Ground<'_> {
    /// Whether any slot has or had an owner: from then on there is something to lose.
    pub fn formed(&self) -> bool {
        self.topology.past.owned_any() || self.topology.owning().next().is_some()
    }

    /// S: the size of the set; 0 where there is none.
    pub fn set_size(&self) -> u16 {
        self.topology.seen.set.as_ref().map_or(0, |set| set.replicas)
    }

    /// N: how many pods are wanted.
    pub fn wanted_size(&self) -> u16 {
        self.topology.size.pods()
    }

    /// Whether any pod is of another revision than the spec asks for.
    pub fn outdated(&self) -> bool {
        let mut pods = self.topology.seen.pods.values();
        pods.any(|pod| roll::outdated(pod, self.wanted))
    }

    /// Whether pods are to be restarted, or one of them is down for that (R13: a roll comes before a scale).
    fn rolls(&self) -> bool {
        self.outdated() || self.record.status.roll.as_ref().is_some_and(|roll| roll.pod.is_some())
    }

    /// R5: not paused, nobody planned down, no roll pending, a majority answers, every slot is served. The spare pod of a
    /// roll needs only the last two.
    fn may_change(&self) -> bool {
        !self.rolls() && self.record.wishes.upgrade.is_none() && self.may_surge()
    }

    fn may_surge(&self) -> bool {
        let topology = self.topology;
        let strangers = topology.standing(Standing::Foreign).next().is_some();
        !self.record.wishes.paused && topology.has_majority() && topology.all_served() && !strangers
    }

    /// Pods 0..S-1 run, and each server has said who it is.
    fn pods_running(&self) -> bool {
        let seen = self.topology.seen;
        let runs = |pod: &PodSeen| pod.phase == PodPhase::Running && pod.deleting.is_none();
        let size = self.set_size();
        size > 0
            && (0..size)
                .map(Ordinal)
                .all(|at| seen.pods.get(&at).is_some_and(runs) && seen.says(at).is_some())
    }

    /// Every pod's member is in every view, connected, and nobody is being met.
    fn met(&self) -> bool {
        let topology = self.topology;
        let mut views = topology.views();
        let strangers = views.any(|(_, says)| says.view.values().any(|line| line.flags.handshake));
        let all_in = self.heads_are_in();
        let reached = topology
            .members
            .values()
            .filter(|member| member.is_live())
            .all(|member| !member.troubled);
        all_in && reached && !strangers
    }

    /// Every pod that stays is a member; one that does not stay need not join.
    fn heads_are_in(&self) -> bool {
        let heads = self.set_size().min(self.wanted_size());
        (0..heads)
            .map(Ordinal)
            .all(|at| self.topology.at(at).is_some_and(Member::is_live))
    }

    /// New shards have their replicas in sync, and say themselves that the cluster is well (R21).
    fn new_shards_ready(&self) -> bool {
        let topology = self.topology;
        let ready = |home: &Home| {
            let says = topology.says(&home.primary);
            let linked = |id: &NodeId| *id == home.primary || topology.link_up(id);
            home.lacks == 0
                && home.attach.is_empty()
                && home.stays.iter().all(linked)
                && says.is_some_and(|says| says.state_ok && matches!(says.role, RoleSaid::Primary { .. }))
        };
        self.places.missing == 0 && self.places.homes.iter().filter(|home| home.is_new()).all(ready)
    }

    /// The moves of this phase; none where it has none.
    pub fn moves(&self, phase: Phase) -> Option<Moves> {
        let leg = match phase {
            Phase::RebalancingSlots => Leg::Grow,
            Phase::EvacuatingSlots => Leg::Shrink,
            _ => return None,
        };
        let on_record = self.record.status.slot_migration.as_ref();
        let begun = on_record.filter(|_| self.record.status.phase == Some(phase) && !self.resized());
        Some(moves::next(
            self.topology,
            self.places,
            self.terms,
            leg,
            begun,
            self.now,
        ))
    }

    /// Nobody is to be attached, and every replica of a shard that stays is in sync.
    fn replicas_configured(&self) -> bool {
        let topology = self.topology;
        let homes = &self.places.homes;
        let linked = homes
            .iter()
            .flat_map(|home| home.stays.iter().filter(|id| **id != home.primary));
        topology.agrees() && self.places.is_settled(topology) && linked.into_iter().all(|id| topology.link_up(id))
    }

    /// R10: whether a member sits on a pod that was another member of this shard before.
    pub fn returns(&self, home: &Home, id: &NodeId) -> bool {
        let at = self.topology.member(id).and_then(|member| member.ordinal);
        let mut before = self
            .topology
            .past
            .bindings
            .iter()
            .filter(|old| Some(old.ordinal) == at && old.id != *id);
        before.any(|old| home.shard.as_ref() == Some(&old.shard))
    }

    /// Whether a free member is to be attached. One that returns to its old shard is healed, and no reason to scale.
    fn attach_due(&self) -> bool {
        let homes = &mut self.places.homes.iter();
        homes.any(|home| home.attach.iter().any(|id| !self.returns(home, id)))
    }

    /// A pod that should be Ready and is not: nobody planned it, and it is none that has yet to come.
    pub fn missed(&self, phase: Phase) -> Option<&PodSeen> {
        let seconds = if phase.is_scaling() {
            SCALE_HELD_SECONDS
        } else {
            DEGRADED_SECONDS
        };
        let planned = roll::planned_down(self.record.status.roll.as_ref(), self.now);
        let ready = self.topology.seen.pods.values().any(|pod| pod.ready);
        let excused = |at: Ordinal, pod: &PodSeen| {
            let new = phase.is_scaling() && self.is_new(at);
            planned == Some(pod.name.as_str()) || !self.topology.is_head(at) || new
        };
        let missing = health::missing(self.topology, seconds, self.now, excused);
        missing.filter(|_| ready && self.formed())
    }

    /// Whether a pod was never a member, as far as status and the servers tell.
    pub fn is_new(&self, at: Ordinal) -> bool {
        let bound = self.topology.past.bindings.iter().any(|binding| binding.ordinal == at);
        !bound && self.topology.at(at).is_none()
    }

    /// Whether the sizes are other ones than those of the scale on record (R6).
    pub fn resized(&self) -> bool {
        let scale = self.record.status.scale.as_ref();
        let spec = &self.record.spec;
        scale
            .is_some_and(|scale| (scale.masters, scale.replicas_per_master) != (spec.masters, spec.replicas_per_master))
    }

    fn lost(&self) -> bool {
        let since = self.topology.seen.memory.none_ready_since;
        self.formed() && since.is_some_and(|since| seconds_since(since, self.now) >= LOST_SECONDS)
    }

    /// All of it, in this phase and after these hops.
    pub fn facts(&self, phase: Phase, hops: &[Hop], judged: Judged) -> Facts {
        let (record, topology, places) = (self.record, self.topology, self.places);
        let seen = topology.seen;
        let (size, wanted) = (self.set_size(), self.wanted_size());
        let owning = topology.owning().count();
        let masters = usize::from(topology.size.masters);
        let formed = self.formed();
        let leaving_owns = topology.leaving().any(|member| !member.slots.is_empty());
        let rest = health::slots_rest(topology);
        let moved = self.moves(phase).is_none_or(|moves| moves.is_done()) && rest;
        // With more shards than wanted nothing moves before the way down (R18).
        let unbalanced =
            self.terms.balances && rest && places.drain.is_empty() && moves::is_out_of_balance(topology, places);
        let attach_due = self.attach_due();
        let set_ours = seen.set.as_ref().is_some_and(|set| set.ours && !set.deleting);
        let pods_exist = (0..size).all(|at| seen.pods.contains_key(&Ordinal(at)));
        let beyond = seen.pods.keys().any(|at| at.0 >= size);
        let spare_is_asked_for = topology.size.surge;
        Facts {
            deletion_requested: record.meta.deleting.is_some(),
            failure: judged.failure,
            recovery: judged.recovery,
            pods_lost: self.lost(),
            resources_applied: seen.objects.unsettled.is_empty(),
            set_ready: set_ours,
            pods_running: self.pods_running(),
            met: self.met(),
            agreed: topology.agrees(),
            slots_assigned: topology.unowned.is_empty(),
            replicas_configured: self.replicas_configured(),
            healthy: judged.healthy,
            degraded: self.missed(phase).is_some(),
            spec_changed: record.status.observed_generation != Some(record.meta.generation),
            resized: self.resized() && !hops.iter().any(begins_scale),
            may_change: self.may_change(),
            may_surge: spare_is_asked_for && size < wanted && self.may_surge(),
            grow: formed && (size < wanted || owning < masters || attach_due || unbalanced),
            // A job on its way to one that leaves is called off on the way down.
            shrink: formed && (owning > masters || (size > wanted && (leaving_owns || !rest))),
            shed: formed && size > wanted && owning == masters && !leaving_owns && rest,
            set_grown: set_ours && size >= wanted && pods_exist,
            set_shrunk: set_ours && size == wanted && !beyond,
            nodes_added: self.heads_are_in() && topology.agrees() && self.new_shards_ready(),
            rebalanced: moved,
            evacuated: !leaving_owns && places.drain.is_empty(),
            leaving_owns,
            nodes_removed: leave::all_left(topology).is_ok() && self.replicas_configured(),
        }
    }
}

/// What is worked out once a pass, whatever the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// Something that only a change of the spec or a person mends.
    pub failure: bool,
    /// … and the one on record may be over.
    pub recovery: bool,
    /// Nothing is as it should not be.
    pub healthy: bool,
}

/// The manner in which this cluster is changed.
pub fn terms(record: &ClusterRecord) -> Terms {
    let wishes = &record.wishes;
    Terms {
        node_timeout: Duration::from_millis(conf::node_timeout_ms(record)),
        linger: wishes.linger,
        max_migrations: wishes.max_migrations.into(),
        balances: wishes.balance,
        persistent: record.spec.persistence.enabled,
        accepted_loss: wishes.accept_data_loss.clone(),
    }
}
