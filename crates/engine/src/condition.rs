//! Status conditions as Kubernetes API conventions and kstatus read them.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// True, False, or not known (yet).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Not observed.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        }
    }
}

/// One condition, in the shape of `metav1.Condition`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about: `Ready`, `Stalled`, …
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, as one CamelCase word.
    pub reason: String,
    /// Why, as a sentence.
    #[serde(default)]
    pub message: String,
    /// When `status` last changed.
    pub last_transition_time: Timestamp,
    /// The spec generation it was judged for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The conditions of one object, at most one per type, in the order first set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Conditions(Vec<Condition>);

impl Conditions {
    /// The conditions found on an object; the first of each type counts.
    pub fn from_existing(existing: &[Condition]) -> Self {
        let mut kept = Self::default();
        for condition in existing {
            if kept.get(&condition.type_).is_none() {
                kept.0.push(condition.clone());
            }
        }
        kept
    }

    /// Sets one condition. Its transition time is kept unless its status changes; reason and message always follow.
    pub fn set(
        &mut self,
        type_: &str,
        status: impl Into<ConditionStatus>,
        reason: impl Into<String>,
        message: impl Into<String>,
        generation: i64,
        now: Timestamp,
    ) {
        let status = status.into();
        let fresh = Condition {
            type_: type_.to_owned(),
            status,
            reason: reason.into(),
            message: message.into(),
            last_transition_time: whole_seconds(now),
            observed_generation: Some(generation),
        };
        debug_assert!(!fresh.reason.is_empty(), "condition {type_} needs a reason");
        match self.0.iter_mut().find(|c| c.type_ == type_) {
            Some(old) if old.status == status => {
                *old = Condition {
                    last_transition_time: old.last_transition_time,
                    ..fresh
                };
            }
            Some(old) => *old = fresh,
            None => self.0.push(fresh),
        }
    }

    /// Takes a condition away: kstatus wants `Reconciling` and `Stalled` absent when they do not apply.
    pub fn remove(&mut self, type_: &str) {
        self.0.retain(|c| c.type_ != type_);
    }

    /// The condition of this type.
    pub fn get(&self, type_: &str) -> Option<&Condition> {
        self.0.iter().find(|c| c.type_ == type_)
    }

    /// As a status field holds them.
    pub fn into_vec(self) -> Vec<Condition> {
        self.0
    }
}

/// Kubernetes times have whole seconds; a finer one would differ from itself after a round trip through other clients.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// What kstatus says of an object (`cli-utils`, Flux, Helm `--wait`): one rule, so that tests can hold ours to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Being deleted.
    Terminating,
    /// On its way.
    InProgress,
    /// Cannot go on without help.
    Failed,
    /// As asked.
    Current,
}

/// The kstatus verdict for an object with these conditions.
pub fn verdict(
    terminating: bool,
    generation: i64,
    observed_generation: Option<i64>,
    conditions: &[Condition],
) -> Verdict {
    let is = |type_: &str, status| conditions.iter().any(|c| c.type_ == type_ && c.status == status);
    if terminating {
        Verdict::Terminating
    } else if observed_generation.is_some_and(|seen| seen != generation) || is("Reconciling", ConditionStatus::True) {
        Verdict::InProgress
    } else if is("Stalled", ConditionStatus::True) {
        Verdict::Failed
    } else if is("Ready", ConditionStatus::False) || is("Ready", ConditionStatus::Unknown) {
        Verdict::InProgress
    } else {
        Verdict::Current
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn kstatus_reads_our_conditions_as_meant() {
        let mut conditions = Conditions::default();
        conditions.set("Ready", false, "PoolExhausted", "no room", 2, at(1));
        let list = |c: &Conditions| c.clone().into_vec();
        assert_eq!(verdict(false, 2, Some(2), &list(&conditions)), Verdict::InProgress);
        conditions.set("Stalled", true, "InvalidRequest", "/8 asked of a /16", 2, at(2));
        assert_eq!(verdict(false, 2, Some(2), &list(&conditions)), Verdict::Failed);
        assert_eq!(verdict(false, 3, Some(2), &list(&conditions)), Verdict::InProgress);
        conditions.remove("Stalled");
        conditions.set("Ready", true, "Allocated", "", 2, at(3));
        assert_eq!(verdict(false, 2, Some(2), &list(&conditions)), Verdict::Current);
        assert_eq!(verdict(true, 2, Some(2), &list(&conditions)), Verdict::Terminating);
    }

    #[test]
    fn duplicates_written_by_hand_collapse_to_the_first() {
        let mut conditions = Conditions::default();
        conditions.set("Ready", true, "A", "", 1, at(1));
        let mut list = conditions.into_vec();
        list.push(Condition {
            reason: "B".into(),
            ..list[0].clone()
        });
        assert_eq!(Conditions::from_existing(&list).get("Ready").unwrap().reason, "A");
    }

    proptest! {
        #[test]
        fn transition_time_moves_exactly_when_status_does(
            sets in prop::collection::vec((0usize..3, any::<bool>(), "[A-Z][a-z]{1,5}"), 1..40),
        ) {
            let types = ["Ready", "Stalled", "Held"];
            let mut conditions = Conditions::default();
            for (second, (which, holds, reason)) in sets.into_iter().enumerate() {
                let before = conditions.get(types[which]).cloned();
                let now = at(second as i64 + 1);
                conditions.set(types[which], holds, reason.clone(), "", 1, now);
                let after = conditions.get(types[which]).unwrap();
                prop_assert_eq!(&after.reason, &reason);
                match before {
                    Some(old) if old.status == after.status =>
                        prop_assert_eq!(old.last_transition_time, after.last_transition_time),
                    _ => prop_assert_eq!(after.last_transition_time, now),
                }
                let list = conditions.clone().into_vec();
                let mut names: Vec<_> = list.iter().map(|c| c.type_.as_str()).collect();
                names.sort_unstable();
                names.dedup();
                prop_assert_eq!(names.len(), list.len());
            }
        }
    }
}
