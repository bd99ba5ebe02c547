//! What the reference fills in: in every pod spec, and in pods alone.

use serde_json::{Map, Value, json};

use crate::kinds::claim;
use crate::kinds::quantity::Quantity;
use crate::kinds::reading::{default_if_empty, default_to, given, integer, list_mut, object_mut, text, truth};
use crate::kinds::volume_source::has_source;

/// A file's permissions, unless the volume says otherwise.
const MODE: i64 = 0o644;
const TOKEN_SECONDS: i64 = 3600;
const GRACE_SECONDS: i64 = 30;

/// A spec, of a pod or in a template.
pub(in crate::kinds) fn default_spec(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    default_account(spec);
    for volume in list_mut(spec, "volumes") {
        default_volume(volume);
    }
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        for container in list_mut(spec, field) {
            default_container(container);
        }
    }
    if let Some(resources) = spec.get_mut("resources") {
        round_resources(resources);
    }
    if let Some(Value::Object(overhead)) = spec.get_mut("overhead") {
        round(overhead);
    }
    default_if_empty(spec, "dnsPolicy", "ClusterFirst");
    default_if_empty(spec, "restartPolicy", "Always");
    default_to(spec, "securityContext", Map::new());
    default_to(spec, "terminationGracePeriodSeconds", GRACE_SECONDS);
    default_if_empty(spec, "schedulerName", "default-scheduler");
}

/// The old name of the account's field says what the new one says.
pub(in crate::kinds) fn default_account(spec: &mut Value) {
    let (new, old) = (
        text(spec, "serviceAccountName").to_owned(),
        text(spec, "serviceAccount").to_owned(),
    );
    let name = if new.is_empty() { old } else { new };
    if let Some(map) = spec.as_object_mut().filter(|_| !name.is_empty()) {
        map.insert("serviceAccountName".to_owned(), name.clone().into());
        map.insert("serviceAccount".to_owned(), name.into());
    }
}

/// What pods have and templates have not.
pub(super) fn default_pod(pod: &mut Value) {
    if let Some(status) = pod.get_mut("status") {
        default_addresses(status);
    }
    let Some(spec) = object_mut(pod, "spec") else {
        return;
    };
    default_spec(spec);
    let host_network = truth(spec, "hostNetwork") == Some(true);
    for field in ["containers", "initContainers"] {
        for container in list_mut(spec, field) {
            default_requests(container);
            if host_network {
                for port in list_mut(container, "ports") {
                    let number = integer(port, "containerPort").unwrap_or(0);
                    if number != 0 {
                        default_if_empty(port, "hostPort", number);
                    }
                }
            }
        }
    }
    default_to(spec, "enableServiceLinks", true);
}

/// The first of the addresses has a field of its own, which says what the list says.
fn default_addresses(status: &mut Value) {
    let first = text(status, "podIP").to_owned();
    let listed = status
        .pointer("/podIPs/0/ip")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if let Some(map) = status.as_object_mut() {
        if first.is_empty() && !listed.is_empty() {
            map.insert("podIP".to_owned(), listed.into());
        } else if !first.is_empty() && first != listed {
            map.insert("podIPs".to_owned(), json!([{"ip": first}]));
        }
    }
}

/// Who gives a limit asks for as much, unless told otherwise.
fn default_requests(container: &mut Value) {
    let Some(Value::Object(limits)) = container.pointer("/resources/limits").cloned() else {
        return;
    };
    if let Some(resources) = object_mut(container, "resources")
        && let Some(Value::Object(requests)) = object_mut(resources, "requests")
    {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

fn default_container(container: &mut Value) {
    let policy = if pulls_always(text(container, "image")) {
        "Always"
    } else {
        "IfNotPresent"
    };
    default_if_empty(container, "imagePullPolicy", policy);
    default_if_empty(container, "terminationMessagePath", "/dev/termination-log");
    default_if_empty(container, "terminationMessagePolicy", "File");
    for port in list_mut(container, "ports") {
        default_if_empty(port, "protocol", "TCP");
    }
    for variable in list_mut(container, "env") {
        if let Some(field) = variable
            .pointer_mut("/valueFrom/fieldRef")
            .filter(|field| field.is_object())
        {
            default_if_empty(field, "apiVersion", "v1");
        }
    }
    if let Some(resources) = container.get_mut("resources") {
        round_resources(resources);
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).filter(|probe| probe.is_object()) {
            for (field, number) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                default_if_empty(probe, field, number);
            }
            default_http(probe);
            if let Some(grpc) = probe.get_mut("grpc").filter(|grpc| grpc.is_object()) {
                default_to(grpc, "service", "");
            }
        }
    }
    // A feature that the reference has off; it drops the field.
    if let Some(Value::Object(lifecycle)) = container.get_mut("lifecycle") {
        lifecycle.remove("stopSignal");
    }
    for hook in ["postStart", "preStop"] {
        if let Some(hook) = container
            .get_mut("lifecycle")
            .and_then(|lifecycle| lifecycle.get_mut(hook))
        {
            default_http(hook);
        }
    }
}

fn default_http(handler: &mut Value) {
    if let Some(http) = handler.get_mut("httpGet").filter(|http| http.is_object()) {
        default_if_empty(http, "path", "/");
        default_if_empty(http, "scheme", "HTTP");
    }
}

/// Nothing is finer than a thousandth.
fn round_resources(resources: &mut Value) {
    for field in ["limits", "requests"] {
        if let Some(Value::Object(amounts)) = resources.get_mut(field) {
            round(amounts);
        }
    }
}

fn round(amounts: &mut Map<String, Value>) {
    for value in amounts.values_mut() {
        if let Some(amount) = Quantity::of(value).filter(|amount| !amount.is_milli()) {
            *value = amount.rounded_to_milli().to_string().into();
        }
    }
}

/// Whether an image's tag is `latest`, by name or by having neither tag nor digest.
fn pulls_always(image: &str) -> bool {
    let (name, digest) = image
        .split_once('@')
        .map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last_slash = name.rfind('/').map_or(0, |at| at + 1);
    let (repository, tag) = match name.get(last_slash..).unwrap_or_default().rfind(':') {
        Some(at) => {
            let at = last_slash + at;
            (name.get(..at).unwrap_or_default(), name.get(at + 1..))
        }
        None => (name, None),
    };
    // What is no reference at all has no tag. A host, which comes first, may have capitals; the path may not.
    let path = match repository.split_once('/') {
        Some((host, path))
            if host.contains(['.', ':']) || host == "localhost" || host.chars().any(char::is_uppercase) =>
        {
            path
        }
        _ => repository,
    };
    let fits = |part: &str| {
        let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        part.as_bytes().first().is_some_and(plain)
            && part.as_bytes().last().is_some_and(plain)
            && part.bytes().all(|byte| plain(&byte) || b"._-".contains(&byte))
    };
    if !path.split('/').all(fits) {
        return false;
    }
    match tag {
        Some(tag) => tag == "latest",
        None => digest.is_none(),
    }
}

fn default_volume(volume: &mut Value) {
    if !has_source(volume) {
        default_to(volume, "emptyDir", Map::new());
        return;
    }
    for field in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(field).filter(|source| source.is_object()) {
            default_to(source, "defaultMode", MODE);
        }
    }
    if let Some(path) = volume.get_mut("hostPath").filter(|path| path.is_object()) {
        default_to(path, "type", "");
    }
    if let Some(downward) = volume.get_mut("downwardAPI") {
        default_files(downward);
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in list_mut(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken").filter(|token| token.is_object()) {
                default_to(token, "expirationSeconds", TOKEN_SECONDS);
            }
            if let Some(downward) = source.get_mut("downwardAPI") {
                default_files(downward);
            }
        }
    }
    if let Some(spec) = volume
        .pointer_mut("/ephemeral/volumeClaimTemplate/spec")
        .filter(|spec| spec.is_object())
    {
        claim::default_spec(spec);
    }
    if given(volume, "image").is_some()
        && let Some(image) = volume.get_mut("image")
    {
        let policy = if pulls_always(text(image, "reference")) {
            "Always"
        } else {
            "IfNotPresent"
        };
        default_if_empty(image, "pullPolicy", policy);
    }
    for (field, defaults) in [
        ("iscsi", &[("iscsiInterface", "default")][..]),
        (
            "rbd",
            &[("pool", "rbd"), ("user", "admin"), ("keyring", "/etc/ceph/keyring")],
        ),
        (
            "azureDisk",
            &[("cachingMode", "ReadWrite"), ("fsType", "ext4"), ("kind", "Shared")],
        ),
        ("scaleIO", &[("storageMode", "ThinProvisioned"), ("fsType", "xfs")]),
    ] {
        if let Some(source) = volume.get_mut(field).filter(|source| source.is_object()) {
            for &(name, value) in defaults {
                default_if_empty(source, name, value);
            }
        }
    }
}

fn default_files(downward: &mut Value) {
    for file in list_mut(downward, "items") {
        if let Some(field) = file.get_mut("fieldRef").filter(|field| field.is_object()) {
            default_if_empty(field, "apiVersion", "v1");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o22_the_pull_policy_follows_the_tag() {
        for image in [
            "nginx",
            "nginx:latest",
            "localhost:5000/a/b",
            "Registry.io/a",
            "a.b:80/c:latest",
        ] {
            assert!(pulls_always(image), "{image}");
        }
        for image in [
            "nginx:1",
            "a@sha256:00",
            "a:5000/b:v1",
            "Nginx",
            "",
            "a//b",
            "x:latest@sha256:1x/",
        ] {
            assert_eq!(pulls_always(image), image.starts_with("x:latest"), "{image}");
        }
    }
}
