//! Whether a schema is structural: every field has one type, said once, and combinations only narrow what is there.

use serde_json::{Map, Value};

use super::{flag, given, text};
use crate::fault::{FieldError, Path};
use crate::schema::Pattern;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// What keeps a schema from being structural, sorted as the reference sorts it.
pub(super) fn check(schema: &Map<String, Value>, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    node(schema, Level::Root, path, &mut errors);
    complete(schema, Some(schema), path, path, &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

fn node(schema: &Map<String, Value>, level: Level, path: &Path, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    let items = given(schema, "items").and_then(Value::as_object);
    match items {
        Some(items) => node(items, Level::Item, &path.field("items"), errors),
        None if kind == "array" && !given(schema, "items").is_some_and(Value::is_array) => {
            errors.push(FieldError::required(&path.field("items"), "must be specified"));
        }
        None => {}
    }
    for (name, property) in properties(schema) {
        node(property, Level::Field, &path.field("properties").key(name), errors);
    }
    let additional = given(schema, "additionalProperties");
    if let Some(additional) = additional {
        let at = path.field("additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(&at, "must not be used at the root"));
        }
        if let Value::Object(entry) = additional {
            node(entry, Level::Field, &at, errors);
        }
    }
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let preserves = flag(schema, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");
    if int_or_string {
        for (said, key) in [
            (preserves, "x-kubernetes-preserve-unknown-fields"),
            (embedded, "x-kubernetes-embedded-resource"),
        ] {
            if said {
                errors.push(FieldError::invalid(
                    &path.field(key),
                    true,
                    "must be false if x-kubernetes-int-or-string is true",
                ));
            }
        }
    }
    combinations(
        schema,
        is_int_or_string(schema.get("anyOf")),
        is_int_or_string(first_any_of(schema)),
        path,
        errors,
    );
    check_type(kind, embedded, int_or_string || preserves, level, path, errors);
    if embedded && additional.is_some() {
        errors.push(FieldError::forbidden(
            &path.field("additionalProperties"),
            "must not be used if x-kubernetes-embedded-resource is set",
        ));
    }
    metadata(schema, level, embedded, path, errors);
    if embedded && !preserves && properties(schema).next().is_none() {
        errors.push(FieldError::required(
            &path.field("properties"),
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
}

fn check_type(kind: &str, embedded: bool, untyped: bool, level: Level, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.field("type");
    let words = "must be object if x-kubernetes-embedded-resource is true";
    if embedded && kind.is_empty() {
        errors.push(FieldError::required(&at, words));
    } else if embedded && kind != "object" {
        errors.push(FieldError::invalid(&at, kind, words));
    } else if kind.is_empty() && !untyped {
        errors.push(FieldError::required(
            &at,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(&at, kind, "must be object at the root"));
    }
}

fn metadata(schema: &Map<String, Value>, level: Level, embedded: bool, path: &Path, errors: &mut Vec<FieldError>) {
    let root = level == Level::Root;
    let path = path.field("properties");
    for (name, property) in properties(schema) {
        let at = path.key(name);
        let wanted = match name {
            "kind" | "apiVersion" => "string",
            "metadata" => "object",
            _ => continue,
        };
        let kind = text(property, "type");
        if (root || embedded) && kind != wanted {
            errors.push(FieldError::invalid(
                &at.field("type"),
                kind,
                format!("must be {wanted}"),
            ));
        }
        if root && name == "metadata" && says_more_than_names(property) {
            errors.push(FieldError::forbidden(
                &at,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ));
        }
    }
}

fn says_more_than_names(metadata: &Map<String, Value>) -> bool {
    metadata.iter().any(|(key, value)| match key.as_str() {
        "type" | "default" => false,
        "properties" => !value
            .as_object()
            .is_some_and(|map| map.keys().all(|name| name == "name" || name == "generateName")),
        _ => !says_nothing(value),
    })
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn properties(schema: &Map<String, Value>) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(name, property)| Some((name.as_str(), property.as_object()?)))
}

fn branches<'a>(schema: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = (usize, &'a Map<String, Value>)> {
    schema
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
        .filter_map(|(index, branch)| Some((index, branch.as_object()?)))
}

fn first_any_of(schema: &Map<String, Value>) -> Option<&Value> {
    schema.get("allOf")?.as_array()?.first()?.get("anyOf")
}

/// `anyOf` of integer and string: how int-or-string was written before it had a word.
fn is_int_or_string(any_of: Option<&Value>) -> bool {
    any_of == Some(&serde_json::json!([{"type": "integer"}, {"type": "string"}]))
}

/// Combinations and the pattern of one node.
fn combinations(
    schema: &Map<String, Value>,
    skip_any_of: bool,
    skip_first_any_of: bool,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    if !skip_any_of {
        for (index, branch) in branches(schema, "anyOf") {
            nested(branch, false, &path.field("anyOf").index(index), errors);
        }
    }
    for (index, branch) in branches(schema, "allOf") {
        nested(
            branch,
            skip_first_any_of && index == 0,
            &path.field("allOf").index(index),
            errors,
        );
    }
    for (index, branch) in branches(schema, "oneOf") {
        nested(branch, false, &path.field("oneOf").index(index), errors);
    }
    if let Some(Value::Object(not)) = schema.get("not") {
        nested(not, false, &path.field("not"), errors);
    }
    let pattern = text(schema, "pattern");
    if let Err(why) = Pattern::from(pattern).regex() {
        errors.push(FieldError::invalid(
            &path.field("pattern"),
            pattern,
            format!("must be a valid regular expression, but isn't: {why}"),
        ));
    }
}

/// A branch: it may narrow, and say nothing else.
fn nested(schema: &Map<String, Value>, skip_any_of: bool, path: &Path, errors: &mut Vec<FieldError>) {
    const FORBIDDEN: [(&str, &str); 13] = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    combinations(schema, skip_any_of, false, path, errors);
    if let Some(Value::Object(items)) = schema.get("items") {
        nested(items, false, &path.field("items"), errors);
    }
    for (name, property) in properties(schema) {
        let at = path.field("properties").key(name);
        nested(property, false, &at, errors);
        // Metadata could be narrowed in ways nobody wants.
        if name == "metadata" {
            errors.push(FieldError::forbidden(&at, "must not be specified in a nested context"));
        }
    }
    for (key, words) in FORBIDDEN {
        let said = match key {
            "default" | "x-kubernetes-list-type" | "x-kubernetes-map-type" => given(schema, key).is_some(),
            _ => schema.get(key).is_some_and(|value| !says_nothing(value)),
        };
        if said {
            errors.push(FieldError::forbidden(&path.field(key), words));
        }
    }
}

/// Every field that a combination speaks of must be a field of the schema around it.
fn complete(
    narrows: &Map<String, Value>,
    around: Option<&Map<String, Value>>,
    around_path: &Path,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let mut branch = |branch: &Map<String, Value>, at: Path| complete_branch(branch, around, around_path, &at, errors);
    if let Some(Value::Object(not)) = narrows.get("not") {
        branch(not, path.field("not"));
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, schema) in branches(narrows, key) {
            branch(schema, path.field(key).index(index));
        }
    }
}

fn complete_branch(
    branch: &Map<String, Value>,
    around: Option<&Map<String, Value>>,
    around_path: &Path,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let Some(around) = around else {
        errors.push(FieldError::required(
            around_path,
            format!("because it is defined in {path}"),
        ));
        return;
    };
    complete(branch, Some(around), around_path, path, errors);
    if let Some(Value::Object(items)) = branch.get("items") {
        let inner = around.get("items").and_then(Value::as_object);
        complete_branch(items, inner, &around_path.field("items"), &path.field("items"), errors);
    }
    for (name, property) in properties(branch) {
        let inner = around
            .get("properties")
            .and_then(|properties| properties.get(name))
            .and_then(Value::as_object);
        complete_branch(
            property,
            inner,
            &around_path.field("properties").key(name),
            &path.field("properties").key(name),
            errors,
        );
    }
}
