//! A custom resource's schema, as it is published.

use serde_json::{Map, Value, json};

use super::definitions::{self, LIST_META};
use crate::schema::Schema;

/// A built-in kind whose texts stand for those that every object has.
const ANY: &str = "io.k8s.api.core.v1.ConfigMap";

/// A kind: its schema with the fields of every object.
pub fn kind(schema: &Schema) -> Value {
    let text = |field| definitions::text(ANY, field).unwrap_or_default();
    let mut value = schema.to_openapi(["apiVersion", "kind", "metadata"].map(text));
    if let Value::Object(value) = &mut value {
        value.entry("type").or_insert_with(|| "object".into());
    }
    value
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
