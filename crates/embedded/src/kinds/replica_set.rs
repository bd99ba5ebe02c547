//! ReplicaSet.

use serde_json::{Value, json};

use super::checks::not_negative;
use super::pod::default_template;
use super::reading::{at, default_to, integer, object_mut};
use super::workload::{check_counts, check_replicated, keeps_selector, workload_warnings};
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

pub static RULES: BuiltIn = BuiltIn {
    default,
    on_create: |set| {
        if let Some(map) = set.as_object_mut() {
            map.insert("status".to_owned(), json!({"replicas": 0}));
        }
    },
    check,
    check_update: keeps_selector,
    check_status,
    warn: |set, old| workload_warnings(set, old),
    ..BuiltIn::PLAIN
};

fn default(set: &mut Value) {
    if let Some(spec) = object_mut(set, "spec") {
        default_template(spec);
        default_to(spec, "replicas", 1);
    }
}

fn check(set: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (spec, path) = (at(set, "/spec"), Path::new("spec"));
    for field in ["replicas", "minReadySeconds"] {
        not_negative(&mut errors, &path.field(field), integer(spec, field));
    }
    check_replicated(&mut errors, spec, &path);
    errors
}

fn check_status(new: &Value, _: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_counts(
        &mut errors,
        at(new, "/status"),
        &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
        ],
        &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        "readyReplicas",
        &Path::new("status"),
    );
    errors
}
