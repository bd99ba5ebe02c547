//! Objects in their other representations: `Table` for `kubectl get`, `PartialObjectMetadata` for those who only need to
//! know that an object exists (A6).
//!
//! The read and watch handlers call this with decoded objects, which are taken apart and not copied. In a watch each
//! event is a table of one row, and only the first has column definitions: its caller says so.

mod cells;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::fault::Fault;
use crate::kinds::print;
use crate::registry::row::{Columns, CustomColumn};

/// Finds what a column's JSON path names. `None`: nothing is there.
pub type Evaluate<'a> = &'a dyn Fn(&Value, &str) -> Option<Value>;

/// The version of group `meta.k8s.io` that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    V1,
    V1Beta1,
}

impl MetaVersion {
    /// `v1` and `v1beta1`; there is no other.
    #[must_use]
    pub fn parse(version: &str) -> Option<Self> {
        match version {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// What each row carries of its object: the query's `includeObject`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    /// Of the query's text.
    ///
    /// # Errors
    /// 400 for another word, as the reference says it.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(Fault::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', \
                 'Object', 'None', or empty",
                crate::fault::quote(other)
            ))),
        }
    }
}

/// How a table is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub version: MetaVersion,
    pub include: IncludeObject,
    /// Whether column definitions are written: not again after a watch's first event.
    pub definitions: bool,
    pub now: Timestamp,
}

/// A list's `metadata`, and that of a table made of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListMeta {
    pub resource_version: String,
    pub continue_token: Option<String>,
    pub remaining: Option<u64>,
}

impl ListMeta {
    /// As it is written.
    #[must_use]
    pub fn into_value(self) -> Value {
        let mut map = Map::new();
        if !self.resource_version.is_empty() {
            map.insert("resourceVersion".into(), self.resource_version.into());
        }
        if let Some(token) = self.continue_token.filter(|token| !token.is_empty()) {
            map.insert("continue".into(), token.into());
        }
        if let Some(remaining) = self.remaining {
            map.insert("remainingItemCount".into(), remaining.into());
        }
        Value::Object(map)
    }
}

/// A table of a list's objects.
#[must_use]
pub fn table(
    columns: &Columns,
    objects: impl IntoIterator<Item = Value>,
    metadata: ListMeta,
    wanted: Wanted,
    evaluate: Evaluate<'_>,
) -> Value {
    let columns = cells::with_default(columns);
    let rows: Vec<Value> = objects
        .into_iter()
        .map(|object| row(&columns, object, wanted, evaluate))
        .collect();
    let definitions = match wanted.definitions {
        true => definitions(&columns),
        false => Value::Null,
    };
    json!({
        "kind": "Table",
        "apiVersion": wanted.version.api_version(),
        "metadata": metadata.into_value(),
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

/// A table of one object: the answer to a get, and a watch's event. Its revision is the object's.
#[must_use]
pub fn table_of_one(columns: &Columns, object: Value, wanted: Wanted, evaluate: Evaluate<'_>) -> Value {
    let revision = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    let metadata = ListMeta {
        resource_version: revision.unwrap_or_default().to_owned(),
        ..ListMeta::default()
    };
    table(columns, [object], metadata, wanted, evaluate)
}

fn row(columns: &Columns, object: Value, wanted: Wanted, evaluate: Evaluate<'_>) -> Value {
    let cells = match columns {
        Columns::BuiltIn { cells, .. } => cells(&object, wanted.now),
        Columns::Custom(columns) => cells::custom(&object, columns, wanted.now, evaluate),
    };
    let mut row = Map::new();
    row.insert("cells".into(), cells.into());
    let is_pod = object.get("kind").is_some_and(|kind| kind == "Pod")
        && object.get("apiVersion").is_some_and(|version| version == "v1");
    if let Some(conditions) = is_pod.then(|| print::row_conditions(&object)).flatten() {
        row.insert("conditions".into(), conditions);
    }
    // The bookmark that ends the initial events is told by its annotation, so it is never left out.
    let shown = match wanted.include {
        IncludeObject::Object => object,
        IncludeObject::None if !ends_initial_events(&object) => Value::Null,
        IncludeObject::None | IncludeObject::Metadata => partial(object, wanted.version),
    };
    row.insert("object".into(), shown);
    Value::Object(row)
}

fn ends_initial_events(object: &Value) -> bool {
    object
        .pointer("/metadata/annotations/k8s.io~1initial-events-end")
        .is_some_and(|value| value == "true")
}

fn definitions(columns: &Columns) -> Value {
    let definition = |name: &str, kind: &str, format: &str, description: &str, priority: i32| json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority});
    match columns {
        Columns::BuiltIn { columns, .. } => columns
            .iter()
            .map(|c| definition(c.name, c.kind, c.format, c.description, i32::from(c.priority)))
            .collect(),
        Columns::Custom(columns) => {
            let name = definition("Name", "string", "name", "The object's name.", 0);
            let own = columns.iter().map(|c| {
                let description = match c.description.as_str() {
                    "" => format!(
                        "Custom resource definition column (in JSONPath format): {}",
                        c.json_path
                    ),
                    description => description.to_owned(),
                };
                definition(&c.name, &c.kind, &c.format, &description, c.priority)
            });
            std::iter::once(name).chain(own).collect()
        }
    }
}

/// `PartialObjectMetadata`: an object's metadata alone.
#[must_use]
pub fn partial(mut object: Value, version: MetaVersion) -> Value {
    let metadata = object.get_mut("metadata").map(Value::take).unwrap_or_default();
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": version.api_version(),
        "metadata": metadata,
    })
}

/// `PartialObjectMetadataList`.
#[must_use]
pub fn partial_list(objects: impl IntoIterator<Item = Value>, metadata: ListMeta, version: MetaVersion) -> Value {
    let items: Vec<Value> = objects.into_iter().map(|object| partial(object, version)).collect();
    json!({
        "kind": "PartialObjectMetadataList",
        "apiVersion": version.api_version(),
        "metadata": metadata.into_value(),
        "items": items,
    })
}

/// What a custom resource without columns of its own shows beside its name.
fn age_column() -> Arc<[CustomColumn]> {
    Arc::new([CustomColumn {
        name: "Age".into(),
        kind: "date".into(),
        format: String::new(),
        description: "How long ago the object was created.".into(),
        priority: 0,
        json_path: ".metadata.creationTimestamp".into(),
    }])
}
