//! The phases of a cluster: one table, which runs, is listed by tests and drawn in `docs/valkey.md`.
//!
//! An event is something that is true of what was seen ([`Facts`]); nothing is remembered but the phase itself. A pass makes
//! several hops while the phases on the way have nothing to do, and at most [`HOPS_MAX`].

use usher_engine::fsm::{self, Event, Guard, Row, State, Table};

pub use crate::api::Phase;
use Phase::{
    AddingNodesToCluster, AssigningSlots, ConfiguringNewReplicas, ConfiguringReplicas, Creating, Degraded, Deleting,
    EvacuatingSlots, Failed, InitializingCluster, Pending, RebalancingSlots, RemovingNodesFromCluster, Running,
    ScalingDownStatefulSet, ScalingUpStatefulSet, VerifyingClusterHealth, WaitingForNewPods, WaitingForPods,
};

/// A pass makes no more hops than this: there are 19 phases, and none is entered twice by the same way.
pub const HOPS_MAX: usize = 20;

/// One change of phase.
pub type Hop = fsm::Hop<Phase, Happening>;

/// What can lead from one phase to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Happening {
    /// Every owned object but the set is as rendered.
    ResourcesApplied,
    /// The set exists and is ours.
    StatefulSetReady,
    /// All pods run, and every server has said who it is.
    PodsRunning,
    /// Every member is in every view.
    ClusterMeetComplete,
    /// Every slot has an owner.
    SlotsAssigned,
    /// Every shard has the replicas it can have.
    ReplicasConfigured,
    /// All is as the spec says.
    ClusterHealthy,
    /// The spec is newer than what was planned for.
    SpecChanged,
    /// More pods, more shards, more replicas, or slots in other places.
    ScaleUpDetected,
    /// Fewer, and slots are where they cannot stay.
    ScaleDownDetected,
    /// Fewer, and no slot has to move for it.
    ReplicaScaleDownDetected,
    /// The set has the size it should have.
    StatefulSetScaled,
    /// New members are known and ready for slots.
    NodesAdded,
    /// No slot has to move any more.
    SlotsRebalanced,
    /// … and those that leave have none.
    SlotsMigrated,
    /// Nobody knows those that left.
    NodesRemoved,
    /// A pod that should be Ready is not.
    ReplicasDegraded,
    /// The spec cannot be served, or a person must act.
    ReconcileError,
    /// … and that may be over.
    RecoveryInitiated,
    /// No pod at all is Ready.
    PodsLost,
    /// The cluster is to go.
    DeletionRequested,
}

/// What is true of a cluster as it was seen: the events and guards of the table, nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one event or guard of the spec's table"
)]
pub struct Facts {
    /// It carries a deletion mark.
    pub deletion_requested: bool,
    /// Something that only a change of the spec or a person mends.
    pub failure: bool,
    /// The failure on record may be over: a new generation, its cause is gone, or somebody asked to try again.
    pub recovery: bool,
    /// No pod was Ready for 30 s.
    pub pods_lost: bool,
    /// All objects but the set are as rendered.
    pub resources_applied: bool,
    /// The set exists and is ours.
    pub set_ready: bool,
    /// Pods 0..S-1 run and have said who they are.
    pub pods_running: bool,
    /// Every pod's member is in every view, and connected.
    pub met: bool,
    /// Views agree (R3).
    pub agreed: bool,
    /// Every slot is owned.
    pub slots_assigned: bool,
    /// No attachment is due, every link is up.
    pub replicas_configured: bool,
    /// ClusterHealthy, whole.
    pub healthy: bool,
    /// Some pod that should be Ready is not (10 s; 60 s in a scale).
    pub degraded: bool,
    /// The generation is newer than what was planned for.
    pub spec_changed: bool,
    /// The sizes differ from those of the scale on record (R6).
    pub resized: bool,
    /// R5.
    pub may_change: bool,
    /// The surge pod may come: it needs less than R5.
    pub may_surge: bool,
    /// Something is to grow.
    pub grow: bool,
    /// Something is to shrink, and slots must move or be handed over.
    pub shrink: bool,
    /// Pods are to go that own nothing.
    pub shed: bool,
    /// S is at least what is wanted, and the pod objects are there.
    pub set_grown: bool,
    /// S is what is wanted, and no pod object is beyond.
    pub set_shrunk: bool,
    /// New members are known to all, new shards have their replicas, every destination is ready (R21).
    pub nodes_added: bool,
    /// No move left, none in flight, no open slot.
    pub rebalanced: bool,
    /// No leaving and no drained member owns a slot.
    pub evacuated: bool,
    /// A leaving member owns slots.
    pub leaving_owns: bool,
    /// No view knows a leaving member; re-homed members are replicas with their link up.
    pub nodes_removed: bool,
}

impl Event<Facts> for Happening {
    fn name(self) -> &'static str {
        match self {
            Self::ResourcesApplied => "ResourcesApplied",
            Self::StatefulSetReady => "StatefulSetReady",
            Self::PodsRunning => "PodsRunning",
            Self::ClusterMeetComplete => "ClusterMeetComplete",
            Self::SlotsAssigned => "SlotsAssigned",
            Self::ReplicasConfigured => "ReplicasConfigured",
            Self::ClusterHealthy => "ClusterHealthy",
            Self::SpecChanged => "SpecChanged",
            Self::ScaleUpDetected => "ScaleUpDetected",
            Self::ScaleDownDetected => "ScaleDownDetected",
            Self::ReplicaScaleDownDetected => "ReplicaScaleDownDetected",
            Self::StatefulSetScaled => "StatefulSetScaled",
            Self::NodesAdded => "NodesAdded",
            Self::SlotsRebalanced => "SlotsRebalanced",
            Self::SlotsMigrated => "SlotsMigrated",
            Self::NodesRemoved => "NodesRemoved",
            Self::ReplicasDegraded => "ReplicasDegraded",
            Self::ReconcileError => "ReconcileError",
            Self::RecoveryInitiated => "RecoveryInitiated",
            Self::PodsLost => "PodsLost",
            Self::DeletionRequested => "DeletionRequested",
        }
    }

    fn holds(self, facts: &Facts) -> bool {
        match self {
            Self::ResourcesApplied => facts.resources_applied,
            Self::StatefulSetReady => facts.set_ready,
            Self::PodsRunning => facts.pods_running,
            Self::ClusterMeetComplete => facts.met,
            Self::SlotsAssigned => facts.slots_assigned,
            Self::ReplicasConfigured => facts.replicas_configured,
            Self::ClusterHealthy => facts.healthy,
            Self::SpecChanged => facts.spec_changed || facts.resized,
            Self::ScaleUpDetected => facts.grow,
            Self::ScaleDownDetected => facts.shrink || facts.leaving_owns,
            Self::ReplicaScaleDownDetected => facts.shed,
            Self::StatefulSetScaled => facts.set_grown || facts.set_shrunk,
            Self::NodesAdded => facts.nodes_added,
            Self::SlotsRebalanced => facts.rebalanced,
            Self::SlotsMigrated => facts.rebalanced && facts.evacuated,
            Self::NodesRemoved => facts.nodes_removed,
            Self::ReplicasDegraded => facts.degraded,
            Self::ReconcileError => facts.failure,
            Self::RecoveryInitiated => facts.recovery,
            Self::PodsLost => facts.pods_lost,
            Self::DeletionRequested => facts.deletion_requested,
        }
    }
}

impl State for Phase {
    const ALL: &'static [Self] = &Phase::ALL;

    fn name(self) -> &'static str {
        match self {
            Pending => "Pending",
            Creating => "Creating",
            WaitingForPods => "WaitingForPods",
            InitializingCluster => "InitializingCluster",
            AssigningSlots => "AssigningSlots",
            ConfiguringReplicas => "ConfiguringReplicas",
            VerifyingClusterHealth => "VerifyingClusterHealth",
            Running => "Running",
            ScalingUpStatefulSet => "ScalingUpStatefulSet",
            WaitingForNewPods => "WaitingForNewPods",
            AddingNodesToCluster => "AddingNodesToCluster",
            RebalancingSlots => "RebalancingSlots",
            ConfiguringNewReplicas => "ConfiguringNewReplicas",
            EvacuatingSlots => "EvacuatingSlots",
            RemovingNodesFromCluster => "RemovingNodesFromCluster",
            ScalingDownStatefulSet => "ScalingDownStatefulSet",
            Degraded => "Degraded",
            Failed => "Failed",
            Deleting => "Deleting",
        }
    }
}

/// The phases of a scale.
pub const SCALING: &[Phase] = &[
    ScalingUpStatefulSet,
    WaitingForNewPods,
    AddingNodesToCluster,
    RebalancingSlots,
    ConfiguringNewReplicas,
    EvacuatingSlots,
    RemovingNodesFromCluster,
    ScalingDownStatefulSet,
];

/// Where a scale can begin.
const AT_REST: &[Phase] = &[Running, Degraded, VerifyingClusterHealth];

const fn row(from: &'static [Phase], event: Happening, to: Phase) -> Row<Phase, Happening, Facts> {
    Row {
        from,
        event,
        guard: None,
        to,
    }
}

const fn guarded(
    from: &'static [Phase],
    event: Happening,
    guard: (&'static str, fn(&Facts) -> bool),
    to: Phase,
) -> Row<Phase, Happening, Facts> {
    Row {
        from,
        event,
        guard: Some(Guard::new(guard.0, guard.1)),
        to,
    }
}

/// The table. Where several rows apply, the first is taken: what ends a cluster's life or stops it comes before what it would
/// do next, growing before shrinking (R13), and a lost pod before all of that.
pub const TABLE: Table<Phase, Happening, Facts> = Table {
    rows: &[
        row(
            &[
                Pending,
                Creating,
                WaitingForPods,
                InitializingCluster,
                AssigningSlots,
                ConfiguringReplicas,
                VerifyingClusterHealth,
                Running,
                ScalingUpStatefulSet,
                WaitingForNewPods,
                AddingNodesToCluster,
                RebalancingSlots,
                ConfiguringNewReplicas,
                EvacuatingSlots,
                RemovingNodesFromCluster,
                ScalingDownStatefulSet,
                Degraded,
                Failed,
            ],
            Happening::DeletionRequested,
            Deleting,
        ),
        guarded(
            &[
                Pending,
                Creating,
                WaitingForPods,
                InitializingCluster,
                AssigningSlots,
                ConfiguringReplicas,
                VerifyingClusterHealth,
                Running,
                ScalingUpStatefulSet,
                WaitingForNewPods,
                AddingNodesToCluster,
                RebalancingSlots,
                ConfiguringNewReplicas,
                EvacuatingSlots,
                RemovingNodesFromCluster,
                ScalingDownStatefulSet,
                Degraded,
            ],
            Happening::ReconcileError,
            ("validation or permanent", |facts| facts.failure),
            Failed,
        ),
        row(
            &[
                Running,
                Degraded,
                VerifyingClusterHealth,
                ScalingUpStatefulSet,
                WaitingForNewPods,
                AddingNodesToCluster,
                RebalancingSlots,
                ConfiguringNewReplicas,
                EvacuatingSlots,
                RemovingNodesFromCluster,
                ScalingDownStatefulSet,
            ],
            Happening::PodsLost,
            Failed,
        ),
        row(&[Failed], Happening::RecoveryInitiated, Pending),
        // Creation.
        guarded(
            &[Pending],
            Happening::ResourcesApplied,
            ("the spec is valid", |facts| !facts.failure),
            Creating,
        ),
        row(&[Creating], Happening::StatefulSetReady, WaitingForPods),
        guarded(
            &[WaitingForPods],
            Happening::PodsRunning,
            ("all pods run", |facts| facts.pods_running),
            InitializingCluster,
        ),
        guarded(
            &[InitializingCluster],
            Happening::ClusterMeetComplete,
            ("views agree", |facts| facts.agreed),
            AssigningSlots,
        ),
        guarded(
            &[AssigningSlots],
            Happening::SlotsAssigned,
            ("every slot is owned", |facts| facts.slots_assigned),
            ConfiguringReplicas,
        ),
        row(
            &[ConfiguringReplicas],
            Happening::ReplicasConfigured,
            VerifyingClusterHealth,
        ),
        // A scale that is not wanted any more, and one that is held by a lost pod.
        guarded(
            SCALING,
            Happening::SpecChanged,
            ("the sizes are not those of this scale", |facts| facts.resized),
            VerifyingClusterHealth,
        ),
        row(
            &[
                Running,
                VerifyingClusterHealth,
                WaitingForPods,
                ScalingUpStatefulSet,
                WaitingForNewPods,
                AddingNodesToCluster,
                RebalancingSlots,
                ConfiguringNewReplicas,
                EvacuatingSlots,
                RemovingNodesFromCluster,
                ScalingDownStatefulSet,
            ],
            Happening::ReplicasDegraded,
            Degraded,
        ),
        // Where a scale begins.
        guarded(
            AT_REST,
            Happening::ScaleUpDetected,
            ("it may change (R5)", |facts| {
                (facts.may_change || facts.may_surge) && (!facts.degraded || facts.resized)
            }),
            ScalingUpStatefulSet,
        ),
        guarded(
            AT_REST,
            Happening::ScaleDownDetected,
            ("it may change (R5), and nothing is to grow", |facts| {
                facts.may_change && !facts.grow && facts.shrink && (!facts.degraded || facts.resized)
            }),
            EvacuatingSlots,
        ),
        guarded(
            AT_REST,
            Happening::ReplicaScaleDownDetected,
            ("it may change (R5), and nothing is to grow", |facts| {
                facts.may_change && !facts.grow && (!facts.degraded || facts.resized)
            }),
            RemovingNodesFromCluster,
        ),
        // Growing.
        guarded(
            &[ScalingUpStatefulSet],
            Happening::StatefulSetScaled,
            ("its pods are there", |facts| facts.set_grown),
            WaitingForNewPods,
        ),
        guarded(
            &[WaitingForNewPods],
            Happening::PodsRunning,
            ("all pods run", |facts| facts.pods_running),
            AddingNodesToCluster,
        ),
        row(&[AddingNodesToCluster], Happening::NodesAdded, RebalancingSlots),
        row(&[RebalancingSlots], Happening::SlotsRebalanced, ConfiguringNewReplicas),
        row(
            &[ConfiguringNewReplicas],
            Happening::ReplicasConfigured,
            VerifyingClusterHealth,
        ),
        // Shrinking.
        guarded(
            &[EvacuatingSlots],
            Happening::SlotsMigrated,
            ("no leaving or drained member owns slots", |facts| facts.evacuated),
            RemovingNodesFromCluster,
        ),
        guarded(
            &[RemovingNodesFromCluster],
            Happening::ScaleDownDetected,
            ("a leaving member owns slots", |facts| facts.leaving_owns),
            EvacuatingSlots,
        ),
        row(
            &[RemovingNodesFromCluster],
            Happening::NodesRemoved,
            ScalingDownStatefulSet,
        ),
        guarded(
            &[ScalingDownStatefulSet],
            Happening::StatefulSetScaled,
            ("no pod is beyond its size", |facts| facts.set_shrunk),
            VerifyingClusterHealth,
        ),
        // At rest.
        guarded(
            &[VerifyingClusterHealth],
            Happening::ClusterHealthy,
            ("healthy, every slot is assigned", |facts| facts.slots_assigned),
            Running,
        ),
        guarded(
            &[Degraded],
            Happening::ClusterHealthy,
            ("all pods are Ready, healthy, every slot is assigned", |facts| {
                facts.slots_assigned && !facts.degraded
            }),
            Running,
        ),
        guarded(
            &[Running],
            Happening::SpecChanged,
            ("no scale event", |facts| !facts.grow && !facts.shrink && !facts.shed),
            Running,
        ),
    ],
};

/// The hops of one pass: from `phase`, as long as a row applies and the phase reached has nothing to do itself. `facts` are
/// what is true in a phase, after the hops made so far: a scale that has just begun is not superseded.
pub fn run(phase: Phase, facts: impl Fn(Phase, &[Hop]) -> Facts, due: impl Fn(Phase) -> bool) -> Vec<Hop> {
    let mut made: Vec<Hop> = Vec::new();
    let mut at = phase;
    while made.len() < HOPS_MAX {
        let next = TABLE.next_but(at, &facts(at, &made), &made);
        let Some(hop) = next.filter(|hop| is_urgent(hop) || !due(at)) else {
            break;
        };
        made.push(hop);
        at = hop.to;
    }
    made
}

/// Whether a hop is made although the phase has work: what stops it, and what makes its work pointless.
fn is_urgent(hop: &Hop) -> bool {
    matches!(hop.to, Deleting | Failed | Degraded) || hop.event == Happening::SpecChanged
}

/// Whether a hop begins a scale.
pub fn begins_scale(hop: &Hop) -> bool {
    AT_REST.contains(&hop.from)
        && matches!(
            hop.event,
            Happening::ScaleUpDetected | Happening::ScaleDownDetected | Happening::ReplicaScaleDownDetected
        )
}

/// `docs/valkey.md`: the guide, and the table as a drawing and as a list. `note` says where it comes from.
pub fn page(note: &str) -> String {
    let (drawing, rows) = (TABLE.mermaid(Pending), TABLE.rows_as_markdown());
    format!(
        "<!-- {note} The text is in crates/valkey/src/guide.md, the table in crates/valkey/src/plan/phase.rs. -->\n\n\
         {guide}## Phases\n\n\
         `status.phase` moves only along this table: it is what runs, and the drawing is made from it. What leads away from many\n\
         phases is in the list below it. Where several rows apply, the first is taken; a pass makes at most {HOPS_MAX} of these\n\
         steps.\n\n\
         ```mermaid\n{drawing}```\n\n{rows}",
        guide = include_str!("../guide.md"),
    )
}

#[cfg(test)]
mod tests;
