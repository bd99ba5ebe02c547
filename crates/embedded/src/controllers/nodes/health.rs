//! What a node's conditions say, and what they are to say of a node that says nothing.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::controllers::pods;

/// What a node posts; when it posts nothing, none of it is known. `NetworkUnavailable` is not the node's own.
const POSTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

pub(super) fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

pub(super) fn ready(node: &Node) -> Option<&NodeCondition> {
    condition(node, "Ready")
}

pub(super) fn is_ready(node: &Node) -> bool {
    ready(node).is_some_and(|ready| ready.status == "True")
}

/// Everything that decides about a node, without what changes with every heartbeat.
pub(super) fn concerns(node: &Node) -> impl PartialEq {
    let words: Vec<(String, String)> = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .map(|condition| (condition.type_.clone(), condition.status.clone()))
        .collect();
    let spec = node.spec.as_ref();
    (
        words,
        spec.and_then(|spec| spec.unschedulable),
        spec.and_then(|spec| spec.taints.clone()),
        node.metadata.labels.clone(),
    )
}

/// The conditions of a node that was not heard of for too long; `None` if they say so already.
pub(super) fn lost(node: &Node, now: Timestamp) -> Option<Vec<NodeCondition>> {
    let mut conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    let before = conditions.clone();
    for kind in POSTED {
        match conditions.iter_mut().find(|condition| condition.type_ == kind) {
            Some(condition) if condition.status == "Unknown" => {}
            Some(condition) => {
                condition.status = "Unknown".to_owned();
                condition.reason = Some("NodeStatusUnknown".to_owned());
                condition.message = Some("Kubelet stopped posting node status.".to_owned());
                condition.last_transition_time = Some(Time(now));
            }
            None => conditions.push(NodeCondition {
                type_: kind.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(Time(now)),
            }),
        }
    }
    (conditions != before).then_some(conditions)
}

/// Whether a pod only seems to be ready: its node is lost, or stopped to be ready after the pod became so. What a node that
/// lives says of a pod later counts again.
pub(super) fn is_doubtful(pod: &Pod, node: &Node) -> bool {
    let (Some(said), Some(node)) = (pods::condition(pod, "Ready"), ready(node)) else {
        return false;
    };
    let since = |time: &Option<Time>| time.as_ref().map(|time| time.0);
    said.status == "True"
        && match node.status.as_str() {
            "Unknown" => true,
            "False" => since(&said.last_transition_time) <= since(&node.last_transition_time),
            _ => false,
        }
}

/// The conditions of a pod whose node is lost.
pub(super) fn pod_not_ready(pod: &Pod, now: Timestamp) -> Vec<PodCondition> {
    let mut conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    for condition in &mut conditions {
        if condition.type_ == "Ready" && condition.status != "False" {
            condition.status = "False".to_owned();
            condition.last_transition_time = Some(Time(now));
        }
    }
    conditions
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(conditions: Value) -> Node {
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"conditions": conditions}}))
        .unwrap()
    }

    fn told(node: &Node) -> Option<Vec<(String, String, String)>> {
        let all = lost(node, "2026-01-01T01:00:00Z".parse().unwrap())?;
        let word = |text: Option<String>| text.unwrap_or_default();
        Some(all.into_iter().map(|c| (c.type_, c.status, word(c.reason))).collect())
    }

    #[test]
    fn c9_a_silent_node_is_unknown_in_all_that_it_posted_and_in_all_that_it_never_did() {
        let silent = node(json!([
            {"type": "Ready", "status": "True", "reason": "KubeletReady"},
            {"type": "DiskPressure", "status": "False"},
            {"type": "NetworkUnavailable", "status": "False"},
        ]));
        let of = |kind: &str, status: &str, reason: &str| (kind.to_owned(), status.to_owned(), reason.to_owned());
        assert_eq!(
            told(&silent).unwrap(),
            [
                of("Ready", "Unknown", "NodeStatusUnknown"),
                of("DiskPressure", "Unknown", "NodeStatusUnknown"),
                of("NetworkUnavailable", "False", ""),
                of("MemoryPressure", "Unknown", "NodeStatusNeverUpdated"),
                of("PIDPressure", "Unknown", "NodeStatusNeverUpdated"),
            ]
        );
    }

    #[test]
    fn c9_what_is_unknown_already_is_not_written_again() {
        let unknown: Vec<Value> = POSTED
            .iter()
            .map(|kind| json!({"type": kind, "status": "Unknown"}))
            .collect();
        assert_eq!(told(&node(unknown.into())), None);
    }
}
