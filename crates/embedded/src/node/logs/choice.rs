//! Which instance of a container a request for its log is about, by the pod's status. Pure; the reference's kubelet says
//! what is said here.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

use crate::fault::{Fault, quote};

/// An instance of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The number in its files' names: how often the container had been restarted when it began.
    pub instance: u32,
    pub container_id: String,
    pub is_running: bool,
}

/// The instance that runs or ran last; with `previous` the one before it.
pub fn chosen(pod: &str, status: &PodStatus, container: &str, previous: bool) -> Result<Chosen, Fault> {
    let all = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let found = all
        .into_iter()
        .flatten()
        .flatten()
        .find(|status| status.name == container);
    let about = format!("container {} in pod {}", quote(container), quote(pod));
    let Some(found) = found else {
        return Err(Fault::bad_request(format!("{about} is not available")));
    };
    choose(found, previous, &about).map_err(Fault::bad_request)
}

fn choose(status: &ContainerStatus, previous: bool, about: &str) -> Result<Chosen, String> {
    let count = u32::try_from(status.restart_count).unwrap_or(0);
    let instance = |instance, id: &str, is_running| Chosen {
        instance,
        container_id: id.to_owned(),
        is_running,
    };
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let last = last.map(|last| last.container_id.as_deref().unwrap_or_default());
    let state = status.state.clone().unwrap_or_default();
    // The count rises when an instance starts: while the next one waits it is still that of the last.
    let is_begun = state.running.is_some() || state.terminated.is_some();
    let last_count = if is_begun { count.saturating_sub(1) } else { count };
    if previous {
        return match last {
            Some(id) if !id.is_empty() => Ok(instance(last_count, id, false)),
            _ => Err(format!("previous terminated {about} not found")),
        };
    }
    if state.running.is_some() {
        return Ok(instance(
            count,
            status.container_id.as_deref().unwrap_or_default(),
            true,
        ));
    }
    if let Some(ended) = &state.terminated
        && let Some(id) = ended.container_id.as_deref().filter(|id| !id.is_empty())
    {
        return Ok(instance(count, id, false));
    }
    match last {
        Some(id) if !id.is_empty() => Ok(instance(last_count, id, false)),
        _ if state.terminated.is_some() || last.is_some() => Err(format!("{about} is terminated")),
        _ => Err(match state.waiting {
            Some(waiting) => match waiting.reason.unwrap_or_default().as_str() {
                "ErrImagePull" => format!("{about} is waiting to start: image can't be pulled"),
                "ImagePullBackOff" => format!("{about} is waiting to start: trying and failing to pull image"),
                reason => format!("{about} is waiting to start: {reason}"),
            },
            None => format!("{about} is waiting to start - no logs yet"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ask(status: Value, previous: bool) -> Result<(u32, String, bool), String> {
        let status = serde_json::from_value(json!({"containerStatuses": [status]})).unwrap();
        match chosen("p", &status, "c", previous) {
            Ok(chosen) => Ok((chosen.instance, chosen.container_id, chosen.is_running)),
            Err(fault) => {
                assert_eq!(fault.code, 400);
                Err(fault.message)
            }
        }
    }

    fn status(restarts: i32, state: Value, last: Value) -> Value {
        json!({
            "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": restarts, "containerID": "u://now",
            "state": state, "lastState": last,
        })
    }

    fn ended(id: &str) -> Value {
        json!({"terminated": {"exitCode": 1, "containerID": id}})
    }

    #[test]
    fn the_instance_that_runs_or_ran_last_is_meant() {
        let running = status(2, json!({"running": {}}), ended("u://before"));
        assert_eq!(ask(running.clone(), false), Ok((2, "u://now".to_owned(), true)));
        assert_eq!(ask(running, true), Ok((1, "u://before".to_owned(), false)));
        let over = status(0, ended("u://now"), json!({}));
        assert_eq!(ask(over, false), Ok((0, "u://now".to_owned(), false)));
        let waits = status(
            1,
            json!({"waiting": {"reason": "CrashLoopBackOff"}}),
            ended("u://before"),
        );
        assert_eq!(ask(waits.clone(), false), Ok((1, "u://before".to_owned(), false)));
        assert_eq!(ask(waits, true), Ok((1, "u://before".to_owned(), false)));
    }

    #[test]
    fn a_log_that_cannot_be_is_refused_in_the_kubelets_words() {
        let waits = |reason: &str| status(0, json!({"waiting": {"reason": reason}}), json!({}));
        for (status, previous, told) in [
            (
                waits("ContainerCreating"),
                false,
                r#"container "c" in pod "p" is waiting to start: ContainerCreating"#,
            ),
            (
                waits("ErrImagePull"),
                false,
                r#"container "c" in pod "p" is waiting to start: image can't be pulled"#,
            ),
            (
                waits("PodInitializing"),
                true,
                r#"previous terminated container "c" in pod "p" not found"#,
            ),
            (
                status(0, json!({}), json!({})),
                false,
                r#"container "c" in pod "p" is waiting to start - no logs yet"#,
            ),
            (
                status(0, ended(""), json!({})),
                false,
                r#"container "c" in pod "p" is terminated"#,
            ),
        ] {
            assert_eq!(ask(status, previous), Err(told.to_owned()));
        }
        let none = chosen("p", &PodStatus::default(), "c", false).unwrap_err();
        assert_eq!(none.message, r#"container "c" in pod "p" is not available"#);
    }
}
