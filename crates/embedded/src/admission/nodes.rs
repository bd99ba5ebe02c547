//! Nodes start with a taint, so that nothing is placed on one before its controller has seen it ready.

use serde_json::{Value, json};

use crate::registry::object;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub(super) fn start_not_ready(node: &mut Value) {
    let taints = object::field_mut(node, "spec")
        .entry("taints")
        .or_insert_with(|| json!([]));
    if taints.is_null() {
        *taints = json!([]);
    }
    let Value::Array(taints) = taints else {
        return;
    };
    let has = taints
        .iter()
        .any(|taint| taint.get("key") == Some(&json!(NOT_READY)) && taint.get("effect") == Some(&json!("NoSchedule")));
    if !has {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}
