//! Whose write goes next: at most so many at once, and of those that wait the most urgent first.
//!
//! [`Turns`] is the rule, a plain value. [`Turnstile`] is that value behind a lock, for tasks that wait. Every write of
//! the operator passes through it; leases, watches, reads and events do not.
//!
//! What it promises:
//!
//! - **Never more at once** than there are places, and no place is empty while somebody waits.
//! - **By rank, then by arrival.** What is begun is finished first, whatever is begun meanwhile.
//! - **Nobody waits for ever.** Whoever has seen [`PATIENCE`] others start goes next, whatever their rank: else a flood of
//!   urgent writes would keep the rest out until their passes time out.
//! - **No place is lost.** Holding a [`Turn`] is waiting or being inside; dropping it, at whatever moment, gives both up.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// How many others may start before one that waits. With the defaults some 140 wait at most, so that ranks decide nearly
/// always; at a thousand writes a second it is about a second.
pub const PATIENCE: u64 = 1_024;

/// How urgent a write is. The smallest goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u8);

impl Default for Rank {
    /// In the middle: kinds that say nothing neither push nor yield.
    fn default() -> Self {
        Self(u8::MAX / 2)
    }
}

/// One that waits or is inside. Ordered by who goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    rank: Rank,
    arrival: u64,
}

/// Who is inside and who waits; see the module's header.
#[derive(Debug)]
pub struct Turns {
    places: usize,
    inside: BTreeSet<Ticket>,
    waiting: BTreeSet<Ticket>,
    /// The same by arrival, each with how many had started by then.
    by_arrival: BTreeMap<u64, (Ticket, u64)>,
    arrivals: u64,
    started: u64,
}

impl Turns {
    /// At most `places` at once; at least one.
    pub fn new(places: usize) -> Self {
        Self {
            places: places.max(1),
            inside: BTreeSet::new(),
            waiting: BTreeSet::new(),
            by_arrival: BTreeMap::new(),
            arrivals: 0,
            started: 0,
        }
    }

    /// Somebody comes. Inside at once if there is a place; then nobody waits, so that nobody is overtaken.
    pub fn arrive(&mut self, rank: Rank) -> Ticket {
        let ticket = Ticket {
            rank,
            arrival: self.arrivals,
        };
        self.arrivals += 1;
        self.waiting.insert(ticket);
        self.by_arrival.insert(ticket.arrival, (ticket, self.started));
        let called = self.call();
        debug_assert!(
            called.is_none_or(|called| called == ticket),
            "a place was empty while others waited"
        );
        ticket
    }

    /// Whether it is this one's turn.
    pub fn is_inside(&self, ticket: Ticket) -> bool {
        self.inside.contains(&ticket)
    }

    /// Somebody is done, or waits no longer. Says whose turn it is now, if that sets a place free.
    pub fn leave(&mut self, ticket: Ticket) -> Option<Ticket> {
        if self.waiting.remove(&ticket) {
            self.by_arrival.remove(&ticket.arrival);
        }
        self.inside.remove(&ticket);
        self.call()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether whoever comes now must wait.
    pub fn is_full(&self) -> bool {
        self.inside.len() >= self.places
    }

    fn call(&mut self) -> Option<Ticket> {
        if self.is_full() {
            return None;
        }
        let impatient = self
            .by_arrival
            .first_key_value()
            .filter(|(_, (_, started))| self.started - started >= PATIENCE)
            .map(|(_, (ticket, _))| *ticket);
        let next = impatient.or_else(|| self.waiting.first().copied())?;
        self.waiting.remove(&next);
        self.by_arrival.remove(&next.arrival);
        self.inside.insert(next);
        self.started += 1;
        Some(next)
    }
}

/// [`Turns`] for tasks.
#[derive(Debug)]
pub struct Turnstile {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    turns: Turns,
    wakers: BTreeMap<Ticket, Waker>,
}

impl Turnstile {
    /// At most `places` at once.
    pub fn new(places: usize) -> Self {
        let turns = Turns::new(places);
        Self {
            inner: Mutex::new(Inner {
                turns,
                wakers: BTreeMap::new(),
            }),
        }
    }

    /// Waits for one's turn, and has it until the answer is dropped.
    pub async fn turn(&self, rank: Rank) -> Turn<'_> {
        let turn = Turn {
            ticket: self.lock().turns.arrive(rank),
            of: self,
        };
        poll_fn(|cx| {
            let mut inner = self.lock();
            if inner.turns.is_inside(turn.ticket) {
                return Poll::Ready(());
            }
            inner.wakers.insert(turn.ticket, cx.waker().clone());
            Poll::Pending
        })
        .await;
        turn
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.lock().turns.waiting()
    }

    /// Whether whoever comes now must wait.
    pub fn is_full(&self) -> bool {
        self.lock().turns.is_full()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, or the wait for one.
#[derive(Debug)]
#[must_use]
pub struct Turn<'t> {
    of: &'t Turnstile,
    ticket: Ticket,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut inner = self.of.lock();
        inner.wakers.remove(&self.ticket);
        let waker = inner
            .turns
            .leave(self.ticket)
            .and_then(|next| inner.wakers.remove(&next));
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests;
