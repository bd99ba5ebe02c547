//! When a pod leaves a node because of the node's NoExecute taints.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};

use super::taints::{fleeing, spelt};

/// `since` says when each taint came. `None`: the pod stays. For a taint that it does not tolerate it leaves at once; for
/// one that it tolerates for a while, when the shortest of these times is over.
pub(super) fn leaves_at(pod: &Pod, node: &Node, since: &BTreeMap<String, Timestamp>) -> Option<Timestamp> {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref());
    let tolerations = tolerations.unwrap_or_default();
    fleeing(node)
        .filter_map(|taint| {
            let since = since.get(&spelt(taint)).copied().unwrap_or(Timestamp::MIN);
            let mut matching = tolerations
                .iter()
                .filter(|toleration| tolerates(toleration, taint))
                .peekable();
            if matching.peek().is_none() {
                return Some(Timestamp::MIN);
            }
            let seconds = matching.filter_map(|toleration| toleration.toleration_seconds).min()?;
            let patience = SignedDuration::from_secs(seconds.max(0));
            Some(since.saturating_add(patience).unwrap_or(Timestamp::MAX))
        })
        .min()
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let word = |text: &Option<String>| text.clone().unwrap_or_default();
    let (effect, key, value) = (word(&toleration.effect), word(&toleration.key), word(&toleration.value));
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match word(&toleration.operator).as_str() {
        "" | "Equal" => value == word(&taint.value),
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn c9_a_pod_leaves_when_its_patience_with_the_least_bearable_taint_ends() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let later = |seconds: i64| Some(start + SignedDuration::from_secs(seconds));
        let taint = |key: &str, value: &str| json!({"key": key, "value": value, "effect": "NoExecute"});
        let (a, b) = (taint("a", ""), taint("b", "x"));
        for (what, taints, tolerations, expected) in [
            ("no taint", vec![], json!([]), None),
            (
                "another effect",
                vec![json!({"key": "a", "effect": "NoSchedule"})],
                json!([]),
                None,
            ),
            ("not tolerated", vec![a.clone()], json!([]), Some(Timestamp::MIN)),
            (
                "for ever",
                vec![a.clone()],
                json!([{"key": "a", "operator": "Exists"}]),
                None,
            ),
            (
                "everything",
                vec![a.clone(), b.clone()],
                json!([{"operator": "Exists"}]),
                None,
            ),
            (
                "for a while",
                vec![a.clone()],
                json!([{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]),
                later(300),
            ),
            (
                "not for long",
                vec![a.clone()],
                json!([{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -5}]),
                later(0),
            ),
            (
                "the shortest",
                vec![a.clone(), b.clone()],
                json!([{"key": "a", "operator": "Exists", "tolerationSeconds": 300},
                    {"key": "b", "value": "x", "tolerationSeconds": 60}]),
                later(60),
            ),
            (
                "another value",
                vec![b],
                json!([{"key": "b", "value": "y", "tolerationSeconds": 60}]),
                Some(Timestamp::MIN),
            ),
            (
                "another effect is tolerated",
                vec![a],
                json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]),
                Some(Timestamp::MIN),
            ),
        ] {
            let node: Node = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": "n"}, "spec": {"taints": taints}}))
            .unwrap();
            let tolerations: Value = tolerations;
            let pod: Pod = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                "spec": {"containers": [], "tolerations": tolerations}}))
            .unwrap();
            let since = fleeing(&node).map(|taint| (spelt(taint), start)).collect();
            assert_eq!(leaves_at(&pod, &node, &since), expected, "{what}");
        }
    }
}
