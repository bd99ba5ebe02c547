//! What is allowed and probably not meant.

use serde_json::Value;

use crate::fault::{Path, quote};
use crate::kinds::names;
use crate::kinds::quantity::Quantity;
use crate::kinds::reading::{at, entries, given, integer, list, text, text_at};

/// Labels of nodes that have new names, since when, and the new name.
const OLD_LABELS: [(&str, &str, &str); 5] = [
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "v1.17",
        "topology.kubernetes.io/region",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "v1.17",
        "topology.kubernetes.io/zone",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "v1.17",
        "node.kubernetes.io/instance-type",
    ),
];

pub(super) fn of_pod(pod: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    let wrong = names::dns_label(text_at(pod, "/metadata/name"));
    if old.is_none() && !wrong.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is \
             recommended: [{}]",
            wrong.join(" ")
        ));
    }
    warnings.extend(of_spec(at(pod, "/spec"), &Path::new("spec")));
    warnings
}

pub(super) fn of_spec(spec: &Value, path: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    for (key, since, name) in OLD_LABELS {
        if entries(spec, "nodeSelector").any(|(given, _)| given == key) {
            let path = path.field("nodeSelector").key(key);
            warnings.push(format!("{path}: deprecated since {since}; use {} instead", quote(name)));
        }
    }
    twice(&mut warnings, spec, "hostAliases", "ip", path);
    twice(&mut warnings, spec, "imagePullSecrets", "name", path);
    for (index, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() {
            let path = path.field("imagePullSecrets").index(index).field("name");
            warnings.push(format!("{path}: invalid empty name \"\""));
        }
    }
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        if given(volume, "gitRepo").is_some() {
            let path = path.field("volumes").index(index).field("gitRepo");
            warnings.push(format!(
                "{path}: deprecated in v1.11, and disabled by default in v1.33+"
            ));
        }
    }
    for field in ["initContainers", "containers"] {
        for (index, container) in list(spec, field).iter().enumerate() {
            of_container(&mut warnings, container, &path.field(field).index(index));
        }
    }
    of_ports(&mut warnings, spec, path);
    if integer(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        warnings.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            path.field("terminationGracePeriodSeconds")
        ));
    }
    warnings
}

fn twice(warnings: &mut Vec<String>, spec: &Value, field: &str, key: &str, path: &Path) {
    let items = list(spec, field);
    for (index, item) in items.iter().enumerate() {
        let name = text(item, key);
        if !name.is_empty() && items.iter().take(index).any(|earlier| text(earlier, key) == name) {
            let path = path.field(field).index(index).field(key);
            warnings.push(format!("{path}: duplicate {key} {}", quote(name)));
        }
    }
}

fn of_container(warnings: &mut Vec<String>, container: &Value, path: &Path) {
    let resources = at(container, "/resources");
    for field in ["limits", "requests"] {
        for (name, value) in entries(resources, field) {
            let bytes = name == "memory" || name == "ephemeral-storage";
            if bytes && !Quantity::of(value).is_none_or(Quantity::is_whole) {
                let path = path.field("resources").field(field).key(name);
                warnings.push(format!(
                    "{path}: fractional byte value {value} is invalid, must be an integer"
                ));
            }
        }
    }
    let variables = list(container, "env");
    for (index, variable) in variables.iter().enumerate() {
        let name = text(variable, "name");
        let hidden = variables
            .iter()
            .take(index)
            .any(|earlier| text(earlier, "name") == name);
        // `$(NAME)` in a value may well mean the one before.
        let reference = format!("$({name})");
        let value = text(variable, "value");
        let refers = value.contains(&reference) && value != reference && given(variable, "valueFrom").is_none();
        if hidden && !refers {
            warnings.push(format!(
                "{}: hides previous definition of {}, which may be dropped when using apply",
                path.field("env").index(index),
                quote(name)
            ));
        }
    }
}

/// Ports that more than one container, or one container twice, says it has.
fn of_ports(warnings: &mut Vec<String>, spec: &Value, path: &Path) {
    let mut seen: Vec<(Value, Path)> = Vec::new();
    for field in ["initContainers", "containers"] {
        for (index, container) in list(spec, field).iter().enumerate() {
            for (port_index, port) in list(container, "ports").iter().enumerate() {
                let path = path.field(field).index(index).field("ports").index(port_index);
                let mut key = port.clone();
                if let Some(map) = key.as_object_mut() {
                    map.remove("name");
                }
                for (_, first) in seen.iter().filter(|(earlier, _)| *earlier == key) {
                    warnings.push(format!("{path}: duplicate port definition with {first}"));
                }
                seen.push((key, path));
            }
        }
    }
}
