//! Environment variables of containers, and fields of pods that they and volumes refer to.

use serde_json::Value;

use crate::fault::{FieldError, Path};
use crate::kinds::checks::{Errors, dns_label, dns_subdomain, qualified};
use crate::kinds::metadata::{check_name, invalid};
use crate::kinds::names;
use crate::kinds::quantity::Quantity;
use crate::kinds::reading::{at, given, list, text};
use crate::kinds::volume_source::no_backsteps;
use crate::registry::row::NameRule;

const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SIZES: &[&str] = &[
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

pub(super) fn check_environment(errors: &mut Errors, container: &Value, path: &Path) {
    for (index, variable) in list(container, "env").iter().enumerate() {
        let path = path.field("env").index(index);
        let name = text(variable, "name");
        if name.is_empty() {
            errors.push(FieldError::required(&path.field("name"), ""));
        } else {
            invalid(errors, &path.field("name"), name, names::environment_name(name));
        }
        if let Some(source) = given(variable, "valueFrom") {
            check_source(errors, source, text(variable, "value"), &path.field("valueFrom"));
        }
    }
    let list_path = path.field("envFrom");
    for (index, source) in list(container, "envFrom").iter().enumerate() {
        let path = list_path.index(index);
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            invalid(errors, &path.field("prefix"), prefix, names::environment_name(prefix));
        }
        let mut count = 0;
        for field in ["configMapRef", "secretRef"] {
            if let Some(reference) = given(source, field) {
                count += 1;
                let (path, name) = (path.field(field).field("name"), text(reference, "name"));
                if name.is_empty() {
                    errors.push(FieldError::required(&path, ""));
                } else {
                    invalid(errors, &path, name, check_name(name, NameRule::Subdomain, true));
                }
            }
        }
        let words = match count {
            0 => "must specify one of: `configMapRef` or `secretRef`",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        errors.push(FieldError::invalid(&list_path, "", words));
    }
}

fn check_source(errors: &mut Errors, source: &Value, value: &str, path: &Path) {
    let mut count = 0;
    if let Some(field) = given(source, "fieldRef") {
        count += 1;
        check_field_ref(errors, field, FIELDS, &path.field("fieldRef"));
    }
    if let Some(resource) = given(source, "resourceFieldRef") {
        count += 1;
        check_resource_ref(errors, resource, false, &path.field("resourceFieldRef"));
    }
    for field in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(reference) = given(source, field) {
            count += 1;
            let path = path.field(field);
            dns_subdomain(errors, &path.field("name"), text(reference, "name"));
            let key = text(reference, "key");
            if key.is_empty() {
                errors.push(FieldError::required(&path.field("key"), ""));
            } else {
                invalid(errors, &path.field("key"), key, names::config_key(key));
            }
        }
    }
    if let Some(file) = given(source, "fileKeyRef") {
        count += 1;
        check_file_ref(errors, file, &path.field("fileKeyRef"));
    }
    let words = if count == 0 {
        "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
    } else if !value.is_empty() {
        "may not be specified when `value` is not empty"
    } else if count > 1 {
        "may not have more than one field specified at a time"
    } else {
        return;
    };
    errors.push(FieldError::invalid(path, "", words));
}

fn check_file_ref(errors: &mut Errors, file: &Value, path: &Path) {
    for field in ["key", "volumeName", "path"] {
        let (path, value) = (path.field(field), text(file, field));
        if value.is_empty() {
            errors.push(FieldError::required(&path, ""));
            continue;
        }
        match field {
            "key" => invalid(errors, &path, value, names::environment_name(value)),
            "volumeName" => dns_label(errors, &path, value),
            _ => no_backsteps(errors, value, &path),
        }
    }
}

/// A field of the pod; `known` are those that may be asked for here.
pub(in crate::kinds) fn check_field_ref(errors: &mut Errors, field: &Value, known: &[&str], path: &Path) {
    let (version, target) = (text(field, "apiVersion"), text(field, "fieldPath"));
    for (name, value) in [("apiVersion", version), ("fieldPath", target)] {
        if value.is_empty() {
            errors.push(FieldError::required(&path.field(name), ""));
            return;
        }
    }
    let subscript = target.strip_suffix("']").and_then(|start| start.split_once("['"));
    let name = subscript.map_or(target, |(name, _)| name);
    let convertible = matches!(
        name,
        "metadata.annotations"
            | "metadata.labels"
            | "metadata.name"
            | "metadata.namespace"
            | "metadata.uid"
            | "spec.nodeName"
            | "spec.restartPolicy"
            | "spec.serviceAccountName"
            | "spec.schedulerName"
            | "status.phase"
            | "status.hostIP"
            | "status.hostIPs"
            | "status.podIP"
            | "status.podIPs"
            | "spec.host"
    );
    if version != "v1" || !convertible || (subscript.is_some() && !name.starts_with("metadata.")) {
        let words = if version != "v1" {
            format!("unsupported pod version: {version}")
        } else if subscript.is_some() && convertible {
            format!("field label does not support subscript: {target}")
        } else {
            format!("field label not supported: {target}")
        };
        errors.push(FieldError::invalid(
            &path.field("fieldPath"),
            target,
            format!("error converting fieldPath: {words}"),
        ));
        return;
    }
    match (name, subscript) {
        ("metadata.annotations", Some((_, key))) => qualified(errors, path, &key.to_lowercase()),
        ("metadata.labels", Some((_, key))) => qualified(errors, path, key),
        (_, Some(_)) => errors.push(FieldError::invalid(path, name, "does not support subscript")),
        (_, None) if !known.contains(&name) => {
            errors.push(FieldError::not_supported(&path.field("fieldPath"), name, known));
        }
        _ => {}
    }
}

/// A container's limit or request.
pub(in crate::kinds) fn check_resource_ref(errors: &mut Errors, reference: &Value, of_volume: bool, path: &Path) {
    let resource = text(reference, "resource");
    let huge = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if of_volume && text(reference, "containerName").is_empty() {
        errors.push(FieldError::required(&path.field("containerName"), ""));
    } else if resource.is_empty() {
        errors.push(FieldError::required(&path.field("resource"), ""));
    } else if !RESOURCES.contains(&resource) && !huge {
        errors.push(FieldError::not_supported(&path.field("resource"), resource, RESOURCES));
    }
    check_divisor(
        errors,
        resource,
        huge,
        at(reference, "/divisor"),
        &path.field("divisor"),
    );
}

fn check_divisor(errors: &mut Errors, resource: &str, huge: bool, divisor: &Value, path: &Path) {
    let Some(amount) = Quantity::of(divisor).filter(|amount| !amount.is_zero()) else {
        return;
    };
    let amount = amount.to_string();
    let (fits, words) = match resource {
        "limits.cpu" | "requests.cpu" => (
            amount == "1" || amount == "1m",
            "only divisor's values 1m and 1 are supported with the cpu resource".to_owned(),
        ),
        _ => {
            let name = match resource {
                "limits.memory" | "requests.memory" => "memory",
                "limits.ephemeral-storage" | "requests.ephemeral-storage" => "local ephemeral storage",
                _ if huge => "hugepages",
                _ => return,
            };
            let words = format!(
                "only divisor's values {} are supported with the {name} resource",
                SIZES.join(", ")
            );
            (SIZES.contains(&amount.as_str()), words)
        }
    };
    if !fits {
        errors.push(FieldError::invalid(path, resource, words));
    }
}
