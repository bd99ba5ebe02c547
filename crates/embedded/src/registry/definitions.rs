//! CRDs become kinds. A definition is established by the server itself, at once after it was stored (A3): whoever saw its
//! create answered can use it.

use serde_json::{Value, json};

use crate::fault::Fault;
use crate::registry::ask::{Ask, Target};
use crate::registry::catalog::{Edition, Resource};
use crate::registry::row::{Columns, Row, Version};
use crate::registry::update::MOVED;
use crate::registry::{Patch, Registry, TRIES, object};
use crate::schema::{cel, crd};
use crate::store::{Entry, Key, Revision};

pub(crate) const GROUP: &str = "apiextensions.k8s.io";
pub(crate) const PLURAL: &str = "customresourcedefinitions";
/// Holds a definition until its instances are gone (D6).
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

impl Registry {
    /// The definitions of a store that was opened.
    pub(super) fn read_definitions(&self) {
        for name in self.definition_names() {
            self.serve_definition(&name);
        }
    }

    pub(super) fn definition_names(&self) -> Vec<String> {
        let page = self.store.list(&Key::prefix(GROUP, PLURAL, None), None, None, 0);
        let entries = page.map(|page| page.entries).unwrap_or_default();
        entries.iter().map(|entry| entry.key.name().to_owned()).collect()
    }

    /// Establishes what was stored and not yet established when the process that stored it ended.
    pub(crate) async fn establish_definitions(&self) -> Result<(), Fault> {
        let catalog = self.catalog();
        let Some((resource, version)) = catalog
            .find(GROUP, PLURAL)
            .and_then(|resource| Some((resource, resource.version("v1")?)))
        else {
            return Ok(());
        };
        for name in self.definition_names() {
            let target = Target {
                version: version.clone(),
                resource: resource.clone(),
                namespace: None,
                name: name.clone(),
                subresource: None,
            };
            self.after_definition(&target, &name).await?;
        }
        Ok(())
    }

    /// After a write of a definition: its names are accepted, it is established, and its kind is served. Those of the
    /// group that wait for a name are looked at again, since it may have let go of one.
    pub(crate) async fn after_definition(&self, target: &Target, name: &str) -> Result<(), Fault> {
        if !target.is_definition() {
            return Ok(());
        }
        // One at a time: who is looked at later sees the names that were given before.
        let _turn = self.naming.lock().await;
        if !target.is_status() {
            self.establish(target, name).await?;
        }
        self.serve_definition(name);
        let Some((_, group)) = name.split_once('.') else {
            return Ok(());
        };
        for _ in 0..TRIES {
            let mut is_settled = true;
            for waiting in self.waiting_definitions(group) {
                if self.establish(target, &waiting).await? {
                    self.serve_definition(&waiting);
                    is_settled = false;
                }
            }
            if is_settled {
                break;
            }
        }
        Ok(())
    }

    /// Writes what the server says of a definition. False: it said so already, or the definition is gone.
    async fn establish(&self, target: &Target, name: &str) -> Result<bool, Fault> {
        let one = Target {
            name: name.to_owned(),
            subresource: Some("status".to_owned()),
            ..target.clone()
        };
        for _ in 0..TRIES {
            let Some((_, live)) = self.live(&one, &one.key())? else {
                return Ok(false);
            };
            let mut status = self.definition_status(&live);
            if live.get("status") == Some(&status) {
                return Ok(false);
            }
            // A merge leaves what it does not speak of.
            let had = object::at(&live, "status.acceptedNames").and_then(Value::as_object);
            let names = object::field_mut(&mut status, "acceptedNames");
            for field in had.into_iter().flat_map(|had| had.keys()) {
                names.entry(field.clone()).or_insert(Value::Null);
            }
            // Over just what was read: somebody else's condition must not be lost.
            let change = json!({
                "metadata": {"resourceVersion": object::text(&live, "resourceVersion")}, "status": status,
            });
            match self
                .patch(&one, &Ask::internal("kube-apiserver"), &Patch::Merge(change))
                .await
            {
                Ok(_) => return Ok(true),
                Err(fault) if fault.code == 409 || fault.code == 404 => {}
                Err(fault) => return Err(fault),
            }
        }
        Err(Fault::conflict(&one.plural(), name, MOVED))
    }

    /// Makes the catalog say of a definition what the store says of it: served if it is there and established.
    pub(super) fn serve_definition(&self, name: &str) {
        let key = Key::new(GROUP, PLURAL, None, name);
        loop {
            let entry = self.store.get(&key, None).ok().flatten();
            let seen = entry.as_ref().map(|entry| entry.revision);
            // Schemas take long to compile, and whoever writes and the controller both come here.
            if seen.is_some() && self.served_at(name) == seen {
                return;
            }
            let resource = entry.and_then(|entry| Self::resource_of(&entry));
            let mut is_done = true;
            let mut ended = None;
            self.set_catalog(|catalog| {
                // Compiling takes a moment, in which somebody may have written it anew.
                let now = self.store.get(&key, None).ok().flatten().map(|entry| entry.revision);
                if now != seen {
                    is_done = false;
                    return catalog.clone();
                }
                let Some((plural, group)) = name.split_once('.') else {
                    return catalog.clone();
                };
                let known = catalog.find(group, plural);
                let end = |known: &Resource| {
                    known.edition.end(self.store.revision());
                    known.prefix(None)
                };
                match resource {
                    Some(mut resource) => {
                        // Stored objects are read as they are while the schemas stay the same; whoever wrote until now
                        // may still have written by the old ones.
                        resource.shaped = match known {
                            Some(known) if same_schemas(known, &resource.row) => known.shaped,
                            _ => self.store.newest() + 1,
                        };
                        match known {
                            Some(known) if is_same_kind(known, &resource) => resource.edition = known.edition.clone(),
                            _ => ended = known.map(|known| end(known)),
                        }
                        catalog.with(resource)
                    }
                    None => match known.filter(|known| known.is_custom()) {
                        Some(known) => {
                            ended = Some(end(known));
                            catalog.without(group, plural)
                        }
                        None => catalog.clone(),
                    },
                }
            });
            if let Some(prefix) = ended {
                self.store.wake(&prefix);
            }
            if is_done {
                return;
            }
        }
    }

    /// At which revision of its definition a kind is served.
    fn served_at(&self, name: &str) -> Option<Revision> {
        let (plural, group) = name.split_once('.')?;
        let catalog = self.catalog();
        let served = catalog.find(group, plural).filter(|served| served.is_custom())?;
        Some(served.defined)
    }

    /// The kind of a stored definition, if it is established.
    fn resource_of(entry: &Entry) -> Option<Resource> {
        let definition = object::decode(entry).ok()?;
        let name = object::name(&definition);
        if !is_true(&definition, "Established") {
            return None;
        }
        let row = match crd::rows_of(&definition) {
            Ok(row) => row,
            Err(errors) => {
                tracing::warn!(name, ?errors, "a stored definition cannot be served");
                return None;
            }
        };
        let mut rules = Vec::new();
        for version in &row.versions {
            match cel::Rules::compile(&version.schema) {
                Ok(compiled) => rules.push(compiled),
                Err(errors) => {
                    tracing::warn!(name, ?errors, "a stored definition has rules that cannot be run");
                    return None;
                }
            }
        }
        Some(Resource {
            row: row.into(),
            cel: rules,
            shaped: entry.revision,
            edition: Edition::new().into(),
            defined: entry.revision,
            definition: Some(object::text(&definition, "uid").to_owned()),
            closing: is_true(&definition, "Terminating"),
        })
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
}

/// Whether a definition still says the same of its kind: then those who watch it go on.
fn is_same_kind(known: &Resource, next: &Resource) -> bool {
    fn names(row: &Row) -> impl PartialEq + '_ {
        let words = (&row.kind, &row.list_kind, &row.plural, &row.singular);
        (words, &row.short_names, &row.categories, row.namespaced)
    }
    fn is_same_version((one, two): (&Version, &Version)) -> bool {
        let columns = match (&one.columns, &two.columns) {
            (Columns::Custom(one), Columns::Custom(two)) => one == two,
            _ => false,
        };
        let facts = |version: &Version| {
            let Version { served, has_status, .. } = *version;
            (served, has_status)
        };
        columns
            && facts(one) == facts(two)
            && one.deprecated == two.deprecated
            && one.scale == two.scale
            && one.selectable == two.selectable
    }
    known.definition == next.definition
        && names(&known.row) == names(&next.row)
        && same_schemas(known, &next.row)
        && known.row.versions.iter().zip(&next.row.versions).all(is_same_version)
}

fn same_schemas(known: &Resource, row: &Row) -> bool {
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
