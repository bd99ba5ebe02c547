//! Server-side apply: an object is laid over the live one, what the manager no longer applies is taken away, and who
//! owns what is written down.

use jiff::Timestamp;
use serde_json::Value;

use super::compare::compare;
use super::conflicts::Conflicts;
use super::element::same;
use super::last_applied;
use super::managed::{Entry, Managed, Operation, managed_fields, never_owned, set_managed_fields};
use super::merge::merge;
use super::set::Set;
use super::shape::{Shape, nothing};
use super::track::own_changes;
use super::validate;
use super::walk::{reconciled, with_names, without};
use crate::fault::Fault;
use crate::schema::Schema;

/// One apply.
#[derive(Debug, Clone, Copy)]
pub struct Apply<'a> {
    /// `None`: the object does not exist yet.
    pub live: Option<&'a Value>,
    pub applied: &'a Value,
    pub schema: &'a Schema,
    pub manager: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub api_version: &'a str,
    pub force: bool,
    pub now: Timestamp,
    /// Fields this endpoint resets, such as `status`: they are never owned through it.
    pub ignored: &'a [&'a [&'a str]],
}

/// Why an apply did nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Refused {
    Conflicts(Conflicts),
    Fault(Fault),
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Conflicts(conflicts) => conflicts.into(),
            Refused::Fault(fault) => fault,
        }
    }
}

/// The merged object with its new `metadata.managedFields`. The caller sets defaults and checks it; an apply that
/// changes nothing gives the live object back as it is.
///
/// # Errors
/// Conflicts, unless forced; an applied object that does not fit its schema.
pub fn apply(request: Apply<'_>) -> Result<Value, Refused> {
    if managed_fields(request.applied).is_some_and(|managed| !managed.is_null()) {
        return Err(Refused::Fault(Fault::bad_request("metadata.managedFields must be nil")));
    }
    let absent;
    let live = match request.live {
        Some(live) => live,
        None => {
            absent = nothing(request.schema);
            &absent
        }
    };
    let managed =
        Managed::read(managed_fields(live)).map_err(|why| failed(format!("failed to decode managed fields: {why}")))?;
    validate::applied(request.applied, request.schema).map_err(Refused::Fault)?;

    let managed = if managed.entries.is_empty() {
        before_first_apply(&request, live)
    } else {
        managed
    };
    if request.manager != last_applied::MANAGER {
        return structured(&request, live, managed, request.force);
    }
    let merged = match structured(&request, live, managed.clone(), request.force) {
        Err(Refused::Conflicts(conflicts)) => {
            match last_applied::remaining(conflicts, live, request.schema, request.api_version) {
                Some(conflicts) => Err(Refused::Conflicts(conflicts)),
                None => structured(&request, live, managed, true),
            }
        }
        other => other,
    };
    let mut merged = merged?;
    last_applied::refresh(&mut merged, request.applied);
    Ok(merged)
}

pub(super) fn failed(message: String) -> Refused {
    // The reference answers such errors with 500 and no reason.
    Refused::Fault(Fault::new(500, "", message))
}

/// What was there before anybody was tracked belongs to one entry of its own, so that the first apply can conflict.
fn before_first_apply(request: &Apply<'_>, live: &Value) -> Managed {
    let mut managed = Managed::default();
    let entry = Entry {
        manager: "before-first-apply".to_owned(),
        operation: Operation::Update,
        ..own_entry(request)
    };
    let shape = Shape::Root(request.schema);
    let difference = compare(&nothing(request.schema), live, shape).without(&Set::of_fields(request.ignored));
    own_changes(&mut managed, entry, difference, request.now);
    managed
}

fn own_entry(request: &Apply<'_>) -> Entry {
    Entry {
        manager: request.manager.to_owned(),
        operation: Operation::Apply,
        api_version: request.api_version.to_owned(),
        subresource: request.subresource.to_owned(),
        time: None,
        fields: Set::new(),
    }
}

fn structured(request: &Apply<'_>, live: &Value, mut managed: Managed, force: bool) -> Result<Value, Refused> {
    let shape = Shape::Root(request.schema);
    let ignored = Set::of_fields(request.ignored);
    let mut owners_change = managed_fields(live).is_none();
    for entry in &mut managed.entries {
        if let Some(fields) = reconciled(&entry.fields, request.schema) {
            entry.fields = fields;
            owners_change = true;
        }
    }

    let mut own = own_entry(request);
    own.fields = Set::of(request.applied, request.schema).without(&ignored);
    let last = managed.position(&own).map(|at| managed.entries.swap_remove(at));
    own.time = last.as_ref().and_then(|entry| entry.time);

    let mut merged = merge(live, request.applied, shape);
    if let Some(last) = &last {
        merged = prune(merged, &last.fields, &own.fields, &managed, shape);
    }

    let difference = compare(live, &merged, shape).without(&ignored);
    let changed = difference.modified.union(&difference.added);
    let conflicting: Vec<Entry> = managed
        .entries
        .iter()
        .filter(|entry| entry.fields.meets(&changed))
        .map(|entry| Entry {
            fields: entry.fields.intersection(&changed),
            ..entry.clone()
        })
        .collect();
    if !force && !conflicting.is_empty() {
        return Err(Refused::Conflicts(Conflicts::of(conflicting)));
    }
    for entry in &mut managed.entries {
        entry.fields = entry.fields.difference(&changed).difference(&difference.removed);
    }
    managed.entries.retain(|entry| !entry.fields.is_empty());

    let unchanged = same_but_managed(live, &merged);
    if !unchanged {
        own.time = Some(request.now);
    }
    own.fields = own.fields.less(never_owned());
    owners_change |= !difference.is_empty()
        || last.is_none_or(|last| last.fields != own.fields || last.api_version != own.api_version);
    if unchanged && !owners_change {
        return Ok(live.clone());
    }
    if !own.fields.is_empty() {
        managed.put(own);
    }
    set_managed_fields(&mut merged, managed.write());
    Ok(merged)
}

/// Takes away what the manager applied last time, does not apply now, and nobody else owns.
fn prune(merged: Value, last: &Set, now: &Set, others: &Managed, shape: Shape<'_>) -> Value {
    if last.difference(now).is_empty() {
        return merged;
    }
    let last = with_names(last, shape);
    let of = |value: &Value| match shape {
        Shape::Root(schema) => with_names(&Set::of(value, schema), shape),
        _ => Set::new(),
    };
    let owned = others
        .entries
        .iter()
        .fold(now.clone(), |owned, entry| owned.union(&entry.fields));
    let owned = with_names(&owned, shape);
    let all = of(&merged);
    // First everything of the last apply goes; then what anybody owns comes back; at last what the manager never
    // applied itself, but which went with its parent.
    let bare = of(&without(&merged, &last, shape));
    let pruned = of(&without(&merged, &all.difference(&bare.union(&owned)), shape));
    without(&merged, &all.difference(&pruned).intersection(&last), shape)
}

/// Whether two objects are the same apart from their managedFields, which `merged` never has.
pub(super) fn same_but_managed(live: &Value, merged: &Value) -> bool {
    let (Value::Object(live), Value::Object(merged)) = (live, merged) else {
        return same(live, merged);
    };
    let bare_live = live.get("metadata").and_then(Value::as_object);
    let bare_merged = merged.get("metadata").and_then(Value::as_object);
    let metadata = match (bare_live, bare_merged) {
        (Some(live), Some(merged)) => {
            let mut left = live.iter().filter(|(key, _)| *key != "managedFields");
            let mut right = merged.iter().filter(|(key, _)| *key != "managedFields");
            loop {
                match (left.next(), right.next()) {
                    (None, None) => break true,
                    (Some((left_key, left)), Some((right_key, right)))
                        if left_key == right_key && same(left, right) => {}
                    _ => break false,
                }
            }
        }
        _ => live.get("metadata") == merged.get("metadata"),
    };
    metadata
        && live.len() == merged.len()
        && live.iter().zip(merged).all(|((left_key, left), (right_key, right))| {
            left_key == right_key && (left_key == "metadata" || same(left, right))
        })
}
