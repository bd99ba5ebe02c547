//! The garbage collector (C1): dependents go with their owners.
//!
//! An object without any owner left is deleted. An owner in foreground deletion waits for the dependents that block it;
//! one whose dependents are to be orphaned waits until they have forgotten it. [`graph`] says whom a change may concern;
//! what is done is decided anew from the live objects ([`references`]).

mod graph;
mod references;

use std::collections::BTreeSet;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::hand::{Meta, Owner, meta_of};
use super::{Census, Control, Hand, Next, Wishes};
use crate::fault::Fault;
use crate::registry::ask::Target;
use crate::registry::object;
use crate::store::{Entry, Key, Kind, LogEntry, Revision};
use graph::{FOREGROUND, Graph, Node, ORPHAN, State};
use references::{References, Unclear};

#[derive(Debug, Default)]
pub(super) struct Garbage {
    graph: Graph,
    /// Objects with an owner of a kind that is not served. They are looked at again when kinds come.
    unclear: BTreeSet<Key>,
}

/// Events are nobody's business here, as in the reference: they go by themselves.
fn is_ignored(key: &Key) -> bool {
    key.group().is_empty() && key.resource() == "events"
}

fn is_definition(key: &Key) -> bool {
    key.resource() == "customresourcedefinitions"
}

impl Control for Garbage {
    fn begin(&mut self, hand: &Hand, state: &[Entry], _: &Census, wishes: &mut Wishes) {
        self.graph = Graph::default();
        self.unclear.clear();
        for entry in state.iter().filter(|entry| !is_ignored(&entry.key)) {
            if let Some(meta) = meta_of(&entry.value) {
                self.graph.put(&entry.key, meta);
            }
        }
        for key in self.graph.keys() {
            let Some(node) = self.graph.node(key) else { continue };
            if node.owners.iter().any(|owner| !self.is_sound(hand, key, owner)) {
                wishes.sync(key.as_str());
            }
            self.transition(key, None, wishes);
        }
    }

    fn see(&mut self, hand: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        if is_definition(&line.key) {
            for key in std::mem::take(&mut self.unclear) {
                wishes.sync(key.as_str());
            }
        }
        if is_ignored(&line.key) {
            return;
        }
        if line.kind == Kind::Delete {
            self.unclear.remove(&line.key);
            if let Some(node) = self.graph.remove(&line.key) {
                self.sync_dependents(&node, wishes);
                self.sync_waiting_owners(&node.owners, wishes);
            }
            return;
        }
        let Some(meta) = meta_of(&line.value) else { return };
        let owners = meta.owner_references.clone();
        let before = self.graph.put(&line.key, meta);
        let old: &[Owner] = before.as_ref().map_or(&[], |node| &node.owners);
        if old != owners {
            let mut added = owners.iter().filter(|owner| !old.contains(owner));
            if added.any(|owner| !self.is_sound(hand, &line.key, owner)) {
                wishes.sync(line.key.as_str());
            }
            // Whoever waited for this object may wait no longer. An owner that already waits takes a newcomer along when
            // the last of those it waits for is gone, as in the reference.
            self.sync_waiting_owners(old.iter().filter(|owner| !owners.contains(owner)), wishes);
        }
        self.transition(&line.key, before.map(|node| node.state), wishes);
    }

    fn sync<'a>(
        &'a mut self,
        hand: &'a Hand,
        key: &'a str,
        wishes: &'a mut Wishes,
    ) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            let Some(key) = Key::parse(key) else {
                return Ok(Next::Done);
            };
            let (Some((meta, revision)), Some(target)) = (hand.meta(&key), hand.target(&key)) else {
                return Ok(Next::Done);
            };
            let object = Item {
                key,
                target,
                meta,
                revision,
            };
            match State::of(&object.meta) {
                State::Orphaning => self.orphan(hand, &object).await?,
                State::Foreground => self.wait_for_dependents(hand, &object, wishes).await?,
                State::Deleting => {}
                State::Living if object.meta.owner_references.is_empty() => {}
                State::Living => self.collect(hand, &object).await?,
            }
            Ok(Next::Done)
        }
        .boxed()
    }
}

/// An object as it was read for one sync.
#[derive(Debug)]
struct Item {
    key: Key,
    target: Target,
    meta: Meta,
    revision: Revision,
}

impl Garbage {
    fn sync_dependents(&self, node: &Node, wishes: &mut Wishes) {
        for key in self.graph.dependents(&node.uid) {
            wishes.sync(key.as_str());
        }
    }

    fn sync_waiting_owners<'a>(&self, owners: impl IntoIterator<Item = &'a Owner>, wishes: &mut Wishes) {
        for owner in owners {
            if let Some(key) = self.graph.place(&owner.uid)
                && self.graph.node(key).is_some_and(|node| node.state == State::Foreground)
            {
                wishes.sync(key.as_str());
            }
        }
    }

    /// Deletion has come to where the collector is needed.
    fn transition(&self, key: &Key, before: Option<State>, wishes: &mut Wishes) {
        let Some(node) = self.graph.node(key) else { return };
        if before == Some(node.state) {
            return;
        }
        match node.state {
            State::Orphaning => wishes.sync(key.as_str()),
            State::Foreground => {
                self.sync_dependents(node, wishes);
                wishes.sync(key.as_str());
            }
            State::Living | State::Deleting => {}
        }
    }

    /// Strips the references to the owner, then lets it go.
    async fn orphan(&self, hand: &Hand, owner: &Item) -> Result<(), Fault> {
        for key in self.graph.dependents(&owner.meta.uid) {
            let Some(target) = hand.target(key) else { continue };
            strip(hand, &target, &|reference| reference == owner.meta.uid).await?;
        }
        self.release(hand, owner, ORPHAN).await
    }

    async fn wait_for_dependents(&self, hand: &Hand, owner: &Item, wishes: &mut Wishes) -> Result<(), Fault> {
        let mut is_blocked = false;
        for (key, node) in self.graph.blocking(&owner.meta.uid) {
            is_blocked = true;
            // Those that wait themselves come back by themselves; so do those that are on their way.
            if node.state == State::Living {
                wishes.sync(key.as_str());
            }
        }
        if is_blocked {
            return Ok(());
        }
        self.release(hand, owner, FOREGROUND).await
    }

    /// Takes the finalizer from the owner as it is now: it may have been its own dependent.
    async fn release(&self, hand: &Hand, owner: &Item, finalizer: &str) -> Result<(), Fault> {
        let Some((meta, revision)) = hand.meta(&owner.key) else {
            return Ok(());
        };
        if meta.uid != owner.meta.uid {
            return Ok(());
        }
        let left: Vec<&String> = meta.finalizers.iter().filter(|name| *name != finalizer).collect();
        let change = json!({"metadata": {
            "resourceVersion": revision.to_string(),
            "finalizers": if left.is_empty() { Value::Null } else { json!(left) },
        }});
        forgiving(hand.patch(&owner.target, "", change).await.map(|_| ()))
    }

    /// Deletes an object that nobody owns any more.
    async fn collect(&mut self, hand: &Hand, item: &Item) -> Result<(), Fault> {
        let references = match self.classify(hand, item) {
            Ok(references) => references,
            Err(Unclear::Kind) => {
                self.unclear.insert(item.key.clone());
                return Ok(());
            }
            // It will not get better: such an object stays, as in the reference.
            Err(Unclear::Scope) => return Ok(()),
        };
        if let Some(owner) = &references.elsewhere {
            self.tell_invalid(hand, item, owner).await?;
        }
        let References {
            solid,
            dangling,
            waiting,
            ..
        } = references;
        if !solid.is_empty() {
            if dangling.is_empty() && waiting.is_empty() {
                return Ok(());
            }
            let is_lost = |uid: &str| dangling.iter().chain(&waiting).any(|owner| owner.uid == uid);
            return strip(hand, &item.target, &is_lost).await;
        }
        let mut revision = item.revision;
        let has_dependents = self.graph.dependents(&item.meta.uid).next().is_some();
        let propagation = if !waiting.is_empty() && has_dependents {
            if self.may_be_a_cycle(item) {
                match unblock(hand, &item.target).await? {
                    Some(unblocked) => revision = unblocked,
                    None => return Ok(()),
                }
            }
            "Foreground"
        } else if item.meta.has_finalizer(ORPHAN) {
            "Orphan"
        } else if item.meta.has_finalizer(FOREGROUND) {
            "Foreground"
        } else {
            "Background"
        };
        forgiving(hand.delete(&item.target, &item.meta.uid, revision, propagation).await)
    }

    /// An owner waits for this object while one of its own dependents waits, perhaps for this one.
    fn may_be_a_cycle(&self, item: &Item) -> bool {
        self.graph
            .dependents(&item.meta.uid)
            .any(|key| self.graph.node(key).is_some_and(|node| node.state == State::Foreground))
    }
}

/// Removes the owner references whose uid is lost.
async fn strip(hand: &Hand, target: &Target, is_lost: &(dyn Fn(&str) -> bool + Sync)) -> Result<(), Fault> {
    let Some(live) = hand.read(target)? else { return Ok(()) };
    let all = references_of(&live);
    let left: Vec<&Value> = all.iter().filter(|owner| !is_lost(uid_of(owner))).collect();
    if left.len() == all.len() {
        return Ok(());
    }
    let left = if left.is_empty() { Value::Null } else { json!(left) };
    let change = json!({"metadata": {"resourceVersion": object::text(&live, "resourceVersion"),
        "ownerReferences": left}});
    forgiving(hand.patch(target, "", change).await.map(|_| ()))
}

/// Makes all references to owners non-blocking. Gives back the object's revision; `None` if it is gone.
async fn unblock(hand: &Hand, target: &Target) -> Result<Option<Revision>, Fault> {
    let Some(live) = hand.read(target)? else {
        return Ok(None);
    };
    let mut owners = references_of(&live).to_vec();
    for owner in &mut owners {
        if owner.get("blockOwnerDeletion") == Some(&Value::Bool(true)) {
            object::as_map(owner).insert("blockOwnerDeletion".to_owned(), false.into());
        }
    }
    let change = json!({"metadata": {"resourceVersion": object::text(&live, "resourceVersion"),
        "ownerReferences": owners}});
    let outcome = hand.patch(target, "", change).await?;
    object::revision(&outcome.object)
}

fn references_of(object: &Value) -> &[Value] {
    object::meta(object)
        .get("ownerReferences")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn uid_of(owner: &Value) -> &str {
    owner.get("uid").and_then(Value::as_str).unwrap_or_default()
}

/// What is gone already needs nothing more.
fn forgiving(result: Result<(), Fault>) -> Result<(), Fault> {
    match result {
        Err(fault) if fault.code == 404 => Ok(()),
        other => other,
    }
}
