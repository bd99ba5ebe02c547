//! ReplicaSet.

use serde_json::{Value, json};

use super::checks::not_negative;
use super::pod::default_template;
use super::reading::{at, default_to, integer, object_mut};
use super::workload::{check_counts, check_runs_always, check_template, keeps_selector, workload_warnings};
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
    let template = at(spec, "/template");
    let before = errors.len();
    // The reference calls this one a deployment, too.
    check_template(&mut errors, spec, template, "deployment", &path);
    let unread = errors
        .iter()
        .skip(before)
        .any(|error| error.detail == "invalid label selector");
    if !unread {
        check_runs_always(&mut errors, template, "ReplicaSet", &path);
    }
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
