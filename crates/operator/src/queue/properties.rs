//! The queue's promises, each on random histories; [`super::reference`] says the same rules a second, slower way.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use usher_engine::{Backoff, Moment};

use super::reference::{Reference, tally};
use super::{Finish, Queue, QueueConfig, Why};

const MS: fn(u64) -> Duration = Duration::from_millis;

fn at(millis: u64) -> Moment {
    Moment::after_start(MS(millis))
}

fn config(passes_at_once: usize) -> QueueConfig {
    QueueConfig {
        passes_at_once,
        ..QueueConfig::default()
    }
}

/// One call. Times are relative, so that any list of them is a history.
#[derive(Debug, Clone)]
enum Call {
    /// Due this many milliseconds from now, or ago.
    Push(u8, i64, Why),
    Pop,
    PopKey(u8),
    /// Of the n-th running key.
    Finish(u8, Finish),
    Forget(u8),
    Pass(u64),
    /// The caller read its clock before another who has called already.
    Late(u64),
}

fn why() -> impl Strategy<Value = Why> {
    prop::sample::select(vec![Why::CREATE, Why::UPDATE, Why::DELETE, Why::EXTERNAL])
}

fn end() -> impl Strategy<Value = Finish> {
    prop_oneof![
        3 => Just(Finish::Done),
        1 => (0u64..200).prop_map(|ms| Finish::Again(MS(ms))),
        3 => Just(Finish::Failed),
        1 => (0u64..500).prop_map(|ms| Finish::RetryAfter(MS(ms))),
        1 => Just(Finish::Yield),
    ]
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = prop_oneof![
        6 => (0u8..5, -100i64..100, why()).prop_map(|(key, due, why)| Call::Push(key, due, why)),
        5 => Just(Call::Pop),
        1 => (0u8..5).prop_map(Call::PopKey),
        5 => (0u8..5, end()).prop_map(|(n, end)| Call::Finish(n, end)),
        1 => (0u8..5).prop_map(Call::Forget),
        4 => (0u64..120).prop_map(Call::Pass),
        1 => (0u64..20).prop_map(Call::Late),
    ];
    prop::collection::vec(call, 1..120)
}

/// A queue with its clock and the passes under way.
struct World {
    queue: Queue<u8>,
    now: u64,
    running: Vec<u8>,
}

/// What a call led to.
enum Did {
    Pushed(u8),
    Started(super::Job<u8>),
    Nothing,
}

impl World {
    fn new(config: QueueConfig) -> Self {
        Self {
            queue: Queue::new(config),
            now: 0,
            running: Vec::new(),
        }
    }

    fn now(&self) -> Moment {
        at(self.now)
    }

    fn due(&self, offset: i64) -> Moment {
        at(self.now.saturating_add_signed(offset))
    }

    fn call(&mut self, call: &Call) -> Did {
        match call {
            Call::Push(key, offset, why) => {
                self.queue.push(*key, self.due(*offset), *why);
                return Did::Pushed(*key);
            }
            Call::Pop => return self.started(self.queue.clone().pop(self.now()), |queue, now| queue.pop(now)),
            Call::PopKey(key) => {
                return self.started(self.queue.clone().pop_key(key, self.now()), |queue, now| {
                    queue.pop_key(key, now)
                });
            }
            Call::Finish(nth, end) => {
                if !self.running.is_empty() {
                    let key = self.running.remove(usize::from(*nth) % self.running.len());
                    self.queue.finish(&key, self.now(), *end);
                }
            }
            Call::Forget(key) => self.queue.forget(key),
            Call::Pass(millis) => self.now += millis,
            Call::Late(millis) => self.now = self.now.saturating_sub(*millis),
        }
        Did::Nothing
    }

    /// Runs `pop`, and checks on the way that a copy of the queue would have done the same.
    fn started(
        &mut self,
        copy: Option<super::Job<u8>>,
        pop: impl FnOnce(&mut Queue<u8>, Moment) -> Option<super::Job<u8>>,
    ) -> Did {
        let now = self.now();
        let job = pop(&mut self.queue, now);
        assert_eq!(job, copy);
        match job {
            Some(job) => {
                self.running.push(job.key);
                Did::Started(job)
            }
            None => Did::Nothing,
        }
    }

    /// Lets everything that waits run, and end well, until nothing waits; answers what ran.
    fn drain(&mut self) -> Vec<u8> {
        let mut ran = Vec::new();
        for _ in 0..1_000 {
            for key in std::mem::take(&mut self.running) {
                self.queue.finish(&key, self.now(), Finish::Done);
            }
            let Some(due) = self.queue.next_due() else {
                assert!(self.queue.is_empty());
                return ran;
            };
            self.now = self.now.max(due.since(Moment::START).as_millis() as u64 + 1);
            while let Some(job) = self.queue.pop(at(self.now)) {
                ran.push(job.key);
                self.running.push(job.key);
            }
        }
        panic!("the queue does not run empty");
    }
}

// More of each: PROPTEST_CASES=30000.
proptest! {
    #[test]
    fn it_does_what_the_reference_does(calls in calls(), passes in 1usize..4, burst in 1u32..4, rate in 1u32..20) {
        let config = QueueConfig { retry_burst: burst, retry_per_second: rate, ..config(passes) };
        let mut world = World::new(config);
        let mut reference = Reference::new(config);
        for call in &calls {
            let now = world.now();
            let popped = match call {
                Call::Push(key, offset, why) => { reference.push(*key, world.due(*offset), *why); None }
                Call::Pop => reference.pop(now),
                Call::PopKey(key) => reference.pop_key(*key, now),
                Call::Finish(nth, end) if !world.running.is_empty() => {
                    reference.finish(world.running[usize::from(*nth) % world.running.len()], now, *end);
                    None
                }
                Call::Forget(key) => { reference.forget(*key); None }
                Call::Finish(..) | Call::Pass(_) | Call::Late(_) => None,
            };
            let did = match world.call(call) { Did::Started(job) => Some(job), Did::Pushed(_) | Did::Nothing => None };
            prop_assert_eq!(did, popped);
            prop_assert_eq!(world.queue.next_due(), reference.next_due());
            prop_assert_eq!(world.queue.len(), reference.len());
            prop_assert_eq!(world.queue.running(), world.running.len());
            prop_assert_eq!(world.queue.due_keys(world.now()).copied().collect::<Vec<_>>(), reference.due(world.now()));
            for key in 0..5 {
                prop_assert_eq!(world.queue.failures(&key), reference.failures(key));
            }
        }
    }

    #[test]
    fn any_number_of_pushes_between_pops_is_one_job(pushes in prop::collection::vec((0u64..500, why()), 1..50)) {
        let mut queue = Queue::new(config(1));
        for (due, why) in &pushes {
            queue.push("a", at(*due), *why);
            prop_assert_eq!(queue.len(), 1);
        }
        let earliest = pushes.iter().map(|(due, _)| *due).min().unwrap_or(0);
        prop_assert_eq!(queue.next_due(), Some(at(earliest)));
        let job = queue.pop(at(1_000)).unwrap();
        prop_assert_eq!(job.whys, tally(pushes.iter().map(|(_, why)| *why).collect()));
        prop_assert_eq!(job.waited, MS(1_000 - earliest));
        queue.finish(&"a", at(1_000), Finish::Done);
        prop_assert_eq!(queue.pop(at(9_000)), None);
        let counters = queue.counters();
        prop_assert_eq!((counters.adds, counters.coalesced), (pushes.len() as u64, pushes.len() as u64 - 1));
    }

    #[test]
    fn a_key_never_runs_twice_at_once_and_no_more_run_than_allowed(calls in calls(), passes in 1usize..4) {
        let mut world = World::new(config(passes));
        for call in &calls {
            let before = world.running.clone();
            if let Did::Started(job) = world.call(call) {
                prop_assert!(!before.contains(&job.key), "{} ran already", job.key);
                prop_assert!(!job.whys.is_empty());
            }
            prop_assert!(world.running.len() <= passes);
        }
    }

    #[test]
    fn woken_while_running_is_exactly_one_more_pass(wakes in 1usize..30, end in end()) {
        let mut queue = Queue::new(config(1));
        queue.push("a", at(0), Why::CREATE);
        queue.pop(at(0)).unwrap();
        for _ in 0..wakes { queue.push("a", at(5), Why::UPDATE); }
        prop_assert!(queue.is_empty());
        prop_assert_eq!(queue.pop(at(5)), None);
        queue.finish(&"a", at(10), end);
        prop_assert_eq!(queue.len(), 1);
        let again = queue.pop(at(10)).unwrap();
        prop_assert!(again.whys.contains(&(Why::UPDATE, u32::try_from(wakes).unwrap())));
        prop_assert_eq!(again.waited, MS(5), "waiting behind its own pass is waiting");
        queue.finish(&"a", at(11), Finish::Done);
        prop_assert_eq!(queue.pop(at(100_000)), None);
    }

    #[test]
    fn no_wake_is_lost(calls in calls(), passes in 1usize..4) {
        let mut world = World::new(config(passes));
        let mut owed: Vec<u8> = Vec::new();
        for call in &calls {
            match world.call(call) {
                Did::Pushed(key) => owed.push(key),
                Did::Started(job) => owed.retain(|key| *key != job.key),
                Did::Nothing => {}
            }
        }
        let ran = world.drain();
        for key in owed {
            prop_assert!(ran.contains(&key), "{key} was pushed and never ran after it");
        }
    }

    /// Whatever is pushed, dated back, retried or yielded: once a key is due, each other passes it at most once.
    #[test]
    fn nobody_overtakes_a_due_key_twice(calls in calls(), passes in 1usize..3) {
        let mut world = World::new(config(passes));
        // For each key that was due when somebody popped: who has started since.
        let mut passed_by: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        for call in &calls {
            if matches!(call, Call::PopKey(_)) {
                continue; // The simulator's choice is not the queue's.
            }
            if matches!(call, Call::Pop) {
                for key in world.queue.due_keys(world.now()) {
                    passed_by.entry(*key).or_default();
                }
            }
            if let Did::Started(job) = world.call(call) {
                passed_by.remove(&job.key);
                for (key, others) in &mut passed_by {
                    prop_assert!(!others.contains(&job.key), "{} passed {key} twice", job.key);
                    others.push(job.key);
                }
            }
        }
    }

    #[test]
    fn no_more_retries_start_than_tokens_allow(keys in 1u32..60, burst in 1u32..10, rate in 1u32..30) {
        // The same wait after every failure, so that what is measured is the bucket alone.
        let backoff = Backoff { first: MS(50), cap: MS(50), factor: 1.0 };
        let config = QueueConfig { backoff, retry_burst: burst, retry_per_second: rate, passes_at_once: 1_000 };
        let mut queue = Queue::new(config);
        for key in 0..keys { queue.push(key, at(0), Why::START); }
        let mut retries: Vec<u64> = Vec::new();
        for now in (0..5_000).step_by(10) {
            while let Some(job) = queue.pop(at(now)) {
                if job.attempt > 0 { retries.push(now); }
                queue.finish(&job.key, at(now), Finish::Failed);
            }
        }
        for (i, start) in retries.iter().enumerate() {
            let within = retries[i..].iter().take_while(|t| **t < start + 1_000).count() as u32;
            prop_assert!(within <= burst + rate + 1, "{within} retries within a second from {start} ms");
        }
        prop_assert_eq!(queue.counters().retries, retries.len() as u64 + u64::from(keys));
    }
}
