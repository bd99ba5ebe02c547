//! Writing a pod's status: the newest one only, one write after the other, tried until it is written or the object is gone.
//!
//! The worker hands statuses to a [`Publisher`] and goes on; before the object may go it waits for the last one.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::Value;
use tokio::sync::watch;

use super::Agent;
use crate::fault::Fault;

/// After a failed write. The store is in this process: it fails for want of disk, or because it is being closed.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Publisher {
    latest: watch::Sender<Option<(u64, PodStatus)>>,
    written: watch::Receiver<u64>,
    count: u64,
}

impl Publisher {
    /// And the task that writes, which the worker owns.
    pub(super) fn new(agent: Arc<Agent>, pod: Arc<Pod>) -> (Self, impl Future<Output = ()> + Send) {
        let (latest, orders) = watch::channel(None);
        let (done, written) = watch::channel(0);
        let publisher = Self {
            latest,
            written,
            count: 0,
        };
        (publisher, write(agent, pod, orders, done))
    }

    /// If it is another than the last.
    pub(super) fn publish(&mut self, status: &PodStatus) {
        let is_same = self
            .latest
            .borrow()
            .as_ref()
            .is_some_and(|(_, latest)| latest == status);
        if !is_same {
            self.count += 1;
            self.latest.send_replace(Some((self.count, status.clone())));
        }
    }

    /// Done when all that was published is written.
    pub(super) fn flushed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut written = self.written.clone();
        let count = self.count;
        async move {
            let _ = written.wait_for(|written| *written >= count).await;
        }
    }
}

async fn write(
    agent: Arc<Agent>,
    pod: Arc<Pod>,
    mut orders: watch::Receiver<Option<(u64, PodStatus)>>,
    done: watch::Sender<u64>,
) {
    loop {
        let Some((count, status)) = orders.borrow_and_update().clone() else {
            if orders.changed().await.is_err() {
                return;
            }
            continue;
        };
        if *done.borrow() >= count {
            if orders.changed().await.is_err() {
                return;
            }
            continue;
        }
        agent.reached().await;
        match put(&agent, &pod, &status).await {
            Ok(()) => {
                done.send_replace(count);
            }
            // Somebody else wrote in between: from the beginning.
            Err(fault) if fault.code == 409 => {}
            Err(fault) => {
                tracing::warn!(pod = pod.metadata.name, %fault, "a pod's status cannot be written and is tried again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Writes a status over the one that is there, if the object still is the same.
async fn put(agent: &Agent, pod: &Pod, status: &PodStatus) -> Result<(), Fault> {
    let hand = agent.machine.hand();
    let meta = &pod.metadata;
    let name = meta.name.as_deref().unwrap_or_default();
    let target = hand.target_of::<Pod>(meta.namespace.as_deref(), name)?;
    let Some(mut object) = hand.read(&target)? else {
        return Ok(());
    };
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
    if uid != meta.uid.as_deref() {
        return Ok(());
    }
    let mut new = serde_json::to_value(status).map_err(Fault::internal)?;
    keep_foreign(&mut new, object.get("status"));
    if let Some(map) = object.as_object_mut() {
        map.insert("status".to_owned(), new);
    }
    match hand.replace(&target, "status", object).await {
        Err(fault) if fault.code != 404 => Err(fault),
        _ => Ok(()),
    }
}

/// Conditions of others are as they are now, not as they were when the status was made.
fn keep_foreign(new: &mut Value, now: Option<&Value>) {
    let foreign: Vec<Value> = now
        .and_then(|now| now.get("conditions")?.as_array())
        .into_iter()
        .flatten()
        .filter(|condition| !is_ours(condition))
        .cloned()
        .collect();
    let Some(map) = new.as_object_mut() else {
        return;
    };
    let ours: Vec<Value> = map
        .get("conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|condition| is_ours(condition))
        .cloned()
        .collect();
    let all: Vec<Value> = foreign.into_iter().chain(ours).collect();
    if all.is_empty() {
        map.remove("conditions");
    } else {
        map.insert("conditions".to_owned(), Value::Array(all));
    }
}

fn is_ours(condition: &Value) -> bool {
    condition
        .get("type")
        .and_then(Value::as_str)
        .is_some_and(super::life::is_own_condition)
}
