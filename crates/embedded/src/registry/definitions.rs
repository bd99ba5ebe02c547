//! CRDs become kinds. A definition is established by the server itself, at once after it was stored (A3): whoever saw its
//! create answered can use it.

use serde_json::{Value, json};

use crate::fault::{Fault, quote};
use crate::registry::ask::{Ask, Target};
use crate::registry::catalog::Resource;
use crate::registry::{Patch, Registry, object};
use crate::schema::{cel, crd};
use crate::store::Revision;

pub(crate) const GROUP: &str = "apiextensions.k8s.io";
pub(crate) const PLURAL: &str = "customresourcedefinitions";
/// Holds a definition until its instances are gone (D6).
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

impl Registry {
    /// The definitions of a store that was opened.
    pub(super) fn read_definitions(&self) {
        let catalog = self.catalog();
        let Some(resource) = catalog.find(GROUP, PLURAL) else {
            return;
        };
        let Ok(page) = self.store.list(&resource.prefix(None), None, None, 0) else {
            return;
        };
        for entry in page.entries {
            match object::decode(&entry) {
                Ok(definition) => self.serve_definition(&definition, entry.revision),
                Err(fault) => tracing::warn!(key = %entry.key.as_str(), %fault, "a stored definition cannot be read"),
            }
        }
    }

    /// After a write of a definition: its names are accepted, it is established, and its kind is served.
    pub(crate) async fn after_definition(&self, target: &Target, stored: &Value) -> Result<(), Fault> {
        if !target.is_definition() {
            return Ok(());
        }
        if target.is_status() {
            // The write that takes the last finalizer away may be one of status.
            if self.store.head(&target.key()).is_none() {
                self.forget_definition(stored);
            }
            return Ok(());
        }
        let name = object::name(stored).to_owned();
        let one = Target {
            name: name.clone(),
            subresource: Some("status".to_owned()),
            ..target.clone()
        };
        let Some((entry, live)) = self.live(&one, &one.key())? else {
            self.forget_definition(stored);
            return Ok(());
        };
        let status = self.definition_status(&live);
        if live.get("status") != Some(&status) {
            let ask = Ask::internal("kube-apiserver");
            let outcome = self.patch(&one, &ask, &Patch::Merge(json!({"status": status}))).await?;
            let revision = object::revision(&outcome.object)?.unwrap_or(entry.revision);
            self.serve_definition(&outcome.object, revision);
        } else {
            self.serve_definition(&live, entry.revision);
        }
        Ok(())
    }

    pub(crate) fn forget_definition(&self, definition: &Value) {
        let text = |path: &str| object::at(definition, path).and_then(Value::as_str).unwrap_or_default();
        let (group, plural) = (text("spec.group").to_owned(), text("spec.names.plural").to_owned());
        let uid = object::text(definition, "uid");
        self.set_catalog(|catalog| {
            let is_ours = catalog
                .find(&group, &plural)
                .is_some_and(|resource| resource.definition.as_deref() == Some(uid));
            if is_ours {
                catalog.without(&group, &plural)
            } else {
                catalog.clone()
            }
        });
    }

    /// Serves the kind if the definition is established.
    fn serve_definition(&self, definition: &Value, revision: Revision) {
        if !is_true(definition, "Established") {
            return;
        }
        let row = match crd::rows_of(definition) {
            Ok(row) => row,
            Err(errors) => {
                let name = object::name(definition);
                tracing::warn!(name, ?errors, "a stored definition cannot be served");
                return;
            }
        };
        let mut rules = Vec::new();
        for version in &row.versions {
            match cel::Rules::compile(&version.schema) {
                Ok(compiled) => rules.push(compiled),
                Err(errors) => {
                    let name = object::name(definition);
                    tracing::warn!(name, ?errors, "a stored definition has rules that cannot be run");
                    return;
                }
            }
        }
        let uid = object::text(definition, "uid").to_owned();
        self.set_catalog(|catalog| {
            // Stored objects are read as they are while the schemas stay the same.
            let shaped = match catalog.find(&row.group, &row.plural) {
                Some(known) if same_schemas(known, &row) => known.shaped,
                _ => revision,
            };
            catalog.with(Resource {
                row: row.into(),
                cel: rules,
                shaped,
                definition: Some(uid),
                closing: is_true(definition, "Terminating"),
            })
        });
    }

    /// What the server says of a definition: which names it has, and whether it is served.
    fn definition_status(&self, definition: &Value) -> Value {
        let now = object::time(self.clock.now());
        let (names, conflict) = self.accepted_names(definition);
        let mut status = definition.get("status").cloned().unwrap_or_else(|| json!({}));
        let condition = |kind: &str, good: bool, reason: &str, message: &str| {
            json!({"type": kind, "status": if good { "True" } else { "False" },
                "lastTransitionTime": now, "reason": reason, "message": message})
        };
        let accepted = match &conflict {
            None => condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
            Some((reason, message)) => condition("NamesAccepted", false, reason, message),
        };
        // What was established stays so.
        let established = if conflict.is_none() || is_true(definition, "Established") {
            condition(
                "Established",
                true,
                "InitialNamesAccepted",
                "the initial names have been accepted",
            )
        } else {
            condition("Established", false, "NotAccepted", "not all names are accepted")
        };
        for next in [accepted, established] {
            put_condition(&mut status, next);
        }
        let map = object::as_map(&mut status);
        map.insert("acceptedNames".to_owned(), names);
        let storage = stored_versions(definition);
        if let Some(storage) = storage {
            let versions = map.entry("storedVersions").or_insert_with(|| json!([]));
            if let Value::Array(versions) = versions
                && !versions.contains(&storage)
            {
                versions.push(storage);
            }
        }
        status
    }

    /// Which of the names nobody else in the group has, and the last one that somebody has.
    fn accepted_names(&self, definition: &Value) -> (Value, Option<(&'static str, String)>) {
        let catalog = self.catalog();
        let text = |path: &str| object::at(definition, path).and_then(Value::as_str).unwrap_or_default();
        let uid = object::text(definition, "uid");
        let group = text("spec.group");
        let others: Vec<&Resource> = catalog
            .iter()
            .map(|resource| &**resource)
            .filter(|other| &*other.row.group == group && other.definition.as_deref() != Some(uid))
            .collect();
        let is_name = |name: &str| {
            others.iter().any(|other| {
                let row = &other.row;
                &*row.plural == name || &*row.singular == name || row.short_names.iter().any(|short| &**short == name)
            })
        };
        let is_kind = |kind: &str| {
            others
                .iter()
                .any(|other| &*other.row.kind == kind || &*other.row.list_kind == kind)
        };
        let mut conflict = None;
        let mut accepted = json!({"kind": "", "plural": ""});
        let map = object::as_map(&mut accepted);
        let names = definition.get("spec").and_then(|spec| spec.get("names"));
        for (field, is_taken, reason) in [
            ("plural", &is_name as &dyn Fn(&str) -> bool, "PluralConflict"),
            ("singular", &is_name, "SingularConflict"),
            ("shortNames", &is_name, "ShortNamesConflict"),
            ("kind", &is_kind, "KindConflict"),
            ("listKind", &is_kind, "ListKindConflict"),
        ] {
            let Some(value) = names.and_then(|names| names.get(field)) else {
                continue;
            };
            let words: Vec<&str> = match value {
                Value::String(word) => vec![word],
                Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
                _ => continue,
            };
            match words.iter().find(|word| is_taken(word)) {
                Some(word) => conflict = Some((reason, format!("{} is already in use", quote(word)))),
                None => {
                    map.insert(field.to_owned(), value.clone());
                }
            }
        }
        if let Some(categories) = names.and_then(|names| names.get("categories")) {
            map.insert("categories".to_owned(), categories.clone());
        }
        (accepted, conflict)
    }
}

fn same_schemas(known: &Resource, row: &crate::registry::row::Row) -> bool {
    known.row.versions.len() == row.versions.len()
        && known
            .row
            .versions
            .iter()
            .zip(&row.versions)
            .all(|(one, two)| one.name == two.name && one.storage == two.storage && one.schema == two.schema)
}

fn stored_versions(definition: &Value) -> Option<Value> {
    let versions = object::at(definition, "spec.versions")?.as_array()?;
    let storage = versions
        .iter()
        .find(|version| version.get("storage").and_then(Value::as_bool) == Some(true))?;
    storage.get("name").cloned()
}

pub(crate) fn is_true(object: &Value, condition: &str) -> bool {
    object::at(object, "status.conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .any(|found| {
            found.get("type").and_then(Value::as_str) == Some(condition)
                && found.get("status").and_then(Value::as_str) == Some("True")
        })
}

/// Sets a condition; its time moves only with its status.
pub(crate) fn put_condition(status: &mut Value, mut next: Value) {
    let conditions = object::as_map(status).entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Value::Array(conditions) = conditions else {
        return;
    };
    match conditions
        .iter_mut()
        .find(|found| found.get("type") == next.get("type"))
    {
        Some(found) => {
            if found.get("status") == next.get("status")
                && let Some(time) = found.get("lastTransitionTime").cloned()
            {
                object::as_map(&mut next).insert("lastTransitionTime".to_owned(), time);
            }
            *found = next;
        }
        None => conditions.push(next),
    }
}
