//! What is allowed and probably not meant.

use serde_json::Value;

use crate::fault::{Path, quote};
use crate::kinds::reading::{given, integer, list, text};

pub(super) fn of_spec(spec: &Value, path: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() {
            let path = path.field("imagePullSecrets").index(index).field("name");
            warnings.push(format!("{path}: invalid empty name \"\""));
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

fn of_container(warnings: &mut Vec<String>, container: &Value, path: &Path) {
    let variables = list(container, "env");
    for (index, variable) in variables.iter().enumerate() {
        let name = text(variable, "name");
        let hidden = variables
            .iter()
            .take(index)
            .any(|earlier| text(earlier, "name") == name);
        // `$(NAME)` in a value may well mean the one before.
        let refers = text(variable, "value").contains(&format!("$({name})"));
        if hidden && !refers {
            warnings.push(format!(
                "{}: hides previous definition of {}, which may be dropped when using apply",
                path.field("env").index(index),
                quote(name)
            ));
        }
    }
}

fn of_ports(warnings: &mut Vec<String>, spec: &Value, path: &Path) {
    let mut seen: Vec<(i64, &str, Path)> = Vec::new();
    for (index, container) in list(spec, "containers").iter().enumerate() {
        for (port_index, port) in list(container, "ports").iter().enumerate() {
            if given(port, "hostPort").is_some() {
                continue;
            }
            let path = path.field("containers").index(index).field("ports").index(port_index);
            let (number, protocol) = (integer(port, "containerPort").unwrap_or(0), text(port, "protocol"));
            let first = seen.iter().find(|(seen, kind, _)| *seen == number && *kind == protocol);
            match first {
                Some((_, _, first)) => warnings.push(format!("{path}: duplicate port definition with {first}")),
                None => seen.push((number, protocol, path)),
            }
        }
    }
}
