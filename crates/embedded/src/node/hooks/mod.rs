//! Lifecycle hooks (N8): what a container wants done after its start and before its stop.
//!
//! The node's agent calls [`run`] beside the container's start (a container is Running only after its postStart) and
//! before its stop signal; the time that preStop takes is the agent's to bound and to count against the grace.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};

use crate::node::environment::full_name;
use crate::node::probes::{Executed, http};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    PostStart,
    PreStop,
}

impl Moment {
    #[must_use]
    pub const fn of(self, container: &Container) -> Option<&LifecycleHandler> {
        match &container.lifecycle {
            Some(lifecycle) => match self {
                Self::PostStart => lifecycle.post_start.as_ref(),
                Self::PreStop => lifecycle.pre_stop.as_ref(),
            },
            None => None,
        }
    }

    /// Reason of the Warning event about a hook that failed, and of the waiting state after a failed postStart.
    #[must_use]
    pub const fn failed_reason(self) -> &'static str {
        match self {
            Self::PostStart => "FailedPostStartHook",
            Self::PreStop => "FailedPreStopHook",
        }
    }

    /// That event's whole text: a hook's output may hold secrets, so events do not show it.
    #[must_use]
    pub const fn failed_message(self) -> &'static str {
        match self {
            Self::PostStart => "PostStartHook failed",
            Self::PreStop => "PreStopHook failed",
        }
    }
}

/// The waiting reason of a container whose postStart failed; its message is the [`HookFailure`].
pub const POST_START_WAITING_REASON: &str = "PostStartHookError";

/// A hook that did not succeed, in the kubelet's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HookFailure(pub String);

/// Runs a hook to its end. `exec` runs a command inside the container, as for probes.
///
/// # Errors
/// The hook's failure, for the container's status.
pub async fn run<E, F>(
    hook: &LifecycleHandler,
    pod: &Pod,
    container: &Container,
    pod_ip: &str,
    exec: E,
) -> Result<(), HookFailure>
where
    E: FnOnce(Vec<String>) -> F,
    F: Future<Output = Result<Executed, String>>,
{
    let place = format!(
        "for Container {:?} in Pod {:?} failed - error:",
        container.name,
        full_name(pod)
    );
    if let Some(action) = &hook.exec {
        let command = action.command.clone().unwrap_or_default();
        let told = command.join(" ");
        let failure = |why: &str, output: &[u8]| {
            let output = String::from_utf8_lossy(output);
            HookFailure(format!(
                "Exec lifecycle hook ([{told}]) {place} {why}, message: {output:?}"
            ))
        };
        return match exec(command).await {
            Ok(done) if done.code == 0 => Ok(()),
            // The reference repeats what the command said of its failure.
            Ok(done) => {
                let said = String::from_utf8_lossy(&done.output);
                let why = format!("command '{told}' exited with {}: {said}", done.code);
                Err(failure(&why, &done.output))
            }
            Err(why) => Err(failure(&why, &[])),
        };
    }
    if let Some(action) = &hook.http_get {
        let path = action.path.as_deref().unwrap_or_default();
        let asked = match http::Target::of(action, container, pod_ip) {
            Ok(target) => http::any_answer(&target).await,
            Err(why) => Err(why),
        };
        return asked.map_err(|why| HookFailure(format!("HTTP lifecycle hook ({path}) {place} {why}")));
    }
    if let Some(action) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(action.seconds).unwrap_or(0))).await;
        return Ok(());
    }
    Err(HookFailure(
        "Cannot run handler: invalid handler: give the hook exec, httpGet or sleep".to_owned(),
    ))
}

#[cfg(test)]
mod tests;
