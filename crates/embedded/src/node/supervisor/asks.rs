//! What the supervisor does when it is asked.

use std::time::{Duration, Instant};

use super::container::Container;
use super::exec::Exec;
use super::peers::{Peer, Role};
use super::processes;
use super::protocol::{Answer, Ask, Attempt, ContainerPlan, ExecPlan, Phase, Refusal};
use super::record::Record;
use super::supervise::{Key, Supervisor};

fn refused(refusal: Refusal, message: impl Into<String>) -> Answer {
    Answer::Refused {
        refusal,
        message: message.into(),
    }
}

impl Supervisor {
    /// Answers every whole line that is there.
    pub(super) fn answer_asks(&mut self, now: Instant) {
        let numbers: Vec<u64> = self.peers.keys().copied().collect();
        for number in numbers {
            while let Some(ask) = self.peers.get_mut(&number).and_then(Peer::next_ask) {
                let (answer, role) = match ask {
                    Ok(ask) => self.answer(ask, now),
                    Err(message) => (Some(refused(Refusal::Malformed, message)), Role::Leaving),
                };
                if let Some(peer) = self.peers.get_mut(&number) {
                    if let Some(answer) = answer {
                        peer.answer(&answer);
                    }
                    peer.role = role;
                }
            }
        }
    }

    fn answer(&mut self, ask: Ask, now: Instant) -> (Option<Answer>, Role) {
        match ask {
            Ask::Look => (
                Some(Answer::State {
                    state: self.record.state().clone(),
                }),
                Role::Asking,
            ),
            Ask::Watch => (None, Role::Watching { told: None }),
            Ask::Start { container } => (Some(self.start(*container)), Role::Asking),
            Ask::Stop {
                container,
                attempt,
                signal,
                grace_milliseconds,
            } => {
                let grace = Duration::from_millis(grace_milliseconds);
                (
                    Some(self.stop_asked(&(container, attempt), signal, grace)),
                    Role::Asking,
                )
            }
            Ask::Signal {
                container,
                attempt,
                signal,
            } => (Some(self.signal_asked(&(container, attempt), signal)), Role::Asking),
            Ask::Exec { exec } => match self.exec(&exec, now) {
                Ok(exec) => (Some(Answer::Done), Role::Executing(Box::new(exec))),
                Err(answer) => (Some(answer), Role::Asking),
            },
            Ask::End => {
                self.kill_all();
                (None, Role::AwaitingEnd)
            }
        }
    }

    /// Never the same attempt twice: what the record has, or had, is left alone.
    fn start(&mut self, plan: ContainerPlan) -> Answer {
        let (name, attempt) = (plan.name.clone(), plan.attempt);
        if !is_name(&name) {
            return refused(Refusal::Malformed, format!("{name:?} is not a container's name"));
        }
        let latest = self.record.state().latest(&name).map(|(number, _)| number);
        if latest.is_some_and(|latest| attempt <= latest) {
            return Answer::Done;
        }
        if self.ending {
            return refused(
                Refusal::Ending,
                format!("the pod is ending: container {name} is not started"),
            );
        }
        if self.containers.keys().any(|(other, _)| *other == name) {
            return refused(
                Refusal::Busy,
                format!("an earlier attempt of container {name} has not ended"),
            );
        }
        let id = plan.id.clone();
        let (container, phase) = match Container::start(&self.plan, &self.folder, plan) {
            Ok(container) => (Some(container), Phase::Starting),
            Err(error) => (None, Supervisor::start_error(&error)),
        };
        // Meanwhile its first stage prepares; it will not go on before this is on disk.
        let written = self.record.change(|state| {
            let attempts = state.containers.entry(name.clone()).or_default();
            attempts.insert(
                attempt,
                Attempt {
                    id,
                    phase,
                    stopping: None,
                },
            );
        });
        if let Err(error) = written {
            if let Some(mut container) = container {
                container.launch.kill();
            }
            let _ = self.record.change(|state| {
                if let Some(attempts) = state.containers.get_mut(&name) {
                    attempts.remove(&attempt);
                    if attempts.is_empty() {
                        state.containers.remove(&name);
                    }
                }
            });
            let message = format!("container {name} is not started, because that cannot be written down: {error}");
            return refused(Refusal::System, message);
        }
        if let Some(mut container) = container {
            container.recorded = true;
            self.containers.insert((name, attempt), container);
        }
        Answer::Done
    }

    fn stop_asked(&mut self, key: &Key, signal: i32, grace: Duration) -> Answer {
        if !processes::is_signal(signal) {
            return refused(Refusal::Malformed, format!("{signal} is not the number of a signal"));
        }
        match self.stop(key, signal, grace) {
            Some(()) => Answer::Done,
            None => self.absent(key, Answer::Done),
        }
    }

    fn signal_asked(&mut self, key: &Key, signal: i32) -> Answer {
        let not_running = refused(Refusal::NotRunning, format!("container {} does not run", key.0));
        match self.containers.get(key) {
            Some(container) if container.runs() => match container.launch.signal(signal) {
                Ok(()) => Answer::Done,
                Err(error) => refused(Refusal::System, format!("cannot signal container {}: {error}", key.0)),
            },
            Some(_) => not_running,
            None => self.absent(key, not_running),
        }
    }

    /// The answer about a container that is not alive: `ended` if it ever was.
    fn absent(&self, (container, attempt): &Key, ended: Answer) -> Answer {
        match self.record.state().attempt(container, *attempt) {
            Some(_) => ended,
            None => refused(
                Refusal::Unknown,
                format!("there is no attempt {attempt} of container {container}"),
            ),
        }
    }

    fn exec(&mut self, plan: &ExecPlan, now: Instant) -> Result<Exec, Answer> {
        let name = &plan.container;
        if self.ending {
            return Err(refused(
                Refusal::Ending,
                format!("the pod is ending: nothing is started in container {name}"),
            ));
        }
        let beside = self
            .containers
            .iter()
            .find(|((container, attempt), _)| container == name && plan.attempt.is_none_or(|wanted| wanted == *attempt))
            .map(|(_, container)| container)
            .filter(|container| container.runs());
        match beside {
            Some(beside) => Exec::start(&self.plan, beside, plan, now).map_err(|error| {
                refused(
                    Refusal::System,
                    format!("cannot start a process in container {name}: {error}"),
                )
            }),
            None if self.record.state().containers.contains_key(name) => {
                Err(refused(Refusal::NotRunning, format!("container {name} does not run")))
            }
            None => Err(refused(Refusal::Unknown, format!("there is no container {name}"))),
        }
    }
}

impl Peer {
    /// Moves its exec on, tells it the state if it watches, and sends what can be sent.
    pub(super) fn settle(&mut self, now: Instant, record: &Record) {
        match &mut self.role {
            Role::Executing(exec) => {
                let heard = exec.hear(&mut self.inbox);
                if heard.is_err() {
                    self.drop_it();
                } else if exec.settle(now, &mut self.outbox) {
                    self.role = Role::Leaving;
                }
            }
            // Only when it has taken the last one: a slow watcher misses states, never the latest.
            Role::Watching { told } if *told != Some(record.version()) && self.outbox.is_empty() => {
                *told = Some(record.version());
                self.answer(&Answer::State {
                    state: record.state().clone(),
                });
            }
            Role::Asking | Role::Watching { .. } | Role::AwaitingEnd | Role::Leaving => {}
        }
        self.write();
    }
}

/// A container's name is the name of a folder: lower-case letters, digits and dashes, as the API server has checked.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}
