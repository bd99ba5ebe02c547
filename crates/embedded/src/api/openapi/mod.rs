//! OpenAPI v3 (A4): an index, and one document for each group-version, from which kubectl explains fields, learns
//! whether the server validates them, and computes its patches.
//!
//! The router keeps one [`Documents`] and asks it with the rows of the moment. A document is made when it is first asked
//! for and kept until one of its rows is another; the index costs no document, since a document's hash is computed
//! from what goes into it.

mod actions;
mod custom;
pub(crate) mod definitions;
mod enums;
mod facts;
mod parameters;
mod paths;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ring::digest::{SHA512, digest};
use serde_json::{Map, Value, json};

use super::discovery::{self, hex};
use crate::registry::row::{Row, Rules, Version};
use crate::schema::Schema;

/// The schema of a built-in definition by its full name, such as `io.k8s.api.autoscaling.v1.Scale`: asked for what is
/// not reached from a served kind's own schema.
pub type Definition = fn(&str) -> Option<Arc<Schema>>;

/// All documents, made when asked for.
#[derive(Debug)]
pub struct Documents {
    definition: Definition,
    made: Mutex<BTreeMap<String, Made>>,
}

/// One document, as it is sent.
#[derive(Debug, Clone)]
pub struct Document {
    pub body: Bytes,
    /// The `hash` of its address in the index and, quoted, its ETag.
    pub hash: String,
}

#[derive(Debug)]
struct Made {
    /// Kept, so that another row cannot take the place of one that is gone unnoticed.
    rows: Vec<Arc<Row>>,
    document: Document,
}

impl Documents {
    #[must_use]
    pub fn new(definition: Definition) -> Self {
        Self {
            definition,
            made: Mutex::default(),
        }
    }

    /// `/openapi/v3`.
    #[must_use]
    pub fn index(&self, rows: &[Arc<Row>]) -> Value {
        let paths: Map<String, Value> = discovery::group_versions(rows)
            .into_iter()
            .map(|(group, version)| {
                let path = path_of(group, version);
                let hash = hash(&rows_of(rows, group, version), version);
                (path, json!({"serverRelativeURL": address(group, version, &hash)}))
            })
            .collect();
        json!({"paths": paths})
    }

    /// `/openapi/v3/api/v1` and `/openapi/v3/apis/G/V`. `None`: there is no such group-version.
    #[must_use]
    pub fn document(&self, rows: &[Arc<Row>], group: &str, version: &str) -> Option<Document> {
        let rows = rows_of(rows, group, version);
        if rows.is_empty() {
            return None;
        }
        let path = path_of(group, version);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = made.get(&path).filter(|known| same(&known.rows, &rows)) {
            return Some(known.document.clone());
        }
        let body = compose(&rows, group, version, self.definition);
        let document = Document {
            body: body.to_string().into(),
            hash: hash(&rows, version),
        };
        let entry = Made {
            rows,
            document: document.clone(),
        };
        made.insert(path, entry);
        Some(document)
    }
}

/// A custom resource's schema as its document has it.
#[must_use]
pub fn published(schema: &Schema) -> Value {
    custom::kind(schema)
}

fn rows_of(rows: &[Arc<Row>], group: &str, version: &str) -> Vec<Arc<Row>> {
    let serves = |row: &Row| &*row.group == group && row.versions.iter().any(|v| v.served && &*v.name == version);
    let mut rows: Vec<Arc<Row>> = rows.iter().filter(|row| serves(row)).cloned().collect();
    rows.sort_by(|one, other| one.plural.cmp(&other.plural));
    rows
}

fn same(one: &[Arc<Row>], other: &[Arc<Row>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
}

fn path_of(group: &str, version: &str) -> String {
    match group {
        "" => format!("api/{version}"),
        group => format!("apis/{group}/{version}"),
    }
}

/// A custom resource's document follows from its row; those of built-in kinds change with this program alone.
fn hash(rows: &[Arc<Row>], version: &str) -> String {
    let mut content = format!("{} {version}", env!("CARGO_PKG_VERSION"));
    for row in rows {
        match row.rules {
            Rules::BuiltIn(rules) => {
                content.push_str(&format!("\n{} {:?} {:?}", row.plural, row.verbs, rules.subresources));
            }
            Rules::Custom => content.push_str(&format!("\n{row:?}")),
        }
    }
    hex(digest(&SHA512, content.as_bytes()).as_ref())
}

/// What a kind's schema is called among the components.
fn component(row: &Row, version: &str, kind: &str) -> String {
    match row.rules {
        Rules::BuiltIn(_) => definitions::name(&row.group, version, kind),
        Rules::Custom => {
            let reversed: Vec<&str> = row.group.rsplit('.').collect();
            format!("{}.{version}.{kind}", reversed.join("."))
        }
    }
}

fn compose(rows: &[Arc<Row>], group: &str, version: &str, definition: Definition) -> Value {
    let mut schemas = BTreeMap::new();
    let mut paths = Map::new();
    let mut uses = BTreeSet::new();
    let built_in = rows.iter().any(|row| matches!(row.rules, Rules::BuiltIn(_)));
    if built_in {
        let (path, item) = paths::resources(group, version, &mut uses);
        paths.insert(path, item);
    }
    for (row, of_version) in discovery::served(rows, group, version) {
        paths.extend(paths::of(row, of_version, &mut uses));
        add_kind(&mut schemas, row, of_version);
    }
    for name in uses {
        if !schemas.contains_key(&name) {
            definitions::add(&mut schemas, &name);
            facts::add(&mut schemas, &name, definition(&name).as_deref());
        }
    }
    let names: Vec<String> = schemas.values().flat_map(definitions::references).collect();
    for name in names {
        definitions::add(&mut schemas, &name);
    }
    for (name, kinds) in definitions::shared_kinds(group, version) {
        if let Some(Value::Object(schema)) = schemas.get_mut(name) {
            schema.insert("x-kubernetes-group-version-kind".into(), kinds);
        }
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "1.36"},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"BearerToken": {
                "type": "apiKey",
                "description": "A bearer token.",
                "name": "authorization",
                "in": "header",
            }},
        },
    })
}

/// A kind's own schema and, where it can be listed, its list's.
fn add_kind(schemas: &mut BTreeMap<String, Value>, row: &Row, version: &Version) {
    let name = component(row, &version.name, &row.kind);
    match row.rules {
        Rules::BuiltIn(_) => {
            definitions::add(schemas, &name);
            facts::add(schemas, &name, Some(&version.schema));
        }
        Rules::Custom => {
            schemas.insert(name.clone(), custom::kind(&version.schema));
        }
    }
    let kind = |kind: &str| json!([{"group": *row.group, "version": *version.name, "kind": kind}]);
    if let Some(Value::Object(schema)) = schemas.get_mut(&name) {
        schema.insert("x-kubernetes-group-version-kind".into(), kind(&row.kind));
    }
    if row.verbs.contains(&"list") {
        let mut list = custom::list(&row.kind, &row.plural, &name);
        if let Some(list) = list.as_object_mut() {
            list.insert("x-kubernetes-group-version-kind".into(), kind(&row.list_kind));
        }
        schemas.insert(component(row, &version.name, &row.list_kind), list);
    }
}

/// The address of a document with its hash: a request with another hash is sent here.
#[must_use]
pub fn address(group: &str, version: &str, hash: &str) -> String {
    format!("/openapi/v3/{}?hash={hash}", path_of(group, version))
}
