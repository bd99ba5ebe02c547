//! What only the agent knows of a pod, and what a crash must not take: `agent.json` in the pod's folder. It is written
//! whole before a step is taken, and not flushed to the disk: after a power failure no process is left to know about.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::backoff::Backoff;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Kept {
    pub namespace: String,
    pub name: String,
    /// The node whose pod it is.
    pub node: String,
    pub start_time: Option<Timestamp>,
    pub address: Option<Ipv4Addr>,
    /// The node would not have it.
    pub rejected: Option<Verdict>,
    /// It had more on the disk than it may: the message of its status.
    pub evicted: Option<String>,
    /// Its own volumes are gone, since it was evicted.
    pub is_cleared: bool,
    /// Nothing of it is started any more.
    pub ended: Option<Ended>,
    pub containers: BTreeMap<String, KeptContainer>,
}

/// Why a pod as a whole failed: reason and message of its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    pub reason: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    pub since: Timestamp,
    pub why: EndReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EndReason {
    /// Its containers have done their work, or have failed for good.
    Finished,
    /// It is to be deleted, or its object is gone.
    Deleted,
    /// `activeDeadlineSeconds` are over.
    Deadline,
    /// It has more on the disk than it may.
    Evicted,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KeptContainer {
    pub backoff: Option<Backoff>,
    /// The attempt that was last asked for: it counts once towards the back-off.
    pub begun: Option<u32>,
    /// The attempts that events were told about.
    pub told_started: Option<u32>,
    pub told_failed: Option<u32>,
    pub told_killing: Option<u32>,
    pub told_backoff: Option<u32>,
    /// The attempt whose hook is done.
    pub post_start: Option<u32>,
    pub pre_stop: Option<u32>,
    /// The attempt that is to be stopped and perhaps started again.
    pub doomed: Option<Doomed>,
}

/// An attempt that has to go although the pod goes on: a failed probe, a failed hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Doomed {
    pub attempt: u32,
    pub since: Timestamp,
    /// Goes over the pod's.
    pub grace_seconds: Option<i64>,
    /// The text of the event `Killing`.
    pub message: String,
    /// What the container waits with afterwards: reason and message.
    pub waiting: Option<(String, String)>,
}

impl Kept {
    pub(super) fn of(&self, container: &str) -> KeptContainer {
        self.containers.get(container).cloned().unwrap_or_default()
    }

    pub fn container(&mut self, container: &str) -> &mut KeptContainer {
        self.containers.entry(container.to_owned()).or_default()
    }

    /// Of a pod whose life was over before this agent saw it.
    pub fn end_as_finished(&mut self, now: Timestamp) {
        self.end(EndReason::Finished, now);
    }

    /// Sets an end, if there is none yet.
    pub(super) fn end(&mut self, why: EndReason, since: Timestamp) {
        match &mut self.ended {
            Some(ended) => {
                // A pod that had finished and is deleted has nothing left to lose; one that runs is stopped once.
                if why == EndReason::Deleted && ended.why == EndReason::Finished {
                    ended.why = why;
                }
            }
            None => self.ended = Some(Ended { since, why }),
        }
    }
}
