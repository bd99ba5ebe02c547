//! CustomResourceDefinition. What a definition must be is `schema::crd`'s; its rules depend on what was there before, so
//! the registry asks [`check`] for both.

use serde_json::{Value, json};

use crate::fault::FieldError;
use crate::registry::row::BuiltIn;
use crate::schema::crd;

pub static RULES: BuiltIn = BuiltIn {
    unconditional_update: false,
    default: crd::default_crd,
    on_create: reset_status,
    on_update: |new, old| {
        // The version that is stored may have changed.
        if let Some(status) = old.get("status") {
            new["status"] = status.clone();
        }
    },
    check: |_| Vec::new(),
    check_update: |_, _| Vec::new(),
    warn: crd::warn_crd,
    ..BuiltIn::PLAIN
};

pub fn check(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    crd::check_crd(new, old)
}

/// Nothing is accepted before the server has said so.
fn reset_status(definition: &mut Value) {
    let stored = definition
        .get("status")
        .and_then(|status| status.get("storedVersions"))
        .cloned()
        .unwrap_or_else(|| json!([]));
    definition["status"] = json!({
        "acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": stored,
    });
}
