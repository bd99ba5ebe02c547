//! What a node is marked with: its own conditions, so that nothing new is placed there, and its loss, so that pods leave.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::health::{is_ready, ready};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Condition, status, taint.
const CONDITIONS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];
/// A label, and its old name which is kept equal to it.
const OLD_LABELS: [(&str, &str); 2] = [
    ("kubernetes.io/os", "beta.kubernetes.io/os"),
    ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
];

/// Taints that pods leave for.
pub(super) fn fleeing(node: &Node) -> impl Iterator<Item = &Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let all = taints.unwrap_or_default();
    all.iter().filter(|taint| taint.effect == "NoExecute")
}

/// A taint without its time.
pub(super) fn spelt(taint: &Taint) -> String {
    format!("{}={}", taint.key, taint.value.as_deref().unwrap_or_default())
}

/// The taints that the node is to have; `None` if it has them. Where no node at all is ready (`is_any_ready` is false),
/// the fault is more likely ours: no pod is sent away, since there is nowhere to go.
pub(super) fn wanted(node: &Node, is_any_ready: bool, now: Timestamp) -> Option<Vec<Taint>> {
    let spec = node.spec.as_ref();
    let before = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let status_of = |kind: &str| super::health::condition(node, kind).map(|condition| condition.status.as_str());
    let mut marks: Vec<(&str, &str)> = CONDITIONS
        .iter()
        .filter(|(kind, status, _)| status_of(kind) == Some(status))
        .map(|(_, _, key)| (*key, "NoSchedule"))
        .collect();
    if spec.and_then(|spec| spec.unschedulable) == Some(true) {
        marks.push((UNSCHEDULABLE, "NoSchedule"));
    }
    if is_any_ready && !is_ready(node) {
        match ready(node).map(|ready| ready.status.as_str()) {
            Some("False") => marks.push((NOT_READY, "NoExecute")),
            Some("Unknown") => marks.push((UNREACHABLE, "NoExecute")),
            _ => {}
        }
    }
    // A node that has not said anything yet keeps what it was made with.
    let is_silent = ready(node).is_none();
    let is_kept = |taint: &Taint| {
        let key = taint.key.as_str();
        let is_ours = match taint.effect.as_str() {
            "NoSchedule" => key == UNSCHEDULABLE || CONDITIONS.iter().any(|(.., known)| *known == key),
            "NoExecute" => key == NOT_READY || key == UNREACHABLE,
            _ => false,
        };
        let has_said = key == UNSCHEDULABLE || !is_silent;
        !is_ours || !has_said || marks.contains(&(key, taint.effect.as_str()))
    };
    let mut after: Vec<Taint> = before.iter().filter(|taint| is_kept(taint)).cloned().collect();
    for (key, effect) in marks {
        if !after.iter().any(|taint| taint.key == key && taint.effect == effect) {
            after.push(Taint {
                key: key.to_owned(),
                effect: effect.to_owned(),
                time_added: Some(Time(now)),
                value: None,
            });
        }
    }
    (after != before).then_some(after)
}

/// Labels that the node lacks.
pub(super) fn labels(node: &Node) -> BTreeMap<&'static str, String> {
    let labels = node.metadata.labels.as_ref();
    let get = |key: &str| labels.and_then(|labels| labels.get(key));
    OLD_LABELS
        .iter()
        .filter_map(|(key, old)| {
            let value = get(key)?;
            (get(old) != Some(value)).then(|| (*old, value.clone()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(ready: &str, spec: Value) -> Node {
        let conditions = match ready {
            "" => json!([]),
            word => json!([{"type": "Ready", "status": word}]),
        };
        serde_json::from_value(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": spec,
            "status": {"conditions": conditions}}),
        )
        .unwrap()
    }

    fn marks(node: &Node, is_any_ready: bool) -> Option<Vec<(String, String)>> {
        let taints = wanted(node, is_any_ready, "2026-01-01T00:00:00Z".parse().unwrap())?;
        Some(taints.into_iter().map(|taint| (taint.key, taint.effect)).collect())
    }

    #[test]
    fn c9_taints_follow_the_conditions() {
        let own = json!({"key": "mine", "effect": "NoExecute"});
        let schedule = |key: &str| json!({"key": key, "effect": "NoSchedule"});
        let execute = |key: &str| json!({"key": key, "effect": "NoExecute"});
        let all = |taints: &[Value]| json!({"taints": taints});
        let words = |pairs: &[(&str, &str)]| -> Option<Vec<(String, String)>> {
            Some(
                pairs
                    .iter()
                    .map(|(key, effect)| ((*key).to_owned(), (*effect).to_owned()))
                    .collect(),
            )
        };
        for (what, node, is_any_ready, expected) in [
            (
                "a new node keeps its taint",
                node("", all(&[schedule(NOT_READY)])),
                true,
                None,
            ),
            (
                "a ready one loses it",
                node("True", all(&[schedule(NOT_READY)])),
                true,
                words(&[]),
            ),
            (
                "one that is not ready is left",
                node("False", all(&[schedule(NOT_READY)])),
                true,
                words(&[(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
            ),
            (
                "a lost one too",
                node("Unknown", all(&[schedule(NOT_READY), execute(NOT_READY), own.clone()])),
                true,
                words(&[
                    ("mine", "NoExecute"),
                    (UNREACHABLE, "NoSchedule"),
                    (UNREACHABLE, "NoExecute"),
                ]),
            ),
            (
                "but not if all are lost",
                node("Unknown", all(&[execute(UNREACHABLE)])),
                false,
                words(&[(UNREACHABLE, "NoSchedule")]),
            ),
            (
                "a cordoned one says so",
                node("True", json!({"unschedulable": true})),
                true,
                words(&[(UNSCHEDULABLE, "NoSchedule")]),
            ),
            (
                "and no longer",
                node("True", all(&[schedule(UNSCHEDULABLE)])),
                true,
                words(&[]),
            ),
            ("nothing to do", node("True", json!({})), true, None),
        ] {
            assert_eq!(marks(&node, is_any_ready), expected, "{what}");
        }
    }
}
