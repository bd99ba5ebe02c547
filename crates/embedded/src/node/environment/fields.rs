//! What fieldRef and resourceFieldRef name: parts of the pod, of its node and of its containers' resources, as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};

use super::{ConfigError, Facts};
use crate::kinds::quantity::Quantity;

/// Limits that a container without one takes from its node.
const FROM_THE_NODE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// A field of the pod as a variable or a file has it.
///
/// # Errors
/// No such field can be asked for.
pub fn field(pod: &Pod, facts: &Facts, path: &str) -> Result<String, ConfigError> {
    let spec = pod.spec.as_ref();
    let text = match path {
        "metadata.name" => pod.metadata.name.clone().unwrap_or_default(),
        "metadata.namespace" => pod.metadata.namespace.clone().unwrap_or_default(),
        "metadata.uid" => pod.metadata.uid.clone().unwrap_or_default(),
        "metadata.labels" => lines(pod.metadata.labels.as_ref()),
        "metadata.annotations" => lines(pod.metadata.annotations.as_ref()),
        "spec.nodeName" => spec
            .and_then(|spec| spec.node_name.clone())
            .unwrap_or_else(|| facts.node_name.clone()),
        "spec.serviceAccountName" => spec
            .and_then(|spec| spec.service_account_name.clone())
            .unwrap_or_default(),
        "status.hostIP" => facts.host_ips.first().cloned().unwrap_or_default(),
        "status.hostIPs" => facts.host_ips.join(","),
        "status.podIP" => facts.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => facts.pod_ips.join(","),
        other => return entry(pod, other),
    };
    Ok(text)
}

/// `metadata.labels['x']`, `metadata.annotations['x']`.
fn entry(pod: &Pod, path: &str) -> Result<String, ConfigError> {
    let unknown = || ConfigError::UnknownField(path.to_owned());
    let (map, key) = path
        .strip_suffix("']")
        .and_then(|path| path.split_once("['"))
        .ok_or_else(unknown)?;
    let map = match map {
        "metadata.labels" => &pod.metadata.labels,
        "metadata.annotations" => &pod.metadata.annotations,
        _ => {
            return Err(ConfigError::Other(format!(
                "fieldPath {path:?} does not support subscript"
            )));
        }
    };
    Ok(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default())
}

/// A map as a file has it: `key="value"`, a line each, ordered by key.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", quoted(value)))
        .collect();
    lines.join("\n")
}

/// A text in quotes as Go writes it.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for sign in text.chars() {
        match sign {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            sign if sign.is_ascii_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(sign));
            }
            sign if sign.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(sign));
            }
            sign => out.push(sign),
        }
    }
    out.push('"');
    out
}

/// A container's request or limit in units of the divisor, rounded up. Without a container of its own (a volume), the
/// selector names one.
///
/// # Errors
/// No such container or resource.
pub fn resource(
    pod: &Pod,
    container: Option<&Container>,
    facts: &Facts,
    selector: &ResourceFieldSelector,
) -> Result<String, ConfigError> {
    let container = match selector.container_name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => named(pod, name),
        None => container,
    };
    let Some(container) = container else {
        return Err(ConfigError::NoContainer(
            selector.container_name.clone().unwrap_or_default(),
        ));
    };
    let unknown = || ConfigError::UnknownResource(selector.resource.clone());
    let (list, name) = selector.resource.split_once('.').ok_or_else(unknown)?;
    let known = FROM_THE_NODE.contains(&name) || name.starts_with("hugepages-");
    let resources = container.resources.as_ref();
    let amounts = match list {
        "limits" if known => resources.and_then(|resources| resources.limits.as_ref()),
        "requests" if known => resources.and_then(|resources| resources.requests.as_ref()),
        _ => return Err(unknown()),
    };
    let own = amounts.and_then(|amounts| amounts.get(name)).and_then(amount);
    let amount = match own.filter(|own| !own.is_zero()) {
        None if list == "limits" && FROM_THE_NODE.contains(&name) => facts.allocatable.get(name).and_then(amount),
        own => own,
    }
    .unwrap_or(Quantity::ZERO);
    let divisor = selector
        .divisor
        .as_ref()
        .and_then(self::amount)
        .filter(|divisor| !divisor.is_zero());
    let counted = if name == "cpu" {
        divided(amount.milli(), divisor.map_or(1000, Quantity::milli))
    } else {
        divided(amount.units(), divisor.map_or(1, Quantity::units))
    };
    Ok(counted.to_string())
}

fn named<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    spec.init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
        .find(|container| container.name == name)
}

fn amount(text: &k8s_openapi::apimachinery::pkg::api::resource::Quantity) -> Option<Quantity> {
    Quantity::parse(&text.0).ok()
}

/// Rounded up.
fn divided(amount: i128, divisor: i128) -> i128 {
    if divisor <= 0 {
        return 0;
    }
    amount.div_euclid(divisor) + i128::from(amount.rem_euclid(divisor) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": "web-0", "namespace": "shop", "uid": "u-1",
                "labels": {"app": "web", "a/b": "c"},
                "annotations": {"z": "line\nwith \"quotes\" \\ é\u{1}", "a": ""},
            },
            "spec": {
                "nodeName": "n1", "serviceAccountName": "robot",
                "containers": [
                    {"name": "main", "resources": {
                        "limits": {"cpu": "1500m", "memory": "64Mi"},
                        "requests": {"cpu": "250m", "memory": "65M", "hugepages-2Mi": "4Mi"},
                    }},
                    {"name": "bare"},
                ],
            },
        }))
        .unwrap()
    }

    fn facts() -> Facts {
        let amount = |text: &str| k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.to_owned());
        Facts {
            node_name: "n1".to_owned(),
            host_ips: vec!["127.70.0.16".to_owned(), "127.70.0.17".to_owned()],
            pod_ips: vec!["127.70.1.5".to_owned(), "127.70.1.6".to_owned()],
            allocatable: [("cpu", "4"), ("memory", "8Gi"), ("ephemeral-storage", "100Gi")]
                .map(|(name, text)| (name.to_owned(), amount(text)))
                .into(),
            ..Facts::default()
        }
    }

    #[test]
    fn n6_every_field_a_pod_may_ask_for() {
        let rows = [
            ("metadata.name", "web-0"),
            ("metadata.namespace", "shop"),
            ("metadata.uid", "u-1"),
            ("metadata.labels", "a/b=\"c\"\napp=\"web\""),
            (
                "metadata.annotations",
                "a=\"\"\nz=\"line\\nwith \\\"quotes\\\" \\\\ é\\x01\"",
            ),
            ("metadata.labels['app']", "web"),
            ("metadata.labels['a/b']", "c"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations['a']", ""),
            ("spec.nodeName", "n1"),
            ("spec.serviceAccountName", "robot"),
            ("status.hostIP", "127.70.0.16"),
            ("status.hostIPs", "127.70.0.16,127.70.0.17"),
            ("status.podIP", "127.70.1.5"),
            ("status.podIPs", "127.70.1.5,127.70.1.6"),
        ];
        for (path, expected) in rows {
            assert_eq!(field(&pod(), &facts(), path).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn n6_other_fields_are_refused_by_name() {
        let told = |path| field(&pod(), &facts(), path).unwrap_err().to_string();
        assert_eq!(told("spec.hostname"), "unsupported fieldPath: spec.hostname");
        assert_eq!(
            told("metadata.name['x']"),
            "fieldPath \"metadata.name['x']\" does not support subscript"
        );
    }

    #[test]
    fn n6_resources_count_in_their_divisor_rounded_up() {
        let rows = [
            ("main", "limits.cpu", None, "2"),
            ("main", "limits.cpu", Some("1m"), "1500"),
            ("main", "limits.cpu", Some("0"), "2"),
            ("main", "requests.cpu", None, "1"),
            ("main", "limits.memory", None, "67108864"),
            ("main", "limits.memory", Some("1Mi"), "64"),
            ("main", "requests.memory", Some("1Mi"), "62"),
            ("main", "limits.ephemeral-storage", Some("1Gi"), "100"),
            ("main", "requests.ephemeral-storage", None, "0"),
            ("main", "requests.hugepages-2Mi", Some("1Mi"), "4"),
            ("bare", "limits.cpu", None, "4"),
            ("bare", "limits.memory", Some("1Gi"), "8"),
            ("bare", "requests.cpu", None, "0"),
        ];
        for (name, resource_name, divisor, expected) in rows {
            let selector = ResourceFieldSelector {
                container_name: Some(name.to_owned()),
                divisor: divisor
                    .map(|text: &str| k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.to_owned())),
                resource: resource_name.to_owned(),
            };
            let counted = resource(&pod(), None, &facts(), &selector).unwrap();
            assert_eq!(counted, expected, "{name} {resource_name} {divisor:?}");
        }
    }

    #[test]
    fn n6_an_unknown_resource_or_container_is_named() {
        let told = |container: &str, resource_name: &str| {
            let selector = ResourceFieldSelector {
                container_name: Some(container.to_owned()),
                divisor: None,
                resource: resource_name.to_owned(),
            };
            resource(&pod(), None, &facts(), &selector).unwrap_err().to_string()
        };
        assert_eq!(
            told("main", "limits.gpu"),
            "unsupported container resource : limits.gpu"
        );
        assert_eq!(told("none", "limits.cpu"), "container none not found");
    }
}
