//! The lease protocol as a value: what was seen, and what to do next.
//!
//! Whoever drives it (the `lease` task, the simulator, the model test) repeats one thing: ask [`Candidate::decide`],
//! do what it says, and tell what came of it. One request is under way at a time.

use std::time::Duration;

use usher_engine::Moment;

use super::{LeaseTiming, TimingError};

/// What the protocol reads of a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// Whose it is; `None` when released.
    pub holder: Option<String>,
    /// Its resourceVersion: changes with every write.
    pub rv: String,
    /// How long its holder holds it; `None` when it does not say.
    pub duration_seconds: Option<u32>,
    /// How many times it changed hands.
    pub transitions: i32,
}

/// What a write expects to find; the server refuses it otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// No Lease: create it.
    Absent,
    /// The Lease in exactly this version: replace it.
    Version(String),
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Read the Lease (not from a cache), then [`Candidate::observe`].
    Look,
    /// Call [`Candidate::sending`], write the Lease with this candidate as its holder, then tell what came of it.
    Acquire {
        /// What must be there.
        guard: Guard,
        /// What `leaseTransitions` becomes.
        transitions: i32,
    },
    /// Call [`Candidate::sending`], write the Lease again, then tell what came of it.
    Renew {
        /// What must be there.
        guard: Guard,
        /// What `leaseTransitions` stays.
        transitions: i32,
    },
    /// Nothing for this long; then ask again.
    Wait(Duration),
}

/// A write was stored: what [`super::Leadership::renewed`] is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "tell Leadership::renewed"]
pub struct Renewal {
    /// Before the write was sent.
    pub sent_at: Moment,
    /// Duration less margin.
    pub valid_for: Duration,
    /// The lease was not ours before.
    pub acquired: bool,
}

/// The Lease as last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sight {
    Nothing,
    /// There is none, first seen so at `since`. `was` is the longest duration it had while we knew it: whoever held it
    /// when it was deleted may act that long. `None`: we never saw one.
    Absent {
        since: Moment,
        was: Option<Duration>,
    },
    /// In this version since, at the latest, `since`.
    Present {
        lease: LeaseView,
        since: Moment,
    },
}

/// Our part in it. An acquisition is told by its number of transitions as well as by the holder's name: a process that
/// restarts under its old name does not mistake what its predecessor held for its own.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    None,
    /// A write that makes it ours was sent, and may yet take effect while the Lease is as `guard` says.
    Claimed {
        transitions: i32,
        guard: Guard,
    },
    Held {
        transitions: i32,
    },
}

/// One process that wants the lease.
#[derive(Debug, Clone)]
pub struct Candidate {
    identity: String,
    timing: LeaseTiming,
    sight: Sight,
    part: Part,
    /// What is known is out of date: look before anything else.
    look: bool,
    looked_at: Moment,
    /// Before the write now under way was sent.
    sent_at: Moment,
    /// Before the last stored write was sent.
    renewed_at: Option<Moment>,
    /// After a failure: nothing sooner.
    not_before: Moment,
}

impl Candidate {
    /// A candidate that has seen nothing yet. `identity` must differ between processes.
    pub fn new(identity: impl Into<String>, timing: LeaseTiming) -> Result<Self, TimingError> {
        timing.validate()?;
        Ok(Self {
            identity: identity.into(),
            timing,
            sight: Sight::Nothing,
            part: Part::None,
            look: true,
            looked_at: Moment::START,
            sent_at: Moment::START,
            renewed_at: None,
            not_before: Moment::START,
        })
    }

    /// Its name, as the Lease's holder.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Its durations.
    pub fn timing(&self) -> &LeaseTiming {
        &self.timing
    }

    /// Whether the Lease, as last seen, is ours. When not, [`super::Leadership::lost`] must be told at once. When so, it
    /// is still [`super::Leadership`] that says for how long.
    pub fn is_holder(&self) -> bool {
        matches!(self.part, Part::Held { .. })
    }

    /// Who holds the Lease, as last seen, when it is not us.
    pub fn other_holder(&self) -> Option<&str> {
        match &self.sight {
            Sight::Present { lease, .. } if !self.is_holder() => lease.holder.as_deref(),
            _ => None,
        }
    }

    /// Takes in what a read answered. `now` is after the answer: what was read had been stored by then, so that
    /// counting from `now` never counts too much.
    pub fn observe(&mut self, lease: Option<&LeaseView>, now: Moment) {
        self.look = false;
        self.looked_at = now;
        let Some(lease) = lease else {
            let was = match &self.sight {
                Sight::Nothing => None,
                Sight::Absent { .. } => return,
                Sight::Present { lease, .. } => Some(self.wait_for(lease)),
            };
            self.sight = Sight::Absent { since: now, was };
            if !matches!(
                self.part,
                Part::Claimed {
                    guard: Guard::Absent,
                    ..
                }
            ) {
                self.part = Part::None;
            }
            return;
        };
        let same = matches!(&self.sight, Sight::Present { lease: seen, .. } if seen.rv == lease.rv);
        if !same {
            self.sight = Sight::Present {
                lease: lease.clone(),
                since: now,
            };
        }
        let named = lease.holder.as_deref() == Some(self.identity.as_str());
        match &self.part {
            Part::Claimed { transitions, .. } | Part::Held { transitions }
                if named && *transitions == lease.transitions =>
            {
                self.part = Part::Held {
                    transitions: lease.transitions,
                };
            }
            Part::Claimed {
                guard: Guard::Version(rv),
                ..
            } if *rv == lease.rv => {}
            _ => self.part = Part::None,
        }
    }

    /// What to do at `now`.
    pub fn decide(&self, now: Moment) -> Decision {
        if now < self.not_before {
            return Decision::Wait(self.not_before.since(now));
        }
        if self.look {
            return Decision::Look;
        }
        match &self.sight {
            Sight::Nothing => Decision::Look,
            Sight::Absent { since, was } => {
                // Never seen: a new cluster, most likely, which need not wait. Seen and gone: somebody deleted it, and
                // who held it does not know yet.
                let ripe = was.map_or(now, |was| *since + was.max(self.timing.duration));
                self.when_ripe(now, ripe, || Decision::Acquire {
                    guard: Guard::Absent,
                    transitions: 0,
                })
            }
            Sight::Present { lease, since } => {
                let guard = || Guard::Version(lease.rv.clone());
                if let Part::Held { transitions } = self.part {
                    let due = self.renewed_at.map_or(now, |at| at + self.timing.renew_every);
                    return if now >= due {
                        Decision::Renew {
                            guard: guard(),
                            transitions,
                        }
                    } else {
                        Decision::Wait(due.since(now))
                    };
                }
                let ripe = if lease.holder.is_none() {
                    now
                } else {
                    *since + self.wait_for(lease)
                };
                let transitions = lease.transitions.saturating_add(1);
                self.when_ripe(now, ripe, || Decision::Acquire {
                    guard: guard(),
                    transitions,
                })
            }
        }
    }

    /// A write is about to be sent. From here on it may take effect, whatever becomes of the answer.
    pub fn sending(&mut self, write: &Decision, now: Moment) {
        self.sent_at = now;
        if let Decision::Acquire { guard, transitions } = write {
            self.part = Part::Claimed {
                transitions: *transitions,
                guard: guard.clone(),
            };
        }
    }

    /// The write was stored, as `lease`.
    pub fn stored(&mut self, lease: &LeaseView, now: Moment) -> Renewal {
        let acquired = !self.is_holder();
        self.part = Part::Held {
            transitions: lease.transitions,
        };
        self.sight = Sight::Present {
            lease: lease.clone(),
            since: now,
        };
        self.look = false;
        self.looked_at = now;
        self.renewed_at = Some(self.sent_at);
        Renewal {
            sent_at: self.sent_at,
            valid_for: self.timing.valid_for(),
            acquired,
        }
    }

    /// The server refused the write, because the Lease is not what the guard said: look again.
    pub fn refused(&mut self) {
        self.look = true;
        if !self.is_holder() {
            self.part = Part::None;
        }
    }

    /// No answer to a read or write, or an error: a write may or may not have taken effect. Try again, soon when there
    /// is a lease to keep.
    pub fn unanswered(&mut self, now: Moment) {
        // A holder repeats its renewal as it is: if the first one did take effect, the second is refused, and it looks.
        if !self.is_holder() {
            self.look = true;
        }
        let pause = if self.is_holder() {
            self.timing.renew_every / 4
        } else {
            self.timing.renew_every
        };
        self.not_before = now + pause;
    }

    /// What a release must find, if the Lease is ours to release. Before it is sent, [`super::Leadership::lost`] must
    /// have been told: the next one need not wait.
    pub fn releasable(&self) -> Option<Guard> {
        match &self.sight {
            Sight::Present { lease, .. } if self.is_holder() => Some(Guard::Version(lease.rv.clone())),
            _ => None,
        }
    }

    /// How long `lease` must be seen unchanged: as long as it says itself, for its holder may be set up differently.
    fn wait_for(&self, lease: &LeaseView) -> Duration {
        match lease.duration_seconds {
            Some(seconds) if seconds > 0 => Duration::from_secs(u64::from(seconds)).min(LeaseTiming::LONGEST),
            _ => self.timing.duration,
        }
    }

    /// `then` from `ripe` on; before it, a look every `renew_every`.
    fn when_ripe(&self, now: Moment, ripe: Moment, then: impl FnOnce() -> Decision) -> Decision {
        let look_at = self.looked_at + self.timing.renew_every;
        if now >= ripe {
            then()
        } else if now >= look_at {
            Decision::Look
        } else {
            Decision::Wait(ripe.min(look_at).since(now))
        }
    }
}
