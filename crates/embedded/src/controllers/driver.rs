//! One queue for all controllers: what could run now, in an order that depends on nothing but what is pending.
//!
//! The driver watches every key of the store. Before anything runs it tells the controllers all that was written, its own
//! writes too, so that no sync decides upon less than what the controllers themselves did (E3). A key is queued once,
//! however often it was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use jiff::{SignedDuration, Timestamp};

use super::census::Census;
use super::hand::{Hand, Settings};
use super::{Control, Controller, Controllers, Next, Wishes};
use crate::registry::Registry;
use crate::store::{LogEntry, Prefix, Watcher};

/// A sync that failed is tried again after this, then twice that, up to the longest: the reference's queues do the same.
const FIRST_RETRY: SignedDuration = SignedDuration::from_millis(5);
const LONGEST_RETRY: SignedDuration = SignedDuration::from_secs(1_000);
/// What is of no use now rests that long, then twice that, up to the longest: as a pod that finds no node does in the
/// reference.
const FIRST_REST: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_REST: SignedDuration = SignedDuration::from_secs(10);
/// A state that cannot be read is looked at again after this.
const READ_AGAIN: SignedDuration = SignedDuration::from_secs(1);

/// One sync that could run: of which controller, for which key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId {
    pub controller: Controller,
    pub key: String,
}

/// What [`crate::Manual::ready`] offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    pub id: WorkId,
}

/// What is pending, as a value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending {
    ready: BTreeSet<WorkId>,
    timers: BTreeMap<WorkId, Timestamp>,
    /// The same by time.
    alarms: BTreeSet<(Timestamp, WorkId)>,
    /// Failures in a row.
    failures: BTreeMap<WorkId, u32>,
    rests: BTreeMap<WorkId, Rest>,
}

/// What was of no use rests. If it is wished for meanwhile it gets one try more, which the reference gives when nothing else
/// waits; whatever is wished for after that comes when the rest is over.
#[derive(Debug, Clone)]
struct Rest {
    times: u32,
    until: Timestamp,
    was_disturbed: bool,
}

impl Pending {
    fn take(&mut self, controller: Controller, wishes: Wishes, now: Timestamp) {
        let id = |key: String| WorkId { controller, key };
        for key in wishes.never {
            let id = id(key);
            self.stop(&id);
            self.rests.remove(&id);
        }
        for key in wishes.rest {
            let rest = self.rests.entry(id(key)).or_insert(Rest {
                times: 0,
                until: now,
                was_disturbed: false,
            });
            let length = FIRST_REST.saturating_mul(1 << rest.times.min(10)).min(LONGEST_REST);
            rest.times += 1;
            rest.was_disturbed &= rest.until > now;
            rest.until = now.saturating_add(length).unwrap_or(Timestamp::MAX);
        }
        for key in wishes.now {
            let id = id(key);
            match self.rests.get_mut(&id).filter(|rest| rest.until > now) {
                Some(rest) if rest.was_disturbed => {
                    let until = rest.until;
                    self.wait(id, until);
                }
                Some(rest) => {
                    rest.was_disturbed = true;
                    self.wake(id);
                }
                None => self.wake(id),
            }
        }
        for (key, when) in wishes.at {
            self.wait(id(key), when);
        }
        for (key, when) in wishes.by {
            let id = id(key);
            if !self.timers.contains_key(&id) {
                self.wait(id, when);
            }
        }
    }

    fn stop(&mut self, id: &WorkId) {
        if let Some(when) = self.timers.remove(id) {
            self.alarms.remove(&(when, id.clone()));
        }
    }

    fn wake(&mut self, id: WorkId) {
        self.stop(&id);
        self.ready.insert(id);
    }

    fn wait(&mut self, id: WorkId, when: Timestamp) {
        if !self.ready.contains(&id) {
            self.stop(&id);
            self.alarms.insert((when, id.clone()));
            self.timers.insert(id, when);
        }
    }

    fn ring(&mut self, now: Timestamp) {
        while let Some((when, id)) = self.alarms.first().cloned()
            && when <= now
        {
            self.wake(id);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Driver {
    hand: Hand,
    controls: BTreeMap<Controller, Box<dyn Control>>,
    census: Census,
    /// `None` when the state is to be read anew.
    watcher: Option<Watcher>,
    pending: Pending,
}

impl Driver {
    pub(crate) fn new(registry: Arc<Registry>, settings: Settings, controllers: &Controllers) -> Self {
        Self {
            hand: Hand::new(registry, settings),
            controls: controllers.iter().map(|name| (name, name.control())).collect(),
            census: Census::default(),
            watcher: None,
            pending: Pending::default(),
        }
    }

    /// As if the controllers had been killed and started again.
    pub(crate) fn forget(&mut self) {
        self.watcher = None;
        self.pending = Pending::default();
    }

    /// What is pending after everything written was seen.
    pub(crate) fn pending(&mut self) -> Pending {
        self.look();
        self.pending.clone()
    }

    /// Goes on with what was pending in a state that has just been restored.
    pub(crate) fn resume(&mut self, pending: Pending) {
        self.forget();
        self.look();
        self.pending = pending;
    }

    /// Tells the controllers all that was written since.
    fn look(&mut self) {
        loop {
            let Some(watcher) = &mut self.watcher else {
                if self.begin() {
                    continue;
                }
                return;
            };
            match watcher.try_next() {
                Some(Ok(line)) => self.tell(&line),
                Some(Err(_)) => self.forget(),
                None => return,
            }
        }
    }

    /// Reads the whole state. False: it cannot be read now.
    fn begin(&mut self) -> bool {
        let store = &self.hand.registry.store;
        let everything = Prefix::everything();
        let Ok(state) = store.list(&everything, None, None, 0) else {
            return false;
        };
        let Ok(watcher) = store.watch(everything, state.revision) else {
            return false;
        };
        self.watcher = Some(watcher);
        self.census = Census::of(&state.entries);
        self.hand.mirror.begin(&state.entries);
        for (name, control) in &mut self.controls {
            let mut wishes = Wishes::default();
            control.begin(&self.hand, &state.entries, &self.census, &mut wishes);
            self.pending.take(*name, wishes, self.hand.now());
        }
        true
    }

    fn tell(&mut self, line: &LogEntry) {
        self.census.count(line);
        self.hand.mirror.see(line);
        for (name, control) in &mut self.controls {
            let mut wishes = Wishes::default();
            control.see(&self.hand, line, &self.census, &mut wishes);
            self.pending.take(*name, wishes, self.hand.now());
        }
    }

    fn ring(&mut self) {
        let now = self.hand.now();
        self.pending.ring(now);
    }

    /// What could run now, in the order in which [`Driver::work`] runs it.
    pub(crate) fn ready(&mut self) -> Vec<Work> {
        self.look();
        self.ring();
        self.pending.ready.iter().cloned().map(|id| Work { id }).collect()
    }

    /// When something comes due that is not ready now.
    pub(crate) fn next_timer(&mut self) -> Option<Timestamp> {
        self.look();
        self.pending.alarms.first().map(|(when, _)| *when)
    }

    /// Runs one sync. False: it was not ready.
    pub(crate) async fn run(&mut self, id: &WorkId) -> bool {
        self.look();
        self.ring();
        if !self.pending.ready.remove(id) {
            return false;
        }
        let Some(control) = self.controls.get_mut(&id.controller) else {
            return false;
        };
        let mut wishes = Wishes::default();
        let result = control.sync(&self.hand, &id.key, &mut wishes).await;
        self.pending.take(id.controller, wishes, self.hand.now());
        match result {
            Ok(next) => {
                self.pending.failures.remove(id);
                if let Next::At(when) = next {
                    self.pending.wait(id.clone(), when);
                }
            }
            Err(fault) => {
                let failures = self.pending.failures.entry(id.clone()).or_default();
                let delay = FIRST_RETRY.saturating_mul(1 << (*failures).min(20)).min(LONGEST_RETRY);
                *failures += 1;
                tracing::debug!(controller = %id.controller, key = id.key, %fault, "a sync failed and is tried again");
                let when = self.hand.now().saturating_add(delay).unwrap_or(Timestamp::MAX);
                self.pending.wait(id.clone(), when);
            }
        }
        true
    }

    /// Runs what is ready, first things first, until nothing is. Gives back how many syncs that were.
    pub(crate) async fn settle(&mut self) -> usize {
        let mut count = 0;
        loop {
            self.look();
            self.ring();
            let Some(id) = self.pending.ready.first().cloned() else {
                return count;
            };
            self.run(&id).await;
            count += 1;
        }
    }

    /// Works for ever: what [`crate::Cluster::start`] spawns.
    pub(crate) async fn work(mut self) {
        loop {
            self.look();
            self.ring();
            match self.pending.ready.first().cloned() {
                Some(id) => {
                    self.run(&id).await;
                    // In memory nothing here ever waits: others must have their turn.
                    tokio::task::yield_now().await;
                }
                None => self.woken().await,
            }
        }
    }

    /// Done when something was written or comes due.
    async fn woken(&mut self) {
        let clock = self.hand.registry.clock.clone();
        let next = self.next_timer();
        if !self.pending.ready.is_empty() {
            return;
        }
        let read_again = || self.hand.now().saturating_add(READ_AGAIN).unwrap_or(Timestamp::MAX);
        let next = if self.watcher.is_none() {
            Some(read_again())
        } else {
            next
        };
        let mut alarm = next.map(|when| clock.until(when));
        let line = std::future::poll_fn(|context: &mut Context<'_>| {
            if let Some(alarm) = &mut alarm
                && Pin::new(alarm).poll(context).is_ready()
            {
                return Poll::Ready(None);
            }
            match &mut self.watcher {
                None => Poll::Pending,
                Some(watcher) => match Pin::new(watcher).poll_next(context) {
                    Poll::Ready(Some(Ok(line))) => Poll::Ready(Some(line)),
                    Poll::Ready(_) => {
                        self.watcher = None;
                        Poll::Ready(None)
                    }
                    Poll::Pending => Poll::Pending,
                },
            }
        })
        .await;
        if let Some(line) = line {
            self.tell(&line);
        }
    }
}
