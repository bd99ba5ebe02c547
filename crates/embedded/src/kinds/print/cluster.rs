//! Kinds that the cluster itself is run with: leases, priority classes, webhooks, definitions, roles.

use jiff::Timestamp;
use serde_json::Value;

use super::read::{age, flag, list, name, number, text, text_or};
use super::{AGE, NAME, column};
use crate::registry::row::Column;

pub const LEASE: &[Column] = &[NAME, column("Holder", "string", "Who has it."), AGE];

pub fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        text(object, &["spec", "holderIdentity"]).into(),
        age(object, now),
    ]
}

pub const PRIORITY_CLASS: &[Column] = &[
    NAME,
    column("Value", "integer", "The higher, the sooner."),
    column(
        "Global-Default",
        "boolean",
        "Whether pods without a class are of this one.",
    ),
    AGE,
    column("PreemptionPolicy", "string", "Whether its pods may take others' place."),
];

pub fn priority_class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        number(object, &["value"]).into(),
        flag(object, &["globalDefault"]).into(),
        age(object, now),
        text(object, &["preemptionPolicy"]).into(),
    ]
}

pub const WEBHOOKS: &[Column] = &[NAME, column("Webhooks", "integer", "How many webhooks it has."), AGE];

pub fn webhooks(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), list(object, &["webhooks"]).len().into(), age(object, now)]
}

pub const CREATED_AT: &[Column] = &[NAME, column("Created At", "date", "When it was created.")];

pub fn created_at(object: &Value, _now: Timestamp) -> Vec<Value> {
    // A bookmark has no such time; the reference then shows its zero.
    let created = text_or(object, &["metadata", "creationTimestamp"], "0001-01-01T00:00:00Z");
    vec![name(object), created.into()]
}
