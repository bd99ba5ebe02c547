//! PersistentVolume.

use serde_json::{Value, json};

use super::checks::{Errors, among, dns_subdomain, immutable};
use super::claim::{VOLUME_MODES, check_access_modes};
use super::difference;
use super::node_selector::check_node_selector;
use super::quantity::Quantity;
use super::reading::{at, default_if_empty, default_to, entries, given, list, object_mut, same, text};
use super::volume_source::{SOURCES_OF_VOLUMES, check_persistent};
use crate::fault::{FieldError, Path, Wrong};
use crate::registry::row::BuiltIn;

const RECYCLE: &str = "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the \
    recommended approach is to use dynamic provisioning.";

pub static RULES: BuiltIn = BuiltIn {
    default,
    on_create,
    check,
    check_update,
    warn: |volume, _| {
        let recycled = text(at(volume, "/spec"), "persistentVolumeReclaimPolicy") == "Recycle";
        recycled.then(|| RECYCLE.to_owned()).into_iter().collect()
    },
    has_generation: false,
    ..BuiltIn::PLAIN
};

/// A volume was stamped before: its time is the phase's time.
fn on_create(volume: &mut Value) {
    let status = match volume.pointer("/metadata/creationTimestamp") {
        Some(now) => json!({"phase": "Pending", "lastPhaseTransitionTime": now}),
        None => json!({"phase": "Pending"}),
    };
    if let Some(map) = volume.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
}

fn default(volume: &mut Value) {
    if let Some(status) = object_mut(volume, "status") {
        default_if_empty(status, "phase", "Pending");
    }
    if let Some(spec) = object_mut(volume, "spec") {
        default_if_empty(spec, "persistentVolumeReclaimPolicy", "Retain");
        default_to(spec, "volumeMode", "Filesystem");
        if let Some(path) = spec.get_mut("hostPath").filter(|path| path.is_object()) {
            default_to(path, "type", "");
        }
        for (field, kind) in [("rbd", "ext4"), ("iscsi", ""), ("scaleIO", "xfs")] {
            if !kind.is_empty()
                && let Some(source) = spec.get_mut(field).filter(|source| source.is_object())
            {
                default_if_empty(source, "fsType", kind);
            }
        }
    }
}

fn check(volume: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (spec, path) = (at(volume, "/spec"), Path::new("spec"));
    if list(spec, "accessModes").is_empty() {
        errors.push(FieldError::required(&path.field("accessModes"), ""));
    }
    check_access_modes(&mut errors, spec, &path);
    check_capacity(&mut errors, spec, &path.field("capacity"));
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        among(
            &mut errors,
            &path.field("persistentVolumeReclaimPolicy"),
            spec.get("persistentVolumeReclaimPolicy"),
            &["Delete", "Recycle", "Retain"],
        );
    }
    let affinity = at(spec, "/nodeAffinity/required");
    if let Some(affinity_given) = given(spec, "nodeAffinity") {
        let path = path.field("nodeAffinity").field("required");
        if given(affinity_given, "required").is_some() {
            check_node_selector(&mut errors, affinity, &path);
        } else {
            errors.push(FieldError::required(&path, "must specify required node constraints"));
        }
    }
    check_sources(&mut errors, spec, !affinity.is_null(), &path);
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        dns_subdomain(&mut errors, &path.field("storageClassName"), class);
    }
    among(
        &mut errors,
        &path.field("volumeMode"),
        spec.get("volumeMode"),
        VOLUME_MODES,
    );
    if given(spec, "volumeAttributesClassName").is_some() {
        let (path, class) = (
            path.field("volumeAttributesClassName"),
            text(spec, "volumeAttributesClassName"),
        );
        if class.is_empty() {
            errors.push(FieldError::required(&path, "an empty string is disallowed"));
        } else {
            dns_subdomain(&mut errors, &path, class);
        }
        if given(spec, "csi").is_none() {
            errors.push(FieldError::required(
                &Path::new("spec.csi"),
                "has to be specified when using volumeAttributesClassName",
            ));
        }
    }
    errors
}

fn check_capacity(errors: &mut Errors, spec: &Value, path: &Path) {
    let capacity = at(spec, "/capacity");
    let count = entries(spec, "capacity").count();
    if count == 0 {
        errors.push(FieldError::required(path, ""));
    }
    if count > 1 || capacity.get("storage").is_none() {
        errors.push(FieldError::new(
            Wrong::NotSupported,
            path,
            capacity.clone(),
            "supported values: \"storage\"",
        ));
    }
    for (name, value) in entries(spec, "capacity") {
        let path = path.key(name);
        let Some(amount) = Quantity::of(value) else {
            continue;
        };
        if amount.is_negative() {
            let units = i64::try_from(amount.units()).unwrap_or(i64::MIN);
            errors.push(FieldError::invalid(&path, units, "must be a valid resource quantity"));
        }
        if amount <= Quantity::ZERO {
            errors.push(FieldError::invalid(&path, value.clone(), "must be greater than zero"));
        }
    }
}

fn check_sources(errors: &mut Errors, spec: &Value, tied_to_nodes: bool, path: &Path) {
    let mut found = false;
    for field in SOURCES_OF_VOLUMES {
        let Some(source) = given(spec, field) else {
            continue;
        };
        if found && *field != "flexVolume" {
            errors.push(FieldError::forbidden(
                &path.field(field),
                "may not specify more than 1 volume type",
            ));
            continue;
        }
        found = true;
        check_persistent(errors, field, source, &path.field(field));
        if *field == "local" && !tied_to_nodes {
            errors.push(FieldError::required(
                &path.field("nodeAffinity"),
                "Local volume requires node affinity",
            ));
        }
    }
    if !found {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
}

fn check_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let sources = |volume: &Value| -> Value {
        let spec = at(volume, "/spec");
        SOURCES_OF_VOLUMES
            .iter()
            .filter_map(|field| Some(((*field).to_owned(), spec.get(field)?.clone())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let (mut now, before) = (sources(new), sources(old));
    if before.pointer("/csi/controllerExpandSecretRef").is_none()
        && let Some(Value::Object(csi)) = now.get_mut("csi")
    {
        csi.remove("controllerExpandSecretRef");
    }
    if !same(&now, &before) {
        errors.push(FieldError::forbidden(
            &Path::new("spec.persistentvolumesource"),
            format!(
                "spec.persistentvolumesource is immutable after creation\n{}",
                difference::of(&before, &now)
            ),
        ));
    }
    immutable(
        &mut errors,
        &Path::new("volumeMode"),
        at(new, "/spec/volumeMode"),
        at(old, "/spec/volumeMode"),
    );
    let class = |volume| at(volume, "/spec/volumeAttributesClassName");
    if class(new).is_null() && !class(old).is_null() {
        errors.push(FieldError::forbidden(
            &Path::new("spec.volumeAttributesClassName"),
            "update from non-nil value to nil is forbidden",
        ));
    }
    errors
}
