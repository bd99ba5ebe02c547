//! The store: one log of revisions, an index of what it says, and the watchers of it.
//!
//! Everything is kept in memory ([`tree`]): reads and watches never touch the disk. A store on disk also writes each
//! line of the log to one redb file, by one thread that gathers the writes of many callers into one commit.
//!
//! Called by the registry only. What it promises:
//! - one global revision without gaps (S1); a write names what it expects, and a batch is stored whole or not at all (S3);
//! - nothing is read as it was in the middle of a batch, by no revision and after no crash (K2). Its events come one by one;
//! - nobody is shown a write before it is as durable as promised, except writers, who must build upon it (S4, S5);
//! - reads at any revision from the floor on, and watches without gap or duplicate from there on (S2, S9);
//! - it owns no clock: time comes from [`Options::clock`], and compaction is somebody else's timer (S7).

mod commit;
mod disk;
mod entry;
mod error;
mod key;
mod tree;
mod value;
mod watch;

pub use commit::Commit;
pub use disk::{Disk, Durability};
pub use entry::{Change, Entry, Expect, Kind, LogEntry, Write};
pub use error::{Lagged, ReadError, StoreError, WriteError};
pub use key::{Key, Prefix};
pub use tree::Retention;
pub use value::{Value, ValueError};
pub use watch::Watcher;

use disk::{Batch, Ledger, LockedFile, Queue, Writer};
use entry::RenderingTally;
use futures::channel::oneshot;
use jiff::Timestamp;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
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
    /// Objects looked for or listed since it was opened.
    pub reads: u64,
    /// Commits to disk since it was opened; of them, those that waited for the disk.
    pub commits: u64,
    pub durable_commits: u64,
    /// Commits that did not reach the disk.
    pub failed_commits: u64,
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
    /// On disk: ends the writer thread with the last handle.
    thread: Option<Arc<WriterThread>>,
}

/// What handles, watchers and the writer thread share.
#[derive(Debug)]
struct Shared {
    state: RwLock<State>,
    hub: Hub,
    options: Options,
    renderings: Arc<RenderingTally>,
    writes: AtomicU64,
    reads: AtomicU64,
    /// On disk: what the writer thread is given.
    queue: Option<Arc<Queue>>,
}

/// The thread of a store on disk. Watchers do not hold it: they see nothing new once it has ended.
#[derive(Debug)]
struct WriterThread {
    queue: Arc<Queue>,
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl WriterThread {
    /// Returns when all that was written is on disk and the file is free.
    fn end(&self) {
        self.queue.close();
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last handle may be dropped by something that the thread itself woke.
        if let Some(handle) = handle.filter(|handle| handle.thread().id() != std::thread::current().id())
            && handle.join().is_err()
        {
            tracing::error!("the store's writer thread panicked");
        }
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.end();
    }
}

#[derive(Debug, Default)]
struct State {
    /// What everybody sees. Behind an `Arc` for snapshots.
    tree: Arc<Tree>,
    /// The newest line of each key that waits for its commit.
    heads: HashMap<Key, Arc<LogEntry>>,
    /// The newest revision given out, waiting ones included.
    newest: Revision,
    /// The revisions that each key had in commits which failed, as long as they may be given out again. Whoever built upon
    /// such a line still names its revision: the key must never have it for another.
    spoilt: HashMap<Key, Vec<Revision>>,
}

impl Shared {
    fn new(tree: Tree, options: Options, renderings: Arc<RenderingTally>, queue: Option<Arc<Queue>>) -> Arc<Shared> {
        let state = State {
            newest: tree.revision,
            tree: Arc::new(tree),
            heads: HashMap::new(),
            spoilt: HashMap::new(),
        };
        let (state, hub) = (RwLock::new(state), Hub::default());
        let (writes, reads) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Shared {
            state,
            hub,
            options,
            renderings,
            writes,
            reads,
            queue,
        })
    }

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
            tree.append(line.clone());
            self.hub.tell(&line, &mut woken);
        }
        // A minute's compaction is too late for who writes fast.
        if let Some(compacted) = tree.keep_within(&self.options.retention)
            && let Some(queue) = &self.queue
        {
            queue.compact(compacted);
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

    /// Whether a writer may have built upon a line of this key and revision that then failed.
    fn is_spoilt(&self, key: &Key, revision: Revision) -> bool {
        self.spoilt
            .get(key)
            .is_some_and(|revisions| revisions.contains(&revision))
    }

    /// Takes back all lines that wait for their commit.
    fn spoil<'a>(&mut self, lines: impl IntoIterator<Item = &'a Arc<LogEntry>>) {
        for line in lines {
            let revisions = self.spoilt.entry(line.key.clone()).or_default();
            // While a disk is full, the same ones come round with every try.
            if !revisions.contains(&line.revision) {
                revisions.push(line.revision);
            }
        }
        self.heads.clear();
        self.newest = self.tree.revision;
    }

    /// Revisions that everybody has seen are never given out again.
    fn forget_spoilt(&mut self) {
        let seen = self.tree.revision;
        self.spoilt.retain(|_, revisions| {
            revisions.retain(|revision| *revision > seen);
            !revisions.is_empty()
        });
    }
}

impl Store {
    /// A store that forgets everything when it is dropped, and never waits.
    pub fn memory(options: Options) -> Store {
        Store {
            shared: Shared::new(Tree::default(), options, Arc::default(), None),
            thread: None,
        }
    }

    /// A store in a file, which is created if it is not there; its folder must be. Reads all of it.
    pub fn open(path: impl AsRef<Path>, durability: Durability, options: Options) -> Result<Store, StoreError> {
        Store::open_on(LockedFile::hold(path.as_ref())?, durability, options)
    }

    /// The same on any disk. Nothing else may use it meanwhile.
    pub fn open_on(disk: impl Disk, durability: Durability, options: Options) -> Result<Store, StoreError> {
        let path = disk.path().to_path_buf();
        let tally = Arc::default();
        let (ledger, tree) = Ledger::open(Box::new(disk), durability, &tally)?;
        let queue = Arc::new(Queue::default());
        let shared = Shared::new(tree, options, tally, Some(queue.clone()));
        let writer = Writer {
            shared: shared.clone(),
            queue: queue.clone(),
            ledger,
            recent: [0; 2],
        };
        let started = std::thread::Builder::new()
            .name("store writer".into())
            .spawn(move || writer.run());
        let handle = started.map_err(|error| StoreError::io(&path, error))?;
        let thread = WriterThread {
            queue,
            handle: Mutex::new(Some(handle)),
        };
        Ok(Store {
            shared,
            thread: Some(Arc::new(thread)),
        })
    }

    /// Waits until all that was written is on disk, and frees the file. Reads go on; writes are refused. Dropping the
    /// last handle does the same.
    pub fn close(&self) {
        if let Some(thread) = &self.thread {
            thread.end();
        }
    }

    /// The object as the next write will find it, with writes that are not yet durable. Never to be shown to a client.
    pub fn head(&self, key: &Key) -> Option<Entry> {
        self.shared.reads.fetch_add(1, Ordering::Relaxed);
        self.shared.read().head(key)
    }

    /// The object now, or at a revision from the floor on.
    pub fn get(&self, key: &Key, at: Option<Revision>) -> Result<Option<Entry>, ReadError> {
        self.shared.reads.fetch_add(1, Ordering::Relaxed);
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
        let page = self.shared.read().tree.list(prefix, at, after, limit)?;
        self.shared
            .reads
            .fetch_add(page.entries.len() as u64, Ordering::Relaxed);
        Ok(page)
    }

    /// Checks a batch against what is there and appends it, whole or not at all. Later writes of a batch see earlier
    /// ones. A Put of the same bytes and a Delete of nothing store nothing.
    pub fn write(&self, batch: Vec<Write>) -> Result<Commit, WriteError> {
        let time = (self.shared.options.clock)();
        let mut state = self.shared.write();
        let (lines, revisions) = self.check(&state, batch, time)?;
        let newest = revisions.iter().copied().max().unwrap_or(state.tree.revision);
        let count = lines.len() as u64;
        let mut commit = Commit::new(revisions, newest);
        let mut woken = Woken::default();
        match &self.shared.queue {
            None => woken = self.shared.publish(&mut state, lines),
            // It found everything as it wants it, and durable.
            Some(_) if newest <= state.tree.revision => {}
            Some(queue) => {
                let (done, waiting) = oneshot::channel();
                queue.push(Batch {
                    lines: lines.clone(),
                    done,
                })?;
                commit.wait_for(waiting);
                state
                    .heads
                    .extend(lines.into_iter().map(|line| (line.key.clone(), line)));
            }
        }
        state.newest += count;
        drop(state);
        self.shared.writes.fetch_add(count, Ordering::Relaxed);
        woken.wake();
        Ok(commit)
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
            if change == Change::Keep {
                revisions.push(found.map_or(0, |entry| entry.revision));
                continue;
            }
            if let (Change::Put(value), Some(entry)) = (&change, &found)
                && *value == entry.value
            {
                revisions.push(entry.revision);
                continue;
            }
            let mut newest = state.newest + lines.len() as u64;
            let key = found.as_ref().map_or(key, |entry| entry.key.clone());
            let append = |revision: Revision, change: Change, found: Option<&Entry>| {
                let tally = self.shared.renderings.clone();
                LogEntry::new(revision, key.clone(), change, found, time, tally).map(Arc::new)
            };
            let mut line = append(newest + 1, change, found.as_ref());
            while let Some(last) = line.take() {
                newest += 1;
                // Written once more, so that it does not end with a revision that a failed line of it had.
                if state.is_spoilt(&last.key, newest)
                    && let Some(entry) = last.entry()
                {
                    line = append(newest + 1, Change::Put(entry.value.clone()), Some(&entry));
                }
                lines.push(last);
            }
            revisions.push(newest);
        }
        if let Some((_, inner)) = lines.split_last_mut() {
            for line in inner.iter_mut().filter_map(Arc::get_mut) {
                line.goes_on = true;
            }
        }
        Ok((lines, revisions))
    }

    /// The newest revision that may be seen.
    pub fn revision(&self) -> Revision {
        self.shared.read().tree.revision
    }

    /// The newest revision given out, also to writes that wait for their commit.
    pub fn newest(&self) -> Revision {
        self.shared.read().newest
    }

    /// Wakes the watchers of a kind though nothing was written: something else is to be known of it.
    pub fn wake(&self, prefix: &Prefix) {
        self.shared.hub.of_kind(prefix).wake();
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
        self.compact_by(&self.shared.options.retention, now);
    }

    /// Drops all history: a watch or a list from before has to begin anew. For tests of exactly that.
    pub fn forget(&self) {
        let nothing = Retention {
            keep_seconds: 0,
            min_revisions: 0,
            max_revisions: 0,
            max_old_bytes: 0,
        };
        self.compact_by(&nothing, Timestamp::MAX);
    }

    fn compact_by(&self, retention: &Retention, now: Timestamp) {
        let mut state = self.shared.write();
        let compacted = Arc::make_mut(&mut state.tree).compact(retention, now);
        // The file follows in its own time: until then it only holds more than is needed.
        if let (Some(compacted), Some(queue)) = (compacted, &self.shared.queue) {
            queue.compact(compacted);
        }
    }

    /// Whether what is written reaches the disk: the error is the one that the last commit had. Asking after one has the
    /// writer try again, so that a store to which nobody writes is found healed too.
    pub fn health(&self) -> Result<(), StoreError> {
        match &self.shared.queue {
            None => Ok(()),
            Some(queue) => queue.health(),
        }
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.shared.read().tree.clone())
    }

    /// Goes back to a snapshot, revisions too. Watchers of before are told that they lag.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        if self.shared.queue.is_some() {
            return Err(StoreError::NotInMemory);
        }
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
        let count = |count: fn(&Queue) -> &AtomicU64| {
            self.shared
                .queue
                .as_ref()
                .map_or(0, |queue| count(queue).load(Ordering::Relaxed))
        };
        Stats {
            writes: self.shared.writes.load(Ordering::Relaxed),
            reads: self.shared.reads.load(Ordering::Relaxed),
            commits: count(|queue| &queue.commits),
            durable_commits: count(|queue| &queue.durable_commits),
            failed_commits: count(|queue| &queue.failed_commits),
            keys: state.tree.keys(),
            live_bytes: state.tree.live_bytes,
            old_bytes: state.tree.old_bytes,
            watchers: self.shared.hub.watchers(),
            renderings: self.shared.renderings.made.load(Ordering::Relaxed),
        }
    }
}
