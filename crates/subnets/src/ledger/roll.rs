//! Records by uid: the very ones the view has, so that a place here costs no more than a pointer.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use usher_engine::Uid;
use usher_operator::record::Record;

/// See the module's header.
#[derive(Debug, Clone)]
pub struct Roll<R>(BTreeSet<ByUid<R>>);

#[derive(Debug)]
struct ByUid<R>(Arc<R>);

impl<R: Record> Roll<R> {
    /// The record of this uid.
    pub fn get(&self, uid: &Uid) -> Option<&Arc<R>> {
        self.0.get(uid).map(|ByUid(record)| record)
    }

    /// All of them, by uid.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<R>> {
        self.0.iter().map(|ByUid(record)| record)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Enters a record; says which one of its uid it replaces.
    pub(super) fn put(&mut self, record: Arc<R>) -> Option<Arc<R>> {
        self.0.replace(ByUid(record)).map(|ByUid(before)| before)
    }

    /// Strikes a record.
    pub(super) fn remove(&mut self, uid: &Uid) -> Option<Arc<R>> {
        self.0.take(uid).map(|ByUid(record)| record)
    }
}

impl<R> Default for Roll<R> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<R> Clone for ByUid<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Record> Borrow<Uid> for ByUid<R> {
    fn borrow(&self) -> &Uid {
        &self.0.meta().uid
    }
}

impl<R: Record> PartialEq for ByUid<R> {
    fn eq(&self, other: &Self) -> bool {
        self.0.meta().uid == other.0.meta().uid
    }
}

impl<R: Record> Eq for ByUid<R> {}

impl<R: Record> PartialOrd for ByUid<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R: Record> Ord for ByUid<R> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.meta().uid.cmp(&other.0.meta().uid)
    }
}
