//! The custom resource: types, schema, validation rules, printer columns.
//!
//! [`spec`] is what people write ([`pods`]: of pods), [`status`] what we say about it. Group, version, kinds, fields, short names and columns are
//! upstream's; what Usher adds is optional.

// kube's derive takes one attribute with repeated keys; clippy takes them for mistakes.
#![allow(clippy::duplicated_attributes)]

pub mod pods;
pub mod spec;
pub mod status;

#[cfg(test)]
mod tests;

pub use pods::{
    Exporter, ExporterResources, Limits, ReadService, Replication, Requests, Resources, Scheduling, ServiceType,
    Toleration, TolerationEffect, TolerationOperator,
};
pub use spec::{
    Acl, AclSecretRef, Aof, Auth, Fsync, Image, IssuerKind, IssuerRef, Persistence, PullPolicy, Rdb, SecretRef, Tls,
    ValkeyCluster, ValkeyClusterSpec,
};
pub use status::{
    Binding, ByKeys, Cause, CauseClass, MasterTopology, Method, Operation, Phase, ReplicaTopology, Roll, Scale,
    SlotMigration, Topology, ValkeyClusterStatus,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};

/// The API group.
pub const GROUP: &str = "valkey-operator.smoketurner.com";
/// The API version.
pub const VERSION: &str = "v1alpha1";
/// The finalizer on clusters.
pub const FINALIZER: &str = "valkey-operator.smoketurner.com/finalizer";
/// The manager of the fields that are applied to owned objects.
pub const MANAGER: &str = "valkey-operator";

/// Annotations on a cluster that Usher obeys.
pub mod annotations {
    /// `true`: observe and report, no step.
    pub const PAUSED: &str = "usher.dev/paused";
    /// A new value: leave Failed.
    pub const RETRY: &str = "usher.dev/retry";
    /// Name of the pod to promote; removed when that is done.
    pub const SWITCHOVER: &str = "usher.dev/switchover";
    /// `auto` or `manual`: whether slots are balanced at rest (R27).
    pub const SLOT_BALANCE: &str = "usher.dev/slot-balance";
    /// How many slot moves may be in flight (R20).
    pub const MAX_MIGRATIONS: &str = "usher.dev/max-migrations";
    /// For how long a member that has given its slots away answers MOVED before it goes (R11).
    pub const DRAIN_LINGER_SECONDS: &str = "usher.dev/drain-linger-seconds";
    /// `true`: a roll restarts primaries without replicas in place (R36).
    pub const ALLOW_PRIMARY_RESTART: &str = "usher.dev/allow-primary-restart";
    /// Id of the shard whose data may be given up for lost (R26).
    pub const ACCEPT_DATA_LOSS: &str = "usher.dev/accept-data-loss";
    /// A new value: restart all pods, one by one (R34).
    pub const ROLL: &str = "usher.dev/roll";
    /// Written by Usher: a roll without replicas has a spare pod (R36).
    pub const SURGE: &str = "usher.dev/surge";
    /// Written by an upgrade: it wants the cluster for itself (R40).
    pub const UPGRADE_IN_PROGRESS: &str = "valkey-operator.smoketurner.com/upgrade-in-progress";
    /// Written by an upgrade: which.
    pub const UPGRADE_NAME: &str = "valkey-operator.smoketurner.com/upgrade-name";
    /// On the set's pods: which revision of the spec shaped them (R34).
    pub const REVISION: &str = "usher.dev/revision";
    /// On what Usher makes: hash of what it was made as.
    pub const APPLIED: &str = "usher.dev/applied";
    /// On pods: who their server says it is. Never read back.
    pub const NODE_ID: &str = "usher.dev/node-id";
}

/// Labels that Usher puts on what it owns.
pub mod labels {
    /// The cluster's name; part of the selector.
    pub const NAME: &str = "app.kubernetes.io/name";
    /// The cluster's name again; part of the selector.
    pub const INSTANCE: &str = "app.kubernetes.io/instance";
    /// Who made it.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// What it is.
    pub const COMPONENT: &str = "app.kubernetes.io/component";
    /// Which of the Services it is.
    pub const SERVICE_TYPE: &str = "app.kubernetes.io/service-type";
    /// On pods: primary, replica or none. Never read back.
    pub const ROLE: &str = "usher.dev/role";
    /// On pods: index of the shard. Never read back.
    pub const SHARD: &str = "usher.dev/shard";
}

/// The CRDs of this crate.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![ValkeyCluster::crd()]
}

/// Conditions as a list-map by type, so that two writers never take each other's.
fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut items = <usher_engine::Condition as schemars::JsonSchema>::json_schema(generator);
    items.remove("title");
    json_schema!({
        "type": "array",
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// When Redis-style snapshots are taken: `<seconds> <changes>`.
fn save_rules(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": {"type": "string", "pattern": "^[0-9]+ [0-9]+$", "maxLength": 32},
    })
}

/// Lines of valkey.conf. Three revisions of them fit into one Secret.
fn config_lines(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 100,
        "additionalProperties": {"type": "string", "maxLength": 1024},
    })
}

/// A map of short texts, bounded so that rules on it have a price.
fn texts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 100,
        "additionalProperties": {"type": "string", "maxLength": 4096},
    })
}
