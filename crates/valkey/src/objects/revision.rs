//! Which of a spec's words shape a pod (R34).

use serde_json::{Value, json};
use usher_engine::hash::CanonicalHash;

use crate::records::ClusterRecord;

/// What shapes a pod: a change of it restarts servers, one by one. Not the rendered text: a newer Usher restarts nobody.
pub fn shaping(cluster: &ClusterRecord) -> Value {
    let spec = &cluster.spec;
    json!({
        "image": {"repository": spec.image.repository, "tag": spec.image.tag},
        "resources": spec.resources,
        "config": spec.config,
        "replication": spec.replication,
        "aof": spec.persistence.aof,
        "rdb": spec.persistence.rdb,
        "scheduling": spec.scheduling,
        "exporter": spec.metrics_exporter,
        "roll": cluster.wishes.roll,
    })
}

/// The revision, as pods carry it.
pub fn revision(cluster: &ClusterRecord) -> String {
    CanonicalHash::of_json(&shaping(cluster)).to_string()
}
