//! CustomResourceDefinition. What a definition must be is `schema::crd`'s; its rules depend on what was there before, so
//! the registry asks [`check`] for both.

use serde_json::{Value, json};

use super::reading::at;
use crate::fault::FieldError;
use crate::registry::row::BuiltIn;
use crate::schema::crd;

pub static RULES: BuiltIn = BuiltIn {
    unconditional_update: false,
    default: crd::default_crd,
    on_create: reset_status,
    on_update: keep_status,
    check: |_| Vec::new(),
    check_update: |_, _| Vec::new(),
    warn: crd::warn_crd,
    ..BuiltIn::PLAIN
};

pub fn check(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    crd::check_crd(new, old)
}

/// The status stays, but for the versions that were ever stored: the one that is stored from now on is one of them.
fn keep_status(new: &mut Value, old: &Value) {
    let stored = at(new, "/spec/versions")
        .as_array()
        .into_iter()
        .flatten()
        .find(|version| version.get("storage") == Some(&Value::Bool(true)))
        .and_then(|version| version.get("name").cloned());
    let mut status = old.get("status").cloned().unwrap_or_else(|| json!({}));
    if let (Some(stored), Some(Value::Array(known))) = (stored, status.get_mut("storedVersions"))
        && !known.contains(&stored)
    {
        known.push(stored);
    }
    if let Value::Object(map) = new {
        map.insert("status".to_owned(), status);
    }
}

/// Nothing is accepted before the server has said so.
fn reset_status(definition: &mut Value) {
    let stored = definition
        .get("status")
        .and_then(|status| status.get("storedVersions"))
        .cloned()
        .unwrap_or_else(|| json!([]));
    if let Value::Object(map) = definition {
        let status = json!({
            "acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": stored,
        });
        map.insert("status".to_owned(), status);
    }
}
