//! When certificates are replaced: a pure function of what is there and what time it is.
//!
//! Replacing the authority takes two moves, so that no API server ever meets a certificate it cannot check:
//! first the new authority joins the bundle ([`Verdict::RotateCa`]) while the old serving certificate stays; only when
//! the bundle has been published for a while does the new authority sign ([`Verdict::RotateServing`]). The old
//! authority stays in the bundle until it expires.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Certificates are dated back this far, for API servers whose clocks are behind ours.
pub(super) const BACKDATE: Duration = Duration::from_secs(3_600);

const DAY: Duration = Duration::from_secs(86_400);

/// How long certificates live. Each is replaced when two thirds of its life are over, so that a third is left to
/// notice and mend whatever hinders it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// Of the certificate that is presented.
    pub serving: Duration,
    /// Of the authority that signs it.
    pub authority: Duration,
    /// From the publication of a new authority to its first signature: for every API server to have seen the bundle.
    /// They watch, so seconds would do; a replica of Usher looks every half minute.
    pub settle: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            serving: 90 * DAY,
            authority: 730 * DAY,
            settle: Duration::from_secs(600),
        }
    }
}

impl Lifetimes {
    /// Why these cannot work, if so.
    pub fn problem(&self) -> Option<String> {
        // When the authority is replaced, the serving certificate may have a third of its life left and must last
        // until the new authority may sign.
        if self.settle >= self.serving / 3 {
            return Some(format!(
                "the settling time ({} s) must be shorter than a third of the serving certificate's life ({} s)",
                self.settle.as_secs(),
                self.serving.as_secs()
            ));
        }
        if self.serving > self.authority {
            return Some(format!(
                "the serving certificate's life ({} s) must not be longer than its authority's ({} s)",
                self.serving.as_secs(),
                self.authority.as_secs()
            ));
        }
        // Dated back, it must not be two thirds old at birth.
        if self.serving < 4 * BACKDATE {
            return Some(format!(
                "the serving certificate's life ({} s) must be at least {} s",
                self.serving.as_secs(),
                (4 * BACKDATE).as_secs()
            ));
        }
        (self.authority > 36_500 * DAY).then(|| "an authority may live for a hundred years at most".to_owned())
    }
}

/// From when until when a certificate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first moment.
    pub from: Timestamp,
    /// The last moment.
    pub until: Timestamp,
}

impl Span {
    /// Whether it counts at `now`.
    pub fn covers(&self, now: Timestamp) -> bool {
        self.from <= now && now <= self.until
    }

    /// When two thirds are over.
    pub fn due(&self) -> Timestamp {
        let life = self.until.duration_since(self.from);
        later(
            self.from,
            Duration::from_secs(u64::try_from(life.as_secs()).unwrap_or(0) / 3 * 2),
        )
    }
}

/// What is there, as far as the decision depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The newest authority, if it and its key are there, whole, and ours.
    pub authority: Option<Span>,
    /// The presented certificate, if it and its key are there and whole.
    pub serving: Option<Serving>,
    /// Since when, as far as this process knows, the bundle with the newest authority is where API servers read it.
    /// A process that has just started knows of no earlier time than now, which costs one more settling time.
    pub published: Option<Timestamp>,
}

/// What matters of the presented certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Serving {
    /// When it counts.
    pub span: Span,
    /// Who vouches for it.
    pub signer: Signer,
    /// It is good for every name the server is called by.
    pub names: bool,
}

/// Who signed the presented certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    /// The authority that signs now.
    Newest,
    /// One that is still in the bundle.
    Older(Span),
    /// Nobody in the bundle.
    Nobody,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing until then. (Except to publish, if that is still to be done.)
    Keep {
        /// When the next verdict may differ by time alone.
        until: Timestamp,
    },
    /// Sign a new serving certificate with the newest authority.
    RotateServing(Why),
    /// Make a new authority, keep the old ones in the bundle and the serving certificate in use.
    RotateCa(Why),
    /// Make everything new.
    Create,
}

/// Why something is replaced, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Two thirds of its life are over.
    Age,
    /// It does not count now.
    NotValidNow,
    /// It, or its key, is missing or unreadable.
    Missing,
    /// The server has names it does not carry.
    Names,
    /// Nobody in the bundle vouches for it.
    Unsigned,
    /// A new authority takes over.
    NewAuthority,
    /// Somebody deleted the Secret.
    Deleted,
}

/// The decision.
pub fn decide(facts: &Facts, lifetimes: &Lifetimes, now: Timestamp) -> Verdict {
    let Some(authority) = facts.authority else {
        return Verdict::Create;
    };
    if !authority.covers(now) {
        return Verdict::RotateCa(Why::NotValidNow);
    }
    if now >= authority.due() {
        return Verdict::RotateCa(Why::Age);
    }
    let Some(serving) = facts.serving else {
        return Verdict::RotateServing(Why::Missing);
    };
    if !serving.names {
        return Verdict::RotateServing(Why::Names);
    }
    if !serving.span.covers(now) {
        return Verdict::RotateServing(Why::NotValidNow);
    }
    match serving.signer {
        Signer::Nobody => Verdict::RotateServing(Why::Unsigned),
        Signer::Older(older) if !older.covers(now) => Verdict::RotateServing(Why::Unsigned),
        Signer::Older(older) => {
            let settled = facts.published.map(|since| later(since, lifetimes.settle));
            if settled.is_some_and(|settled| now >= settled) {
                return Verdict::RotateServing(Why::NewAuthority);
            }
            // Published or not, a certificate that has expired helps nobody.
            let last = serving.span.until.min(older.until);
            Verdict::Keep {
                until: settled.unwrap_or(last).min(last).min(authority.due()),
            }
        }
        Signer::Newest if now >= serving.span.due() => Verdict::RotateServing(Why::Age),
        Signer::Newest => Verdict::Keep {
            until: serving.span.due().min(authority.due()),
        },
    }
}

/// `wait` after `at`; the end of time when there is no such moment.
pub(super) fn later(at: Timestamp, wait: Duration) -> Timestamp {
    SignedDuration::try_from(wait)
        .ok()
        .and_then(|wait| at.checked_add(wait).ok())
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
