//! Who depends on whom, from the log: each object's owners, and for each owner its dependents, whether it is there or not.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::controllers::hand::{Meta, Owner};
use crate::store::Key;

/// Holds an owner until its blocking dependents are gone.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Holds an owner until its dependents have forgotten it.
pub(super) const ORPHAN: &str = "orphan";

/// An object that is there.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) uid: Arc<str>,
    pub(super) owners: Vec<Owner>,
    pub(super) state: State,
}

/// What deletion has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Living,
    /// On its way out, which nobody here holds up.
    Deleting,
    /// Waits for its dependents to be gone.
    Foreground,
    /// Waits for its dependents to be told.
    Orphaning,
}

impl State {
    pub(super) fn of(meta: &Meta) -> Self {
        if !meta.is_deleting() {
            Self::Living
        } else if meta.has_finalizer(ORPHAN) {
            Self::Orphaning
        } else if meta.has_finalizer(FOREGROUND) {
            Self::Foreground
        } else {
            Self::Deleting
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<Key, Node>,
    places: HashMap<Arc<str>, Key>,
    /// By the owner's uid. Ordered, so that what is done about them has an order.
    dependents: HashMap<Arc<str>, BTreeSet<Key>>,
    /// Owners that were seen to go while something still depends on them, and where they were.
    gone: HashMap<Arc<str>, Key>,
}

impl Graph {
    pub(super) fn node(&self, key: &Key) -> Option<&Node> {
        self.nodes.get(key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.nodes.keys()
    }

    /// Where the object with a uid is.
    pub(super) fn place(&self, uid: &str) -> Option<&Key> {
        self.places.get(uid)
    }

    /// Whether the owner was seen to go from where a dependent would look for it.
    pub(super) fn is_gone(&self, uid: &str, dependent: &Key) -> bool {
        let place = self.gone.get(uid);
        place.is_some_and(|place| place.namespace().is_none() || place.namespace() == dependent.namespace())
    }

    pub(super) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Key> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// The dependents that an owner in foreground deletion waits for.
    pub(super) fn blocking<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = (&'a Key, &'a Node)> {
        self.dependents(uid)
            .filter_map(|key| Some((key, self.nodes.get(key)?)))
            .filter(move |(_, node)| {
                let mut owners = node.owners.iter();
                owners.any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true))
            })
    }

    /// Puts an object in its place; gives back what it was before.
    pub(super) fn put(&mut self, key: &Key, meta: Meta) -> Option<Node> {
        let state = State::of(&meta);
        let (uid, owners): (Arc<str>, _) = (meta.uid.as_str().into(), meta.owner_references);
        for owner in &owners {
            let of_owner = self.dependents.entry(owner.uid.as_str().into()).or_default();
            of_owner.insert(key.clone());
        }
        self.places.insert(uid.clone(), key.clone());
        let kept: Vec<String> = owners.iter().map(|owner| owner.uid.clone()).collect();
        let before = self.nodes.insert(key.clone(), Node { uid, owners, state });
        if let Some(before) = &before {
            self.unlink(key, before, &kept);
        }
        before
    }

    /// The object is no more.
    pub(super) fn remove(&mut self, key: &Key) -> Option<Node> {
        let node = self.nodes.remove(key)?;
        self.places.remove(&node.uid);
        self.unlink(key, &node, &[]);
        if self.dependents.contains_key(&node.uid) {
            self.gone.insert(node.uid.clone(), key.clone());
        }
        Some(node)
    }

    /// Takes the object from the dependents of owners it no longer names.
    fn unlink(&mut self, key: &Key, node: &Node, kept: &[String]) {
        for owner in node.owners.iter().filter(|owner| !kept.contains(&owner.uid)) {
            if let Some(of_owner) = self.dependents.get_mut(owner.uid.as_str()) {
                of_owner.remove(key);
                if of_owner.is_empty() {
                    self.dependents.remove(owner.uid.as_str());
                    self.gone.remove(owner.uid.as_str());
                }
            }
        }
    }
}
