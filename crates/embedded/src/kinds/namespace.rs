//! Namespace. What deletion does to it is the registry's and the namespace controller's.

use serde_json::{Value, json};

use super::checks::qualified;
use super::metadata::check_built_in_finalizers;
use super::reading::{default_if_empty, list, object_mut, text, text_at};
use crate::fault::{FieldError, Path};
use crate::registry::row::{BuiltIn, NameRule};

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub static RULES: BuiltIn = BuiltIn {
    default,
    on_create,
    on_update,
    check,
    check_status,
    fields: &[
        ("name", |namespace| text_at(namespace, "/metadata/name").to_owned()),
        ("status.phase", |namespace| {
            text_at(namespace, "/status/phase").to_owned()
        }),
    ],
    has_generation: false,
    name: NameRule::Label,
    subresources: &["finalize"],
    ..BuiltIn::PLAIN
};

fn default(namespace: &mut Value) {
    let name = text_at(namespace, "/metadata/name").to_owned();
    if !name.is_empty()
        && let Some(meta) = object_mut(namespace, "metadata")
        && let Some(Value::Object(labels)) = object_mut(meta, "labels")
    {
        labels.insert(NAME_LABEL.to_owned(), name.into());
    }
    if let Some(status) = object_mut(namespace, "status") {
        default_if_empty(status, "phase", "Active");
    }
}

fn on_create(namespace: &mut Value) {
    let finalizers = namespace.pointer("/spec/finalizers").and_then(Value::as_array);
    let has = finalizers.is_some_and(|list| list.iter().any(|name| name == "kubernetes"));
    let mut finalizers = finalizers.cloned().unwrap_or_default();
    if !has {
        finalizers.push("kubernetes".into());
    }
    if let Some(map) = namespace.as_object_mut() {
        map.insert("status".to_owned(), json!({"phase": "Active"}));
    }
    if let Some(Value::Object(spec)) = object_mut(namespace, "spec") {
        spec.insert("finalizers".to_owned(), finalizers.into());
    }
}

/// Finalizers of the spec change through `/finalize` alone.
fn on_update(new: &mut Value, old: &Value) {
    if let Some(map) = new.as_object_mut() {
        match old.get("spec") {
            Some(spec) => map.insert("spec".to_owned(), spec.clone()),
            None => map.remove("spec"),
        };
    }
}

fn check(namespace: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = Path::new("spec.finalizers");
    let spec = namespace.get("spec").unwrap_or(&Value::Null);
    for finalizer in list(spec, "finalizers") {
        qualified(&mut errors, &path, finalizer.as_str().unwrap_or_default());
    }
    errors.extend(
        check_built_in_finalizers(spec, &Path::new("spec"))
            .into_iter()
            .map(|mut error| {
                error.path = path.clone();
                error
            }),
    );
    errors
}

fn check_status(new: &Value, _: &Value) -> Vec<FieldError> {
    let dying = !text_at(new, "/metadata/deletionTimestamp").is_empty();
    let phase = text(new.get("status").unwrap_or(&Value::Null), "phase");
    let (wanted, words) = if dying {
        (
            "Terminating",
            "may only be 'Terminating' if `deletionTimestamp` is not empty",
        )
    } else {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    };
    if phase == wanted {
        return Vec::new();
    }
    vec![FieldError::invalid(&Path::new("status.Phase"), phase, words)]
}
