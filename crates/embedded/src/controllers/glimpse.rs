//! What controllers that follow all pods have to know of each, read without decoding the rest: there are many pods, and most
//! of their changes are of no concern.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use crate::store::{Entry, Key, Kind, LogEntry, Value};

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Glimpse {
    pub(super) metadata: Meta,
    pub(super) spec: Spec,
    pub(super) status: Status,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) labels: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
    owner_references: Vec<Owner>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Owner {
    uid: String,
    controller: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) node_name: String,
    pub(super) hostname: String,
    pub(super) subdomain: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    phase: String,
    #[serde(rename = "podIPs")]
    pub(super) pod_ips: Vec<Address>,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Address {
    ip: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    last_transition_time: Option<String>,
}

pub(super) fn is_pod(key: &Key) -> bool {
    key.resource() == "pods" && key.group().is_empty()
}

/// Before and after a change; `None` where there was no pod, or none that can be read.
pub(super) fn of_line(line: &LogEntry) -> (Option<Glimpse>, Option<Glimpse>) {
    let old = line.previous.as_ref().and_then(|(_, value)| of(value));
    let new = (line.kind != Kind::Delete).then(|| of(&line.value)).flatten();
    (old, new)
}

/// All pods of a state, by `namespace/name`.
pub(super) fn of_state(state: &[Entry]) -> impl Iterator<Item = (String, Glimpse)> + '_ {
    let pods = state.iter().filter(|entry| is_pod(&entry.key));
    pods.filter_map(|entry| Some((place(&entry.key), of(&entry.value)?)))
}

/// `namespace/name`.
pub(super) fn place(key: &Key) -> String {
    format!("{}/{}", key.namespace().unwrap_or_default(), key.name())
}

fn of(value: &Value) -> Option<Glimpse> {
    serde_json::from_slice(value.json()).ok()
}

impl Glimpse {
    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|ready| ready.status == "True")
    }

    pub(super) fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The uid of who controls it.
    pub(super) fn controller(&self) -> Option<&str> {
        let owner = self.metadata.owner_references.iter().find(|owner| owner.controller)?;
        Some(&owner.uid)
    }

    /// Since when it says that somebody wants it to go, though nobody told it to. What a kubelet says of itself stays true.
    pub(super) fn doubtful_since(&self) -> Option<Timestamp> {
        let condition = self.condition("DisruptionTarget")?;
        let is_kubelets = condition.reason == "TerminationByKubelet";
        if self.is_deleting() || self.is_finished() || condition.status != "True" || is_kubelets {
            return None;
        }
        condition.last_transition_time.as_ref()?.parse().ok()
    }
}
