//! The conditions that a kubelet owns, with its reasons and messages (N11).

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition};

use super::containers::time;
use super::{Desk, Supervisor, is_sidecar};

const OWNED: [&str; 5] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
];

/// A condition's status, reason and message.
type Verdict = (bool, &'static str, String);

/// Those of others as they are, then ours. A time changes with the status alone.
pub(super) fn of(
    desk: &Desk<'_>,
    init: &[ContainerStatus],
    main: &[ContainerStatus],
    phase: &str,
) -> Vec<PodCondition> {
    let before = desk
        .sight
        .pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let mut conditions: Vec<PodCondition> = before
        .iter()
        .filter(|condition| !is_ours(&condition.type_))
        .cloned()
        .collect();
    let has_network = desk.sight.supervisor == Supervisor::Alive && desk.kept.address.is_some();
    let containers_ready = containers_ready(desk, init, main, phase);
    let ready = ready(desk, &containers_ready, &conditions);
    let verdicts = [
        (has_network, "", String::new()),
        initialized(desk, init, main, phase),
        ready,
        containers_ready,
        (true, "", String::new()),
    ];
    for (type_, (holds, reason, message)) in OWNED.into_iter().zip(verdicts) {
        let status = if holds { "True" } else { "False" };
        let old = before.iter().find(|condition| condition.type_ == type_);
        let since = old
            .filter(|old| old.status == status)
            .and_then(|old| old.last_transition_time.clone());
        conditions.push(PodCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
            message: (!message.is_empty()).then_some(message),
            last_transition_time: since.or_else(|| Some(time(desk.sight.now))),
            observed_generation: desk.sight.pod.metadata.generation,
            last_probe_time: None,
        });
    }
    conditions
}

/// Whether a kubelet owns a condition of this type.
pub fn is_ours(type_: &str) -> bool {
    OWNED.contains(&type_)
}

fn initialized(desk: &Desk<'_>, init: &[ContainerStatus], main: &[ContainerStatus], phase: &str) -> Verdict {
    if phase == "Succeeded" {
        return (true, "PodCompleted", String::new());
    }
    if main.iter().any(has_ever_started) {
        return (true, "", String::new());
    }
    let incomplete: Vec<&str> = desk
        .init_containers()
        .iter()
        .zip(init)
        .filter(|(container, status)| {
            if is_sidecar(container) {
                status.started != Some(true)
            } else {
                !status.ready
            }
        })
        .map(|(container, _)| container.name.as_str())
        .collect();
    if incomplete.is_empty() {
        return (true, "", String::new());
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    (false, "ContainersNotInitialized", message)
}

/// Runs, or ran.
fn has_ever_started(status: &ContainerStatus) -> bool {
    let runs = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
        state
            .as_ref()
            .is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    runs(&status.state) || runs(&status.last_state)
}

fn containers_ready(desk: &Desk<'_>, init: &[ContainerStatus], main: &[ContainerStatus], phase: &str) -> Verdict {
    match phase {
        "Succeeded" => return (false, "PodCompleted", String::new()),
        "Failed" => return (false, "PodFailed", String::new()),
        _ => {}
    }
    let is_ready =
        |name: &str, statuses: &[ContainerStatus]| statuses.iter().any(|status| status.name == name && status.ready);
    let sidecars = desk
        .init_containers()
        .iter()
        .filter(|container| is_sidecar(container) && !is_ready(&container.name, init));
    let others = desk
        .main_containers()
        .iter()
        .filter(|container| !is_ready(&container.name, main));
    let unready: Vec<&str> = sidecars
        .chain(others)
        .map(|container| container.name.as_str())
        .collect();
    if unready.is_empty() {
        return (true, "", String::new());
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    (false, "ContainersNotReady", message)
}

fn ready(desk: &Desk<'_>, containers_ready: &Verdict, others: &[PodCondition]) -> Verdict {
    if !containers_ready.0 {
        return containers_ready.clone();
    }
    let gates = desk
        .spec()
        .and_then(|spec| spec.readiness_gates.as_deref())
        .unwrap_or_default();
    let closed: Vec<String> = gates
        .iter()
        .filter_map(|gate| {
            let type_ = &gate.condition_type;
            match others.iter().find(|condition| condition.type_ == *type_) {
                None => Some(format!(
                    "corresponding condition of pod readiness gate {type_:?} does not exist."
                )),
                Some(condition) if condition.status != "True" => Some(format!(
                    "the status of pod readiness gate {type_:?} is not \"True\", but {}",
                    condition.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if closed.is_empty() {
        return (true, "", String::new());
    }
    (false, "ReadinessGatesNotReady", closed.join(", "))
}
