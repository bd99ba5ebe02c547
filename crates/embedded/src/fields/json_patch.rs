//! JSON patch (RFC 6902) and merge patch (RFC 7386), with the reference's habits.
//!
//! JSON patch is written out here and not taken from the `json-patch` crate because clients rely on where the reference
//! leaves the RFC: `replace` adds a missing field, an index may count from the end, `test` for null holds where nothing
//! is, and copies are bounded, without which a few operations could fill the memory.

use serde_json::{Map, Value};

use super::shape::DEEPEST;
use crate::fault::Fault;
use crate::go;

/// S8.
const MOST_OPERATIONS: usize = 10_000;

/// The bytes all `copy` operations of a patch may add together, as in the reference: one request body.
const MOST_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// A patch that is well formed but does not apply. The reference does not say which operation failed.
pub(super) fn rejected() -> Fault {
    let mut fault = Fault::new(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    );
    fault.details = Some(Map::new());
    fault
}

/// The live object with a JSON patch applied.
///
/// # Errors
/// 400 for what is not a patch, 413 for too many operations, 422 where an operation fails.
pub fn json_patch(live: &Value, patch_body: &Value) -> Result<Value, Fault> {
    let malformed = |value: &Value, place: &str| {
        Fault::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go {place}",
            go::json_kind(value)
        ))
    };
    let operations = match patch_body {
        Value::Null => &[],
        Value::Array(operations) => operations.as_slice(),
        other => return Err(malformed(other, "value of type []handlers.jsonPatchOp")),
    };
    for operation in operations {
        match operation {
            Value::Null => {}
            Value::Object(map) => {
                for field in ["op", "path", "from"] {
                    if let Some(value) = map.get(field).filter(|value| !value.is_string() && !value.is_null()) {
                        return Err(malformed(
                            value,
                            &format!("struct field jsonPatchOp.{field} of type string"),
                        ));
                    }
                }
            }
            other => return Err(malformed(other, "value of type handlers.jsonPatchOp")),
        }
    }
    if operations.len() > MOST_OPERATIONS {
        return Err(Fault::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
                operations.len()
            ),
        ));
    }
    let mut document = live.clone();
    let mut copied = 0;
    let mut most = depth(&document);
    for operation in operations {
        step(&mut document, operation, &mut copied).ok_or_else(rejected)?;
        // What an operation puts somewhere is at most as deep as its path and the document or the value it brings. Only
        // where that could be too much is it measured, since moves may nest without end.
        let steps = operation
            .get("path")
            .and_then(Value::as_str)
            .map_or(0, |path| path.matches('/').count());
        most = steps + most.max(operation.get("value").map_or(0, depth));
        if most > DEEPEST {
            most = depth(&document);
            if most > DEEPEST {
                return Err(rejected());
            }
        }
    }
    Ok(document)
}

/// The levels of lists and maps in a value.
fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut waiting = vec![(value, 1)];
    while let Some((value, level)) = waiting.pop() {
        match value {
            Value::Object(map) => waiting.extend(map.values().map(|value| (value, level + 1))),
            Value::Array(items) => waiting.extend(items.iter().map(|value| (value, level + 1))),
            _ => continue,
        }
        deepest = deepest.max(level);
    }
    deepest
}

/// One operation; `None` if it fails.
fn step(document: &mut Value, operation: &Value, copied: &mut usize) -> Option<()> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    let path = || text("path");
    match text("op")? {
        "add" => add(document, path()?, value()),
        "remove" => remove(document, path()?).map(|_| ()),
        "replace" if path()?.is_empty() => {
            let value = value();
            (value.is_object() || value.is_array()).then(|| *document = value)
        }
        "replace" => match parent(document, path()?)? {
            (Value::Object(map), key) => {
                map.insert(key, value());
                Some(())
            }
            (Value::Array(items), key) => {
                let at = index(&key, items.len())?;
                *items.get_mut(at)? = value();
                Some(())
            }
            _ => None,
        },
        "move" => {
            let moved = remove(document, text("from")?)?;
            add(document, path()?, moved)
        }
        "copy" => {
            let source = found(document, text("from")?)?.cloned().unwrap_or(Value::Null);
            parent(document, path()?)?;
            *copied += source.to_string().len();
            if *copied > MOST_COPIED_BYTES {
                return None;
            }
            add(document, path()?, source)
        }
        "test" if path()?.is_empty() => (*document == value()).then_some(()),
        "test" => (found(document, path()?)?.unwrap_or(&Value::Null) == &value()).then_some(()),
        _ => None,
    }
}

/// The container a path leads to, and the last step. What stands before the first slash is not looked at.
fn parent<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let mut steps = path.split('/').skip(1).peekable();
    let mut container = document;
    // Nothing is added below what could not have been sent.
    for _ in 0..DEEPEST {
        let key = steps.next()?.replace("~1", "/").replace("~0", "~");
        if !container.is_object() && !container.is_array() {
            return None;
        }
        if steps.peek().is_none() {
            return Some((container, key));
        }
        container = match container {
            Value::Object(map) => map.get_mut(&key)?,
            Value::Array(items) => {
                let at = index(&key, items.len())?;
                items.get_mut(at)?
            }
            _ => return None,
        };
    }
    None
}

/// The value a path leads to; the inner `None` is a field that an existing map does not have.
fn found<'a>(document: &'a mut Value, path: &str) -> Option<Option<&'a Value>> {
    match parent(document, path)? {
        (Value::Object(map), key) => Some(map.get(&key)),
        (Value::Array(items), key) => {
            let at = index(&key, items.len())?;
            items.get(at).map(Some)
        }
        _ => None,
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Option<()> {
    match parent(document, path)? {
        (Value::Object(map), key) => {
            map.insert(key, value);
        }
        (Value::Array(items), key) if key == "-" => items.push(value),
        (Value::Array(items), key) => {
            // One more place than there are items.
            let at = index(&key, items.len() + 1)?;
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &str) -> Option<Value> {
    match parent(document, path)? {
        (Value::Object(map), key) => map.remove(&key),
        (Value::Array(items), key) => {
            let at = index(&key, items.len())?;
            Some(items.remove(at))
        }
        _ => None,
    }
}

/// An index among `length` places; negative ones count from the end.
fn index(key: &str, length: usize) -> Option<usize> {
    let index: i64 = key.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let index = if index < 0 { index + length } else { index };
    usize::try_from(index).ok().filter(|_| index < length)
}

/// The live object with a merge patch applied.
///
/// # Errors
/// 400 for a patch that is not a map.
pub fn merge_patch(live: &Value, patch: &Value) -> Result<Value, Fault> {
    match patch {
        Value::Object(_) => {
            let mut merged = live.clone();
            lay_over(&mut merged, patch, 0);
            Ok(merged)
        }
        Value::Null => Err(Fault::bad_request("Invalid JSON Patch")),
        other => Err(Fault::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go::json_kind(other)
        ))),
    }
}

fn lay_over(live: &mut Value, patch: &Value, depth: usize) {
    match (&mut *live, patch) {
        (Value::Object(live), Value::Object(patch)) if depth < DEEPEST => {
            for (key, value) in patch {
                match (live.get_mut(key), value) {
                    (_, Value::Null) => {
                        live.remove(key);
                    }
                    (Some(old), value) if !old.is_null() => lay_over(old, value, depth + 1),
                    (_, value) => {
                        live.insert(key.clone(), without_nulls(value));
                    }
                }
            }
        }
        // A list over a map is taken as it is; everything else loses the nulls in its maps.
        (Value::Object(_), patch) => *live = patch.clone(),
        (_, patch) => *live = without_nulls(patch),
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}
