//! Volumes, claims on them, and their classes.

use jiff::Timestamp;
use serde_json::Value;

use super::read::{age, at, flag, is_being_deleted, list, name, shown, text, text_or};
use super::{AGE, NAME, column, wide};
use crate::registry::row::Column;

const VOLUME_CLASS: Column = column("StorageClass", "string", "The class it is of.");
const ATTRIBUTES_CLASS: Column = column("VolumeAttributesClass", "string", "The class of its attributes.");
const ACCESS_MODES: Column = column("Access Modes", "string", "How nodes and pods may mount it.");
const VOLUME_MODE: Column = wide("VolumeMode", "File system or block device.");

pub const CLAIM: &[Column] = &[
    NAME,
    column("Status", "string", "Whether it is bound."),
    column("Volume", "string", "The volume that is bound to it."),
    column("Capacity", "string", "What the volume holds."),
    ACCESS_MODES,
    VOLUME_CLASS,
    ATTRIBUTES_CLASS,
    AGE,
    VOLUME_MODE,
];

pub fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let volume = text(object, &["spec", "volumeName"]);
    // Until a volume is named, what the claim got is not known.
    let (capacity, modes) = if volume.is_empty() {
        Default::default()
    } else {
        (
            quantity(object, &["status", "capacity", "storage"]),
            access_modes(object, &["status", "accessModes"]),
        )
    };
    vec![
        name(object),
        phase(object).into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        storage_class(object).into(),
        unset_if_missing(object, &["spec", "volumeAttributesClassName"]).into(),
        age(object, now),
        unset_if_missing(object, &["spec", "volumeMode"]).into(),
    ]
}

pub const VOLUME: &[Column] = &[
    NAME,
    column("Capacity", "string", "What it holds."),
    ACCESS_MODES,
    column("Reclaim Policy", "string", "What becomes of it when its claim goes."),
    column("Status", "string", "Whether it is bound."),
    column("Claim", "string", "The claim it is bound to."),
    VOLUME_CLASS,
    ATTRIBUTES_CLASS,
    column("Reason", "string", "Why it failed."),
    AGE,
    VOLUME_MODE,
];

pub fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let claim = at(object, &["spec", "claimRef"])
        .map(|claim| format!("{}/{}", text(claim, &["namespace"]), text(claim, &["name"])));
    vec![
        name(object),
        quantity(object, &["spec", "capacity", "storage"]).into(),
        access_modes(object, &["spec", "accessModes"]).into(),
        text(object, &["spec", "persistentVolumeReclaimPolicy"]).into(),
        phase(object).into(),
        claim.unwrap_or_default().into(),
        storage_class(object).into(),
        unset_if_missing(object, &["spec", "volumeAttributesClassName"]).into(),
        text(object, &["status", "reason"]).into(),
        age(object, now),
        unset_if_missing(object, &["spec", "volumeMode"]).into(),
    ]
}

fn phase(object: &Value) -> &str {
    if is_being_deleted(object) {
        "Terminating"
    } else {
        text(object, &["status", "phase"])
    }
}

fn quantity(object: &Value, path: &[&str]) -> String {
    at(object, path).map_or_else(|| "0".into(), shown)
}

fn unset_if_missing<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or("<unset>")
}

/// An old annotation still goes before the field.
fn storage_class(object: &Value) -> &str {
    at(
        object,
        &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"],
    )
    .or_else(|| at(object, &["spec", "storageClassName"]))
    .and_then(Value::as_str)
    .unwrap_or_default()
}

fn access_modes(object: &Value, path: &[&str]) -> String {
    let modes = list(object, path);
    let short: Vec<&str> = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ]
    .into_iter()
    .filter(|(mode, _)| modes.iter().any(|given| given == mode))
    .map(|(_, short)| short)
    .collect();
    short.join(",")
}

pub const CLASS: &[Column] = &[
    NAME,
    column("Provisioner", "string", "Who makes its volumes."),
    column(
        "ReclaimPolicy",
        "string",
        "What becomes of a volume when its claim goes.",
    ),
    column("VolumeBindingMode", "string", "When a volume is made."),
    column("AllowVolumeExpansion", "string", "Whether claims may grow."),
    AGE,
];

pub fn class(object: &Value, now: Timestamp) -> Vec<Value> {
    let is_default = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ]
    .iter()
    .any(|annotation| text(object, &["metadata", "annotations", annotation]) == "true");
    let mark = if is_default { " (default)" } else { "" };
    vec![
        format!("{}{mark}", text(object, &["metadata", "name"])).into(),
        text(object, &["provisioner"]).into(),
        text_or(object, &["reclaimPolicy"], "Delete").into(),
        text_or(object, &["volumeBindingMode"], "Immediate").into(),
        flag(object, &["allowVolumeExpansion"]).into(),
        age(object, now),
    ]
}
