//! The store: one log of revisions, an index of what it says, and the watchers of it.
//!
//! Everything is kept in memory ([`tree`]): reads and watches never touch the disk. A store on disk also writes each
//! line of the log to one redb file, by one thread that gathers the writes of many callers into one commit.
//!
//! Called by the registry only. What it promises:
//! - one global revision without gaps (S1); a write names what it expects, and a batch is stored whole or not at all (S3);
//! - nobody is shown a write before it is as durable as promised, except writers, who must build upon it (S4, S5);
//! - reads at any revision from the floor on, and watches without gap or duplicate from there on (S2, S9);
//! - it owns no clock: time comes from [`Options::clock`], and compaction is somebody else's timer (S7).

mod commit;
mod entry;
mod error;
mod key;
mod tree;
mod value;
mod watch;

pub use commit::Commit;
pub use entry::{Change, Entry, Expect, Kind, LogEntry, Write};
pub use error::{Lagged, ReadError, StoreError, WriteError};
pub use key::{Key, Prefix};
pub use tree::Retention;
pub use value::{Value, ValueError};
pub use watch::Watcher;

use entry::{RENDERED_LINES, RenderingTally};
use jiff::Timestamp;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tree::Tree;
use watch::{Hub, Woken};

/// The number of a write, counted over all objects from 1; 0 is before all of them.
pub type Revision = u64;

/// What a store needs from its owner.
#[derive(Clone)]
pub struct Options {
    /// Tells when a write is appended, so that compaction knows how old it is.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    pub retention: Retention,
}

impl Options {
    pub fn new(clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Options {
        Options {
            clock: Arc::new(clock),
            retention: Retention::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}

/// Part of a list, in the order of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// The revision of the snapshot that was read.
    pub revision: Revision,
    /// How many come after these.
    pub remaining: usize,
    pub more: bool,
}

/// What a store in memory was at some moment. Cheap to take: the next write copies the index, not the values.
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<Tree>);

/// Counts, for tests, benches and `usher status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lines appended since the store was opened.
    pub writes: u64,
    /// Commits to disk since it was opened; of them, those that waited for the disk.
    pub commits: u64,
    pub durable_commits: u64,
    /// Keys in the index, with those whose deletion is still history.
    pub keys: usize,
    /// Bytes of latest values, and of those that only history holds.
    pub live_bytes: usize,
    pub old_bytes: usize,
    pub watchers: usize,
    /// Events serialised for watchers (S9).
    pub renderings: u64,
}

/// Clones are handles to the same store.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<Shared>,
}

/// What handles, watchers and the writer thread share.
#[derive(Debug)]
struct Shared {
    state: RwLock<State>,
    hub: Hub,
    options: Options,
    renderings: Arc<RenderingTally>,
    writes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// What everybody sees. Behind an `Arc` for snapshots.
    tree: Arc<Tree>,
    /// The newest line of each key that waits for its commit.
    heads: HashMap<Key, Arc<LogEntry>>,
    /// The newest revision given out, waiting ones included.
    newest: Revision,
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        // Nothing panics while it holds the lock; and if it did, readers are still better served than refused.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows lines to everybody: they are as durable as promised.
    fn publish(&self, state: &mut State, lines: impl IntoIterator<Item = Arc<LogEntry>>) -> Woken {
        let mut woken = Woken::default();
        let tree = Arc::make_mut(&mut state.tree);
        for line in lines {
            if let Some(old) = line
                .revision
                .checked_sub(RENDERED_LINES)
                .and_then(|revision| tree.line(revision))
            {
                old.forget_renderings();
            }
            tree.append(line.clone());
            self.hub.tell(&line, &mut woken);
        }
        woken
    }
}

impl State {
    /// An object with the writes that wait for their commit: what a writer must build upon.
    fn head(&self, key: &Key) -> Option<Entry> {
        match self.heads.get(key) {
            Some(line) => line.entry(),
            None => self.tree.latest(key),
        }
    }
}

impl Store {
    /// A store that forgets everything when it is dropped, and never waits.
    pub fn memory(options: Options) -> Store {
        Store::over(Tree::default(), options)
    }

    fn over(tree: Tree, options: Options) -> Store {
        let state = State {
            newest: tree.revision,
            tree: Arc::new(tree),
            heads: HashMap::new(),
        };
        let shared = Shared {
            state: RwLock::new(state),
            hub: Hub::default(),
            options,
            renderings: Arc::default(),
            writes: AtomicU64::new(0),
        };
        Store {
            shared: Arc::new(shared),
        }
    }

    /// The object as the next write will find it, with writes that are not yet durable. Never to be shown to a client.
    pub fn head(&self, key: &Key) -> Option<Entry> {
        self.shared.read().head(key)
    }

    /// The object now, or at a revision from the floor on.
    pub fn get(&self, key: &Key, at: Option<Revision>) -> Result<Option<Entry>, ReadError> {
        self.shared.read().tree.get(key, at)
    }

    /// Objects of a prefix in the order of their keys, after a key, at most `limit` (0: all), from one snapshot.
    pub fn list(
        &self,
        prefix: &Prefix,
        at: Option<Revision>,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, ReadError> {
        self.shared.read().tree.list(prefix, at, after, limit)
    }

    /// Checks a batch against what is there and appends it, whole or not at all. Later writes of a batch see earlier
    /// ones. A Put of the same bytes and a Delete of nothing store nothing.
    pub fn write(&self, batch: Vec<Write>) -> Result<Commit, WriteError> {
        let time = (self.shared.options.clock)();
        let mut state = self.shared.write();
        let (lines, revisions) = self.check(&state, batch, time)?;
        let newest = revisions.iter().copied().max().unwrap_or(state.newest);
        state.newest += lines.len() as u64;
        self.shared.writes.fetch_add(lines.len() as u64, Ordering::Relaxed);
        let woken = self.shared.publish(&mut state, lines);
        drop(state);
        woken.wake();
        Ok(Commit::new(revisions, newest, None))
    }

    /// The lines that a batch adds to the log, and the revision of each of its objects after it.
    fn check(
        &self,
        state: &State,
        batch: Vec<Write>,
        time: Timestamp,
    ) -> Result<(Vec<Arc<LogEntry>>, Vec<Revision>), WriteError> {
        let mut lines: Vec<Arc<LogEntry>> = Vec::with_capacity(batch.len());
        let mut revisions = Vec::with_capacity(batch.len());
        for Write { key, expect, change } in batch {
            // Batches are a handful of writes, so looking through them is cheaper than a map.
            let found = match lines.iter().rev().find(|line| line.key == key) {
                Some(line) => line.entry(),
                None => state.head(&key),
            };
            if let Expect::Revision(expected) = expect
                && found.as_ref().map_or(0, |entry| entry.revision) != expected
            {
                return Err(WriteError::Conflict { key, current: found });
            }
            if let (Change::Put(value), Some(entry)) = (&change, &found)
                && *value == entry.value
            {
                revisions.push(entry.revision);
                continue;
            }
            let newest = state.newest + lines.len() as u64;
            let key = found.as_ref().map_or(key, |entry| entry.key.clone());
            let tally = self.shared.renderings.clone();
            match LogEntry::new(newest + 1, key, change, found.as_ref(), time, tally) {
                Some(line) => {
                    lines.push(Arc::new(line));
                    revisions.push(newest + 1);
                }
                None => revisions.push(newest),
            }
        }
        Ok((lines, revisions))
    }

    /// The newest revision that may be seen.
    pub fn revision(&self) -> Revision {
        self.shared.read().tree.revision
    }

    /// The oldest revision that can be read.
    pub fn floor(&self) -> Revision {
        self.shared.read().tree.floor
    }

    /// The events of a prefix after a revision.
    pub fn watch(&self, prefix: Prefix, from: Revision) -> Result<Watcher, ReadError> {
        Watcher::open(&self.shared, prefix, from)
    }

    /// Forgets history that [`Retention`] does not ask to keep. The owner of the clock calls it each minute.
    pub fn compact(&self, now: Timestamp) {
        let mut state = self.shared.write();
        Arc::make_mut(&mut state.tree).compact(&self.shared.options.retention, now);
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.shared.read().tree.clone())
    }

    /// Goes back to a snapshot, revisions too. Watchers of before are told that they lag.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        let mut state = self.shared.write();
        state.tree = snapshot.0.clone();
        state.newest = state.tree.revision;
        let woken = self.shared.hub.close_all();
        drop(state);
        woken.wake();
        Ok(())
    }

    pub fn stats(&self) -> Stats {
        let state = self.shared.read();
        Stats {
            writes: self.shared.writes.load(Ordering::Relaxed),
            commits: 0,
            durable_commits: 0,
            keys: state.tree.keys(),
            live_bytes: state.tree.live_bytes,
            old_bytes: state.tree.old_bytes,
            watchers: self.shared.hub.watchers(),
            renderings: self.shared.renderings.made.load(Ordering::Relaxed),
        }
    }
}
