//! The queue's rules a second time, with lists and searches instead of maps and places. Slow and plain; tests only.

use std::time::Duration;

use usher_engine::{Moment, TokenBucket};

use super::{Finish, Job, QueueConfig, Why};

#[derive(Clone)]
struct Item {
    key: u8,
    due: Moment,
    from: Moment,
    arrival: u64,
    whys: Vec<Why>,
}

struct Run {
    key: u8,
    whys: Vec<Why>,
    woken: Vec<(Moment, Why)>,
}

/// The same queue, written down as simply as it can be.
pub(super) struct Reference {
    config: QueueConfig,
    bucket: TokenBucket,
    waiting: Vec<Item>,
    running: Vec<Run>,
    /// Per key: failures, and when its last retry was to start.
    failed: [(u32, Moment); 5],
    arrivals: u64,
    seen: Moment,
}

impl Reference {
    pub(super) fn new(config: QueueConfig) -> Self {
        Self {
            config,
            bucket: TokenBucket::new(config.retry_burst, config.retry_per_second),
            waiting: Vec::new(),
            running: Vec::new(),
            failed: [(0, Moment::START); 5],
            arrivals: 0,
            seen: Moment::START,
        }
    }

    pub(super) fn push(&mut self, key: u8, due: Moment, why: Why) {
        if let Some(run) = self.running.iter_mut().find(|run| run.key == key) {
            run.woken.push((due, why));
            return;
        }
        self.add(key, due, vec![why]);
    }

    fn add(&mut self, key: u8, due: Moment, whys: Vec<Why>) {
        self.arrivals += 1;
        let new = Item {
            key,
            due,
            from: due.max(self.seen),
            arrival: self.arrivals,
            whys,
        };
        let Some(old) = self.waiting.iter_mut().find(|item| item.key == key) else {
            self.waiting.push(new);
            return;
        };
        old.due = old.due.min(new.due);
        if new.from < old.from {
            (old.from, old.arrival) = (new.from, new.arrival);
        }
        old.whys.extend(new.whys);
    }

    pub(super) fn due(&self, now: Moment) -> Vec<u8> {
        let now = now.max(self.seen);
        if self.running.len() >= self.config.passes_at_once {
            return Vec::new();
        }
        let mut due: Vec<&Item> = self.waiting.iter().filter(|item| item.from <= now).collect();
        due.sort_by_key(|item| (item.from, item.arrival));
        due.into_iter().map(|item| item.key).collect()
    }

    pub(super) fn pop(&mut self, now: Moment) -> Option<Job<u8>> {
        self.seen = self.seen.max(now);
        let key = *self.due(now).first()?;
        self.pop_key(key, now)
    }

    pub(super) fn pop_key(&mut self, key: u8, now: Moment) -> Option<Job<u8>> {
        self.seen = self.seen.max(now);
        let now = self.seen;
        if !self.due(now).contains(&key) {
            return None;
        }
        let index = self.waiting.iter().position(|item| item.key == key)?;
        let item = self.waiting.remove(index);
        self.running.push(Run {
            key,
            whys: item.whys.clone(),
            woken: Vec::new(),
        });
        Some(Job {
            key,
            whys: tally(item.whys),
            waited: now.since(item.due),
            attempt: self.failures(key),
        })
    }

    pub(super) fn finish(&mut self, key: u8, now: Moment, finish: Finish) {
        self.seen = self.seen.max(now);
        let now = self.seen;
        let index = self.running.iter().position(|run| run.key == key).unwrap();
        let run = self.running.remove(index);
        // What comes after the pass, and what came while it ran, as one list of wakes; then they join.
        let mut wakes: Vec<(Moment, Vec<Why>)> = run.woken.into_iter().map(|(due, why)| (due, vec![why])).collect();
        match finish {
            Finish::Done => self.forget(key),
            Finish::Again(after) => {
                self.forget(key);
                wakes.push((now + after, vec![Why::TIMER]));
            }
            Finish::Yield => wakes.push((now, run.whys)),
            Finish::Failed => wakes.push((self.retry(key, now, Duration::ZERO), vec![Why::RETRY])),
            Finish::RetryAfter(asked) => wakes.push((self.retry(key, now, asked), vec![Why::RETRY])),
        }
        if let Some(due) = wakes.iter().map(|(due, _)| *due).min() {
            self.add(key, due, wakes.into_iter().flat_map(|(_, whys)| whys).collect());
        }
    }

    fn retry(&mut self, key: u8, now: Moment, asked: Duration) -> Moment {
        let (failures, retry_at) = &mut self.failed[usize::from(key)];
        *failures += 1;
        let wait = self.config.backoff.delay(*failures);
        *retry_at = if *retry_at > now {
            (now + wait).max(*retry_at)
        } else {
            now + wait + self.bucket.take(now)
        };
        (*retry_at).max(now + asked)
    }

    pub(super) fn forget(&mut self, key: u8) {
        self.failed[usize::from(key)] = (0, Moment::START);
    }

    pub(super) fn next_due(&self) -> Option<Moment> {
        if self.running.len() >= self.config.passes_at_once {
            return None;
        }
        self.waiting.iter().map(|item| item.from).min()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn failures(&self, key: u8) -> u32 {
        self.failed[usize::from(key)].0
    }
}

/// Each word once, in order, with how often it was said.
pub(super) fn tally(mut whys: Vec<Why>) -> Vec<(Why, u32)> {
    whys.sort();
    let runs = whys.chunk_by(|a, b| a == b);
    runs.map(|run| (run[0], u32::try_from(run.len()).unwrap())).collect()
}
