//! Tables of sights and what follows from them. [`World`] is what a worker would have seen.

mod ends;
mod starts;
mod storage;
mod times;
mod told;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::{Value, json};

use super::*;
use crate::node::supervisor::protocol::Stopping;

pub(super) struct World {
    pub(super) pod: Pod,
    pub(super) is_gone: bool,
    pub(super) kept: Kept,
    pub(super) attempts: Attempts,
    pub(super) supervisor: Supervisor,
    pub(super) is_prepared: bool,
    pub(super) troubles: BTreeMap<String, Trouble>,
    pub(super) health: BTreeMap<String, Health>,
    pub(super) messages: BTreeMap<(String, u32), String>,
    pub(super) usage: Option<Usage>,
    pub(super) now: Timestamp,
}

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

impl World {
    /// A pod of this spec, prepared, nothing started.
    pub(super) fn new(spec: Value) -> Self {
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1}, "spec": spec,
            "status": {"phase": "Pending", "qosClass": "BestEffort"}});
        let kept = Kept {
            address: Some("127.64.1.7".parse().unwrap()),
            start_time: Some(at(0)),
            ..Kept::default()
        };
        Self {
            pod: serde_json::from_value(pod).unwrap(),
            is_gone: false,
            kept,
            attempts: Attempts::new(),
            supervisor: Supervisor::Alive,
            is_prepared: true,
            troubles: BTreeMap::new(),
            health: BTreeMap::new(),
            messages: BTreeMap::new(),
            usage: None,
            now: at(0),
        }
    }

    /// Decides, and keeps what is to be kept, as a worker does; the pod gets the status.
    pub(super) fn decide(&mut self) -> Decision {
        let decision = decide(&Sight {
            pod: &self.pod,
            is_gone: self.is_gone,
            kept: &self.kept,
            attempts: &self.attempts,
            supervisor: self.supervisor,
            is_prepared: self.is_prepared,
            troubles: &self.troubles,
            health: &self.health,
            messages: &self.messages,
            usage: self.usage.as_ref(),
            host_ip: "127.64.0.16",
            limits: Limits::default(),
            now: self.now,
        });
        self.kept = decision.kept.clone();
        self.pod.status = Some(decision.status.clone());
        decision
    }

    pub(super) fn steps(&mut self) -> Vec<Step> {
        self.decide().steps
    }

    /// The reasons and texts of what is told.
    pub(super) fn told(&mut self) -> Vec<String> {
        let told = self.decide().tellings;
        told.into_iter()
            .map(|telling| format!("{}: {}", telling.reason, telling.message))
            .collect()
    }

    fn put(&mut self, container: &str, attempt: u32, phase: Phase) {
        let id = format!("usher://{container}-{attempt}");
        self.attempts.entry(container.to_owned()).or_default().insert(
            attempt,
            Attempt {
                id,
                phase,
                stopping: None,
            },
        );
    }

    pub(super) fn runs(&mut self, container: &str, attempt: u32) {
        let started_at = self.now;
        self.put(container, attempt, Phase::Running { pid: 7, started_at });
    }

    pub(super) fn exits(&mut self, container: &str, attempt: u32, code: i32) {
        let reason = if code == 0 {
            ExitReason::Completed
        } else {
            ExitReason::Error
        };
        self.exits_with(container, attempt, code, reason, "");
    }

    pub(super) fn exits_with(&mut self, container: &str, attempt: u32, code: i32, reason: ExitReason, message: &str) {
        let phase = Phase::Exited {
            code,
            signal: None,
            started_at: (reason != ExitReason::StartError).then_some(self.now),
            finished_at: self.now,
            reason,
            message: message.to_owned(),
        };
        self.put(container, attempt, phase);
    }

    pub(super) fn is_asked_to_stop(&mut self, container: &str, attempt: u32, seconds: i64) {
        let now = self.now;
        let record = self.attempts.get_mut(container).unwrap().get_mut(&attempt).unwrap();
        record.stopping = Some(Stopping {
            signal: 15,
            asked_at: now,
            kill_at: now + SignedDuration::from_secs(seconds),
        });
    }

    pub(super) fn health(&mut self, container: &str, attempt: u32, started: bool, ready: bool) {
        let health = Health {
            attempt,
            started,
            ready,
        };
        self.health.insert(container.to_owned(), health);
    }

    pub(super) fn deleted(&mut self, grace_seconds: i64) {
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now);
        self.pod.metadata.deletion_timestamp = Some(time);
        self.pod.metadata.deletion_grace_period_seconds = Some(grace_seconds);
    }

    pub(super) fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }
}

pub(super) fn start(container: &str, attempt: u32) -> Step {
    Step::Start {
        container: container.to_owned(),
        attempt,
    }
}

pub(super) fn stop(container: &str, attempt: u32, seconds: u64) -> Step {
    Step::Stop {
        container: container.to_owned(),
        attempt,
        grace: Duration::from_secs(seconds),
    }
}

/// One status as JSON, for comparing parts of it.
pub(super) fn status(decision: &Decision, container: &str) -> Value {
    let all = decision.status.init_container_statuses.iter().flatten();
    let mut all = all.chain(decision.status.container_statuses.iter().flatten());
    let found: &ContainerStatus = all.find(|status| status.name == container).unwrap();
    serde_json::to_value(found).unwrap()
}

/// `Ready=False ContainersNotReady: message`.
pub(super) fn condition(decision: &Decision, type_: &str) -> String {
    let conditions = decision.status.conditions.as_ref().unwrap();
    let found = conditions.iter().find(|condition| condition.type_ == type_).unwrap();
    let mut text = found.status.clone();
    for part in [&found.reason, &found.message].into_iter().flatten() {
        text.push(' ');
        text.push_str(part);
    }
    text
}
