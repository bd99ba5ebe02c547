//! What a plan is: what to report, what to do now, why, and when to look again.

use std::fmt::Debug;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

/// One action a kind can take. Steps are enums per kind; what is said here is all the runtime knows of them.
pub trait Step: Debug + Clone + PartialEq + Send + Sync + 'static {
    /// A short constant name: the label of metrics and the word in logs (`CreateSubnet`).
    fn name(&self) -> &'static str;
    /// One sentence for people: what will be done, to what. Shown in events, logs, the CLI and the dashboard.
    fn describe(&self) -> String;
    /// Whether somebody who uses the workload can notice. At most one such step is in flight per resource.
    fn disruptive(&self) -> bool;
}

/// The answer of a kind's `plan`: a pure function of (resource, observation, now).
#[derive(Debug, Clone, PartialEq)]
pub struct Plan<S, T> {
    /// What to report, whole. Written once per pass, and only where it differs from what is there.
    pub status: T,
    /// What to do now, in order; the first failure ends the pass.
    pub steps: Vec<S>,
    /// Why the plan is as it is, for people.
    pub findings: Vec<Finding>,
    /// When to look again, if nothing changes before.
    pub next: Next,
}

impl<S: Step, T> Plan<S, T> {
    /// Nothing to do but report `status`.
    pub fn report(status: T) -> Self {
        Self {
            status,
            steps: Vec::new(),
            findings: Vec::new(),
            next: Next::OnChange,
        }
    }

    /// Adds a step after those already there.
    #[must_use]
    pub fn step(mut self, step: S) -> Self {
        debug_assert!(
            !step.disruptive() || !self.steps.iter().any(Step::disruptive),
            "one disruptive step per plan: {step:?}"
        );
        self.steps.push(step);
        self
    }

    /// Adds a reason.
    #[must_use]
    pub fn finding(mut self, finding: Finding) -> Self {
        self.findings.push(finding);
        self
    }

    /// Looks again after `wait` at the latest; the soonest wins.
    #[must_use]
    pub fn again_after(mut self, wait: Duration) -> Self {
        self.next = self.next.sooner(Next::After(wait));
        self
    }

    /// The same, where it applies.
    #[must_use]
    pub fn again_after_if(self, applies: bool, wait: Duration) -> Self {
        if applies { self.again_after(wait) } else { self }
    }
}

/// When to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Next {
    /// Only when something this resource depends on changes.
    OnChange,
    /// On a change, or after this long at the latest.
    After(Duration),
}

impl Next {
    /// The one that looks again first.
    #[must_use]
    pub fn sooner(self, other: Next) -> Next {
        match (self, other) {
            (Next::After(a), Next::After(b)) => Next::After(a.min(b)),
            (Next::After(a), Next::OnChange) | (Next::OnChange, Next::After(a)) => Next::After(a),
            (Next::OnChange, Next::OnChange) => Next::OnChange,
        }
    }
}

/// How a finding stands to progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Stance {
    /// This is being done.
    Doing,
    /// This has been reached; said once.
    Done,
    /// Somebody else must change first; Usher will notice when they do.
    Waiting,
    /// Something is wrong that the message says how to mend.
    Blocked,
}

/// Whether a finding becomes a Kubernetes event when it is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Tell {
    /// Shown by `usher plan` and the dashboard only.
    Quietly,
    /// A Normal event.
    Normal,
    /// A Warning event.
    Warning,
}

/// One reason, for people: what is done, or what is waited for and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How it stands to progress.
    pub stance: Stance,
    /// CamelCase, stable: the event's reason and what scripts match on.
    pub reason: &'static str,
    /// A sentence that names the object, and the fix where there is one.
    pub message: String,
    /// Since when, where it matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Whether it becomes an event.
    pub tell: Tell,
}

impl Finding {
    /// A quiet finding; [`Finding::told`] makes it an event, [`Finding::since`] dates it.
    pub fn new(stance: Stance, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            stance,
            reason,
            message: message.into(),
            since: None,
            tell: Tell::Quietly,
        }
    }

    /// Becomes an event of this type when new.
    #[must_use]
    pub fn told(mut self, tell: Tell) -> Self {
        self.tell = tell;
        self
    }

    /// Has stood since then.
    #[must_use]
    pub fn since(mut self, since: impl Into<Timestamp>) -> Self {
        self.since = Some(since.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn next() -> impl Strategy<Value = Next> {
        prop_oneof![
            Just(Next::OnChange),
            (0u64..100).prop_map(|s| Next::After(Duration::from_secs(s)))
        ]
    }

    proptest! {
        #[test]
        fn sooner_is_commutative_associative_and_never_later(a in next(), b in next(), c in next()) {
            prop_assert_eq!(a.sooner(b), b.sooner(a));
            prop_assert_eq!(a.sooner(b).sooner(c), a.sooner(b.sooner(c)));
            prop_assert_eq!(a.sooner(Next::OnChange), a);
            if let (Next::After(x), Next::After(y)) = (a, a.sooner(b)) {
                prop_assert!(y <= x);
            }
        }
    }
}
