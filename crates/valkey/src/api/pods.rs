//! What the spec says of pods: what they may use, where they run, what runs beside them, how they replicate.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What each server may use.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// What it is sure to get.
    pub requests: Requests,
    /// What it gets at most.
    pub limits: Limits,
}

/// What a server is sure to get.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Requests {
    /// Cores.
    #[schemars(regex(pattern = r"^([0-9]+m?|[0-9]*\.[0-9]+)$"), length(max = 32))]
    pub cpu: String,
    /// Bytes.
    #[schemars(regex(pattern = r"^([0-9]+)(Ki|Mi|Gi|Ti)?$"), length(max = 32))]
    pub memory: String,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            cpu: "100m".into(),
            memory: "256Mi".into(),
        }
    }
}

/// What a server gets at most.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Cores.
    #[schemars(regex(pattern = r"^([0-9]+m?|[0-9]*\.[0-9]+)$"), length(max = 32))]
    pub cpu: String,
    /// Bytes.
    #[schemars(regex(pattern = r"^([0-9]+)(Ki|Mi|Gi|Ti)?$"), length(max = 32))]
    pub memory: String,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu: "1".into(),
            memory: "1Gi".into(),
        }
    }
}

/// Where pods may run.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Scheduling {
    /// Whether members are kept apart, and primaries spread.
    pub spread_masters: bool,
    /// The node label that says what "apart" means.
    #[schemars(length(min = 1, max = 317))]
    pub topology_key: String,
    /// Labels a node must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::texts")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that pods put up with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,
}

impl Default for Scheduling {
    fn default() -> Self {
        Self {
            spread_masters: true,
            topology_key: "kubernetes.io/hostname".into(),
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
        }
    }
}

/// A taint that pods put up with.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// The taint's key; none: every taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How the value is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    /// The taint's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Which effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<TolerationEffect>,
    /// For how long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// How a taint's value is compared.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
pub enum TolerationOperator {
    /// It must be there.
    Exists,
    /// It must be this.
    Equal,
}

/// What a taint does.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
pub enum TolerationEffect {
    /// No new pods.
    NoSchedule,
    /// No new pods where avoidable.
    PreferNoSchedule,
    /// No pods at all.
    NoExecute,
}

/// A Service of its own for reading clients.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ReadService {
    /// Whether there is one.
    pub enabled: bool,
    /// How it is reached.
    pub service_type: ServiceType,
    /// Annotations of the Service.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::texts")]
    pub annotations: BTreeMap<String, String>,
}

/// How a Service is reached.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServiceType {
    /// From within.
    #[default]
    ClusterIP,
    /// By a port of every node.
    NodePort,
    /// By a load balancer.
    LoadBalancer,
}

/// A sidecar that tells Prometheus what each server does.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Exporter {
    /// Whether there is one.
    pub enabled: bool,
    /// Its image.
    #[schemars(length(min = 1, max = 640))]
    pub image: String,
    /// Its port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// What it may use.
    pub resources: ExporterResources,
    /// Environment variables for it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::texts")]
    pub extra_env: BTreeMap<String, String>,
}

impl Default for Exporter {
    fn default() -> Self {
        Self {
            enabled: false,
            image: "oliver006/redis_exporter:latest".into(),
            port: 9121,
            resources: ExporterResources::default(),
            extra_env: BTreeMap::new(),
        }
    }
}

/// What the exporter may use.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct ExporterResources {
    /// Cores it is sure to get.
    #[schemars(regex(pattern = r"^([0-9]+m?|[0-9]*\.[0-9]+)$"), length(max = 32))]
    pub cpu_request: String,
    /// Bytes it is sure to get.
    #[schemars(regex(pattern = r"^([0-9]+)(Ki|Mi|Gi|Ti)?$"), length(max = 32))]
    pub memory_request: String,
    /// Cores it gets at most.
    #[schemars(regex(pattern = r"^([0-9]+m?|[0-9]*\.[0-9]+)$"), length(max = 32))]
    pub cpu_limit: String,
    /// Bytes it gets at most.
    #[schemars(regex(pattern = r"^([0-9]+)(Ki|Mi|Gi|Ti)?$"), length(max = 32))]
    pub memory_limit: String,
}

impl Default for ExporterResources {
    fn default() -> Self {
        Self {
            cpu_request: "50m".into(),
            memory_request: "64Mi".into(),
            cpu_limit: "100m".into(),
            memory_limit: "128Mi".into(),
        }
    }
}

/// How replicas are fed.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Replication {
    /// Whether a full copy goes over the wire without a file.
    pub diskless_sync: bool,
    /// Seconds a primary waits for more replicas before it sends one.
    #[schemars(range(min = 0, max = 3600))]
    pub diskless_sync_delay: i32,
    /// A primary takes writes only while so many replicas are connected. Unset: 1 where replicasPerMaster is above 1, else 0.
    /// 0: always.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 5))]
    pub min_replicas_to_write: Option<i32>,
    /// Seconds after which a silent replica does not count.
    #[schemars(range(min = 0, max = 3600))]
    pub min_replicas_max_lag: i32,
}

impl Default for Replication {
    fn default() -> Self {
        Self {
            diskless_sync: false,
            diskless_sync_delay: 5,
            min_replicas_to_write: None,
            min_replicas_max_lag: 10,
        }
    }
}
