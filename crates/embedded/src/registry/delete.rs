//! Delete: at once, or by a mark that finalizers and grace periods hold up (O12-O15).

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::admission::{Operation, Review};
use crate::fault::Fault;
use crate::kinds;
use crate::registry::ask::{Ask, Outcome, Target};
use crate::registry::definitions::{CLEANUP, put_condition};
use crate::registry::delete_options::DeleteOptions;
use crate::registry::read::ListOptions;
use crate::registry::update::grace;
use crate::registry::{Refused, Registry, TRIES, object};
use crate::store::{Change, Entry, Expect, Write};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
/// Deletes of a collection that wait for the disk together. Few enough that a fault leaves little undone behind it.
const TOGETHER: usize = 64;

/// What a delete does to one object.
enum Doom {
    /// It goes now.
    Now,
    /// It stays, changed like this.
    Marked(Value),
    /// It is changed like this, and goes: whoever watches a pod sees that it was told to stop.
    MarkedAndNow(Value),
    /// It is already on its way; nothing changes.
    Already,
}

impl Registry {
    pub(crate) async fn delete(&self, target: &Target, ask: &Ask, options: &DeleteOptions) -> Result<Outcome, Fault> {
        options.check()?;
        let key = target.key();
        let mut tried = 0;
        loop {
            let Some((entry, old)) = self.live(target, &key)? else {
                return Err(target.not_found());
            };
            match self.delete_once(target, ask, options, &entry, old).await {
                Ok(outcome) => return Ok(outcome),
                Err(Refused::Fault(fault)) => return Err(fault),
                Err(Refused::Moved) if tried < TRIES => tried += 1,
                Err(Refused::Moved) => {
                    return Err(Fault::conflict(&target.plural(), &target.name, super::update::MOVED));
                }
            }
        }
    }

    async fn delete_once(
        &self,
        target: &Target,
        ask: &Ask,
        options: &DeleteOptions,
        entry: &Entry,
        old: Value,
    ) -> Result<Outcome, Refused> {
        preconditions(target, options, &old).map_err(Refused::Fault)?;
        let mut warnings = Vec::new();
        let review = Review {
            operation: Operation::Delete,
            target,
            name: &target.name,
            base: "",
            old: Some(&old),
            ask,
        };
        self.admit_delete(&review).map_err(Refused::Fault)?;
        if let Err(fault) = self.validate(&review, None, &mut warnings).await {
            return Err(Refused::Fault(fault.with_warnings(warnings)));
        }
        let doom = self.doom(target, options, &old);
        let expect = Expect::Revision(entry.revision);
        let outcome = |object: Value, deleted: bool, warnings: Vec<String>| Outcome {
            stored: None,
            object,
            created: false,
            deleted,
            warnings,
        };
        match doom {
            Doom::Already => {
                self.settled(entry).await?;
                Ok(outcome(old, false, warnings))
            }
            Doom::Marked(new) if ask.dry_run => Ok(outcome(new, false, warnings)),
            Doom::Marked(new) if new == old => {
                self.settled(entry).await?;
                Ok(outcome(new, false, warnings))
            }
            Doom::Marked(mut new) => {
                let stored = Self::store_form(&target.resource, &new).map_err(Refused::Fault)?;
                let revision = self.commit(entry.key.clone(), expect, Change::Put(stored)).await?;
                object::meta_mut(&mut new).insert("resourceVersion".to_owned(), revision.to_string().into());
                Ok(outcome(new, false, warnings))
            }
            Doom::MarkedAndNow(new) if ask.dry_run => Ok(outcome(new, true, warnings)),
            Doom::MarkedAndNow(mut new) => {
                let stored = Self::store_form(&target.resource, &new).map_err(Refused::Fault)?;
                // One batch: nobody finds it marked and left behind.
                let mark = Write {
                    key: entry.key.clone(),
                    expect,
                    change: Change::Put(stored),
                };
                let end = Write {
                    key: entry.key.clone(),
                    expect: Expect::Any,
                    change: Change::Delete,
                };
                let gone = self.commit_all(vec![mark, end]).await?;
                object::meta_mut(&mut new).insert("resourceVersion".to_owned(), gone.to_string().into());
                Ok(outcome(new, true, warnings))
            }
            Doom::Now if ask.dry_run => Ok(outcome(old, true, warnings)),
            Doom::Now => {
                let revision = self.commit(entry.key.clone(), expect, Change::Delete).await?;
                let mut gone = old;
                object::meta_mut(&mut gone).insert("resourceVersion".to_owned(), revision.to_string().into());
                Ok(outcome(gone, true, warnings))
            }
        }
    }

    fn doom(&self, target: &Target, options: &DeleteOptions, old: &Value) -> Doom {
        let now = self.clock.now();
        let is_pod = target.resource.row.group.is_empty() && &*target.resource.row.kind == "Pod";
        let is_namespace = target.resource.row.group.is_empty() && &*target.resource.row.kind == "Namespace";
        let mut new = old.clone();
        let mut graceful = 0;
        if is_pod {
            match pod_grace(options, old) {
                Grace::Pending => return Doom::Already,
                Grace::Seconds(seconds) => graceful = seconds,
            }
        }
        let finalizers = finalizers_for(options, old);
        object::set_finalizers(&mut new, finalizers);
        let holds =
            target.is_definition() || object::has_finalizers(&new) || (is_namespace && !Self::may_go(target, old));
        let is_repeated = object::is_deleting(old) && grace(old) == 0;
        if !holds && graceful == 0 && (!is_pod || is_repeated) {
            return Doom::Now;
        }
        if target.is_definition() {
            return if object::is_deleting(old) {
                Doom::Already
            } else {
                Doom::Marked(doomed_definition(new, now))
            };
        }
        if is_namespace {
            object::set_at(&mut new, "status.phase", json!("Terminating"));
        }
        let was_deleting = object::is_deleting(old);
        if was_deleting && graceful == grace(old) {
            return Doom::Marked(new);
        }
        let generation = object::generation(old);
        let meta = object::meta_mut(&mut new);
        // A shorter grace is as long as if it had been asked for at first.
        let begun = if was_deleting {
            doomed_at(old).unwrap_or(now)
        } else {
            now
        };
        let moment = begun
            .saturating_add(SignedDuration::from_secs(graceful))
            .unwrap_or(begun);
        if is_namespace {
            meta.insert("deletionTimestamp".to_owned(), object::time(now));
        } else {
            meta.insert("deletionTimestamp".to_owned(), object::time(moment));
            meta.insert("deletionGracePeriodSeconds".to_owned(), graceful.into());
        }
        if !was_deleting && generation > 0 {
            meta.insert("generation".to_owned(), (generation + 1).into());
        }
        if holds || graceful > 0 {
            Doom::Marked(new)
        } else {
            Doom::MarkedAndNow(new)
        }
    }

    /// Takes away an object whose time is over: nothing holds it up.
    pub(crate) async fn expire(&self, entry: &Entry) -> Result<(), Fault> {
        match self
            .commit(entry.key.clone(), Expect::Revision(entry.revision), Change::Delete)
            .await
        {
            // Written again meanwhile: it has a new time.
            Ok(_) | Err(Refused::Moved) => Ok(()),
            Err(Refused::Fault(fault)) => Err(fault),
        }
    }

    /// DELETE of a collection: what was deleted, as it was answered for each.
    pub(crate) async fn delete_collection(
        &self,
        target: &Target,
        ask: &Ask,
        options: &DeleteOptions,
        list: &ListOptions,
    ) -> Result<Vec<Value>, Fault> {
        options.check()?;
        let mut gone = Vec::new();
        let mut objects = self.list_objects(target, list)?.items.into_iter().peekable();
        while objects.peek().is_some() {
            let some: Vec<Value> = objects.by_ref().take(TOGETHER).collect();
            let targets: Vec<Target> = some.iter().map(|object| one_of(target, object)).collect();
            let deletes = targets.iter().map(|one| self.delete(one, ask, options));
            for (object, result) in some.into_iter().zip(futures::future::join_all(deletes).await) {
                match result {
                    Ok(_) => gone.push(object),
                    // Somebody else was faster.
                    Err(fault) if fault.code == 404 => {}
                    Err(fault) => return Err(fault),
                }
            }
        }
        Ok(gone)
    }

    /// The answer to a delete: the object, or a `Status` that says what is gone.
    pub(crate) fn deletion_answer(target: &Target, outcome: &Outcome) -> Value {
        let row = &target.resource.row;
        if !outcome.deleted || kinds::answers_deleted_object(row) {
            return outcome.object.clone();
        }
        let mut details = json!({
            "name": object::name(&outcome.object),
            "kind": row.plural.to_string(),
            "uid": object::text(&outcome.object, "uid"),
        });
        if !row.group.is_empty() {
            object::as_map(&mut details).insert("group".to_owned(), row.group.to_string().into());
        }
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
    }
}

/// When it was first told to go: its time, less the grace that it was given.
fn doomed_at(object: &Value) -> Option<Timestamp> {
    let time: Timestamp = object::text(object, "deletionTimestamp").parse().ok()?;
    time.checked_sub(SignedDuration::from_secs(grace(object))).ok()
}

/// A definition waits for its instances to go first (D6).
fn doomed_definition(mut definition: Value, now: Timestamp) -> Value {
    let mut finalizers: Vec<String> = object::finalizers(&definition).map(str::to_owned).collect();
    if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
        finalizers.push(CLEANUP.to_owned());
    }
    object::set_finalizers(&mut definition, finalizers);
    object::meta_mut(&mut definition).insert("deletionTimestamp".to_owned(), object::time(now));
    let status = object::as_map(&mut definition)
        .entry("status")
        .or_insert_with(|| json!({}));
    put_condition(
        status,
        json!({"type": "Terminating", "status": "True", "lastTransitionTime": object::time(now),
            "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"}),
    );
    definition
}

/// The request for one object of a collection.
fn one_of(collection: &Target, object: &Value) -> Target {
    let namespace = object::text(object, "namespace");
    Target {
        name: object::name(object).to_owned(),
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        ..collection.clone()
    }
}

enum Grace {
    Pending,
    Seconds(i64),
}

/// O14: the request's grace, else the pod's own; none if nothing runs. A later delete may only shorten it.
fn pod_grace(options: &DeleteOptions, pod: &Value) -> Grace {
    let own = object::at(pod, "spec.terminationGracePeriodSeconds").and_then(Value::as_i64);
    let asked = options
        .grace_seconds
        .map(|seconds| if seconds < 0 { 1 } else { seconds });
    if object::is_deleting(pod) {
        let current = grace(pod);
        return match asked {
            _ if current == 0 => Grace::Seconds(0),
            Some(seconds) if seconds < current => Grace::Seconds(seconds),
            _ => Grace::Pending,
        };
    }
    let unassigned = object::at(pod, "spec.nodeName")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .is_empty();
    let finished = matches!(
        object::at(pod, "status.phase").and_then(Value::as_str),
        Some("Succeeded" | "Failed")
    );
    if unassigned || finished {
        return Grace::Seconds(0);
    }
    Grace::Seconds(asked.or(own).unwrap_or(30).max(0))
}

/// O13: which finalizers the propagation adds and takes away.
fn finalizers_for(options: &DeleteOptions, object: &Value) -> Vec<String> {
    let mut finalizers: Vec<String> = object::finalizers(object).map(str::to_owned).collect();
    let has = |finalizers: &[String], name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    let orphan = options
        .orphans()
        .unwrap_or_else(|| options.propagation.is_none() && has(&finalizers, ORPHAN));
    let foreground = match options.propagation.as_deref() {
        Some(policy) => policy == "Foreground",
        None => options.orphan_dependents.is_none() && has(&finalizers, FOREGROUND),
    };
    finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
    if orphan {
        finalizers.push(ORPHAN.to_owned());
    }
    if foreground {
        finalizers.push(FOREGROUND.to_owned());
    }
    finalizers
}

pub(super) fn preconditions(target: &Target, options: &DeleteOptions, object: &Value) -> Result<(), Fault> {
    let (uid, version) = (object::text(object, "uid"), object::text(object, "resourceVersion"));
    let subject = target.subject();
    if let Some(wanted) = &options.uid
        && wanted != uid
    {
        return Err(Fault::conflict(
            &subject,
            &target.name,
            &format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            ),
        ));
    }
    if let Some(wanted) = &options.resource_version
        && wanted != version
    {
        return Err(Fault::conflict(
            &subject,
            &target.name,
            &format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
            ),
        ));
    }
    Ok(())
}
