//! What a ValkeyCluster is to be.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pods::{Exporter, ReadService, Replication, Resources, Scheduling};
use super::status::ValkeyClusterStatus;

/// What a ValkeyCluster is to be.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "valkey-operator.smoketurner.com",
    version = "v1alpha1",
    kind = "ValkeyCluster",
    namespaced,
    status = "ValkeyClusterStatus",
    derive = "PartialEq",
    shortname = "vc",
    category = "all",
    category = "valkey",
    doc = "A Valkey cluster: shards of one primary and its replicas each.",
    scale(
        spec_replicas_path = ".spec.masters",
        status_replicas_path = ".status.readyMasters",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Masters", type_ = "integer", json_path = ".spec.masters"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicasPerMaster"),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.readyNodes"),
    printcolumn(name = "Slots", type_ = "string", json_path = ".status.assignedSlots"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 53")
        .message("metadata.name must have at most 53 characters, so that the names of its pods and Services fit")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.masters * (1 + self.replicasPerMaster) <= 500")
        .message("masters * (1 + replicasPerMaster) must be at most 500: lower one of the two"),
    validation = Rule::new("has(self.tls) == has(oldSelf.tls)")
        .message("tls cannot be added or removed: create another cluster"),
    validation = Rule::new("has(self.auth) == has(oldSelf.auth)")
        .message("auth cannot be added or removed: create another cluster")
)]
pub struct ValkeyClusterSpec {
    /// How many shards there are, each with a primary and a part of the slots.
    #[serde(default = "three")]
    #[schemars(range(min = 3, max = 100))]
    pub masters: i32,
    /// How many replicas each shard has.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 5))]
    pub replicas_per_master: i32,
    /// Which server runs.
    #[serde(default)]
    pub image: Image,
    /// Encrypted connections, everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// A password that clients and servers must give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// What is kept on disk.
    #[serde(default)]
    pub persistence: Persistence,
    /// What each server may use.
    #[serde(default)]
    pub resources: Resources,
    /// Where pods may run.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// Labels for everything Usher makes; Usher's own win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::texts")]
    pub labels: BTreeMap<String, String>,
    /// Annotations for everything Usher makes; Usher's own win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::texts")]
    pub annotations: BTreeMap<String, String>,
    /// A Service of its own for reading clients.
    #[serde(default)]
    pub read_service: ReadService,
    /// A sidecar that tells Prometheus what each server does.
    #[serde(default)]
    pub metrics_exporter: Exporter,
    /// How replicas are fed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
    /// Lines for valkey.conf. What Usher must know for itself cannot be set here. Any change restarts servers, one by one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::config_lines")]
    pub config: BTreeMap<String, String>,
}

impl Default for ValkeyClusterSpec {
    fn default() -> Self {
        Self {
            masters: three(),
            replicas_per_master: one(),
            image: Image::default(),
            tls: None,
            auth: None,
            persistence: Persistence::default(),
            resources: Resources::default(),
            scheduling: Scheduling::default(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            read_service: ReadService::default(),
            metrics_exporter: Exporter::default(),
            replication: None,
            config: BTreeMap::new(),
        }
    }
}

fn three() -> i32 {
    3
}

fn one() -> i32 {
    1
}

fn yes() -> bool {
    true
}

/// Which server runs.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Image {
    /// Where the image is.
    #[schemars(length(min = 1, max = 512))]
    pub repository: String,
    /// Which of its versions: Valkey 7.2, 8.x or 9.x.
    #[schemars(length(min = 1, max = 128))]
    pub tag: String,
    /// When nodes ask for it.
    pub pull_policy: PullPolicy,
    /// Secrets that open the registry.
    #[schemars(length(max = 16))]
    pub pull_secrets: Vec<String>,
    /// Whether the tag may go back to an older version, which may not be able to read what a newer one wrote.
    pub allow_downgrade: bool,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            repository: "valkey/valkey".into(),
            tag: "9.1.0-alpine".into(),
            pull_policy: PullPolicy::IfNotPresent,
            pull_secrets: Vec::new(),
            allow_downgrade: false,
        }
    }
}

/// When nodes ask for an image.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    /// At each start.
    Always,
    /// Where it is not there.
    IfNotPresent,
    /// Never.
    Never,
}

/// Encrypted connections. Exactly one of issuerRef and secretName.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.issuerRef) != has(self.secretName)")
        .message("set exactly one of tls.issuerRef and tls.secretName"),
    validation = Rule::new("has(self.secretName) == has(oldSelf.secretName) && (!has(self.secretName) || self.secretName == oldSelf.secretName)")
        .message("tls.secretName cannot change: create another cluster"),
    validation = Rule::new("has(self.issuerRef) == has(oldSelf.issuerRef) && (!has(self.issuerRef) || self.issuerRef.name == oldSelf.issuerRef.name)")
        .message("tls.issuerRef.name cannot change: create another cluster")
)]
pub struct Tls {
    /// The cert-manager issuer that makes the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_ref: Option<IssuerRef>,
    /// The Secret that has it (tls.crt, tls.key, ca.crt).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,
    /// For how long a certificate is good.
    #[serde(default = "ninety_days")]
    #[schemars(length(min = 1, max = 32))]
    pub duration: String,
    /// How long before its end it is renewed.
    #[serde(default = "fifteen_days")]
    #[schemars(length(min = 1, max = 32))]
    pub renew_before: String,
}

fn ninety_days() -> String {
    "2160h".into()
}

fn fifteen_days() -> String {
    "360h".into()
}

/// A cert-manager issuer.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct IssuerRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Whether it is the namespace's or the whole cluster's.
    #[serde(default)]
    pub kind: IssuerKind,
    /// Its API group.
    #[serde(default = "cert_manager")]
    #[schemars(length(min = 1, max = 253))]
    pub group: String,
}

fn cert_manager() -> String {
    "cert-manager.io".into()
}

/// Whose an issuer is.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IssuerKind {
    /// The namespace's.
    Issuer,
    /// The whole cluster's.
    #[default]
    ClusterIssuer,
}

/// A password that clients and servers must give.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    /// Where the password is.
    pub secret_ref: SecretRef,
    /// Users with rights of their own.
    #[serde(default)]
    pub acl: Acl,
}

/// A key of a Secret that has the password.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.name == oldSelf.name && self.key == oldSelf.key")
    .message("auth.secretRef cannot change: create another cluster"))]
pub struct SecretRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it.
    #[serde(default = "password")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn password() -> String {
    "password".into()
}

/// Users with rights of their own.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Acl {
    /// Whether there are any.
    pub enabled: bool,
    /// Where they are listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_secret_ref: Option<AclSecretRef>,
    /// The user that servers and Usher use.
    #[schemars(length(min = 1, max = 253))]
    pub admin_user: String,
}

impl Default for Acl {
    fn default() -> Self {
        Self {
            enabled: false,
            config_secret_ref: None,
            admin_user: "default".into(),
        }
    }
}

/// A key of a Secret that has users.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AclSecretRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it.
    #[serde(default = "acl_conf")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn acl_conf() -> String {
    "acl.conf".into()
}

/// What is kept on disk.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.enabled == oldSelf.enabled")
        .message("persistence.enabled cannot change: create another cluster"),
    validation = Rule::new("self.size == oldSelf.size")
        .message("persistence.size cannot change: create another cluster"),
    validation = Rule::new("has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)")
        .message("persistence.storageClassName cannot change: create another cluster")
)]
pub struct Persistence {
    /// Whether each server has a volume of its own. Without it a pod that is restarted has lost its data, and gets it from
    /// the other members of its shard.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Which class of volumes; unset: the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,
    /// How big each is.
    #[schemars(regex(pattern = r"^([0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei)?$"), length(max = 32))]
    #[serde(default = "ten_gibibytes")]
    pub size: String,
    /// The append-only file: every write.
    #[serde(default)]
    pub aof: Aof,
    /// Snapshots.
    #[serde(default)]
    pub rdb: Rdb,
}

fn ten_gibibytes() -> String {
    "10Gi".into()
}

impl Default for Persistence {
    fn default() -> Self {
        Self {
            enabled: yes(),
            storage_class_name: None,
            size: ten_gibibytes(),
            aof: Aof::default(),
            rdb: Rdb::default(),
        }
    }
}

/// The append-only file.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Aof {
    /// Whether it is written.
    pub enabled: bool,
    /// How often the disk must have it.
    pub fsync: Fsync,
}

impl Default for Aof {
    fn default() -> Self {
        Self {
            enabled: true,
            fsync: Fsync::Everysec,
        }
    }
}

/// How often the disk must have the append-only file.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Fsync {
    /// Before each answer.
    Always,
    /// Once a second.
    Everysec,
    /// When the system likes to.
    No,
}

/// Snapshots.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Rdb {
    /// Whether they are taken.
    pub enabled: bool,
    /// When: `<seconds> <changes>` each.
    #[schemars(schema_with = "super::save_rules")]
    pub save_rules: Vec<String>,
}

impl Default for Rdb {
    fn default() -> Self {
        Self {
            enabled: true,
            save_rules: ["900 1", "300 10", "60 10000"].map(String::from).to_vec(),
        }
    }
}
