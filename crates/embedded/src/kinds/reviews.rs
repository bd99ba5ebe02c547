//! Reviews: questions to the server, never stored. What the answer is, the registry says.

use serde_json::Value;

use super::checks::Errors;
use super::reading::{at, given, list, text, text_at};
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

pub static RULES: BuiltIn = BuiltIn {
    check,
    has_generation: false,
    ..BuiltIn::PLAIN
};

fn check(review: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = text(review, "kind");
    if matches!(
        kind,
        "SubjectAccessReview" | "LocalSubjectAccessReview" | "SelfSubjectAccessReview"
    ) {
        check_access(&mut errors, at(review, "/spec"), kind != "SelfSubjectAccessReview");
        check_meta(&mut errors, review, kind == "LocalSubjectAccessReview");
    }
    if kind == "LocalSubjectAccessReview" {
        check_local(&mut errors, review);
    }
    errors
}

fn check_access(errors: &mut Errors, spec: &Value, about_somebody: bool) {
    let path = Path::new("spec");
    match (given(spec, "resourceAttributes"), given(spec, "nonResourceAttributes")) {
        (Some(_), Some(other)) => errors.push(FieldError::invalid(
            &path.field("nonResourceAttributes"),
            other.clone(),
            "cannot be specified in combination with resourceAttributes",
        )),
        (None, None) => errors.push(FieldError::invalid(
            &path.field("resourceAttributes"),
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    if about_somebody && text(spec, "user").is_empty() && list(spec, "groups").is_empty() {
        errors.push(FieldError::invalid(
            &path.field("user"),
            "",
            "at least one of user or group must be specified",
        ));
    }
}

fn check_meta(errors: &mut Errors, review: &Value, namespaced: bool) {
    let meta = review.get("metadata").and_then(Value::as_object);
    let named = meta
        .into_iter()
        .flatten()
        .any(|(key, _)| key != "managedFields" && !(namespaced && key == "namespace"));
    if named {
        let words = if namespaced {
            "must be empty except for namespace"
        } else {
            "must be empty"
        };
        errors.push(FieldError::invalid(
            &Path::new("metadata"),
            at(review, "/metadata").clone(),
            words,
        ));
    }
}

fn check_local(errors: &mut Errors, review: &Value) {
    let (spec, namespace) = (at(review, "/spec"), text_at(review, "/metadata/namespace"));
    if let Some(attributes) = given(spec, "resourceAttributes")
        && text(attributes, "namespace") != namespace
    {
        errors.push(FieldError::invalid(
            &Path::new("spec.resourceAttributes.namespace"),
            text(attributes, "namespace"),
            "must match metadata.namespace",
        ));
    }
    if let Some(attributes) = given(spec, "nonResourceAttributes") {
        errors.push(FieldError::invalid(
            &Path::new("spec.nonResourceAttributes"),
            attributes.clone(),
            "disallowed on this kind of request",
        ));
    }
}
