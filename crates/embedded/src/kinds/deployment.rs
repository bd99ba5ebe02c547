//! Deployment.

use serde_json::{Value, json};

use super::checks::{Errors, about_struct, at_most_100_percent, count_or_percent, go_struct, not_negative, percent};
use super::pod::default_template;
use super::reading::{at, default_if_empty, default_to, given, integer, object_mut, text};
use super::workload::{check_collisions, check_counts, check_replicated, keeps_selector, workload_warnings};
use crate::fault::{FieldError, Path, Wrong};
use crate::registry::row::BuiltIn;

const STRATEGIES: &str = "supported values: \"Recreate\", \"RollingUpdate\"";

pub static RULES: BuiltIn = BuiltIn {
    default,
    on_create: |deployment| {
        if let Some(map) = deployment.as_object_mut() {
            map.insert("status".to_owned(), json!({}));
        }
    },
    check,
    check_update: keeps_selector,
    check_status,
    warn: |deployment, old| workload_warnings(deployment, old),
    generation_counts: "annotations",
    status_leaves: "labels",
    ..BuiltIn::PLAIN
};

fn default(deployment: &mut Value) {
    let Some(spec) = object_mut(deployment, "spec") else {
        return;
    };
    default_template(spec);
    default_to(spec, "replicas", 1);
    if let Some(strategy) = object_mut(spec, "strategy") {
        default_if_empty(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = object_mut(strategy, "rollingUpdate")
        {
            default_to(rolling, "maxUnavailable", "25%");
            default_to(rolling, "maxSurge", "25%");
        }
    }
    default_to(spec, "revisionHistoryLimit", 10);
    default_to(spec, "progressDeadlineSeconds", 600);
}

fn check(deployment: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (spec, path) = (at(deployment, "/spec"), Path::new("spec"));
    not_negative(&mut errors, &path.field("replicas"), integer(spec, "replicas"));
    check_replicated(&mut errors, spec, &path);
    check_strategy(&mut errors, at(spec, "/strategy"), &path.field("strategy"));
    for field in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        not_negative(&mut errors, &path.field(field), integer(spec, field));
    }
    if let Some(deadline) = integer(spec, "progressDeadlineSeconds")
        && deadline <= integer(spec, "minReadySeconds").unwrap_or(0)
    {
        errors.push(FieldError::invalid(
            &path.field("progressDeadlineSeconds"),
            deadline,
            "must be greater than minReadySeconds",
        ));
    }
    errors
}

fn check_strategy(errors: &mut Errors, strategy: &Value, path: &Path) {
    let rolling = given(strategy, "rollingUpdate");
    match text(strategy, "type") {
        "Recreate" => {
            if rolling.is_some() {
                errors.push(FieldError::forbidden(
                    &path.field("rollingUpdate"),
                    "may not be specified when strategy `type` is 'Recreate'",
                ));
            }
        }
        "RollingUpdate" => {
            let path = path.field("rollingUpdate");
            let Some(rolling) = rolling else {
                errors.push(FieldError::required(&path, "this should be defaulted and never be nil"));
                return;
            };
            let (down, up) = (at(rolling, "/maxUnavailable"), at(rolling, "/maxSurge"));
            count_or_percent(errors, &path.field("maxUnavailable"), down);
            count_or_percent(errors, &path.field("maxSurge"), up);
            let number = |value: &Value| percent(value).or(value.as_i64()).unwrap_or(0);
            if number(down) == 0 && number(up) == 0 {
                errors.push(FieldError::invalid(
                    &path.field("maxUnavailable"),
                    down.clone(),
                    "may not be 0 when `maxSurge` is 0",
                ));
            }
            at_most_100_percent(errors, &path.field("maxUnavailable"), down);
        }
        _ => {
            let shown = go_struct(
                strategy,
                &[("Type", "type", "\"\""), ("RollingUpdate", "rollingUpdate", "null")],
            );
            errors.push(about_struct(Wrong::NotSupported, path, &shown, STRATEGIES));
        }
    }
}

fn check_status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_counts(
        &mut errors,
        at(new, "/status"),
        &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
        &["updatedReplicas", "readyReplicas", "availableReplicas"],
        "readyReplicas",
        &Path::new("status"),
    );
    check_collisions(&mut errors, new, old);
    errors
}
