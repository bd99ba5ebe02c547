//! SubnetPool: a range that Subnets are taken from.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use usher_engine::Condition;

/// What a SubnetPool is to be.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "plexaubnet.io",
    version = "v1alpha1",
    kind = "SubnetPool",
    namespaced,
    status = "SubnetPoolStatus",
    derive = "PartialEq",
    shortname = "subnetpool",
    doc = "A range of addresses that Subnets are granted from.",
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr"),
    printcolumn(name = "Strategy", type_ = "string", json_path = ".spec.strategy"),
    printcolumn(name = "Allocated", type_ = "integer", json_path = ".status.allocatedCount"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.usedPercent", priority = 1),
    printcolumn(
        name = "Waiting",
        type_ = "integer",
        json_path = ".status.waitingClaims",
        priority = 1
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.minBlockSize) || !has(self.maxBlockSize) || self.minBlockSize <= self.maxBlockSize")
    .message("minBlockSize is the shortest prefix length (biggest block) and must not be longer than maxBlockSize: swap the two"))]
pub struct SubnetPoolSpec {
    /// The range, as CIDR. Host bits are cleared (10.3.7.0/16 means 10.3.0.0/16). May grow at any time; shrinking or
    /// moving it takes nothing from anybody who has a Subnet, it only stops new grants outside.
    #[schemars(schema_with = "super::cidr")]
    #[x_kube(validation = Rule::new("!self.endsWith('/0')").message("the range must be /1 or smaller"))]
    pub cidr: String,
    /// Prefix length for claims that name no size. In an IPv6 pool 24 counts as unset and means 64. Always brought into
    /// the allowed range.
    #[serde(default = "default_block_size")]
    #[schemars(range(min = 1, max = 128))]
    pub default_block_size: i32,
    /// Shortest prefix length that may be granted (the biggest block). Unset: the pool's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub min_block_size: Option<i32>,
    /// Longest prefix length that may be granted (the smallest block). Unset: 28 (IPv4), 64 (IPv6), or the pool's own if
    /// that is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub max_block_size: Option<i32>,
    /// Where in the pool a block is taken: Linear takes the lowest free address, Buddy the smallest free block that fits.
    #[serde(default)]
    pub strategy: Strategy,
    /// Ranges that are never granted. Subnets made by hand may still use them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::cidrs")]
    pub exclude: Vec<String>,
    /// A released range is not granted again for this many seconds.
    #[serde(default)]
    #[schemars(range(min = 0, max = 2_592_000))]
    pub reuse_delay_seconds: i64,
}

fn default_block_size() -> i32 {
    24
}

/// Where in the pool a block is taken.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// The lowest free address (first fit).
    #[default]
    Linear,
    /// The smallest free block that fits (best fit).
    Buddy,
}

/// What a SubnetPool is.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
pub struct SubnetPoolStatus {
    /// The generation this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Subnets of this pool that hold a range.
    #[serde(default)]
    pub allocated_count: i64,
    /// How many blocks of each prefix length could be granted now.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub free_count_by_size: BTreeMap<String, i64>,
    /// The same as decimal text, for lengths whose count is too big for a JSON number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub free_count_exact: BTreeMap<String, String>,
    /// Every allocation, range to clusterID. Complete or absent.
    #[serde(default, rename = "allocatedCIDRs", skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated_cidrs: BTreeMap<String, String>,
    /// True when allocatedCIDRs is left out because there are too many; `kubectl get subnets
    /// --field-selector spec.poolRef=NAME` lists them.
    #[serde(
        default,
        rename = "allocatedCIDRsOmitted",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub allocated_cidrs_omitted: bool,
    /// The biggest block that could be granted now, like `/20`; empty when the pool is full.
    #[serde(default)]
    pub largest_free_block: String,
    /// Share of the addresses that is held, in whole percent, rounded down.
    #[serde(default)]
    pub used_percent: i64,
    /// Claims that wait for room.
    #[serde(default)]
    pub waiting_claims: i64,
    /// Pools that were taken from this one.
    #[serde(default)]
    pub child_pools: i64,
    /// Subnets that hold a range outside the pool.
    #[serde(default)]
    pub out_of_range: i64,
    /// Pairs of Subnets that hold overlapping ranges; only data from before Usher can make this other than 0.
    #[serde(default)]
    pub overlaps: i64,
    /// The last recalculation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalculated: Option<Recalculated>,
    /// Ready, Exhausted, Conflicted, Stalled; child pools also Held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::conditions")]
    pub conditions: Vec<Condition>,
}

/// The answer to a recalculation.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq)]
pub struct Recalculated {
    /// The trigger's value.
    pub trigger: String,
    /// When it was done.
    pub at: Timestamp,
    /// How many holdings differed.
    pub drift: i64,
}
