//! An object as a JSON value: its metadata, and how it is written for the store.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::fault::Fault;
use crate::store::{self, Entry, Revision};

/// The object's `metadata`; an empty one if there is none.
#[must_use]
pub fn meta(object: &Value) -> &Map<String, Value> {
    static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    object.get("metadata").and_then(Value::as_object).unwrap_or(&EMPTY)
}

/// The object's `metadata`, made if there is none.
pub fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    field_mut(object, "metadata")
}

/// A field that is an object; anything else in its place is replaced by an empty one.
pub(crate) fn field_mut<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    let map = as_map(object);
    as_map(map.entry(name).or_insert(Value::Null))
}

/// The value as a map; anything else is replaced by an empty one.
pub(crate) fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        // The line above made it one.
        _ => unreachable!(),
    }
}

/// A text of the metadata; empty if it is not there.
#[must_use]
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    meta(object).get(field).and_then(Value::as_str).unwrap_or_default()
}

#[must_use]
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

#[must_use]
pub fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    meta(object)
        .get("finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

#[must_use]
pub fn has_finalizers(object: &Value) -> bool {
    finalizers(object).next().is_some()
}

/// Replaces the finalizers; none at all is no field.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    let meta = meta_mut(object);
    if finalizers.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.insert("finalizers".to_owned(), finalizers.into());
    }
}

#[must_use]
pub fn generation(object: &Value) -> i64 {
    meta(object).get("generation").and_then(Value::as_i64).unwrap_or(0)
}

/// The revision that the object says it is of. `Err`: something that is no revision.
pub(crate) fn revision(object: &Value) -> Result<Option<Revision>, Fault> {
    let text = text(object, "resourceVersion");
    if text.is_empty() || text == "0" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        Fault::bad_request(format!(
            "invalid resource version {}: must be a decimal number",
            crate::fault::quote(text)
        ))
    })
}

/// A time as objects carry it: whole seconds in UTC.
#[must_use]
pub fn time(now: Timestamp) -> Value {
    Value::String(seconds(now))
}

pub(crate) fn seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Parsers of JSON stop somewhere, ours and many clients' at 128 levels. An object in a list, in an event or in a review
/// is deeper by some.
const DEEPEST: usize = 120;

fn is_deeper(value: &Value, levels: usize) -> bool {
    let Some(left) = levels.checked_sub(1) else {
        return value.is_object() || value.is_array();
    };
    match value {
        Value::Object(map) => map.values().any(|value| is_deeper(value, left)),
        Value::Array(items) => items.iter().any(|value| is_deeper(value, left)),
        _ => false,
    }
}

/// For the store: compact, without resourceVersion, and with apiVersion, kind and metadata in front, so that a list can
/// leave out the first two and splice the revision without reading the rest.
pub(crate) fn encode(object: &Value) -> Result<store::Value, Fault> {
    let wrong = |why: serde_json::Error| Fault::internal(format!("the object cannot be written as JSON: {why}"));
    let Some(map) = object.as_object() else {
        return Err(Fault::internal("an object that is no JSON object"));
    };
    if is_deeper(object, DEEPEST) {
        return Err(Fault::bad_request(format!(
            "the object and what is kept about its fields are nested deeper than {DEEPEST} levels"
        )));
    }
    // Most objects are smaller: growing costs more than giving back what is too much.
    let mut bytes = Vec::with_capacity(4096);
    bytes.push(b'{');
    for field in ["apiVersion", "kind"] {
        put_key(&mut bytes, field);
        serde_json::to_writer(&mut bytes, map.get(field).unwrap_or(&Value::Null)).map_err(wrong)?;
        bytes.push(b',');
    }
    put_key(&mut bytes, "metadata");
    bytes.push(b'{');
    let splice = bytes.len();
    put_fields(
        &mut bytes,
        meta(object).iter().filter(|(field, _)| *field != "resourceVersion"),
    )
    .map_err(wrong)?;
    bytes.extend_from_slice(b"},");
    put_fields(
        &mut bytes,
        map.iter()
            .filter(|(field, _)| !matches!(field.as_str(), "apiVersion" | "kind" | "metadata")),
    )
    .map_err(wrong)?;
    // An object of nothing but metadata.
    if bytes.last() == Some(&b',') {
        bytes.pop();
    }
    bytes.push(b'}');
    store::Value::from_vec(bytes, splice).map_err(Fault::internal)
}

fn put_key(bytes: &mut Vec<u8>, key: &str) {
    bytes.push(b'"');
    bytes.extend_from_slice(key.as_bytes());
    bytes.extend_from_slice(b"\":");
}

fn put_fields<'a>(
    bytes: &mut Vec<u8>,
    fields: impl Iterator<Item = (&'a String, &'a Value)>,
) -> Result<(), serde_json::Error> {
    for (index, (field, value)) in fields.enumerate() {
        if index > 0 {
            bytes.push(b',');
        }
        serde_json::to_writer(&mut *bytes, field)?;
        bytes.push(b':');
        serde_json::to_writer(&mut *bytes, value)?;
    }
    Ok(())
}

/// How many bytes of an encoded object are its opening, apiVersion and kind: what list items of built-in kinds leave out.
pub(crate) fn type_length(api_version: &str, kind: &str) -> usize {
    r#"{"apiVersion":"","kind":"","#.len() + api_version.len() + kind.len()
}

/// From the store, with its resourceVersion.
pub(crate) fn decode(entry: &Entry) -> Result<Value, Fault> {
    decode_value(&entry.value, entry.revision)
}

pub(crate) fn decode_value(value: &store::Value, revision: Revision) -> Result<Value, Fault> {
    let mut object: Value = serde_json::from_slice(value.json())
        .map_err(|why| Fault::internal(format!("a stored object cannot be read: {why}")))?;
    meta_mut(&mut object).insert("resourceVersion".to_owned(), revision.to_string().into());
    Ok(object)
}

/// A dotted path below the object, such as `spec.replicas`.
#[must_use]
pub fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.trim_start_matches('.')
        .split('.')
        .try_fold(object, |value, field| value.get(field))
}

/// Sets what is at a dotted path, making the maps on the way.
pub(crate) fn set_at(object: &mut Value, path: &str, value: Value) {
    let mut place = object;
    for field in path.trim_start_matches('.').split('.') {
        place = as_map(place).entry(field).or_insert(Value::Null);
    }
    *place = value;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn s2_an_object_is_stored_without_its_revision_and_read_with_it() {
        let object = json!({"spec": {"a": 1}, "kind": "K", "apiVersion": "g/v1",
            "metadata": {"name": "n", "resourceVersion": "7"}});
        let value = encode(&object).unwrap();
        assert_eq!(
            std::str::from_utf8(value.json()).unwrap(),
            r#"{"apiVersion":"g/v1","kind":"K","metadata":{"name":"n"},"spec":{"a":1}}"#
        );
        assert_eq!(decode_value(&value, 7).unwrap(), object);
        let mut spliced = Vec::new();
        value.write_to(&mut spliced, 7);
        assert_eq!(serde_json::from_slice::<Value>(&spliced).unwrap(), object);
        assert_eq!(&value.json()[type_length("g/v1", "K")..][..10], b"\"metadata\"");
    }

    #[test]
    fn a_path_is_read_and_set() {
        let mut object = json!({"spec": {"replicas": 1}});
        assert_eq!(at(&object, ".spec.replicas"), Some(&json!(1)));
        set_at(&mut object, "status.replicas", json!(2));
        assert_eq!(object["status"]["replicas"], 2);
        assert_eq!(at(&object, "spec.replicas.x"), None);
    }
}
