//! What Deployment, ReplicaSet and StatefulSet share: a selector, a template, and counts in their status.

use serde_json::Value;

use super::checks::{Errors, immutable, not_negative};
use super::names;
use super::pod::{check_pod_template, template_warnings};
use super::reading::{at, given, integer, text};
use super::selector::{check_selector, selects, selects_all};
use crate::fault::{FieldError, Path};

/// Rules on selector and template, and on both together. `kind` is named when the selector is empty.
pub(super) fn check_template(errors: &mut Errors, spec: &Value, template: &Value, kind: &str, path: &Path) {
    let selector = at(spec, "/selector");
    let selector_path = path.field("selector");
    let before = errors.len();
    if given(spec, "selector").is_none() {
        errors.push(FieldError::required(&selector_path, ""));
    } else {
        errors.extend(check_selector(selector, &selector_path));
        if selects_all(selector) {
            errors.push(FieldError::invalid(
                &selector_path,
                selector.clone(),
                format!("empty selector is invalid for {kind}"),
            ));
        }
    }
    let bad = errors
        .iter()
        .skip(before)
        .any(|error| error.path.as_str().contains(".matchExpressions["));
    if bad {
        let words = if kind == "statefulset" {
            ""
        } else {
            "invalid label selector"
        };
        errors.push(FieldError::invalid(&selector_path, selector.clone(), words));
        return;
    }
    let path = path.field("template");
    let labels = at(template, "/metadata/labels");
    let selected = selector.is_object() && (selects_all(selector) || selects(selector, labels));
    if !selected {
        errors.push(FieldError::invalid(
            &path.field("metadata").field("labels"),
            labels.clone(),
            "`selector` does not match template `labels`",
        ));
    }
    check_pod_template(errors, template, &path);
}

/// Warnings about names that become names of pods, and about the template.
pub(super) fn workload_warnings(workload: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.is_none() {
        let name = at(workload, "/metadata/name").as_str().unwrap_or_default();
        let wrong = names::dns_label(name);
        if !wrong.is_empty() {
            warnings.push(format!(
                "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
                 label is recommended: [{}]",
                wrong.join(" ")
            ));
        }
    }
    warnings.extend(template_warnings(
        at(workload, "/spec/template"),
        &Path::new("spec.template"),
    ));
    warnings
}

/// Rules on what the pods of ReplicaSets are made from. The reference calls both kinds deployments here.
pub(super) fn check_replicated(errors: &mut Errors, spec: &Value, path: &Path) {
    let template = at(spec, "/template");
    let before = errors.len();
    check_template(errors, spec, template, "deployment", path);
    let unread = errors
        .iter()
        .skip(before)
        .any(|error| error.detail == "invalid label selector");
    if !unread {
        check_runs_always(errors, template, "ReplicaSet", path);
    }
}

/// Pods of a workload run until it is told otherwise. `owner` is named in the text.
pub(super) fn check_runs_always(errors: &mut Errors, template: &Value, owner: &str, path: &Path) {
    let (spec, path) = (at(template, "/spec"), path.field("template").field("spec"));
    if text(spec, "restartPolicy") != "Always" {
        errors.push(FieldError::not_supported(
            &path.field("restartPolicy"),
            text(spec, "restartPolicy"),
            &["Always"],
        ));
    }
    if given(spec, "activeDeadlineSeconds").is_some() {
        errors.push(FieldError::forbidden(
            &path.field("activeDeadlineSeconds"),
            format!("activeDeadlineSeconds in {owner} is not Supported"),
        ));
    }
}

/// Counts of a status are not negative, and none exceeds `replicas`.
pub(super) fn check_counts(
    errors: &mut Errors,
    status: &Value,
    counts: &[&str],
    within: &[&str],
    than_ready: &str,
    path: &Path,
) {
    for count in counts {
        not_negative(errors, &path.field(count), integer(status, count));
    }
    let count = |field: &str| integer(status, field).unwrap_or(0);
    for field in within {
        if count(field) > count("replicas") {
            errors.push(FieldError::invalid(
                &path.field(field),
                count(field),
                "cannot be greater than status.replicas",
            ));
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        errors.push(FieldError::invalid(
            &path.field("availableReplicas"),
            count("availableReplicas"),
            format!("cannot be greater than {than_ready}"),
        ));
    }
}

/// A count that only grows.
pub(super) fn check_collisions(errors: &mut Errors, new: &Value, old: &Value) {
    let count = |object| integer(at(object, "/status"), "collisionCount");
    if let Some(before) = count(old)
        && count(new).is_none_or(|now| now < before)
    {
        errors.push(FieldError::invalid(
            &Path::new("status.collisionCount"),
            count(new).unwrap_or(0),
            "cannot be decremented",
        ));
    }
}

/// What a workload's pods are found by cannot change.
pub(super) fn keeps_selector(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    immutable(
        &mut errors,
        &Path::new("spec.selector"),
        at(new, "/spec/selector"),
        at(old, "/spec/selector"),
    );
    errors
}
