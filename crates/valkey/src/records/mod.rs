//! What the view keeps of each object.
//!
//! [`cluster`] is the resource itself; [`pod`] a pod of a set; [`owned`] what Usher makes beside them, whole, so that it can be
//! compared with what it should be; [`secret`] which keys a Secret has, and never what is in them; [`volume`] claims, by name.
//!
//! Types that other people use too (pods, Services, …) are watched whole: of what is not ours hardly anything is kept.

pub mod cluster;
pub mod owned;
pub mod pod;
pub mod secret;
pub mod volume;

#[cfg(test)]
mod tests;

pub use cluster::{ClusterRecord, Wishes};
pub use owned::{BudgetRecord, ServiceRecord, SetRecord};
pub use pod::PodRecord;
pub use secret::SecretRecord;
pub use volume::VolumeRecord;

/// What every record has; plain values, for plans to speak of.
pub use usher_operator::record::{ApiType, Meta, Owner};

use std::collections::BTreeMap;

use kube::api::DynamicObject;

use crate::api::{GROUP, MANAGER, VERSION, labels};

/// ValkeyClusters in the API.
pub const CLUSTERS: ApiType = ApiType {
    group: GROUP,
    version: VERSION,
    kind: "ValkeyCluster",
    plural: "valkeyclusters",
};
/// StatefulSets in the API.
pub const SETS: ApiType = ApiType {
    group: "apps",
    version: "v1",
    kind: "StatefulSet",
    plural: "statefulsets",
};
/// Pods in the API.
pub const PODS: ApiType = core("Pod", "pods");
/// Services in the API.
pub const SERVICES: ApiType = core("Service", "services");
/// Secrets in the API.
pub const SECRETS: ApiType = core("Secret", "secrets");
/// PersistentVolumeClaims in the API.
pub const VOLUMES: ApiType = core("PersistentVolumeClaim", "persistentvolumeclaims");
/// PodDisruptionBudgets in the API.
pub const BUDGETS: ApiType = ApiType {
    group: "policy",
    version: "v1",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
};
/// Nodes in the API. Not in the view: they have no namespace.
pub const NODES: ApiType = core("Node", "nodes");

const fn core(kind: &'static str, plural: &'static str) -> ApiType {
    ApiType {
        group: "",
        version: "v1",
        kind,
        plural,
    }
}

type Map = BTreeMap<String, String>;

fn text<'o>(map: &'o Option<Map>, name: &str) -> Option<&'o str> {
    map.as_ref()?.get(name).map(String::as_str)
}

/// The cluster that an object says it is of, where Usher made it.
fn made_for(object: &DynamicObject) -> Option<&str> {
    let labels = &object.metadata.labels;
    let ours = text(labels, labels::MANAGED_BY) == Some(MANAGER);
    text(labels, labels::INSTANCE).filter(|_| ours)
}
