//! Amounts of cpu, memory and the like that containers ask for.

use serde_json::Value;

use super::checks::{Errors, NOT_NEGATIVE, dns_label, qualified};
use super::quantity::Quantity;
use super::reading::{at, entries, list, text};
use crate::fault::{FieldError, Path, Wrong};

/// Names without a domain that mean something to the reference.
const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];
const OF_CONTAINERS: &[&str] = &["cpu", "memory", "ephemeral-storage"];
/// Counted, not measured.
const COUNTED: &[&str] = &[
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && super::names::label_key(&format!("requests.{name}")).is_empty()
}

/// Whether a request may be less than the limit.
fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// Whether there is no half of it.
pub(super) fn is_whole(name: &str) -> bool {
    COUNTED.contains(&name) || is_extended(name)
}

fn check_name(errors: &mut Errors, name: &str, path: &Path) {
    let before = errors.len();
    qualified(errors, path, name);
    let standard = STANDARD.contains(&name) || is_huge_pages(name);
    if !name.contains('/') {
        if errors.len() == before && !standard {
            errors.push(FieldError::invalid(
                path,
                name,
                "must be a standard resource type or fully qualified",
            ));
        }
        if !OF_CONTAINERS.contains(&name) && !is_huge_pages(name) {
            errors.push(FieldError::invalid(
                path,
                name,
                "must be a standard resource for containers",
            ));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(FieldError::invalid(
            path,
            name,
            "doesn't follow extended resource name standard",
        ));
    }
}

pub(super) fn check_amount(errors: &mut Errors, name: &str, value: &Value, path: &Path) {
    let Some(amount) = Quantity::of(value) else {
        return;
    };
    if amount.is_negative() {
        errors.push(FieldError::invalid(path, value.clone(), NOT_NEGATIVE));
    }
    if is_whole(name) && amount.milli() % 1000 != 0 {
        errors.push(FieldError::invalid(path, value.clone(), "must be an integer"));
    }
}

fn check_huge(errors: &mut Errors, name: &str, value: &Value, path: &Path) {
    let Some(size) = name.strip_prefix("hugepages-") else {
        return;
    };
    let (Some(amount), Ok(size)) = (Quantity::of(value), Quantity::parse(size)) else {
        return;
    };
    let divides = size.units() > 0 && amount.units() >= 0 && amount.units() % size.units() == 0;
    if !divides {
        let shown = value.as_str().unwrap_or_default();
        errors.push(FieldError::invalid(
            path,
            shown,
            format!("{shown} is not positive integer multiple of {name}"),
        ));
    }
}

/// Rules on a container's `resources`. `claims` are the names of the pod's resource claims.
pub(super) fn check_resources(errors: &mut Errors, resources: &Value, claims: &[&str], path: &Path) {
    let (limits_path, requests_path) = (path.field("limits"), path.field("requests"));
    let (mut measured, mut huge) = (false, false);
    for (field, path) in [("limits", &limits_path), ("requests", &requests_path)] {
        for (name, value) in entries(resources, field) {
            let at_name = path.key(name);
            check_name(errors, name, &at_name);
            check_amount(errors, name, value, &at_name);
            if field == "requests" {
                check_request(errors, resources, name, value, path, &limits_path);
            }
            check_huge(errors, name, value, &at_name);
            huge |= is_huge_pages(name);
            measured |= name == "cpu" || name == "memory";
        }
    }
    if huge && !measured {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
    check_claims(errors, list(resources, "claims"), claims, &path.field("claims"));
}

fn check_request(errors: &mut Errors, resources: &Value, name: &str, value: &Value, path: &Path, limits: &Path) {
    let shown = value.as_str().unwrap_or_default();
    match at(resources, "/limits").get(name) {
        Some(limit) => {
            let (Some(amount), Some(most)) = (Quantity::of(value), Quantity::of(limit)) else {
                return;
            };
            let limit = limit.as_str().unwrap_or_default();
            if amount != most && !may_overcommit(name) {
                let words = format!("must be equal to {name} limit of {limit}");
                errors.push(FieldError::invalid(path, shown, words));
            } else if amount > most {
                let words = format!("must be less than or equal to {name} limit of {limit}");
                errors.push(FieldError::invalid(path, shown, words));
            }
        }
        None if !may_overcommit(name) => errors.push(FieldError::required(
            limits,
            "Limit must be set for non overcommitable resources",
        )),
        None => {}
    }
}

fn check_claims(errors: &mut Errors, claims: &[Value], known: &[&str], path: &Path) {
    let key = |claim: &Value| (text(claim, "name").to_owned(), text(claim, "request").to_owned());
    for (index, claim) in claims.iter().enumerate() {
        let (path, name, request) = (path.index(index), text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            errors.push(FieldError::required(&path, ""));
            continue;
        }
        if !request.is_empty() {
            dns_label(errors, &path.field("request"), request);
        }
        let twice = claims.iter().take(index).any(|earlier| {
            let (earlier_name, earlier_request) = key(earlier);
            earlier_name == name && (earlier_request.is_empty() || request.is_empty() || earlier_request == request)
        });
        if twice {
            errors.push(FieldError::duplicate(&path, name));
        }
        if !known.contains(&name) {
            let mut words = "must be one of the names in pod.spec.resourceClaims".to_owned();
            if known.is_empty() {
                words.push_str(" which is empty");
            } else {
                words.push_str(": ");
                words.push_str(&known.join(", "));
            }
            errors.push(FieldError::new(Wrong::NotFound, &path, name, words));
        }
    }
}
