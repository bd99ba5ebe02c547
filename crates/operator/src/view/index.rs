//! Finding records by a value of theirs. Made to be small: there are several of these, with a place for every object.
//!
//! An index keeps no value and no key. It is ordered by a hash of namespace and value; the record itself tells whether it
//! is the one that is looked for. Most values have one record (an owner's uid), some have very many (a pool's name).

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use usher_engine::{ObjectKey, Text};

use crate::record::Record;

/// Something that has a key.
pub(super) trait Keyed {
    fn key(&self) -> &ObjectKey;
}

impl<R: Record> Keyed for Arc<R> {
    fn key(&self) -> &ObjectKey {
        &self.meta().key
    }
}

/// In a set it is its own key: none is kept beside it.
#[derive(Debug, Clone)]
pub(super) struct ByKey<T>(pub(super) T);

impl<T: Keyed> Borrow<ObjectKey> for ByKey<T> {
    fn borrow(&self) -> &ObjectKey {
        self.0.key()
    }
}

impl<T: Keyed> PartialEq for ByKey<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl<T: Keyed> Eq for ByKey<T> {}

impl<T: Keyed> PartialOrd for ByKey<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Keyed> Ord for ByKey<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

/// The values of a record.
pub type Indexer<R> = fn(&R) -> Vec<Text>;
/// Of namespace and value.
type Hash64 = fn(&str, &str) -> u64;

/// Records of one type by a value of theirs within a namespace.
#[derive(Debug, Clone)]
pub struct Index<R> {
    of: Indexer<R>,
    hash: Hash64,
    buckets: BTreeMap<u64, Bucket<R>>,
}

/// Records whose value hashes alike, by key.
#[derive(Debug, Clone)]
enum Bucket<R> {
    One(Arc<R>),
    #[allow(
        clippy::box_collection,
        reason = "most values have one record: the box keeps their entries small"
    )]
    Many(Box<BTreeSet<ByKey<Arc<R>>>>),
}

impl<R: Record> Index<R> {
    /// An empty one, by these values.
    pub fn new(of: Indexer<R>) -> Self {
        Self {
            of,
            hash,
            buckets: BTreeMap::new(),
        }
    }

    /// All at once, which leaves no room unused: of records in the order of their keys.
    pub(super) fn fill<'r>(&mut self, records: impl Iterator<Item = &'r Arc<R>>) {
        let mut places: Vec<(u64, Arc<R>)> = Vec::new();
        for record in records {
            let namespace = record.meta().key.namespace();
            places.extend(
                (self.of)(record)
                    .iter()
                    .map(|value| ((self.hash)(namespace, value), record.clone())),
            );
        }
        // A stable sort: those of one value stay in the order of their keys.
        places.sort_by_key(|(hash, _)| *hash);
        let alike = places.chunk_by(|(one, _), (other, _)| one == other);
        self.buckets = alike
            .filter_map(|alike| {
                let bucket = match alike {
                    [(_, only)] => Bucket::One(only.clone()),
                    many => Bucket::Many(Box::new(many.iter().map(|(_, record)| ByKey(record.clone())).collect())),
                };
                Some((alike.first()?.0, bucket))
            })
            .collect();
    }

    /// Enters a record; one of its key that has the same value is replaced.
    pub fn insert(&mut self, record: &Arc<R>) {
        let namespace = record.meta().key.namespace();
        for value in (self.of)(record) {
            let hash = (self.hash)(namespace, &value);
            match self.buckets.get_mut(&hash) {
                None => drop(self.buckets.insert(hash, Bucket::One(record.clone()))),
                Some(Bucket::Many(many)) => drop(many.replace(ByKey(record.clone()))),
                Some(Bucket::One(one)) if one.meta().key == record.meta().key => *one = record.clone(),
                Some(bucket @ Bucket::One(_)) => {
                    if let Bucket::One(other) = bucket {
                        let both = [ByKey(record.clone()), ByKey(other.clone())];
                        *bucket = Bucket::Many(Box::new(both.into_iter().collect()));
                    }
                }
            }
        }
    }

    /// Takes a record out.
    pub fn remove(&mut self, record: &R) {
        let key = &record.meta().key;
        for value in (self.of)(record) {
            let hash = (self.hash)(key.namespace(), &value);
            let empty = match self.buckets.get_mut(&hash) {
                None => false,
                Some(Bucket::One(one)) => one.meta().key == *key,
                Some(Bucket::Many(many)) => {
                    many.remove(key);
                    many.is_empty()
                }
            };
            if empty {
                self.buckets.remove(&hash);
            }
        }
    }

    /// The records of a value, by name.
    pub fn get<'i>(&'i self, namespace: &'i str, value: Text) -> impl Iterator<Item = &'i Arc<R>> {
        let (one, many) = match self.buckets.get(&(self.hash)(namespace, &value)) {
            None => (None, None),
            Some(Bucket::One(one)) => (Some(one), None),
            Some(Bucket::Many(many)) => (None, Some(many)),
        };
        let all = one.into_iter().chain(
            many.into_iter()
                .flat_map(|many| many.iter().map(|ByKey(record)| record)),
        );
        // Two values may hash alike: rarely by chance, often by malice.
        all.filter(move |record| record.meta().key.namespace() == namespace && (self.of)(record).contains(&value))
    }
}

/// The same in every process, so that a test that failed fails again.
fn hash(namespace: &str, value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (namespace, value).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
