//! The StatefulSet.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use usher_engine::Uid;

use super::{Map, fixed_labels, owned, pod, selector, signed};
use crate::json::put;
use crate::records::{ClusterRecord, SETS};
use crate::words::Ordinal;

/// The set, with so many pods. How many is not part of what it is signed for: its size is changed by steps of their own.
pub fn set(cluster: &ClusterRecord, replicas: u16) -> Value {
    let mut set = owned(cluster, SETS, cluster.name(), &[], &Map::new());
    let spec = json!({
        "serviceName": cluster.headless_service(),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "selector": {"matchLabels": selector(cluster)},
        "template": pod::template(cluster),
    });
    put(&mut set, &["spec"], spec);
    if cluster.spec.persistence.enabled {
        put(&mut set, &["spec", "volumeClaimTemplates"], json!([volume(cluster)]));
    }
    let mut set = signed(set);
    put(&mut set, &["spec", "replicas"], replicas);
    set
}

/// A set's claims cannot change: nothing that may is in here.
fn volume(cluster: &ClusterRecord) -> Value {
    let persistence = &cluster.spec.persistence;
    let mut volume = json!({
        "metadata": {"name": "data", "labels": fixed_labels(cluster)},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": persistence.size}},
        },
    });
    if let Some(class) = &persistence.storage_class_name {
        put(&mut volume, &["spec", "storageClassName"], json!(class));
    }
    volume
}

/// How many pods a new set has: what the spec wants, and more where volumes of an earlier life are there, so that all of
/// them come back with what they hold (R9).
pub fn first_size(cluster: &ClusterRecord, volumes: &BTreeMap<Ordinal, Uid>) -> u16 {
    let kept = volumes
        .last_key_value()
        .map_or(0, |(Ordinal(last), _)| last.saturating_add(1));
    let kept = if cluster.spec.persistence.enabled { kept } else { 0 };
    cluster.size().max(kept)
}
