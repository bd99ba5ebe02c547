//! SubnetPoolClaim: somebody wants a pool of their own, taken from another.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use usher_engine::Condition;

use super::ClaimPhase;

/// What a SubnetPoolClaim asks for.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "plexaubnet.io",
    version = "v1alpha1",
    kind = "SubnetPoolClaim",
    namespaced,
    status = "SubnetPoolClaimStatus",
    derive = "PartialEq",
    shortname = "subnetpc",
    doc = "A request for a pool, taken from a parent pool.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Parent", type_ = "string", json_path = ".spec.parentPoolRef"),
    printcolumn(name = "BoundPool", type_ = "string", json_path = ".status.boundPoolName"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.phase) || oldSelf.status.phase != 'Bound' || self.spec == oldSelf.spec")
        .message("spec cannot change once the claim is Bound: delete and re-create the claim to change it")
)]
#[serde(rename_all = "camelCase")]
pub struct SubnetPoolClaimSpec {
    /// The parent pool's name, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub parent_pool_ref: String,
    /// Prefix length of the pool to be made.
    #[schemars(range(min = 1, max = 128))]
    pub desired_block_size: i32,
}

/// What became of a SubnetPoolClaim.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct SubnetPoolClaimStatus {
    /// The generation this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How far the claim is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ClaimPhase>,
    /// Name of the pool that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_pool_name: Option<String>,
    /// Name of the Subnet that stands for it in the parent.
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
