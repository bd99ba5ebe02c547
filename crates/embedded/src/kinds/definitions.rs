//! Schemas of built-in kinds, made on demand from a file of facts.
//!
//! `definitions.txt` is written by `cargo xtask definitions`. A line without indent opens a definition, with `atomic`
//! where the whole object is one value to server-side apply. Below it, one line for each field: its name, its type, marks,
//! between tabs.
//!
//! - Types: `string`, `boolean`, `int32`, `int64`, `double`, `byte`, `date-time`, `micro-time`, `duration`, `quantity`,
//!   `int-or-string`, `raw` (an object nobody looks into), `fields`, `@definition`, `[]type`, `{}type`; and of schemas
//!   `json`, `schema-or-list`, `schema-or-bool`, `schema-or-strings`, `any`.
//! - Marks: `always` and `given` as in [`Written`] (neither: not empty), `required`, `atomic`, `go:type`,
//!   `list:type`, `keys:list map keys`, `key:patch merge key`, `patch:strategy`, `default:JSON`, `granular` (against the
//!   definition's `atomic`), `inner:JSON` (the default of items or of a map's values), `wire:` the number in protobuf,
//!   which `crate::api::protobuf` reads by: `2=VolumeSource.1` is field 1 of the message that is field 2, which Go calls
//!   so; without `=` Go's name is the field's own with a capital.
//!
//! Nothing is parsed before it is asked for; each definition is made once for the process and shared.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::schema::{Additional, ListType, Schema, Type, Written};

static TEXT: &str = include_str!("definitions.txt");

/// Where each definition's lines are.
static INDEX: LazyLock<HashMap<&'static str, Block>> = LazyLock::new(index);
static MADE: LazyLock<Mutex<HashMap<&'static str, Arc<Schema>>>> = LazyLock::new(Mutex::default);

#[derive(Debug, Clone, Copy)]
struct Block {
    atomic: bool,
    fields: &'static str,
}

fn index() -> HashMap<&'static str, Block> {
    let mut index = HashMap::new();
    let mut rest = TEXT;
    while let Some((head, after)) = rest.split_once('\n') {
        // Field lines are indented, so the next definition starts at the next line that is not.
        let end = next_definition(after);
        let (fields, next) = after.split_at_checked(end).unwrap_or((after, ""));
        let (name, marks) = head.split_once('\t').unwrap_or((head, ""));
        index.insert(
            name,
            Block {
                atomic: marks == "atomic",
                fields,
            },
        );
        rest = next;
    }
    index
}

fn next_definition(text: &str) -> usize {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if !line.starts_with(' ') {
            return at;
        }
        at += line.len();
    }
    at
}

/// The schema of a definition by its whole name, such as `io.k8s.api.core.v1.Pod`.
#[must_use]
pub fn definition(name: &str) -> Option<Arc<Schema>> {
    let (&name, _) = INDEX.get_key_value(name)?;
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    Some(make(name, &mut made, &mut Vec::new()))
}

/// Names of all definitions, in no order.
pub fn names() -> impl Iterator<Item = &'static str> {
    INDEX.keys().copied()
}

/// Each definition's name and its fields' lines, for who reads other facts than a schema has.
pub(crate) fn lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    INDEX.iter().map(|(name, block)| (*name, block.fields))
}

fn make(
    name: &'static str,
    made: &mut HashMap<&'static str, Arc<Schema>>,
    within: &mut Vec<&'static str>,
) -> Arc<Schema> {
    if let Some(schema) = made.get(name) {
        return schema.clone();
    }
    let Some(block) = INDEX.get(name).filter(|_| !within.contains(&name)) else {
        // JSONSchemaProps within itself: whoever reads schemas reads them whole.
        return Arc::new(Schema {
            kind: Some(Type::Object),
            preserve_unknown: true,
            ..Schema::default()
        });
    };
    within.push(name);
    let mut schema = Schema {
        name: Some(name.rsplit('.').next().unwrap_or(name).into()),
        kind: Some(Type::Object),
        atomic_map: block.atomic,
        ..Schema::default()
    };
    for line in block.fields.lines() {
        let mut words = line.trim_start().split('\t');
        let (Some(field), Some(kind)) = (words.next(), words.next()) else {
            continue;
        };
        let target = typed(kind, made, within);
        let marks: Vec<&'static str> = words.collect();
        if marks.contains(&"required") {
            schema.required.push(field.into());
        }
        schema.properties.insert(field.into(), marked(target, &marks));
    }
    within.pop();
    let schema = Arc::new(schema);
    made.insert(name, schema.clone());
    schema
}

/// A type on its own, as an item of a list or a field before its marks.
fn typed(
    text: &'static str,
    made: &mut HashMap<&'static str, Arc<Schema>>,
    within: &mut Vec<&'static str>,
) -> Arc<Schema> {
    if let Some(name) = text.strip_prefix('@') {
        return make(name, made, within);
    }
    let mut schema = Schema::default();
    if let Some(items) = text.strip_prefix("[]") {
        schema.kind = Some(Type::Array);
        schema.items = Some(typed(items, made, within));
    } else if let Some(values) = text.strip_prefix("{}") {
        schema.kind = Some(Type::Object);
        schema.additional = Additional::Schema(typed(values, made, within));
    } else {
        match text {
            "string" => schema.kind = Some(Type::String),
            "boolean" => schema.kind = Some(Type::Boolean),
            "int32" | "int64" => {
                schema.kind = Some(Type::Integer);
                schema.format = Some(text.into());
            }
            "double" | "number" => schema.kind = Some(Type::Number),
            "int-or-string" => {
                schema.int_or_string = true;
                schema.format = Some(text.into());
            }
            "quantity" => schema.format = Some(text.into()),
            "raw" | "fields" => {
                schema.kind = Some(Type::Object);
                schema.preserve_unknown = true;
                // Nobody looks into it, so it has one owner.
                schema.atomic_map = true;
                schema.format = Some(text.into());
            }
            "any" | "json" | "schema-or-list" | "schema-or-bool" | "schema-or-strings" => {
                schema.preserve_unknown = true;
            }
            format => {
                schema.kind = Some(Type::String);
                schema.format = Some(format.into());
            }
        }
    }
    Arc::new(schema)
}

/// The same node with what only this use of it says.
fn marked(target: Arc<Schema>, marks: &[&'static str]) -> Arc<Schema> {
    let mut schema = Arc::unwrap_or_clone(target);
    schema.written = Written::NotEmpty;
    for mark in marks {
        match mark.split_once(':') {
            None if *mark == "always" => schema.written = Written::Always,
            None if *mark == "given" => schema.written = Written::Given,
            None if *mark == "atomic" => schema.atomic_map = true,
            None if *mark == "granular" => schema.atomic_map = false,
            Some(("inner", json)) => default_inner(&mut schema, json),
            Some(("go", name)) => schema.go_type = Some(name),
            Some(("list", "map")) => schema.list_type = ListType::Map,
            Some(("list", "set")) => schema.list_type = ListType::Set,
            Some(("keys", keys)) => schema.list_map_keys = keys.split(',').map(Into::into).collect(),
            Some(("key", key)) => schema.patch_merge_key = Some(key.into()),
            Some(("patch", strategy)) => schema.patch_strategy = Some(strategy.into()),
            Some(("default", json)) => schema.default = serde_json::from_str(json).ok(),
            _ => {}
        }
    }
    Arc::new(schema)
}

fn default_inner(schema: &mut Schema, json: &str) {
    let with_default = |inner: &Arc<Schema>| {
        let mut inner = Schema::clone(inner);
        inner.default = serde_json::from_str(json).ok();
        Arc::new(inner)
    };
    if let Some(items) = &schema.items {
        schema.items = Some(with_default(items));
    } else if let Additional::Schema(values) = &schema.additional {
        schema.additional = Additional::Schema(with_default(values));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_can_be_made_and_refers_only_to_others() {
        for name in names() {
            let schema = definition(name).unwrap();
            assert_eq!(schema.name.as_deref(), name.rsplit('.').next());
        }
        for line in TEXT.lines() {
            if let Some((_, rest)) = line.split_once('@') {
                let name = rest.split('\t').next().unwrap();
                assert!(INDEX.contains_key(name), "{name} is referred to and not there");
            }
        }
        assert!(definition("io.k8s.api.batch.v1.Job").is_none());
    }

    #[test]
    fn o17_a_list_knows_its_merge_key_and_its_list_type() {
        let pod = definition("io.k8s.api.core.v1.Pod").unwrap();
        let spec = &pod.properties["spec"];
        let containers = &spec.properties["containers"];
        assert_eq!(containers.patch_merge_key.as_deref(), Some("name"));
        assert_eq!(containers.list_type, ListType::Map);
        let ports = &containers.items.as_ref().unwrap().properties["ports"];
        assert_eq!(ports.patch_merge_key.as_deref(), Some("containerPort"));
        assert_eq!(ports.list_map_keys, ["containerPort".into(), "protocol".into()]);
        let protocol = &ports.items.as_ref().unwrap().properties["protocol"];
        assert_eq!(protocol.default, Some("TCP".into()));
        assert_eq!(spec.properties["nodeSelector"].go_type, Some("map[string]string"));
        assert!(spec.properties["nodeSelector"].atomic_map);
        assert_eq!(spec.name.as_deref(), Some("PodSpec"));
        assert_eq!(spec.required, ["containers".into()]);
    }

    #[test]
    fn a_schema_within_a_schema_is_kept_whole() {
        let crd =
            definition("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition").unwrap();
        let version = crd.properties["spec"].properties["versions"].items.clone().unwrap();
        let schema = version.properties["schema"].properties["openAPIV3Schema"].clone();
        let Additional::Schema(inner) = &schema.properties["properties"].additional else {
            panic!("a map of schemas");
        };
        assert!(inner.preserve_unknown);
    }
}
