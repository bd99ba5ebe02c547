//! Probes (N8): asking a container how it is, and what its answers mean.
//!
//! The node's agent keeps one [`Prober`] for each attempt of a container: it says when which probe is due, and what a
//! result changes. Between the two the agent calls [`check`], which asks the container and waits for at most the probe's
//! `timeoutSeconds`. Texts are the kubelet's.
//!
//! - `machine`: thresholds, delays, periods, gating; pure. `http`, `tcp`, `grpc`: the askers. `dial`: connections, and
//!   what a failed one is called. `ports`: named ports.

pub(super) mod dial;
mod grpc;
pub(super) mod http;
mod machine;
pub(super) mod ports;
mod tcp;

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};

pub use machine::{Change, Killing, Prober, UnhealthyEvent};

/// Output beyond this is not kept, as in the reference.
const MOST_OUTPUT: usize = 10 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Startup,
    Liveness,
    Readiness,
}

impl Kind {
    /// As events begin: `Readiness probe failed: …`.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }

    #[must_use]
    pub const fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// Counts as success, with an event.
    Warning,
    Failure,
    /// The question could not be put. Counts as nothing, with an event.
    Unknown,
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub outcome: Outcome,
    pub message: String,
}

impl Answer {
    pub(super) fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self {
            outcome,
            message: message.into(),
        }
    }
}

/// What a command run inside a container came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    /// 128 and the signal's number where a signal ended it.
    pub code: i32,
    /// Both streams as they came.
    pub output: Vec<u8>,
}

/// Asks a container once.
///
/// `exec` runs a command inside the container and is dropped when the time is up: it then ends the command. Its error
/// says why the command could not be run at all.
pub async fn check<E, F>(probe: &Probe, container: &Container, pod_ip: &str, exec: E) -> Answer
where
    E: FnOnce(Vec<String>) -> F,
    F: Future<Output = Result<Executed, String>>,
{
    let limit = Duration::from_secs(u64::try_from(probe.timeout_seconds.unwrap_or(1)).unwrap_or(1).max(1));
    if let Some(action) = &probe.exec {
        let command = action.command.clone().unwrap_or_default();
        return executed(command, limit, exec).await;
    }
    if let Some(action) = &probe.http_get {
        return match http::Target::of(action, container, pod_ip) {
            Ok(target) => http::probe(&target, limit).await,
            Err(why) => Answer::new(Outcome::Unknown, why),
        };
    }
    if let Some(action) = &probe.tcp_socket {
        let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(pod_ip);
        return match ports::number(&action.port, container) {
            Ok(port) => tcp::probe(host, port, limit).await,
            Err(why) => Answer::new(Outcome::Unknown, why),
        };
    }
    if let Some(action) = &probe.grpc {
        let service = action.service.as_deref().unwrap_or_default();
        return match ports::checked(action.port) {
            Ok(port) => grpc::probe(pod_ip, port, service, limit).await,
            Err(why) => Answer::new(Outcome::Unknown, why),
        };
    }
    Answer::new(
        Outcome::Unknown,
        format!("missing probe handler for container {}", container.name),
    )
}

async fn executed<E, F>(command: Vec<String>, limit: Duration, exec: E) -> Answer
where
    E: FnOnce(Vec<String>) -> F,
    F: Future<Output = Result<Executed, String>>,
{
    let told = command.join(" ");
    match tokio::time::timeout(limit, exec(command)).await {
        Err(_) => Answer::new(
            Outcome::Failure,
            format!("command timed out: {told:?} timed out after {}s", limit.as_secs()),
        ),
        Ok(Err(why)) => Answer::new(Outcome::Unknown, why),
        Ok(Ok(executed)) => {
            let kept = executed.output.get(..MOST_OUTPUT).unwrap_or(&executed.output);
            let outcome = if executed.code == 0 {
                Outcome::Success
            } else {
                Outcome::Failure
            };
            Answer::new(outcome, String::from_utf8_lossy(kept))
        }
    }
}

#[cfg(test)]
mod tests;
