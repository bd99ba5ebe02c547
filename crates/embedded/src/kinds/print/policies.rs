//! Kinds that say what others may do: disruption budgets, network policies, role bindings, resource claims.

use jiff::Timestamp;
use serde_json::Value;

use super::read::{age, at, is_being_deleted, list, name, number, shown, text};
use super::selectors::selector_or_none;
use super::{AGE, NAME, column, wide};
use crate::registry::row::Column;

pub const DISRUPTION_BUDGET: &[Column] = &[
    NAME,
    column("Min Available", "string", "Pods that must stay available."),
    column("Max Unavailable", "string", "Pods that may be unavailable."),
    column("Allowed Disruptions", "integer", "Pods that may be evicted now."),
    AGE,
];

pub fn disruption_budget(object: &Value, now: Timestamp) -> Vec<Value> {
    let limit = |field| at(object, &["spec", field]).map_or_else(|| "N/A".into(), shown);
    vec![
        name(object),
        limit("minAvailable").into(),
        limit("maxUnavailable").into(),
        number(object, &["status", "disruptionsAllowed"]).into(),
        age(object, now),
    ]
}

pub const NETWORK_POLICY: &[Column] = &[NAME, column("Pod-Selector", "string", "Which pods it is for."), AGE];

pub fn network_policy(object: &Value, now: Timestamp) -> Vec<Value> {
    let selector = selector_or_none(at(object, &["spec", "podSelector"]));
    vec![name(object), selector.into(), age(object, now)]
}

pub const BINDING: &[Column] = &[
    NAME,
    column("Role", "string", "The role that is given."),
    AGE,
    wide("Users", "Users it is given to."),
    wide("Groups", "Groups it is given to."),
    wide("ServiceAccounts", "Service accounts it is given to."),
];

pub fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let of_kind = |kind: &str| {
        let subjects = list(object, &["subjects"])
            .iter()
            .filter(|subject| text(subject, &["kind"]) == kind);
        let names = subjects.map(|subject| match (kind, text(subject, &["namespace"])) {
            ("ServiceAccount", namespace) if !namespace.is_empty() => {
                format!("{namespace}/{}", text(subject, &["name"]))
            }
            _ => text(subject, &["name"]).to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let role = format!(
        "{}/{}",
        text(object, &["roleRef", "kind"]),
        text(object, &["roleRef", "name"])
    );
    vec![
        name(object),
        role.into(),
        age(object, now),
        of_kind("User").into(),
        of_kind("Group").into(),
        of_kind("ServiceAccount").into(),
    ]
}

pub const RESOURCE_CLAIM: &[Column] = &[NAME, column("State", "string", "Whether it has its devices."), AGE];

pub fn resource_claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let deleted = is_being_deleted(object);
    let allocated = at(object, &["status", "allocation"]).is_some();
    let mut states = Vec::new();
    if deleted {
        states.push("deleted");
    }
    if allocated {
        states.push("allocated");
        if !list(object, &["status", "reservedFor"]).is_empty() {
            states.push("reserved");
        }
    } else if !deleted {
        states.push("pending");
    }
    vec![name(object), states.join(",").into(), age(object, now)]
}
