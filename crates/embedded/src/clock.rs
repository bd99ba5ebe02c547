//! Time, as the options give it (E1): the system's, or one that stands still until it is told to go on.
//!
//! Everything here that waits, waits through [`Clock::until`], so a manual cluster owns no timer of the runtime.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use jiff::{SignedDuration, Timestamp};

#[derive(Debug, Clone)]
pub enum Clock {
    System,
    Manual(ManualClock),
}

impl Clock {
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Manual(clock) => clock.now(),
        }
    }

    /// Done when this clock has reached the moment.
    #[must_use]
    pub fn until(&self, moment: Timestamp) -> Alarm {
        match self {
            Self::System => {
                let wait = moment.duration_since(Timestamp::now());
                let wait = std::time::Duration::try_from(wait).unwrap_or_default();
                Alarm::System(Box::pin(tokio::time::sleep(wait)))
            }
            Self::Manual(clock) => Alarm::Manual {
                clock: clock.clone(),
                moment,
                ticket: None,
            },
        }
    }
}

/// A clock for tests and the simulator. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct ManualClock {
    face: Arc<Mutex<Face>>,
}

#[derive(Debug)]
struct Face {
    now: Timestamp,
    tickets: u64,
    waiting: BTreeMap<(Timestamp, u64), Waker>,
}

impl ManualClock {
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self {
            face: Arc::new(Mutex::new(Face {
                now,
                tickets: 0,
                waiting: BTreeMap::new(),
            })),
        }
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.face.lock().unwrap_or_else(PoisonError::into_inner).now
    }

    /// When the next of those who wait is due.
    #[must_use]
    pub fn next_alarm(&self) -> Option<Timestamp> {
        let face = self.face.lock().unwrap_or_else(PoisonError::into_inner);
        face.waiting.first_key_value().map(|((moment, _), _)| *moment)
    }

    /// Goes on to a moment (never back) and wakes whoever waited for it.
    pub fn set(&self, now: Timestamp) {
        let due: Vec<Waker> = {
            let mut face = self.face.lock().unwrap_or_else(PoisonError::into_inner);
            face.now = face.now.max(now);
            let now = face.now;
            let later = face.waiting.split_off(&(now, u64::MAX));
            std::mem::replace(&mut face.waiting, later).into_values().collect()
        };
        for waker in due {
            waker.wake();
        }
    }

    /// Goes back: the one who restores a snapshot has ended those who wait.
    pub(crate) fn put_back(&self, now: Timestamp) {
        self.face.lock().unwrap_or_else(PoisonError::into_inner).now = now;
    }

    pub fn advance(&self, by: SignedDuration) {
        let now = self.now();
        self.set(now.saturating_add(by).unwrap_or(now));
    }
}

/// See [`Clock::until`].
#[derive(Debug)]
pub enum Alarm {
    System(Pin<Box<tokio::time::Sleep>>),
    Manual {
        clock: ManualClock,
        moment: Timestamp,
        ticket: Option<u64>,
    },
}

impl Future for Alarm {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.get_mut() {
            Self::System(sleep) => sleep.as_mut().poll(context),
            Self::Manual { clock, moment, ticket } => {
                let mut face = clock.face.lock().unwrap_or_else(PoisonError::into_inner);
                if face.now >= *moment {
                    return Poll::Ready(());
                }
                let ticket = *ticket.get_or_insert_with(|| {
                    face.tickets += 1;
                    face.tickets
                });
                face.waiting.insert((*moment, ticket), context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Self::Manual {
            clock,
            moment,
            ticket: Some(ticket),
        } = self
        {
            let mut face = clock.face.lock().unwrap_or_else(PoisonError::into_inner);
            face.waiting.remove(&(*moment, *ticket));
        }
    }
}
