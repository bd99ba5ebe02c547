//! Node selectors: of pods' affinity and of volumes.

use serde_json::Value;

use super::checks::{Errors, qualified};
use super::metadata::invalid;
use super::names;
use super::reading::{list, text};
use crate::fault::{FieldError, Path};

/// Rules on a `NodeSelector`: terms, each of requirements.
pub(super) fn check_node_selector(errors: &mut Errors, selector: &Value, path: &Path) {
    let terms = list(selector, "nodeSelectorTerms");
    let path = path.field("nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(FieldError::required(&path, "must have at least one node selector term"));
    }
    for (index, term) in terms.iter().enumerate() {
        check_term(errors, term, &path.index(index));
    }
}

pub(super) fn check_term(errors: &mut Errors, term: &Value, path: &Path) {
    for (index, requirement) in list(term, "matchExpressions").iter().enumerate() {
        check_requirement(errors, requirement, &path.field("matchExpressions").index(index));
    }
    for (index, requirement) in list(term, "matchFields").iter().enumerate() {
        check_field(errors, requirement, &path.field("matchFields").index(index));
    }
}

fn check_requirement(errors: &mut Errors, requirement: &Value, path: &Path) {
    let values = list(requirement, "values");
    let values_path = path.field("values");
    match text(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
            &values_path,
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
            &values_path,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        "Gt" | "Lt" if values.len() != 1 => errors.push(FieldError::required(
            &values_path,
            "must be specified single value when `operator` is 'Lt' or 'Gt'",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.push(FieldError::invalid(
            &path.field("operator"),
            other,
            "not a valid selector operator",
        )),
    }
    qualified(errors, &path.field("key"), text(requirement, "key"));
    for (index, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        invalid(errors, &values_path.index(index), value, names::label_value(value));
    }
}

fn check_field(errors: &mut Errors, requirement: &Value, path: &Path) {
    let values = list(requirement, "values");
    match text(requirement, "operator") {
        "In" | "NotIn" => {
            if values.len() != 1 {
                errors.push(FieldError::required(
                    &path.field("values"),
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                ));
            }
        }
        other => errors.push(FieldError::invalid(
            &path.field("operator"),
            other,
            "not a valid selector operator",
        )),
    }
    let key = text(requirement, "key");
    if key != "metadata.name" {
        errors.push(FieldError::invalid(
            &path.field("key"),
            key,
            "not a valid field selector key",
        ));
        return;
    }
    for (index, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        let path = path.field("values").index(index);
        invalid(errors, &path, value, names::dns_subdomain(value));
    }
}
