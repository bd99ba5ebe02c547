//! What a cluster says of itself: status, conditions, events (section 9 of the spec).
//!
//! Nothing here decides. Status never claims more than was seen: what a server did not say is not counted, and a lag within
//! tolerance is no lag, so that a cluster at rest writes nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use usher_engine::condition::whole_seconds;
use usher_engine::{Condition, ConditionStatus, Conditions, Finding, Stance, Step, Tell};

use super::failover::LAG_MAX_BYTES;
use super::health;
use super::phase::{Happening, Hop, Phase};
use super::step::ClusterStep;
use super::topology::Topology;
use super::work::seconds_since;
use crate::api::{
    Cause, CauseClass, MasterTopology, Operation, ReplicaTopology, Roll, Scale, SlotMigration, Topology as Shown,
    ValkeyClusterStatus,
};
use crate::records::ClusterRecord;
use crate::words::NodeId;

/// Waiting without progress for this long is said aloud (5.10).
const PROGRESS_SECONDS: i64 = 600;

/// What a pass came to, for people.
#[derive(Debug)]
pub struct Account<'a> {
    /// The cluster.
    pub record: &'a ClusterRecord,
    /// As it was seen.
    pub topology: &'a Topology<'a>,
    /// The phase it is in now.
    pub phase: Phase,
    /// The hops of this pass.
    pub hops: &'a [Hop],
    /// What is not as it should be, the most telling first.
    pub troubles: &'a [String],
    /// Whether a pod that should be Ready is not.
    pub degraded: bool,
    /// Whether any pod is outdated.
    pub outdated: bool,
    /// `status.scale` from here on.
    pub scale: Option<Scale>,
    /// `status.slotMigration` from here on.
    pub slot_migration: Option<SlotMigration>,
    /// `status.roll` from here on.
    pub roll: Option<Roll>,
    /// Whether the roll stands.
    pub stalled: bool,
    /// Why it is Failed, and the sentence.
    pub failure: Option<(Cause, String)>,
    /// What is planned now.
    pub steps: &'a [ClusterStep],
    /// Why nothing else is.
    pub findings: &'a [Finding],
    /// Now.
    pub now: Timestamp,
}

impl Account<'_> {
    /// The status, whole.
    pub fn status(&self) -> ValkeyClusterStatus {
        let (record, topology, was) = (self.record, self.topology, &self.record.status);
        let pods = &topology.seen.pods;
        let ready = pods.values().filter(|pod| pod.ready).count();
        let served = health::served(topology).count();
        let entered = !self.hops.is_empty() && was.phase != Some(self.phase);
        let operation = self.operation();
        let same_operation = was.current_operation == operation;
        let auth = record.spec.auth.as_ref();
        let tls = record.spec.tls.as_ref();
        let (name, namespace) = (record.name(), record.meta.key.namespace());
        let mut status = ValkeyClusterStatus {
            phase: Some(self.phase),
            ready_nodes: format!("{ready}/{}", topology.size.pods()),
            ready_masters: number(topology.owning().filter(|shard| topology.primary_serves(shard)).count()),
            ready_replicas: number(ready),
            selector: record.selector(),
            assigned_slots: format!("{served}/{}", topology.seen.slots),
            observed_generation: Some(record.meta.generation),
            conditions: self.conditions(served),
            topology: Some(self.shown()),
            valkey_version: versions(topology).or_else(|| was.valkey_version.clone()),
            connection_endpoint: Some(format!(
                "{}://{name}.{namespace}.svc:6379",
                if tls.is_some() { "valkeys" } else { "valkey" }
            )),
            connection_secret: auth.map(|auth| auth.secret_ref.name.clone()),
            tls_secret: tls.map(|tls| tls.secret_name.clone().unwrap_or_else(|| format!("{name}-tls"))),
            current_operation: operation,
            operation_started_at: match operation {
                Some(_) if same_operation => was.operation_started_at,
                Some(_) => Some(whole_seconds(self.now)),
                None => None,
            },
            message: Some(self.message(served)),
            reconcile_count: was.reconcile_count,
            last_phase_transition: match entered {
                true => Some(whole_seconds(self.now)),
                false => was.last_phase_transition.or(Some(whole_seconds(self.now))),
            },
            recovery_attempts: was.recovery_attempts + i64::from(self.recovered()),
            last_recovery_attempt: match self.recovered() {
                true => Some(whole_seconds(self.now)),
                false => was.last_recovery_attempt,
            },
            last_error: self.last_error(),
            summary: Some(self.summary(ready, served)),
            scale: self.scale.clone(),
            slot_migration: self.slot_migration.clone(),
            roll: self.roll.clone(),
            failure: self.failure.as_ref().map(|(cause, _)| cause.clone()),
            bindings: topology
                .bindings()
                .iter()
                .map(|binding| binding.written(name))
                .collect(),
        };
        // Passes that have nothing to say are not counted: counting them would be something to say.
        if entered {
            status.reconcile_count = 1;
        } else if status != *was {
            status.reconcile_count += 1;
        }
        status
    }

    fn recovered(&self) -> bool {
        self.hops.iter().any(|hop| hop.event == Happening::RecoveryInitiated)
    }

    /// What is being done.
    fn operation(&self) -> Option<Operation> {
        match self.phase {
            Phase::Pending
            | Phase::Creating
            | Phase::WaitingForPods
            | Phase::InitializingCluster
            | Phase::AssigningSlots
            | Phase::ConfiguringReplicas => Some(Operation::Initializing),
            phase if phase.is_scaling() => Some(Operation::Scaling),
            Phase::Deleting | Phase::Failed => None,
            _ if self.roll.is_some() => Some(Operation::Rolling),
            _ => None,
        }
    }

    /// The sentence of what stands in the way, if anything does: the first of what is blocked, then of what is waited for.
    fn obstacle(&self) -> Option<&Finding> {
        let of = |stance: Stance| self.findings.iter().find(move |finding| finding.stance == stance);
        of(Stance::Blocked).or_else(|| of(Stance::Waiting))
    }

    fn last_error(&self) -> Option<String> {
        let failed = self.failure.as_ref().map(|(_, message)| message.clone());
        let blocked = self.findings.iter().find(|finding| finding.stance == Stance::Blocked);
        failed.or_else(|| blocked.map(|finding| finding.message.clone()))
    }

    fn message(&self, served: u16) -> String {
        if let Some((_, message)) = &self.failure {
            return message.clone();
        }
        if self.record.wishes.paused {
            return "paused; remove the annotation usher.dev/paused to go on".into();
        }
        if self.is_ready() {
            return self.all_well(served);
        }
        let steps = self.steps.first().map(Step::describe);
        let obstacle = self.obstacle().map(|finding| finding.message.clone());
        let trouble = self.troubles.first().cloned();
        obstacle
            .or(steps)
            .or(trouble)
            .unwrap_or_else(|| format!("{}: waiting for what was done to show", self.phase))
    }

    fn all_well(&self, served: u16) -> String {
        format!(
            "All {} nodes healthy, {served}/{} slots assigned",
            self.topology.size.pods(),
            self.topology.seen.slots
        )
    }

    fn summary(&self, ready: usize, served: u16) -> String {
        let size = self.topology.size;
        format!(
            "{}: {} shards with {} replicas each wanted; {ready}/{} pods Ready, {served}/{} slots served",
            self.phase,
            size.masters,
            size.replicas,
            size.pods(),
            self.topology.seen.slots
        )
    }

    /// I8: only when all is well, nothing is outdated and nothing is being done.
    fn is_ready(&self) -> bool {
        let rolls = self.outdated || self.roll.is_some() || self.topology.size.surge;
        self.phase == Phase::Running && self.troubles.is_empty() && !rolls
    }

    fn ready_reason(&self) -> &'static str {
        match self.phase {
            Phase::Pending | Phase::Creating => "Creating",
            Phase::WaitingForPods => "WaitingForPods",
            Phase::InitializingCluster => "Initializing",
            Phase::AssigningSlots => "AssigningSlots",
            Phase::ConfiguringReplicas => "ConfiguringReplicas",
            Phase::VerifyingClusterHealth => "VerifyingHealth",
            Phase::Running if self.outdated || self.roll.is_some() => "RollingUpdate",
            Phase::Running => "PodsNotReady",
            Phase::ScalingUpStatefulSet
            | Phase::WaitingForNewPods
            | Phase::AddingNodesToCluster
            | Phase::RebalancingSlots
            | Phase::ConfiguringNewReplicas => "ScaleUpInProgress",
            Phase::EvacuatingSlots | Phase::RemovingNodesFromCluster | Phase::ScalingDownStatefulSet => {
                "ScaleDownInProgress"
            }
            Phase::Degraded => "Degraded",
            Phase::Failed => match self.failure.as_ref().map(|(cause, _)| cause.class) {
                Some(CauseClass::Validation) => "ValidationFailed",
                _ => "ReconciliationFailed",
            },
            Phase::Deleting => "Deleting",
        }
    }

    fn conditions(&self, served: u16) -> Vec<Condition> {
        let (generation, now) = (self.record.meta.generation, self.now);
        let mut conditions = Conditions::from_existing(&self.record.status.conditions);
        let mut set = |kind, status: ConditionStatus, reason: &str, message: String| {
            conditions.set(kind, status, reason, message, generation, now);
        };
        let message = self.message(served);
        if self.is_ready() {
            set("Ready", true.into(), "ClusterHealthy", message.clone());
        } else {
            set("Ready", false.into(), self.ready_reason(), message.clone());
        }
        let (progresses, reason) = self.progress();
        set("Progressing", progresses.into(), reason, message);
        let formed = self.topology.past.owned_any();
        let all = self.topology.seen.slots;
        let lost = formed && served < all;
        match self.troubles.first() {
            Some(trouble) if self.degraded || lost => set("Degraded", true.into(), "ClusterDegraded", trouble.clone()),
            _ => set(
                "Degraded",
                false.into(),
                "ClusterHealthy",
                "nothing is missing that nobody planned".into(),
            ),
        }
        match served {
            served if served == all => set(
                "Available",
                true.into(),
                "AllSlotsServed",
                format!("{served}/{all} slots"),
            ),
            0 => set("Available", false.into(), "Unavailable", format!("0/{all} slots")),
            served => set(
                "Available",
                true.into(),
                "PartiallyAvailable",
                format!("{served}/{all} slots"),
            ),
        }
        if health::slots_rest(self.topology) && self.moves_left() == 0 {
            set(
                "SlotsStable",
                true.into(),
                "SlotsStable",
                "no slot is on its way".into(),
            );
        } else {
            set(
                "SlotsStable",
                false.into(),
                "SlotsMoving",
                "slots are on their way".into(),
            );
        }
        let (status, reason, message) = self.replicas_in_sync();
        set("ReplicasInSync", status, reason, message);
        conditions.into_vec()
    }

    fn moves_left(&self) -> i32 {
        let migration = self.slot_migration.as_ref();
        migration.map_or(0, |migration| migration.total.saturating_sub(migration.moved))
    }

    fn progress(&self) -> (bool, &'static str) {
        if self.is_ready() {
            return (false, "ReconcileComplete");
        }
        if self.phase == Phase::Failed {
            return (false, "ReconciliationFailed");
        }
        let since = self
            .record
            .status
            .last_phase_transition
            .filter(|_| self.hops.is_empty());
        let late = since.is_some_and(|since| seconds_since(since, self.now) >= PROGRESS_SECONDS);
        let idle = self.steps.is_empty() && health::slots_rest(self.topology);
        let in_roll = self.roll.as_ref().filter(|_| !self.stalled).is_some();
        match self.stalled || (late && idle && !in_roll) {
            true => (false, "ProgressDeadlineExceeded"),
            false => (true, "ReconcileInProgress"),
        }
    }

    fn replicas_in_sync(&self) -> (ConditionStatus, &'static str, String) {
        let topology = self.topology;
        let replicas: Vec<&NodeId> = topology.shards.iter().flat_map(|shard| &shard.replicas).collect();
        let lag = |id: &&&NodeId| topology.lag_bytes(id).is_some_and(|lag| lag > LAG_MAX_BYTES);
        let pod = |id: &NodeId| self.pod_of(id);
        if let Some(late) = replicas.iter().find(lag) {
            let message = format!("{} is more than 1 MiB behind its primary", pod(late));
            return (ConditionStatus::False, "ReplicaLagExceedsTolerance", message);
        }
        let mut unsynced = replicas.iter().filter(|id| !topology.link_up(id));
        match unsynced.next() {
            Some(one) if topology.says(one).is_some() => {
                let message = format!("{} is not linked to its primary", pod(one));
                (ConditionStatus::False, "ReplicaLinkDown", message)
            }
            Some(one) => (
                ConditionStatus::Unknown,
                "NotObserved",
                format!("{} does not answer", pod(one)),
            ),
            None => (
                ConditionStatus::True,
                "ReplicasInSync",
                format!("{} replicas in sync", replicas.len()),
            ),
        }
    }

    fn pod_of(&self, id: &NodeId) -> String {
        let ordinal = self.topology.member(id).and_then(|member| member.ordinal);
        ordinal.map_or_else(String::new, |ordinal| self.record.pod_name(ordinal).to_string())
    }

    /// Who serves what.
    fn shown(&self) -> Shown {
        let topology = self.topology;
        let replica = |id: &NodeId| ReplicaTopology {
            node_id: id.clone(),
            pod_name: self.pod_of(id),
            replication_lag: topology.lag_bytes(id).map(shown_lag),
            link_up: topology.link_up(id),
        };
        let masters = topology.shards.iter().map(|shard| MasterTopology {
            node_id: shard.primary.clone(),
            pod_name: self.pod_of(&shard.primary),
            shard_id: Some(shard.id.clone()),
            slot_ranges: shard.slots.ranges().iter().map(ToString::to_string).collect(),
            replicas: shard.replicas.iter().map(replica).collect(),
        });
        Shown {
            masters: masters.chain(self.remembered()).collect(),
        }
    }

    /// Shards that had slots which nobody owns now: as long as they are listed here, nobody takes the cluster for a new one.
    fn remembered(&self) -> impl Iterator<Item = MasterTopology> {
        let was = self.record.status.topology.as_ref();
        let before: BTreeMap<_, _> = was
            .into_iter()
            .flat_map(|was| &was.masters)
            .filter_map(|shard| Some((shard.shard_id.clone()?, shard.node_id.clone())))
            .collect();
        let remembered = self.topology.remembered().into_iter();
        remembered.filter_map(move |(shard, slots)| {
            Some(MasterTopology {
                node_id: before.get(&shard)?.clone(),
                pod_name: String::new(),
                shard_id: Some(shard),
                slot_ranges: slots.ranges().iter().map(ToString::to_string).collect(),
                replicas: Vec::new(),
            })
        })
    }

    /// Events: hops, steps begun, failovers that were not ours. What is blocked tells of itself.
    pub fn events(&self) -> Vec<Finding> {
        let mut events: Vec<Finding> = self.hops.iter().map(|hop| self.of_hop(hop)).collect();
        events.extend(self.failovers());
        events.extend(of_steps(self.steps));
        events.extend(self.repairs());
        events
    }

    fn of_hop(&self, hop: &Hop) -> Finding {
        let cause = self.failure.as_ref().map(|(cause, _)| cause);
        let (reason, tell) = match cause.filter(|_| hop.to == Phase::Failed) {
            Some(cause) if cause.reason == "SlotsLost" => ("SlotsLost", Tell::Warning),
            cause => reason_of(hop, cause.map(|cause| cause.class)),
        };
        let message = match (hop.to, &self.failure) {
            (Phase::Failed, Some((_, message))) => message.clone(),
            _ => format!("{} to {}", hop.from, hop.to),
        };
        let trouble = self.troubles.first().filter(|_| hop.to == Phase::Degraded);
        let message = trouble.cloned().unwrap_or(message);
        Finding::new(Stance::Done, reason, message).told(tell)
    }

    /// R8: members that are told of again where they are now.
    fn repairs(&self) -> Option<Finding> {
        let met = self.steps.iter().filter_map(|step| match step {
            ClusterStep::Meet { to, .. } => self.topology.member(&to.id),
            _ => None,
        });
        let mut pods: Vec<String> = met.map(|member| self.pod_of(&member.id)).collect();
        pods.sort_unstable();
        pods.dedup();
        let message = format!("the others are told where {} is now", pods.join(", "));
        let event = Finding::new(Stance::Doing, "AddressRepaired", message).told(Tell::Normal);
        (!pods.is_empty()).then_some(event)
    }

    /// R31: primaries that changed, planned or not.
    fn failovers(&self) -> Vec<Finding> {
        let topology = self.topology;
        let was = self.record.status.topology.as_ref();
        let before: BTreeMap<_, _> = was
            .into_iter()
            .flat_map(|was| &was.masters)
            .filter(|shard| !shard.slot_ranges.is_empty())
            .filter_map(|shard| Some((shard.shard_id.as_ref()?, &shard.node_id)))
            .collect();
        let mut findings = Vec::new();
        for (index, shard) in topology.shards.iter().enumerate().filter(|(_, shard)| shard.owns()) {
            let Some(old) = before.get(&shard.id).filter(|old| ***old != shard.primary) else {
                continue;
            };
            let (from, to) = (self.pod_of(old), self.pod_of(&shard.primary));
            let asked = topology.seen.memory.promised.get(&shard.id) == Some(&shard.primary);
            let live = topology.says(old).is_some();
            let (reason, tell) = match asked || live {
                true => ("HandedOver", Tell::Normal),
                false => ("FailoverObserved", Tell::Warning),
            };
            let message = format!("shard {index}: {to} took over from {from}");
            findings.push(Finding::new(Stance::Done, reason, message).told(tell));
        }
        findings
    }
}

/// Within tolerance it is none; beyond, whole MiB.
fn shown_lag(bytes: u64) -> i64 {
    let kept = if bytes <= LAG_MAX_BYTES { 0 } else { bytes >> 20 << 20 };
    i64::try_from(kept).unwrap_or(i64::MAX)
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// As the servers say; both ends where they differ.
fn versions(topology: &Topology<'_>) -> Option<String> {
    let all = || topology.views().map(|(_, says)| says.version);
    let (oldest, newest) = (all().min()?, all().max()?);
    match oldest == newest {
        true => Some(newest.to_string()),
        false => Some(format!("{oldest}..{newest}")),
    }
}

/// The event of a hop, in upstream's words where it has one.
fn reason_of(hop: &Hop, class: Option<CauseClass>) -> (&'static str, Tell) {
    use Happening as H;
    match (hop.from, hop.event) {
        (_, H::ResourcesApplied) => ("Creating", Tell::Normal),
        (_, H::StatefulSetReady) => ("ResourcesCreated", Tell::Normal),
        (Phase::WaitingForPods, H::PodsRunning) => ("PodsRunning", Tell::Normal),
        (_, H::PodsRunning) => ("NewPodsRunning", Tell::Normal),
        (_, H::ClusterMeetComplete) => ("ClusterMeet", Tell::Normal),
        (_, H::SlotsAssigned) => ("SlotsAssigned", Tell::Normal),
        (Phase::ConfiguringNewReplicas, H::ReplicasConfigured) => ("NewReplicasConfigured", Tell::Normal),
        (_, H::ReplicasConfigured) => ("ReplicasConfigured", Tell::Normal),
        (_, H::ScaleUpDetected) => ("ScaleUpDetected", Tell::Normal),
        (_, H::ScaleDownDetected) => ("ScaleDownDetected", Tell::Normal),
        (_, H::ReplicaScaleDownDetected) => ("ReplicaScaleDownDetected", Tell::Normal),
        (Phase::ScalingDownStatefulSet, H::StatefulSetScaled) => ("StatefulSetScaledDown", Tell::Normal),
        (_, H::StatefulSetScaled) => ("StatefulSetScaled", Tell::Normal),
        (_, H::NodesAdded) => ("NodesAdded", Tell::Normal),
        (_, H::SlotsRebalanced) => ("SlotsRebalanced", Tell::Normal),
        (_, H::SlotsMigrated) => ("SlotsEvacuated", Tell::Normal),
        (_, H::NodesRemoved) => ("NodesRemoved", Tell::Normal),
        (Phase::Degraded, H::ClusterHealthy) => ("Recovered", Tell::Normal),
        (_, H::ClusterHealthy) => ("ClusterVerified", Tell::Normal),
        (_, H::SpecChanged) => ("SpecChanged", Tell::Normal),
        (_, H::ReplicasDegraded) => ("Degraded", Tell::Warning),
        (_, H::ReconcileError) if class == Some(CauseClass::Validation) => ("ValidationFailed", Tell::Warning),
        (_, H::ReconcileError | H::PodsLost) => ("Failed", Tell::Warning),
        (_, H::RecoveryInitiated) => ("RecoveryInitiated", Tell::Normal),
        (_, H::DeletionRequested) => ("Deleting", Tell::Normal),
    }
}

/// One event per kind of step begun; what goes to many servers at once is told once.
fn of_steps(steps: &[ClusterStep]) -> Vec<Finding> {
    let mut events: Vec<Finding> = Vec::new();
    for step in steps {
        let (reason, tell) = match step {
            ClusterStep::Failover { .. } => ("HandingOver", Tell::Normal),
            ClusterStep::ForceFailover { .. } => ("FailoverForced", Tell::Warning),
            ClusterStep::MigrateSlots { .. } => ("SlotsMoving", Tell::Normal),
            ClusterStep::MoveSlotByKeys { .. } => ("FallbackKeyByKey", Tell::Quietly),
            ClusterStep::CleanMember { .. } => ("MemberCleaned", Tell::Normal),
            ClusterStep::ResetMember { .. } => ("MemberLeaving", Tell::Normal),
            ClusterStep::Forget { .. } => ("MemberForgotten", Tell::Normal),
            ClusterStep::ForgetLost { .. } => ("MemberForgotten", Tell::Warning),
            ClusterStep::DeletePod { .. } => ("RestartingPod", Tell::Normal),
            ClusterStep::SetReplicas { .. } => ("ResizingStatefulSet", Tell::Normal),
            ClusterStep::Detach { .. } => ("ReplicaDetached", Tell::Normal),
            _ => ("Doing", Tell::Quietly),
        };
        let message = match step {
            ClusterStep::Forget { member, .. } => format!("strike {} off every list", member.short()),
            ClusterStep::ForgetLost { member, slots, .. } => format!(
                "strike {} off every list, and give up slots {slots}, whose data is gone",
                member.short()
            ),
            step => step.describe(),
        };
        if !events.iter().any(|event| event.message == message) {
            events.push(Finding::new(Stance::Doing, reason, message).told(tell));
        }
    }
    events
}
