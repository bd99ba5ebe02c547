//! Lists of type set and map hold nothing twice.

use serde_json::{Map, Value};

use super::{Additional, ListType, Schema};
use crate::fault::{FieldError, Path};

/// Duplicates in the lists of an object, each named at its second place.
pub(super) fn duplicates(schema: &Schema, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // Most schemas have no such lists on most of their branches; the walk is by value, which is small.
    walk(schema, value, &Place::Root, &mut errors);
    errors
}

/// Where the walk is; written out only where something is wrong.
enum Place<'a> {
    Root,
    Field(&'a Place<'a>, &'a str),
    Entry(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl Place<'_> {
    fn path(&self) -> Path {
        match self {
            Self::Root => Path::root(),
            Self::Field(parent, name) => parent.path().field(name),
            Self::Entry(parent, key) => parent.path().key(key),
            Self::Item(parent, index) => parent.path().index(*index),
        }
    }
}

fn walk(schema: &Schema, value: &Value, place: &Place<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if let Additional::Schema(entry) = &schema.additional {
                    walk(entry, value, &Place::Entry(place, key), errors);
                }
                if let Some(property) = schema.properties.get(key.as_str()) {
                    walk(property, value, &Place::Field(place, key), errors);
                }
            }
        }
        Value::Array(items) => {
            match schema.list_type {
                ListType::Set => {
                    let keys: Vec<&Value> = items.iter().collect();
                    errors.extend(second_places(&keys).into_iter().filter_map(|index| {
                        Some(FieldError::duplicate(
                            &Place::Item(place, index).path(),
                            items.get(index)?.clone(),
                        ))
                    }));
                }
                ListType::Map => map_list(schema, items, place, errors),
                ListType::Atomic => {}
            }
            if let Some(schema) = schema.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    walk(schema, item, &Place::Item(place, index), errors);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn map_list(schema: &Schema, items: &[Value], place: &Place<'_>, errors: &mut Vec<FieldError>) {
    if let Some((index, item)) = items
        .iter()
        .enumerate()
        .find(|(_, item)| !item.is_object() && !item.is_null())
    {
        errors.push(FieldError::invalid(
            &Place::Item(place, index).path(),
            item.clone(),
            "must be an object for an array of list-type map",
        ));
        return;
    }
    let keys: Vec<Value> = items
        .iter()
        .map(|item| {
            let mut key = Map::new();
            for name in &schema.list_map_keys {
                if let Some(value) = item.get(&**name) {
                    key.insert(name.to_string(), value.clone());
                }
            }
            Value::Object(key)
        })
        .collect();
    let references: Vec<&Value> = keys.iter().collect();
    for index in second_places(&references) {
        if let Some(key) = keys.get(index) {
            errors.push(FieldError::duplicate(&Place::Item(place, index).path(), key.clone()));
        }
    }
}

/// Where a value stands for the second time; third times are not named.
fn second_places(values: &[&Value]) -> Vec<usize> {
    if values.len() <= 1 {
        return Vec::new();
    }
    let mut times = std::collections::HashMap::<String, usize>::with_capacity(values.len());
    let mut found = Vec::new();
    for (index, value) in values.iter().enumerate() {
        // The text of a value is its identity: maps are sorted, and 1 is not 1.0, as in the reference.
        let seen = times.entry(value.to_string()).or_default();
        *seen += 1;
        if *seen == 2 {
            found.push(index);
        }
    }
    found
}
