//! Records of one type, with their indexes, in a fixed order.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::DynamicObject;
use usher_engine::hash::CanonicalHash;
use usher_engine::{Moment, ObjectKey, Text, Uid};

use super::Event;
use super::index::{ByKey, Index, Indexer, Keyed};
use crate::record::{self, Alike, Record, Unreadable};

/// How many deletions are remembered by uid. Past that, whoever needs to know asks the API server; the number only
/// bounds memory (about 6 MB).
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

impl Seen {
    fn nanos(self) -> u64 {
        u64::try_from(self.at.since(Moment::START).as_nanos()).unwrap_or(u64::MAX)
    }
}

impl<R: Record> Keyed for Entry<R> {
    fn key(&self) -> &ObjectKey {
        &self.record.meta().key
    }
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

/// A change with the key it concerns.
pub(super) struct Changed {
    pub(super) key: ObjectKey,
    /// A `Change<R>`.
    pub(super) change: Box<dyn Any>,
    /// The status says something else than before.
    pub(super) restated: bool,
}

impl Changed {
    fn new<R: Record>(change: Change<R>) -> Option<Self> {
        let status = |record: &Arc<R>| record.meta().status_hash;
        Some(Self {
            key: change.latest()?.meta().key.clone(),
            restated: matches!((&change.old, &change.new), (Some(old), Some(new)) if status(old) != status(new)),
            change: Box::new(change),
        })
    }
}

pub(super) type Changes = Vec<Changed>;

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
    /// A list filled the empty store: all there is is new, and none of it is among the changes.
    pub(super) filled: bool,
    /// The object that could not be read, with its key where it has one.
    pub(super) unreadable: Option<(Option<ObjectKey>, Unreadable)>,
}

impl From<Changes> for Applied {
    fn from(changes: Changes) -> Self {
        Self {
            changes,
            ..Self::default()
        }
    }
}

/// Uid and revision of a version that could not be read.
type Version = (Uid, u64);

/// An object of a list.
#[derive(Debug)]
enum Listed<R> {
    Read(Arc<R>),
    Unread(Box<(ObjectKey, Version)>),
}

impl<R: Record> Keyed for Listed<R> {
    fn key(&self) -> &ObjectKey {
        match self {
            Listed::Read(record) => &record.meta().key,
            Listed::Unread(unread) => &unread.0,
        }
    }
}

#[derive(Debug)]
pub(super) struct Store<R> {
    entries: BTreeSet<ByKey<Entry<R>>>,
    indexes: BTreeMap<&'static str, Index<R>>,
    progress: Progress,
    /// The list being taken: when it began, and what it brought so far. The old state stays until it is complete.
    listing: Option<(u64, BTreeSet<ByKey<Listed<R>>>)>,
    /// Objects whose newest version cannot be read.
    unread: BTreeMap<ObjectKey, Version>,
    deleted: BTreeSet<Uid>,
    deleted_order: VecDeque<Uid>,
    alike: Alike,
}

impl<R> Default for Store<R> {
    fn default() -> Self {
        Self {
            entries: BTreeSet::new(),
            indexes: BTreeMap::new(),
            progress: Progress::default(),
            listing: None,
            unread: BTreeMap::new(),
            deleted: BTreeSet::new(),
            deleted_order: VecDeque::new(),
            alike: Alike::default(),
        }
    }
}

/// A store whose record type is not known at this point.
pub(super) trait AnyStore: Send + Sync {
    fn apply(&mut self, event: Event, seen: Seen) -> Applied;
    /// The next records after this key, as if they were new; at most so many.
    fn from(&self, after: Option<&ObjectKey>, most: usize) -> Changes;
    fn progress(&self) -> Progress;
    fn identity(&self, key: &ObjectKey) -> Option<(Uid, u64)>;
    fn status_hash(&self, key: &ObjectKey) -> Option<CanonicalHash>;
    fn count(&self) -> usize;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<R: Record> AnyStore for Store<R> {
    fn apply(&mut self, event: Event, seen: Seen) -> Applied {
        match event {
            Event::ListStarted => self.listing = Some((seen.events, BTreeSet::new())),
            Event::Listed(object) => {
                let (read, unreadable) = read::<R>(&object, &mut self.alike);
                if let (Some((_, listed)), Some(read)) = (&mut self.listing, read) {
                    listed.replace(ByKey(read));
                }
                return Applied {
                    unreadable,
                    ..Applied::default()
                };
            }
            Event::ListDone { revision } => return self.finish_list(revision, seen),
            Event::Applied(object) => {
                let (read, unreadable) = read::<R>(&object, &mut self.alike);
                let revision = match &read {
                    Some(Listed::Read(record)) => record.meta().revision,
                    _ => version_of(&object).1,
                };
                if self.is_old(revision) {
                    return Applied::default();
                }
                self.progress.latest = self.progress.latest.max(revision);
                return Applied {
                    changes: read.map(|read| self.take(read, seen)).unwrap_or_default(),
                    unreadable,
                    filled: false,
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

    fn from(&self, after: Option<&ObjectKey>, most: usize) -> Changes {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.entries.range::<ObjectKey, _>((from, Bound::Unbounded)).take(most);
        let new = |entry: &Entry<R>| Some(entry.record.clone());
        next.filter_map(|ByKey(entry)| {
            Changed::new(Change {
                old: None,
                new: new(entry),
            })
        })
        .collect()
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn identity(&self, key: &ObjectKey) -> Option<(Uid, u64)> {
        let shown = |e: &Entry<R>| (e.record.meta().uid.clone(), e.record.meta().revision);
        self.unread.get(key).cloned().or_else(|| self.get(key).map(shown))
    }

    fn status_hash(&self, key: &ObjectKey) -> Option<CanonicalHash> {
        self.get(key)?.record.meta().status_hash
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
        self.indexes.insert(name, Index::new(of));
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Entry<R>> {
        self.entries.get(key).map(|ByKey(entry)| entry)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<R>> {
        self.entries.iter().map(|ByKey(entry)| &entry.record)
    }

    pub(super) fn by<'s>(
        &'s self,
        index: &'static str,
        namespace: &'s str,
        value: Text,
    ) -> impl Iterator<Item = &'s Arc<R>> {
        let index = self.indexes.get(index);
        index
            .into_iter()
            .flat_map(move |index| index.get(namespace, value.clone()))
    }

    pub(super) fn was_deleted(&self, uid: &Uid) -> bool {
        self.deleted.contains(uid)
    }

    /// Told before: a type's events come in the order of their revisions, so what is not newer than the last one is a
    /// repetition. Taken in, it would move the view back, and what is decided on must never have been true later (R21).
    fn is_old(&self, revision: u64) -> bool {
        self.listing.is_none() && revision != 0 && revision <= self.progress.latest
    }

    fn finish_list(&mut self, revision: u64, seen: Seen) -> Applied {
        let Some((started, listed)) = self.listing.take() else {
            return Applied::default();
        };
        self.unread.clear();
        let filled = self.entries.is_empty();
        let changes = if filled {
            self.fill(listed, seen);
            Changes::new()
        } else {
            self.compare(listed, seen)
        };
        // A list is the truth even where its revision is lower than what we saw (a restored etcd).
        self.progress = Progress {
            synced: true,
            latest: revision,
            list_started: Some(started),
            interrupted: None,
        };
        Applied {
            changes,
            filled,
            unreadable: None,
        }
    }

    /// Nothing was there: everything is built in one go, which is quick and wastes no room.
    fn fill(&mut self, listed: BTreeSet<ByKey<Listed<R>>>, seen: Seen) {
        let mut entries = Vec::with_capacity(listed.len());
        for ByKey(listed) in listed {
            match listed {
                Listed::Read(record) => entries.push(ByKey(Entry {
                    record,
                    first_seen: seen.events,
                    changed: seen.events,
                    at_nanos: seen.nanos(),
                })),
                Listed::Unread(unread) => drop(self.unread.insert(unread.0, unread.1)),
            }
        }
        self.entries = entries.into_iter().collect();
        for index in self.indexes.values_mut() {
            index.fill(self.entries.iter().map(|ByKey(entry)| &entry.record));
        }
    }

    fn compare(&mut self, listed: BTreeSet<ByKey<Listed<R>>>, seen: Seen) -> Changes {
        let missing: Vec<ObjectKey> = self
            .entries
            .iter()
            .map(|ByKey(entry)| entry.key())
            .filter(|key| !listed.contains(*key))
            .cloned()
            .collect();
        let mut changes = Vec::new();
        for key in missing {
            changes.extend(self.remove(&key));
        }
        for ByKey(read) in listed {
            changes.extend(self.take(read, seen));
        }
        changes
    }

    /// Takes in one object. Of one that cannot be read the last record stays: it exists, and what it held it still
    /// holds. Unless that record is of another incarnation, which is gone.
    fn take(&mut self, read: Listed<R>, seen: Seen) -> Changes {
        match read {
            Listed::Read(record) => {
                self.unread.remove(&record.meta().key);
                self.put(record, seen)
            }
            Listed::Unread(unread) => {
                let (key, version) = *unread;
                let shown = self.get(&key);
                let stranger = shown.is_some_and(|entry| entry.record.meta().uid != version.0);
                let changes = if stranger { self.remove(&key) } else { Vec::new() };
                self.unread.insert(key, version);
                changes
            }
        }
    }

    fn put(&mut self, new: Arc<R>, seen: Seen) -> Changes {
        let key = new.meta().key.clone();
        let old = self.get(&key).map(|e| (e.record.clone(), (e.first_seen, e.at_nanos)));
        let mut changes = Vec::new();
        let now = (seen.events, seen.nanos());
        let (old, (first_seen, at_nanos)) = match old {
            Some((old, _)) if *old == *new => return changes,
            Some((old, since)) if old.meta().uid == new.meta().uid => (Some(old), since),
            Some(_) => {
                // Deleted and created anew between two looks: two changes, so that nobody mistakes one for the other.
                changes = self.remove(&key);
                (None, now)
            }
            None => (None, now),
        };
        for index in self.indexes.values_mut() {
            if let Some(old) = &old {
                index.remove(old);
            }
            index.insert(&new);
        }
        self.entries.replace(ByKey(Entry {
            record: new.clone(),
            first_seen,
            changed: seen.events,
            at_nanos,
        }));
        changes.extend(Changed::new(Change { old, new: Some(new) }));
        changes
    }

    fn remove(&mut self, key: &ObjectKey) -> Changes {
        self.unread.remove(key);
        let Some(ByKey(entry)) = self.entries.take(key) else {
            return Vec::new();
        };
        for index in self.indexes.values_mut() {
            index.remove(&entry.record);
        }
        let uid = entry.record.meta().uid.clone();
        if self.deleted.insert(uid.clone()) {
            self.deleted_order.push_back(uid);
        }
        while self.deleted_order.len() > DELETIONS_REMEMBERED {
            if let Some(oldest) = self.deleted_order.pop_front() {
                self.deleted.remove(&oldest);
            }
        }
        let gone = Change {
            old: Some(entry.record),
            new: None,
        };
        Changed::new(gone).into_iter().collect()
    }
}

fn key_of(object: &DynamicObject) -> Option<ObjectKey> {
    ObjectKey::new(object.metadata.namespace.as_deref()?, object.metadata.name.as_deref()?).ok()
}

/// Uid and revision, as far as the object has them.
fn version_of(object: &DynamicObject) -> (Uid, u64) {
    let revision = object.metadata.resource_version.as_deref().and_then(|v| v.parse().ok());
    (
        object.metadata.uid.as_deref().unwrap_or_default().into(),
        revision.unwrap_or(0),
    )
}

/// An object that could not be read, with its key where it has one.
type Problem = (Option<ObjectKey>, Unreadable);

/// Reads an object, as far as it can be told from others, and says what is wrong with it.
fn read<R: Record>(object: &DynamicObject, alike: &mut Alike) -> (Option<Listed<R>>, Option<Problem>) {
    match record::read_among::<R>(object, alike) {
        Ok(record) => (Some(Listed::Read(Arc::new(record))), None),
        Err(problem) => {
            let key = key_of(object);
            let unread = key
                .clone()
                .map(|key| Listed::Unread(Box::new((key, version_of(object)))));
            (unread, Some((key, problem)))
        }
    }
}
