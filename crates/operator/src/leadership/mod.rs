//! Who may act. Plain values: no client, no task, no clock of their own ([`SharedLeadership`] adds a lock and a bell).
//!
//! [`Leadership`] is the one question everything that writes asks: may I act now, by my own clock? [`Candidate`] is the
//! protocol that answers it, over a record that all candidates read and replace (`lease` runs it against a Kubernetes
//! Lease; the simulator against its own).
//!
//! Why two never act at once, without comparing the clocks of two machines:
//!
//! - The holder counts from the moment **before** it sent a renewal: it acts until `sent + duration - margin`. The
//!   server stored that renewal later than it was sent.
//! - Another counts from the moment **after** it read a record: it takes over when it has itself seen that record
//!   unchanged for `duration`. The server stored the record before it was read. And it replaces exactly that record
//!   (resourceVersion), so a renewal it did not see makes its attempt fail.
//! - So between the end of one and the start of the other lies at least `margin`, less what two clocks drift apart in
//!   one `duration`. [`LeaseTiming`] wants a margin of at least 2 %, for clocks within 1 % of true time.
//!
//! The process may be stopped anywhere in between (SIGSTOP, a swapped-out machine): what it holds ends by its clock,
//! which goes on. What no lease can prevent is a request sent in time and delayed on the way; that is why every effect
//! also carries a precondition of its own.
//!
//! **Deliberately absent:** `renewTime` of the Lease is written for people, and never read.

mod candidate;
mod shared;
mod timing;

use std::time::Duration;

use usher_engine::Moment;

pub use candidate::{Candidate, Decision, Guard, LeaseView, Renewal};
pub use shared::SharedLeadership;
pub use timing::{LeaseTiming, TimingError};

/// Whether this process may act, by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership(Hold);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Not,
    Until(Moment),
    Always,
}

impl Leadership {
    /// May not act before the first [`Leadership::renewed`].
    pub fn never_held() -> Self {
        Self(Hold::Not)
    }

    /// May always act: there is only one process, or the workload needs no leader. Stays so whatever is called.
    pub fn without_lease() -> Self {
        Self(Hold::Always)
    }

    /// A renewal sent at `sent_at` was stored: may act for `valid_for` from then, not from the answer. A hold that
    /// already reaches further is kept.
    pub fn renewed(&mut self, sent_at: Moment, valid_for: Duration) {
        let until = sent_at + valid_for;
        self.0 = match self.0 {
            Hold::Always => Hold::Always,
            Hold::Until(held) => Hold::Until(held.max(until)),
            Hold::Not => Hold::Until(until),
        };
    }

    /// May not act, from now on.
    pub fn lost(&mut self) {
        if self.0 != Hold::Always {
            self.0 = Hold::Not;
        }
    }

    /// The question to ask before each effect. At the last moment of the hold itself, the answer is no.
    pub fn may_act(&self, now: Moment) -> bool {
        match self.0 {
            Hold::Not => false,
            Hold::Until(until) => now < until,
            Hold::Always => true,
        }
    }

    /// When the hold ends, or ended, if nothing renews it. `None` when there is no hold, and when it never ends.
    pub fn held_until(&self) -> Option<Moment> {
        match self.0 {
            Hold::Until(until) => Some(until),
            Hold::Not | Hold::Always => None,
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
