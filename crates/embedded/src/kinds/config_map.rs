//! ConfigMap.

use serde_json::Value;

use super::metadata::invalid;
use super::names;
use super::reading::{at, entries, same, truth};
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

/// All values together, in bytes; also for Secrets.
pub(super) const MOST_BYTES: usize = 1024 * 1024;

pub static RULES: BuiltIn = BuiltIn {
    check,
    check_update,
    has_generation: false,
    ..BuiltIn::PLAIN
};

fn check(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut bytes = 0usize;
    let data = Path::new("data");
    for (key, value) in entries(object, "data") {
        invalid(&mut errors, &data.key(key), key, names::config_key(key));
        if object.pointer("/binaryData").and_then(|map| map.get(key)).is_some() {
            errors.push(FieldError::invalid(
                &data.key(key),
                key.as_str(),
                "duplicate of key present in binaryData",
            ));
        }
        bytes += value.as_str().map_or(0, str::len);
    }
    for (key, value) in entries(object, "binaryData") {
        invalid(
            &mut errors,
            &Path::new("binaryData").key(key),
            key,
            names::config_key(key),
        );
        bytes += decoded_len(value);
    }
    if bytes > MOST_BYTES {
        errors.push(FieldError::too_long(&Path::new("[]"), MOST_BYTES));
    }
    errors
}

/// Bytes of a base64 text.
pub(super) fn decoded_len(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.len() / 4 * 3 - text.bytes().rev().take_while(|byte| *byte == b'=').count()
}

fn check_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if truth(old, "immutable") == Some(true) {
        if truth(new, "immutable") != Some(true) {
            errors.push(FieldError::forbidden(
                &Path::new("immutable"),
                "field is immutable when `immutable` is set",
            ));
        }
        for field in ["data", "binaryData"] {
            if !same(at(new, &format!("/{field}")), at(old, &format!("/{field}"))) {
                errors.push(FieldError::forbidden(
                    &Path::new(field),
                    "field is immutable when `immutable` is set",
                ));
            }
        }
    }
    errors
}
