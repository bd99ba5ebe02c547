//! The part of the store that is plain data: the log of kept history, the index of versions by key, and what compaction
//! takes away. Everything that anybody may see is here; writes that wait for their commit are not.

use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::entry::RENDERED_LINES;
use super::{Entry, Key, Kind, LogEntry, Page, Prefix, ReadError, Revision, Value};

/// How much history compaction leaves (S7). The two upper bounds are there to bound memory, so they win.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub keep_seconds: u32,
    pub min_revisions: usize,
    pub max_revisions: usize,
    /// Of values that were replaced or deleted.
    pub max_old_bytes: usize,
}

impl Default for Retention {
    fn default() -> Self {
        Retention {
            keep_seconds: 300,
            min_revisions: 1_000,
            max_revisions: 50_000,
            max_old_bytes: 64 << 20,
        }
    }
}

/// An object, or its absence, from a revision on.
#[derive(Clone, Debug)]
struct Version {
    revision: Revision,
    created: Revision,
    /// `None`: deleted.
    value: Option<Value>,
}

/// The versions of one key that a read at a revision from the floor on can ask for.
#[derive(Clone, Debug)]
struct Versions {
    latest: Version,
    /// Oldest first. Most keys have none, which costs no allocation.
    older: VecDeque<Version>,
}

impl Versions {
    fn at(&self, revision: Revision) -> Option<&Version> {
        if self.latest.revision <= revision {
            return Some(&self.latest);
        }
        let later = self.older.partition_point(|version| version.revision <= revision);
        later.checked_sub(1).and_then(|index| self.older.get(index))
    }
}

/// What compaction took away, for the disk to follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Compacted {
    pub floor: Revision,
    /// Lines at or below the floor whose values no read can ask for any more; a deletion after what it deleted.
    pub dead: Vec<Revision>,
}

/// Log and index. `log` holds the lines of floor+1 ..= revision, without a gap.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    index: BTreeMap<Key, Versions>,
    log: VecDeque<Arc<LogEntry>>,
    pub floor: Revision,
    pub revision: Revision,
    /// Of the values in the index that are latest.
    pub live_bytes: usize,
    /// Of the values that only history holds.
    pub old_bytes: usize,
}

impl Tree {
    /// A tree that knows nothing of what was before `floor` except what [`Tree::found`] tells it.
    pub fn at(floor: Revision) -> Tree {
        Tree {
            floor,
            revision: floor,
            ..Tree::default()
        }
    }

    /// An object as it was at the floor, when a file is opened.
    pub fn found(&mut self, entry: Entry) {
        debug_assert!(entry.revision <= self.floor && self.log.is_empty());
        self.live_bytes += entry.value.len();
        let latest = Version {
            revision: entry.revision,
            created: entry.created,
            value: Some(entry.value),
        };
        self.index.insert(
            entry.key,
            Versions {
                latest,
                older: VecDeque::new(),
            },
        );
    }

    pub fn append(&mut self, line: Arc<LogEntry>) {
        debug_assert_eq!(line.revision, self.revision + 1);
        debug_assert_eq!(
            line.previous.as_ref().map(|(at, _)| *at),
            self.latest(&line.key).map(|entry| entry.revision)
        );
        self.revision = line.revision;
        self.old_bytes += line.old_bytes();
        self.live_bytes -= line.old_bytes();
        let value = (line.kind != Kind::Delete).then(|| line.value.clone());
        self.live_bytes += value.as_ref().map_or(0, Value::len);
        let version = Version {
            revision: line.revision,
            created: line.created,
            value,
        };
        match self.index.get_mut(&line.key) {
            Some(versions) => {
                let before = std::mem::replace(&mut versions.latest, version);
                versions.older.push_back(before);
            }
            None => {
                self.index.insert(
                    line.key.clone(),
                    Versions {
                        latest: version,
                        older: VecDeque::new(),
                    },
                );
            }
        }
        if let Some(old) = line
            .revision
            .checked_sub(RENDERED_LINES)
            .and_then(|revision| self.line(revision))
        {
            old.forget_renderings();
        }
        self.log.push_back(line);
    }

    pub fn latest(&self, key: &Key) -> Option<Entry> {
        // The index's own key is given out, so that all lines about an object share one.
        let (key, versions) = self.index.get_key_value(key)?;
        entry(key, &versions.latest)
    }

    /// The revision to read at: the newest, or one that is kept.
    fn reading(&self, at: Option<Revision>) -> Result<Revision, ReadError> {
        match at {
            Some(at) if at < self.floor => Err(ReadError::Compacted { floor: self.floor }),
            Some(at) if at > self.revision => Err(ReadError::Future { current: self.revision }),
            Some(at) => Ok(self.whole(at)),
            None => Ok(self.revision),
        }
    }

    /// The end of the batch that a revision is in. The floor never is inside of one.
    fn whole(&self, at: Revision) -> Revision {
        let mut at = at;
        while self.line(at).is_some_and(|line| line.goes_on) {
            at += 1;
        }
        at
    }

    pub fn get(&self, key: &Key, at: Option<Revision>) -> Result<Option<Entry>, ReadError> {
        let at = self.reading(at)?;
        let found = self.index.get_key_value(key);
        Ok(found.and_then(|(key, versions)| entry(key, versions.at(at)?)))
    }

    pub fn list(
        &self,
        prefix: &Prefix,
        at: Option<Revision>,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, ReadError> {
        let revision = self.reading(at)?;
        let start = match after {
            Some(after) if after.as_str() >= prefix.as_str() => Bound::Excluded(after.as_str()),
            _ => Bound::Included(prefix.as_str()),
        };
        let mut found = self
            .index
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| prefix.contains(key))
            .filter_map(|(key, versions)| Some((key, versions.at(revision).filter(|found| found.value.is_some())?)));
        let limit = if limit == 0 { usize::MAX } else { limit };
        let entries: Vec<Entry> = found
            .by_ref()
            .take(limit)
            .filter_map(|(key, version)| entry(key, version))
            .collect();
        let remaining = found.count();
        Ok(Page {
            entries,
            revision,
            remaining,
            more: remaining > 0,
        })
    }

    /// The line of a revision above the floor.
    pub fn line(&self, revision: Revision) -> Option<&Arc<LogEntry>> {
        let index = revision.checked_sub(self.floor + 1)?;
        self.log.get(usize::try_from(index).ok()?)
    }

    /// The first line of a prefix from a revision (above the floor) on.
    pub fn next_line(&self, prefix: &Prefix, from: Revision) -> Option<&Arc<LogEntry>> {
        let skip = usize::try_from(from.saturating_sub(self.floor + 1))
            .unwrap_or(usize::MAX)
            .min(self.log.len());
        self.log.range(skip..).find(|line| prefix.contains(&line.key))
    }

    pub fn keys(&self) -> usize {
        self.index.len()
    }

    /// Moves the floor as far as `retention` allows at `now`.
    pub fn compact(&mut self, retention: &Retention, now: Timestamp) -> Option<Compacted> {
        let horizon = now
            .checked_sub(SignedDuration::from_secs(retention.keep_seconds.into()))
            .unwrap_or(Timestamp::MIN);
        let kept = self.log.len();
        let expired = self.log.iter().take_while(|line| line.time < horizon).count();
        let mut drop = expired.min(kept.saturating_sub(retention.min_revisions));
        drop = drop.max(kept.saturating_sub(retention.max_revisions));
        let mut compacted = Compacted::default();
        // A batch goes as a whole.
        let mut goes_on = false;
        while goes_on || drop > 0 || self.old_bytes > retention.max_old_bytes {
            let Some(line) = self.log.pop_front() else { break };
            drop = drop.saturating_sub(1);
            goes_on = line.goes_on;
            self.forget(&line, &mut compacted.dead);
            compacted.floor = line.revision;
        }
        if compacted.floor == 0 {
            return None;
        }
        self.floor = compacted.floor;
        if self.log.capacity() > 4 * self.log.len() {
            self.log.shrink_to(2 * self.log.len());
        }
        Some(compacted)
    }

    /// Holds the upper bounds of `retention` between compactions. A sixteenth more is dropped than must be, so that it
    /// is not done for each line.
    pub fn keep_within(&mut self, retention: &Retention) -> Option<Compacted> {
        if self.log.len() <= retention.max_revisions && self.old_bytes <= retention.max_old_bytes {
            return None;
        }
        let less = |bound: usize| bound - bound / 16;
        let bounds = Retention {
            max_revisions: less(retention.max_revisions),
            max_old_bytes: less(retention.max_old_bytes),
            ..*retention
        };
        // No line is older than all time.
        self.compact(&bounds, Timestamp::MIN)
    }

    /// Forgets all history and goes on above a revision that this tree has not seen.
    pub fn skip_to(&mut self, revision: Revision) -> Compacted {
        let mut compacted = Compacted {
            floor: revision,
            dead: Vec::new(),
        };
        while let Some(line) = self.log.pop_front() {
            self.forget(&line, &mut compacted.dead);
        }
        self.floor = revision;
        self.revision = revision;
        compacted
    }

    /// Drops the versions that a line at or below the floor has replaced.
    fn forget(&mut self, line: &LogEntry, dead: &mut Vec<Revision>) {
        self.old_bytes -= line.old_bytes();
        dead.extend(line.previous.as_ref().map(|(revision, _)| *revision));
        let Some(versions) = self.index.get_mut(&line.key) else {
            return;
        };
        // Lines are forgotten oldest first, so what this one replaced is at the front.
        while versions
            .older
            .front()
            .is_some_and(|version| version.revision < line.revision)
        {
            versions.older.pop_front();
        }
        if versions.older.capacity() > 8 && versions.older.capacity() > 4 * versions.older.len() {
            versions.older.shrink_to(2 * versions.older.len());
        }
        if line.kind == Kind::Delete {
            dead.push(line.revision);
            if versions.latest.revision == line.revision {
                self.index.remove(&line.key);
            } else if versions
                .older
                .front()
                .is_some_and(|version| version.revision == line.revision)
            {
                versions.older.pop_front();
            }
        }
    }
}

fn entry(key: &Key, version: &Version) -> Option<Entry> {
    let value = version.value.clone()?;
    Some(Entry {
        key: key.clone(),
        value,
        revision: version.revision,
        created: version.created,
    })
}
