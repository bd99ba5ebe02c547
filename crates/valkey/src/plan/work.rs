//! What one part of the plan wants: steps, reasons, and when to look again.

use std::time::Duration;

use jiff::Timestamp;
use usher_engine::{Finding, Stance, Tell};

use super::step::ClusterStep;

/// What a part of the plan wants done now, and why or why not.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Work {
    /// In order.
    pub steps: Vec<ClusterStep>,
    /// For people.
    pub findings: Vec<Finding>,
    /// Look again after this long at the latest.
    pub again: Option<Duration>,
}

impl Work {
    /// Just this step.
    pub fn of(step: ClusterStep) -> Self {
        Self {
            steps: vec![step],
            ..Self::default()
        }
    }

    /// No step, and this is why.
    pub fn waits(finding: Finding) -> Self {
        Self {
            findings: vec![finding],
            ..Self::default()
        }
    }

    /// Whether there is nothing to do and nothing to wait for.
    pub fn is_done(&self) -> bool {
        self.steps.is_empty() && self.findings.is_empty()
    }

    /// Adds what another part wants.
    pub fn and(&mut self, other: Work) {
        self.steps.extend(other.steps);
        self.findings.extend(other.findings);
        if let Some(wait) = other.again {
            self.look_again(wait);
        }
    }

    /// Looks again after `wait` at the latest; the soonest wins.
    pub fn look_again(&mut self, wait: Duration) {
        self.again = Some(self.again.map_or(wait, |other| other.min(wait)));
    }

    /// Says what is waited for.
    pub fn wait(&mut self, reason: &'static str, message: impl Into<String>) {
        self.findings.push(waiting(reason, message));
    }

    /// Says what is wrong and how to mend it, as a Warning.
    pub fn block(&mut self, reason: &'static str, message: impl Into<String>) {
        self.findings.push(blocked(reason, message));
    }
}

/// Somebody else must change first.
pub fn waiting(reason: &'static str, message: impl Into<String>) -> Finding {
    Finding::new(Stance::Waiting, reason, message)
}

/// Something is wrong, and the message says how to mend it.
pub fn blocked(reason: &'static str, message: impl Into<String>) -> Finding {
    Finding::new(Stance::Blocked, reason, message).told(Tell::Warning)
}

/// Whole seconds from then to now; 0 where then is yet to come.
pub fn seconds_since(then: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(then).as_secs().max(0)
}
