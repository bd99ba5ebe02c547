//! What ObjectMeta knows, for the metadata of custom resources and of resources embedded in them.

use serde_json::{Map, Value};

/// In the order in which the reference writes them.
pub(crate) const FIELDS: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

pub(crate) const OWNER_FIELDS: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

pub(crate) const MANAGED_FIELDS: [&str; 7] = [
    "manager",
    "operation",
    "apiVersion",
    "time",
    "fieldsType",
    "fieldsV1",
    "subresource",
];

/// Drops what ObjectMeta does not know from a resource's `metadata`, and what says nothing (null, empty), as a round
/// trip through the type does; a null in a list or a map becomes the empty value that Go makes of it. `place` is where
/// the resource is.
pub(super) fn prune(resource: &mut Map<String, Value>, place: &str, dropped: &mut Vec<String>) {
    let Some(Value::Object(metadata)) = resource.get_mut("metadata") else {
        return;
    };
    let dot = if place.is_empty() { "" } else { "." };
    metadata.retain(|key, value| {
        if !FIELDS.contains(&key.as_str()) {
            dropped.push(format!("{place}{dot}metadata.{key}"));
            return false;
        }
        let known: &[&str] = match key.as_str() {
            "ownerReferences" => &OWNER_FIELDS,
            "managedFields" => &MANAGED_FIELDS,
            _ => &[],
        };
        match key.as_str() {
            "labels" | "annotations" => {
                let texts = value.as_object_mut().into_iter().flat_map(Map::values_mut);
                texts.for_each(|text| fill_null(text, || "".into()));
            }
            "finalizers" => {
                let texts = value.as_array_mut().into_iter().flatten();
                texts.for_each(|text| fill_null(text, || "".into()));
            }
            _ => {}
        }
        if !known.is_empty() {
            items(value, known, &format!("{place}{dot}metadata.{key}"), dropped);
        }
        !says_nothing(key, value)
    });
}

fn items(value: &mut Value, known: &[&str], place: &str, dropped: &mut Vec<String>) {
    for (index, item) in value.as_array_mut().into_iter().flatten().enumerate() {
        fill_null(item, || Value::Object(Map::new()));
        if let Value::Object(map) = item {
            map.retain(|key, value| {
                let keep = known.contains(&key.as_str());
                if !keep {
                    dropped.push(format!("{place}[{index}].{key}"));
                }
                keep && !value.is_null()
            });
        }
    }
}

fn fill_null(value: &mut Value, empty: impl FnOnce() -> Value) {
    if value.is_null() {
        *value = empty();
    }
}

fn says_nothing(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(number) => key == "generation" && number.as_i64() == Some(0),
        Value::Bool(_) => false,
    }
}
