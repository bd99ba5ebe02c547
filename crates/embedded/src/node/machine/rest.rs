//! Stopping all pods of the machine with their grace, their objects left as they are: what `usher up` does at its end. At
//! the next start they run again, as after a reboot of the machine: at once, whatever they waited for before. Hooks are the
//! agents', which are gone by then.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use super::Machine;
use crate::node::agent::PodAtRest;
use crate::node::supervisor::client::{self, Found};
use crate::node::supervisor::protocol::Phase;

/// For a container that its pod's object does not name.
const SIGTERM: i32 = 15;
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
                end(&machine, &pod).await;
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

/// One pod: its stop signals, its grace, its supervisor.
async fn end(machine: &Machine, pod: &PodAtRest) {
    let (grace, uid) = (pod.grace(), pod.uid());
    if let Err(why) = pod.forgive() {
        tracing::debug!(pod = uid, %why, "containers of a pod that is stopped may wait at the next start");
    }
    let Ok(Found::Alive(supervisor)) = client::find(pod.folder()) else {
        return;
    };
    let signals = pod.stop_signals(machine);
    let ended = async {
        loop {
            let state = supervisor.look().await?;
            let attempts = state.containers.iter().filter_map(|(name, attempts)| {
                let (number, attempt) = attempts.last_key_value()?;
                Some((name, *number, attempt))
            });
            let mut is_over = true;
            for (name, number, attempt) in attempts {
                if attempt.phase.has_ended() {
                    continue;
                }
                is_over = false;
                if attempt.stopping.is_none() && matches!(attempt.phase, Phase::Running { .. }) {
                    let signal = signals.get(name).copied().unwrap_or(SIGTERM);
                    supervisor.stop(name, number, signal, grace).await?;
                }
            }
            if is_over {
                return supervisor.end().await;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    if let Err(why) = ended.await {
        tracing::debug!(pod = uid, %why, "a pod that is stopped does not answer and is killed");
        let _ = client::put_down(&supervisor, uid).await;
    }
}
