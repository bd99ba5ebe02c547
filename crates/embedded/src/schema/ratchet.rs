//! Which old value stands against a new one (D5): by name in objects and maps, by key in lists of type map, not at all in
//! other lists. Errors of a value that equals its old one are forgiven.

use serde_json::Value;

use super::{ListType, Schema, Type};

/// An old value, and the schema that says how its parts correlate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Old<'a> {
    pub value: &'a Value,
    pub schema: &'a Schema,
}

impl<'a> Old<'a> {
    /// The old value of a field that both have.
    pub fn field(self, name: &str) -> Option<Self> {
        Some(Self {
            value: self.value.as_object()?.get(name)?,
            schema: self.schema.property(name)?,
        })
    }

    /// The old item with the keys of this new item.
    pub fn item(self, new: &Value) -> Option<Self> {
        Some(Self {
            value: map_item(self.schema, self.value.as_array()?, new)?,
            schema: self.schema.items.as_deref()?,
        })
    }
}

/// The first of `items` whose keys equal those of `item`, in a list of type map.
pub(super) fn map_item<'a>(list: &Schema, items: &'a [Value], item: &Value) -> Option<&'a Value> {
    if list.list_type != ListType::Map || list.kind != Some(Type::Array) || list.list_map_keys.is_empty() {
        return None;
    }
    let key = |item: &'a Value, name: &str| item.as_object()?.get(name).filter(|value| is_scalar(value));
    let wanted: Vec<&Value> = list
        .list_map_keys
        .iter()
        .map(|name| item.as_object()?.get(&**name).filter(|value| is_scalar(value)))
        .collect::<Option<_>>()?;
    items.iter().find(|old| {
        list.list_map_keys
            .iter()
            .zip(&wanted)
            .all(|(name, wanted)| key(old, name).is_some_and(|found| found == *wanted))
    })
}

fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_))
}

/// Whether nothing changed. Items of lists of type map are compared with the items that have their keys, so their order
/// may change.
pub(super) fn unchanged(new: &Value, old: Old<'_>) -> bool {
    match (new, old.value) {
        (Value::Array(new), Value::Array(old_items)) => {
            if old.schema.list_type != ListType::Map {
                return new == old_items;
            }
            new.len() == old_items.len()
                && new
                    .iter()
                    .all(|item| old.item(item).is_some_and(|old| unchanged(item, old)))
        }
        (Value::Object(new), Value::Object(old_map)) => {
            new.len() == old_map.len()
                && new
                    .iter()
                    .all(|(name, value)| old.field(name).is_some_and(|old| unchanged(value, old)))
        }
        (new, old) => new == old,
    }
}
