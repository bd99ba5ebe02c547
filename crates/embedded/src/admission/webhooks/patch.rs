//! A webhook's JSON patch. What fails is told as the reference's library tells it.

use serde_json::{Value, json};

use crate::fields;

/// The object with the operations applied, in order.
pub(super) fn apply(object: &Value, operations: &Value) -> Result<Value, String> {
    match fields::json_patch(object, operations) {
        Ok(patched) => Ok(patched),
        Err(_) => Err(failing(object, operations)),
    }
}

/// The sentence about the first operation that fails.
fn failing(object: &Value, operations: &Value) -> String {
    let mut document = object.clone();
    for operation in operations.as_array().into_iter().flatten() {
        match fields::json_patch(&document, &json!([operation])) {
            Ok(next) => document = next,
            Err(_) => return words(&document, operation),
        }
    }
    // Too many operations, or together too much.
    "the patch is too large".to_owned()
}

fn words(document: &Value, operation: &Value) -> String {
    let text = |field: &str| operation.get(field).and_then(Value::as_str).unwrap_or_default();
    let (kind, path, from) = (text("op"), text("path"), text("from"));
    let (parent, key) = path.rsplit_once('/').unwrap_or(("", path));
    let has = |pointer: &str| {
        let (parent, _) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        document
            .pointer(parent)
            .is_some_and(|parent| parent.is_object() || parent.is_array())
    };
    let index = match document.pointer(parent) {
        Some(Value::Array(_)) => match key.parse::<i64>() {
            Ok(index) => Some(format!(
                "Unable to access invalid index: {index}: invalid index referenced"
            )),
            Err(_) => Some(format!(
                "value was not a proper array index: '{key}': strconv.Atoi: parsing \"{key}\": invalid syntax"
            )),
        },
        _ => None,
    };
    match kind {
        "add" | "remove" if !has(path) => {
            format!("{kind} operation does not apply: doc is missing path: \"{path}\": missing value")
        }
        "remove" => {
            let why = index.unwrap_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value"));
            format!("error in remove for path: '{path}': {why}")
        }
        "add" => format!("error in add for path: '{path}': {}", index.unwrap_or_default()),
        "replace" if path.is_empty() => "replace operation value must be object or array: %!w(<nil>)".to_owned(),
        "replace" if !has(path) => {
            format!("replace operation does not apply: doc is missing path: {path}: missing value")
        }
        "replace" => format!("replace operation does not apply: doc is missing key: {path}: missing value"),
        "test" if !path.is_empty() && !has(path) => {
            format!("test operation does not apply: is missing path: {path}: missing value")
        }
        "test" => format!("testing value {path} failed: test failed"),
        "move" | "copy" if !has(from) => {
            format!("{kind} operation does not apply: doc is missing from path: {from}: missing value")
        }
        "move" | "copy" => {
            format!("{kind} operation does not apply: doc is missing destination path: {path}: missing value")
        }
        other => format!("Unexpected kind: {other}"),
    }
}
