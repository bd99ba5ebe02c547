//! The members of a Service as an Endpoints object: subsets of addresses that offer the same ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::members::{belongs, hostname, is_headless, node_of, number, of_family, publishes_all, target};
use super::{TRIGGER, fnv};
use crate::controllers::pods;

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const HEADLESS: &str = "service.kubernetes.io/headless";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// An Endpoints object holds no more addresses than that.
const MOST: usize = 1_000;
/// An old way to elect leaders keeps its record in Endpoints of no Service.
const ELECTION: &str = "control-plane.alpha.kubernetes.io/leader";

/// Ready or not, by address and pod.
type Addresses = BTreeMap<(String, Option<String>), (EndpointAddress, bool)>;

pub(super) fn is_election(endpoints: &Endpoints) -> bool {
    crate::controllers::hand::annotation(&endpoints.metadata, ELECTION).is_some()
}

/// The subsets in their canonical form: each address once, the same ports together, everything in order.
pub(super) fn of(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let Some(spec) = &service.spec else {
        return Vec::new();
    };
    let is_v6 = match spec.ip_families.as_deref().and_then(<[String]>::first) {
        Some(family) => family == "IPv6",
        None => spec.cluster_ip.as_deref().is_some_and(|address| address.contains(':')),
    };
    // By port, `None` for a headless Service without any.
    let mut by_port: Vec<(Option<EndpointPort>, Addresses)> = Vec::new();
    for pod in pods.iter().filter(|pod| belongs(pod, publishes_all(spec))) {
        let Some(address) = address(service, pod, is_v6) else {
            continue;
        };
        let is_ready = publishes_all(spec) || pods::is_pod_ready(pod);
        let ports = spec.ports.as_deref().unwrap_or_default();
        let offered: Vec<Option<EndpointPort>> = if ports.is_empty() {
            is_headless(spec).then_some(None).into_iter().collect()
        } else {
            let offered = ports.iter().filter_map(|port| {
                let number = number(pod, port)?;
                Some(Some(EndpointPort {
                    name: port.name.clone().filter(|name| !name.is_empty()),
                    port: number,
                    protocol: port.protocol.clone(),
                    app_protocol: port.app_protocol.clone(),
                }))
            });
            offered.collect()
        };
        for port in offered {
            let key = (address.ip.clone(), pod.metadata.uid.clone());
            let at = by_port.iter().position(|(known, _)| *known == port);
            let entry = (address.clone(), is_ready);
            match at.and_then(|at| by_port.get_mut(at)) {
                Some((_, addresses)) => {
                    addresses.insert(key, entry);
                }
                None => by_port.push((port, Addresses::from([(key, entry)]))),
            }
        }
    }
    let mut together: Vec<(Vec<EndpointPort>, Addresses)> = Vec::new();
    for (port, addresses) in by_port {
        match together.iter_mut().find(|(_, known)| *known == addresses) {
            Some((ports, _)) => ports.extend(port),
            None => together.push((port.into_iter().collect(), addresses)),
        }
    }
    for (ports, _) in &mut together {
        ports.sort_by_cached_key(fnv::of_core);
    }
    together.sort_by_cached_key(|(ports, _)| ports.iter().map(fnv::of_core).collect::<Vec<_>>());
    together
        .into_iter()
        .map(|(ports, addresses)| subset(ports, addresses))
        .collect()
}

fn address(service: &Service, pod: &Pod, is_v6: bool) -> Option<EndpointAddress> {
    let node = node_of(pod);
    Some(EndpointAddress {
        ip: of_family(pod, is_v6).next()?,
        hostname: hostname(pod, service),
        node_name: (!node.is_empty()).then(|| node.to_owned()),
        target_ref: Some(target(pod)),
    })
}

fn subset(ports: Vec<EndpointPort>, addresses: Addresses) -> EndpointSubset {
    let some = |list: Vec<EndpointAddress>| (!list.is_empty()).then_some(list);
    let (ready, other): (Vec<_>, Vec<_>) = addresses.into_values().partition(|(_, is_ready)| *is_ready);
    EndpointSubset {
        addresses: some(ready.into_iter().map(|(address, _)| address).collect()),
        not_ready_addresses: some(other.into_iter().map(|(address, _)| address).collect()),
        ports: (!ports.is_empty()).then_some(ports),
    }
}

/// Whether what is there says all that already.
pub(super) fn is_right(found: &Endpoints, service: &Service, subsets: &[EndpointSubset]) -> bool {
    let is_over = found
        .metadata
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(OVER_CAPACITY));
    let mut wanted = subsets.to_vec();
    let truncated = truncate(&mut wanted);
    found.subsets.as_deref().unwrap_or_default() == wanted
        && truncated == is_over
        && found.metadata.labels.as_ref() == Some(&labels(service))
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if service.spec.as_ref().is_some_and(is_headless) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

/// The object to write.
pub(super) fn endpoints(
    service: &Service,
    found: Option<&Endpoints>,
    mut subsets: Vec<EndpointSubset>,
    trigger: Option<Timestamp>,
) -> Endpoints {
    let mut metadata = found.map(|found| found.metadata.clone()).unwrap_or_else(|| ObjectMeta {
        name: service.metadata.name.clone(),
        ..ObjectMeta::default()
    });
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.remove(TRIGGER);
    annotations.remove(OVER_CAPACITY);
    if let Some(trigger) = trigger {
        annotations.insert(TRIGGER.to_owned(), trigger.to_string());
    }
    if truncate(&mut subsets) {
        annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
    }
    metadata.labels = Some(labels(service));
    Endpoints {
        metadata,
        subsets: (!subsets.is_empty()).then_some(subsets),
    }
}

/// Leaves out what is too much, those that are not ready first; each subset gives its share. Whether anything was left out.
fn truncate(subsets: &mut [EndpointSubset]) -> bool {
    let count = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
    let ready: usize = subsets.iter().map(|subset| count(&subset.addresses)).sum();
    let other: usize = subsets.iter().map(|subset| count(&subset.not_ready_addresses)).sum();
    if ready + other <= MOST {
        return false;
    }
    let cuts_ready = ready > MOST;
    let (total, room) = if cuts_ready {
        (ready, MOST)
    } else {
        (other, MOST - ready)
    };
    let mut left = room;
    for subset in subsets {
        if cuts_ready {
            subset.not_ready_addresses = None;
        }
        let list = if cuts_ready {
            &mut subset.addresses
        } else {
            &mut subset.not_ready_addresses
        };
        let share = (count(list) * room).div_ceil(total).min(left);
        if let Some(addresses) = list {
            addresses.truncate(share);
            left -= addresses.len();
        }
        if list.as_ref().is_some_and(Vec::is_empty) {
            *list = None;
        }
    }
    true
}
