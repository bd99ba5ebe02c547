//! The status of each container, as a kubelet says it (N11).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    ResourceRequirements, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Desk, Exit, Stage, exit_of, is_sidecar};
use crate::node::supervisor::protocol::{ExitReason, LOST_CODE, LOST_MESSAGE};

const UNKNOWN: &str = "ContainerStatusUnknown";

pub(super) fn time(moment: Timestamp) -> Time {
    // Whole seconds, as the API writes them.
    Time(Timestamp::from_second(moment.as_second()).unwrap_or(moment))
}

/// Sorted by name.
pub(super) fn main(desk: &Desk<'_>) -> Vec<ContainerStatus> {
    let mut statuses: Vec<ContainerStatus> = desk
        .main_containers()
        .iter()
        .map(|container| of(desk, container, false))
        .collect();
    statuses.sort_by(|one, two| one.name.cmp(&two.name));
    statuses
}

/// In the order in which they run.
pub(super) fn init(desk: &Desk<'_>) -> Vec<ContainerStatus> {
    desk.init_containers()
        .iter()
        .map(|container| of(desk, container, true))
        .collect()
}

fn of(desk: &Desk<'_>, container: &Container, is_init: bool) -> ContainerStatus {
    let name = container.name.as_str();
    let shown = shown(desk, container);
    let ended = |attempt: Option<u32>| -> Option<ContainerStateTerminated> {
        let attempt = attempt?;
        let record = desk.sight.attempts.get(name)?.get(&attempt)?;
        Some(terminated(desk, name, attempt, exit_of(record)?))
    };
    let mut status = ContainerStatus {
        name: name.to_owned(),
        image: container.image.clone().unwrap_or_default(),
        started: Some(false),
        volume_mounts: mounts(container),
        ..ContainerStatus::default()
    };
    let mut state = ContainerState::default();
    let mut last = None;
    match shown {
        Shown::Nothing => {
            let reason = if desk.init_containers().is_empty() {
                "ContainerCreating"
            } else {
                "PodInitializing"
            };
            state.waiting = Some(waiting(reason, ""));
        }
        Shown::Running { attempt, id, since } => {
            let health = desk.health(name, attempt);
            let started = desk.has_started(container);
            status.started = Some(started);
            let ready = health.map_or(container.readiness_probe.is_none(), |health| health.ready);
            status.ready = started && ready && (!is_init || is_sidecar(container));
            seen(&mut status, container, attempt, id);
            state.running = Some(ContainerStateRunning {
                started_at: Some(time(since)),
            });
            last = ended(attempt.checked_sub(1));
        }
        Shown::Over { attempt, exit } => {
            seen(&mut status, container, attempt, exit.id);
            state.terminated = Some(terminated(desk, name, attempt, exit));
            status.ready = is_init && !is_sidecar(container) && exit.code == 0;
            last = ended(attempt.checked_sub(1));
        }
    }
    if state.running.is_none()
        && let Some((reason, message)) = desk.waits.get(name)
    {
        if let Some(before) = state.terminated.take() {
            last = Some(before);
        }
        state.waiting = Some(waiting(reason, message));
    }
    status.state = Some(state);
    status.last_state = Some(ContainerState {
        terminated: last,
        ..ContainerState::default()
    });
    status
}

/// What is known once a runtime has made the container.
fn seen(status: &mut ContainerStatus, container: &Container, attempt: u32, id: &str) {
    status.container_id = Some(id.to_owned());
    status.image_id = status.image.clone();
    status.restart_count = i32::try_from(attempt).unwrap_or(i32::MAX);
    let resources = container.resources.clone().unwrap_or_default();
    status.allocated_resources = resources.requests.clone().filter(|requests| !requests.is_empty());
    status.resources = Some(ResourceRequirements {
        claims: None,
        ..resources
    });
}

/// The attempt that the status is about: one that is still starting is not told of.
enum Shown<'a> {
    Nothing,
    Running {
        attempt: u32,
        id: &'a str,
        since: Timestamp,
    },
    Over {
        attempt: u32,
        exit: Exit<'a>,
    },
}

fn shown<'a>(desk: &Desk<'a>, container: &Container) -> Shown<'a> {
    let name = container.name.as_str();
    let before = |attempt: u32| -> Shown<'a> {
        let attempts = desk.sight.attempts.get(name);
        attempt
            .checked_sub(1)
            .and_then(|number| Some((number, exit_of(attempts?.get(&number)?)?)))
            .map_or(Shown::Nothing, |(attempt, exit)| Shown::Over { attempt, exit })
    };
    match desk.stage(name) {
        Stage::Never => Shown::Nothing,
        Stage::Starting { attempt } => before(attempt),
        Stage::Running { attempt, at, since } => {
            if desk.is_up(container) {
                Shown::Running {
                    attempt,
                    id: &at.id,
                    since,
                }
            } else {
                before(attempt)
            }
        }
        Stage::Over { attempt, exit } => Shown::Over { attempt, exit },
    }
}

fn terminated(desk: &Desk<'_>, name: &str, attempt: u32, exit: Exit<'_>) -> ContainerStateTerminated {
    let left = desk.sight.messages.get(&(name.to_owned(), attempt));
    let (reason, message) = match exit.reason {
        ExitReason::Completed => ("Completed", left.map(String::as_str)),
        ExitReason::Error => ("Error", left.map(String::as_str)),
        ExitReason::StartError => ("StartError", Some(exit.message)),
        ExitReason::ContainerStatusUnknown => (UNKNOWN, Some(LOST_MESSAGE)),
    };
    // One that never ran has the beginning of time, as the reference's.
    let started_at = exit.started_at.unwrap_or(Timestamp::UNIX_EPOCH);
    ContainerStateTerminated {
        container_id: Some(exit.id.to_owned()),
        exit_code: exit.code,
        reason: Some(reason.to_owned()),
        message: message.filter(|text| !text.is_empty()).map(str::to_owned),
        started_at: Some(time(started_at)),
        finished_at: Some(time(exit.finished_at)),
        signal: None,
    }
}

/// Once nothing of the pod runs any more, no container waits for anything: those that never were are said to be lost.
pub(super) fn lose(statuses: &mut [ContainerStatus]) {
    for status in statuses {
        if status.state.as_ref().is_some_and(|state| state.terminated.is_some()) {
            continue;
        }
        status.state = Some(ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: LOST_CODE,
                reason: Some(UNKNOWN.to_owned()),
                message: Some(LOST_MESSAGE.to_owned()),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        });
    }
}

fn waiting(reason: &str, message: &str) -> ContainerStateWaiting {
    ContainerStateWaiting {
        reason: Some(reason.to_owned()),
        message: (!message.is_empty()).then(|| message.to_owned()),
    }
}

fn mounts(container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts: Vec<VolumeMountStatus> = container
        .volume_mounts
        .iter()
        .flatten()
        .map(|mount| {
            let is_read_only = mount.read_only == Some(true);
            VolumeMountStatus {
                name: mount.name.clone(),
                mount_path: mount.mount_path.clone(),
                read_only: is_read_only.then_some(true),
                recursive_read_only: is_read_only.then(|| "Disabled".to_owned()),
                volume_status: None,
            }
        })
        .collect();
    (!mounts.is_empty()).then_some(mounts)
}
