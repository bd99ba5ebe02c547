//! ControllerRevision: what a StatefulSet's template was.

use serde_json::Value;

use super::checks::{immutable, not_negative};
use super::reading::{at, integer};
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

pub static RULES: BuiltIn = BuiltIn {
    check,
    check_update,
    has_generation: false,
    ..BuiltIn::PLAIN
};

fn check(revision: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    not_negative(&mut errors, &Path::new("revision"), integer(revision, "revision"));
    match at(revision, "/data") {
        Value::Object(_) => {}
        Value::Null => errors.push(FieldError::required(&Path::new("data"), "data is mandatory")),
        _ => errors.push(FieldError::required(
            &Path::new("data"),
            "data must be a valid JSON object",
        )),
    }
    errors
}

fn check_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    immutable(&mut errors, &Path::new("data"), at(new, "/data"), at(old, "/data"));
    errors
}
