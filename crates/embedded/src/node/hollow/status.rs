//! A pod's status as a kubelet would write it, were there one.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodCondition, PodSpec};
use serde_json::{Value, json};

use super::hash;
use super::stages::Step;
use crate::controllers::pods::condition;
use crate::registry::object;

/// How often the pod's containers were started again.
pub(super) fn restarts(pod: &Pod) -> i32 {
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    statuses
        .into_iter()
        .map(|status| status.restart_count)
        .max()
        .unwrap_or_default()
}

/// What the next status is made of.
#[derive(Debug)]
pub(super) struct Told<'a> {
    pub(super) pod: &'a Pod,
    pub(super) host: &'a str,
    pub(super) address: &'a str,
    /// How long a container that fails now waits.
    pub(super) back_off: SignedDuration,
    pub(super) scheduled: Option<&'a PodCondition>,
    pub(super) now: Timestamp,
}

/// What all containers of a pod are next.
enum Fate {
    Running,
    /// Ended with a code, for good.
    Ended(i32),
    /// Ended with a code, and started once more at once.
    Restarted(i32),
    /// Ended with a code, and waits.
    Waiting(i32),
}

impl Told<'_> {
    pub(super) fn status(&self, next: Step) -> Value {
        let nothing = PodSpec::default();
        let spec = self.pod.spec.as_ref().unwrap_or(&nothing);
        let restarts_at_failure = spec.restart_policy.as_deref() != Some("Never");
        let fate = match next {
            Step::Ready | Step::Unready | Step::Gone => Fate::Running,
            Step::Succeed => Fate::Ended(0),
            Step::Crash { exit_code } if !restarts_at_failure => Fate::Ended(exit_code),
            Step::Crash { exit_code } if self.back_off.is_zero() => Fate::Restarted(exit_code),
            Step::Crash { exit_code } => Fate::Waiting(exit_code),
        };
        let phase = match fate {
            Fate::Ended(0) => "Succeeded",
            Fate::Ended(_) => "Failed",
            _ => "Running",
        };
        let is_ready = matches!(next, Step::Ready) || matches!(fate, Fate::Restarted(_));
        let mut containers: Vec<&Container> = spec.containers.iter().collect();
        containers.sort_by(|one, other| one.name.cmp(&other.name));
        let mut status = json!({
            "phase": phase,
            "observedGeneration": self.pod.metadata.generation,
            "conditions": self.conditions(&fate, is_ready, &containers),
            "hostIP": self.host, "hostIPs": [{"ip": self.host}],
            "podIP": self.address, "podIPs": [{"ip": self.address}],
            "startTime": object::time(self.started()),
            "containerStatuses": containers.iter().map(|container| self.container(container, &fate, is_ready)).collect::<Vec<_>>(),
        });
        let inits: Vec<Value> = spec
            .init_containers
            .iter()
            .flatten()
            .map(|container| self.init(container, &fate))
            .collect();
        if !inits.is_empty() {
            object::set_at(&mut status, "initContainerStatuses", inits.into());
        }
        status
    }

    fn started(&self) -> Timestamp {
        let status = self.pod.status.as_ref();
        status
            .and_then(|status| status.start_time.as_ref())
            .map_or(self.now, |time| time.0)
    }

    fn conditions(&self, fate: &Fate, is_ready: bool, containers: &[&Container]) -> Vec<Value> {
        let names: Vec<&str> = containers.iter().map(|container| container.name.as_str()).collect();
        let unready = || match fate {
            Fate::Ended(0) => Some(("PodCompleted", String::new())),
            Fate::Ended(_) => Some(("PodFailed", String::new())),
            _ if is_ready => None,
            _ => Some((
                "ContainersNotReady",
                format!("containers with unready status: [{}]", names.join(" ")),
            )),
        };
        let has_sandbox = !matches!(fate, Fate::Ended(_));
        let initialized = match fate {
            Fate::Ended(0) => Some(("PodCompleted", String::new())),
            _ => None,
        };
        vec![
            self.condition("PodReadyToStartContainers", has_sandbox, None),
            self.condition("Initialized", true, initialized),
            self.condition("Ready", is_ready, unready()),
            self.condition("ContainersReady", is_ready, unready()),
            self.condition("PodScheduled", self.scheduled.is_some(), None),
        ]
    }

    fn condition(&self, kind: &str, holds: bool, why: Option<(&str, String)>) -> Value {
        let status = if holds { "True" } else { "False" };
        let since = condition(self.pod, kind)
            .filter(|before| before.status == status)
            .and_then(|before| before.last_transition_time.as_ref())
            .map_or(self.now, |time| time.0);
        let mut condition = json!({"type": kind, "status": status, "lastProbeTime": null,
            "lastTransitionTime": object::time(since), "observedGeneration": self.pod.metadata.generation});
        if let Some((reason, message)) = why {
            object::set_at(&mut condition, "reason", reason.into());
            if !message.is_empty() {
                object::set_at(&mut condition, "message", message.into());
            }
        }
        condition
    }

    fn before(&self, name: &str) -> Option<&ContainerStatus> {
        let statuses = self.pod.status.as_ref()?.container_statuses.as_ref()?;
        statuses.iter().find(|status| status.name == name)
    }

    fn container_id(&self, name: &str, restarts: i32) -> String {
        let uid = self.pod.metadata.uid.as_deref().unwrap_or_default();
        let restarts = restarts.to_string();
        let (high, low) = (hash(&[uid, name, &restarts]), hash(&[name, &restarts, uid]));
        format!("hollow://{high:016x}{low:016x}")
    }

    fn container(&self, container: &Container, fate: &Fate, is_ready: bool) -> Value {
        let before = self.before(&container.name);
        let restarts = before.map_or(0, |before| before.restart_count);
        let was_waiting = before
            .and_then(|before| before.state.as_ref())
            .is_some_and(|state| state.waiting.is_some());
        let since = before
            .and_then(|before| before.state.as_ref()?.running.as_ref()?.started_at.as_ref())
            .map_or(self.now, |time| time.0);
        let ended = |code: i32| {
            let reason = if code == 0 { "Completed" } else { "Error" };
            json!({"exitCode": code, "reason": reason, "startedAt": object::time(since),
                "finishedAt": object::time(self.now), "containerID": self.container_id(&container.name, restarts)})
        };
        let last = before.and_then(|before| serde_json::to_value(before.last_state.as_ref()?).ok());
        let last = last.unwrap_or_else(|| json!({}));
        let (state, last, restarts) = match fate {
            Fate::Running if was_waiting => (
                json!({"running": {"startedAt": object::time(self.now)}}),
                last,
                restarts + 1,
            ),
            Fate::Running => (json!({"running": {"startedAt": object::time(since)}}), last, restarts),
            Fate::Ended(code) => (json!({"terminated": ended(*code)}), last, restarts),
            Fate::Restarted(code) => (
                json!({"running": {"startedAt": object::time(self.now)}}),
                json!({"terminated": ended(*code)}),
                restarts + 1,
            ),
            Fate::Waiting(code) => (
                json!({"waiting": {"reason": "CrashLoopBackOff", "message": self.backing_off(&container.name)}}),
                json!({"terminated": ended(*code)}),
                restarts,
            ),
        };
        let runs = matches!(fate, Fate::Running | Fate::Restarted(_));
        let image = container.image.clone().unwrap_or_default();
        json!({"name": container.name, "image": image, "imageID": image, "restartCount": restarts,
            "containerID": self.container_id(&container.name, restarts), "ready": is_ready && runs, "started": runs,
            "state": state, "lastState": last})
    }

    fn backing_off(&self, container: &str) -> String {
        let word = |text: &Option<String>| text.clone().unwrap_or_default();
        let meta = &self.pod.metadata;
        let seconds = self.back_off.as_secs();
        let wait = match (seconds / 60, seconds % 60) {
            (0, seconds) => format!("{seconds}s"),
            (minutes, seconds) => format!("{minutes}m{seconds}s"),
        };
        format!(
            "back-off {wait} restarting failed container={container} pod={}_{}({})",
            word(&meta.name),
            word(&meta.namespace),
            word(&meta.uid)
        )
    }

    /// An init container that is done, or one that goes on beside the others.
    fn init(&self, container: &Container, fate: &Fate) -> Value {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        let runs = is_sidecar && !matches!(fate, Fate::Ended(_));
        let (start, image) = (
            object::time(self.started()),
            container.image.clone().unwrap_or_default(),
        );
        let id = self.container_id(&container.name, 0);
        let state = if runs {
            json!({"running": {"startedAt": start}})
        } else {
            json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": start, "finishedAt": start,
                "containerID": id}})
        };
        json!({"name": container.name, "image": image, "imageID": image, "restartCount": 0, "containerID": id,
            "ready": true, "started": runs, "state": state, "lastState": {}})
    }
}
