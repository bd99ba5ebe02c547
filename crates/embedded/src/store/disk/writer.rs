//! The thread that commits. Writers append to its queue while the state is locked, so the queue is in the order of
//! revisions; the thread takes what is there, commits it, and shows it to everybody.
//!
//! Locks are taken in this order: state, then queue.

use futures::channel::oneshot;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Ledger;
use crate::store::tree::Compacted;
use crate::store::{LogEntry, Shared, StoreError, WriteError};

/// A commit takes at most this many lines (and at least one batch).
const LINES_PER_COMMIT: usize = 256;
/// How long a commit waits for writers that are likely to come, because as many came to the ones before.
const GATHER: Duration = Duration::from_millis(2);

/// Lines that become visible together, and who waits for it. Without lines: waits for the ones before.
#[derive(Debug)]
pub(in crate::store) struct Batch {
    pub lines: Vec<Arc<LogEntry>>,
    pub done: oneshot::Sender<Result<(), StoreError>>,
}

/// What writers leave for the thread, and its counts.
#[derive(Debug, Default)]
pub(in crate::store) struct Queue {
    waiting: Mutex<Waiting>,
    filled: Condvar,
    pub commits: AtomicU64,
    pub durable_commits: AtomicU64,
    pub failed_commits: AtomicU64,
    /// Of the last commit.
    failure: Mutex<Option<StoreError>>,
}

#[derive(Debug, Default)]
struct Waiting {
    batches: VecDeque<Batch>,
    compacted: Vec<Compacted>,
    closing: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state is locked for writing, and was when the lines were numbered.
    pub fn push(&self, batch: Batch) -> Result<(), WriteError> {
        let mut waiting = self.lock();
        // Asked under the lock under which the thread looks whether it may end.
        if waiting.closing {
            return Err(WriteError::Closed);
        }
        waiting.batches.push_back(batch);
        self.filled.notify_one();
        Ok(())
    }

    pub fn compact(&self, compacted: Compacted) {
        self.lock().compacted.push(compacted);
        self.filled.notify_one();
    }

    /// No more writes; the thread ends when those that wait are done.
    pub fn close(&self) {
        self.lock().closing = true;
        self.filled.notify_one();
    }

    fn set_failure(&self, failure: Option<StoreError>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// See [`crate::store::Store::health`].
    pub fn health(&self) -> Result<(), StoreError> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut waiting = self.lock();
        if waiting.closing {
            return Err(StoreError::Closed);
        }
        let Some(failure) = failure else { return Ok(()) };
        if waiting.batches.is_empty() {
            // Nobody waits for it.
            let (done, _) = oneshot::channel();
            waiting.batches.push_back(Batch {
                lines: Vec::new(),
                done,
            });
            self.filled.notify_one();
        }
        Err(failure)
    }

    fn wait<'a>(&self, waiting: MutexGuard<'a, Waiting>, until: Option<Instant>) -> MutexGuard<'a, Waiting> {
        match until {
            None => self.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let rest = until.saturating_duration_since(Instant::now());
                self.filled
                    .wait_timeout(waiting, rest)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        }
    }
}

/// What the thread owns.
#[derive(Debug)]
pub(in crate::store) struct Writer {
    pub shared: Arc<Shared>,
    pub queue: Arc<Queue>,
    pub ledger: Ledger,
    /// How many batches the last two commits had: as many are likely to come again.
    pub recent: [usize; 2],
}

impl Writer {
    /// The thread's life.
    pub fn run(mut self) {
        while let Some(batches) = self.next() {
            let lines: Vec<_> = batches.iter().flat_map(|batch| batch.lines.iter().cloned()).collect();
            match self.ledger.commit(&lines) {
                Ok(durable) => self.succeeded(batches, lines, durable),
                Err(error) => self.failed(batches, &error),
            }
        }
        // Nobody is left to be told; the next opening finds the last good commit.
        match self.ledger.close() {
            Ok(true) => self.count(true),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the store was not closed cleanly"),
        }
    }

    /// Waits for work: batches, or none when only chores are to be done. `None`: the store was closed.
    fn next(&mut self) -> Option<Vec<Batch>> {
        let queue = self.queue.clone();
        let mut waiting = queue.lock();
        loop {
            for compacted in waiting.compacted.drain(..) {
                self.ledger.compact(compacted);
            }
            if !waiting.batches.is_empty() {
                break;
            }
            if waiting.closing {
                return None;
            }
            // After a failure chores wait for the next write: trying them again and again would only keep the disk busy.
            let idle = !self.ledger.is_failed();
            let due = self.ledger.sync_due().filter(|_| idle);
            if idle && (self.ledger.has_chores() || due.is_some_and(|due| due <= Instant::now())) {
                return Some(Vec::new());
            }
            waiting = queue.wait(waiting, due);
        }
        let gathered = Instant::now() + GATHER;
        let expected = self.recent.into_iter().max().unwrap_or(0);
        while waiting.batches.len() < expected && !waiting.closing && Instant::now() < gathered {
            waiting = queue.wait(waiting, Some(gathered));
        }
        let mut taken = Vec::new();
        let mut lines = 0;
        while let Some(batch) = waiting
            .batches
            .pop_front_if(|batch| lines == 0 || lines + batch.lines.len() <= LINES_PER_COMMIT)
        {
            lines += batch.lines.len();
            taken.push(batch);
        }
        self.recent = [taken.len(), self.recent[0]];
        Some(taken)
    }

    fn count(&self, durable: bool) {
        self.queue.commits.fetch_add(1, Ordering::Relaxed);
        self.queue.durable_commits.fetch_add(durable.into(), Ordering::Relaxed);
    }

    fn succeeded(&mut self, batches: Vec<Batch>, lines: Vec<Arc<LogEntry>>, durable: bool) {
        self.count(durable);
        self.queue.set_failure(None);
        let mut state = self.shared.write();
        for line in &lines {
            if state
                .heads
                .get(&line.key)
                .is_some_and(|head| head.revision == line.revision)
            {
                state.heads.remove(&line.key);
            }
        }
        let woken = self.shared.publish(&mut state, lines);
        state.forget_spoilt();
        drop(state);
        for batch in batches {
            // A caller that went away does not need the answer.
            let _ = batch.done.send(Ok(()));
        }
        woken.wake();
    }

    /// Fails these and all that wait: they may build upon these. What is visible stays, and the next write tries again.
    fn failed(&mut self, mut batches: Vec<Batch>, error: &StoreError) {
        tracing::warn!(%error, "a commit failed");
        self.queue.failed_commits.fetch_add(1, Ordering::Relaxed);
        self.queue.set_failure(Some(error.clone()));
        let mut state = self.shared.write();
        batches.extend(self.queue.lock().batches.drain(..));
        state.spoil(batches.iter().flat_map(|batch| &batch.lines));
        drop(state);
        for batch in batches {
            let _ = batch.done.send(Err(error.clone()));
        }
    }
}

impl Drop for Writer {
    /// Also when the thread panics: nobody may wait for it then.
    fn drop(&mut self) {
        let mut waiting = self.queue.lock();
        waiting.closing = true;
        // Their senders go with them, which tells the callers that the store is closed.
        waiting.batches.clear();
    }
}
