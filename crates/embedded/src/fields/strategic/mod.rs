//! Strategic merge: a patch that names lists' items by key, with directives beside the fields they are about.
//!
//! Only built-in kinds have it: their schemas say by what the items of a list are known.

mod lists;

use serde_json::{Map, Value};

use super::shape::{DEEPEST, OBJECT_META};
use crate::fault::Fault;
use crate::go;
use crate::schema::Schema;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const ELEMENT_ORDER: &str = "$setElementOrder";

/// The live object with a strategic merge patch applied.
///
/// # Errors
/// A patch that contradicts itself or the schema, with the reference's text.
pub fn strategic_merge(live: &Value, patch: &Value, schema: &Schema) -> Result<Value, Fault> {
    if patch.is_null() {
        return Ok(live.clone());
    }
    let Value::Object(patch) = patch else {
        return Err(Fault::bad_request(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go::json_kind(patch)
        )));
    };
    let live = live.as_object().cloned().unwrap_or_default();
    Ok(Value::Object(maps(live, patch.clone(), Some(schema), 0)?))
}

/// Why a patch does not merge; each has its own status.
#[derive(Debug)]
enum Bad {
    /// The format of a directive: 400.
    Format(&'static str),
    /// What cannot be merged at all: 422.
    Unprocessable,
    /// Everything else: 500, as in the reference.
    Other(String),
}

impl From<Bad> for Fault {
    fn from(bad: Bad) -> Self {
        match bad {
            Bad::Format(text) => Self::bad_request(text),
            Bad::Unprocessable => super::rejected(),
            Bad::Other(text) => Self::new(500, "", text),
        }
    }
}

const BAD_PRIMITIVE_LIST: Bad = Bad::Format("invalid patch format of primitive list");
const BAD_RETAIN_KEYS: Bad = Bad::Format("invalid patch format of retainKeys");
const BAD_ORDER: Bad = Bad::Format("invalid patch format of setElementOrder list");

fn wrong_type(expected: &str, actual: &Value) -> Bad {
    Bad::Other(format!(
        "expected a {expected}, but received a {}",
        go::type_name(actual)
    ))
}

fn no_key(item: &Map<String, Value>, key: &str) -> Bad {
    Bad::Other(format!(
        "map: {} does not contain declared merge key: {key}",
        go::plain_map(item)
    ))
}

fn bad_directive(directive: &Value, item: &Map<String, Value>) -> Bad {
    let word = match directive {
        Value::String(word) => word.clone(),
        other => format!("%!s({}={})", go::type_name(other), go::plain(other)),
    };
    Bad::Other(format!("unknown patch type: {word} in map: {}", go::plain_map(item)))
}

/// What a schema says about one field.
#[derive(Debug, Clone, Copy, Default)]
struct Meta<'a> {
    /// The shape of the field, or of a list's items.
    below: Option<&'a Schema>,
    key: Option<&'a str>,
    merges: bool,
    replaces: bool,
}

fn meta<'a>(schema: Option<&'a Schema>, field: &str, list: bool, root: bool) -> Result<Meta<'a>, Bad> {
    let Some(schema) = schema else {
        return Err(Bad::Other(
            "merging an object in json but data type is not struct, instead is: map".to_owned(),
        ));
    };
    let found = match schema.properties.get(field) {
        Some(found) => Some(found),
        None if root && field == "metadata" => Some(&*OBJECT_META),
        None => None,
    };
    let Some(found) = found else {
        if schema.properties.is_empty() {
            return meta(None, field, list, false);
        }
        return Err(Bad::Other(format!(
            "unable to find api field in struct {} for the json field {}",
            schema.name.as_deref().unwrap_or_default(),
            crate::fault::quote(field)
        )));
    };
    let strategy = found.patch_strategy.as_deref().unwrap_or_default();
    let words = || strategy.split(',');
    Ok(Meta {
        below: if list { found.items.as_deref() } else { Some(found) },
        key: found.patch_merge_key.as_deref(),
        merges: words().any(|word| word == "merge"),
        replaces: words().any(|word| word == "replace"),
    })
}

fn maps(
    mut live: Map<String, Value>,
    mut patch: Map<String, Value>,
    schema: Option<&Schema>,
    depth: usize,
) -> Result<Map<String, Value>, Bad> {
    if depth > DEEPEST {
        return Ok(patch);
    }
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(bad_directive(directive, &patch)),
        };
    }
    retain_keys(&mut live, &mut patch)?;
    lists::ordered(&mut live, &mut patch, schema, depth)?;

    for (name, value) in patch {
        let deletes = name.starts_with(DELETE_FROM);
        let field = if deletes {
            after_prefix(&name, DELETE_FROM).ok_or(BAD_PRIMITIVE_LIST)?
        } else {
            &name
        };
        if value.is_null() {
            live.remove(field);
            continue;
        }
        match (live.remove(field), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let meta = meta(schema, field, false, depth == 0)?;
                let merged = if meta.replaces {
                    new
                } else {
                    maps(old, new, meta.below, depth + 1)?
                };
                live.insert(field.to_owned(), Value::Object(merged));
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                let meta = meta(schema, field, true, depth == 0)?;
                let merged = if meta.merges || deletes {
                    lists::merged(old, new, meta, deletes, depth)?
                } else {
                    new
                };
                live.insert(field.to_owned(), Value::Array(merged));
            }
            (old, new) => {
                if deletes {
                    live.extend(old.map(|old| (field.to_owned(), old)));
                } else {
                    live.extend(without_directives(without_nulls(new)).map(|new| (field.to_owned(), new)));
                }
            }
        }
    }
    Ok(live)
}

/// `$setElementOrder/ports` → `ports`
fn after_prefix<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    name.split_once('/')
        .filter(|(before, _)| *before == prefix)
        .map(|(_, after)| after)
}

/// `$retainKeys`: fields of the live map that are not in the list go.
fn retain_keys(live: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), Bad> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(keys) = keys else {
        return Err(BAD_RETAIN_KEYS);
    };
    let listed = |name: &str| keys.iter().any(|key| key.as_str() == Some(name));
    for (name, value) in &*patch {
        let directive = name.starts_with(DELETE_FROM) || name.starts_with(ELEMENT_ORDER);
        if !value.is_null() && !directive && !listed(name) {
            return Err(BAD_RETAIN_KEYS);
        }
    }
    live.retain(|name, _| listed(name));
    Ok(())
}

/// A value that replaces another, without what was only there to remove fields.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// `None`: the value was itself a directive.
fn without_directives(value: Value) -> Option<Value> {
    Some(match value {
        Value::Object(map) => {
            if map.contains_key(DIRECTIVE) {
                return None;
            }
            let kept = map
                .into_iter()
                .filter_map(|(name, value)| Some((name, without_directives(value)?)));
            Value::Object(kept.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().filter_map(without_directives).collect()),
        other => other,
    })
}
