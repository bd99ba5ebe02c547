//! What a create, update or patch does to `metadata.managedFields`: who changes a field owns it.

use jiff::Timestamp;
use serde_json::Value;

use super::compare::{Difference, compare};
use super::managed::{Entry, Managed, Operation, managed_fields, never_owned, set_managed_fields};
use super::set::Set;
use super::shape::{Shape, nothing};
use super::walk::reconciled;
use crate::schema::Schema;

/// One write that is not an apply.
#[derive(Debug)]
pub struct Track<'a> {
    /// `None` on create.
    pub old: Option<&'a Value>,
    /// The object as it will be stored; its managedFields, if any, are what the client sent.
    pub new: &'a mut Value,
    pub schema: &'a Schema,
    pub manager: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub api_version: &'a str,
    pub now: Timestamp,
    /// Fields this endpoint resets, such as `status`: they are never owned through it.
    pub ignored: &'a [&'a [&'a str]],
}

/// Writes the new object's `metadata.managedFields`. If nothing else changed, they come out as they were.
///
/// The reference does this after decoding and defaults, and before admission and before the server fills in what it
/// gives out itself (addresses, uid): what they set is owned by nobody.
pub fn track(write: Track<'_>) {
    let live = write.old.and_then(managed_fields);
    let absent;
    let old = match write.old {
        Some(old) => old,
        None => {
            absent = nothing(write.schema);
            &absent
        }
    };
    let difference = compare(old, write.new, Shape::Root(write.schema)).without(&Set::of_fields(write.ignored));
    let sent = managed_fields(write.new).filter(|_| write.subresource.is_empty());
    // Most writes that change nothing come from controllers that say again what is so: nothing to read or to write.
    if difference.is_empty() && write.old.is_some() && (sent.is_none_or(Value::is_null) || sent == live) {
        let live = live.cloned();
        set_managed_fields(write.new, live);
        return;
    }
    let mut managed = base(live, sent);
    // An object whose fields nobody owns stays so: it was cleared on purpose, or made before tracking.
    if managed.entries.is_empty() && write.old.is_some() {
        set_managed_fields(write.new, None);
        return;
    }
    for entry in &mut managed.entries {
        if let Some(fields) = reconciled(&entry.fields, write.schema) {
            entry.fields = fields;
        }
    }
    let entry = Entry {
        manager: if write.manager.is_empty() {
            "unknown"
        } else {
            write.manager
        }
        .to_owned(),
        operation: Operation::Update,
        api_version: write.api_version.to_owned(),
        subresource: write.subresource.to_owned(),
        time: None,
        fields: Set::new(),
    };
    own_changes(&mut managed, entry, difference, write.now);
    managed.keep_few();
    set_managed_fields(write.new, managed.write());
    if let Some(old) = write.old {
        keep_times(old, write.new);
    }
}

/// Where the entries come from: what the client sent, if it can be read and is not empty, else what is stored.
fn base(live: Option<&Value>, sent: Option<&Value>) -> Managed {
    let stored = || Managed::read(live).unwrap_or_default();
    // An empty list, or a list of one empty entry, clears.
    let cleared = match sent {
        Some(Value::Array(list)) => match list.as_slice() {
            [] => true,
            [Value::Object(entry)] => entry.values().all(|value| value.is_null() || value == ""),
            _ => false,
        },
        _ => false,
    };
    if cleared {
        return Managed::default();
    }
    match Managed::read(sent) {
        Ok(managed) if !managed.entries.is_empty() => managed,
        _ => stored(),
    }
}

/// Gives the changed fields to `entry`'s writer, takes them from all others, and removed fields from everybody.
pub(super) fn own_changes(managed: &mut Managed, mut entry: Entry, difference: Difference, now: Timestamp) {
    let changed = difference.modified.joined(difference.added);
    for other in &mut managed.entries {
        other.fields = other.fields.difference(&changed).difference(&difference.removed);
    }
    let mut time = None;
    if let Some(at) = managed.position(&entry)
        && let Some(own) = managed.entries.get(at)
    {
        time = own.time;
        entry.fields = own.fields.clone();
    }
    managed.entries.retain(|other| !other.fields.is_empty());
    let gained = changed.less(never_owned());
    entry.time = if gained.is_empty() { time } else { Some(now) };
    entry.fields = entry.fields.joined(gained);
    if !entry.fields.is_empty() {
        managed.put(entry);
    }
}

/// Takes the times of managedFields back where the two objects are otherwise the same, so that nothing is stored. For
/// the caller to ask again after defaults and normal forms have been set.
pub fn keep_times(old: &Value, new: &mut Value) {
    let (Some(Value::Array(old_list)), Some(Value::Array(new_list))) = (managed_fields(old), managed_fields(new))
    else {
        return;
    };
    let alike = |old: &Value, new: &Value| match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let mut left = old.iter().filter(|(key, _)| *key != "time");
            let mut right = new.iter().filter(|(key, _)| *key != "time");
            loop {
                match (left.next(), right.next()) {
                    (None, None) => return true,
                    (left, right) if left == right => {}
                    _ => return false,
                }
            }
        }
        _ => false,
    };
    if old_list.len() != new_list.len() || !old_list.iter().zip(new_list).all(|(old, new)| alike(old, new)) {
        return;
    }
    if !super::same_but_managed(old, new) {
        return;
    }
    let old_list = Value::Array(old_list.clone());
    set_managed_fields(new, Some(old_list));
}
