//! What has to change for the slices of a Service to say who its members are (C6).
//!
//! Members with the same ports share slices of at most [`MOST`]. What is there is kept as far as it can be: an endpoint
//! stays in its slice, gaps are filled in slices that change anyway, and only then one that does not, or a new one, is
//! touched. That keeps watchers' traffic small, and it is what the reference does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;

use super::members::{belongs, hostname, is_headless, node_of, number, of_family, publishes_all, target};
use super::{TRIGGER, fnv};
use crate::controllers::hand::{name_of, uid_of};
use crate::controllers::pods;
use crate::store::LogEntry;

pub(super) const MOST: usize = 100;

const SERVICE: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";
const ZONE: &str = "topology.kubernetes.io/zone";
/// A name with more cannot have a dash and a suffix behind it; it is cut, and no dash is added.
const LONGEST_NAME: usize = 253;

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<Arc<EndpointSlice>>,
}

impl Plan {
    pub(super) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.update.is_empty() && self.delete.is_empty()
    }

    /// Says since when this was waiting.
    pub(super) fn mark(&mut self, trigger: Option<Timestamp>) {
        for slice in self.create.iter_mut().chain(&mut self.update) {
            let annotations = slice.metadata.annotations.get_or_insert_default();
            match trigger {
                Some(trigger) => annotations.insert(TRIGGER.to_owned(), trigger.to_string()),
                None => annotations.remove(TRIGGER),
            };
        }
    }
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

/// Whether a slice is of this Service and kept by this controller, and not on its way out.
pub(super) fn is_ours(slice: &EndpointSlice, service: &str) -> bool {
    label(&slice.metadata, SERVICE) == Some(service)
        && label(&slice.metadata, MANAGED_BY) == Some(MANAGER)
        && slice.metadata.deletion_timestamp.is_none()
}

/// Of a slice only its labels.
#[derive(Deserialize)]
struct Labelled {
    metadata: LabelledMeta,
}

#[derive(Deserialize)]
struct LabelledMeta {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The Service that a changed slice is of, if the slice is ours.
pub(super) fn service_of_line(line: &LogEntry) -> Option<String> {
    let slice: Labelled = serde_json::from_slice(line.value.json()).ok()?;
    let labels = slice.metadata.labels;
    let is_ours = labels.get(MANAGED_BY).map(String::as_str) == Some(MANAGER);
    let service = labels.get(SERVICE).filter(|_| is_ours)?;
    Some(format!("{}/{service}", line.key.namespace()?))
}

/// See the module. `node` gives a node by name.
pub(super) fn plan(
    service: &Service,
    pods: &[Arc<Pod>],
    node: impl Fn(&str) -> Option<Arc<Node>>,
    existing: &[Arc<EndpointSlice>],
) -> Plan {
    let families = families(service);
    let mut plan = Plan::default();
    for slice in existing {
        if !families.contains(&slice.address_type.as_str()) {
            plan.delete.push(slice.clone());
        }
    }
    for family in families {
        let of_family: Vec<Arc<EndpointSlice>> = existing
            .iter()
            .filter(|slice| slice.address_type == family)
            .cloned()
            .collect();
        let part = plan_family(service, pods, &node, &of_family, family);
        plan.create.extend(part.create);
        plan.update.extend(part.update);
        plan.delete.extend(part.delete);
    }
    plan
}

fn families(service: &Service) -> Vec<&'static str> {
    let Some(spec) = &service.spec else {
        return Vec::new();
    };
    let named: Vec<&'static str> = spec
        .ip_families
        .iter()
        .flatten()
        .map(|family| if family == "IPv6" { "IPv6" } else { "IPv4" })
        .collect();
    match (&spec.cluster_ip, named.is_empty()) {
        (_, false) => named,
        (Some(address), _) if address.contains(':') => vec!["IPv6"],
        (Some(address), _) if address != "None" && !address.is_empty() => vec!["IPv4"],
        _ => vec!["IPv4", "IPv6"],
    }
}

/// Endpoints that offer the same ports.
struct Group {
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
}

fn plan_family(
    service: &Service,
    pods: &[Arc<Pod>],
    node: &impl Fn(&str) -> Option<Arc<Node>>,
    existing: &[Arc<EndpointSlice>],
    family: &str,
) -> Plan {
    let mut plan = Plan::default();
    let (owned, foreign): (Vec<_>, Vec<_>) = existing.iter().cloned().partition(|slice| is_owned(slice, service));
    plan.delete.extend(foreign);
    let groups = groups(service, pods, node, family);
    for group in &groups {
        let same: Vec<Arc<EndpointSlice>> = owned
            .iter()
            .filter(|slice| slice.ports.as_deref().unwrap_or_default() == group.ports)
            .cloned()
            .collect();
        fill(&mut plan, service, &same, group, family);
    }
    for slice in owned {
        let ports = slice.ports.as_deref().unwrap_or_default();
        if !groups.iter().any(|group| group.ports == ports) {
            plan.delete.push(slice);
        }
    }
    // A Service without members has one slice that says so.
    if existing.len() == plan.delete.len() && plan.create.is_empty() {
        let empty = new_slice(service, &[], family);
        match plan.delete.as_slice() {
            [only] if is_same_placeholder(only, &empty) => plan.delete.clear(),
            _ => plan.create.push(empty),
        }
    }
    reuse(&mut plan, service);
    plan
}

/// A slice that would go takes what would come.
fn reuse(plan: &mut Plan, service: &Service) {
    let mut kept = Vec::new();
    for slice in std::mem::take(&mut plan.delete) {
        if !is_owned(&slice, service) {
            kept.push(slice);
            continue;
        }
        match plan.create.pop() {
            None => kept.push(slice),
            Some(mut new) => {
                new.metadata.name.clone_from(&slice.metadata.name);
                new.metadata.generate_name.clone_from(&slice.metadata.generate_name);
                new.metadata
                    .resource_version
                    .clone_from(&slice.metadata.resource_version);
                plan.update.push(new);
            }
        }
    }
    plan.delete = kept;
}

fn is_owned(slice: &EndpointSlice, service: &Service) -> bool {
    let owners = slice.metadata.owner_references.as_deref().unwrap_or_default();
    owners
        .iter()
        .any(|owner| owner.uid == uid_of(&service.metadata) && owner.kind == "Service" && owner.api_version == "v1")
}

fn is_same_placeholder(slice: &EndpointSlice, empty: &EndpointSlice) -> bool {
    slice.endpoints.as_deref().unwrap_or_default().is_empty()
        && slice.ports.as_deref().unwrap_or_default().is_empty()
        && slice.metadata.labels == empty.metadata.labels
        && slice.metadata.owner_references == empty.metadata.owner_references
}

fn groups(service: &Service, pods: &[Arc<Pod>], node: &impl Fn(&str) -> Option<Arc<Node>>, family: &str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for pod in pods.iter().filter(|pod| belongs(pod, true)) {
        let ports = ports(service, pod);
        let at = groups.iter().position(|group| group.ports == ports).unwrap_or_else(|| {
            groups.push(Group {
                ports,
                endpoints: Vec::new(),
            });
            groups.len() - 1
        });
        let home = node(node_of(pod));
        let spec = service.spec.as_ref();
        // A pod of a node that nobody knows is soon gone, unless it is to be seen whatever happens.
        if home.is_none() && !spec.is_some_and(publishes_all) {
            continue;
        }
        let endpoint = endpoint(service, pod, home.as_deref(), family);
        if let (Some(endpoint), Some(group)) = (endpoint, groups.get_mut(at)) {
            group.endpoints.push(endpoint);
        }
    }
    groups
}

fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref());
    let mut offered: Vec<EndpointPort> = ports
        .unwrap_or_default()
        .iter()
        .filter_map(|port| {
            Some(EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(number(pod, port)?),
                protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect();
    offered.sort_by_cached_key(fnv::of_slice);
    offered
}

fn endpoint(service: &Service, pod: &Pod, node: Option<&Node>, family: &str) -> Option<Endpoint> {
    let is_serving = pods::is_pod_ready(pod);
    let is_terminating = pods::is_deleting(&pod.metadata);
    let is_published = service.spec.as_ref().is_some_and(publishes_all);
    let addresses: Vec<String> = of_family(pod, family == "IPv6").collect();
    let home = node_of(pod);
    (!addresses.is_empty()).then(|| Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(is_published || (is_serving && !is_terminating)),
            serving: Some(is_serving),
            terminating: Some(is_terminating),
        }),
        hostname: hostname(pod, service),
        node_name: (!home.is_empty()).then(|| home.to_owned()),
        target_ref: Some(target(pod)),
        zone: node
            .and_then(|node| label(&node.metadata, ZONE))
            .filter(|zone| !zone.is_empty())
            .map(str::to_owned),
        ..Endpoint::default()
    })
}

/// Who an endpoint is, whatever its state.
fn identity(endpoint: &Endpoint) -> (Vec<&str>, Option<&str>, Option<&str>) {
    let mut addresses: Vec<&str> = endpoint.addresses.iter().map(String::as_str).collect();
    addresses.sort_unstable();
    let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.as_deref());
    (addresses, uid, endpoint.hostname.as_deref())
}

/// Puts the endpoints of one group into the slices that have its ports.
fn fill(plan: &mut Plan, service: &Service, existing: &[Arc<EndpointSlice>], group: &Group, family: &str) {
    let mut wanted: BTreeMap<_, &Endpoint> = group.endpoints.iter().map(|end| (identity(end), end)).collect();
    let labels = labels(service);
    let mut changed: Vec<EndpointSlice> = Vec::new();
    let mut unchanged: Vec<Arc<EndpointSlice>> = Vec::new();
    for slice in existing {
        let before = slice.endpoints.as_deref().unwrap_or_default();
        let kept: Vec<Endpoint> = before
            .iter()
            .filter_map(|endpoint| wanted.remove(&identity(endpoint)).cloned())
            .collect();
        if kept.is_empty() && !before.is_empty() {
            plan.delete.push(slice.clone());
        } else if kept == before && slice.metadata.labels.as_ref() == Some(&labels) {
            unchanged.push(slice.clone());
        } else {
            changed.push(with(slice, kept, &labels));
        }
    }
    // In the order of the pods, which is that of their names.
    let mut left: VecDeque<Endpoint> = group
        .endpoints
        .iter()
        .filter(|endpoint| wanted.contains_key(&identity(endpoint)))
        .cloned()
        .collect();
    // The fullest first.
    changed.sort_by_key(|slice| std::cmp::Reverse(count(slice)));
    for slice in &mut changed {
        top_up(slice, &mut left);
    }
    while !left.is_empty() {
        let fits = |slice: &Arc<EndpointSlice>| count(slice) + left.len() <= MOST;
        let fullest = unchanged
            .iter()
            .enumerate()
            .filter(|(_, slice)| left.len() < MOST && fits(slice))
            .max_by_key(|(_, slice)| count(slice))
            .map(|(at, _)| at);
        match fullest {
            Some(at) => {
                let slice = unchanged.remove(at);
                let before = slice.endpoints.clone().unwrap_or_default();
                let mut slice = with(&slice, before, &labels);
                top_up(&mut slice, &mut left);
                changed.push(slice);
            }
            None => {
                let mut slice = new_slice(service, &group.ports, family);
                top_up(&mut slice, &mut left);
                plan.create.push(slice);
            }
        }
    }
    plan.update.extend(changed);
}

fn count(slice: &EndpointSlice) -> usize {
    slice.endpoints.as_ref().map_or(0, Vec::len)
}

fn top_up(slice: &mut EndpointSlice, left: &mut VecDeque<Endpoint>) {
    let endpoints = slice.endpoints.get_or_insert_default();
    let room = MOST.saturating_sub(endpoints.len()).min(left.len());
    endpoints.extend(left.drain(..room));
}

fn with(slice: &EndpointSlice, endpoints: Vec<Endpoint>, labels: &BTreeMap<String, String>) -> EndpointSlice {
    let mut slice = slice.clone();
    slice.endpoints = Some(endpoints);
    slice.metadata.labels = Some(labels.clone());
    slice
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if service.spec.as_ref().is_some_and(is_headless) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE.to_owned(), name_of(&service.metadata).to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn new_slice(service: &Service, ports: &[EndpointPort], family: &str) -> EndpointSlice {
    let name = name_of(&service.metadata);
    let prefix = if name.len() < LONGEST_NAME {
        format!("{name}-")
    } else {
        name.to_owned()
    };
    EndpointSlice {
        address_type: family.to_owned(),
        metadata: ObjectMeta {
            generate_name: Some(prefix),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels(service)),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Service".to_owned(),
                name: name.to_owned(),
                uid: uid_of(&service.metadata).to_owned(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        endpoints: Some(Vec::new()),
        ports: Some(ports.to_vec()),
    }
}
