//! StorageClass.

use serde_json::Value;

use super::checks::{Errors, among, immutable, qualified};
use super::reading::{at, default_to, entries, list, text};
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

/// Parameters: how many, and all keys and values together in bytes.
const MOST_PARAMETERS: usize = 512;
const MOST_PARAMETER_BYTES: usize = 256 * 1024;

pub static RULES: BuiltIn = BuiltIn {
    default,
    check,
    check_update,
    has_generation: false,
    ..BuiltIn::PLAIN
};

fn default(class: &mut Value) {
    default_to(class, "reclaimPolicy", "Delete");
    default_to(class, "volumeBindingMode", "Immediate");
}

fn check(class: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let provisioner = text(class, "provisioner");
    if provisioner.is_empty() {
        errors.push(FieldError::required(&Path::new("provisioner"), ""));
    } else {
        qualified(&mut errors, &Path::new("provisioner"), &provisioner.to_lowercase());
    }
    check_parameters(&mut errors, class);
    among(
        &mut errors,
        &Path::new("reclaimPolicy"),
        class.get("reclaimPolicy").filter(|policy| *policy != ""),
        &["Delete", "Retain"],
    );
    among(
        &mut errors,
        &Path::new("volumeBindingMode"),
        class.get("volumeBindingMode"),
        &["Immediate", "WaitForFirstConsumer"],
    );
    check_topologies(&mut errors, class);
    errors
}

fn check_parameters(errors: &mut Errors, class: &Value) {
    let path = Path::new("parameters");
    if entries(class, "parameters").count() > MOST_PARAMETERS {
        errors.push(FieldError::too_long(&path, MOST_PARAMETERS));
        return;
    }
    let mut bytes = 0usize;
    for (key, value) in entries(class, "parameters") {
        if key.is_empty() {
            errors.push(FieldError::invalid(&path, key.as_str(), "field can not be empty."));
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > MOST_PARAMETER_BYTES {
        errors.push(FieldError::too_long(&path, MOST_PARAMETER_BYTES));
    }
}

fn check_topologies(errors: &mut Errors, class: &Value) {
    let path = Path::new("allowedTopologies");
    for (index, term) in list(class, "allowedTopologies").iter().enumerate() {
        let path = path.index(index).field("matchLabelExpressions");
        let mut keys: Vec<&str> = Vec::new();
        for (index, requirement) in list(term, "matchLabelExpressions").iter().enumerate() {
            let path = path.index(index);
            let values = list(requirement, "values");
            if values.is_empty() {
                errors.push(FieldError::required(&path.field("values"), ""));
            }
            for (index, value) in values.iter().enumerate() {
                if values.iter().take(index).any(|earlier| earlier == value) {
                    errors.push(FieldError::duplicate(&path.field("values").index(index), value.clone()));
                }
            }
            let key = text(requirement, "key");
            qualified(errors, &path.field("key"), key);
            if keys.contains(&key) {
                errors.push(FieldError::duplicate(&path.field("key"), key));
            }
            keys.push(key);
        }
    }
}

fn check_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        let pointer = format!("/{field}");
        immutable(&mut errors, &Path::new(field), at(new, &pointer), at(old, &pointer));
    }
    errors
}
