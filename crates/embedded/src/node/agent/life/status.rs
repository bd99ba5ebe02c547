//! The status of the pod as a whole, as a kubelet says it (N11).

use k8s_openapi::api::core::v1::{ContainerStatus, HostIP, PodIP, PodStatus};

use super::ending::{DEADLINE_MESSAGE, DEADLINE_REASON};
use super::kept::EndReason;
use super::restarts::runs_again;
use super::{Desk, Stage, Supervisor, conditions, containers, is_sidecar, storage};

pub(super) fn of(desk: &Desk<'_>) -> PodStatus {
    let before = desk.sight.pod.status.clone().unwrap_or_default();
    let start_time = before
        .start_time
        .clone()
        .or_else(|| desk.kept.start_time.map(containers::time));
    if let Some(rejected) = &desk.kept.rejected {
        let conditions: Vec<_> = before
            .conditions
            .into_iter()
            .flatten()
            .filter(|condition| !conditions::is_ours(&condition.type_))
            .collect();
        return PodStatus {
            phase: Some("Failed".to_owned()),
            reason: Some(rejected.reason.clone()),
            message: Some(format!("Pod was rejected: {}", rejected.message)),
            qos_class: before.qos_class,
            start_time,
            conditions: (!conditions.is_empty()).then_some(conditions),
            observed_generation: desk.sight.pod.metadata.generation,
            ..PodStatus::default()
        };
    }
    let mut main = containers::main(desk);
    let mut init = containers::init(desk);
    let ended = desk.kept.ended.as_ref();
    let nothing_runs = ended.is_some() && desk.sight.supervisor != Supervisor::Alive && all_over(desk);
    let mut phase = phase(desk, &init, &main, nothing_runs);
    if nothing_runs {
        let has_initialised = desk.init_containers().is_empty() || main.iter().any(has_begun);
        if has_initialised {
            containers::lose(&mut main);
        }
        let begun = init.iter().rposition(has_begun).map_or(0, |last| last + 1);
        containers::lose(init.get_mut(..begun).unwrap_or_default());
        if !matches!(phase, "Succeeded" | "Failed") {
            phase = "Failed";
        }
    }
    let old_phase = before.phase.as_deref().unwrap_or_default();
    let (mut reason, mut message) = if phase == old_phase {
        (before.reason.clone(), before.message.clone())
    } else {
        (None, None)
    };
    let told = match ended.map(|ended| ended.why).filter(|_| nothing_runs) {
        Some(EndReason::Deadline) => Some((DEADLINE_REASON, DEADLINE_MESSAGE)),
        Some(EndReason::Evicted) => Some((storage::REASON, desk.kept.evicted.as_deref().unwrap_or_default())),
        Some(EndReason::Finished | EndReason::Deleted) | None => None,
    };
    if let Some((why, sentence)) = told {
        phase = "Failed";
        reason = Some(why.to_owned());
        message = Some(sentence.to_owned());
    }
    // Nothing leaves a phase that is an end.
    if matches!(old_phase, "Succeeded" | "Failed") {
        phase = if old_phase == "Failed" { "Failed" } else { "Succeeded" };
    }
    // It is the pod's before its ground is laid, but nobody can reach anything there.
    let is_there = desk.sight.is_prepared || !desk.sight.attempts.is_empty();
    let address = desk
        .kept
        .address
        .filter(|_| is_there)
        .map(|address| address.to_string());
    let conditions = conditions::of(desk, &init, &main, phase);
    PodStatus {
        phase: Some(phase.to_owned()),
        reason,
        message,
        conditions: Some(conditions),
        host_ip: Some(desk.sight.host_ip.to_owned()),
        host_ips: Some(vec![HostIP {
            ip: desk.sight.host_ip.to_owned(),
        }]),
        pod_ips: address
            .clone()
            .map(|ip| vec![PodIP { ip }])
            .or_else(|| before.pod_ips.clone()),
        pod_ip: address.or_else(|| before.pod_ip.clone()),
        start_time,
        observed_generation: desk.sight.pod.metadata.generation,
        container_statuses: Some(main),
        init_container_statuses: (!init.is_empty()).then_some(init),
        ..before
    }
}

fn all_over(desk: &Desk<'_>) -> bool {
    let mut all = desk.init_containers().iter().chain(desk.main_containers());
    all.all(|container| desk.stage(&container.name).is_over())
}

fn has_begun(status: &ContainerStatus) -> bool {
    let is_waiting = status.state.as_ref().is_some_and(|state| state.waiting.is_some());
    let had_an_end = status
        .last_state
        .as_ref()
        .is_some_and(|state| state.terminated.is_some());
    !is_waiting || had_an_end
}

#[derive(Debug, Default)]
struct Count {
    running: usize,
    waiting: usize,
    stopped: usize,
    succeeded: usize,
    for_good: usize,
}

/// The rules of the reference, read from the containers' statuses. `is_over`: nothing is started any more.
fn phase(desk: &Desk<'_>, init: &[ContainerStatus], main: &[ContainerStatus], is_over: bool) -> &'static str {
    let Some(spec) = desk.spec() else {
        return "Pending";
    };
    let mut pending_init = false;
    let mut pending_sidecars = false;
    let mut count = Count::default();
    for (container, status) in desk.init_containers().iter().zip(init) {
        let (is_running, end, is_waiting) = read(status);
        if is_sidecar(container) {
            count.running += usize::from(is_running);
            pending_sidecars |= is_running && status.started != Some(true);
            if is_waiting && end.is_none() {
                pending_sidecars = true;
                count.waiting += 1;
            }
        } else {
            match end {
                Some(code) if !is_running => {
                    if code != 0 && !runs_again(spec, container, true, code) {
                        return "Failed";
                    }
                }
                Some(_) | None => pending_init = true,
            }
        }
    }
    for container in desk.main_containers() {
        let Some(status) = main.iter().find(|status| status.name == container.name) else {
            continue;
        };
        let (is_running, end, _) = read(status);
        match end {
            _ if is_running => count.running += 1,
            None => count.waiting += 1,
            Some(code) => {
                count.stopped += 1;
                count.succeeded +=
                    usize::from(code == 0 && status.state.as_ref().is_some_and(|s| s.terminated.is_some()));
                count.for_good += usize::from(!runs_again(spec, container, false, code));
            }
        }
    }
    let was_initialised = desk
        .main_containers()
        .iter()
        .any(|container| !matches!(desk.stage(&container.name), Stage::Never));
    if pending_init || (pending_sidecars && !was_initialised) || count.waiting > 0 {
        return "Pending";
    }
    if count.running > 0 {
        return "Running";
    }
    if count.stopped == 0 {
        return "Pending";
    }
    if !is_over && count.stopped != count.for_good {
        return "Running";
    }
    if count.stopped == count.succeeded {
        "Succeeded"
    } else {
        "Failed"
    }
}

/// Whether it runs, the code of its last end, and whether it waits.
fn read(status: &ContainerStatus) -> (bool, Option<i32>, bool) {
    let state = status.state.as_ref();
    let ended = |state: Option<&k8s_openapi::api::core::v1::ContainerState>| {
        state
            .and_then(|state| state.terminated.as_ref())
            .map(|end| end.exit_code)
    };
    let is_running = state.is_some_and(|state| state.running.is_some());
    let is_waiting = state.is_some_and(|state| state.waiting.is_some());
    let end = ended(state).or_else(|| {
        if is_waiting {
            ended(status.last_state.as_ref())
        } else {
            None
        }
    });
    (is_running, end, is_waiting)
}
