//! Reading objects of known shape: after decoding, a field has its type or is absent.

use serde_json::{Map, Value};

/// A text; absent is empty, as in the reference.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value
        .get(field)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

pub(crate) fn map<'a>(value: &'a Value, field: &str) -> Option<&'a Map<String, Value>> {
    value.get(field).and_then(Value::as_object)
}

/// Entries of a map; none when absent.
pub(crate) fn entries<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    map(value, field).into_iter().flatten()
}

pub(crate) fn integer(value: &Value, field: &str) -> Option<i64> {
    value.get(field).and_then(Value::as_i64)
}

pub(crate) fn truth(value: &Value, field: &str) -> Option<bool> {
    value.get(field).and_then(Value::as_bool)
}

/// A field that is there and not null.
pub(crate) fn given<'a>(value: &'a Value, field: &str) -> Option<&'a Value> {
    value.get(field).filter(|field| !field.is_null())
}

/// A field by path, null when absent: for comparing.
pub(crate) fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

/// The text at a path.
pub(crate) fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The object in a field; made when absent.
pub(crate) fn object_mut<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Value> {
    let map = value.as_object_mut()?;
    let entry = map.entry(field).or_insert(Value::Null);
    if entry.is_null() {
        *entry = Value::Object(Map::new());
    }
    Some(entry)
}

pub(crate) fn list_mut<'a>(value: &'a mut Value, field: &str) -> &'a mut [Value] {
    match value.get_mut(field) {
        Some(Value::Array(list)) => list,
        _ => &mut [],
    }
}

/// Sets a field that is absent or null.
pub(crate) fn default_to(value: &mut Value, field: &str, default: impl Into<Value>) {
    if let Some(map) = value.as_object_mut()
        && map.get(field).is_none_or(Value::is_null)
    {
        map.insert(field.to_owned(), default.into());
    }
}

/// Sets a text that is absent or empty, or a number that is absent or 0.
pub(crate) fn default_if_empty(value: &mut Value, field: &str, default: impl Into<Value>) {
    let empty = match value.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Number(number)) => number.as_i64() == Some(0),
        _ => false,
    };
    if let Some(map) = value.as_object_mut().filter(|_| empty) {
        map.insert(field.to_owned(), default.into());
    }
}

/// Two values that mean the same: null, `{}` and `[]` are as good as absent, and amounts compare by amount.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let has = |map: &Map<String, Value>, key: &str| map.get(key).is_some_and(|value| !hollow(value));
            one.iter().all(|(key, value)| {
                hollow(value) && !has(other, key) || other.get(key).is_some_and(|other| same(value, other))
            }) && other.iter().all(|(key, value)| hollow(value) || one.contains_key(key))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (one, other) => one == other || (hollow(one) && hollow(other)),
    }
}

fn hollow(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}
