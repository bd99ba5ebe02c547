//! Nodes of an earlier start that this one does not have: their objects go, and with them, by the garbage collector of pods
//! (C9), their pods; what still runs of those is ended, since nobody will look after it.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Node;

use super::agent::Agent;
use super::entry::{NodeEntry, NodeKind};
use crate::controllers::hand::Hand;
use crate::registry::object;
use crate::store::Key;

/// What nodes of ours say that they run pods with.
const RUNTIMES: [&str; 2] = ["usher://", "hollow://"];

/// Called once at a start. `data` is the folder whose pods are to be ended, where no machine does it.
pub(crate) async fn clear(hand: Hand, data: Option<PathBuf>, entries: Vec<NodeEntry>) {
    let Ok(nodes) = hand.registry.store.list(&Key::prefix("", "nodes", None), None, None, 0) else {
        return;
    };
    let stored = nodes.entries.iter().filter_map(|entry| {
        let value = object::decode(entry).ok()?;
        serde_json::from_value::<Node>(value).ok()
    });
    for node in stored.filter(|node| is_ours(node) && !is_there(node, &entries)) {
        let (name, uid) = (
            node.metadata.name.unwrap_or_default(),
            node.metadata.uid.unwrap_or_default(),
        );
        tracing::warn!(
            node = name,
            "a node of an earlier start is not there any more: it goes, and so do its pods"
        );
        let gone = match hand.target_of::<Node>(None, &name) {
            Ok(target) => hand.remove(&target, &uid, None).await,
            Err(fault) => Err(fault),
        };
        if let Err(fault) = gone {
            tracing::warn!(node = name, %fault, "its object could not be deleted");
        }
    }
    if let Some(data) = data {
        end_pods(&data, &entries).await;
    }
}

async fn end_pods(data: &Path, entries: &[NodeEntry]) {
    let processes = entries.iter().filter(|entry| entry.kind == NodeKind::Process);
    let names: Vec<String> = processes.map(|entry| entry.name.clone()).collect();
    Agent::clear_others(data, &names).await;
}

fn is_ours(node: &Node) -> bool {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let runtime = info
        .map(|info| info.container_runtime_version.as_str())
        .unwrap_or_default();
    RUNTIMES.iter().any(|ours| runtime.starts_with(ours))
}

fn is_there(node: &Node, entries: &[NodeEntry]) -> bool {
    entries
        .iter()
        .any(|entry| node.metadata.name.as_deref() == Some(&entry.name))
}
