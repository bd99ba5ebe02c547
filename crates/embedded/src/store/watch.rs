//! Watchers are cursors into the shared log (S9). A write wakes those whose prefix it lies in; to the others it costs
//! nothing, and they fall behind only when something they want to know is forgotten.

use futures::Stream;
use futures::task::AtomicWaker;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use super::tree::Tree;
use super::{Lagged, LogEntry, Prefix, ReadError, Revision, Shared};

/// What the hub knows of a watcher. Its fields change only while the store's state is locked: for writing by the hub,
/// for reading by the watcher itself; so the watcher is never told of a line while it looks for one.
#[derive(Debug)]
struct Seat {
    prefix: Prefix,
    /// The first line of its prefix that the watcher has not read; 0: there is none. Exact, so that a watcher lags only
    /// when a line that it needs is forgotten, however old the others are.
    pending: AtomicU64,
    /// Set when the log it read is no longer the store's: after a restore.
    closed: AtomicBool,
    waker: AtomicWaker,
}

/// Where watchers sit, by `group/resource/` (empty: those of everything).
#[derive(Debug, Default)]
pub(super) struct Hub {
    seats: Mutex<HashMap<Box<str>, Vec<Arc<Seat>>>>,
}

/// Watchers to be woken once the store is unlocked again: a waker may run anything.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct Woken(Vec<Arc<Seat>>);

impl Woken {
    pub fn wake(self) {
        for seat in self.0 {
            seat.waker.wake();
        }
    }
}

impl Hub {
    fn seats(&self) -> MutexGuard<'_, HashMap<Box<str>, Vec<Arc<Seat>>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the watchers that a line concerns. The store's state is locked for writing.
    pub fn tell(&self, line: &LogEntry, woken: &mut Woken) {
        let seats = self.seats();
        for kind in [line.key.kind(), ""] {
            for seat in seats.get(kind).into_iter().flatten() {
                if seat.prefix.contains(&line.key)
                    && seat
                        .pending
                        .compare_exchange(0, line.revision, Ordering::AcqRel, Ordering::Acquire)
                        .is_ok()
                {
                    woken.0.push(seat.clone());
                }
            }
        }
    }

    /// All that watch a kind.
    pub fn of_kind(&self, prefix: &Prefix) -> Woken {
        Woken(self.seats().get(prefix.kind()).cloned().unwrap_or_default())
    }

    /// Ends all watches. The store's state is locked for writing.
    pub fn close_all(&self) -> Woken {
        let all: Vec<_> = self.seats().drain().flat_map(|(_, seats)| seats).collect();
        for seat in &all {
            seat.closed.store(true, Ordering::Release);
        }
        Woken(all)
    }

    pub fn watchers(&self) -> usize {
        self.seats().values().map(Vec::len).sum()
    }
}

/// The events of a prefix after a revision, in order, without a gap or a duplicate.
#[derive(Debug)]
pub struct Watcher {
    store: Arc<Shared>,
    seat: Arc<Seat>,
    /// Everything up to here was read.
    cursor: Revision,
    ended: bool,
}

impl Watcher {
    pub(super) fn open(store: &Arc<Shared>, prefix: Prefix, from: Revision) -> Result<Watcher, ReadError> {
        let state = store.read();
        let Tree { floor, revision, .. } = *state.tree;
        if from < floor {
            return Err(ReadError::Compacted { floor });
        }
        if from > revision {
            return Err(ReadError::Future { current: revision });
        }
        let pending = AtomicU64::new(state.tree.next_line(&prefix, from + 1).map_or(0, |line| line.revision));
        let kind = prefix.kind().into();
        let seat = Arc::new(Seat {
            prefix,
            pending,
            closed: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        store.hub.seats().entry(kind).or_default().push(seat.clone());
        drop(state);
        Ok(Watcher {
            store: store.clone(),
            seat,
            cursor: from,
            ended: false,
        })
    }

    /// The next event if there is one now. After `Lagged` there is nothing more.
    pub fn try_next(&mut self) -> Option<Result<Arc<LogEntry>, Lagged>> {
        if self.ended {
            return None;
        }
        let state = self.store.read();
        let tree = &state.tree;
        if self.seat.closed.load(Ordering::Acquire) {
            self.ended = true;
            return Some(Err(Lagged {
                at: self.cursor,
                floor: tree.floor,
            }));
        }
        let pending = self.seat.pending.load(Ordering::Acquire);
        if pending == 0 {
            self.cursor = tree.revision;
            return None;
        }
        if pending <= tree.floor {
            self.ended = true;
            return Some(Err(Lagged {
                at: pending - 1,
                floor: tree.floor,
            }));
        }
        let line = tree.line(pending).cloned();
        self.cursor = pending;
        // The hub said nothing of later lines while one was pending.
        let next = tree
            .next_line(&self.seat.prefix, pending + 1)
            .map_or(0, |line| line.revision);
        self.seat.pending.store(next, Ordering::Release);
        line.map(Ok)
    }

    /// How far it has read: every event of its prefix up to this revision was given out. So a bookmark may say it.
    pub fn revision(&self) -> Revision {
        let state = self.store.read();
        match self.seat.pending.load(Ordering::Acquire) {
            _ if self.ended || self.seat.closed.load(Ordering::Acquire) => self.cursor,
            0 => state.tree.revision,
            pending => pending - 1,
        }
    }
}

impl Stream for Watcher {
    type Item = Result<Arc<LogEntry>, Lagged>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Registered before looking, so that a line that comes in between wakes.
        self.seat.waker.register(context.waker());
        match self.try_next() {
            Some(event) => Poll::Ready(Some(event)),
            None if self.ended => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut seats = self.store.hub.seats();
        let kind = self.seat.prefix.kind();
        if let Some(beside) = seats.get_mut(kind) {
            beside.retain(|seat| !Arc::ptr_eq(seat, &self.seat));
            if beside.is_empty() {
                seats.remove(kind);
            }
        }
    }
}
