//! The node's line.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::read::{age, at, condition, flag, list, name, text, text_or};
use super::{AGE, NAME, column, wide};
use crate::registry::row::Column;

pub const COLUMNS: &[Column] = &[
    NAME,
    column("Status", "string", "Whether it is ready and takes pods."),
    column("Roles", "string", "Its roles, from its labels."),
    AGE,
    column("Version", "string", "Its kubelet's version."),
    wide("Internal-IP", "Its address within the cluster."),
    wide("External-IP", "Its address outside of the cluster."),
    wide("OS-Image", "Its operating system."),
    wide("Kernel-Version", "Its kernel, with the architecture."),
    wide("Container-Runtime", "What runs its containers."),
];

pub fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let info = |name: &'static str| text_or(object, &["status", "nodeInfo", name], "<unknown>");
    let mut status = match condition(object, "Ready").map(|ready| text(ready, &["status"])) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if flag(object, &["spec", "unschedulable"]) {
        status.push_str(",SchedulingDisabled");
    }
    let mut kernel = info("kernelVersion").to_owned();
    let architecture = text(object, &["status", "nodeInfo", "architecture"]);
    if !architecture.is_empty() {
        kernel.push_str(&format!(" ({architecture})"));
    }
    vec![
        name(object),
        status.into(),
        roles(object).into(),
        age(object, now),
        text(object, &["status", "nodeInfo", "kubeletVersion"]).into(),
        address(object, "InternalIP").into(),
        address(object, "ExternalIP").into(),
        info("osImage").into(),
        kernel.into(),
        info("containerRuntimeVersion").into(),
    ]
}

/// Roles are the ends of `node-role.kubernetes.io/…` labels and the value of the older `kubernetes.io/role`.
fn roles(object: &Value) -> String {
    let labels = at(object, &["metadata", "labels"]).and_then(Value::as_object);
    let roles: BTreeSet<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() {
        return "<none>".into();
    }
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn address<'a>(object: &'a Value, kind: &str) -> &'a str {
    list(object, &["status", "addresses"])
        .iter()
        .find(|address| text(address, &["type"]) == kind)
        .map_or("<none>", |address| text(address, &["address"]))
}
