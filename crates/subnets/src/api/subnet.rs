//! Subnet: a block that is taken, or asks to be.

use jiff::Timestamp;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which block, of which pool, for whom.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "plexaubnet.io",
    version = "v1alpha1",
    kind = "Subnet",
    namespaced,
    status = "SubnetStatus",
    derive = "PartialEq",
    shortname = "subnet",
    doc = "One block of a pool. Usher makes one per claim; one made by hand is checked for containment and overlap.",
    selectable = ".spec.poolRef",
    selectable = ".spec.clusterID",
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr"),
    printcolumn(name = "ClusterID", type_ = "string", json_path = ".spec.clusterID"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.poolRef"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(oldSelf.claimRef) || self == oldSelf")
    .message("the Subnet of a claim cannot be edited: delete and re-create the claim instead"))]
pub struct SubnetSpec {
    /// The pool's name, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub pool_ref: String,
    /// The block.
    #[schemars(schema_with = "super::cidr")]
    pub cidr: String,
    /// Whom the block is for.
    #[serde(rename = "clusterID")]
    #[schemars(regex(pattern = r"^[a-z0-9.-]{1,63}$"))]
    pub cluster_id: String,
    /// The claim it was made for; absent on Subnets made by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ClaimRef>,
}

/// A claim, by name and uid.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
pub struct ClaimRef {
    /// The claim's name.
    pub name: String,
    /// The claim's uid.
    pub uid: String,
}

/// How far a Subnet is.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SubnetPhase {
    /// Asks for its range.
    Pending,
    /// Has it.
    Allocated,
    /// Cannot have it; reason and message say why.
    Failed,
    /// Given up, not granted again before the reuse delay is over.
    Released,
}

/// What became of a Subnet.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct SubnetStatus {
    /// The generation the phase speaks of. A phase for another generation does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How far the Subnet is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<SubnetPhase>,
    /// When it was first Allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated_at: Option<Timestamp>,
    /// When its reuse delay began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Timestamp>,
    /// Why it is Failed, as one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it is Failed, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
