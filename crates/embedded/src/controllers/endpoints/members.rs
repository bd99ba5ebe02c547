//! Which pods belong to a Service, and under which address, name and ports.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::controllers::pods;

type Labels = BTreeMap<String, String>;

/// The selector of a Service that gets endpoints from us: without one, or with an external name, others write them.
pub(super) fn selector(service: &Service) -> Option<&Labels> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    spec.selector.as_ref().filter(|selector| !selector.is_empty())
}

pub(super) fn selects(selector: &Labels, pod: &Pod) -> bool {
    holds(selector, pod.metadata.labels.as_ref())
}

pub(super) fn holds(selector: &Labels, labels: Option<&Labels>) -> bool {
    selector
        .iter()
        .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

/// Whether a pod is shown at all: it runs, or is about to, and has an address. Those on their way out only where asked for.
pub(super) fn belongs(pod: &Pod, with_terminating: bool) -> bool {
    !pods::is_finished(pod)
        && addresses(pod).next().is_some()
        && (with_terminating || !pods::is_deleting(&pod.metadata))
}

/// As the pod's status lists them.
pub(super) fn addresses(pod: &Pod) -> impl Iterator<Item = &str> {
    let status = pod.status.as_ref();
    let all = status.and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    all.iter().map(|address| address.ip.as_str())
}

/// Its addresses of one family, in their usual spelling.
pub(super) fn of_family(pod: &Pod, is_v6: bool) -> impl Iterator<Item = String> {
    addresses(pod)
        .filter_map(|text| text.parse::<IpAddr>().ok())
        .filter(move |address| address.is_ipv6() == is_v6)
        .map(|address| address.to_string())
}

pub(super) fn node_of(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// A pod whose subdomain is the Service has a name of its own in it.
pub(super) fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let hostname = spec.hostname.as_ref().filter(|name| !name.is_empty())?;
    let is_its = spec.subdomain.is_some()
        && spec.subdomain == service.metadata.name
        && pod.metadata.namespace == service.metadata.namespace;
    is_its.then(|| hostname.clone())
}

pub(super) fn target(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// The number behind a Service's port in this pod; a name means what the pod's containers say it does.
pub(super) fn number(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match port.target_port.as_ref()? {
        IntOrString::Int(number) => return Some(*number),
        IntOrString::String(name) => name,
    };
    let spec = pod.spec.as_ref()?;
    let sidecars = spec
        .init_containers
        .as_deref()
        .unwrap_or_default()
        .iter()
        .filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let protocol = |protocol: &Option<String>| protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    spec.containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.as_deref().unwrap_or_default())
        .find(|found| found.name.as_ref() == Some(name) && protocol(&found.protocol) == protocol(&port.protocol))
        .map(|found| found.container_port)
}

/// `None`, or `None` the word: nothing stands before its pods.
pub(super) fn is_headless(spec: &ServiceSpec) -> bool {
    matches!(spec.cluster_ip.as_deref(), None | Some("" | "None"))
}

/// Whether it publishes pods whatever their state.
pub(super) fn publishes_all(spec: &ServiceSpec) -> bool {
    spec.publish_not_ready_addresses == Some(true)
}
