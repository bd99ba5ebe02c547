//! Starting: init containers in order, sidecars until they have started, then the others all at once; and again what
//! ended and is to run again (N7, N10).

use k8s_openapi::api::core::v1::Container;

use super::backoff::{Backoff, go_duration};
use super::kept::EndReason;
use super::restarts::runs_again;
use super::{Desk, Exit, Stage, Step, full_name, has_post_start, is_sidecar};
use crate::node::supervisor::protocol::ExitReason;

impl Desk<'_> {
    /// Tells of what began to run since, and asks for what is wanted right after.
    pub(super) fn note_running(&mut self) {
        let all = self.init_containers().iter().chain(self.main_containers());
        for container in all {
            let name = container.name.as_str();
            match self.stage(name) {
                Stage::Running { attempt, .. } => {
                    self.tell_started(name, attempt);
                    let kept = self.kept.of(name);
                    let is_doomed = kept.doomed.is_some_and(|doomed| doomed.attempt == attempt);
                    if has_post_start(container) && kept.post_start != Some(attempt) && !is_doomed {
                        self.steps.push(Step::PostStart {
                            container: name.to_owned(),
                            attempt,
                        });
                    }
                }
                Stage::Over { attempt, exit } if exit.reason == ExitReason::StartError => {
                    if self.kept.of(name).told_failed != Some(attempt) {
                        self.kept.container(name).told_failed = Some(attempt);
                        self.tell(name, true, "Failed", format!("Error: {}", exit.message));
                    }
                }
                // It may have ended before anybody saw it run.
                Stage::Over { attempt, exit } if exit.started_at.is_some() => self.tell_started(name, attempt),
                Stage::Never | Stage::Starting { .. } | Stage::Over { .. } => {}
            }
        }
    }

    fn tell_started(&mut self, name: &str, attempt: u32) {
        if self.kept.of(name).told_started != Some(attempt) {
            self.kept.container(name).told_started = Some(attempt);
            self.tell(name, false, "Started", "Container started");
        }
    }

    /// What is to be started now. May find that the pod is done.
    pub(super) fn advance(&mut self) {
        let was_initialised = self
            .main_containers()
            .iter()
            .any(|container| !matches!(self.stage(&container.name), Stage::Never));
        let mut is_open = true;
        for container in self.init_containers() {
            if !is_open {
                break;
            }
            is_open = if is_sidecar(container) {
                self.keep_up(container, true);
                was_initialised || self.has_started(container)
            } else {
                was_initialised || self.is_through(container)
            };
            if self.kept.ended.is_some() {
                return;
            }
        }
        if !is_open {
            return;
        }
        let mut is_done = true;
        for container in self.main_containers() {
            is_done &= !self.keep_up(container, false);
        }
        if is_done {
            self.kept.end(EndReason::Finished, self.sight.now);
        }
    }

    /// Whether an init container has done its work. Starts it if not.
    fn is_through(&mut self, container: &Container) -> bool {
        if let Stage::Over { exit, .. } = self.stage(&container.name) {
            if exit.code == 0 {
                return true;
            }
            let again = self
                .spec()
                .is_some_and(|spec| runs_again(spec, container, true, exit.code));
            if !again {
                self.kept.end(EndReason::Finished, self.sight.now);
                return false;
            }
        }
        self.keep_up(container, true);
        false
    }

    /// Sees to it that a container runs, if it is to. False: it is done for good.
    fn keep_up(&mut self, container: &Container, is_init: bool) -> bool {
        let name = container.name.as_str();
        match self.stage(name) {
            Stage::Never => {
                self.start(container, 0);
                true
            }
            Stage::Starting { .. } => true,
            Stage::Running { attempt, .. } => {
                if let Some(doomed) = self.kept.of(name).doomed.filter(|doomed| doomed.attempt == attempt) {
                    let grace = doomed.grace_seconds.unwrap_or_else(|| self.grace_seconds());
                    self.stop(container, doomed.since, grace, &doomed.message);
                }
                true
            }
            Stage::Over { attempt, exit } => {
                let again = self
                    .spec()
                    .is_some_and(|spec| runs_again(spec, container, is_init, exit.code));
                if again {
                    self.start_again(container, attempt, exit);
                }
                again
            }
        }
    }

    /// At once the first time, later after a while.
    fn start_again(&mut self, container: &Container, attempt: u32, exit: Exit<'_>) {
        let name = container.name.as_str();
        let kept = self.kept.of(name);
        let next = attempt + 1;
        let has_begun = kept.begun == Some(next);
        if !has_begun
            && let Some(backoff) = kept.backoff
            && let Some(until) = backoff.until(exit.finished_at, self.sight.limits)
            && until > self.sight.now
        {
            let message = format!(
                "back-off {} restarting failed container={name} pod={}",
                go_duration(backoff.delay()),
                full_name(self.sight.pod)
            );
            self.waits
                .insert(name.to_owned(), ("CrashLoopBackOff".to_owned(), message));
            self.wake_at(until);
            if kept.told_backoff != Some(attempt) {
                self.kept.container(name).told_backoff = Some(attempt);
                let told = format!(
                    "Back-off restarting failed container {name} in pod {}",
                    full_name(self.sight.pod)
                );
                self.tell(name, true, "BackOff", told);
            }
            return;
        }
        if exit.reason == ExitReason::StartError {
            let waits = ("RunContainerError".to_owned(), exit.message.to_owned());
            self.waits.insert(name.to_owned(), waits);
        } else if let Some(waiting) = kept
            .doomed
            .filter(|doomed| doomed.attempt == attempt)
            .and_then(|doomed| doomed.waiting)
        {
            self.waits.insert(name.to_owned(), waiting);
        }
        self.start(container, next);
    }

    /// Asks for an attempt, unless the last try is too recent.
    fn start(&mut self, container: &Container, attempt: u32) {
        let name = container.name.as_str();
        if let Some(trouble) = self.sight.troubles.get(name) {
            let waits = (trouble.reason.clone(), trouble.message.clone());
            self.waits.insert(name.to_owned(), waits);
            if trouble.retry_at > self.sight.now {
                self.wake_at(trouble.retry_at);
                return;
            }
        }
        let (now, limits) = (self.sight.now, self.sight.limits);
        let kept = self.kept.container(name);
        if kept.begun != Some(attempt) {
            kept.begun = Some(attempt);
            if attempt > 0 {
                kept.backoff = Some(Backoff::next(kept.backoff, now, limits));
            }
        }
        self.steps.push(Step::Start {
            container: name.to_owned(),
            attempt,
        });
    }
}
