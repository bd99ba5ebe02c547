//! Records of one type, with their indexes, in a fixed order.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::DynamicObject;
use usher_engine::hash::CanonicalHash;
use usher_engine::{Moment, ObjectKey};

use super::Event;
use crate::record::{self, Record, Unreadable};

/// How many deletions are remembered by uid. Past that, whoever needs to know asks the API server; the number only
/// bounds memory (about 10 MB).
const DELETIONS_REMEMBERED: usize = 100_000;

/// One record, and since which event this incarnation of it has been in view.
#[derive(Debug)]
pub struct Entry<R> {
    /// The record.
    pub record: Arc<R>,
    /// The view's event count when its uid was first seen.
    pub first_seen: u64,
    /// The view's event count when this version of it came.
    pub changed: u64,
    /// The view's time then, in nanoseconds: half the size of a `Moment`, and there is one of these for every object.
    at_nanos: u64,
}

impl<R> Entry<R> {
    /// When this incarnation was first seen; see [`super::View::tell_time`].
    pub fn since(&self) -> Moment {
        Moment::after_start(Duration::from_nanos(self.at_nanos))
    }
}

/// Where the view is: by its count of events, and by the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) events: u64,
    pub(super) at: Moment,
}

/// A change of one object, with what it was and what it is. A deletion carries the last known object, also when a list
/// merely found it missing.
#[derive(Debug, Clone)]
pub struct Change<R> {
    /// As it was; `None` for a new object.
    pub old: Option<Arc<R>>,
    /// As it is; `None` when gone.
    pub new: Option<Arc<R>>,
}

impl<R> Change<R> {
    /// The newest known state, also of an object that is gone.
    pub fn latest(&self) -> Option<&Arc<R>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

pub(super) type Indexer<R> = fn(&R) -> Vec<Arc<str>>;
type IndexEntries = BTreeMap<(Arc<str>, Arc<str>), BTreeSet<ObjectKey>>;
/// Changes with the key they concern; the change is a `Change<R>`.
pub(super) type Changes = Vec<(ObjectKey, Box<dyn Any>)>;

/// How far a type's watch has come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) synced: bool,
    pub(super) latest: u64,
    pub(super) list_started: Option<u64>,
    pub(super) interrupted: Option<Timestamp>,
}

/// What came of one event.
#[derive(Default)]
pub(super) struct Applied {
    pub(super) changes: Changes,
    /// The object that could not be read, with its key where it has one.
    pub(super) unreadable: Option<(Option<ObjectKey>, Unreadable)>,
}

impl From<Changes> for Applied {
    fn from(changes: Changes) -> Self {
        Self {
            changes,
            unreadable: None,
        }
    }
}

/// An object of a list: read, or uid and revision of what could not be read.
type Listed<R> = Result<R, (Arc<str>, u64)>;

#[derive(Debug)]
pub(super) struct Store<R> {
    entries: BTreeMap<ObjectKey, Entry<R>>,
    indexes: BTreeMap<&'static str, (Indexer<R>, IndexEntries)>,
    progress: Progress,
    /// The list being taken: when it began, and what it brought so far. The old state stays until it is complete.
    listing: Option<(u64, BTreeMap<ObjectKey, Listed<R>>)>,
    /// Objects whose newest version cannot be read: uid and revision of that version.
    unread: BTreeMap<ObjectKey, (Arc<str>, u64)>,
    deleted: BTreeSet<Arc<str>>,
    deleted_order: VecDeque<Arc<str>>,
}

impl<R> Default for Store<R> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            indexes: BTreeMap::new(),
            progress: Progress::default(),
            listing: None,
            unread: BTreeMap::new(),
            deleted: BTreeSet::new(),
            deleted_order: VecDeque::new(),
        }
    }
}

/// A store whose record type is not known at this point.
pub(super) trait AnyStore: Send + Sync {
    fn apply(&mut self, event: Event, seen: Seen) -> Applied;
    fn progress(&self) -> Progress;
    fn identity(&self, key: &ObjectKey) -> Option<(Arc<str>, u64)>;
    fn status_hash(&self, key: &ObjectKey) -> Option<CanonicalHash>;
    fn count(&self) -> usize;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<R: Record> AnyStore for Store<R> {
    fn apply(&mut self, event: Event, seen: Seen) -> Applied {
        match event {
            Event::ListStarted => self.listing = Some((seen.events, BTreeMap::new())),
            Event::Listed(object) => {
                let (read, unreadable) = split(record::read::<R>(&object), &object);
                let key = key_of(&object);
                if let (Some((_, listed)), Some(key)) = (&mut self.listing, &key) {
                    listed.insert(key.clone(), read);
                }
                return Applied {
                    changes: Vec::new(),
                    unreadable: unreadable.map(|problem| (key, problem)),
                };
            }
            Event::ListDone { revision } => return self.finish_list(revision, seen).into(),
            Event::Applied(object) => {
                let (read, unreadable) = split(record::read::<R>(&object), &object);
                let key = key_of(&object);
                let revision = match &read {
                    Ok(record) => record.meta().revision,
                    Err((_, revision)) => *revision,
                };
                if self.is_old(revision) {
                    return Applied::default();
                }
                self.progress.latest = self.progress.latest.max(revision);
                return Applied {
                    changes: key.clone().map(|key| self.take(key, read, seen)).unwrap_or_default(),
                    unreadable: unreadable.map(|problem| (key, problem)),
                };
            }
            // What a streaming list tells between its cached state and its end: the deletion is part of the list.
            Event::Deleted(object) if self.listing.is_some() => {
                if let (Some((_, listed)), Some(key)) = (&mut self.listing, key_of(&object)) {
                    listed.remove(&key);
                }
            }
            Event::Deleted(object) if self.is_old(version_of(&object).1) => {}
            Event::Deleted(object) => {
                self.progress.latest = self.progress.latest.max(version_of(&object).1);
                return key_of(&object).map(|key| self.remove(&key)).unwrap_or_default().into();
            }
            Event::Bookmark { revision } => self.progress.latest = self.progress.latest.max(revision),
            Event::Interrupted { at } => {
                self.progress.interrupted.get_or_insert(at);
            }
            Event::Resumed => self.progress.interrupted = None,
        }
        Applied::default()
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn identity(&self, key: &ObjectKey) -> Option<(Arc<str>, u64)> {
        let shown = |e: &Entry<R>| (e.record.meta().uid.clone(), e.record.meta().revision);
        self.unread
            .get(key)
            .cloned()
            .or_else(|| self.entries.get(key).map(shown))
    }

    fn status_hash(&self, key: &ObjectKey) -> Option<CanonicalHash> {
        self.entries.get(key)?.record.meta().status_hash.clone()
    }

    fn count(&self) -> usize {
        self.entries.len()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl<R: Record> Store<R> {
    pub(super) fn add_index(&mut self, name: &'static str, of: Indexer<R>) {
        debug_assert!(self.entries.is_empty(), "indexes are declared before the first event");
        self.indexes.insert(name, (of, IndexEntries::new()));
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Entry<R>> {
        self.entries.get(key)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<R>> {
        self.entries.values().map(|entry| &entry.record)
    }

    pub(super) fn by(&self, index: &'static str, namespace: &str, value: &str) -> impl Iterator<Item = &Arc<R>> {
        let keys = self
            .indexes
            .get(index)
            .and_then(|(_, entries)| entries.get(&(namespace.into(), value.into())));
        keys.into_iter()
            .flatten()
            .filter_map(|key| self.entries.get(key))
            .map(|entry| &entry.record)
    }

    pub(super) fn was_deleted(&self, uid: &str) -> bool {
        self.deleted.contains(uid)
    }

    /// Told before: a type's events come in the order of their revisions, so what is not newer than the last one is a
    /// repetition. Taken in, it would move the view back, and what is decided on must never have been true later (R21).
    fn is_old(&self, revision: u64) -> bool {
        self.listing.is_none() && revision != 0 && revision <= self.progress.latest
    }

    fn finish_list(&mut self, revision: u64, seen: Seen) -> Changes {
        let Some((started, listed)) = self.listing.take() else {
            return Vec::new();
        };
        let missing: Vec<ObjectKey> = self
            .entries
            .keys()
            .filter(|key| !listed.contains_key(*key))
            .cloned()
            .collect();
        let mut changes = Vec::new();
        for key in missing {
            changes.extend(self.remove(&key));
        }
        self.unread.clear();
        for (key, read) in listed {
            changes.extend(self.take(key, read, seen));
        }
        // A list is the truth even where its revision is lower than what we saw (a restored etcd).
        self.progress = Progress {
            synced: true,
            latest: revision,
            list_started: Some(started),
            interrupted: None,
        };
        changes
    }

    /// Takes in one object. Of one that cannot be read the last record stays: it exists, and what it held it still
    /// holds. Unless that record is of another incarnation, which is gone.
    fn take(&mut self, key: ObjectKey, read: Listed<R>, seen: Seen) -> Changes {
        match read {
            Ok(record) => {
                self.unread.remove(&key);
                self.put(record, seen)
            }
            Err((uid, revision)) => {
                let shown = self.entries.get(&key);
                let stranger = shown.is_some_and(|entry| entry.record.meta().uid != uid);
                let changes = if stranger { self.remove(&key) } else { Vec::new() };
                self.unread.insert(key, (uid, revision));
                changes
            }
        }
    }

    fn put(&mut self, record: R, seen: Seen) -> Changes {
        let key = record.meta().key.clone();
        let old = self
            .entries
            .get(&key)
            .map(|e| (e.record.clone(), (e.first_seen, e.at_nanos)));
        let mut changes = Vec::new();
        let nanos = u64::try_from(seen.at.since(Moment::START).as_nanos()).unwrap_or(u64::MAX);
        let now = (seen.events, nanos);
        let (old, (first_seen, at_nanos)) = match old {
            Some((old, _)) if *old == record => return changes,
            Some((old, since)) if old.meta().uid == record.meta().uid => (Some(old), since),
            Some(_) => {
                // Deleted and created anew between two looks: two changes, so that nobody mistakes one for the other.
                changes = self.remove(&key);
                (None, now)
            }
            None => (None, now),
        };
        if let Some(old) = &old {
            self.unindex(old);
        }
        let new = Arc::new(record);
        for (of, entries) in self.indexes.values_mut() {
            for value in of(&new) {
                entries
                    .entry((key.namespace().into(), value))
                    .or_default()
                    .insert(key.clone());
            }
        }
        self.entries.insert(
            key.clone(),
            Entry {
                record: new.clone(),
                first_seen,
                changed: seen.events,
                at_nanos,
            },
        );
        changes.push((key, Box::new(Change { old, new: Some(new) })));
        changes
    }

    fn remove(&mut self, key: &ObjectKey) -> Changes {
        self.unread.remove(key);
        let Some(entry) = self.entries.remove(key) else {
            return Vec::new();
        };
        self.unindex(&entry.record);
        let uid = entry.record.meta().uid.clone();
        if self.deleted.insert(uid.clone()) {
            self.deleted_order.push_back(uid);
        }
        while self.deleted_order.len() > DELETIONS_REMEMBERED {
            if let Some(oldest) = self.deleted_order.pop_front() {
                self.deleted.remove(&oldest);
            }
        }
        vec![(
            key.clone(),
            Box::new(Change {
                old: Some(entry.record),
                new: None,
            }),
        )]
    }

    fn unindex(&mut self, record: &R) {
        let key = &record.meta().key;
        for (of, entries) in self.indexes.values_mut() {
            for value in of(record) {
                let at = (key.namespace().into(), value);
                if let Some(keys) = entries.get_mut(&at) {
                    keys.remove(key);
                    if keys.is_empty() {
                        entries.remove(&at);
                    }
                }
            }
        }
    }
}

fn key_of(object: &DynamicObject) -> Option<ObjectKey> {
    ObjectKey::new(object.metadata.namespace.as_deref()?, object.metadata.name.as_deref()?).ok()
}

/// Uid and revision, as far as the object has them.
fn version_of(object: &DynamicObject) -> (Arc<str>, u64) {
    let revision = object.metadata.resource_version.as_deref().and_then(|v| v.parse().ok());
    (
        object.metadata.uid.as_deref().unwrap_or_default().into(),
        revision.unwrap_or(0),
    )
}

fn split<R>(read: Result<R, Unreadable>, object: &DynamicObject) -> (Listed<R>, Option<Unreadable>) {
    match read {
        Ok(record) => (Ok(record), None),
        Err(problem) => (Err(version_of(object)), Some(problem)),
    }
}
