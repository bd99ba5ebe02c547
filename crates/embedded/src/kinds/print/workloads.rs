//! Kinds that keep pods, and their history.

use jiff::Timestamp;
use serde_json::Value;

use super::read::{age, at, flag, list, name, number, text};
use super::selectors::{selector, selector_or_none};
use super::{AGE, CONTAINERS, IMAGES, NAME, SELECTOR, column};
use crate::registry::row::Column;

pub const DEPLOYMENT: &[Column] = &[
    NAME,
    column("Ready", "string", "Ready pods of those wanted."),
    column("Up-to-date", "string", "Pods of the latest template."),
    column("Available", "string", "Pods that have been ready long enough."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(object);
    let selector = selector(at(object, &["spec", "selector"]));
    vec![
        name(object),
        ready(object).into(),
        number(object, &["status", "updatedReplicas"]).into(),
        number(object, &["status", "availableReplicas"]).into(),
        age(object, now),
        names.into(),
        images.into(),
        selector.unwrap_or_else(|| "<invalid>".into()).into(),
    ]
}

pub const REPLICA_SET: &[Column] = &[
    NAME,
    column("Desired", "integer", "Pods wanted."),
    column("Current", "integer", "Pods there are."),
    column("Ready", "integer", "Pods that are ready."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(object);
    vec![
        name(object),
        number(object, &["spec", "replicas"]).into(),
        number(object, &["status", "replicas"]).into(),
        number(object, &["status", "readyReplicas"]).into(),
        age(object, now),
        names.into(),
        images.into(),
        selector_or_none(at(object, &["spec", "selector"])).into(),
    ]
}

pub const STATEFUL_SET: &[Column] = &[
    NAME,
    column("Ready", "string", "Ready pods of those wanted."),
    AGE,
    CONTAINERS,
    IMAGES,
];

pub fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(object);
    vec![
        name(object),
        ready(object).into(),
        age(object, now),
        names.into(),
        images.into(),
    ]
}

fn ready(object: &Value) -> String {
    let of = |path: [&str; 2]| number(object, &path);
    format!("{}/{}", of(["status", "readyReplicas"]), of(["spec", "replicas"]))
}

fn containers(object: &Value) -> (String, String) {
    let containers = list(object, &["spec", "template", "spec", "containers"]);
    let all = |field| {
        containers
            .iter()
            .map(|c| text(c, &[field]))
            .collect::<Vec<_>>()
            .join(",")
    };
    (all("name"), all("image"))
}

pub const CONTROLLER_REVISION: &[Column] = &[
    NAME,
    column("Controller", "string", "What it is a past state of."),
    column("Revision", "string", "Its number in the history."),
    AGE,
];

pub fn controller_revision(object: &Value, now: Timestamp) -> Vec<Value> {
    let owner = list(object, &["metadata", "ownerReferences"])
        .iter()
        .find(|owner| flag(owner, &["controller"]));
    vec![
        name(object),
        owner.map_or_else(|| "<none>".into(), controller).into(),
        number(object, &["revision"]).into(),
        age(object, now),
    ]
}

/// `statefulset.apps/name`.
fn controller(owner: &Value) -> String {
    let kind = text(owner, &["kind"]).to_lowercase();
    let group = text(owner, &["apiVersion"])
        .rsplit_once('/')
        .map(|(group, _)| group.to_lowercase());
    match group {
        Some(group) => format!("{kind}.{group}/{}", text(owner, &["name"])),
        None => format!("{kind}/{}", text(owner, &["name"])),
    }
}
