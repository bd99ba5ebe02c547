//! The custom resources: types, schema, validation rules, printer columns.
//!
//! One source for the CRDs of `usher crds`, `deploy/` and the embedded cluster. Group, version, kinds, fields, short names
//! and columns are upstream's; what Usher adds is optional.

// kube's derive takes one attribute with repeated keys; clippy takes them for mistakes.
#![allow(clippy::duplicated_attributes)]

pub mod claim;
pub mod pool;
pub mod pool_claim;
pub mod subnet;

pub use claim::{ClaimPhase, SubnetClaim, SubnetClaimSpec, SubnetClaimStatus};
pub use pool::{Recalculated, Strategy, SubnetPool, SubnetPoolSpec, SubnetPoolStatus};
pub use pool_claim::{SubnetPoolClaim, SubnetPoolClaimSpec, SubnetPoolClaimStatus};
pub use subnet::{ClaimRef, Subnet, SubnetPhase, SubnetSpec, SubnetStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};

/// The API group.
pub const GROUP: &str = "plexaubnet.io";
/// The API version.
pub const VERSION: &str = "v1alpha1";
/// The finalizer on everything Usher must see go.
pub const FINALIZER: &str = "ipam.plexaubnet.io/finalizer";
/// Names a pool's parent pool.
pub const PARENT_LABEL: &str = "plexaubnet.io/parent";
/// `"true"` on a pool stops grants and commits; releases and status go on.
pub const PAUSED_ANNOTATION: &str = "usher.dev/paused";

/// A new value on a pool has its map counted anew (R50).
pub const RECALCULATE_ANNOTATION: &str = "usher.dev/recalculate";
/// On the pools Usher makes.
pub const IPAM_LABEL: &str = "plexaubnet.io/ipam";

/// The CRDs, in the order they are listed at start.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        Subnet::crd(),
        SubnetPool::crd(),
        SubnetClaim::crd(),
        SubnetPoolClaim::crd(),
    ]
}

/// A CIDR as text; the API server checks the form.
fn cidr(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "cidr", "maxLength": 43})
}

fn optional_cidr(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "cidr", "maxLength": 43, "nullable": true})
}

fn cidrs(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 256,
        "items": {"type": "string", "format": "cidr", "maxLength": 43},
    })
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
