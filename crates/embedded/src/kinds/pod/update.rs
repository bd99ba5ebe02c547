//! What may change in a pod: little, since it runs.

use serde_json::Value;

use crate::fault::{FieldError, Path};
use crate::kinds::checks::Errors;
use crate::kinds::difference;
use crate::kinds::names;
use crate::kinds::reading::{at, entries, given, integer, list, same, text};
use crate::kinds::tolerations::check_only_added;

const MAY_CHANGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

pub(super) fn check_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (now, before, path) = (at(new, "/spec"), at(old, "/spec"), Path::new("spec"));
    for field in ["containers", "initContainers"] {
        if list(now, field).len() != list(before, field).len() {
            errors.push(FieldError::forbidden(
                &path.field(field),
                "pod updates may not add or remove containers",
            ));
            return errors;
        }
        for (index, container) in list(now, field).iter().enumerate() {
            let (path, image) = (path.field(field).index(index).field("image"), text(container, "image"));
            if image.is_empty() {
                errors.push(FieldError::required(&path, ""));
            }
        }
    }
    if !check_deadline(&mut errors, now, before, &path.field("activeDeadlineSeconds")) {
        return errors;
    }
    check_only_added(&mut errors, now, before, &path.field("tolerations"));
    check_gates(&mut errors, now, before, &path.field("schedulingGates"));
    if same(now, before) {
        return errors;
    }
    let mut masked = now.clone();
    mask(&mut masked, before);
    if !list(before, "schedulingGates").is_empty() {
        mask_placement(&mut errors, &mut masked, before, &path);
    }
    if !same(&masked, before) {
        errors.push(FieldError::forbidden(
            &path,
            format!("{MAY_CHANGE}\n{}", difference::of(before, &masked)),
        ));
    }
    errors
}

/// False when nothing more need be said.
fn check_deadline(errors: &mut Errors, now: &Value, before: &Value, path: &Path) -> bool {
    const FIELD: &str = "activeDeadlineSeconds";
    match (integer(now, FIELD), integer(before, FIELD)) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            errors.push(FieldError::invalid(
                path,
                seconds,
                names::between(0, i64::from(i32::MAX)),
            ));
            return false;
        }
        (Some(seconds), Some(old)) if old < seconds => {
            errors.push(FieldError::invalid(
                path,
                seconds,
                "must be less than or equal to previous value",
            ));
            return false;
        }
        (None, Some(_)) => errors.push(FieldError::invalid(
            path,
            Value::Null,
            "must not update from a positive integer to nil value",
        )),
        _ => {}
    }
    true
}

fn check_gates(errors: &mut Errors, now: &Value, before: &Value, path: &Path) {
    for (index, gate) in list(now, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !list(before, "schedulingGates")
            .iter()
            .any(|old| text(old, "name") == name)
        {
            errors.push(FieldError::forbidden(
                &path.index(index).field("name"),
                format!("only deletion is allowed, but found new scheduling gate '{name}'"),
            ));
        }
    }
}

/// Puts back what may change.
fn mask(spec: &mut Value, before: &Value) {
    for field in ["containers", "initContainers"] {
        let old = list(before, field);
        if let Some(Value::Array(containers)) = spec.get_mut(field) {
            for (container, old) in containers.iter_mut().zip(old) {
                set(container, "image", old.get("image"));
            }
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        set(spec, field, before.get(field));
    }
    let grace = "terminationGracePeriodSeconds";
    if integer(before, grace).is_some_and(|seconds| seconds < 0) && integer(spec, grace) == Some(1) {
        set(spec, grace, before.get(grace));
    }
}

fn set(holder: &mut Value, field: &str, value: Option<&Value>) {
    if let Some(map) = holder.as_object_mut() {
        match value {
            Some(value) => map.insert(field.to_owned(), value.clone()),
            None => map.remove(field),
        };
    }
}

/// While a pod waits at a gate, it may be given fewer nodes to go to, never more.
fn mask_placement(errors: &mut Errors, spec: &mut Value, before: &Value, path: &Path) {
    let wanted = at(spec, "/nodeSelector");
    if entries(before, "nodeSelector").any(|(key, value)| wanted.get(key) != Some(value)) {
        errors.push(FieldError::invalid(
            &path.field("nodeSelector"),
            wanted.as_object().cloned().unwrap_or_default(),
            "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        ));
    }
    set(spec, "nodeSelector", before.get("nodeSelector"));
    let terms = |spec: &Value| -> Vec<Value> {
        let pointer = format!("/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms");
        at(spec, &pointer).as_array().cloned().unwrap_or_default()
    };
    let (new, old) = (terms(spec), terms(before));
    let path = path
        .field("affinity")
        .field("nodeAffinity")
        .field(REQUIRED)
        .field("nodeSelectorTerms");
    if !old.is_empty() && old.len() != new.len() {
        errors.push(FieldError::invalid(
            &path,
            new,
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        ));
    } else if !old.is_empty() {
        for (index, (new, old)) in new.iter().zip(&old).enumerate() {
            if !only_added(new, old) {
                errors.push(FieldError::invalid(
                    &path.index(index),
                    new.clone(),
                    "only additions are allowed (no mutations or deletions)",
                ));
            }
        }
    }
    let old = before.pointer("/affinity/nodeAffinity");
    match (given(spec, "affinity").is_some(), given(before, "affinity")) {
        (false, Some(_)) if old.is_some() => {
            set(spec, "affinity", Some(&serde_json::json!({"nodeAffinity": old})));
        }
        (true, _) => {
            if let Some(affinity) = spec.get_mut("affinity") {
                set(affinity, "nodeAffinity", old);
            }
        }
        _ => {}
    }
}

fn only_added(new: &Value, old: &Value) -> bool {
    let empty = |term: &Value| list(term, "matchExpressions").is_empty() && list(term, "matchFields").is_empty();
    if empty(old) {
        return empty(new);
    }
    ["matchExpressions", "matchFields"]
        .iter()
        .all(|field| list(new, field).starts_with(list(old, field)))
}
