//! SubnetClaim: somebody wants a block of a pool.

use ipnet::IpNet;
use jiff::Timestamp;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use usher_engine::{Condition, Conditions};

/// What a SubnetClaim asks for.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "plexaubnet.io",
    version = "v1alpha1",
    kind = "SubnetClaim",
    namespaced,
    status = "SubnetClaimStatus",
    derive = "PartialEq",
    shortname = "subnetclaim",
    doc = "A request for one block of a pool.",
    selectable = ".spec.poolRef",
    selectable = ".spec.clusterID",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "ClusterID", type_ = "string", json_path = ".spec.clusterID"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.poolRef"),
    printcolumn(name = "Allocated", type_ = "string", json_path = ".status.allocatedCIDR"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.phase) || oldSelf.status.phase != 'Bound' || self.spec == oldSelf.spec")
        .message("spec cannot change once the claim is Bound: delete and re-create the claim to change it")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.blockSize) && has(self.requestedCIDR))")
    .message("blockSize and requestedCIDR are mutually exclusive: set one of them"))]
pub struct SubnetClaimSpec {
    /// The pool's name, in the same namespace. It need not exist yet.
    #[schemars(length(min = 1, max = 253))]
    pub pool_ref: String,
    /// Whom the block is for.
    #[serde(rename = "clusterID")]
    #[schemars(regex(pattern = r"^[a-z0-9.-]{1,63}$"))]
    pub cluster_id: String,
    /// Prefix length of the block. Without it and without requestedCIDR the pool's defaultBlockSize applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub block_size: Option<i32>,
    /// Exactly this block.
    #[serde(default, rename = "requestedCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::optional_cidr")]
    pub requested_cidr: Option<String>,
}

/// How far a claim is.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimPhase {
    /// Not served yet; message says why.
    Pending,
    /// Has its block.
    Bound,
    /// Cannot be served as it stands.
    Error,
}

/// What became of a SubnetClaim.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct SubnetClaimStatus {
    /// The generation this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How far the claim is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ClaimPhase>,
    /// The block, once Bound.
    #[serde(default, rename = "allocatedCIDR", skip_serializing_if = "Option::is_none")]
    pub allocated_cidr: Option<String>,
    /// Name of the Subnet that holds the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet_ref: Option<String>,
    /// Why it is not Bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Ready and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::conditions")]
    pub conditions: Vec<Condition>,
}

impl SubnetClaimStatus {
    /// Of a claim that has its block, and has had it since then.
    pub fn bound(generation: i64, cidr: IpNet, pool: &str, subnet: &str, since: Timestamp) -> Self {
        Self::bound_beside(Conditions::default(), generation, cidr, pool, subnet, since)
    }

    /// The same, with what was said of it before.
    pub fn bound_beside(
        mut conditions: Conditions,
        generation: i64,
        cidr: IpNet,
        pool: &str,
        subnet: &str,
        now: Timestamp,
    ) -> Self {
        let message = format!("{cidr} of pool {pool} is allocated");
        conditions.set("Ready", true, "Allocated", message, generation, now);
        conditions.remove("Stalled");
        Self {
            observed_generation: Some(generation),
            phase: Some(ClaimPhase::Bound),
            allocated_cidr: Some(cidr.to_string()),
            subnet_ref: Some(subnet.to_owned()),
            message: None,
            conditions: conditions.into_vec(),
        }
    }
}
