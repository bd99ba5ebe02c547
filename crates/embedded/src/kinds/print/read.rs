//! Reading an object's fields as a printer does: what is missing reads as zero, empty or nothing.

use jiff::Timestamp;
use serde_json::Value;

/// The value at a path of field names.
pub fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter()
        .try_fold(object, |value, name| value.get(name))
        .filter(|value| !value.is_null())
}

/// Text, empty when missing.
pub fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// Text, or what stands for none.
pub fn text_or<'a>(object: &'a Value, path: &[&str], none: &'a str) -> &'a str {
    match text(object, path) {
        "" => none,
        text => text,
    }
}

pub fn number(object: &Value, path: &[&str]) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or_default()
}

pub fn flag(object: &Value, path: &[&str]) -> bool {
    at(object, path).and_then(Value::as_bool).unwrap_or_default()
}

pub fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// How many keys a map has.
pub fn size(object: &Value, path: &[&str]) -> usize {
    at(object, path).and_then(Value::as_object).map_or(0, |map| map.len())
}

/// A number or text as text: `IntOrString`, quantities.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

pub fn time(object: &Value, path: &[&str]) -> Option<Timestamp> {
    text(object, path).parse().ok()
}

pub fn name(object: &Value) -> Value {
    text(object, &["metadata", "name"]).into()
}

pub fn age(object: &Value, now: Timestamp) -> Value {
    super::age(time(object, &["metadata", "creationTimestamp"]), now).into()
}

pub fn is_being_deleted(object: &Value) -> bool {
    at(object, &["metadata", "deletionTimestamp"]).is_some()
}

/// The condition of a type, where there is one.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, &["status", "conditions"])
        .iter()
        .find(|condition| text(condition, &["type"]) == kind)
}

/// The texts of a list, joined by commas.
pub fn joined(values: &[Value]) -> String {
    let texts: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
    texts.join(",")
}

/// At most `most` of a list, with how many more there are.
pub fn with_more(mut texts: Vec<String>, most: usize, separator: &str) -> String {
    let more = texts.len().saturating_sub(most);
    texts.truncate(most);
    let mut all = texts.join(separator);
    if more > 0 {
        all.push_str(&format!(" + {more} more..."));
    }
    all
}
