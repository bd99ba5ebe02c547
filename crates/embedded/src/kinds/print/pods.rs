//! The pod's line: how many containers are ready, and the one word that says best how it is doing.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::read::{age, at, condition, flag, is_being_deleted, list, name, number, text, text_or, time};
use super::{AGE, NAME, column, wide};
use crate::registry::row::Column;

pub const COLUMNS: &[Column] = &[
    NAME,
    column("Ready", "string", "Ready containers of all containers."),
    column(
        "Status",
        "string",
        "How the pod and its containers are doing, in one word.",
    ),
    column(
        "Restarts",
        "string",
        "How often containers were restarted, and when last.",
    ),
    AGE,
    wide("IP", "The pod's address."),
    wide("Node", "The node it runs on."),
    wide("Nominated Node", "The node that room is being made on for it."),
    wide("Readiness Gates", "Readiness gates that are true, of all."),
];

pub fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = Summary::of(pod);
    let mut restarts = summary.restarts.to_string();
    if let (1.., Some(last)) = (summary.restarts, summary.last_restart) {
        restarts.push_str(&format!(" ({} ago)", super::age(Some(last), now)));
    }
    let address = list(pod, &["status", "podIPs"])
        .first()
        .map_or("", |ip| text(ip, &["ip"]));
    vec![
        name(pod),
        format!("{}/{}", summary.ready, summary.containers).into(),
        summary.status.into(),
        restarts.into(),
        age(pod, now),
        if address.is_empty() { "<none>" } else { address }.into(),
        text_or(pod, &["spec", "nodeName"], "<none>").into(),
        text_or(pod, &["status", "nominatedNodeName"], "<none>").into(),
        readiness_gates(pod).into(),
    ]
}

/// A pod that will not run again has a condition on its row, by which clients can hide it.
#[must_use]
pub fn row_conditions(pod: &Value) -> Option<Value> {
    let phase = text(pod, &["status", "phase"]);
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": phase, "message": message}]))
}

#[derive(Default)]
struct Summary {
    ready: usize,
    containers: usize,
    status: String,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let phase = text(pod, &["status", "phase"]);
        let mut summary = Self {
            containers: list(pod, &["spec", "containers"]).len()
                + list(pod, &["spec", "initContainers"])
                    .iter()
                    .filter(|c| is_sidecar(c))
                    .count(),
            status: text_or(pod, &["status", "reason"], phase).to_owned(),
            ..Self::default()
        };
        if condition(pod, "PodScheduled").is_some_and(|c| text(c, &["reason"]) == "SchedulingGated") {
            summary.status = "SchedulingGated".into();
        }
        let initializing = summary.init_containers(pod);
        if !initializing || is_true(pod, "Initialized") {
            summary.main_containers(pod);
        }
        if is_being_deleted(pod) {
            if text(pod, &["status", "reason"]) == "NodeLost" {
                summary.status = "Unknown".into();
            } else if !matches!(phase, "Succeeded" | "Failed") {
                summary.status = "Terminating".into();
            }
        }
        summary
    }

    /// Whether an init container has still to finish; the first such one gives the status. Restarts counted here are
    /// those of the init phase; once it is over, only sidecars' count.
    fn init_containers(&mut self, pod: &Value) -> bool {
        let specs = list(pod, &["spec", "initContainers"]);
        let mut sidecars = Self::default();
        let mut initializing = false;
        for (index, container) in list(pod, &["status", "initContainerStatuses"]).iter().enumerate() {
            let own = text(container, &["name"]);
            let sidecar = specs
                .iter()
                .any(|spec| text(spec, &["name"]) == own && is_sidecar(spec));
            self.count_restarts(container);
            if sidecar {
                sidecars.count_restarts(container);
            }
            let terminated = at(container, &["state", "terminated"]);
            if terminated.is_some_and(|state| number(state, &["exitCode"]) == 0) {
                continue;
            }
            if sidecar && flag(container, &["started"]) {
                self.ready += usize::from(flag(container, &["ready"]));
                continue;
            }
            self.status = match (terminated, text(container, &["state", "waiting", "reason"])) {
                (Some(state), _) => format!("Init:{}", exit_reason(state)),
                (None, "" | "PodInitializing") => format!("Init:{index}/{}", specs.len()),
                (None, reason) => format!("Init:{reason}"),
            };
            initializing = true;
            break;
        }
        if !initializing || is_true(pod, "Initialized") {
            self.restarts = sidecars.restarts;
            self.last_restart = sidecars.last_restart;
        }
        initializing
    }

    fn main_containers(&mut self, pod: &Value) {
        let mut has_running = false;
        let mut error = None;
        // From the last to the first: the first container's reason is the one that stays.
        for container in list(pod, &["status", "containerStatuses"]).iter().rev() {
            self.count_restarts(container);
            let waiting = text(container, &["state", "waiting", "reason"]);
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.status);
            } else if let Some(state) = at(container, &["state", "terminated"]) {
                self.status = exit_reason(state);
                if number(state, &["exitCode"]) != 0 {
                    error = Some(self.status.clone());
                }
            } else if flag(container, &["ready"]) && at(container, &["state", "running"]).is_some() {
                has_running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" {
            if has_running && is_true(pod, "Ready") {
                self.status = "Running".into();
            } else if let Some(error) = error {
                self.status = error;
            } else if has_running {
                self.status = "NotReady".into();
            }
        }
    }

    fn count_restarts(&mut self, container: &Value) {
        self.restarts += number(container, &["restartCount"]);
        let finished = time(container, &["lastState", "terminated", "finishedAt"]);
        self.last_restart = self.last_restart.max(finished);
    }
}

fn exit_reason(terminated: &Value) -> String {
    match (text(terminated, &["reason"]), number(terminated, &["signal"])) {
        ("", 0) => format!("ExitCode:{}", number(terminated, &["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn is_sidecar(spec: &Value) -> bool {
    text(spec, &["restartPolicy"]) == "Always"
}

fn is_true(pod: &Value, kind: &str) -> bool {
    condition(pod, kind).is_some_and(|condition| text(condition, &["status"]) == "True")
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, &["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".into();
    }
    let open = gates
        .iter()
        .filter(|gate| is_true(pod, text(gate, &["conditionType"])))
        .count();
    format!("{open}/{}", gates.len())
}
