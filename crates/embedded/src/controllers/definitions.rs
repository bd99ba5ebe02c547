//! A definition that is deleted takes its instances along (D6), then its finalizer goes, and with it the kind.
//!
//! Definitions are established and served by whoever writes them. What that left undone is done here: its writer may have
//! been cancelled, the disk may have been full, or somebody may have wiped the status.

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::census::{GroupResource, kind_of};
use super::hand::target;
use super::{Census, Control, Hand, Next, Wishes};
use crate::fault::Fault;
use crate::registry::ask::Target;
use crate::registry::definitions::{CLEANUP, GROUP, PLURAL, is_true, put_condition};
use crate::registry::object;
use crate::registry::read::ListOptions;
use crate::store::{Entry, Key, Kind, LogEntry, Revision};

#[derive(Debug, Default)]
pub(super) struct Definitions {
    /// Definitions on their way out, by the kind they define.
    terminating: BTreeMap<GroupResource, String>,
}

fn is_definition(key: &Key) -> bool {
    key.group() == GROUP && key.resource() == PLURAL
}

impl Definitions {
    fn note(&mut self, hand: &Hand, entry: &Entry, wishes: &mut Wishes) {
        let Ok(definition) = object::decode(entry) else { return };
        let is_served = is_true(&definition, "Established")
            && is_true(&definition, "NamesAccepted")
            && served(hand, entry.key.name()).is_some_and(|defined| defined >= entry.revision);
        if !object::is_deleting(&definition) && !is_served {
            wishes.sync(entry.key.name());
        }
        let holds = object::finalizers(&definition).any(|finalizer| finalizer == CLEANUP);
        if object::is_deleting(&definition)
            && holds
            && let Some(kind) = defined(&definition)
            && self.terminating.insert(kind, entry.key.name().to_owned()).is_none()
        {
            wishes.sync(entry.key.name());
        }
    }
}

/// The revision of the definition by which its kind is served.
fn served(hand: &Hand, name: &str) -> Option<Revision> {
    let (plural, group) = name.split_once('.')?;
    let catalog = hand.catalog();
    catalog.find(group, plural).map(|resource| resource.defined)
}

/// The kind that a definition defines.
fn defined(definition: &Value) -> Option<GroupResource> {
    let text = |path: &str| object::at(definition, path)?.as_str().map(Into::into);
    Some((text("spec.group")?, text("spec.names.plural")?))
}

impl Control for Definitions {
    fn begin(&mut self, hand: &Hand, state: &[Entry], _: &Census, wishes: &mut Wishes) {
        self.terminating.clear();
        for entry in state.iter().filter(|entry| is_definition(&entry.key)) {
            self.note(hand, entry, wishes);
        }
    }

    fn see(&mut self, hand: &Hand, line: &LogEntry, census: &Census, wishes: &mut Wishes) {
        if is_definition(&line.key) {
            match line.entry() {
                Some(entry) => self.note(hand, &entry, wishes),
                None => {
                    let name = line.key.name();
                    self.terminating.retain(|_, terminating| terminating != name);
                    // Its kind may still be served, and another definition may wait for its names.
                    let is_behind = served(hand, name).is_some_and(|defined| defined < line.revision);
                    let group = name.split_once('.').map_or("", |(_, group)| group);
                    if is_behind || !hand.registry.waiting_definitions(group).is_empty() {
                        wishes.sync(name);
                    }
                }
            }
            return;
        }
        if self.terminating.is_empty() {
            return;
        }
        let is_last = line.kind == Kind::Delete && census.of_kind(line.key.group(), line.key.resource()) == 0;
        if (is_last || line.kind == Kind::Create)
            && let Some(name) = self.terminating.get(&kind_of(&line.key))
        {
            wishes.sync(name);
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            let catalog = hand.catalog();
            let Some(definition) = catalog
                .find(GROUP, PLURAL)
                .and_then(|resource| target(resource, None, key))
            else {
                return Ok(Next::Done);
            };
            let live = hand.read(&definition)?;
            let Some(live) = live.filter(object::is_deleting) else {
                hand.registry.after_definition(&definition, key).await?;
                return Ok(Next::Done);
            };
            if !object::finalizers(&live).any(|finalizer| finalizer == CLEANUP) {
                return Ok(Next::Done);
            }
            let begun = Told {
                status: "True",
                reason: "InstanceDeletionInProgress",
                message: "CustomResource deletion is in progress",
            };
            let live = begun.tell(hand, &definition, live, false).await?;
            let ended = if is_true(&live, "Established") {
                if !delete_instances(hand, &live).await? {
                    return Ok(Next::Done);
                }
                Told {
                    status: "False",
                    reason: "InstanceDeletionCompleted",
                    message: "removed all instances",
                }
            } else {
                Told {
                    status: "False",
                    reason: "NeverEstablished",
                    message: "resource was never established",
                }
            };
            ended.tell(hand, &definition, live, true).await?;
            Ok(Next::Done)
        }
        .boxed()
    }
}

/// Deletes all instances. True: there were none. When there were, their dependents come first, while the kind of the owners
/// is still known; the last instance to go brings the definition back here.
async fn delete_instances(hand: &Hand, definition: &Value) -> Result<bool, Fault> {
    let catalog = hand.catalog();
    let all = defined(definition)
        .and_then(|(group, plural)| catalog.find(&group, &plural).cloned())
        .and_then(|resource| target(&resource, None, ""));
    let Some(all) = all else { return Ok(true) };
    if hand.registry.list(&all, &ListOptions::default())?.entries.is_empty() {
        return Ok(true);
    }
    hand.delete_all(&all).await?;
    Ok(false)
}

/// What the condition `Terminating` says.
struct Told {
    status: &'static str,
    reason: &'static str,
    message: &'static str,
}

impl Told {
    /// Writes it, and in the same write lets the definition go if this is the end.
    async fn tell(&self, hand: &Hand, definition: &Target, live: Value, is_end: bool) -> Result<Value, Fault> {
        let mut status = live.get("status").cloned().unwrap_or_else(|| json!({}));
        let condition = json!({"type": "Terminating", "status": self.status,
            "lastTransitionTime": object::time(hand.now()), "reason": self.reason, "message": self.message});
        put_condition(&mut status, condition);
        if !is_end && live.get("status") == Some(&status) {
            return Ok(live);
        }
        let mut meta = json!({"resourceVersion": object::text(&live, "resourceVersion")});
        if is_end {
            let left: Vec<&str> = object::finalizers(&live).filter(|name| *name != CLEANUP).collect();
            let left = if left.is_empty() { Value::Null } else { json!(left) };
            object::as_map(&mut meta).insert("finalizers".to_owned(), left);
        }
        let change = json!({"metadata": meta, "status": status});
        Ok(hand.patch(definition, "status", change).await?.object)
    }
}
