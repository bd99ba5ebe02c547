//! Keywords of a schema that may not be used, or not like this.

use serde_json::{Map, Value, json};

use super::{flag, given, text, texts};
use crate::fault::{FieldError, Path};
use crate::schema::Schema;
use crate::schema::field_path::{self, Notation};

pub(super) fn check(schema: &Map<String, Value>, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    node(
        schema,
        path,
        &Inherited {
            root: true,
            ..Inherited::default()
        },
        &mut errors,
    );
    errors
}

/// What a node has from those above it.
#[derive(Clone, Default)]
struct Inherited {
    root: bool,
    inside_metadata: bool,
    /// Why defaults are forbidden.
    no_defaults: Option<String>,
}

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

fn node(schema: &Map<String, Value>, path: &Path, inherited: &Inherited, errors: &mut Vec<FieldError>) {
    unsupported(schema, path, inherited, errors);
    if flag(schema, "uniqueItems") {
        errors.push(FieldError::forbidden(
            &path.field("uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }
    below(schema, path, inherited, errors);
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        errors.push(FieldError::invalid(
            &path.field("x-kubernetes-preserve-unknown-fields"),
            false,
            "must be true or undefined",
        ));
    }
    map_type(schema, path, errors);
    list_type(schema, path, errors);
    list_map(schema, path, errors);
    list_keys(schema, path, errors);
    rules(schema, path, errors);
}

fn unsupported(schema: &Map<String, Value>, path: &Path, inherited: &Inherited, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(&path.field("type"), kind, &TYPES));
    }
    if let Some(reason) = &inherited.no_defaults
        && given(schema, "default").is_some()
    {
        errors.push(FieldError::forbidden(
            &path.field("default"),
            format!("must not be set {reason}"),
        ));
    }
    for key in [
        "id",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
        "$ref",
    ] {
        let said = given(schema, key).is_some_and(|value| match key {
            "id" => value != &json!(""),
            "patternProperties" | "definitions" => value != &json!({}),
            _ => true,
        });
        if said {
            errors.push(FieldError::forbidden(
                &path.field(key),
                format!("{key} is not supported"),
            ));
        }
    }
    if kind == "null" {
        errors.push(FieldError::forbidden(
            &path.field("type"),
            "type cannot be set to null, use nullable as an alternative",
        ));
    }
    if given(schema, "items").is_some_and(Value::is_array) {
        errors.push(FieldError::forbidden(
            &path.field("items"),
            "items must be a schema object and not an array",
        ));
    }
    if inherited.inside_metadata && flag(schema, "x-kubernetes-embedded-resource") {
        errors.push(FieldError::forbidden(
            &path.field("x-kubernetes-embedded-resource"),
            "must not be used inside of resource meta",
        ));
    }
}

/// Whether a schema says what the reference cannot even read as a structure: then only that is named.
pub(super) fn hides_structure(schema: &Map<String, Value>) -> bool {
    let unreadable = |key: &str| {
        given(schema, key)
            .is_some_and(|value| !matches!(value, Value::Object(map) if map.is_empty()) && value != &json!(""))
    };
    [
        "id",
        "$schema",
        "$ref",
        "patternProperties",
        "dependencies",
        "additionalItems",
        "definitions",
    ]
    .into_iter()
    .any(unreadable)
        || given(schema, "items").is_some_and(Value::is_array)
        || schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false))
        || ["items", "not", "additionalProperties"]
            .into_iter()
            .filter_map(|key| schema.get(key)?.as_object())
            .any(hides_structure)
        || ["allOf", "anyOf", "oneOf"]
            .into_iter()
            .filter_map(|key| schema.get(key)?.as_array())
            .flatten()
            .filter_map(Value::as_object)
            .any(hides_structure)
        || schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(Map::values)
            .filter_map(Value::as_object)
            .any(hides_structure)
}

fn below(schema: &Map<String, Value>, path: &Path, inherited: &Inherited, errors: &mut Vec<FieldError>) {
    let plain = Inherited {
        root: false,
        ..inherited.clone()
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    if let Some(additional) = given(schema, "additionalProperties") {
        let at = path.field("additionalProperties");
        if properties.is_some_and(|map| !map.is_empty()) && additional != &Value::Bool(true) {
            errors.push(FieldError::forbidden(
                &at,
                "additionalProperties and properties are mutual exclusive",
            ));
        }
        if let Value::Object(entry) = additional {
            let mut inner = plain.clone();
            if inner.inside_metadata {
                inner.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
            }
            node(entry, &at, &inner, errors);
        }
    }
    for (name, property) in properties.into_iter().flatten() {
        let Value::Object(property) = property else {
            continue;
        };
        let mut inner = plain.clone();
        let of_resource = inherited.root || flag(schema, "x-kubernetes-embedded-resource");
        if of_resource && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            inner.inside_metadata = true;
            if inherited.root {
                inner.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        node(property, &path.field("properties").key(name), &inner, errors);
    }
    if let Some(Value::Object(not)) = schema.get("not") {
        node(not, &path.field("not"), &plain, errors);
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        for (index, branch) in schema
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            if let Value::Object(branch) = branch {
                node(branch, &path.field(key).index(index), &plain, errors);
            }
        }
    }
    if let Some(Value::Object(items)) = schema.get("items") {
        node(items, &path.field("items"), &plain, errors);
    }
}

fn map_type(schema: &Map<String, Value>, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(given) = schema.get("x-kubernetes-map-type").and_then(Value::as_str) else {
        return;
    };
    wants_type(schema, "object", "x-kubernetes-map-type", path, errors);
    if given != "atomic" && given != "granular" {
        errors.push(FieldError::not_supported(
            &path.field("x-kubernetes-map-type"),
            given,
            &["atomic", "granular"],
        ));
    }
}

fn wants_type(
    schema: &Map<String, Value>,
    wanted: &str,
    keyword: &str,
    path: &Path,
    errors: &mut Vec<FieldError>,
) -> bool {
    let kind = text(schema, "type");
    let at = path.field("type");
    let words = format!("must be {wanted} if {keyword} is specified");
    if kind.is_empty() {
        errors.push(FieldError::required(&at, words));
    } else if kind != wanted {
        errors.push(FieldError::invalid(&at, kind, words));
    } else {
        return true;
    }
    false
}

fn list_type(schema: &Map<String, Value>, path: &Path, errors: &mut Vec<FieldError>) {
    let list_type = schema.get("x-kubernetes-list-type").and_then(Value::as_str);
    if let Some(given) = list_type {
        let fits = wants_type(schema, "array", "x-kubernetes-list-type", path, errors);
        let items = schema.get("items").and_then(Value::as_object);
        if let Some(items) = items.filter(|_| fits && given == "set") {
            let inner_list = items.get("x-kubernetes-list-type");
            let words = "must be atomic as item of a list with x-kubernetes-list-type=set";
            match text(items, "type") {
                "array" if inner_list.is_some_and(|inner| inner != "atomic") => {
                    let at = path.field("items").field("x-kubernetes-list-type");
                    errors.push(FieldError::invalid(&at, inner_list.cloned().unwrap_or_default(), words));
                }
                "object" if items.get("x-kubernetes-map-type") != Some(&"atomic".into()) => {
                    let at = path.field("items").field("x-kubernetes-map-type");
                    errors.push(FieldError::invalid(&at, inner_list.cloned().unwrap_or_default(), words));
                }
                _ => {}
            }
        }
        if !matches!(given, "atomic" | "set" | "map") {
            errors.push(FieldError::not_supported(
                &path.field("x-kubernetes-list-type"),
                given,
                &["atomic", "set", "map"],
            ));
        }
    }
    if !texts(schema, "x-kubernetes-list-map-keys").is_empty() {
        let at = path.field("x-kubernetes-list-type");
        let words = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => errors.push(FieldError::required(&at, words)),
            Some("map") => {}
            Some(other) => errors.push(FieldError::invalid(&at, other, words)),
        }
    }
}

fn list_map(schema: &Map<String, Value>, path: &Path, errors: &mut Vec<FieldError>) {
    if text(schema, "x-kubernetes-list-type") != "map" {
        return;
    }
    let keys = texts(schema, "x-kubernetes-list-map-keys");
    let keys_at = path.field("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.push(FieldError::required(
            &keys_at,
            "must not be empty if x-kubernetes-list-type is map",
        ));
    }
    let Some(items) = given(schema, "items") else {
        errors.push(FieldError::required(
            &path.field("items"),
            "must have a schema if x-kubernetes-list-type is map",
        ));
        return;
    };
    let Value::Object(items) = items else {
        return;
    };
    let kind = text(items, "type");
    if kind != "object" {
        errors.push(FieldError::invalid(
            &path.field("items").field("type"),
            kind,
            "must be object if parent array's x-kubernetes-list-type is map",
        ));
        return;
    }
    let mut seen: Vec<&str> = Vec::new();
    for key in &keys {
        match items.get("properties").and_then(|properties| properties.get(*key)) {
            Some(property) => {
                if matches!(property.get("type").and_then(Value::as_str), Some("array" | "object")) {
                    errors.push(FieldError::invalid(
                        &path.field("items").field("properties").key(key).field("type"),
                        kind,
                        "must be a scalar type if parent array's x-kubernetes-list-type is map",
                    ));
                }
            }
            None => errors.push(FieldError::invalid(
                &keys_at,
                json!(keys),
                "entries must all be names of item properties",
            )),
        }
        if seen.contains(key) {
            errors.push(FieldError::invalid(
                &keys_at,
                json!(keys),
                "must not contain duplicate entries",
            ));
        }
        seen.push(key);
    }
}

/// Items of sets and maps are never null, keys always there.
fn list_keys(schema: &Map<String, Value>, path: &Path, errors: &mut Vec<FieldError>) {
    let list_type = text(schema, "x-kubernetes-list-type");
    let Some(items) = schema.get("items").and_then(Value::as_object) else {
        return;
    };
    if !matches!(list_type, "set" | "map") {
        return;
    }
    let path = path.field("items");
    if flag(items, "nullable") {
        errors.push(FieldError::forbidden(
            &path.field("nullable"),
            format!("cannot be nullable when x-kubernetes-list-type is {list_type}"),
        ));
    }
    if list_type != "map" {
        return;
    }
    let required = texts(items, "required");
    for key in texts(schema, "x-kubernetes-list-map-keys") {
        let Some(property) = items
            .get("properties")
            .and_then(|properties| properties.get(key))
            .and_then(Value::as_object)
        else {
            continue;
        };
        let at = path.field("properties").key(key);
        if !required.contains(&key) && given(property, "default").is_none() {
            errors.push(FieldError::required(
                &at.field("default"),
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ));
        }
        if flag(property, "nullable") {
            errors.push(FieldError::forbidden(
                &at.field("nullable"),
                "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            ));
        }
    }
}

/// Rules but their expressions.
fn rules(schema: &Map<String, Value>, path: &Path, errors: &mut Vec<FieldError>) {
    const REASONS: [&str; 4] = [
        "FieldValueDuplicate",
        "FieldValueForbidden",
        "FieldValueInvalid",
        "FieldValueRequired",
    ];
    let list = schema.get("x-kubernetes-validations").and_then(Value::as_array);
    for (index, rule) in list.into_iter().flatten().enumerate() {
        let Value::Object(rule) = rule else {
            continue;
        };
        let at = path.field("x-kubernetes-validations").index(index);
        let expression = text(rule, "rule").trim();
        let message = text(rule, "message");
        let has_break = |text: &str| text.contains(['\n', '\r']);
        if expression.is_empty() {
            errors.push(FieldError::required(&at.field("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            errors.push(FieldError::invalid(
                &at.field("message"),
                message,
                "must be non-empty if specified",
            ));
        } else if has_break(message.trim()) {
            errors.push(FieldError::invalid(
                &at.field("message"),
                message,
                "must not contain line breaks",
            ));
        } else if has_break(expression) && message.trim().is_empty() {
            errors.push(FieldError::required(
                &at.field("message"),
                "message must be specified if rule contains line breaks",
            ));
        }
        let message_expression = text(rule, "messageExpression");
        if !message_expression.is_empty() && message_expression.trim().is_empty() {
            errors.push(FieldError::required(
                &at.field("messageExpression"),
                "messageExpression must be non-empty if specified",
            ));
        }
        if let Some(reason) = rule.get("reason").and_then(Value::as_str)
            && !REASONS.contains(&reason)
        {
            errors.push(FieldError::not_supported(&at.field("reason"), reason, &REASONS));
        }
        field_paths(schema, text(rule, "fieldPath"), &at.field("fieldPath"), errors);
    }
}

fn field_paths(schema: &Map<String, Value>, given: &str, at: &Path, errors: &mut Vec<FieldError>) {
    if given.is_empty() {
        return;
    }
    let mut wrong = |why: &str| errors.push(FieldError::invalid(at, given, why));
    if given.trim().is_empty() {
        wrong("must be non-empty if specified");
    }
    if given.contains(['\n', '\r']) {
        wrong("must not contain line breaks");
    }
    if let Ok(schema) = Schema::parse(&Value::Object(schema.clone()))
        && field_path::resolve(given, &schema, Notation::WithBrackets).is_err()
    {
        wrong("must be a valid path");
    }
}

/// With the status subresource, the root may say only what still holds when its status is taken out.
pub(super) fn root_with_status(schema: &Map<String, Value>, path: &Path, errors: &mut Vec<FieldError>) {
    const ALLOWED: [&str; 22] = [
        "description",
        "type",
        "format",
        "title",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "multipleOf",
        "required",
        "items",
        "properties",
        "externalDocs",
        "example",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    ];
    let kind = text(schema, "type");
    if !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(
            &path.field("type"),
            kind,
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled",
        ));
        return;
    }
    let says = |value: &Value| {
        !matches!(value, Value::Null | Value::Bool(false)) && value != &json!([]) && value != &json!({})
    };
    if schema
        .iter()
        .any(|(key, value)| !ALLOWED.contains(&key.as_str()) && says(value))
    {
        errors.push(FieldError::invalid(
            path,
            Value::Object(schema.clone()),
            "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength \
             Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example \
             XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status \
             subresource is enabled",
        ));
    }
}
