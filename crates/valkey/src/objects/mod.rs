//! Pure builders of the Kubernetes objects that a cluster owns, and what tells whether they are as they should be.
//!
//! [`conf`] is what servers are configured by, [`script`] what starts, probes and stops them, [`pod`] the pod, [`set`] the
//! StatefulSet around it, [`services`] the Services and the disruption budget, [`secret`] the Secret with configuration and
//! password. [`revision`] says which of a spec's words shape a pod (R34), [`compare`] whether an object is as rendered.

pub mod compare;
pub mod conf;
pub mod pod;
pub mod revision;
pub mod script;
pub mod secret;
pub mod services;
pub mod set;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use usher_engine::hash::CanonicalHash;

use crate::api::{GROUP, MANAGER, VERSION, annotations, labels};
use crate::json::at;
use crate::records::{ApiType, BUDGETS, CLUSTERS, ClusterRecord, SERVICES};

pub use compare::settled;
pub use conf::min_replicas;
pub use revision::revision;

/// Where clients connect.
pub const CLIENT_PORT: u16 = 6379;
/// Where members talk to each other.
pub const BUS_PORT: u16 = 16379;

type Map = BTreeMap<String, String>;

/// The objects of a cluster but its set and its Secret, each with its type, in the order in which they are applied.
pub fn plain(cluster: &ClusterRecord) -> Vec<(ApiType, Value)> {
    let mut objects = vec![
        (SERVICES, services::headless(cluster)),
        (SERVICES, services::client(cluster)),
        (BUDGETS, services::budget(cluster)),
    ];
    if cluster.spec.read_service.enabled {
        objects.push((SERVICES, services::read(cluster)));
    }
    objects
}

/// What selects a cluster's pods.
pub fn selector(cluster: &ClusterRecord) -> Value {
    json!({labels::NAME: cluster.name(), labels::INSTANCE: cluster.name()})
}

/// Labels of everything that a cluster owns: the spec's, under ours.
pub fn own_labels(cluster: &ClusterRecord) -> Map {
    let mut all = cluster.spec.labels.clone();
    all.extend(fixed_labels(cluster));
    all
}

/// Ours alone: for what cannot change once it is made.
fn fixed_labels(cluster: &ClusterRecord) -> Map {
    let own = [
        (labels::NAME, cluster.name()),
        (labels::INSTANCE, cluster.name()),
        (labels::MANAGED_BY, MANAGER),
        (labels::COMPONENT, "valkeycluster"),
    ];
    own.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// An object of the cluster's: with its name, labels, annotations and owner.
fn owned(cluster: &ClusterRecord, kind: ApiType, name: &str, more_labels: &[(&str, &str)], more: &Map) -> Value {
    let mut labels = own_labels(cluster);
    labels.extend(
        more_labels
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into())),
    );
    let mut annotations = cluster.spec.annotations.clone();
    annotations.extend(more.clone());
    json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind,
        "metadata": {
            "namespace": cluster.meta.key.namespace(),
            "name": name,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": CLUSTERS.kind,
                "name": cluster.name(),
                "uid": cluster.meta.uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
    })
}

/// Says on an object what it was made as: what has been taken out of a manifest since then is seen by that.
fn signed(mut object: Value) -> Value {
    let hash = CanonicalHash::of_json(&object).to_string();
    if let Some(annotations) = object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.insert(annotations::APPLIED.into(), hash.into());
    }
    object
}

/// Name of a rendered object.
pub fn name(object: &Value) -> &str {
    at(object, &["metadata", "name"]).as_str().unwrap_or_default()
}
