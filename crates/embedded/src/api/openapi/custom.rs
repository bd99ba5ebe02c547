//! A custom resource's schema, as it is published.

use serde_json::{Map, Value, json};

use super::definitions::{self, LIST_META, OBJECT_META};
use super::facts::list_type;
use crate::schema::{Additional, Bounds, ListType, Rule, Schema, Type};

/// A built-in kind whose texts stand for those that every object has.
const ANY: &str = "io.k8s.api.core.v1.ConfigMap";

/// A kind: its schema with the fields of every object.
pub fn kind(schema: &Schema) -> Value {
    let mut value = publish(schema);
    if value.get("type").is_none() {
        value.insert("type".into(), "object".into());
    }
    let properties = value.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        insert_type_meta(properties);
        properties.insert("metadata".into(), metadata(OBJECT_META));
    }
    Value::Object(value)
}

/// The list of a kind.
pub fn list(kind: &str, plural: &str, component: &str) -> Value {
    let mut properties = Map::new();
    insert_type_meta(&mut properties);
    properties.insert("metadata".into(), metadata(LIST_META));
    let items = json!({
        "description": format!("List of {plural}."),
        "type": "array",
        "items": definitions::reference(component),
    });
    properties.insert("items".into(), items);
    json!({
        "description": format!("{kind}List is a list of {kind}"),
        "type": "object",
        "required": ["items"],
        "properties": properties,
    })
}

fn insert_type_meta(properties: &mut Map<String, Value>) {
    for field in ["apiVersion", "kind"] {
        let text = definitions::text(ANY, field).unwrap_or_default();
        properties.insert(field.into(), json!({"description": text, "type": "string"}));
    }
}

fn metadata(component: &str) -> Value {
    let text = definitions::text(ANY, "metadata").unwrap_or_default();
    json!({"description": text, "allOf": [definitions::reference(component)]})
}

fn publish(schema: &Schema) -> Map<String, Value> {
    let mut value = Map::new();
    if let Some(text) = &schema.description {
        value.insert("description".into(), (&**text).into());
    }
    if let Some(kind) = schema.kind {
        value.insert("type".into(), type_name(kind).into());
    }
    if let Some(format) = &schema.format {
        value.insert("format".into(), (&**format).into());
    }
    if schema.nullable {
        value.insert("nullable".into(), true.into());
    }
    if let Some(default) = &schema.default {
        value.insert("default".into(), default.clone());
    }
    if let Some(bounds) = &schema.bounds {
        publish_bounds(bounds, &mut value);
    }
    publish_children(schema, &mut value);
    publish_extensions(schema, &mut value);
    if schema.embedded_resource {
        embed(&mut value);
    }
    value
}

fn publish_children(schema: &Schema, value: &mut Map<String, Value>) {
    if !schema.properties.is_empty() {
        let properties: Map<String, Value> = schema
            .properties
            .iter()
            .map(|(name, schema)| (name.to_string(), Value::Object(publish(schema))))
            .collect();
        value.insert("properties".into(), properties.into());
    }
    match &schema.additional {
        Additional::No => {}
        Additional::Any => {
            value.insert("additionalProperties".into(), true.into());
        }
        Additional::Schema(schema) => {
            value.insert("additionalProperties".into(), publish(schema).into());
        }
    }
    if let Some(items) = &schema.items {
        value.insert("items".into(), publish(items).into());
    }
    if !schema.required.is_empty() {
        let required: Vec<Value> = schema.required.iter().map(|name| Value::from(&**name)).collect();
        value.insert("required".into(), required.into());
    }
}

fn publish_extensions(schema: &Schema, value: &mut Map<String, Value>) {
    let mut insert = |name: &str, fact: Value| value.insert(format!("x-kubernetes-{name}"), fact);
    // Atomic is what a list is without the extension.
    if schema.list_type != ListType::Atomic {
        insert("list-type", list_type(schema.list_type).into());
    }
    if !schema.list_map_keys.is_empty() {
        let keys = schema.list_map_keys.iter().map(|key| Value::from(&**key)).collect();
        insert("list-map-keys", keys);
    }
    if schema.atomic_map {
        insert("map-type", "atomic".into());
    }
    if schema.preserve_unknown {
        insert("preserve-unknown-fields", true.into());
    }
    if schema.embedded_resource {
        insert("embedded-resource", true.into());
    }
    if let Some(key) = &schema.patch_merge_key {
        insert("patch-merge-key", (&**key).into());
    }
    if let Some(strategy) = &schema.patch_strategy {
        insert("patch-strategy", (&**strategy).into());
    }
    if !schema.rules.is_empty() {
        insert("validations", schema.rules.iter().map(publish_rule).collect());
    }
    if schema.int_or_string {
        insert("int-or-string", true.into());
        // Both types are spelt out, unless the author has done so.
        let spelt_out = schema
            .bounds
            .as_ref()
            .is_some_and(|b| !b.any_of.is_empty() || !b.all_of.is_empty());
        if !spelt_out {
            value.insert("anyOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
        }
    }
}

/// A whole object within another has an object's fields.
fn embed(value: &mut Map<String, Value>) {
    value.entry("type").or_insert_with(|| "object".into());
    let required = value.entry("required").or_insert_with(|| json!([]));
    if let Some(required) = required.as_array_mut() {
        for field in ["kind", "apiVersion"] {
            if !required.iter().any(|name| name == field) {
                required.push(field.into());
            }
        }
    }
    let properties = value.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        insert_type_meta(properties);
        properties.insert("metadata".into(), metadata(OBJECT_META));
    }
}

fn publish_rule(rule: &Rule) -> Value {
    let mut value = Map::new();
    value.insert("rule".into(), rule.rule.clone().into());
    for (name, text) in [
        ("message", &rule.message),
        ("messageExpression", &rule.message_expression),
        ("reason", &rule.reason),
        ("fieldPath", &rule.field_path),
    ] {
        if let Some(text) = text {
            value.insert(name.into(), text.clone().into());
        }
    }
    if rule.optional_old_self {
        value.insert("optionalOldSelf".into(), true.into());
    }
    value.into()
}

fn publish_bounds(bounds: &Bounds, value: &mut Map<String, Value>) {
    let numbers = [
        ("maximum", &bounds.maximum),
        ("minimum", &bounds.minimum),
        ("multipleOf", &bounds.multiple_of),
    ];
    let counts = [
        ("maxLength", bounds.max_length),
        ("minLength", bounds.min_length),
        ("maxItems", bounds.max_items),
        ("minItems", bounds.min_items),
        ("maxProperties", bounds.max_properties),
        ("minProperties", bounds.min_properties),
    ];
    let flags = [
        ("exclusiveMaximum", bounds.exclusive_maximum),
        ("exclusiveMinimum", bounds.exclusive_minimum),
        ("uniqueItems", bounds.unique_items),
    ];
    let combinations = [
        ("allOf", &bounds.all_of),
        ("anyOf", &bounds.any_of),
        ("oneOf", &bounds.one_of),
    ];
    for (name, number) in numbers {
        value.extend(number.clone().map(|number| (name.to_owned(), Value::Number(number))));
    }
    for (name, count) in counts {
        value.extend(count.map(|count| (name.to_owned(), count.into())));
    }
    for (name, flag) in flags {
        value.extend(flag.then(|| (name.to_owned(), true.into())));
    }
    for (name, schemas) in combinations {
        if !schemas.is_empty() {
            let schemas: Vec<Value> = schemas.iter().map(|schema| publish(schema).into()).collect();
            value.insert(name.into(), schemas.into());
        }
    }
    if let Some(pattern) = &bounds.pattern {
        value.insert("pattern".into(), pattern.as_str().into());
    }
    if !bounds.allowed.is_empty() {
        value.insert("enum".into(), bounds.allowed.clone().into());
    }
    if let Some(not) = &bounds.not {
        value.insert("not".into(), publish(not).into());
    }
}

fn type_name(kind: Type) -> &'static str {
    match kind {
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
    }
}
