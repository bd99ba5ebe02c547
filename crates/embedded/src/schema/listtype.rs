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
                    let keys: Vec<Key<'_>> = items.iter().map(|item| vec![Some(item)]).collect();
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
    let keys: Vec<Key<'_>> = items
        .iter()
        .map(|item| schema.list_map_keys.iter().map(|name| item.get(&**name)).collect())
        .collect();
    for index in second_places(&keys) {
        let mut key = Map::new();
        for (name, value) in schema.list_map_keys.iter().zip(keys.get(index).into_iter().flatten()) {
            if let Some(value) = value {
                key.insert(name.to_string(), (*value).clone());
            }
        }
        errors.push(FieldError::duplicate(
            &Place::Item(place, index).path(),
            Value::Object(key),
        ));
    }
}

/// What an item of a list is told apart by; `None` where it lacks a key.
type Key<'a> = Vec<Option<&'a Value>>;

/// Up to this many items, comparing each with each is faster than any index.
const FEW_ITEMS: usize = 32;

/// Where a value stands for the second time; third times are not named.
fn second_places(keys: &[Key<'_>]) -> Vec<usize> {
    if keys.len() <= FEW_ITEMS {
        let seen = |index: usize| {
            let key = keys.get(index);
            keys.iter().take(index).filter(|earlier| Some(*earlier) == key).count()
        };
        return (1..keys.len()).filter(|index| seen(*index) == 1).collect();
    }
    let mut times = std::collections::HashMap::<String, usize>::with_capacity(keys.len());
    let mut found = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        // The text of a value is its identity: maps are sorted, and 1 is not 1.0, as in the reference.
        let text: Vec<String> = key
            .iter()
            .map(|value| value.map_or_else(String::new, Value::to_string))
            .collect();
        let seen = times.entry(text.join("\0")).or_default();
        *seen += 1;
        if *seen == 2 {
            found.push(index);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn d3_duplicates_are_found_in_short_and_long_lists_alike() {
        let schema = Schema {
            list_type: ListType::Set,
            ..Schema::default()
        };
        for filler in [0i64, 100] {
            let mut list: Vec<Value> = (0..filler).map(Value::from).collect();
            let at = list.len();
            list.extend([
                json!("a"),
                json!("b"),
                json!("a"),
                json!("a"),
                json!({"x": 1}),
                json!({"x": 1}),
            ]);
            let found: Vec<String> = duplicates(&schema, &Value::Array(list))
                .iter()
                .map(ToString::to_string)
                .collect();
            let [first, second] = [at + 2, at + 5];
            assert_eq!(
                found,
                [
                    format!("[{first}]: Duplicate value: \"a\""),
                    format!("[{second}]: Duplicate value: {{\"x\":1}}"),
                ]
            );
        }
    }
}
