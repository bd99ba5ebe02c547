//! One process node in somebody's hand: for `usher node NAME …` and for fault tests.

use std::fmt;
use std::sync::Arc;

use super::Machine;
use crate::node::agent::Agent;

/// What became of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    Running,
    /// Its agent is gone; its pods run on.
    Stopped,
    /// Its agent and its pods are gone.
    Killed,
    /// Its agent cannot reach the API.
    Cut,
}

impl fmt::Display for NodeState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Killed => "killed",
            Self::Cut => "cut",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    #[error("there is no process node {0:?}: `GET /usher/nodes` lists them")]
    NoNode(String),
    #[error("node {node:?} does not run: start it first")]
    NotRunning { node: String },
    #[error("there is no pod {namespace}/{name}")]
    NoPod { namespace: String, name: String },
    #[error("pod {namespace}/{name}, container {container:?}: {why}")]
    Signal {
        namespace: String,
        name: String,
        container: String,
        why: String,
    },
}

/// See the module. Clones are the same node.
#[derive(Debug, Clone)]
pub struct NodeHandle {
    machine: Arc<Machine>,
    name: String,
}

impl Machine {
    pub(crate) fn node(self: &Arc<Self>, name: &str) -> Result<NodeHandle, NodeError> {
        if !self.slots().contains_key(name) {
            return Err(NodeError::NoNode(name.to_owned()));
        }
        Ok(NodeHandle {
            machine: self.clone(),
            name: name.to_owned(),
        })
    }

    pub(crate) fn nodes(self: &Arc<Self>) -> Vec<NodeHandle> {
        let names: Vec<String> = self.slots().keys().cloned().collect();
        names
            .into_iter()
            .map(|name| NodeHandle {
                machine: self.clone(),
                name,
            })
            .collect()
    }

    /// Ends a node's agent and waits until it is gone.
    async fn stop_agent(&self, name: &str, state: NodeState) {
        let running = {
            let mut slots = self.slots();
            let Some(slot) = slots.get_mut(name) else {
                return;
            };
            slot.state = state;
            slot.running.take()
        };
        if let Some(server) = self.server() {
            server.doors.close(name);
        }
        if let Some((_, task)) = running {
            task.abort();
            let _ = task.await;
            self.starts_over().await;
        }
    }

    pub(super) async fn stop_agents(&self) {
        let names: Vec<String> = self.slots().keys().cloned().collect();
        for name in names {
            self.stop_agent(&name, NodeState::Stopped).await;
        }
    }
}

impl NodeHandle {
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn state(&self) -> NodeState {
        let slots = self.machine.slots();
        slots.get(&self.name).map_or(NodeState::Stopped, |slot| slot.state)
    }

    /// Where its pods are told that it is.
    #[must_use]
    pub fn address(&self) -> String {
        let slots = self.machine.slots();
        slots
            .get(&self.name)
            .map(|slot| slot.address.to_string())
            .unwrap_or_default()
    }

    /// The agent is gone, its pods run on.
    pub async fn stop(&self) {
        self.machine.stop_agent(&self.name, NodeState::Stopped).await;
    }

    /// The agent and every process of its pods are killed, and nobody is told.
    pub async fn kill(&self) {
        self.machine.stop_agent(&self.name, NodeState::Killed).await;
        Agent::kill_all(self.machine.data(), &self.name).await;
    }

    /// The agent cannot reach the API: pods run on and are looked after, but nothing is heard or said.
    pub async fn cut(&self) -> Result<(), NodeError> {
        let mut slots = self.machine.slots();
        let slot = slots.get_mut(&self.name);
        let Some((slot, agent)) = slot.and_then(|slot| {
            let agent = slot.running.as_ref()?.0.clone();
            Some((slot, agent))
        }) else {
            return Err(NodeError::NotRunning {
                node: self.name.clone(),
            });
        };
        slot.state = NodeState::Cut;
        agent.set_reach(false);
        drop(slots);
        if let Some(server) = self.machine.server() {
            server.doors.close(&self.name);
        }
        Ok(())
    }

    /// As it was before it was stopped, killed or cut off.
    pub async fn start(&self) {
        self.machine.spawn(&self.name);
    }

    /// One signal to the first process of a container.
    pub async fn signal(&self, namespace: &str, pod: &str, container: &str, signal: i32) -> Result<(), NodeError> {
        let agent = {
            let slots = self.machine.slots();
            let slot = slots.get(&self.name).and_then(|slot| slot.running.as_ref());
            slot.map(|(agent, _)| agent.clone())
        };
        let agent = agent.ok_or_else(|| NodeError::NotRunning {
            node: self.name.clone(),
        })?;
        let found = self.machine.hand().mirror.pods.get(Some(namespace), pod);
        let found = found.ok_or_else(|| NodeError::NoPod {
            namespace: namespace.to_owned(),
            name: pod.to_owned(),
        })?;
        agent
            .signal(&found, container, signal)
            .await
            .map_err(|why| NodeError::Signal {
                namespace: namespace.to_owned(),
                name: pod.to_owned(),
                container: container.to_owned(),
                why,
            })
    }
}
