//! Update: replace, patch and apply are one way of writing with three ways to make the new object.

use serde_json::Value;

use crate::admission::{Operation, Review};
use crate::fault::{Fault, FieldError, Path, quote};
use crate::fields;
use crate::kinds::{self, metadata};
use crate::registry::ask::{Ask, Outcome, Parsed, Target};
use crate::registry::create::{check_metadata, place};
use crate::registry::row::{NameRule, Rules};
use crate::registry::undecodable::undecodable;
use crate::registry::{Refused, Registry, TRIES, object};
use crate::store::{Change, Entry, Expect};

/// What the reference says of a revision that is no longer the object's.
pub(super) const MOVED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// A body that says how to change the object.
#[derive(Debug)]
pub(crate) enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply { applied: Value, force: bool },
}

/// The new object, made from the live one.
pub(super) struct Made {
    pub(super) object: Value,
    /// Apply has already said who owns what.
    pub(super) is_tracked: bool,
    /// A whole object from the client, not a change of the live one.
    pub(super) is_whole: bool,
}

/// Makes the new object from the live one, with what there is to warn of.
pub(super) type Maker<'a> = dyn Fn(Option<&Value>, &mut Vec<String>) -> Result<Made, Fault> + Sync + 'a;

impl Registry {
    /// PUT.
    pub(crate) async fn replace(&self, target: &Target, ask: &Ask, body: Parsed) -> Result<Outcome, Fault> {
        let mut warnings = Vec::new();
        let new = match Self::decode(target, body, ask, &mut warnings).and_then(|new| Self::check_name(target, new)) {
            Ok(new) => new,
            Err(fault) => return Err(fault.with_warnings(warnings)),
        };
        let creates = match target.resource.row.rules {
            Rules::BuiltIn(rules) => rules.create_on_update && target.subresource.is_none(),
            Rules::Custom => false,
        };
        self.write(target, ask, creates, warnings, &|_, _| {
            Ok(Made {
                object: new.clone(),
                is_tracked: false,
                is_whole: true,
            })
        })
        .await
    }

    /// What is put somewhere must be called so.
    fn check_name(target: &Target, new: Value) -> Result<Value, Fault> {
        let name = object::name(&new);
        if name.is_empty() && !target.resource.is_custom() {
            return Err(Fault::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                target.name
            )));
        }
        if name != target.name {
            return Err(Fault::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                target.name
            )));
        }
        Ok(new)
    }

    /// PATCH.
    pub(crate) async fn patch(&self, target: &Target, ask: &Ask, patch: &Patch) -> Result<Outcome, Fault> {
        let creates = matches!(patch, Patch::Apply { .. }) && target.subresource.is_none();
        self.write(target, ask, creates, Vec::new(), &|live, warnings| {
            self.patched(target, ask, patch, live, warnings)
        })
        .await
    }

    fn patched(
        &self,
        target: &Target,
        ask: &Ask,
        patch: &Patch,
        live: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<Made, Fault> {
        let schema = &target.version.schema;
        let null = Value::Null;
        let changed = match patch {
            Patch::Apply { applied, force } => {
                check_applied(target, applied)?;
                let mut object = self.merge_applied(target, ask, live, applied, *force)?;
                // Defaults may depend on the name, which the path gives to a body without one.
                if object::name(&object).is_empty() {
                    object::meta_mut(&mut object).insert("name".to_owned(), target.name.clone().into());
                }
                let object = Self::decode(target, object.into(), &ask.lenient(), &mut Vec::new())?;
                return Ok(Made {
                    object,
                    is_tracked: true,
                    is_whole: false,
                });
            }
            Patch::Json(body) => fields::json_patch(live.unwrap_or(&null), body)?,
            Patch::Merge(body) => fields::merge_patch(live.unwrap_or(&null), body)?,
            Patch::Strategic(body) => fields::strategic_merge(live.unwrap_or(&null), body, schema)?,
        };
        let shown = changed.clone();
        let changed =
            Self::decode_or(target, changed.into(), ask, warnings).map_err(|why| undecodable(patch, &shown, &why))?;
        let name = object::name(&changed);
        if name != target.name {
            return Err(name_mismatch(name, &target.name));
        }
        Ok(Made {
            object: changed,
            is_tracked: false,
            is_whole: false,
        })
    }

    /// The one way in which an object that may exist is written. `make` is called anew for each try.
    pub(super) async fn write(
        &self,
        target: &Target,
        ask: &Ask,
        creates: bool,
        warnings: Vec<String>,
        make: &Maker<'_>,
    ) -> Result<Outcome, Fault> {
        let mut said = Vec::new();
        let written = self.write_or(target, ask, creates, &warnings, &mut said, make).await;
        written.map_err(|fault| fault.with_warnings(said))
    }

    /// `said`: what there is to warn of, also where it fails.
    async fn write_or(
        &self,
        target: &Target,
        ask: &Ask,
        creates: bool,
        warnings: &[String],
        said: &mut Vec<String>,
        make: &Maker<'_>,
    ) -> Result<Outcome, Fault> {
        let key = target.key();
        let mut tried = 0;
        loop {
            said.clear();
            said.extend_from_slice(warnings);
            let live = self.live(target, &key)?;
            let Some((entry, old)) = live else {
                if !creates {
                    return Err(target.not_found());
                }
                let made = make(None, said)?;
                match self.write_new(target, ask, made, said).await {
                    Err(Refused::Fault(fault)) => return Err(fault),
                    Ok(outcome) => return Ok(outcome),
                    // Somebody has made it meanwhile: it is written over what is there now.
                    Err(Refused::Moved) => tried += 1,
                }
                if tried >= TRIES {
                    return Err(Fault::conflict(&target.plural(), &target.name, MOVED));
                }
                continue;
            };
            let made = make(Some(&old), said)?;
            let wanted = object::revision(&made.object)?;
            match self.write_over(target, ask, &entry, &old, made, said).await {
                Err(Refused::Fault(fault)) => return Err(fault),
                Ok(outcome) => return Ok(outcome),
                Err(Refused::Moved) => {
                    tried += 1;
                    // Who named a revision is told; who did not is tried again on what is there now.
                    let named = wanted.is_some() && wanted != Some(entry.revision);
                    if named || tried >= TRIES {
                        return Err(Fault::conflict(&target.plural(), &target.name, MOVED));
                    }
                }
            }
        }
    }

    /// An apply or a replace of what is not there.
    async fn write_new(
        &self,
        target: &Target,
        ask: &Ask,
        made: Made,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, Refused> {
        if made.is_tracked {
            let uid = object::text(&made.object, "uid");
            if !uid.is_empty() {
                let why =
                    format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
                return Err(Refused::Fault(Fault::conflict(&target.plural(), &target.name, &why)));
            }
            let mut object = made.object;
            // A version is of no matter to what is made by it.
            object::meta_mut(&mut object).remove("resourceVersion");
            place(target, &mut object).map_err(Refused::Fault)?;
            self.stamp_applied(target, &mut object);
            let name = target.name.clone();
            return self.finish_create(target, ask, object, warnings, &name, "").await;
        }
        let mut object = made.object;
        object::meta_mut(&mut object).remove("resourceVersion");
        self.create_or(target, ask, object, warnings).await
    }

    async fn write_over(
        &self,
        target: &Target,
        ask: &Ask,
        entry: &Entry,
        old: &Value,
        made: Made,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, Refused> {
        let Made {
            object: mut new,
            is_tracked,
            is_whole: made_whole,
        } = made;
        place(target, &mut new).map_err(Refused::Fault)?;
        Self::check_revision(target, &mut new, entry).map_err(Refused::Fault)?;
        let uid = object::text(&new, "uid");
        if made_whole && !uid.is_empty() && uid != object::text(old, "uid") {
            return Err(Refused::Fault(uid_conflict(target, uid, object::text(old, "uid"))));
        }
        if target.is_status() {
            leave_alone(target, &mut new, old);
        }
        if !is_tracked {
            self.track(target, ask, Some(old), &mut new);
        }
        let review = Review {
            operation: Operation::Update,
            target,
            name: &target.name,
            base: "",
            old: Some(old),
            ask,
        };
        // Held until the object is stored, so that nobody else is given its addresses.
        let _reserved = self.admit(&review, &mut new, warnings).await.map_err(Refused::Fault)?;
        // A webhook may have put it somewhere else.
        place(target, &mut new).map_err(Refused::Fault)?;
        Self::prepare_update(target, &mut new, old);
        Self::check_update(target, &new, old, warnings).map_err(Refused::Fault)?;
        Self::settle(&target.resource, &mut new);
        fields::keep_times(old, &mut new);
        object::meta_mut(&mut new).insert("resourceVersion".to_owned(), entry.revision.to_string().into());
        self.validate(&review, Some(&new), warnings)
            .await
            .map_err(Refused::Fault)?;
        let is_going =
            object::is_deleting(old) && !object::has_finalizers(&new) && grace(old) == 0 && Self::may_go(target, &new);
        if ask.dry_run {
            return Ok(Outcome::new(new, false, warnings));
        }
        if !is_going && new == *old {
            self.settled(entry).await?;
            return Ok(Outcome {
                stored: Some((entry.value.clone(), entry.revision)),
                ..Outcome::new(new, false, warnings)
            });
        }
        let stored = if is_going {
            None
        } else {
            Some(Self::fitting_form(&target.resource, &mut new).map_err(Refused::Fault)?)
        };
        let change = stored.clone().map_or(Change::Delete, Change::Put);
        let revision = self.commit_change(target, entry, change).await?;
        if !is_going {
            object::meta_mut(&mut new).insert("resourceVersion".to_owned(), revision.to_string().into());
        }
        Ok(Outcome {
            deleted: is_going,
            stored: stored.map(|stored| (stored, revision)),
            ..Outcome::new(new, false, warnings)
        })
    }

    /// Namespaces go when `spec.finalizers` is empty too (O15).
    pub(super) fn may_go(target: &Target, object: &Value) -> bool {
        &*target.resource.row.kind != "Namespace"
            || !target.resource.row.group.is_empty()
            || object::at(object, "spec.finalizers")
                .and_then(Value::as_array)
                .is_none_or(Vec::is_empty)
    }

    fn check_revision(target: &Target, new: &mut Value, entry: &Entry) -> Result<(), Fault> {
        let unconditional = match target.resource.row.rules {
            Rules::BuiltIn(rules) => rules.unconditional_update,
            Rules::Custom => false,
        };
        match object::revision(new)? {
            Some(revision) if revision != entry.revision => Err(Fault::conflict(&target.plural(), &target.name, MOVED)),
            None if !unconditional => {
                let error = FieldError::invalid(
                    &Path::new("metadata.resourceVersion"),
                    0,
                    "must be specified for an update",
                );
                Err(Fault::invalid(&target.plural(), &target.name, &[error]))
            }
            _ => Ok(()),
        }
    }

    /// What an update cannot change is put back (O7, O8).
    fn prepare_update(target: &Target, new: &mut Value, old: &Value) {
        let (has_generation, counts) = match target.resource.row.rules {
            Rules::BuiltIn(rules) => (rules.has_generation, rules.generation_counts),
            Rules::Custom => (true, ""),
        };
        if target.is_status() {
            keep_all_but_status(target, new, old);
        } else if target.subresource.as_deref() == Some("finalize") {
            keep(new, old, "status");
        } else {
            if target.version.has_status {
                keep(new, old, "status");
            }
            // What a main write of a namespace must leave alone, `/finalize` is there to change.
            if let Rules::BuiltIn(rules) = target.resource.row.rules
                && target.subresource.as_deref() != Some("finalize")
            {
                (rules.on_update)(new, old);
            }
        }
        let mut generation = object::generation(old);
        let has_moved =
            !target.is_status() && !counts.is_empty() && object::meta(new).get(counts) != object::meta(old).get(counts);
        if has_generation && (has_moved || !same_but(new, old, target.version.has_status)) {
            generation += 1;
        }
        let (old_meta, meta) = (object::meta(old), object::meta_mut(new));
        if generation > 0 {
            meta.insert("generation".to_owned(), generation.into());
        } else {
            meta.remove("generation");
        }
        for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            match old_meta.get(field) {
                Some(value) => meta.insert(field.to_owned(), value.clone()),
                None => meta.remove(field),
            };
        }
        meta.remove("selfLink");
        for field in ["uid", "name", "namespace"] {
            if let Some(value) = old_meta.get(field)
                && !meta.contains_key(field)
            {
                meta.insert(field.to_owned(), value.clone());
            }
        }
    }

    fn check_update(target: &Target, new: &Value, old: &Value, warnings: &mut Vec<String>) -> Result<(), Fault> {
        let (meta, old_meta) = (new.get("metadata"), old.get("metadata"));
        let (meta, old_meta) = (meta.unwrap_or(&Value::Null), old_meta.unwrap_or(&Value::Null));
        let mut errors = metadata::check_metadata_update(meta, old_meta, &Path::new("metadata"));
        // The reference checks these in common and again for the kind, and says both.
        errors.extend(errors.clone());
        match target.resource.row.rules {
            Rules::BuiltIn(rules) if target.is_status() => {
                errors.extend(metadata::check_finalizers_of_kind(
                    &target.resource.row.group,
                    meta,
                    &Path::new("metadata"),
                ));
                errors.extend((rules.check_status)(new, old));
            }
            Rules::BuiltIn(rules) => {
                errors.extend(check_metadata(target, new, rules.name));
                errors.extend(metadata::check_finalizers_of_kind(
                    &target.resource.row.group,
                    meta,
                    &Path::new("metadata"),
                ));
                if target.is_definition() {
                    errors.extend(kinds::crd::check(new, Some(old)));
                }
                errors.extend((rules.check)(new));
                errors.extend((rules.check_update)(new, old));
                warnings.extend((rules.warn)(new, Some(old)));
            }
            Rules::Custom => {
                errors.extend(check_metadata(target, new, NameRule::Subdomain));
                errors.extend(Self::check_custom(target, new, Some(old), warnings));
            }
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Fault::invalid(&target.subject(), &target.name, &errors))
        }
    }
}

/// An apply says whole what it is about.
pub(super) fn check_type(applied: &Value, expected: &str, kind: &str) -> Result<(), Fault> {
    let text = |field: &str| applied.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, given) = (text("apiVersion"), text("kind"));
    if api_version == expected && given == kind {
        return Ok(());
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Err(Fault::bad_request(format!(
        "invalid object type: {group}/{version}, Kind={given}"
    )))
}

fn check_applied(target: &Target, applied: &Value) -> Result<(), Fault> {
    check_type(applied, &target.api_version(), &target.resource.row.kind)?;
    let name = object::name(applied);
    if !name.is_empty() && name != target.name {
        return Err(name_mismatch(name, &target.name));
    }
    Ok(())
}

/// What a write of the status does not change, it does not come to own either.
fn leave_alone(target: &Target, new: &mut Value, old: &Value) {
    let Rules::BuiltIn(rules) = target.resource.row.rules else {
        return;
    };
    let part = rules.status_leaves;
    if part.is_empty() {
        return;
    }
    let meta = object::meta_mut(new);
    match object::meta(old).get(part) {
        Some(before) => meta.insert(part.to_owned(), before.clone()),
        None => meta.remove(part),
    };
}

/// A write of `/status` leaves the rest as it was.
fn keep_all_but_status(target: &Target, new: &mut Value, old: &Value) {
    let status = new.get("status").cloned();
    let new_meta = object::meta(new).clone();
    let mut kept = old.clone();
    let map = object::as_map(&mut kept);
    match status {
        Some(status) => map.insert("status".to_owned(), status),
        None => map.remove("status"),
    };
    let meta = object::meta_mut(&mut kept);
    // Built-in kinds let /status change metadata too, but for labels of workloads.
    if target.resource.is_custom() {
        match new_meta.get("managedFields") {
            Some(fields) => meta.insert("managedFields".to_owned(), fields.clone()),
            None => meta.remove("managedFields"),
        };
    } else {
        let labels = object::meta(old).get("labels").cloned();
        let owners = object::meta(old).get("ownerReferences").cloned();
        *meta = new_meta;
        if (&*target.resource.row.group, &*target.resource.row.kind) == ("", "Pod") {
            match owners {
                Some(owners) => meta.insert("ownerReferences".to_owned(), owners),
                None => meta.remove("ownerReferences"),
            };
        }
        if (&*target.resource.row.group, &*target.resource.row.kind) == ("apps", "Deployment") {
            match labels {
                Some(labels) => meta.insert("labels".to_owned(), labels),
                None => meta.remove("labels"),
            };
        }
    }
    *new = kept;
}

fn keep(new: &mut Value, old: &Value, field: &str) {
    let map = object::as_map(new);
    match old.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// Whether two objects are the same outside of metadata and, where it is a subresource, status.
fn same_but(new: &Value, old: &Value, has_status: bool) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else {
        return new == old;
    };
    let counts = |field: &String| field != "metadata" && !(has_status && field == "status");
    let mut fields = new.keys().chain(old.keys()).filter(|field| counts(field));
    fields.all(|field| new.get(field) == old.get(field))
}

pub(super) fn grace(object: &Value) -> i64 {
    object::meta(object)
        .get("deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(0)
}

fn uid_conflict(target: &Target, wanted: &str, is: &str) -> Fault {
    Fault::conflict(
        &target.plural(),
        &target.name,
        &format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {is}",
            target.registry_key()
        ),
    )
}

impl Ask {
    /// For what was already read once.
    fn lenient(&self) -> Self {
        Self {
            validation: crate::registry::ask::FieldValidation::Ignore,
            ..self.clone()
        }
    }
}

impl Registry {
    /// A write of ours over what was just read, beyond what a client may do.
    pub(super) async fn write_direct(&self, target: &Target, entry: &Entry, new: &Value) -> Result<(), Fault> {
        let stored = Self::store_form(&target.resource, new)?;
        match self
            .commit(entry.key.clone(), Expect::Revision(entry.revision), Change::Put(stored))
            .await
        {
            Ok(_) => Ok(()),
            Err(Refused::Fault(fault)) => Err(fault),
            Err(Refused::Moved) => Err(Fault::conflict(&target.plural(), &target.name, MOVED)),
        }
    }

    fn stamp_applied(&self, target: &Target, object: &mut Value) {
        object::meta_mut(object).insert("name".to_owned(), target.name.clone().into());
        self.stamp(target, object);
    }
}

/// The message for a name that is not the path's, used by apply.
pub(crate) fn name_mismatch(given: &str, wanted: &str) -> Fault {
    Fault::bad_request(format!(
        "the name of the object ({given}) does not match the name on the URL ({})",
        quote(wanted).trim_matches('"')
    ))
}
