//! What k8s-openapi's types do not say: defaults, allowed values, and how lists and maps are merged. It is in our own
//! schemas, and without it kubectl would replace where it should merge.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::definitions::referred;
use crate::schema::{Additional, ListType, Schema, Type};

/// Adds the facts of a schema to the definition of that name, and to all that it refers to. Definition and schema are
/// walked side by side; a definition that is met again is left as it is.
pub fn add(schemas: &mut BTreeMap<String, Value>, name: &str, schema: Option<&Schema>) {
    let Some(schema) = schema else {
        return;
    };
    let mut met = BTreeSet::new();
    let mut ahead = vec![(name.to_owned(), schema)];
    while let Some((name, schema)) = ahead.pop() {
        let Some(definition) = schemas.get_mut(&name) else {
            continue;
        };
        if !met.insert(name) {
            continue;
        }
        let Value::Object(definition) = definition else {
            continue;
        };
        if schema.atomic_map {
            definition.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
        let Some(Value::Object(properties)) = definition.get_mut("properties") else {
            continue;
        };
        for (field, value) in properties {
            if let (Value::Object(value), Some(schema)) = (value, schema.properties.get(field.as_str())) {
                describe(value, schema, &mut ahead);
            }
        }
    }
}

/// One field: its own facts, then those of its items or values.
fn describe<'a>(value: &mut Map<String, Value>, schema: &'a Schema, ahead: &mut Vec<(String, &'a Schema)>) {
    if let Some(key) = &schema.patch_merge_key {
        value.insert("x-kubernetes-patch-merge-key".into(), (&**key).into());
    }
    if let Some(strategy) = &schema.patch_strategy {
        value.insert("x-kubernetes-patch-strategy".into(), (&**strategy).into());
    }
    if let Some(default) = &schema.default {
        value.insert("default".into(), default.clone());
    }
    if let Some(bounds) = schema.bounds.as_ref().filter(|bounds| !bounds.allowed.is_empty()) {
        value.insert("enum".into(), bounds.allowed.clone().into());
    }
    if let Some(name) = target(value) {
        ahead.push((name, schema));
        // Beside a reference nothing else is read: what has a default refers by way of allOf.
        if value.contains_key("default")
            && let Some(reference) = value.remove("$ref")
        {
            value.insert("allOf".into(), json!([{"$ref": reference}]));
        }
        return;
    }
    if schema.kind == Some(Type::Array) {
        value.insert("x-kubernetes-list-type".into(), list_type(schema.list_type).into());
        if !schema.list_map_keys.is_empty() {
            let keys = schema.list_map_keys.iter().map(|key| Value::from(&**key)).collect();
            value.insert("x-kubernetes-list-map-keys".into(), keys);
        }
    } else if schema.atomic_map {
        value.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
    let below = match (&schema.items, &schema.additional) {
        (Some(items), _) => Some(("items", &**items)),
        (None, Additional::Schema(values)) => Some(("additionalProperties", &**values)),
        (None, _) => None,
    };
    if let Some((field, schema)) = below
        && let Some(Value::Object(value)) = value.get_mut(field)
    {
        describe(value, schema, ahead);
    }
}

pub fn list_type(list_type: ListType) -> &'static str {
    match list_type {
        ListType::Atomic => "atomic",
        ListType::Set => "set",
        ListType::Map => "map",
    }
}

/// The definition that a field refers to; a reference with siblings is wrapped.
fn target(value: &Map<String, Value>) -> Option<String> {
    let direct = value.get("$ref");
    let wrapped = || value.get("allOf")?.as_array()?.first()?.get("$ref");
    let reference = direct.or_else(wrapped)?.as_str()?;
    referred(reference).map(str::to_owned)
}
