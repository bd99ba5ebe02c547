//! Where containers see volumes: mounts and block devices.

use serde_json::Value;

use crate::fault::{FieldError, Path, Wrong};
use crate::kinds::checks::{Errors, among};
use crate::kinds::reading::{at, given, list, text, truth};
use crate::kinds::volume_source::descending;

/// `volumes` are the pod's volumes that are well.
pub(super) fn check_mounts(errors: &mut Errors, container: &Value, volumes: &[&Value], path: &Path) {
    let (mounts, devices) = (list(container, "volumeMounts"), list(container, "volumeDevices"));
    let list_path = path.field("volumeMounts");
    for (index, mount) in mounts.iter().enumerate() {
        let path = list_path.index(index);
        let (name, target) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.push(FieldError::required(&path.field("name"), ""));
        }
        if !volumes.iter().any(|volume| text(volume, "name") == name) {
            errors.push(FieldError::new(Wrong::NotFound, &path.field("name"), name, ""));
        }
        if target.is_empty() {
            errors.push(FieldError::required(&path.field("mountPath"), ""));
        }
        if mounts
            .iter()
            .take(index)
            .any(|earlier| text(earlier, "mountPath") == target)
        {
            errors.push(FieldError::invalid(&path.field("mountPath"), target, "must be unique"));
        }
        if devices.iter().any(|device| text(device, "name") == name) {
            errors.push(FieldError::invalid(
                &path.field("name"),
                name,
                "must not already exist in volumeDevices",
            ));
        }
        if devices.iter().any(|device| text(device, "devicePath") == target) {
            errors.push(FieldError::invalid(
                &path.field("mountPath"),
                target,
                "must not already exist as a path in volumeDevices",
            ));
        }
        check_sub_paths(errors, mount, &path, &list_path);
        check_propagation(errors, mount, container, &list_path);
    }
    check_devices(errors, devices, mounts, volumes, &path.field("volumeDevices"));
}

/// The reference leaves out the index in some of these paths.
fn check_sub_paths(errors: &mut Errors, mount: &Value, path: &Path, list_path: &Path) {
    let (sub, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    if !sub.is_empty() {
        descending(errors, sub, &list_path.field("subPath"));
    }
    if !expression.is_empty() {
        if !sub.is_empty() {
            errors.push(FieldError::invalid(
                &path.field("subPathExpr"),
                expression,
                "subPathExpr and subPath are mutually exclusive",
            ));
        }
        descending(errors, expression, &list_path.field("subPathExpr"));
    }
}

fn check_propagation(errors: &mut Errors, mount: &Value, container: &Value, list_path: &Path) {
    let path = list_path.field("mountPropagation");
    among(
        errors,
        &path,
        mount.get("mountPropagation"),
        &["Bidirectional", "HostToContainer", "None"],
    );
    let mode = text(mount, "mountPropagation");
    let privileged = truth(at(container, "/securityContext"), "privileged") == Some(true);
    if mode == "Bidirectional" && !privileged {
        errors.push(FieldError::forbidden(
            &path,
            "Bidirectional mount propagation is available only to privileged containers",
        ));
    }
    let path = list_path.field("recursiveReadOnly");
    match text(mount, "recursiveReadOnly") {
        "" | "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if truth(mount, "readOnly") != Some(true) {
                errors.push(FieldError::forbidden(
                    &path,
                    "may only be specified when readOnly is true",
                ));
            }
            if !matches!(mode, "" | "None") {
                errors.push(FieldError::forbidden(
                    &path,
                    "may only be specified when mountPropagation is None or not specified",
                ));
            }
        }
        other => errors.push(FieldError::not_supported(
            &path,
            other,
            &["Disabled", "Enabled", "IfPossible"],
        )),
    }
}

fn check_devices(errors: &mut Errors, devices: &[Value], mounts: &[Value], volumes: &[&Value], path: &Path) {
    for (index, device) in devices.iter().enumerate() {
        let path = path.index(index);
        let (name, target) = (text(device, "name"), text(device, "devicePath"));
        let earlier = || devices.iter().take(index);
        if name.is_empty() {
            errors.push(FieldError::required(&path.field("name"), ""));
        }
        if !name.is_empty() && earlier().any(|device| text(device, "name") == name) {
            errors.push(FieldError::invalid(&path.field("name"), name, "must be unique"));
        }
        match volumes.iter().find(|volume| text(volume, "name") == name) {
            Some(volume)
                if given(volume, "persistentVolumeClaim").is_none() && given(volume, "ephemeral").is_none() =>
            {
                errors.push(FieldError::invalid(
                    &path.field("name"),
                    name,
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                ));
            }
            Some(_) => {}
            None => errors.push(FieldError::new(Wrong::NotFound, &path.field("name"), name, "")),
        }
        if target.is_empty() {
            errors.push(FieldError::required(&path.field("devicePath"), ""));
        }
        if earlier().any(|device| text(device, "devicePath") == target) {
            errors.push(FieldError::invalid(&path.field("devicePath"), target, "must be unique"));
        }
        if target.split('/').any(|part| part == "..") {
            errors.push(FieldError::invalid(
                &path.field("devicePath"),
                target,
                "can not contain backsteps ('..')",
            ));
        }
        if mounts.iter().any(|mount| text(mount, "name") == name) {
            errors.push(FieldError::invalid(
                &path.field("name"),
                name,
                "must not already exist in volumeMounts",
            ));
        }
        if mounts.iter().any(|mount| text(mount, "mountPath") == target) {
            errors.push(FieldError::invalid(
                &path.field("devicePath"),
                target,
                "must not already exist as a path in volumeMounts",
            ));
        }
    }
}
