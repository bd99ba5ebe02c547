//! Where a volume comes from: for pods and for PersistentVolumes.

mod projected;

use serde_json::Value;

use self::projected::{check_downward, check_projections};

use super::checks::{Errors, among, dns_label, dns_subdomain};
use super::claim;
use super::metadata::{check_template, invalid};
use super::names;
use super::quantity::Quantity;
use super::reading::{at, given, integer, list, text};
use crate::fault::{FieldError, Path};

const ONE: &str = "may not specify more than 1 volume type";
const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// In the reference's order, in which the first is checked and the others are one too many.
pub(super) const SOURCES_OF_VOLUMES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

const SOURCES_OF_PODS: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Whether a volume of a pod names a source at all.
pub(super) fn has_source(volume: &Value) -> bool {
    SOURCES_OF_PODS.iter().any(|field| given(volume, field).is_some())
}

/// Rules on the volumes of a pod; gives the names that mounts may use. `pod` is the pod's name where it is known.
pub(super) fn check_volumes<'a>(errors: &mut Errors, volumes: &'a [Value], pod: &str, path: &Path) -> Vec<&'a Value> {
    let mut good: Vec<&'a Value> = Vec::new();
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        let name = text(volume, "name");
        let mut found = Vec::new();
        check_sources(&mut found, volume, name, pod, &path);
        if name.is_empty() {
            found.push(FieldError::required(&path.field("name"), ""));
        } else {
            dns_label(&mut found, &path.field("name"), name);
        }
        if good.iter().any(|earlier| text(earlier, "name") == name) {
            found.push(FieldError::duplicate(&path.field("name"), name));
        }
        if found.is_empty() {
            good.push(volume);
        }
        errors.extend(found);
        let claim = text(at(volume, "/persistentVolumeClaim"), "claimName");
        let made =
            |volume: &Value| given(volume, "ephemeral").is_some() && format!("{pod}-{}", text(volume, "name")) == claim;
        if !pod.is_empty() && !claim.is_empty() && volumes.iter().any(made) {
            errors.push(FieldError::invalid(
                &path.field("persistentVolumeClaim").field("claimName"),
                claim,
                "must not reference a PVC that gets created for an ephemeral volume",
            ));
        }
    }
    good
}

fn check_sources(errors: &mut Errors, volume: &Value, name: &str, pod: &str, path: &Path) {
    let mut count = 0;
    for field in SOURCES_OF_PODS {
        let Some(source) = given(volume, field) else {
            continue;
        };
        if count > 0 {
            errors.push(FieldError::forbidden(&path.field(field), ONE));
            continue;
        }
        count += 1;
        check_source(errors, field, source, &path.field(field));
        if *field == "ephemeral" && !pod.is_empty() && !name.is_empty() {
            let claim = format!("{pod}-{name}");
            for sentence in names::dns_subdomain(&claim) {
                errors.push(FieldError::invalid(
                    &path.field("name"),
                    name,
                    format!("PVC name {}: {sentence}", crate::fault::quote(&claim)),
                ));
            }
        }
    }
    if count == 0 {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
}

fn check_source(errors: &mut Errors, field: &str, source: &Value, path: &Path) {
    match field {
        "emptyDir" => {
            let limit = given(source, "sizeLimit").and_then(Quantity::of);
            if limit.is_some_and(Quantity::is_negative) {
                errors.push(FieldError::forbidden(
                    &path.field("sizeLimit"),
                    "SizeLimit field must be a valid resource quantity",
                ));
            }
        }
        "gitRepo" => {
            require(errors, source, "repository", path);
            descending(errors, text(source, "directory"), &path.field("directory"));
        }
        "secret" => check_keys(errors, source, "secretName", path),
        "configMap" => check_keys(errors, source, "name", path),
        "persistentVolumeClaim" => require(errors, source, "claimName", path),
        "downwardAPI" => {
            check_mode(errors, source, "defaultMode", path);
            for file in list(source, "items") {
                check_downward(errors, file, path);
            }
        }
        "projected" => {
            check_mode(errors, source, "defaultMode", path);
            check_projections(errors, list(source, "sources"), path);
        }
        "csi" => {
            check_driver(errors, source, path);
            if let Some(secret) = given(source, "nodePublishSecretRef") {
                let name = text(secret, "name");
                if name.is_empty() {
                    errors.push(FieldError::required(
                        &path.field("nodePublishSecretRef").field("name"),
                        "",
                    ));
                } else {
                    dns_subdomain(errors, &path.field("name"), name);
                }
            }
        }
        "ephemeral" => {
            let path = path.field("volumeClaimTemplate");
            match given(source, "volumeClaimTemplate") {
                None => errors.push(FieldError::required(&path, "")),
                Some(template) => {
                    errors.extend(check_template(at(template, "/metadata"), &path.field("metadata")));
                    claim::check_spec(errors, at(template, "/spec"), &path.field("spec"));
                }
            }
        }
        "image" => {
            require(errors, source, "reference", path);
            among(
                errors,
                &path.field("pullPolicy"),
                source.get("pullPolicy"),
                &["Always", "IfNotPresent", "Never"],
            );
        }
        _ => check_persistent(errors, field, source, path),
    }
}

/// Sources that pods and volumes have in common, and those of volumes alone.
pub(super) fn check_persistent(errors: &mut Errors, field: &str, source: &Value, path: &Path) {
    match field {
        "hostPath" => {
            if text(source, "path").is_empty() {
                errors.push(FieldError::required(&path.field("path"), ""));
                return;
            }
            no_backsteps(errors, text(source, "path"), &path.field("path"));
            among(
                errors,
                &path.field("type"),
                source.get("type"),
                &[
                    "",
                    "BlockDevice",
                    "CharDevice",
                    "Directory",
                    "DirectoryOrCreate",
                    "File",
                    "FileOrCreate",
                    "Socket",
                ],
            );
        }
        "nfs" => {
            require(errors, source, "server", path);
            require(errors, source, "path", path);
            if !text(source, "path").starts_with('/') {
                errors.push(FieldError::invalid(
                    &path.field("path"),
                    text(source, "path"),
                    "must be an absolute path",
                ));
            }
        }
        "local" => {
            require(errors, source, "path", path);
            no_backsteps(errors, text(source, "path"), &path.field("path"));
        }
        "csi" => {
            check_driver(errors, source, path);
            require(errors, source, "volumeHandle", path);
            for reference in [
                "controllerPublishSecretRef",
                "controllerExpandSecretRef",
                "nodePublishSecretRef",
                "nodeExpandSecretRef",
            ] {
                if let Some(secret) = given(source, reference) {
                    check_secret_reference(errors, secret, &path.field(reference));
                }
            }
        }
        "gcePersistentDisk" => require(errors, source, "pdName", path),
        "awsElasticBlockStore" => require(errors, source, "volumeID", path),
        "glusterfs" => {
            require(errors, source, "endpoints", path);
            require(errors, source, "path", path);
        }
        "iscsi" => {
            require(errors, source, "targetPortal", path);
            require(errors, source, "iqn", path);
        }
        "cinder" => require(errors, source, "volumeID", path),
        "rbd" => require(errors, source, "image", path),
        "flexVolume" => require(errors, source, "driver", path),
        _ => {}
    }
}

fn require(errors: &mut Errors, source: &Value, field: &str, path: &Path) {
    if text(source, field).is_empty() {
        errors.push(FieldError::required(&path.field(field), ""));
    }
}

fn check_driver(errors: &mut Errors, source: &Value, path: &Path) {
    let (driver, path) = (text(source, "driver"), path.field("driver"));
    if driver.is_empty() {
        errors.push(FieldError::required(&path, ""));
        return;
    }
    if driver.len() > 63 {
        errors.push(FieldError::too_long(&path, 63));
    }
    invalid(errors, &path, driver, names::dns_subdomain(&driver.to_lowercase()));
}

fn check_secret_reference(errors: &mut Errors, secret: &Value, path: &Path) {
    for (field, rule) in [
        ("name", names::dns_subdomain as fn(&str) -> Vec<String>),
        ("namespace", names::dns_label),
    ] {
        let value = text(secret, field);
        if value.is_empty() {
            errors.push(FieldError::required(&path.field(field), ""));
        } else {
            invalid(errors, &path.field(field), value, rule(value));
        }
    }
}

pub(super) fn no_backsteps(errors: &mut Errors, target: &str, path: &Path) {
    if target.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(path, target, "must not contain '..'"));
    }
}

pub(super) fn descending(errors: &mut Errors, target: &str, path: &Path) {
    if target.starts_with('/') {
        errors.push(FieldError::invalid(path, target, "must be a relative path"));
    }
    no_backsteps(errors, target, path);
}

/// A path below the volume that is not one of the names the node keeps for itself.
fn not_reserved(errors: &mut Errors, target: &str, path: &Path) {
    descending(errors, target, path);
    if target.starts_with("..") && !target.starts_with("../") {
        errors.push(FieldError::invalid(path, target, "must not start with '..'"));
    }
}

fn check_mode(errors: &mut Errors, holder: &Value, field: &str, path: &Path) {
    if let Some(mode) = integer(holder, field).filter(|mode| !(0..=0o777).contains(mode)) {
        errors.push(FieldError::invalid(&path.field(field), mode, MODE));
    }
}

fn check_keys(errors: &mut Errors, source: &Value, name: &str, path: &Path) {
    require(errors, source, name, path);
    check_mode(errors, source, "defaultMode", path);
    for (index, item) in list(source, "items").iter().enumerate() {
        check_item(errors, item, &path.field("items").index(index));
    }
}

fn check_item(errors: &mut Errors, item: &Value, path: &Path) {
    require(errors, item, "key", path);
    require(errors, item, "path", path);
    not_reserved(errors, text(item, "path"), &path.field("path"));
    check_mode(errors, item, "mode", path);
}
