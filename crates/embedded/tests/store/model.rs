//! What the store should do, written as simply as can be: a list of everything that ever happened.

use std::collections::BTreeMap;
use usher_embedded::store::{
    Change, Entry, Expect, Key, Kind, LogEntry, Prefix, ReadError, Revision, Store, Value, Write,
};

#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub revision: Revision,
    pub key: Key,
    pub kind: Kind,
    pub created: Revision,
    pub previous: Option<Revision>,
    /// For a Delete, the last one.
    pub value: Value,
}

/// What no watch tells: where batches end.
pub type Ends = std::collections::BTreeSet<Revision>;

impl From<&LogEntry> for Line {
    fn from(line: &LogEntry) -> Line {
        Line {
            revision: line.revision,
            key: line.key.clone(),
            kind: line.kind,
            created: line.created,
            previous: line.previous.as_ref().map(|(revision, _)| *revision),
            value: line.value.clone(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub lines: Vec<Line>,
    pub ends: Ends,
}

impl Model {
    pub fn revision(&self) -> Revision {
        self.lines.len() as u64
    }

    /// Nothing can be read as it was in the middle of a batch.
    pub fn whole(&self, revision: Revision) -> Revision {
        match revision {
            0 => 0,
            _ => self.ends.range(revision..).next().copied().unwrap_or(revision),
        }
    }

    pub fn at(&self, revision: Revision) -> BTreeMap<Key, Entry> {
        let mut state = BTreeMap::new();
        for line in self.lines.iter().take_while(|line| line.revision <= revision).cloned() {
            let Line {
                revision,
                key,
                kind,
                created,
                value,
                ..
            } = line;
            match kind {
                Kind::Delete => state.remove(&key),
                _ => state.insert(
                    key.clone(),
                    Entry {
                        key,
                        value,
                        revision,
                        created,
                    },
                ),
            };
        }
        state
    }

    pub fn events(&self, prefix: &Prefix, after: Revision) -> Vec<Line> {
        self.lines
            .iter()
            .filter(|line| line.revision > after && prefix.contains(&line.key))
            .cloned()
            .collect()
    }

    /// The revisions of a batch's objects after it, or the key that is not as expected.
    pub fn write(&mut self, batch: &[Write]) -> Result<Vec<Revision>, Key> {
        let before = self.lines.len();
        let mut revisions = Vec::new();
        for Write { key, expect, change } in batch {
            let found = self.at(self.revision()).remove(key);
            let at = found.as_ref().map_or(0, |entry| entry.revision);
            if matches!(expect, Expect::Revision(expected) if *expected != at) {
                self.lines.truncate(before);
                return Err(key.clone());
            }
            let revision = self.revision() + 1;
            let (kind, value) = match (change, &found) {
                (Change::Put(value), Some(entry)) if *value == entry.value => {
                    revisions.push(at);
                    continue;
                }
                (Change::Put(value), Some(_)) => (Kind::Update, value.clone()),
                (Change::Put(value), None) => (Kind::Create, value.clone()),
                (Change::Delete, Some(entry)) => (Kind::Delete, entry.value.clone()),
                (Change::Keep, _) => {
                    revisions.push(at);
                    continue;
                }
                (Change::Delete, None) => {
                    revisions.push(self.revision());
                    continue;
                }
            };
            let created = found.as_ref().map_or(revision, |entry| entry.created);
            let previous = found.map(|entry| entry.revision);
            self.lines.push(Line {
                revision,
                key: key.clone(),
                kind,
                created,
                previous,
                value,
            });
            revisions.push(revision);
        }
        self.ends.insert(self.revision());
        Ok(revisions)
    }

    /// The store shows what the model shows: now, and at a revision of history.
    pub fn check(&self, store: &Store, at: Revision) {
        let everything = Prefix::everything();
        let list = |at| store.list(&everything, at, None, 0);
        assert_eq!(store.revision(), self.revision());
        let now = list(None).unwrap();
        assert_eq!(now.revision, self.revision());
        assert_eq!(now.entries, Vec::from_iter(self.at(self.revision()).into_values()));
        let expected = if at < store.floor() {
            Err(ReadError::Compacted { floor: store.floor() })
        } else if at > self.revision() {
            Err(ReadError::Future {
                current: self.revision(),
            })
        } else {
            Ok(Vec::from_iter(self.at(self.whole(at)).into_values()))
        };
        let found = list(Some(at));
        assert!(
            found.as_ref().map_or(true, |page| page.revision == self.whole(at)),
            "at {at}"
        );
        assert_eq!(found.map(|page| page.entries), expected, "at {at}");
    }
}

/// What a watch gives now.
pub fn replay(store: &Store, prefix: &Prefix, from: Revision) -> Vec<Line> {
    let mut watcher = store.watch(prefix.clone(), from).unwrap();
    std::iter::from_fn(|| watcher.try_next())
        .map(|event| Line::from(&*event.unwrap()))
        .collect()
}
