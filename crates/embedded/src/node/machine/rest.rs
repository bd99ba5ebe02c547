//! Stopping all pods of the machine with their grace, their objects left as they are: what `usher up` does at its end. At
//! the next start they run again, as after a reboot of the machine: at once, whatever they waited for before. The agents are
//! gone by then; their preStop hooks are run all the same, and spend the grace (N8).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Machine;
use crate::node::agent::{Agent, PodAtRest};
use crate::node::supervisor::client::{self, Found, Supervisor, SupervisorError};
use crate::node::supervisor::protocol::Phase;

/// For a container that its pod's object does not name.
const SIGTERM: i32 = 15;
/// What every program has between its signal and SIGKILL, however long its hook took.
const SHORTEST_GRACE: Duration = Duration::from_secs(2);
/// How often a pod that stops is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How often those who wait are told.
const TELL: Duration = Duration::from_millis(200);

impl Machine {
    /// Stops the agents, then every pod. `progress` is told of the pods that are still waited for, `namespace/name`,
    /// whenever these are others than before. Dropped in the middle, it leaves the rest running.
    pub(crate) async fn stop_pods(self: &Arc<Self>, mut progress: impl FnMut(&[String])) {
        self.stop_agents().await;
        let left: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let mut ends = JoinSet::new();
        for pod in PodAtRest::all(self.data()) {
            let name = pod.name();
            left.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
            let left = left.clone();
            let machine = self.clone();
            ends.spawn(async move {
                end(&machine, &Arc::new(pod)).await;
                left.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            });
        }
        let mut told = None;
        loop {
            let now: Vec<String> = {
                let left = left.lock().unwrap_or_else(PoisonError::into_inner);
                left.iter().cloned().collect()
            };
            if told.as_ref() != Some(&now) {
                progress(&now);
                told = Some(now);
            }
            tokio::select! {
                done = ends.join_next() => if done.is_none() {
                    return;
                },
                () = tokio::time::sleep(TELL) => {}
            }
        }
    }
}

/// One pod: its hooks, its stop signals, its grace, its supervisor.
async fn end(machine: &Arc<Machine>, pod: &Arc<PodAtRest>) {
    let (deadline, uid) = (Instant::now() + pod.grace(), pod.uid());
    if let Err(why) = pod.forgive() {
        tracing::debug!(pod = uid, %why, "containers of a pod that is stopped may wait at the next start");
    }
    let Ok(Found::Alive(supervisor)) = client::find(pod.folder()) else {
        return;
    };
    let (signals, sidecars) = (pod.stop_signals(machine), pod.sidecars());
    let place = |container: &str| sidecars.iter().position(|sidecar| sidecar == container);
    let ended = async {
        let mut asked = BTreeSet::new();
        let mut stops: JoinSet<Result<(), SupervisorError>> = JoinSet::new();
        loop {
            let state = supervisor.look().await?;
            let attempts = state.containers.iter().filter_map(|(name, attempts)| {
                let (number, attempt) = attempts.last_key_value()?;
                Some((name, *number, attempt))
            });
            let left: Vec<_> = attempts.filter(|(_, _, attempt)| !attempt.phase.has_ended()).collect();
            for (name, number, attempt) in &left {
                // A sidecar stops when those have that it runs beside: the main containers, and the sidecars after it.
                let own = place(name);
                let is_needed = own.is_some()
                    && left
                        .iter()
                        .any(|(other, ..)| place(other).is_none_or(|at| Some(at) > own));
                if is_needed && Instant::now() < deadline {
                    continue;
                }
                let (name, number) = (*name, *number);
                let is_running = attempt.stopping.is_none() && matches!(attempt.phase, Phase::Running { .. });
                if is_running && asked.insert((name.clone(), number)) {
                    let stop = Stop {
                        agent: machine.agent_at_rest(pod.node()),
                        pod: pod.clone(),
                        supervisor: supervisor.clone(),
                        container: name.clone(),
                        attempt: number,
                        signal: signals.get(name).copied().unwrap_or(SIGTERM),
                        deadline,
                    };
                    stops.spawn(stop.run());
                }
            }
            while let Some(done) = stops.try_join_next() {
                done.unwrap_or(Ok(()))?;
            }
            if left.is_empty() {
                return supervisor.end().await;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    if let Err(why) = ended.await {
        tracing::warn!(pod = uid, %why, "a pod that is stopped does not answer and is killed");
        if let Err(left) = client::put_down(&supervisor, uid).await {
            tracing::warn!(pod = uid, %left, "a pod's processes are left");
        }
    }
}

/// One container that has to stop by then.
struct Stop {
    agent: Option<Arc<Agent>>,
    pod: Arc<PodAtRest>,
    supervisor: Supervisor,
    container: String,
    attempt: u32,
    signal: i32,
    deadline: Instant,
}

impl Stop {
    async fn run(self) -> Result<(), SupervisorError> {
        let left = || self.deadline.saturating_duration_since(Instant::now());
        if let Some(agent) = &self.agent {
            let hook = self
                .pod
                .pre_stop(agent, &self.supervisor, &self.container, self.attempt, left());
            if let Err(why) = hook.await {
                tracing::warn!(
                    pod = self.pod.name(),
                    container = self.container,
                    why,
                    "a preStop hook failed"
                );
            }
        }
        let grace = left().max(SHORTEST_GRACE);
        self.supervisor
            .stop(&self.container, self.attempt, self.signal, grace)
            .await
    }
}

impl Machine {
    /// An agent that does nothing by itself, for what only an agent knows how to do.
    fn agent_at_rest(self: &Arc<Self>, node: &str) -> Option<Arc<Agent>> {
        let slots = self.slots();
        let slot = slots.get(node)?;
        Some(Agent::new(self.clone(), slot.entry.clone(), slot.address).0)
    }
}
