//! Taking steps: each becomes a chore that runs beside the others, once at a time.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::{FIRST_RETRY, LONGEST_RETRY, Report, Worker, find, later};
use crate::node::agent::chores::Subject;
use crate::node::agent::launch;
use crate::node::agent::life::Step;
use crate::node::hooks::Moment;

impl Worker {
    pub(super) fn take(&mut self, key: Step, step: Step) {
        let pod = self.pod();
        let context = self.context.clone();
        let container = |name: &str| -> Option<Container> { find(&pod, name).cloned() };
        match step {
            Step::Prepare => {
                let Some(address) = self.address(&pod) else {
                    return;
                };
                self.spawn(
                    key,
                    async move { Report::Prepared(context.prepare(pod, address).await) },
                );
            }
            Step::Start {
                container: name,
                attempt,
            } => {
                if self.asked.contains(&(name.clone(), attempt)) {
                    return;
                }
                if let Some(subject) = self.subject(&name, attempt) {
                    self.spawn(key, async move {
                        Report::Started(name, attempt, context.start(subject).await)
                    });
                }
            }
            Step::PostStart {
                container: name,
                attempt,
            } => {
                if let Some(subject) = self.subject(&name, attempt) {
                    self.spawn(key, async move {
                        let done = context.hook(subject, Moment::PostStart, None);
                        Report::PostStart(name, attempt, done.await)
                    });
                }
            }
            Step::PreStop {
                container: name,
                attempt,
                within,
            } => {
                if let Some(subject) = self.subject(&name, attempt) {
                    self.spawn(key, async move {
                        let done = context.hook(subject, Moment::PreStop, Some(within));
                        Report::PreStop(name, attempt, done.await)
                    });
                }
            }
            Step::Stop {
                container: name,
                attempt,
                grace,
            } => {
                if let (Some(container), Some(supervisor)) = (container(&name), self.supervisor.clone()) {
                    self.spawn(key, async move {
                        let signal = launch::stop_signal(&context.agent.machine, &container);
                        let stopped = supervisor.stop(&name, attempt, signal, grace).await;
                        Report::Stopped(stopped.map_err(|why| why.to_string()))
                    });
                }
            }
            Step::End => {
                if let Some(supervisor) = self.supervisor.clone() {
                    self.spawn(key, async move {
                        Report::Ended(supervisor.end().await.map_err(|why| why.to_string()))
                    });
                }
            }
            Step::Clear => {
                let folder = context.folder.clone();
                self.spawn(
                    key,
                    async move { Report::Cleared(beside(move || folder.clear()).await) },
                );
            }
            Step::Remove => {
                let flushed = self.publisher.flushed();
                self.spawn(key, async move {
                    flushed.await;
                    Report::Removed(context.agent.remove_object(&pod).await)
                });
            }
            Step::Forget => {
                let folder = context.folder.clone();
                self.spawn(
                    key,
                    async move { Report::Forgotten(beside(move || folder.remove()).await) },
                );
            }
        }
    }

    /// `None`: there is no such container, or nobody to ask.
    pub(super) fn subject(&self, name: &str, attempt: u32) -> Option<Subject> {
        let pod = self.pod();
        Some(Subject {
            supervisor: self.supervisor.clone()?,
            container: find(&pod, name)?.clone(),
            pod,
            attempt,
            address: self.kept.address.map(|address| address.to_string()).unwrap_or_default(),
        })
    }

    fn spawn(&mut self, key: Step, chore: impl Future<Output = Report> + Send + 'static) {
        self.under_way.insert(key.clone());
        self.chores.spawn(async move { (Some(key), chore.await) });
    }

    /// The pod's address, taken and kept before anything is told of it.
    fn address(&mut self, pod: &Pod) -> Option<std::net::Ipv4Addr> {
        if let Some(address) = self.kept.address {
            return Some(address);
        }
        let agent = self.agent();
        let on_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        let taken = if on_host {
            Ok(agent.address)
        } else {
            agent.machine.take_address(&self.context.uid)
        };
        match taken {
            Ok(address) => {
                self.kept.address = Some(address);
                self.save();
                Some(address)
            }
            Err(why) => {
                agent.tell_pod(pod, true, "FailedCreatePodSandBox", why);
                self.pause(Step::Prepare);
                None
            }
        }
    }

    pub(super) fn pause(&mut self, step: Step) {
        let now = self.now();
        let (until, failures) = self.pauses.entry(step).or_insert((now, 0));
        let wait = FIRST_RETRY.saturating_mul(1 << (*failures).min(16)).min(LONGEST_RETRY);
        *failures += 1;
        *until = later(now, wait);
    }
}

/// On a thread that may wait for the disk.
async fn beside(work: impl FnOnce() -> std::io::Result<()> + Send + 'static) -> Result<(), String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|why| why.to_string())?.map_err(|why| why.to_string())
}

/// A step without its times: what tells whether it is under way.
pub(super) fn key_of(step: &Step) -> Step {
    match step.clone() {
        Step::PreStop { container, attempt, .. } => Step::PreStop {
            container,
            attempt,
            within: Duration::ZERO,
        },
        Step::Stop { container, attempt, .. } => Step::Stop {
            container,
            attempt,
            grace: Duration::ZERO,
        },
        step => step,
    }
}
