//! Dropping what a schema does not know (D2). The registry calls this on every custom resource that it decodes.

use serde_json::{Map, Value};

use super::{Additional, Schema, metadata};

/// Drops unknown fields of a custom resource, and answers which: `spec.foo`, `spec.list[0].bar`, sorted. The root and
/// embedded resources keep `apiVersion`, `kind` and `metadata`; of metadata, only what ObjectMeta knows stays.
pub fn prune(schema: &Schema, value: &mut Value) -> Vec<String> {
    let mut walk = Walk::default();
    if let Value::Object(map) = value {
        metadata::prune(map, "", &mut walk.dropped);
    }
    let metadata_count = walk.dropped.len();
    walk.value(Some(schema), value, true);
    if let Some(dropped) = walk.dropped.get_mut(metadata_count..) {
        dropped.sort_unstable();
    }
    let fields_count = walk.dropped.len();
    walk.embedded(schema, value);
    if let Some(dropped) = walk.dropped.get_mut(fields_count..) {
        dropped.sort_unstable();
    }
    walk.dropped
}

/// The same for a value within a resource, as a default is.
pub(super) fn prune_value(schema: &Schema, value: &mut Value) -> Vec<String> {
    let mut walk = Walk::default();
    walk.value(Some(schema), value, false);
    walk.dropped
}

fn is_type_or_metadata(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

#[derive(Default)]
struct Walk {
    place: String,
    dropped: Vec<String>,
}

impl Walk {
    fn drop_field(&mut self, key: &str) {
        let mut path = self.place.clone();
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
        self.dropped.push(path);
    }

    fn within<T>(&mut self, key: &str, run: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.place.len();
        if length > 0 {
            self.place.push('.');
        }
        self.place.push_str(key);
        let answer = run(self);
        self.place.truncate(length);
        answer
    }

    fn at<T>(&mut self, index: usize, run: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.place.len();
        self.place.push_str(&format!("[{index}]"));
        let answer = run(self);
        self.place.truncate(length);
        answer
    }

    /// `None`: nothing is known here, so every field of an object goes.
    fn value(&mut self, schema: Option<&Schema>, value: &mut Value, resource: bool) {
        match value {
            Value::Object(map) => match schema {
                None => {
                    for key in map.keys() {
                        self.drop_field(key);
                    }
                    map.clear();
                }
                Some(schema) => self.object(schema, map, resource),
            },
            Value::Array(items) => {
                let schema_of_items = schema.and_then(|schema| schema.items.as_deref());
                let preserving = schema.is_some_and(|schema| schema.preserve_unknown);
                for (index, item) in items.iter_mut().enumerate() {
                    self.at(index, |walk| match (schema_of_items, preserving) {
                        (None, true) => {}
                        // Within a preserved list, unknown fields of its items stay as well.
                        (Some(schema), true) => walk.preserved(schema, item),
                        (schema, false) => walk.value(schema, item, false),
                    });
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn object(&mut self, schema: &Schema, map: &mut Map<String, Value>, resource: bool) {
        let resource = resource || schema.embedded_resource;
        map.retain(|key, value| {
            if resource && is_type_or_metadata(key) {
                return true;
            }
            if let Some(property) = schema.properties.get(key.as_str()) {
                self.within(key, |walk| walk.value(Some(property), value, false));
                return true;
            }
            match &schema.additional {
                Additional::Schema(entry) => self.within(key, |walk| walk.value(Some(entry), value, false)),
                Additional::Any => self.within(key, |walk| walk.value(None, value, false)),
                Additional::No if schema.preserve_unknown => {}
                Additional::No => {
                    self.drop_field(key);
                    return false;
                }
            }
            true
        });
    }

    /// Items of a preserved list: their own unknown fields stay, what their properties specify is pruned.
    fn preserved(&mut self, schema: &Schema, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map.iter_mut() {
                    if schema.embedded_resource && is_type_or_metadata(key) {
                        continue;
                    }
                    let property = schema.property(key);
                    if property.is_some() || schema.additional == Additional::Any {
                        self.within(key, |walk| walk.value(property, value, false));
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = schema.items.as_deref() {
                    for (index, item) in items.iter_mut().enumerate() {
                        self.at(index, |walk| walk.preserved(schema, item));
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Metadata of embedded resources, wherever they are.
    fn embedded(&mut self, schema: &Schema, value: &mut Value) {
        match value {
            Value::Object(map) => {
                if schema.embedded_resource {
                    metadata::prune(map, &self.place, &mut self.dropped);
                }
                for (key, value) in map.iter_mut() {
                    if let Some(property) = schema.properties.get(key.as_str()) {
                        self.within(key, |walk| walk.embedded(property, value));
                    } else if let Additional::Schema(entry) = &schema.additional {
                        self.map_entry(key, |walk| walk.embedded(entry, value));
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = schema.items.as_deref() {
                    for (index, item) in items.iter_mut().enumerate() {
                        self.at(index, |walk| walk.embedded(schema, item));
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Entries of maps are in brackets where embedded metadata is spoken of.
    fn map_entry(&mut self, key: &str, run: impl FnOnce(&mut Self)) {
        let length = self.place.len();
        self.place.push_str(&format!("[{key}]"));
        run(self);
        self.place.truncate(length);
    }
}
