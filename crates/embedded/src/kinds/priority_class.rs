//! PriorityClass.

use serde_json::Value;

use super::checks::{among, immutable};
use super::reading::{at, default_to, integer, text_at, truth};
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

const MOST: i64 = 1_000_000_000;

pub static RULES: BuiltIn = BuiltIn {
    default: |class| default_to(class, "preemptionPolicy", "PreemptLowerPriority"),
    check,
    check_update,
    ..BuiltIn::PLAIN
};

fn check(class: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (name, value) = (text_at(class, "/metadata/name"), integer(class, "value").unwrap_or(0));
    if name.starts_with("system-") {
        if let Some(words) = not_a_system_class(name, value, truth(class, "globalDefault") == Some(true)) {
            errors.push(FieldError::forbidden(
                &Path::new("metadata.name"),
                format!("priority class names with 'system-' prefix are reserved for system use only. error: {words}"),
            ));
        }
    } else if value > MOST {
        errors.push(FieldError::forbidden(
            &Path::new("value"),
            format!("maximum allowed value of a user defined priority is {MOST}"),
        ));
    }
    among(
        &mut errors,
        &Path::new("preemptionPolicy"),
        class.get("preemptionPolicy"),
        &["PreemptLowerPriority", "Never"],
    );
    errors
}

/// The classes that every cluster has: names, values, descriptions.
pub const SYSTEM: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2 * MOST + 1000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2 * MOST,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

fn not_a_system_class(name: &str, value: i64, global: bool) -> Option<String> {
    let Some((_, expected, _)) = SYSTEM.into_iter().find(|(known, _, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if value != expected {
        Some(format!("value of {name} PriorityClass must be {expected}"))
    } else if global {
        Some(format!("globalDefault of {name} PriorityClass must be false"))
    } else {
        None
    }
}

fn check_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if integer(new, "value") != integer(old, "value") {
        errors.push(FieldError::forbidden(
            &Path::new("value"),
            "may not be changed in an update.",
        ));
    }
    immutable(
        &mut errors,
        &Path::new("preemptionPolicy"),
        at(new, "/preemptionPolicy"),
        at(old, "/preemptionPolicy"),
    );
    errors
}
