//! What is to be looked at next, and when: the work queue of one kind.
//!
//! Watch mappers, timers and failed passes push keys; the runtime pops them, runs one pass each, and says how the pass
//! went. The queue is a plain value: time arrives as an argument, nothing is locked or spawned here, and no map has a
//! random order. Production wraps it in a mutex; the simulator runs the same value and picks among [`Queue::due_keys`].
//!
//! What it promises, whatever the order of calls:
//!
//! - **One entry per key.** Any number of pushes between two pops is one job. A key never runs twice at once; woken
//!   while running, it runs exactly once more.
//! - **No lost wake.** After every push there is a pop of that key, as soon as it is due and a pass is free.
//! - **Fair.** Once a key is due, another key can be started before it at most once: the queue never takes a due moment
//!   as earlier than the latest `now` it was told, so late arrivals cannot be dated ahead of those who wait.
//! - **Failures wait, news does not.** Only consecutive failures back off, only retries need a token, and a push runs
//!   when it says, whether or not the key failed before.

mod job;

use std::collections::BTreeMap;
use std::mem;

use usher_engine::{Backoff, Moment, TokenBucket};

pub use self::job::{Finish, Job, Why};

/// No entry remembers more reasons: twice the words there are. Past it a wake still counts, only its word is dropped.
const MOST_WHYS: usize = 16;

/// How one kind's queue waits and how much runs at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueueConfig {
    /// Wait after consecutive failures of one key.
    pub backoff: Backoff,
    /// How many retries, over all keys, may be set at once.
    pub retry_burst: u32,
    /// How many retries a second after that.
    pub retry_per_second: u32,
    /// How many passes run at once; at least 1.
    pub passes_at_once: usize,
}

impl Default for QueueConfig {
    /// The requeue-strategy seed's table: 50 ms to 30 s, 100 tokens refilled at 100/s, 5 passes.
    fn default() -> Self {
        Self {
            backoff: Backoff::default(),
            retry_burst: 100,
            retry_per_second: 100,
            passes_at_once: 5,
        }
    }
}

/// What happened so far; only ever grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Calls of [`Queue::push`].
    pub adds: u64,
    /// Those of them that joined a wake already there.
    pub coalesced: u64,
    /// Passes that failed and were set to be tried again.
    pub retries: u64,
    /// Passes started.
    pub popped: u64,
}

/// Reasons, each with how often it was given.
type Whys = BTreeMap<Why, u32>;

/// A request for a pass: from when on, and for which reasons.
#[derive(Debug, Clone)]
struct Wake {
    due: Moment,
    whys: Whys,
}

impl Wake {
    fn new(due: Moment, why: Why) -> Self {
        Self {
            due,
            whys: Whys::from([(why, 1)]),
        }
    }

    fn join(&mut self, other: Wake) {
        self.due = self.due.min(other.due);
        for (why, times) in other.whys {
            if self.whys.len() < MOST_WHYS || self.whys.contains_key(&why) {
                let given = self.whys.entry(why).or_default();
                *given = given.saturating_add(times);
            }
        }
    }
}

/// Where an entry stands: from when it may start, then by arrival. No two are equal.
type Place = (Moment, u64);

/// Exactly one of the two, so that no key can wait and run as two entries.
#[derive(Debug, Clone)]
enum State {
    Waiting { wake: Wake, place: Place },
    Running { whys: Whys, woken: Option<Wake> },
}

/// Consecutive failures, and until when the token of the last retry is good.
#[derive(Debug, Clone, Copy, Default)]
struct History {
    failures: u32,
    /// When the last retry was to start. News may start the key sooner; if that pass fails too, this slot still stands
    /// and no second token is taken. Else one busy and failing key could drain the bucket for all.
    retry_at: Moment,
}

#[derive(Debug, Clone)]
struct Entry {
    history: History,
    state: State,
}

/// The queue. `K` is the kind's key, usually `ObjectKey`.
#[derive(Debug, Clone)]
pub struct Queue<K> {
    config: QueueConfig,
    bucket: TokenBucket,
    /// Every key that waits or runs, and nothing else: memory follows the work there is.
    entries: BTreeMap<K, Entry>,
    /// The waiting ones by place.
    order: BTreeMap<Place, K>,
    running: usize,
    arrivals: u64,
    /// The latest `now` anyone told us.
    seen: Moment,
    counters: Counters,
}

impl<K: Ord + Clone> Queue<K> {
    /// An empty queue with a full bucket.
    pub fn new(config: QueueConfig) -> Self {
        Self {
            config,
            bucket: TokenBucket::new(config.retry_burst, config.retry_per_second),
            entries: BTreeMap::new(),
            order: BTreeMap::new(),
            running: 0,
            arrivals: 0,
            seen: Moment::START,
            counters: Counters::default(),
        }
    }

    /// Asks for a pass of `key` from `due` on. A waiting key keeps its place or moves ahead to `due`, never back; a
    /// running one is remembered for one more pass after this one.
    pub fn push(&mut self, key: K, due: Moment, why: Why) {
        self.counters.adds += 1;
        let wake = Wake::new(due, why);
        match self.entries.get_mut(&key).map(|entry| &mut entry.state) {
            None => self.enqueue(key, History::default(), wake),
            Some(State::Running { woken: Some(woken), .. }) => {
                self.counters.coalesced += 1;
                woken.join(wake);
            }
            Some(State::Running { woken, .. }) => *woken = Some(wake),
            Some(State::Waiting { wake: waiting, place }) => {
                self.counters.coalesced += 1;
                waiting.join(wake);
                let from = due.max(self.seen);
                if from < place.0 {
                    self.order.remove(place);
                    self.arrivals += 1;
                    *place = (from, self.arrivals);
                    self.order.insert(*place, key);
                }
            }
        }
    }

    /// Starts the pass that has been due longest; `None` when nothing is due or enough passes run.
    pub fn pop(&mut self, now: Moment) -> Option<Job<K>> {
        let now = self.see(now);
        let place = *self.order.first_key_value()?.0;
        self.start(place, now)
    }

    /// Starts the pass of `key`, if it is among [`Queue::due_keys`].
    pub fn pop_key(&mut self, key: &K, now: Moment) -> Option<Job<K>> {
        let now = self.see(now);
        match self.entries.get(key)?.state {
            State::Waiting { place, .. } => self.start(place, now),
            State::Running { .. } => None,
        }
    }

    /// Says how a pass ended, and thereby when the key is looked at again. A key that does not run is left as it is.
    pub fn finish(&mut self, key: &K, now: Moment, finish: Finish) {
        let now = self.see(now);
        let runs = matches!(
            self.entries.get(key),
            Some(Entry {
                state: State::Running { .. },
                ..
            })
        );
        debug_assert!(runs, "finish of a key whose pass does not run");
        if !runs {
            return;
        }
        let Some((
            key,
            Entry {
                mut history,
                state: State::Running { whys, woken },
            },
        )) = self.entries.remove_entry(key)
        else {
            return;
        };
        self.running -= 1;
        let next = match finish {
            Finish::Done => {
                history = History::default();
                None
            }
            Finish::Again(after) => {
                history = History::default();
                Some(Wake::new(now + after, Why::TIMER))
            }
            Finish::Yield => Some(Wake { due: now, whys }),
            Finish::Failed => Some(self.retry(&mut history, now)),
            Finish::RetryAfter(asked) => {
                let mut wake = self.retry(&mut history, now);
                wake.due = wake.due.max(now + asked);
                Some(wake)
            }
        };
        let wake = match (next, woken) {
            (Some(mut next), Some(woken)) => {
                next.join(woken);
                next
            }
            (Some(wake), None) | (None, Some(wake)) => wake,
            (None, None) => return,
        };
        self.enqueue(key, history, wake);
    }

    /// The object is gone: a new one of its name begins without its failures.
    pub fn forget(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.history = History::default();
        }
    }

    /// When to pop next: the earliest due moment. `None` when nothing waits, or when only the end of a pass can help.
    pub fn next_due(&self) -> Option<Moment> {
        if self.is_full() {
            return None;
        }
        self.order.first_key_value().map(|((from, _), _)| *from)
    }

    /// What could start now, in the order [`Queue::pop`] would start it.
    pub fn due_keys(&self, now: Moment) -> impl Iterator<Item = &K> {
        let now = now.max(self.seen);
        let most = if self.is_full() { 0 } else { usize::MAX };
        self.order
            .iter()
            .take_while(move |((from, _), _)| *from <= now)
            .take(most)
            .map(|(_, key)| key)
    }

    /// What is due, whether or not it could start now.
    pub fn due_by(&self, now: Moment) -> impl Iterator<Item = &K> {
        let due = self.order.iter().take_while(move |((from, _), _)| *from <= now);
        due.map(|(_, key)| key)
    }

    /// How many keys wait, due or not.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether no key waits.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// How many passes run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Consecutive failures of `key` so far.
    pub fn failures(&self, key: &K) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.history.failures)
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Callers read the clock before they lock: a `now` may arrive after a later one, and counts as that one then.
    fn see(&mut self, now: Moment) -> Moment {
        self.seen = self.seen.max(now);
        self.seen
    }

    fn is_full(&self) -> bool {
        self.running >= self.config.passes_at_once.max(1)
    }

    /// One more failure, and the wake that follows from it.
    fn retry(&mut self, history: &mut History, now: Moment) -> Wake {
        self.counters.retries += 1;
        history.failures = history.failures.saturating_add(1);
        let backed_off = now + self.config.backoff.delay(history.failures);
        history.retry_at = if now < history.retry_at {
            backed_off.max(history.retry_at)
        } else {
            backed_off + self.bucket.take(now)
        };
        Wake::new(history.retry_at, Why::RETRY)
    }

    fn enqueue(&mut self, key: K, history: History, wake: Wake) {
        self.arrivals += 1;
        let place = (wake.due.max(self.seen), self.arrivals);
        self.order.insert(place, key.clone());
        self.entries.insert(
            key,
            Entry {
                history,
                state: State::Waiting { wake, place },
            },
        );
    }

    fn start(&mut self, place: Place, now: Moment) -> Option<Job<K>> {
        if self.is_full() || place.0 > now {
            return None;
        }
        let key = self.order.remove(&place)?;
        let entry = self.entries.get_mut(&key)?;
        let State::Waiting { wake, .. } = &mut entry.state else {
            debug_assert!(false, "a key in the order does not wait");
            return None;
        };
        let whys = mem::take(&mut wake.whys);
        let job = Job {
            waited: now.since(wake.due),
            whys: whys.iter().map(|(why, times)| (*why, *times)).collect(),
            attempt: entry.history.failures,
            key,
        };
        entry.state = State::Running { whys, woken: None };
        self.running += 1;
        self.counters.popped += 1;
        Some(job)
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
