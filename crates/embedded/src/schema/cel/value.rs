//! JSON as CEL sees it: typed by the schema.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use cel::Value as Cel;
use cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel;
use serde_json::{Number, Value};

use super::names::escape;
use super::program;
use crate::schema::{Additional, Schema, Type};

/// A value. `resource`: at the root of a resource, whose type and names are there though no schema says so.
pub(super) fn convert(value: &Value, schema: &Schema, resource: bool) -> Cel {
    match value {
        Value::String(text) => string(text, schema),
        Value::Number(number) if schema.kind == Some(Type::Number) && !schema.int_or_string => {
            Cel::Float(number.as_f64().unwrap_or(f64::NAN))
        }
        Value::Array(items) => match schema.items.as_deref() {
            Some(schema) => Cel::List(Arc::new(
                items
                    .iter()
                    .map(|item| convert(item, schema, schema.embedded_resource))
                    .collect(),
            )),
            None => plain(value),
        },
        Value::Object(map) if resource || !schema.properties.is_empty() => object(map, schema, resource, |_| true),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| {
                let value = match &schema.additional {
                    Additional::Schema(entry) => convert(value, entry, entry.embedded_resource),
                    Additional::No | Additional::Any => plain(value),
                };
                (text_key(key), value)
            });
            from_entries(entries.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => plain(value),
    }
}

/// An object of which only some fields are asked for.
pub(super) fn convert_fields(value: &Value, schema: &Schema, resource: bool, fields: &BTreeSet<String>) -> Cel {
    match value {
        Value::Object(map) if resource || !schema.properties.is_empty() => {
            object(map, schema, resource, |name| fields.contains(name))
        }
        other => convert(other, schema, resource),
    }
}

/// An optional value.
pub(super) fn optional(value: Option<Cel>) -> Cel {
    Cel::Opaque(Arc::new(match value {
        Some(value) => OptionalValue::of(value),
        None => OptionalValue::none(),
    }))
}

fn text_key(key: &str) -> Key {
    Key::String(Arc::new(key.to_owned()))
}

fn from_entries(map: HashMap<Key, Cel>) -> Cel {
    Cel::Map(Map { map: Arc::new(map) })
}

fn object(map: &serde_json::Map<String, Value>, schema: &Schema, resource: bool, wanted: impl Fn(&str) -> bool) -> Cel {
    let mut entries = HashMap::with_capacity(map.len());
    // A field that is null is as if it were not there.
    for (name, value) in map.iter().filter(|(_, value)| !value.is_null()) {
        let Some(escaped) = escape(name).filter(|name| wanted(name)) else {
            continue;
        };
        let value = match (name.as_str(), schema.properties.get(name.as_str())) {
            ("apiVersion" | "kind", _) if resource => plain(value),
            ("metadata", _) if resource => metadata(value),
            (_, Some(property)) => convert(value, property, property.embedded_resource),
            (_, None) => continue,
        };
        entries.insert(Key::String(Arc::new(escaped)), value);
    }
    from_entries(entries)
}

/// Only names can be asked for.
fn metadata(value: &Value) -> Cel {
    let names = ["name", "generateName"]
        .into_iter()
        .filter_map(|name| Some((text_key(name), plain(value.get(name)?))));
    from_entries(names.collect())
}

fn string(text: &str, schema: &Schema) -> Cel {
    let plain = || Cel::String(Arc::new(text.to_owned()));
    if schema.int_or_string || schema.kind != Some(Type::String) {
        return plain();
    }
    match schema.format.as_deref() {
        Some("duration") => program::duration(text),
        Some("date") => program::timestamp(&format!("{text}T00:00:00Z")),
        Some("date-time") => program::timestamp(text),
        Some("byte") => {
            use base64::Engine as _;
            base64::engine::general_purpose::URL_SAFE
                .decode(text)
                .ok()
                .map(|bytes| Cel::Bytes(Arc::new(bytes)))
        }
        _ => None,
    }
    .unwrap_or_else(plain)
}

fn number(number: &Number) -> Cel {
    number
        .as_i64()
        .map_or_else(|| Cel::Float(number.as_f64().unwrap_or(f64::NAN)), Cel::Int)
}

/// A value that no schema types.
pub(super) fn plain(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(given) => number(given),
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(plain).collect())),
        Value::Object(map) => from_entries(map.iter().map(|(key, value)| (text_key(key), plain(value))).collect()),
    }
}
