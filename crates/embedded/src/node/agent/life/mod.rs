//! The life of one pod, as pure values (N7 to N11): from what is seen to what is to be done and said.
//!
//! [`decide`] is called by the pod's worker whenever anything about the pod changed: its object, what the supervisor says,
//! a probe, a hook, the time. It is level-triggered: steps are what is still missing, and the worker leaves out those that
//! are under way. What must not be forgotten by a crash is in [`Kept`], which the worker writes before it takes a step.
//!
//! - [`kept`]: what only the agent knows. [`backoff`], [`restarts`]: whether and when a container runs again.
//! - [`course`]: starting, in order. [`ending`]: stopping, in order. [`storage`]: whether the pod has too much on the disk.
//! - [`status`], [`containers`], [`conditions`]: what the pod's status says.

mod backoff;
mod conditions;
mod containers;
mod course;
mod ending;
mod kept;
mod restarts;
mod status;
mod storage;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};

use crate::node::supervisor::protocol::{Attempt, ExitReason, Phase};

pub use backoff::Limits;
pub use conditions::is_ours as is_own_condition;
pub use kept::{Doomed, EndReason, Kept, Verdict};
pub use storage::{Measured, Usage};

/// By container, then by attempt: as the supervisor says.
pub type Attempts = BTreeMap<String, BTreeMap<u32, Attempt>>;

/// Everything a decision looks at.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    /// As last seen.
    pub pod: &'a Pod,
    /// There is no object of this uid any more.
    pub is_gone: bool,
    pub kept: &'a Kept,
    pub attempts: &'a Attempts,
    pub supervisor: Supervisor,
    /// The pod's folder, volumes and supervisor are there.
    pub is_prepared: bool,
    /// Why containers could not be started, by name.
    pub troubles: &'a BTreeMap<String, Trouble>,
    /// What the probes of running containers say, by name. Without an entry nothing is known yet.
    pub health: &'a BTreeMap<String, Health>,
    /// What containers left behind to say, by name and attempt.
    pub messages: &'a BTreeMap<(String, u32), String>,
    /// What it has on the disk, if that was looked at.
    pub usage: Option<&'a Usage>,
    /// The node's addresses.
    pub host_ip: &'a str,
    pub limits: Limits,
    pub now: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supervisor {
    /// Not started yet, or its end is not yet dealt with.
    None,
    Alive,
    /// It ended, and nothing of the pod runs.
    Over,
}

/// A container that could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Of the waiting state.
    pub reason: String,
    pub message: String,
    pub retry_at: Timestamp,
    pub failures: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    pub attempt: u32,
    pub started: bool,
    pub ready: bool,
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Folder, address, volumes, supervisor.
    Prepare,
    Start {
        container: String,
        attempt: u32,
    },
    PostStart {
        container: String,
        attempt: u32,
    },
    PreStop {
        container: String,
        attempt: u32,
        within: Duration,
    },
    Stop {
        container: String,
        attempt: u32,
        grace: Duration,
    },
    /// Everything that is left is killed, and the supervisor ends.
    End,
    /// What an evicted pod has in volumes of its own goes: that was the point of it.
    Clear,
    /// The object goes, once its last status is written.
    Remove,
    /// The folder goes; the pod's worker has nothing more to do.
    Forget,
}

/// An event to be written about the pod or one of its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Telling {
    pub container: Option<String>,
    pub is_warning: bool,
    pub reason: String,
    pub message: String,
}

/// What follows from a sight.
#[derive(Debug, Clone)]
pub struct Decision {
    pub steps: Vec<Step>,
    pub status: PodStatus,
    pub tellings: Vec<Telling>,
    pub kept: Kept,
    /// When to decide again if nothing else happens.
    pub wake: Option<Timestamp>,
    /// Containers that run and may be probed: which attempt, since when.
    pub up: BTreeMap<String, (u32, Timestamp)>,
    /// Whether the status may be told: an end is told as a whole, when nothing of the pod is left.
    pub is_settled: bool,
}

/// See the module.
#[must_use]
pub fn decide(sight: &Sight<'_>) -> Decision {
    let mut kept = sight.kept.clone();
    kept.start_time.get_or_insert(sight.now);
    let mut desk = Desk {
        sight: *sight,
        kept,
        steps: Vec::new(),
        tellings: Vec::new(),
        wake: None,
        waits: BTreeMap::new(),
    };
    if desk.kept.rejected.is_some() {
        desk.go();
    } else {
        desk.note_ends();
        desk.note_running();
        if desk.kept.ended.is_some() {
            desk.wind_down();
        } else if sight.is_prepared && sight.supervisor == Supervisor::Alive {
            desk.advance();
            if desk.kept.ended.is_some() {
                desk.wind_down();
            }
        } else {
            desk.steps.push(Step::Prepare);
        }
    }
    let status = status::of(&desk);
    let up = desk
        .init_containers()
        .iter()
        .chain(desk.main_containers())
        .filter(|container| desk.is_up(container))
        .filter_map(|container| match desk.stage(&container.name) {
            Stage::Running { attempt, since, .. } => Some((container.name.clone(), (attempt, since))),
            _ => None,
        })
        .collect();
    let is_over = desk.kept.ended.is_some()
        && desk
            .init_containers()
            .iter()
            .chain(desk.main_containers())
            .all(|container| desk.stage(&container.name).is_over());
    // Of what is only held by its finalizers all has been told.
    let is_removed = desk.is_deleting() && sight.pod.metadata.deletion_grace_period_seconds == Some(0);
    Decision {
        up,
        is_settled: !is_over || (sight.supervisor != Supervisor::Alive && !is_removed),
        steps: desk.steps,
        status,
        tellings: desk.tellings,
        kept: desk.kept,
        wake: desk.wake,
    }
}

/// A decision in the making.
#[derive(Debug)]
struct Desk<'a> {
    sight: Sight<'a>,
    kept: Kept,
    steps: Vec<Step>,
    tellings: Vec<Telling>,
    wake: Option<Timestamp>,
    /// Containers that wait, with reason and message, although they ran before or cannot start.
    waits: BTreeMap<String, (String, String)>,
}

/// Where a container is in its life.
#[derive(Debug, Clone, Copy)]
enum Stage<'a> {
    Never,
    Starting {
        attempt: u32,
    },
    Running {
        attempt: u32,
        at: &'a Attempt,
        since: Timestamp,
    },
    Over {
        attempt: u32,
        exit: Exit<'a>,
    },
}

#[derive(Debug, Clone, Copy)]
struct Exit<'a> {
    id: &'a str,
    code: i32,
    started_at: Option<Timestamp>,
    finished_at: Timestamp,
    reason: ExitReason,
    message: &'a str,
}

impl Stage<'_> {
    fn is_over(self) -> bool {
        matches!(self, Stage::Never | Stage::Over { .. })
    }
}

fn exit_of(attempt: &Attempt) -> Option<Exit<'_>> {
    match &attempt.phase {
        Phase::Exited {
            code,
            started_at,
            finished_at,
            reason,
            message,
            ..
        } => Some(Exit {
            id: &attempt.id,
            code: *code,
            started_at: *started_at,
            finished_at: *finished_at,
            reason: *reason,
            message,
        }),
        Phase::Starting | Phase::Running { .. } => None,
    }
}

impl<'a> Desk<'a> {
    fn spec(&self) -> Option<&'a PodSpec> {
        self.sight.pod.spec.as_ref()
    }

    fn init_containers(&self) -> &'a [Container] {
        self.spec()
            .and_then(|spec| spec.init_containers.as_deref())
            .unwrap_or_default()
    }

    fn main_containers(&self) -> &'a [Container] {
        self.spec().map(|spec| spec.containers.as_slice()).unwrap_or_default()
    }

    fn stage(&self, container: &str) -> Stage<'a> {
        let Some((number, attempt)) = self
            .sight
            .attempts
            .get(container)
            .and_then(|attempts| attempts.last_key_value())
        else {
            return Stage::Never;
        };
        let attempt_number = *number;
        match &attempt.phase {
            Phase::Starting => Stage::Starting {
                attempt: attempt_number,
            },
            Phase::Running { started_at, .. } => Stage::Running {
                attempt: attempt_number,
                at: attempt,
                since: *started_at,
            },
            Phase::Exited { .. } => exit_of(attempt).map_or(Stage::Never, |exit| Stage::Over {
                attempt: attempt_number,
                exit,
            }),
        }
    }

    /// It runs, and what it wanted done after its start is done.
    fn is_up(&self, container: &Container) -> bool {
        match self.stage(&container.name) {
            Stage::Running { attempt, .. } => {
                !has_post_start(container) || self.kept.of(&container.name).post_start == Some(attempt)
            }
            _ => false,
        }
    }

    fn health(&self, container: &str, attempt: u32) -> Option<Health> {
        self.sight
            .health
            .get(container)
            .copied()
            .filter(|health| health.attempt == attempt)
    }

    fn has_started(&self, container: &Container) -> bool {
        match self.stage(&container.name) {
            Stage::Running { attempt, .. } => {
                self.is_up(container)
                    && self
                        .health(&container.name, attempt)
                        .map_or(container.startup_probe.is_none(), |health| health.started)
            }
            _ => false,
        }
    }

    fn is_deleting(&self) -> bool {
        self.sight.pod.metadata.deletion_timestamp.is_some()
    }

    fn tell(&mut self, container: &str, is_warning: bool, reason: &str, message: impl Into<String>) {
        self.tellings.push(Telling {
            container: (!container.is_empty()).then(|| container.to_owned()),
            is_warning,
            reason: reason.to_owned(),
            message: message.into(),
        });
    }

    fn wake_at(&mut self, moment: Timestamp) {
        self.wake = Some(self.wake.map_or(moment, |wake| wake.min(moment)));
    }
}

fn has_post_start(container: &Container) -> bool {
    container
        .lifecycle
        .as_ref()
        .is_some_and(|lifecycle| lifecycle.post_start.is_some())
}

/// An init container that runs beside the others.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// `name_namespace(uid)`.
fn full_name(pod: &Pod) -> String {
    let of = |part: &Option<String>| part.clone().unwrap_or_default();
    let meta = &pod.metadata;
    format!("{}_{}({})", of(&meta.name), of(&meta.namespace), of(&meta.uid))
}
