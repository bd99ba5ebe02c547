//! Schemas for the tests, from the little of OpenAPI they need.

use std::sync::Arc;

use serde_json::Value;
use usher_embedded::schema::{Additional, ListType, Schema, Type};

pub fn schema(openapi: &Value) -> Schema {
    let text = |name: &str| openapi.get(name).and_then(Value::as_str);
    let flag = |name: &str| openapi.get(name) == Some(&Value::Bool(true));
    let texts = |name: &str| -> Vec<Arc<str>> {
        let list = openapi.get(name).and_then(Value::as_array).into_iter().flatten();
        list.map(|word| word.as_str().unwrap().into()).collect()
    };
    Schema {
        name: text("name").map(Into::into),
        kind: text("type").map(|kind| match kind {
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            other => panic!("type {other}"),
        }),
        properties: openapi
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, field)| (name.as_str().into(), Arc::new(schema(field))))
            .collect(),
        additional: match openapi.get("additionalProperties") {
            None | Some(Value::Bool(false)) => Additional::No,
            Some(Value::Bool(true)) => Additional::Any,
            Some(entry) => Additional::Schema(Arc::new(schema(entry))),
        },
        items: openapi.get("items").map(|items| Arc::new(schema(items))),
        required: texts("required"),
        default: openapi.get("default").cloned(),
        format: text("format").map(Into::into),
        list_type: match text("x-kubernetes-list-type") {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map,
            _ => ListType::Atomic,
        },
        list_map_keys: texts("x-kubernetes-list-map-keys"),
        atomic_map: text("x-kubernetes-map-type") == Some("atomic"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        int_or_string: flag("x-kubernetes-int-or-string") || text("format") == Some("int-or-string"),
        embedded_resource: flag("x-kubernetes-embedded-resource"),
        patch_merge_key: text("x-kubernetes-patch-merge-key").map(Into::into),
        patch_strategy: text("x-kubernetes-patch-strategy").map(Into::into),
        ..Schema::default()
    }
}
