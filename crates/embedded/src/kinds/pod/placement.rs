//! Where a pod may go: affinity and spreading.

use serde_json::Value;

use crate::fault::{FieldError, Path};
use crate::kinds::checks::{Errors, among, dns_label, qualified};
use crate::kinds::node_selector::{check_node_selector, check_term};
use crate::kinds::reading::{at, given, integer, list, map, text};
use crate::kinds::selector::check_selector;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn check_affinity(errors: &mut Errors, affinity: &Value, path: &Path) {
    if let Some(node) = given(affinity, "nodeAffinity") {
        let path = path.field("nodeAffinity");
        if let Some(selector) = given(node, REQUIRED) {
            check_node_selector(errors, selector, &path.field(REQUIRED));
        }
        for (index, term) in list(node, PREFERRED).iter().enumerate() {
            let path = path.field(PREFERRED).index(index);
            check_weight(errors, term, &path);
            check_term(errors, at(term, "/preference"), &path.field("preference"));
        }
    }
    for field in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = given(affinity, field) else {
            continue;
        };
        let path = path.field(field);
        for (index, term) in list(pods, REQUIRED).iter().enumerate() {
            check_pod_term(errors, term, &path.field(REQUIRED).index(index));
        }
        for (index, term) in list(pods, PREFERRED).iter().enumerate() {
            let path = path.field(PREFERRED).index(index);
            check_weight(errors, term, &path);
            check_pod_term(errors, at(term, "/podAffinityTerm"), &path.field("podAffinityTerm"));
        }
    }
}

fn check_weight(errors: &mut Errors, term: &Value, path: &Path) {
    let weight = integer(term, "weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(
            &path.field("weight"),
            weight,
            "must be in the range 1-100",
        ));
    }
}

fn check_pod_term(errors: &mut Errors, term: &Value, path: &Path) {
    for field in ["labelSelector", "namespaceSelector"] {
        errors.extend(check_selector(at(term, &format!("/{field}")), &path.field(field)));
    }
    for namespace in list(term, "namespaces") {
        dns_label(errors, &path.field("namespace"), namespace.as_str().unwrap_or_default());
    }
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        check_label_keys(errors, term, field, &path.field(field));
    }
    for (index, key) in list(term, "matchLabelKeys").iter().enumerate() {
        if list(term, "mismatchLabelKeys").contains(key) {
            errors.push(FieldError::invalid(
                &path.field("matchLabelKeys").index(index),
                key.clone(),
                "exists in both matchLabelKeys and mismatchLabelKeys",
            ));
        }
    }
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(&path.field("topologyKey"), "can not be empty"));
    }
    qualified(errors, &path.field("topologyKey"), key);
}

fn check_label_keys(errors: &mut Errors, holder: &Value, field: &str, path: &Path) {
    let keys = list(holder, field);
    if !keys.is_empty() && map(holder, "labelSelector").is_none() {
        errors.push(FieldError::forbidden(
            path,
            "must not be specified when labelSelector is not set",
        ));
        return;
    }
    for (index, key) in keys.iter().enumerate() {
        qualified(errors, &path.index(index), key.as_str().unwrap_or_default());
    }
}

fn positive(errors: &mut Errors, path: &Path, value: i64) {
    if value <= 0 {
        errors.push(FieldError::invalid(path, value, "must be greater than zero"));
    }
}

pub(super) fn check_spreading(errors: &mut Errors, constraints: &[Value], path: &Path) {
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        let (key, action) = (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
        positive(
            errors,
            &path.field("maxSkew"),
            integer(constraint, "maxSkew").unwrap_or(0),
        );
        if key.is_empty() {
            errors.push(FieldError::required(&path.field("topologyKey"), "can not be empty"));
        }
        if action != "DoNotSchedule" && action != "ScheduleAnyway" {
            errors.push(FieldError::not_supported(
                &path.field("whenUnsatisfiable"),
                action,
                &["DoNotSchedule", "ScheduleAnyway"],
            ));
        }
        let again = |later: &Value| text(later, "topologyKey") == key && text(later, "whenUnsatisfiable") == action;
        if constraints.iter().skip(index + 1).any(again) {
            errors.push(FieldError::duplicate(
                &path.field("{topologyKey, whenUnsatisfiable}"),
                format!("{{{key}, {action}}}"),
            ));
        }
        if let Some(domains) = integer(constraint, "minDomains") {
            positive(errors, &path.field("minDomains"), domains);
            if action != "DoNotSchedule" {
                errors.push(FieldError::invalid(
                    &path.field("minDomains"),
                    domains,
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"),
                ));
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            among(errors, &path.field(field), constraint.get(field), &["Honor", "Ignore"]);
        }
        check_label_keys(errors, constraint, "matchLabelKeys", &path.field("matchLabelKeys"));
        errors.extend(check_selector(
            at(constraint, "/labelSelector"),
            &path.field("labelSelector"),
        ));
    }
}
