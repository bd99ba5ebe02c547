//! CustomResourceDefinitions (D1): their defaults, their rules, and the rows that they become.
//!
//! Called by the registry: [`default_crd`] when one is decoded, [`check_crd`] when one is written, [`warn_crd`] for what
//! is only told, and [`rows_of`] once it is established.

mod defaults;
mod keywords;
mod parts;
mod rows;
mod spec;
mod structural;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::cel::Rules;
use super::{Schema, format};
use crate::fault::{FieldError, Path};

pub use rows::rows_of;

/// Fills in what the reference fills in: singular and list names, conversion, the stored version.
pub fn default_crd(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = text(names, "kind").to_owned();
        if text(names, "singular").is_empty() && !kind.is_empty() {
            names.insert("singular".to_owned(), kind.to_lowercase().into());
        }
        if text(names, "listKind").is_empty() && !kind.is_empty() {
            names.insert("listKind".to_owned(), format!("{kind}List").into());
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    }
    let stored = versions(spec)
        .find(|version| version.get("storage") == Some(&Value::Bool(true)))
        .map(|version| version.get("name").cloned().unwrap_or_default());
    if let (Some(stored), Some(crd)) = (stored, crd.as_object_mut()) {
        let status = crd.entry("status").or_insert_with(|| json!({}));
        if let Value::Object(status) = status
            && status
                .get("storedVersions")
                .is_none_or(|list| list.as_array().is_none_or(Vec::is_empty))
        {
            status.insert("storedVersions".to_owned(), json!([stored]));
        }
    }
}

/// The rules of a CRD, and of its change from `old`. Metadata but the name is the registry's business.
#[must_use]
pub fn check_crd(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    spec::check(new, old, &mut errors);
    errors
}

/// What is told and not refused: formats that nobody checks, rules that Kubernetes would find too costly.
#[must_use]
pub fn warn_crd(new: &Value, old: Option<&Value>) -> Vec<String> {
    let known = old.map(unknown_formats).unwrap_or_default();
    let mut warnings: Vec<String> = unknown_formats(new)
        .into_iter()
        .filter(|format| !known.contains(format))
        .map(|format| format!("unrecognized format {}", crate::fault::quote(&format)))
        .collect();
    for place in schemas(new) {
        if let Ok(schema) = Schema::parse_at(place.schema, &place.path)
            && let Ok(rules) = Rules::compile_at(&Arc::new(schema), &place.path)
        {
            warnings.extend(rules.cost_warnings().iter().cloned());
        }
    }
    warnings
}

fn unknown_formats(crd: &Value) -> Vec<String> {
    fn walk(value: &Value, found: &mut Vec<String>) {
        let Value::Object(map) = value else {
            return;
        };
        if let Some(name) = map
            .get("format")
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty())
        {
            let kind = super::Type::parse(text(map, "type"));
            let strange = kind.is_none() && !text(map, "type").is_empty();
            if strange || format::known(name, kind, false).is_none() {
                found.push(name.to_owned());
            }
        }
        for key in ["items", "not", "additionalProperties"] {
            if let Some(schema) = map.get(key) {
                walk(schema, found);
            }
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            for schema in map.get(key).and_then(Value::as_array).into_iter().flatten() {
                walk(schema, found);
            }
        }
        for schema in map
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(Map::values)
        {
            walk(schema, found);
        }
    }
    let mut found = Vec::new();
    for place in schemas(crd) {
        // Deep ones are refused by the rules.
        if Schema::parse(place.schema).is_ok() {
            walk(place.schema, &mut found);
        }
    }
    found
}

/// A schema of a CRD, at the path by which errors name it.
struct SchemaAt<'a> {
    schema: &'a Value,
    path: Path,
    has_status: bool,
}

/// The schemas of a CRD. One that all versions share stands at `spec.validation`, as in the reference's own form of a
/// CRD, which is the form that its errors speak of.
fn schemas(crd: &Value) -> Vec<SchemaAt<'_>> {
    let Some(spec) = crd.get("spec").and_then(Value::as_object) else {
        return Vec::new();
    };
    let path = Path::new("spec");
    let has_status = |version: &Map<String, Value>| version_has_status(version);
    if is_shared(spec, "schema") {
        let first = versions(spec).next().and_then(|version| version.get("schema"));
        let any_status = versions(spec).any(has_status);
        return first
            .and_then(|schema| schema.get("openAPIV3Schema"))
            .filter(|schema| !schema.is_null())
            .map(|schema| SchemaAt {
                schema,
                path: path.field("validation").field("openAPIV3Schema"),
                has_status: any_status,
            })
            .into_iter()
            .collect();
    }
    versions(spec)
        .enumerate()
        .filter_map(|(index, version)| {
            let schema = version
                .get("schema")?
                .get("openAPIV3Schema")
                .filter(|schema| !schema.is_null())?;
            Some(SchemaAt {
                schema,
                path: path
                    .field("versions")
                    .index(index)
                    .field("schema")
                    .field("openAPIV3Schema"),
                has_status: has_status(version),
            })
        })
        .collect()
}

fn version_has_status(version: &Map<String, Value>) -> bool {
    version
        .get("subresources")
        .and_then(|subresources| subresources.get("status"))
        .is_some_and(|status| !status.is_null())
}

/// Whether all versions say the same under a key (nothing included).
fn is_shared(spec: &Map<String, Value>, key: &str) -> bool {
    let said = |version: &'_ Map<String, Value>| {
        version
            .get(key)
            .filter(|value| !value.is_null() && *value != &json!([]))
            .cloned()
    };
    let mut all = versions(spec).map(said);
    let Some(first) = all.next() else {
        return true;
    };
    all.all(|value| value == first)
}

fn versions(spec: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    spec.get("versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
}

/// A text, empty where there is none.
fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key) == Some(&Value::Bool(true))
}

fn texts<'a>(map: &'a Map<String, Value>, key: &str) -> Vec<&'a str> {
    map.get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// A keyword that is there.
fn given<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    map.get(key).filter(|value| !value.is_null())
}
