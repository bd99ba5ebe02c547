//! Resources within resources (`x-kubernetes-embedded-resource`): they say what they are.

use serde_json::Value;

use crate::fault::{FieldError, Path};
use crate::schema::{Additional, Schema};

pub(super) fn check(schema: &Schema, value: &Value, errors: &mut Vec<FieldError>) {
    if has_embedded(schema) {
        walk(schema, value, &Path::root(), true, errors);
    }
}

/// Most schemas embed nothing; asking costs less than walking the object.
fn has_embedded(schema: &Schema) -> bool {
    schema.embedded_resource
        || schema.properties.values().any(|schema| has_embedded(schema))
        || schema.items.as_deref().is_some_and(has_embedded)
        || matches!(&schema.additional, Additional::Schema(schema) if has_embedded(schema))
}

fn walk(schema: &Schema, value: &Value, path: &Path, root: bool, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if schema.embedded_resource && !root {
                resource(value, path, errors);
            }
            for (key, value) in map {
                if let Some(property) = schema.properties.get(key.as_str()) {
                    walk(property, value, &path.field(key), false, errors);
                } else if let Additional::Schema(entry) = &schema.additional {
                    walk(entry, value, &path.key(key), false, errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    walk(schema, item, &path.index(index), false, errors);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn resource(value: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let path = path.field(name);
        match value.get(name) {
            None => errors.push(FieldError::required(&path, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(&path, "", "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" => {
                if text.matches('/').count() > 1 {
                    errors.push(FieldError::invalid(
                        &path,
                        text.as_str(),
                        format!("unexpected GroupVersion string: {text}"),
                    ));
                }
            }
            Some(Value::String(text)) => {
                if let Some(why) = crate::schema::names::dns1035(&text.to_lowercase()) {
                    errors.push(FieldError::invalid(
                        &path,
                        text.as_str(),
                        format!("may have mixed case, but should otherwise match: {why}"),
                    ));
                }
            }
            Some(other) => errors.push(FieldError::invalid(&path, other.clone(), "must be a string")),
        }
    }
}
