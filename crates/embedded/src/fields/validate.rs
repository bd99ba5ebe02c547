//! Whether an applied object fits its schema, as far as merging needs it; the caller's own checks come later.

use serde_json::Value;

use super::element::Element;
use super::shape::{DEEPEST, Form, List, Shape};
use crate::fault::Fault;
use crate::schema::{Schema, Type};

/// Refuses undeclared fields, values of the wrong type, list items without keys, and items that are there twice.
pub(super) fn applied(object: &Value, schema: &Schema) -> Result<(), Fault> {
    let mut errors = Vec::new();
    walk(object, Shape::Root(schema), &mut String::new(), 0, &mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    let text = match errors.as_slice() {
        [one] => one.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    };
    // The reference answers with 500 and no reason.
    Err(Fault::new(
        500,
        "",
        format!("failed to create typed patch object ({}): {text}", subject(object)),
    ))
}

/// The object as such messages name it: `namespace/name; group/version, Kind=Kind`.
fn subject(object: &Value) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = object.get("metadata");
    let of_metadata = |name| text(metadata.and_then(|metadata| metadata.get(name)));
    let version = text(object.get("apiVersion"));
    let version = if version.contains('/') {
        version
    } else {
        format!("/{version}")
    };
    format!(
        "{}/{}; {version}, Kind={}",
        of_metadata("namespace"),
        of_metadata("name"),
        text(object.get("kind"))
    )
}

fn walk(value: &Value, shape: Shape<'_>, path: &mut String, depth: usize, errors: &mut Vec<String>) {
    if value.is_null() || depth > DEEPEST {
        return;
    }
    match (shape.form(Some(value)), value) {
        (Form::Scalar, _) => {
            if let Some(message) = scalar(value, shape) {
                errors.push(at(path, &message));
            }
        }
        (Form::Map { .. }, Value::Object(map)) => {
            for (key, child) in map {
                let field = shape.field(key);
                let length = path.len();
                path.push('.');
                path.push_str(key);
                if field.declared {
                    walk(child, field.shape, path, depth + 1, errors);
                } else {
                    errors.push(at(path, "field not declared in schema"));
                }
                path.truncate(length);
                // The reference looks no further in this map.
                if !field.declared {
                    break;
                }
            }
        }
        (Form::Map { .. }, other) => errors.push(at(path, &format!("expected map, got {}", in_go(other)))),
        (Form::List(list), Value::Array(items)) => {
            let mut seen = std::collections::BTreeSet::new();
            for (position, item) in items.iter().enumerate() {
                let element = match list {
                    List::Atomic => Element::Index(i64::try_from(position).unwrap_or(i64::MAX)),
                    _ => match shape.item(list, item) {
                        Ok(element) => element,
                        Err(why) => {
                            errors.push(at(path, &format!("element {position}: {why}")));
                            return;
                        }
                    },
                };
                if seen.contains(&element) {
                    errors.push(at(path, &format!("duplicate entries for key {element}")));
                }
                let length = path.len();
                path.push_str(&element.to_string());
                walk(item, shape.items(), path, depth + 1, errors);
                path.truncate(length);
                seen.insert(element);
            }
        }
        (Form::List(_), other) => errors.push(at(path, &format!("expected list, got {}", in_go(other)))),
    }
}

fn at(path: &str, message: &str) -> String {
    if path.is_empty() {
        message.to_owned()
    } else {
        format!("{path}: {message}")
    }
}

fn scalar(value: &Value, shape: Shape<'_>) -> Option<String> {
    let (kind, format) = match shape {
        Shape::Node(schema, _) => (schema.kind, schema.format.as_deref()),
        Shape::Scalar => (Some(Type::String), None),
        _ => (None, None),
    };
    let fits = match (kind, format) {
        (Some(Type::Integer | Type::Number), _) => value.is_number(),
        (Some(Type::Boolean), _) => value.is_boolean(),
        (Some(Type::String), None | Some("" | "byte")) => value.is_string(),
        _ => value.is_number() || value.is_boolean() || value.is_string(),
    };
    if fits {
        return None;
    }
    Some(match (kind, format) {
        (Some(Type::Integer | Type::Number), _) => {
            format!("expected numeric (int or float), got {}", crate::go::type_name(value))
        }
        (Some(Type::Boolean), _) => format!("expected boolean, got {}", in_go(value)),
        (Some(Type::String), None | Some("" | "byte")) => {
            format!(
                "expected string, got &value.valueUnstructured{{Value:{}}}",
                crate::go::syntax(value)
            )
        }
        _ => format!("expected any scalar, got {}", in_go(value)),
    })
}

/// A value as Go prints a pointer to a struct around it.
fn in_go(value: &Value) -> String {
    format!("&{{{}}}", crate::go::plain(value))
}
