//! What a ValkeyCluster is: what was seen, and what is being done about it.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use usher_engine::{Condition, ErrorClass};

use crate::words::{NodeId, ShardId};

/// What a ValkeyCluster is.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyClusterStatus {
    /// Where it is on its way; changes only along the table in docs/valkey.md.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Ready pods of those wanted: `5/6`.
    #[serde(default)]
    pub ready_nodes: String,
    /// Reachable primaries that own slots.
    #[serde(default)]
    pub ready_masters: i32,
    /// Ready pods of all roles.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Selects its pods.
    #[serde(default)]
    pub selector: String,
    /// Slots that a primary serves: `16384/16384`.
    #[serde(default)]
    pub assigned_slots: String,
    /// The generation this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Progressing, Degraded, Available, SlotsStable, ReplicasInSync, TLSReady.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::conditions")]
    pub conditions: Vec<Condition>,
    /// Who serves what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// As the servers say: `9.1.2`, or `9.0.0..9.1.2` where they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valkey_version: Option<String>,
    /// Where clients connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_endpoint: Option<String>,
    /// The Secret that has the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_secret: Option<String>,
    /// The Secret that has the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_secret: Option<String>,
    /// What is being done; absent at rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_operation: Option<Operation>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_started_at: Option<Timestamp>,
    /// One sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Passes in this phase, counted where there was something to write.
    #[serde(default)]
    pub reconcile_count: i64,
    /// When the phase last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_phase_transition: Option<Timestamp>,
    /// How often Failed was left.
    #[serde(default)]
    pub recovery_attempts: i64,
    /// When it was last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_recovery_attempt: Option<Timestamp>,
    /// What last went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The whole of it in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The scale under way: written before the first step that it covers (R7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
    /// How slots are being moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot_migration: Option<SlotMigration>,
    /// The roll under way: written before the pod that it names is restarted (R7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roll: Option<Roll>,
    /// Why the phase is Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Cause>,
    /// Which pod and volume is which member, as last seen (R1).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bindings: Vec<Binding>,
}

/// Where a cluster is on its way.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Phase {
    /// Its objects are being made.
    #[default]
    Pending,
    /// The StatefulSet is being made.
    Creating,
    /// Pods are starting.
    WaitingForPods,
    /// Servers are being made known to each other.
    InitializingCluster,
    /// Slots are being given for the first time.
    AssigningSlots,
    /// Replicas are being attached.
    ConfiguringReplicas,
    /// Everything is looked at once more.
    VerifyingClusterHealth,
    /// All is well.
    Running,
    /// More pods are being asked for.
    ScalingUpStatefulSet,
    /// They are starting.
    WaitingForNewPods,
    /// They are joining.
    AddingNodesToCluster,
    /// Slots are moving to them.
    RebalancingSlots,
    /// Replicas are being attached to new shards.
    ConfiguringNewReplicas,
    /// Slots are leaving those who go.
    EvacuatingSlots,
    /// They are going.
    RemovingNodesFromCluster,
    /// Their pods are going.
    ScalingDownStatefulSet,
    /// Something is not as it should be, and nobody planned it.
    Degraded,
    /// It cannot go on; `failure` and `message` say why.
    Failed,
    /// It is going.
    Deleting,
}

impl Phase {
    /// All of them, in the order of the table.
    pub const ALL: [Phase; 19] = [
        Phase::Pending,
        Phase::Creating,
        Phase::WaitingForPods,
        Phase::InitializingCluster,
        Phase::AssigningSlots,
        Phase::ConfiguringReplicas,
        Phase::VerifyingClusterHealth,
        Phase::Running,
        Phase::ScalingUpStatefulSet,
        Phase::WaitingForNewPods,
        Phase::AddingNodesToCluster,
        Phase::RebalancingSlots,
        Phase::ConfiguringNewReplicas,
        Phase::EvacuatingSlots,
        Phase::RemovingNodesFromCluster,
        Phase::ScalingDownStatefulSet,
        Phase::Degraded,
        Phase::Failed,
        Phase::Deleting,
    ];

    /// The eight phases of a scale.
    pub fn is_scaling(self) -> bool {
        matches!(
            self,
            Phase::ScalingUpStatefulSet
                | Phase::WaitingForNewPods
                | Phase::AddingNodesToCluster
                | Phase::RebalancingSlots
                | Phase::ConfiguringNewReplicas
                | Phase::EvacuatingSlots
                | Phase::RemovingNodesFromCluster
                | Phase::ScalingDownStatefulSet
        )
    }
}

/// As in manifests: the name of the variant.
impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What is being done to a cluster.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// It is being made.
    Initializing,
    /// Its size changes.
    Scaling,
    /// Its pods are restarted, one by one.
    Rolling,
    /// A ValkeyUpgrade has it.
    Upgrading,
}

/// Who serves what.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// The shards, in the order of their index.
    #[serde(default)]
    pub masters: Vec<MasterTopology>,
}

/// A shard: its primary, and who follows it.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MasterTopology {
    /// The primary.
    pub node_id: NodeId,
    /// Its pod; empty where no pod answers for it.
    #[serde(default)]
    pub pod_name: String,
    /// The shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_id: Option<ShardId>,
    /// Its slots: `0-5460`.
    #[serde(default)]
    pub slot_ranges: Vec<String>,
    /// Who follows it.
    #[serde(default)]
    pub replicas: Vec<ReplicaTopology>,
}

/// A replica.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaTopology {
    /// Who it is.
    pub node_id: NodeId,
    /// Its pod; empty where no pod answers for it.
    #[serde(default)]
    pub pod_name: String,
    /// Bytes it is behind; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication_lag: Option<i64>,
    /// Whether its link to the primary is up.
    #[serde(default)]
    pub link_up: bool,
}

/// A scale under way.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Scale {
    /// The generation that asked for it.
    pub generation: i64,
    /// Shards wanted.
    pub masters: i32,
    /// Replicas wanted for each.
    pub replicas_per_master: i32,
    /// Shards that give all their slots away (R14).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drain: Vec<ShardId>,
    /// Pods that leave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leave: Vec<String>,
    /// Since when.
    pub started_at: Timestamp,
}

/// How slots are being moved.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SlotMigration {
    /// How the next batch goes.
    pub method: Method,
    /// How many slots it has at most (R20).
    pub batch_slots: i32,
    /// Failures in a row that counted (R23).
    #[serde(default)]
    pub failures: i32,
    /// Slots that have moved in this scale.
    #[serde(default)]
    pub moved: i32,
    /// Slots that this scale moves in all.
    #[serde(default)]
    pub total: i32,
    /// What last went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The batch that goes key by key before the servers' own way is tried again (R23).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_keys: Option<ByKeys>,
}

/// A batch of slots that goes key by key.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ByKeys {
    /// The giving primary.
    pub from: NodeId,
    /// The taking primary.
    pub to: NodeId,
    /// Its slots: `0-31`.
    pub slots: Vec<String>,
    /// How many failures of this pair had counted when it was begun: only one more makes another batch.
    pub failures: i32,
}

/// How slots move.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Method {
    /// By the servers themselves, all at once.
    #[default]
    Atomic,
    /// One key after the other.
    KeyByKey,
}

/// A roll under way.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Roll {
    /// What pods are to be (R34).
    pub revision: String,
    /// The shard in hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<ShardId>,
    /// The pod that is planned down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Which incarnation of it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// Whether a spare pod stands in (R36).
    #[serde(default)]
    pub surge: bool,
}

/// Why a cluster is Failed.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// What it takes to go on.
    pub class: CauseClass,
    /// One CamelCase word.
    pub reason: String,
    /// The generation that was judged.
    pub generation: i64,
    /// The value of `usher.dev/retry` at that time: another one is a wish to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<String>,
}

/// What it takes to leave Failed.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CauseClass {
    /// Another spec, or what the spec names.
    Validation,
    /// A person; the message says what to do.
    Permanent,
}

impl From<CauseClass> for ErrorClass {
    fn from(class: CauseClass) -> Self {
        match class {
            CauseClass::Validation => ErrorClass::Validation,
            CauseClass::Permanent => ErrorClass::Permanent,
        }
    }
}

/// Which pod and volume is which member, as last seen (R1).
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    /// The pod's name.
    pub pod: String,
    /// Which incarnation of it.
    pub pod_uid: String,
    /// Its volume claim; absent without persistence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc_uid: Option<String>,
    /// Who its server said it is.
    pub node_id: NodeId,
    /// Which shard it said it is of.
    pub shard_id: ShardId,
}
