//! What the view should be, worked out the slow way, and the comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use usher_engine::{ObjectKey, Text, Uid};
use usher_operator::queue::Why;
use usher_operator::record::Record;
use usher_operator::view::{Change, View, Wake};

use super::world::{Object, TYPES, Thing, Told, World};

pub const BY_GROUP: &str = "group";

/// An object version as changes speak of it: uid and revision.
type Version = (Uid, u64);
/// Key, what it was, what it is.
type Seen = (usize, ObjectKey, Option<Version>, Option<Version>);

/// Every change in the order it came.
#[derive(Debug, Default)]
pub struct Journal(Vec<Seen>);

/// Number of records and sum of their values per type and group.
#[derive(Debug, Default, PartialEq)]
pub struct Tally(BTreeMap<(usize, Text), (i64, i64)>);

impl Tally {
    fn add<const T: usize>(&mut self, thing: &Thing<T>, sign: i64) {
        for group in &thing.groups {
            let entry = self.0.entry((T, group.clone())).or_default();
            entry.0 += sign;
            entry.1 += sign * i64::try_from(thing.value).unwrap();
            if *entry == (0, 0) {
                self.0.remove(&(T, group.clone()));
            }
        }
    }

    pub fn recount(view: &View) -> Self {
        let mut tally = Self::default();
        view.all::<Thing<0>>().for_each(|thing| tally.add(thing, 1));
        view.all::<Thing<1>>().for_each(|thing| tally.add(thing, 1));
        tally
    }
}

fn version<const T: usize>(thing: &Arc<Thing<T>>) -> Version {
    (thing.meta.uid.clone(), thing.meta.revision)
}

fn note<const T: usize>(journal: &mut Journal, change: &Change<Thing<T>>) {
    let key = change.latest().unwrap().meta.key.clone();
    journal.0.push((
        T,
        key,
        change.old.as_ref().map(version),
        change.new.as_ref().map(version),
    ));
}

fn count<const T: usize>(tally: &mut Tally, change: &Change<Thing<T>>) {
    if let Some(old) = &change.old {
        tally.add(old, -1);
    }
    if let Some(new) = &change.new {
        tally.add(new, 1);
    }
}

/// Wakes the object itself; a mapper that sees a derived value behind the records says so.
fn wake<const T: usize>(view: &View, change: &Change<Thing<T>>) -> Vec<Wake> {
    let key = change.latest().unwrap().meta.key.clone();
    let agrees = view.derived::<Tally>() == Some(&Tally::recount(view));
    let why = if agrees {
        Why::UPDATE
    } else {
        Why("the derived value is behind the records")
    };
    vec![Wake::now(TYPES[T].kind, key, why)]
}

fn groups<const T: usize>(thing: &Thing<T>) -> Vec<Text> {
    thing.groups.clone()
}

/// A view with indexes, mappers and derived values on both types. One type declares its mapper before what it feeds.
pub fn view() -> View {
    let mut view = View::default();
    let _ = view
        .watch::<Thing<0>>()
        .index(BY_GROUP, groups)
        .ingest::<Journal>(note)
        .ingest::<Tally>(count)
        .wake(wake);
    let _ = view
        .watch::<Thing<1>>()
        .wake(wake)
        .index(BY_GROUP, groups)
        .ingest::<Journal>(note)
        .ingest::<Tally>(count);
    view
}

/// The view and its expected contents.
pub struct Shadow {
    pub view: View,
    shown: [BTreeMap<ObjectKey, Object>; 2],
    listing: [Option<BTreeMap<ObjectKey, Object>>; 2],
    synced: [bool; 2],
    interrupted: [bool; 2],
}

impl Shadow {
    pub fn new() -> Self {
        Self {
            view: view(),
            shown: Default::default(),
            listing: Default::default(),
            synced: [false; 2],
            interrupted: [false; 2],
        }
    }

    /// Tells both, and compares them in every respect.
    pub fn tell(&mut self, of: usize, told: &Told) -> Result<(), TestCaseError> {
        let before = self.shown[of].clone();
        self.expect(of, told);
        let journal = self.view.derived::<Journal>().unwrap().0.len();
        let outcome = self.view.apply(TYPES[of], told.event());

        let nonsense = matches!(told, Told::Listed(o) | Told::Applied(o) if !o.content.readable);
        prop_assert_eq!(outcome.unreadable.is_some(), nonsense, "{:?}", told);
        prop_assert_eq!(outcome.advanced, matches!(told, Told::Done(_) | Told::Bookmark(_)));
        for wake in &outcome.wakes {
            prop_assert_eq!(wake.why, Why::UPDATE, "{:?}", told);
        }
        let news = &self.view.derived::<Journal>().unwrap().0[journal..];
        prop_assert_eq!(news.len(), outcome.wakes.len(), "every change is mapped once");
        changes(of, &before, &self.shown[of], news)?;
        for (_, key, ..) in news {
            prop_assert!(outcome.touched.contains(key));
        }
        self.compare::<0>()?;
        self.compare::<1>()?;
        prop_assert_eq!(self.view.derived::<Tally>(), Some(&Tally::recount(&self.view)));
        let unsynced: Vec<_> = (0..2).filter(|of| !self.synced[*of]).map(|of| TYPES[of]).collect();
        prop_assert_eq!(self.view.unsynced(), unsynced);
        let interrupted = self.view.interrupted_since().is_some();
        prop_assert_eq!(interrupted, self.interrupted.contains(&true));
        Ok(())
    }

    /// Whether the type shows exactly the world at `cursor`, and claims to have seen exactly that much.
    pub fn shows(&self, world: &World, of: usize, cursor: Option<u64>) -> Result<(), TestCaseError> {
        let at: BTreeMap<_, _> = match cursor {
            Some(cursor) => world.at(of, cursor).into_iter().map(|((_, key), o)| (key, o)).collect(),
            None => BTreeMap::new(),
        };
        prop_assert_eq!(&at, &self.shown[of]);
        for revision in 1..=world.revision + 1 {
            let claimed = self.view.has_seen(TYPES[of], revision, u64::MAX);
            prop_assert_eq!(
                claimed,
                cursor.is_some_and(|cursor| revision <= cursor),
                "revision {}",
                revision
            );
        }
        Ok(())
    }

    fn expect(&mut self, of: usize, told: &Told) {
        let shown = &mut self.shown[of];
        match told {
            Told::Started => self.listing[of] = Some(BTreeMap::new()),
            Told::Listed(object) => {
                if let Some(listing) = &mut self.listing[of] {
                    listing.insert(object.key.clone(), object.clone());
                }
            }
            Told::Deleted(object) if self.listing[of].is_some() => {
                self.listing[of].as_mut().unwrap().remove(&object.key);
            }
            Told::Deleted(object) => drop(shown.remove(&object.key)),
            Told::Done(_) => {
                let listed = self.listing[of].take().unwrap();
                shown.retain(|key, _| listed.contains_key(key));
                listed.into_values().for_each(|object| put(shown, object));
                (self.synced[of], self.interrupted[of]) = (true, false);
            }
            Told::Applied(object) => put(shown, object.clone()),
            Told::Bookmark(_) => {}
            Told::Interrupted => self.interrupted[of] = true,
            Told::Resumed => self.interrupted[of] = false,
        }
    }

    fn compare<const T: usize>(&self) -> Result<(), TestCaseError> {
        let shown: Vec<&Object> = self.shown[T].values().collect();
        let all: Vec<_> = self.view.all::<Thing<T>>().collect();
        let keys: Vec<_> = all.iter().map(|thing| &thing.meta.key).collect();
        prop_assert_eq!(
            keys,
            shown.iter().map(|o| &o.key).collect::<Vec<_>>(),
            "by namespace and name"
        );
        for (object, thing) in shown.iter().zip(all) {
            let read = Thing::<T>::read(thing.meta.clone(), &object.dynamic());
            prop_assert_eq!(read.as_ref(), Ok(&**thing));
            prop_assert_eq!(
                (object.uid(), object.revision),
                (thing.meta.uid.to_string(), thing.meta.revision)
            );
            prop_assert_eq!(self.view.get::<Thing<T>>(&object.key), Some(thing));
        }
        prop_assert_eq!(
            self.view.counts().find(|(t, _)| *t == TYPES[T]),
            Some((TYPES[T], shown.len()))
        );
        for namespace in ["ns-a", "ns-b"] {
            for group in ["red", "green", "blue", "none"] {
                let found: Vec<_> = self
                    .view
                    .by::<Thing<T>>(BY_GROUP, namespace, group.into())
                    .map(version)
                    .collect();
                let expected: Vec<_> = shown
                    .iter()
                    .filter(|o| o.key.namespace() == namespace && o.content.groups.contains(&group))
                    .map(|o| (Uid::from(o.uid().as_str()), o.revision))
                    .collect();
                prop_assert_eq!(found, expected, "index of {} in {}", group, namespace);
            }
        }
        Ok(())
    }
}

/// A readable version replaces what is shown; of an unreadable one, what is shown stays if it is the same incarnation.
fn put(shown: &mut BTreeMap<ObjectKey, Object>, object: Object) {
    if object.content.readable {
        shown.insert(object.key.clone(), object);
    } else if shown.get(&object.key).is_some_and(|old| old.uid != object.uid) {
        shown.remove(&object.key);
    }
}

/// Whether `news` leads from `before` to `after`, each object's way told once and whole.
fn changes(
    of: usize,
    before: &BTreeMap<ObjectKey, Object>,
    after: &BTreeMap<ObjectKey, Object>,
    news: &[Seen],
) -> Result<(), TestCaseError> {
    let version = |object: &Object| -> Version { (Uid::from(object.uid().as_str()), object.revision) };
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let mut told = 0;
    for key in keys {
        let (old, new) = (before.get(key), after.get(key));
        let expected: Vec<Seen> = match (old, new) {
            (Some(old), Some(new)) if old == new => Vec::new(),
            (Some(old), Some(new)) if old.uid != new.uid => vec![
                (of, key.clone(), Some(version(old)), None),
                (of, key.clone(), None, Some(version(new))),
            ],
            _ => vec![(of, key.clone(), old.map(version), new.map(version))],
        };
        let got: Vec<Seen> = news.iter().filter(|(_, k, ..)| k == key).cloned().collect();
        told += got.len();
        prop_assert_eq!(got, expected);
    }
    prop_assert_eq!(told, news.len(), "changes of objects that did not change: {:?}", news);
    Ok(())
}
