//! Server-side apply of a `Scale`: whoever applies one owns the replicas of the object behind it.
//!
//! Conflicts are found between the entries of the object that have its replicas, shown as entries of the `Scale`; what
//! comes of it is written back as entries of the object. The registry calls it.

use jiff::Timestamp;
use serde_json::Value;

use super::apply::{Apply, Refused, apply, failed};
use super::managed::{Entry, Managed, managed_fields, set_managed_fields};
use super::set::Set;
use crate::schema::Schema;

const SCALE: &str = "autoscaling/v1";

/// One apply of a `Scale`.
#[derive(Debug)]
pub struct ApplyScale<'a> {
    /// The object behind it.
    pub live: &'a Value,
    /// The `Scale` of that object, without managedFields.
    pub view: &'a Value,
    pub applied: &'a Value,
    /// That of `Scale`.
    pub schema: &'a Schema,
    pub manager: &'a str,
    pub force: bool,
    pub now: Timestamp,
    /// In which version the object is written.
    pub api_version: &'a str,
    /// Where each version of the object has its replicas, if it has some.
    pub paths: &'a [(String, Option<Set>)],
}

impl ApplyScale<'_> {
    /// `None`: nobody knows the version.
    fn path(&self, api_version: &str) -> Option<Option<&Set>> {
        let found = self.paths.iter().find(|(version, _)| version == api_version);
        found.map(|(_, path)| path.as_ref())
    }

    fn has_replicas(&self, entry: &Entry) -> bool {
        let path = self.path(&entry.api_version).flatten();
        path.is_some_and(|path| entry.fields.meets(path))
    }
}

/// The merged `Scale`, and the managedFields of the object behind it.
///
/// # Errors
/// Conflicts, unless forced; an applied object that does not fit its schema.
pub fn apply_scale(request: &ApplyScale<'_>) -> Result<(Value, Option<Value>), Refused> {
    let behind = Managed::read(managed_fields(request.live))
        .map_err(|why| failed(format!("failed to decode managed fields: {why}")))?;
    let replicas = Set::of_fields(&[&["spec", "replicas"]]);
    let mut shown = Managed::default();
    for entry in behind.entries.iter().filter(|entry| request.has_replicas(entry)) {
        shown.put(Entry {
            api_version: SCALE.to_owned(),
            fields: replicas.clone(),
            ..entry.clone()
        });
    }
    let mut view = request.view.clone();
    set_managed_fields(&mut view, shown.write());
    let scale = apply(Apply {
        live: Some(&view),
        applied: request.applied,
        schema: request.schema,
        manager: request.manager,
        subresource: "scale",
        api_version: SCALE,
        force: request.force,
        now: request.now,
        ignored: &[],
    })?;
    let mut owners = Managed::read(managed_fields(&scale)).map_err(failed)?;
    owners.entries.retain(|owner| owner.fields.meets(&replicas));
    let mut entries = Vec::new();
    for mut entry in behind.entries {
        match request.path(&entry.api_version) {
            None => continue,
            Some(Some(path)) if entry.fields.meets(path) => match owners.position(&entry) {
                Some(at) => {
                    owners.entries.swap_remove(at);
                }
                // Also from updaters that still own them: they come back below, by themselves and without a time, as
                // in the reference.
                None => entry.fields = entry.fields.difference(path),
            },
            Some(_) => {}
        }
        if !entry.fields.is_empty() {
            entries.push(entry);
        }
    }
    if let Some(Some(path)) = request.path(request.api_version) {
        entries.extend(owners.entries.into_iter().map(|owner| Entry {
            api_version: request.api_version.to_owned(),
            time: None,
            fields: path.clone(),
            ..owner
        }));
    }
    Ok((scale, Managed { entries }.write()))
}
