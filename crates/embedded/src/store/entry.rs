//! What is asked of the store, what it keeps, and what it tells: writes, entries, and the lines of its log.

use bytes::Bytes;
use jiff::Timestamp;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Key, Revision, Value};

/// An object at some revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    pub value: Value,
    /// When it was written last.
    pub revision: Revision,
    /// When it was created.
    pub created: Revision,
}

/// What a write wants to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Anything, also nothing.
    Any,
    /// The object at this revision; 0: no object.
    Revision(Revision),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put(Value),
    /// Watchers are told the last value.
    Delete,
    /// Nothing is stored: the rest of the batch is stored only if this is as expected.
    Keep,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub key: Key,
    pub expect: Expect,
    pub change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Create,
    Update,
    Delete,
}

/// One line of the log: what happened at a revision.
#[derive(Debug)]
pub struct LogEntry {
    pub revision: Revision,
    pub key: Key,
    pub kind: Kind,
    /// The revision at which the object was created (for a Create: this one).
    pub created: Revision,
    /// What it was before; `None` for a Create.
    pub previous: Option<(Revision, Value)>,
    /// What it is now; for a Delete, what it was last.
    pub value: Value,
    /// When it was appended.
    pub time: Timestamp,
    /// The next line belongs to the same batch: nothing is read as it was between the two.
    pub(super) goes_on: bool,
    renderings: Mutex<Renderings>,
}

impl LogEntry {
    pub(super) fn new(
        revision: Revision,
        key: Key,
        change: Change,
        found: Option<&Entry>,
        time: Timestamp,
        tally: Arc<RenderingTally>,
    ) -> Option<LogEntry> {
        let previous = found.map(|entry| (entry.revision, entry.value.clone()));
        let created = found.map_or(revision, |entry| entry.created);
        let (kind, value) = match (change, &previous) {
            (Change::Put(value), None) => (Kind::Create, value),
            (Change::Put(value), Some(_)) => (Kind::Update, value),
            (Change::Delete, Some((_, last))) => (Kind::Delete, last.clone()),
            (Change::Delete, None) | (Change::Keep, _) => return None,
        };
        let renderings = Mutex::new(Renderings {
            kept: Some(Vec::new()),
            tally,
        });
        Some(LogEntry {
            revision,
            key,
            kind,
            created,
            previous,
            value,
            time,
            goes_on: false,
            renderings,
        })
    }

    /// The object after this line; `None` after a Delete.
    pub fn entry(&self) -> Option<Entry> {
        let Self {
            key,
            value,
            revision,
            created,
            ..
        } = self;
        (self.kind != Kind::Delete).then(|| Entry {
            key: key.clone(),
            value: value.clone(),
            revision: *revision,
            created: *created,
        })
    }

    /// What this line keeps alive that no latest read could ask for.
    pub(super) fn old_bytes(&self) -> usize {
        self.previous.as_ref().map_or(0, |(_, value)| value.len())
    }

    /// A representation of this event, made by the first watcher that asks and shared with the others (S9). `form`
    /// says which one: of which edition of the kind, and JSON, Table or metadata in which version. Only the newest events are worth remembering: those
    /// that only a late watcher asks for are made anew.
    pub fn rendered(&self, form: (u64, u32), make: impl FnOnce() -> Bytes) -> Bytes {
        let mut renderings = self.renderings.lock().unwrap_or_else(PoisonError::into_inner);
        let Renderings { kept, tally } = &mut *renderings;
        if let Some((_, bytes)) = kept.iter().flatten().find(|(kept, _)| *kept == form) {
            return bytes.clone();
        }
        // The lock is held meanwhile on purpose: whoever wants the same waits for it rather than make it again.
        let bytes = make();
        tally.made.fetch_add(1, Ordering::Relaxed);
        if let Some(kept) = kept
            && tally.bytes.load(Ordering::Relaxed) + bytes.len() <= RENDERINGS_BYTES
        {
            tally.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
            kept.push((form, bytes.clone()));
        }
        bytes
    }

    /// Drops what was rendered, and keeps no more.
    pub(super) fn forget_renderings(&self) {
        self.renderings.lock().unwrap_or_else(PoisonError::into_inner).forget();
    }
}

/// Of how many of the newest lines renderings are remembered. A watcher further behind than this is slow anyway.
pub(super) const RENDERED_LINES: u64 = 256;
/// How much all of them may be together: about 20 of the largest objects.
const RENDERINGS_BYTES: usize = 32 << 20;

#[derive(Debug)]
struct Renderings {
    /// By form; `None` when the line has grown old.
    kept: Option<Vec<((u64, u32), Bytes)>>,
    tally: Arc<RenderingTally>,
}

impl Renderings {
    fn forget(&mut self) {
        let bytes = self.kept.take().iter().flatten().map(|(_, bytes)| bytes.len()).sum();
        self.tally.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Renderings {
    fn drop(&mut self) {
        self.forget();
    }
}

/// How many renderings were made, and how many bytes of them are remembered.
#[derive(Debug, Default)]
pub(super) struct RenderingTally {
    pub made: AtomicU64,
    pub bytes: AtomicUsize,
}
