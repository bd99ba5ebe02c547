//! Stopping (N7, N9): preStop, the stop signal, and SIGKILL when the grace is over; the main containers first, then the
//! sidecars from the last to the first; then the supervisor, the object, the folder.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Container;

use super::kept::EndReason;
use super::{Desk, Stage, Step, Supervisor, is_sidecar, storage};

/// Whatever the pod says: no program has less between its signal and SIGKILL.
const SHORTEST_GRACE: Duration = Duration::from_secs(2);
pub(super) const DEADLINE_REASON: &str = "DeadlineExceeded";
pub(super) const DEADLINE_MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

impl Desk<'_> {
    /// Whether the pod has come to an end for a reason outside of its containers.
    pub(super) fn note_ends(&mut self) {
        let now = self.sight.now;
        if self.sight.is_gone || self.is_deleting() {
            self.kept.end(EndReason::Deleted, now);
        }
        let limit = self.spec().and_then(|spec| spec.active_deadline_seconds);
        let end = limit
            .zip(self.kept.start_time)
            .and_then(|(seconds, start)| start.checked_add(SignedDuration::from_secs(seconds)).ok());
        match end {
            Some(end) if end > now => self.wake_at(end),
            Some(_) if self.kept.ended.is_none() => {
                self.kept.end(EndReason::Deadline, now);
                self.tell("", false, DEADLINE_REASON, DEADLINE_MESSAGE);
            }
            Some(_) | None => {}
        }
        if self.kept.ended.is_none()
            && let Some(usage) = self.sight.usage
            && let Some(message) = storage::overrun(self.sight.pod, usage)
        {
            self.kept.end(EndReason::Evicted, now);
            self.tell("", true, storage::REASON, message.clone());
            self.kept.evicted = Some(message);
        }
    }

    /// Seconds that a program has between its signal and SIGKILL, as the pod or whoever deletes it says.
    pub(super) fn grace_seconds(&self) -> i64 {
        let own = self.spec().and_then(|spec| spec.termination_grace_period_seconds);
        let deletion = self
            .sight
            .pod
            .metadata
            .deletion_grace_period_seconds
            .filter(|_| self.is_deleting());
        let grace = deletion.or(own).unwrap_or(30).max(0);
        if self.kept.evicted.is_some() {
            return grace.min(storage::GRACE_SECONDS);
        }
        grace
    }

    /// Stops what runs, and when nothing does, everything else goes.
    pub(super) fn wind_down(&mut self) {
        let Some(ended) = self.kept.ended.clone() else {
            return;
        };
        let grace = self.grace_seconds();
        let deadline = later(ended.since, grace);
        let mut may_stop = true;
        let sidecars = self.init_containers().iter().filter(|container| is_sidecar(container));
        let others = self.init_containers().iter().filter(|container| !is_sidecar(container));
        for container in self.main_containers().iter().chain(others) {
            may_stop &= self.stage(&container.name).is_over();
            self.stop(container, ended.since, grace, "");
        }
        for container in sidecars.rev() {
            if may_stop || self.sight.now >= deadline {
                self.stop(container, ended.since, grace, "");
            } else {
                self.wake_at(deadline);
            }
            may_stop &= self.stage(&container.name).is_over();
        }
        if !may_stop {
            return;
        }
        if self.sight.supervisor == Supervisor::Alive {
            self.steps.push(Step::End);
        } else {
            self.go();
        }
    }

    /// Nothing of the pod runs: its object goes if it is to, and then its folder.
    pub(super) fn go(&mut self) {
        if self.sight.is_gone {
            self.steps.push(Step::Forget);
        } else if self.is_deleting() && self.sight.pod.metadata.deletion_grace_period_seconds != Some(0) {
            self.steps.push(Step::Remove);
        } else if self.kept.evicted.is_some() && !self.kept.is_cleared {
            self.steps.push(Step::Clear);
        }
    }

    /// One container: what its hook and its signal still need. `message` is that of the event, if it is not the usual.
    pub(super) fn stop(&mut self, container: &Container, since: Timestamp, grace_seconds: i64, message: &str) {
        let name = container.name.as_str();
        let Stage::Running { attempt, at, .. } = self.stage(name) else {
            return;
        };
        let now = self.sight.now;
        let deadline = later(since, grace_seconds);
        if self.kept.of(name).told_killing != Some(attempt) {
            self.kept.container(name).told_killing = Some(attempt);
            let message = if message.is_empty() {
                format!("Stopping container {name}")
            } else {
                message.to_owned()
            };
            self.tell(name, false, "Killing", message);
        }
        let left = Duration::try_from(deadline.duration_since(now)).unwrap_or_default();
        let has_hook = container
            .lifecycle
            .as_ref()
            .is_some_and(|lifecycle| lifecycle.pre_stop.is_some());
        if has_hook && self.kept.of(name).pre_stop != Some(attempt) && !left.is_zero() && at.stopping.is_none() {
            self.steps.push(Step::PreStop {
                container: name.to_owned(),
                attempt,
                within: left,
            });
            self.wake_at(deadline);
            return;
        }
        let grace = left.max(SHORTEST_GRACE);
        // Asked already, unless the time has become shorter since.
        let is_asked = at.stopping.as_ref().is_some_and(|stopping| {
            let by_then = later(stopping.asked_at, 2).max(deadline);
            stopping.kill_at <= later(by_then, 1)
        });
        if !is_asked {
            self.steps.push(Step::Stop {
                container: name.to_owned(),
                attempt,
                grace,
            });
        }
    }
}

fn later(moment: Timestamp, seconds: i64) -> Timestamp {
    moment
        .saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX)
}
