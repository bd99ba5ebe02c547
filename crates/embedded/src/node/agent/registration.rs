//! The Node object of an agent and its Lease: made at the start, renewed every 10 s or more often, put right when somebody else said
//! that the node is not ready (C9).

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;

use super::Agent;
use crate::fault::Fault;
use crate::node::entry::object::{LEASES, Report, lease, node, renewal, status};

/// How long until the first registration is tried again.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);

impl Agent {
    /// Never ends by itself.
    pub(super) async fn stay_registered(self: Arc<Self>) {
        loop {
            self.reached().await;
            let wait = match self.speak().await {
                Ok(()) => {
                    let grace = self.machine.hand().settings.node_grace;
                    std::time::Duration::try_from(renewal(grace)).unwrap_or(RETRY)
                }
                Err(fault) => {
                    tracing::debug!(node = self.entry.name, %fault, "a node could not renew its lease");
                    RETRY
                }
            };
            let mut reach = self.reach.subscribe();
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // Back after a cut: at once.
                _ = reach.changed() => {}
            }
        }
    }

    async fn speak(&self) -> Result<(), Fault> {
        let hand = self.machine.hand();
        let now = hand.now();
        let address = self.address.to_string();
        let (runtime, kernel) = self.machine.system();
        let trouble = self.machine.trouble();
        let report = Report {
            address: &address,
            runtime,
            kernel,
            os_image: "Usher process node",
            trouble: &trouble,
            now,
        };
        let name = self.entry.name.as_str();
        let target = hand.target_of::<Node>(None, name)?;
        let read = |value| serde_json::from_value::<Node>(value).map_err(Fault::internal);
        let current = match hand.read(&target)? {
            Some(value) => read(value)?,
            None => {
                hand.make(None, &node(&self.entry, &report)).await?;
                let made = hand.read(&target)?;
                made.map(read)
                    .transpose()?
                    .ok_or_else(|| Fault::internal(format!("node {name} went as it was made")))?
            }
        };
        let fresh = status(&self.entry, &report, current.status.as_ref());
        if differs(&current, &fresh) {
            let mut new = current.clone();
            new.status = Some(fresh);
            match hand.put(None, name, "status", &new).await {
                // Somebody wrote in between: next time.
                Err(fault) if fault.code != 409 => return Err(fault),
                _ => {}
            }
        }
        let old = hand.target_of::<Lease>(Some(LEASES), name)?;
        let old = hand
            .read(&old)?
            .map(serde_json::from_value::<Lease>)
            .transpose()
            .map_err(Fault::internal)?;
        let new = lease(&current, old.as_ref(), now);
        let written = if old.is_some() {
            hand.put(Some(LEASES), name, "", &new).await
        } else {
            hand.make(Some(LEASES), &new).await
        };
        written.map(|_| ())
    }
}

/// Whether the status says something else than when it was last written; heartbeats alone are not worth a write, the Lease
/// tells them.
fn differs(current: &Node, fresh: &k8s_openapi::api::core::v1::NodeStatus) -> bool {
    let Some(status) = &current.status else {
        return true;
    };
    let said = |status: &k8s_openapi::api::core::v1::NodeStatus| -> Vec<(String, String, Option<String>)> {
        let conditions = status.conditions.iter().flatten();
        conditions
            .map(|condition| {
                (
                    condition.type_.clone(),
                    condition.status.clone(),
                    condition.reason.clone(),
                )
            })
            .collect()
    };
    said(status) != said(fresh)
        || status.capacity != fresh.capacity
        || status.allocatable != fresh.allocatable
        || status.addresses != fresh.addresses
}
