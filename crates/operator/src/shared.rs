//! What passes share: the view, the queues, what was written and said, and the way to the API.
//!
//! The values inside know no locks; this is the one place that locks them, each for a moment and never across an await.
//! Order where two are held: view, then anything else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;
use usher_engine::hash::CanonicalHash;
use usher_engine::{Finding, Moment, ObjectKey, Tell};

use crate::clock::Clock;
use crate::events::{About, EventSink, Within};
use crate::leadership::SharedLeadership;
use crate::metrics::{Metrics, QueueLabel};
use crate::queue::{Job, Queue, Why};
use crate::record::{ApiType, Meta};
use crate::turn::Turnstile;
use crate::view::{View, Wake};
use crate::written::{Expect, Reader, Written};

/// The connections: watches and writes never share one.
#[derive(Clone)]
pub(crate) struct Clients {
    /// Lists and watches.
    pub(crate) watch: kube::Client,
    /// Writes and quorum reads; fenced by leadership.
    pub(crate) write: kube::Client,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clients")
    }
}

/// What was last reported of a resource, and what the server made of it.
#[derive(Debug, Clone)]
pub(crate) struct Reported {
    pub(crate) planned: CanonicalHash,
    pub(crate) stored: Option<CanonicalHash>,
    pub(crate) at: Moment,
    /// The kind writes status at a pace, for which `at` counts.
    pub(crate) paced: bool,
}

impl Reported {
    /// Whether it is of use once its echo was seen. Otherwise the record says the same, and there is one of these for
    /// every resource that was ever reported.
    fn outlasts_echo(&self) -> bool {
        self.paced || self.stored != Some(self.planned)
    }
}

/// One kind's queue, and the bell that tells its dispatcher of news.
#[derive(Debug)]
pub(crate) struct QueueHandle {
    pub(crate) name: &'static str,
    /// Which resources its keys are of.
    pub(crate) of: ApiType,
    queue: Mutex<Queue<ObjectKey>>,
    /// What asked for passes that were put off. Each is followed by another pass, which serves it.
    unserved: Mutex<BTreeMap<ObjectKey, Vec<(Why, u32)>>>,
    pub(crate) bell: Notify,
}

impl QueueHandle {
    pub(crate) fn new(name: &'static str, of: ApiType, queue: Queue<ObjectKey>) -> Self {
        Self {
            name,
            of,
            queue: Mutex::new(queue),
            unserved: Mutex::default(),
            bell: Notify::new(),
        }
    }

    /// The pass was put off: what asked for it is still to be served.
    pub(crate) fn keep_unserved(&self, job: &Job<ObjectKey>) {
        lock(&self.unserved).insert(job.key.clone(), job.whys.clone());
    }

    /// This pass serves also what asked for those before it that were put off.
    pub(crate) fn add_unserved(&self, job: &mut Job<ObjectKey>) {
        for (why, times) in lock(&self.unserved).remove(&job.key).unwrap_or_default() {
            match job.whys.iter_mut().find(|(present, _)| *present == why) {
                Some((_, present)) => *present = present.saturating_add(times),
                None => job.whys.push((why, times)),
            }
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue<ObjectKey>> {
        lock(&self.queue)
    }
}

/// Writes count as many this long after there was no place for one.
const STILL_MANY: Duration = Duration::from_secs(1);

/// What was told of a resource: of which generation, with which reasons.
type Told = (i64, BTreeSet<&'static str>);

pub(crate) struct Shared {
    view: RwLock<View>,
    written: Mutex<Written>,
    reported: Mutex<BTreeMap<Reader, Reported>>,
    told: Mutex<BTreeMap<Reader, Told>>,
    /// When somebody last found no place for a write.
    full_at: Mutex<Option<Moment>>,
    failed: Mutex<BTreeMap<Reader, String>>,
    not_before: Mutex<BTreeMap<Reader, Moment>>,
    pub(crate) queues: BTreeMap<&'static str, Arc<QueueHandle>>,
    pub(crate) clients: Clients,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) leadership: SharedLeadership,
    pub(crate) metrics: Metrics,
    pub(crate) events: EventSink,
    pub(crate) turnstile: Turnstile,
    /// How long the first lists took, once all are in.
    pub(crate) first_sync: OnceLock<Duration>,
}

/// What [`Shared`] is made of.
pub(crate) struct Parts {
    pub(crate) view: View,
    pub(crate) queues: BTreeMap<&'static str, Arc<QueueHandle>>,
    pub(crate) clients: Clients,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) leadership: SharedLeadership,
    pub(crate) metrics: Metrics,
    pub(crate) events: EventSink,
    pub(crate) writes_at_once: usize,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

/// A poisoned lock means that a pass panicked while holding it; the values are whole after every statement, so going on
/// is right, and the panic has been reported.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            view,
            queues,
            clients,
            clock,
            leadership,
            metrics,
            events,
            writes_at_once,
        } = parts;
        Self {
            view: RwLock::new(view),
            written: Mutex::default(),
            reported: Mutex::default(),
            told: Mutex::default(),
            full_at: Mutex::default(),
            failed: Mutex::default(),
            not_before: Mutex::default(),
            queues,
            clients,
            clock,
            leadership,
            metrics,
            events,
            turnstile: Turnstile::new(writes_at_once),
            first_sync: OnceLock::new(),
        }
    }

    pub(crate) fn may_act(&self) -> bool {
        self.leadership.may_act(self.clock.monotonic())
    }

    pub(crate) fn view<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        look(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut View) -> T) -> T {
        change(&mut self.view.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts keys into their queues.
    pub(crate) fn wake(&self, wakes: impl IntoIterator<Item = Wake>) {
        let now = self.clock.monotonic();
        for wake in wakes {
            let Some(handle) = self.queues.get(wake.kind) else {
                tracing::error!(kind = wake.kind, key = %wake.key, "a mapper woke a kind that does not run; please report this as a bug");
                continue;
            };
            handle.lock().push(wake.key, now + wake.after, wake.why);
            self.metrics.adds.get_or_create(&QueueLabel { name: handle.name }).inc();
            handle.bell.notify_one();
        }
    }

    /// Whether all places for writes are taken, or were just now.
    pub(crate) fn writes_are_many(&self) -> bool {
        let (now, mut last) = (self.clock.monotonic(), lock(&self.full_at));
        if self.turnstile.is_full() {
            *last = Some(now);
        }
        // A place that is empty for a moment is taken in the next.
        last.is_some_and(|at| now.since(at) < STILL_MANY)
    }

    /// Whether so many passes are due, in all queues together.
    pub(crate) fn due_at_least(&self, many: usize) -> bool {
        let now = self.clock.monotonic();
        let due = self
            .queues
            .values()
            .map(|handle| handle.lock().due_by(now).take(many).count());
        due.sum::<usize>() >= many
    }

    /// Who waits for the echo of a write to this object.
    pub(crate) fn waiting_for(&self, kind: ApiType, touched: &[ObjectKey], advanced: bool) -> Vec<Reader> {
        let written = lock(&self.written);
        if advanced {
            return written.waiting_for_any(kind).into_iter().collect();
        }
        touched
            .iter()
            .flat_map(|key| written.waiting_for(kind, key))
            .cloned()
            .collect()
    }

    pub(crate) fn unseen(&self, reader: &Reader) -> Option<(ApiType, ObjectKey)> {
        self.view(|view| lock(&self.written).unseen(reader, view))
    }

    pub(crate) fn note_written(&self, reader: &Reader, kind: ApiType, object: &ObjectKey, expect: Expect) {
        self.view(|view| lock(&self.written).note(reader, kind, object, expect, view));
    }

    pub(crate) fn reported(&self, reader: &Reader) -> Option<Reported> {
        lock(&self.reported).get(reader).cloned()
    }

    pub(crate) fn note_reported(&self, reader: &Reader, of: ApiType, reported: Reported) {
        let echo_seen = self.view(|view| view.status_hash(of, &reader.key)) == reported.stored;
        if echo_seen && !reported.outlasts_echo() {
            lock(&self.reported).remove(reader);
        } else {
            lock(&self.reported).insert(reader.clone(), reported);
        }
    }

    /// Resources whose status is not the one we stored: somebody else wrote it and it is said anew. A kind need not be
    /// woken by its own status for that.
    pub(crate) fn overwritten(&self, kind: ApiType, restated: &[ObjectKey]) -> Vec<Wake> {
        let mut wakes = Vec::new();
        for (key, name) in restated.iter().flat_map(|key| {
            let its_kinds = self.queues.iter().filter(|(_, handle)| handle.of == kind);
            its_kinds.map(move |(name, _)| (key, *name))
        }) {
            let shown = self.view(|view| view.status_hash(kind, key));
            let reader = Reader {
                kind: name,
                key: key.clone(),
            };
            let mut reported = lock(&self.reported);
            match reported.get(&reader) {
                Some(last) if last.stored == shown => {
                    if !last.outlasts_echo() {
                        reported.remove(&reader);
                    }
                }
                _ => wakes.push(Wake::now(reader.kind, reader.key, Why("status"))),
            }
        }
        wakes
    }

    /// The resource is gone: nothing of it is kept.
    pub(crate) fn forget(&self, reader: &Reader) {
        lock(&self.reported).remove(reader);
        lock(&self.told).remove(reader);
        lock(&self.not_before).remove(reader);
        self.succeeded(reader);
    }

    /// Findings that are to be told and were not there the last time, of this version of the spec.
    pub(crate) fn news<'f>(&self, reader: &Reader, generation: i64, findings: &'f [Finding]) -> Vec<&'f Finding> {
        let loud: Vec<&Finding> = findings.iter().filter(|f| f.tell != Tell::Quietly).collect();
        let mut told = lock(&self.told);
        let before = if loud.is_empty() {
            told.remove(reader)
        } else {
            told.insert(reader.clone(), (generation, loud.iter().map(|f| f.reason).collect()))
        };
        let before = before.filter(|(of, _)| *of == generation);
        let known = |f: &Finding| before.as_ref().is_some_and(|(_, reasons)| reasons.contains(f.reason));
        loud.into_iter().filter(|f| !known(f)).collect()
    }

    /// Tells of a failure once, until it is another or a pass succeeds.
    pub(crate) fn tell_failure(&self, reader: &Reader, kind: ApiType, meta: &Meta, note: &str) {
        let before = lock(&self.failed).insert(reader.clone(), note.to_owned());
        if before.as_deref() != Some(note) {
            self.emit(kind, meta, None, "StepFailed", note, true);
        }
    }

    /// The server asked this reader to wait (429): nothing is to be tried before that, whatever wakes it.
    pub(crate) fn hold_back(&self, reader: &Reader, wait: Duration) {
        let until = self.clock.monotonic() + wait;
        lock(&self.not_before).insert(reader.clone(), until);
    }

    /// How long this reader is still held back.
    pub(crate) fn held_back(&self, reader: &Reader) -> Option<Duration> {
        let mut not_before = lock(&self.not_before);
        let left = not_before.get(reader)?.since(self.clock.monotonic());
        if left.is_zero() {
            not_before.remove(reader);
            return None;
        }
        Some(left)
    }

    /// A pass went well: the next failure is news.
    pub(crate) fn succeeded(&self, reader: &Reader) {
        lock(&self.failed).remove(reader);
    }

    pub(crate) fn emit(
        &self,
        kind: ApiType,
        meta: &Meta,
        within: Option<&Within>,
        reason: &'static str,
        note: &str,
        warning: bool,
    ) {
        let about = About::of(kind, meta);
        match within {
            Some(within) => self
                .events
                .tell_within(&about, within, reason, note, warning, "Reconcile"),
            None => self.events.tell(&about, reason, note, warning, "Reconcile"),
        }
    }
}
