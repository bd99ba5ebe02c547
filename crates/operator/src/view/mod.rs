//! The view: this operator's watch-fed copy of the objects it reads.
//!
//! A plain value without clock, task or lock of its own. Everything enters through one door, [`View::apply`], in watch
//! order; the simulator uses the same door. For each type the view is that type's whole state at some revision, never
//! anything later: the answer of our own write is not part of it, its watch echo is.
//!
//! Beside the records, a kind may keep a value *derived* from them (an address map, say), which is fed by the same
//! events in the same order, so the two never disagree.

mod index;
mod store;

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, btree_map};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::DynamicObject;
use usher_engine::hash::CanonicalHash;
use usher_engine::{Moment, ObjectKey, Text, Uid};

use crate::queue::Why;
use crate::record::{ApiType, Record, Unreadable};
pub use index::{Index, Indexer};
use store::{AnyStore, Changes, Seen, Store};
pub use store::{Change, Entry};

/// What a watch brings.
#[derive(Debug, Clone)]
pub enum Event {
    /// A list begins; what follows until [`Event::ListDone`] is the whole state.
    ListStarted,
    /// One object of that list.
    Listed(Box<DynamicObject>),
    /// The list is complete at this revision.
    ListDone {
        /// The list's resourceVersion.
        revision: u64,
    },
    /// An object was created or changed.
    Applied(Box<DynamicObject>),
    /// An object is gone.
    Deleted(Box<DynamicObject>),
    /// Nothing happened up to this revision.
    Bookmark {
        /// The bookmark's resourceVersion.
        revision: u64,
    },
    /// The watch broke; the view is as old as this.
    Interrupted {
        /// When, by this process's clock.
        at: Timestamp,
    },
    /// The watch runs again.
    Resumed,
}

/// A resource to be looked at: which kind's queue, which key, why, and after how long.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wake {
    /// Name of the kind ([`crate::Kind::NAME`]).
    pub kind: &'static str,
    /// Which resource.
    pub key: ObjectKey,
    /// For metrics and logs.
    pub why: Why,
    /// Not before this long from now.
    pub after: Duration,
}

impl Wake {
    /// Now.
    pub fn now(kind: &'static str, key: ObjectKey, why: Why) -> Self {
        Self {
            kind,
            key,
            why,
            after: Duration::ZERO,
        }
    }

    /// Later.
    pub fn after(kind: &'static str, key: ObjectKey, why: Why, after: Duration) -> Self {
        Self { kind, key, why, after }
    }
}

/// What came of one event.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Who must look.
    pub wakes: Vec<Wake>,
    /// Objects that changed, vanished or could not be read: what read-your-own-writes waits for.
    pub touched: Vec<ObjectKey>,
    /// Those among them whose status says something else than before, by whomever it was written.
    pub restated: Vec<ObjectKey>,
    /// The whole type moved on (list, bookmark): everybody who waits for it may look.
    pub advanced: bool,
    /// An object that could not be read.
    pub unreadable: Option<Unreadable>,
}

type Handler = Arc<dyn Fn(&mut View, &dyn Any) -> Vec<Wake> + Send + Sync>;

/// How much of a first list is looked at in one go. A start finds hundreds of thousands of objects, of which hardly any
/// needs anything: their wakes at once would weigh more than the objects.
pub const SLICE: usize = 1_000;

/// See the module's header.
#[derive(Default)]
pub struct View {
    stores: BTreeMap<ApiType, Box<dyn AnyStore>>,
    feeders: BTreeMap<ApiType, Vec<Handler>>,
    mappers: BTreeMap<ApiType, Vec<Handler>>,
    derived: BTreeMap<TypeId, Box<dyn Any + Send + Sync>>,
    /// In the order kinds asked for them; lists are taken in this order at start.
    order: Vec<ApiType>,
    /// Types of whose first list not everything was looked at yet, each with the last key that was.
    backlog: Vec<(ApiType, ObjectKey)>,
    /// Counts events: a clock of what this process has seen, see [`View::absent_for_good`].
    seen: u64,
    /// The time, as far as anybody told.
    now: Moment,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View")
            .field("types", &self.order)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

/// Declares what is kept of one type; see [`View::watch`].
#[derive(Debug)]
pub struct Watching<'v, R: Record> {
    view: &'v mut View,
    _record: std::marker::PhantomData<fn() -> R>,
}

impl<R: Record> Watching<'_, R> {
    /// Finds records by a value of theirs within a namespace. The index's name is part of its type's contract.
    #[must_use]
    pub fn index(self, name: &'static str, of: fn(&R) -> Vec<Text>) -> Self {
        if let Some(store) = self.view.store_mut::<R>() {
            store.add_index(name, of as Indexer<R>);
        }
        self
    }

    /// Feeds a derived value with every change, before anybody is woken by it.
    #[must_use]
    pub fn ingest<D: Default + Send + Sync + 'static>(self, apply: fn(&mut D, &Change<R>)) -> Self {
        self.view
            .derived
            .entry(TypeId::of::<D>())
            .or_insert_with(|| Box::new(D::default()));
        let handler = Self::handler(move |view, change| {
            if let Some(derived) = view.derived_mut::<D>() {
                apply(derived, change);
            }
            Vec::new()
        });
        self.view.feeders.entry(R::TYPE).or_default().push(handler);
        self
    }

    /// Says who is woken by a change. Mappers are pure and total; they see the view after the change.
    #[must_use]
    pub fn wake(self, map: fn(&View, &Change<R>) -> Vec<Wake>) -> Self {
        let handler = Self::handler(move |view, change| map(view, change));
        self.view.mappers.entry(R::TYPE).or_default().push(handler);
        self
    }

    fn handler(act: impl Fn(&mut View, &Change<R>) -> Vec<Wake> + Send + Sync + 'static) -> Handler {
        Arc::new(move |view, change| match change.downcast_ref::<Change<R>>() {
            Some(change) => act(view, change),
            None => Vec::new(),
        })
    }
}

impl View {
    /// Starts to keep records of a type. Calling it again for the same type adds to what is kept.
    pub fn watch<R: Record>(&mut self) -> Watching<'_, R> {
        if let btree_map::Entry::Vacant(vacant) = self.stores.entry(R::TYPE) {
            vacant.insert(Box::new(Store::<R>::default()));
            self.order.push(R::TYPE);
        }
        Watching {
            view: self,
            _record: std::marker::PhantomData,
        }
    }

    /// Keeps a value beside the records that only in-memory steps change.
    pub fn keep<D: Default + Send + Sync + 'static>(&mut self) {
        self.derived
            .entry(TypeId::of::<D>())
            .or_insert_with(|| Box::new(D::default()));
    }

    /// The types kept, in the order they are to be listed at start.
    pub fn types(&self) -> &[ApiType] {
        &self.order
    }

    /// Says what time it is: records that are first seen from here on are dated with it ([`Entry::since`]).
    pub fn tell_time(&mut self, now: Moment) {
        self.now = self.now.max(now);
    }

    /// The one door in: applies one watch event of one type and says who must look. Of a long first list, those at its
    /// beginning; [`View::next_slice`] tells the rest.
    pub fn apply(&mut self, kind: ApiType, event: Event) -> Outcome {
        self.seen += 1;
        let seen = self.seen;
        let mut outcome = Outcome {
            advanced: matches!(event, Event::ListDone { .. } | Event::Bookmark { .. }),
            ..Outcome::default()
        };
        let Some(store) = self.stores.get_mut(&kind) else {
            return outcome;
        };
        let applied = store.apply(
            event,
            Seen {
                events: seen,
                at: self.now,
            },
        );
        if let Some((key, problem)) = applied.unreadable {
            outcome.unreadable = Some(problem);
            outcome.touched.extend(key);
        }
        // First everything derived, then whom it concerns: no mapper sees a derived value behind the records.
        if applied.filled {
            let mut last = None;
            while let Some(next) = self.slice(kind, last.as_ref()) {
                self.handle(&self.feeders.get(&kind).cloned().unwrap_or_default(), &next);
                outcome.touched.extend(next.iter().map(|changed| changed.key.clone()));
                last = next.last().map(|changed| changed.key.clone());
            }
            self.backlog.retain(|(listed, _)| *listed != kind);
            outcome.wakes = self.look(kind, None);
            return outcome;
        }
        self.handle(&self.feeders.get(&kind).cloned().unwrap_or_default(), &applied.changes);
        let mappers = self.mappers.get(&kind).cloned().unwrap_or_default();
        outcome.wakes = self.handle(&mappers, &applied.changes);
        let restated = applied.changes.iter().filter(|changed| changed.restated);
        outcome.restated = restated.map(|changed| changed.key.clone()).collect();
        outcome
            .touched
            .extend(applied.changes.into_iter().map(|changed| changed.key));
        outcome
    }

    /// More of the first lists: who must look at the next slice of what they brought. `None` when all is told. What has
    /// changed since then was told when it did.
    pub fn next_slice(&mut self) -> Option<Vec<Wake>> {
        let (kind, after) = self.backlog.pop()?;
        Some(self.look(kind, Some(&after)))
    }

    /// Calls the mappers on the next slice, and notes where it ended if there is more.
    fn look(&mut self, kind: ApiType, after: Option<&ObjectKey>) -> Vec<Wake> {
        let Some(next) = self.slice(kind, after) else {
            return Vec::new();
        };
        if let (SLICE, Some(last)) = (next.len(), next.last()) {
            self.backlog.push((kind, last.key.clone()));
        }
        self.handle(&self.mappers.get(&kind).cloned().unwrap_or_default(), &next)
    }

    /// The next records of a type, as new ones; `None` behind the last.
    fn slice(&self, kind: ApiType, after: Option<&ObjectKey>) -> Option<Changes> {
        let next = self.stores.get(&kind)?.from(after, SLICE);
        (!next.is_empty()).then_some(next)
    }

    fn handle(&mut self, handlers: &[Handler], changes: &Changes) -> Vec<Wake> {
        let mut wakes = Vec::new();
        for changed in changes {
            for handler in handlers {
                wakes.extend(handler(self, &*changed.change));
            }
        }
        wakes
    }

    /// One record.
    pub fn get<R: Record>(&self, key: &ObjectKey) -> Option<&Arc<R>> {
        self.store::<R>()?.get(key).map(|entry| &entry.record)
    }

    /// One record with when it was first seen.
    pub fn entry<R: Record>(&self, key: &ObjectKey) -> Option<&Entry<R>> {
        self.store::<R>()?.get(key)
    }

    /// How long ago this incarnation of an object was first seen, by the time that was told last.
    pub fn known_for<R: Record>(&self, key: &ObjectKey) -> Duration {
        self.entry::<R>(key)
            .map_or(Duration::ZERO, |entry| self.now.since(entry.since()))
    }

    /// All records of a type, by namespace and name.
    pub fn all<R: Record>(&self) -> impl Iterator<Item = &Arc<R>> {
        self.store::<R>().into_iter().flat_map(Store::all)
    }

    /// Records by an index's value within a namespace, by name.
    pub fn by<'v, R: Record>(
        &'v self,
        index: &'static str,
        namespace: &'v str,
        value: Text,
    ) -> impl Iterator<Item = &'v Arc<R>> {
        self.store::<R>()
            .into_iter()
            .flat_map(move |store| store.by(index, namespace, value.clone()))
    }

    /// The value derived from the records; `None` only if no type feeds it.
    pub fn derived<D: Send + Sync + 'static>(&self) -> Option<&D> {
        self.derived.get(&TypeId::of::<D>())?.downcast_ref()
    }

    /// The derived value, to be changed by an in-memory step.
    pub fn derived_mut<D: Send + Sync + 'static>(&mut self) -> Option<&mut D> {
        self.derived.get_mut(&TypeId::of::<D>())?.downcast_mut()
    }

    /// Types whose first list is not complete yet.
    pub fn unsynced(&self) -> Vec<ApiType> {
        self.order
            .iter()
            .filter(|t| !self.stores.get(t).is_some_and(|s| s.progress().synced))
            .copied()
            .collect()
    }

    /// Since when the oldest broken watch is broken.
    pub fn interrupted_since(&self) -> Option<Timestamp> {
        self.stores.values().filter_map(|s| s.progress().interrupted).min()
    }

    /// Whether the view has seen everything of this type up to `revision`, or everything a list that began after
    /// event `after` contains.
    pub fn has_seen(&self, kind: ApiType, revision: u64, after: u64) -> bool {
        self.stores.get(&kind).is_some_and(|s| {
            let progress = s.progress();
            progress.latest >= revision || progress.list_started.is_some_and(|started| started > after)
        })
    }

    /// Uid and revision of an object, whatever its type; of the newest version, also where that cannot be read.
    pub fn identity(&self, kind: ApiType, key: &ObjectKey) -> Option<(Uid, u64)> {
        self.stores.get(&kind)?.identity(key)
    }

    /// Hash of an object's status, whatever its type.
    pub(crate) fn status_hash(&self, kind: ApiType, key: &ObjectKey) -> Option<CanonicalHash> {
        self.stores.get(&kind)?.status_hash(key)
    }

    /// How many events this view has taken in.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Whether the object `key` of incarnation `uid`, which existed before event `since`, is gone for good.
    ///
    /// Absence alone proves nothing: another type's watch may be ahead of this one's. It is proof if its deletion was
    /// seen, or if a list that began after `since` did not bring it.
    pub fn absent_for_good<R: Record>(&self, key: &ObjectKey, uid: &Uid, since: u64) -> bool {
        let Some(store) = self.store::<R>() else { return false };
        match store.identity(key) {
            // It is there, whether or not it can be read.
            Some((present, _)) if present == *uid => false,
            _ => store.was_deleted(uid) || store.progress().list_started.is_some_and(|started| started > since),
        }
    }

    /// Number of records of each type, for metrics.
    pub fn counts(&self) -> impl Iterator<Item = (ApiType, usize)> {
        self.stores.iter().map(|(kind, store)| (*kind, store.count()))
    }

    fn store<R: Record>(&self) -> Option<&Store<R>> {
        self.stores.get(&R::TYPE)?.as_any().downcast_ref()
    }

    fn store_mut<R: Record>(&mut self) -> Option<&mut Store<R>> {
        self.stores.get_mut(&R::TYPE)?.as_any_mut().downcast_mut()
    }
}
