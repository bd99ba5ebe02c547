//! Kinds of the core group that hold little more than data.

use jiff::Timestamp;
use serde_json::Value;

use super::read::{age, name, size, text};
use super::{AGE, NAME, column};
use crate::registry::row::Column;

pub const NAME_AND_AGE: &[Column] = &[NAME, AGE];

pub fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), age(object, now)]
}

pub const NAMESPACE: &[Column] = &[NAME, column("Status", "string", "Active, or being deleted."), AGE];

pub fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        text(object, &["status", "phase"]).into(),
        age(object, now),
    ]
}

pub const CONFIG_MAP: &[Column] = &[NAME, column("Data", "string", "How many keys it has."), AGE];

pub fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    let keys = size(object, &["data"]) + size(object, &["binaryData"]);
    vec![name(object), keys.into(), age(object, now)]
}

pub const SECRET: &[Column] = &[
    NAME,
    column("Type", "string", "What the secret is for."),
    column("Data", "string", "How many keys it has."),
    AGE,
];

pub fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        text(object, &["type"]).into(),
        size(object, &["data"]).into(),
        age(object, now),
    ]
}
