//! `metadata.managedFields`: who owns what, as entries; read, written, sorted and kept few.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::set::Set;
use crate::go;

/// More Update entries than this are merged, oldest first.
const MOST_UPDATERS: usize = 10;

/// How an entry's fields were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What one writer owns.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub manager: String,
    pub operation: Operation,
    pub api_version: String,
    pub subresource: String,
    /// As it is written; always whole seconds.
    pub time: Option<Timestamp>,
    pub fields: Set,
}

impl Entry {
    /// The same writer: for applies the version does not matter.
    pub fn is(&self, other: &Self) -> bool {
        self.operation == other.operation
            && self.manager == other.manager
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The text the reference knows an entry by; conflicts and the merging of old entries are sorted by it.
    pub fn identity(&self) -> String {
        let mut text = format!(
            "{{\"manager\":{},\"operation\":\"{}\"",
            go::json(&self.manager.as_str().into()),
            self.operation.word()
        );
        if self.operation == Operation::Update {
            text.push_str(&format!(
                ",\"apiVersion\":{}",
                go::json(&self.api_version.as_str().into())
            ));
        }
        if !self.subresource.is_empty() {
            text.push_str(&format!(
                ",\"subresource\":{}",
                go::json(&self.subresource.as_str().into())
            ));
        }
        text.push('}');
        text
    }

    fn seconds(&self) -> i64 {
        self.time.map_or(0, Timestamp::as_second)
    }

    fn read(position: usize, entry: &Value) -> Result<Self, String> {
        let Value::Object(map) = entry else {
            return Err(format!("managed fields entry {position} is not a map"));
        };
        let text = |name: &str| -> Result<&str, String> {
            match map.get(name) {
                None | Some(Value::Null) => Ok(""),
                Some(Value::String(text)) => Ok(text),
                Some(other) => Err(format!("{name} must be a string, got {other}")),
            }
        };
        let operation = match text("operation")? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        let api_version = text("apiVersion")?;
        if api_version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType")? {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {position}")),
            other => {
                return Err(format!(
                    "invalid fieldsType {} in managed fields entry {position}",
                    crate::fault::quote(other)
                ));
            }
        }
        let time = match text("time")? {
            "" => None,
            text => Some(
                text.parse::<Timestamp>()
                    .map_err(|error| format!("time {text}: {error}"))?,
            ),
        };
        let fields = Set::from_fields_v1(map.get("fieldsV1").unwrap_or(&Value::Null))
            .map_err(|error| format!("error decoding set: {error}"))?;
        Ok(Self {
            manager: text("manager")?.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: text("subresource")?.to_owned(),
            time,
            fields,
        })
    }

    fn write(&self) -> Value {
        let mut map = Map::new();
        let texts = [
            ("manager", Cow::from(&self.manager)),
            ("operation", self.operation.word().into()),
            ("apiVersion", Cow::from(&self.api_version)),
            ("subresource", Cow::from(&self.subresource)),
            ("time", self.time.map(written_time).unwrap_or_default().into()),
            ("fieldsType", "FieldsV1".into()),
        ];
        for (name, text) in texts {
            if !text.is_empty() {
                map.insert(name.to_owned(), text.into_owned().into());
            }
        }
        map.insert("fieldsV1".to_owned(), self.fields.to_fields_v1());
        Value::Object(map)
    }
}

/// A time as objects carry it: whole seconds, UTC.
fn written_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// All entries of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct Managed {
    pub entries: Vec<Entry>,
}

impl Managed {
    /// Reads `metadata.managedFields`.
    ///
    /// # Errors
    /// The reference's reason why they cannot be read.
    pub fn read(managed_fields: Option<&Value>) -> Result<Self, String> {
        let list = match managed_fields {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Array(list)) => list,
            Some(other) => return Err(format!("expected a list, got {other}")),
        };
        let mut managed = Self::default();
        for (position, entry) in list.iter().enumerate() {
            managed.put(Entry::read(position, entry)?);
        }
        Ok(managed)
    }

    pub fn position(&self, entry: &Entry) -> Option<usize> {
        self.entries.iter().position(|other| other.is(entry))
    }

    /// Adds an entry, in place of the one by the same writer.
    pub fn put(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|other| other.is(&entry)) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
    }

    /// The list to store, sorted by operation, time, manager, version and subresource; `None` if nobody owns anything.
    pub fn write(&self) -> Option<Value> {
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        entries.sort_by(|left, right| {
            let key = |entry: &Entry| (entry.operation, entry.seconds());
            key(left)
                .cmp(&key(right))
                .then_with(|| left.manager.cmp(&right.manager))
                .then_with(|| left.api_version.cmp(&right.api_version))
                .then_with(|| left.subresource.cmp(&right.subresource))
        });
        (!entries.is_empty()).then(|| entries.into_iter().map(Entry::write).collect())
    }

    /// Merges the oldest Update entries, by version, until there are no more than [`MOST_UPDATERS`].
    pub fn keep_few(&mut self) {
        let mut updaters: Vec<(i64, String)> = self
            .entries
            .iter()
            .filter(|entry| entry.operation == Operation::Update)
            .map(|entry| (entry.seconds(), entry.identity()))
            .collect();
        if updaters.len() <= MOST_UPDATERS {
            return;
        }
        updaters.sort();
        let mut count = updaters.len();
        // The oldest entry of each version: it becomes the bucket when a second one of its version is met.
        let mut first: Vec<(String, String)> = Vec::new();
        for (_, identity) in updaters {
            if count <= MOST_UPDATERS {
                break;
            }
            let Some(entry) = self.entries.iter().find(|entry| entry.identity() == identity).cloned() else {
                continue;
            };
            let Some((_, oldest)) = first.iter().find(|(version, _)| *version == entry.api_version) else {
                first.push((entry.api_version, identity));
                continue;
            };
            let bucket = Entry {
                manager: "ancient-changes".to_owned(),
                operation: Operation::Update,
                subresource: String::new(),
                ..entry.clone()
            };
            let mut fields = entry.fields;
            let met = if identity == bucket.identity() {
                None
            } else {
                self.position(&bucket)
            };
            match met {
                Some(at) => fields = fields.union(self.entries.get(at).map_or(&Set::new(), |entry| &entry.fields)),
                None => {
                    if let Some(at) = self.entries.iter().position(|entry| entry.identity() == *oldest) {
                        fields = fields.union(&self.entries.swap_remove(at).fields);
                    }
                }
            }
            self.entries.retain(|entry| entry.identity() != identity);
            self.put(Entry { fields, ..bucket });
            count -= 1;
        }
    }
}

/// `metadata.managedFields` of an object, if it has the field.
pub(super) fn managed_fields(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Sets or removes them.
pub(super) fn set_managed_fields(object: &mut Value, managed_fields: Option<Value>) {
    let Value::Object(map) = object else { return };
    match (map.get_mut("metadata"), managed_fields) {
        (Some(Value::Object(metadata)), Some(list)) => {
            metadata.insert("managedFields".to_owned(), list);
        }
        (Some(Value::Object(metadata)), None) => {
            metadata.remove("managedFields");
        }
        (_, Some(list)) => {
            map.insert("metadata".to_owned(), serde_json::json!({ "managedFields": list }));
        }
        (_, None) => {}
    }
}

/// The fields that nobody owns.
pub(super) fn never_owned() -> &'static Set {
    static FIELDS: std::sync::LazyLock<Set> = std::sync::LazyLock::new(|| {
        Set::of_fields(&[
            &["apiVersion"],
            &["kind"],
            &["metadata"],
            &["metadata", "name"],
            &["metadata", "namespace"],
            &["metadata", "creationTimestamp"],
            &["metadata", "selfLink"],
            &["metadata", "uid"],
            &["metadata", "clusterName"],
            &["metadata", "generation"],
            &["metadata", "managedFields"],
            &["metadata", "resourceVersion"],
        ])
    });
    &FIELDS
}
