//! What became of a chore, and what follows from it.

use jiff::SignedDuration;

use super::{
    CHECK, FIRST_TROUBLE, LONGEST_RETRY, LONGEST_TROUBLE, MEASURED_PART, MEASURING, Report, Worker, later, lose,
};
use crate::node::agent::chores::Started;
use crate::node::agent::life::{self, Doomed, Step, Trouble};
use crate::node::hooks::{HookFailure, Moment, POST_START_WAITING_REASON};
use crate::node::supervisor::client;

/// Where pods find their account's token.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

impl Worker {
    pub(super) async fn take_report(&mut self, step: Option<Step>, report: Report) {
        if let Some(step) = &step {
            self.under_way.remove(step);
        }
        let failed = match report {
            Report::Prepared(Ok(supervisor)) => {
                self.is_prepared = true;
                self.generation += 1;
                self.tell_of_paths();
                self.watch(supervisor).await;
                None
            }
            Report::Prepared(Err(errors)) => {
                // A namespace's own objects come a moment after it, and its first pods may be faster: that is nobody's news
                // until it lasts.
                let is_second = self.pauses.contains_key(&Step::Prepare);
                let age = self.kept.start_time.map(|start| self.now().duration_since(start));
                let is_old = age.is_none_or(|age| age > LONGEST_RETRY);
                let pod = self.pod();
                for error in errors {
                    let is_early = error.message.contains("\"kube-root-ca.crt\" not found") && !is_old;
                    if is_second && !is_early {
                        self.agent().tell_pod(&pod, true, error.reason, error.message);
                    }
                }
                step.clone()
            }
            Report::Started(container, attempt, started) => {
                self.started(container, attempt, started).await;
                None
            }
            Report::PostStart(container, attempt, done) => {
                self.post_started(&container, attempt, done);
                None
            }
            Report::PreStop(container, attempt, done) => {
                if let Err(why) = done {
                    tracing::debug!(pod = self.context.uid, container, %why, "a preStop hook failed");
                    let moment = Moment::PreStop;
                    let (pod, message) = (self.pod(), moment.failed_message().to_owned());
                    self.context
                        .tell(&pod, &container, true, moment.failed_reason(), message);
                }
                self.kept.container(&container).pre_stop = Some(attempt);
                self.save();
                None
            }
            Report::Ended(Ok(())) => {
                self.supervisor = None;
                self.generation += 1;
                self.life = life::Supervisor::Over;
                if let Some(state) = self.context.folder.state() {
                    self.take_state(state);
                }
                let now = self.now();
                lose(&mut self.attempts, now);
                None
            }
            Report::Ended(Err(why)) => {
                tracing::debug!(pod = self.context.uid, why, "a supervisor did not end by itself");
                if let Some(supervisor) = self.supervisor.take() {
                    let _ = client::put_down(&supervisor, &self.context.uid).await;
                }
                self.recover().await;
                None
            }
            Report::Stopped(Err(why)) | Report::Removed(Err(why)) => {
                tracing::debug!(pod = self.context.uid, why, "a step failed and is tried again");
                step.clone()
            }
            Report::Stopped(Ok(())) | Report::Removed(Ok(())) => None,
            Report::Cleared(Err(why)) => {
                tracing::warn!(
                    pod = self.context.uid,
                    why,
                    "the volumes of an evicted pod cannot be removed"
                );
                step.clone()
            }
            Report::Cleared(Ok(())) => {
                self.kept.is_cleared = true;
                self.save();
                None
            }
            Report::Measured(usage, took) => {
                self.usage = Some(usage);
                let took = SignedDuration::try_from(took).unwrap_or(MEASURING);
                let pause = MEASURING.max(took.saturating_mul(MEASURED_PART));
                self.next_measuring = later(self.now(), pause);
                None
            }
            Report::Forgotten(Err(why)) => {
                tracing::warn!(pod = self.context.uid, why, "a pod's folder cannot be removed");
                step.clone()
            }
            Report::Forgotten(Ok(())) => {
                self.agent().machine.forget_pod(&self.context.uid);
                self.is_forgotten = true;
                None
            }
            Report::Probed(container, attempt, kind, answer) => {
                self.probed(&container, attempt, kind, answer);
                None
            }
            Report::Refreshed(errors) => {
                self.is_refreshing = false;
                let pod = self.pod();
                for message in errors {
                    self.agent().tell_pod(&pod, true, "FailedMount", message);
                }
                None
            }
            Report::Checked(generation, alive) => {
                self.is_checking = false;
                self.next_check = later(self.now(), CHECK);
                if let Err(why) = alive
                    && generation == self.generation
                    && self.supervisor.is_some()
                {
                    tracing::warn!(pod = self.context.uid, why, "a supervisor is gone");
                    self.recover().await;
                }
                None
            }
        };
        match failed {
            Some(step) => self.pause(step),
            None => {
                if let Some(step) = step {
                    self.pauses.remove(&step);
                }
            }
        }
    }

    async fn started(&mut self, container: String, attempt: u32, started: Started) {
        match started {
            Started::Accepted => {
                self.troubles.remove(&container);
                self.asked.insert((container, attempt));
            }
            Started::Refused(refusal) => {
                let failures = self.troubles.get(&container).map_or(0, |trouble| trouble.failures);
                let trouble = Trouble {
                    reason: refusal.reason.to_owned(),
                    message: refusal.message,
                    retry_at: later(self.now(), pause_after(failures)),
                    failures: failures + 1,
                };
                self.troubles.insert(container, trouble);
            }
            Started::Lost(why) => {
                tracing::debug!(pod = self.context.uid, why, "a supervisor was lost while it was asked");
                self.recover().await;
            }
        }
    }

    fn post_started(&mut self, container: &str, attempt: u32, done: Result<(), HookFailure>) {
        let now = self.now();
        match done {
            Ok(()) => self.kept.container(container).post_start = Some(attempt),
            Err(HookFailure(message)) => {
                let (pod, moment) = (self.pod(), Moment::PostStart);
                let told = moment.failed_message().to_owned();
                self.context.tell(&pod, container, true, moment.failed_reason(), told);
                self.kept.container(container).doomed = Some(Doomed {
                    attempt,
                    since: now,
                    grace_seconds: None,
                    message: moment.failed_reason().to_owned(),
                    waiting: Some((POST_START_WAITING_REASON.to_owned(), message)),
                });
            }
        }
        self.save();
    }

    /// Where nothing can be mounted, whoever mounts something is told what happens instead (11.4).
    fn tell_of_paths(&self) {
        let pod = self.pod();
        let spec = pod.spec.iter();
        let mut all = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
        let has_mounts = all.any(|container| {
            let mounts = container.volume_mounts.iter().flatten();
            // The token is in every pod, wished for or not.
            mounts.into_iter().any(|mount| mount.mount_path != TOKEN_PATH)
        });
        let machine = &self.agent().machine;
        if has_mounts && !self.context.folder.isolation(machine).has_private_root() && self.attempts.is_empty() {
            let why = machine.isolation_told().unwrap_or_default();
            let message = format!(
                "volumes are not mounted on this node ({why}): words that begin with a mountPath name the volume's folder, \
                 and USHER_MOUNT_<VOLUME> tells where it is"
            );
            self.agent().tell_pod(&pod, false, "MountsAsPaths", message);
        }
    }
}

/// How long a container that cannot be started is left alone, after so many tries before this one.
fn pause_after(failures: u32) -> SignedDuration {
    FIRST_TROUBLE.saturating_mul(1 << failures.min(16)).min(LONGEST_TROUBLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_started_is_tried_again_after_ten_seconds_and_twice_as_long_each_time_up_to_300() {
        let seconds: Vec<i64> = (0..7).map(|failures| pause_after(failures).as_secs()).collect();
        assert_eq!(seconds, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(pause_after(u32::MAX).as_secs(), 300);
    }
}
