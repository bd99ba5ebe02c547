//! ResourceClaim and ResourceClaimTemplate: stored; there are no devices.

use serde_json::{Value, json};

use super::checks::{Errors, dns_label, dns_subdomain, immutable};
use super::reading::{at, default_if_empty, given, integer, list, list_mut, text};
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

/// Requests, constraints, and alternatives of one request.
const MOST: usize = 32;
const MOST_ALTERNATIVES: usize = 8;

pub static RULES: BuiltIn = BuiltIn {
    default: |claim| default_spec(claim.get_mut("spec")),
    on_create: |claim| {
        if let Some(map) = claim.as_object_mut() {
            map.insert("status".to_owned(), json!({}));
        }
    },
    check: |claim| {
        let mut errors = Vec::new();
        check_spec(&mut errors, at(claim, "/spec"), &Path::new("spec"));
        errors
    },
    check_update: |new, old| {
        let mut errors = Vec::new();
        immutable(&mut errors, &Path::new("spec"), at(new, "/spec"), at(old, "/spec"));
        errors
    },
    has_generation: false,
    ..BuiltIn::PLAIN
};

pub static TEMPLATE: BuiltIn = BuiltIn {
    default: |template| default_spec(template.pointer_mut("/spec/spec")),
    on_create: |_| {},
    check: |template| {
        let mut errors = super::metadata::check_template(at(template, "/spec/metadata"), &Path::new("spec.metadata"));
        check_spec(&mut errors, at(template, "/spec/spec"), &Path::new("spec.spec"));
        errors
    },
    ..RULES
};

fn default_spec(spec: Option<&mut Value>) {
    let Some(devices) = spec.and_then(|spec| spec.get_mut("devices")) else {
        return;
    };
    for request in list_mut(devices, "requests") {
        if let Some(exactly) = request.get_mut("exactly").filter(|exactly| exactly.is_object()) {
            default_request(exactly);
        }
        for alternative in list_mut(request, "firstAvailable") {
            default_request(alternative);
        }
    }
}

fn default_request(request: &mut Value) {
    default_if_empty(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" {
        default_if_empty(request, "count", 1);
    }
}

fn check_spec(errors: &mut Errors, spec: &Value, path: &Path) {
    let (devices, path) = (at(spec, "/devices"), path.field("devices"));
    let requests = list(devices, "requests");
    if requests.len() > MOST {
        errors.push(FieldError::too_many(&path.field("requests"), requests.len(), MOST));
    }
    for (index, request) in requests.iter().enumerate() {
        let path = path.field("requests").index(index);
        let name = text(request, "name");
        if requests.iter().take(index).any(|earlier| text(earlier, "name") == name) {
            errors.push(FieldError::duplicate(&path, name));
        }
        check_name(errors, name, &path.field("name"));
        check_request(errors, request, &path);
    }
    let constraints = list(devices, "constraints");
    if constraints.len() > MOST {
        errors.push(FieldError::too_many(
            &path.field("constraints"),
            constraints.len(),
            MOST,
        ));
    }
    for (index, constraint) in constraints.iter().enumerate() {
        if given(constraint, "matchAttribute").is_none() && given(constraint, "distinctAttribute").is_none() {
            errors.push(FieldError::required(
                &path.field("constraints").index(index),
                "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
            ));
        }
    }
}

fn check_name(errors: &mut Errors, name: &str, path: &Path) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        dns_label(errors, path, name);
    }
}

fn check_request(errors: &mut Errors, request: &Value, path: &Path) {
    let alternatives = list(request, "firstAvailable");
    match (given(request, "exactly"), alternatives.is_empty()) {
        (Some(exactly), true) => check_exact(errors, exactly, &path.field("exactly")),
        (None, false) => {
            let path = path.field("firstAvailable");
            if alternatives.len() > MOST_ALTERNATIVES {
                errors.push(FieldError::too_many(&path, alternatives.len(), MOST_ALTERNATIVES));
            }
            for (index, alternative) in alternatives.iter().enumerate() {
                check_name(errors, text(alternative, "name"), &path.index(index).field("name"));
                check_exact(errors, alternative, &path.index(index));
            }
        }
        (None, true) => errors.push(FieldError::required(
            path,
            "exactly one of `exactly` or `firstAvailable` is required",
        )),
        (Some(_), false) => errors.push(FieldError::invalid(
            path,
            Value::Null,
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        )),
    }
}

fn check_exact(errors: &mut Errors, request: &Value, path: &Path) {
    let class = text(request, "deviceClassName");
    if class.is_empty() {
        errors.push(FieldError::required(&path.field("deviceClassName"), ""));
    } else {
        dns_subdomain(errors, &path.field("deviceClassName"), class);
    }
    let count = integer(request, "count").unwrap_or(0);
    match text(request, "allocationMode") {
        "All" if count != 0 => errors.push(FieldError::invalid(
            &path.field("count"),
            count,
            "must not be specified when allocationMode is 'All'",
        )),
        "All" => {}
        "ExactCount" if count <= 0 => errors.push(FieldError::invalid(
            &path.field("count"),
            count,
            "must be greater than zero",
        )),
        "ExactCount" => {}
        other => errors.push(FieldError::not_supported(
            &path.field("allocationMode"),
            other,
            &["All", "ExactCount"],
        )),
    }
}
