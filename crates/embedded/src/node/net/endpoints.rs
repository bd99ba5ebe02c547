//! Where a Service leads: its addresses and ports, and the endpoints behind them, from its EndpointSlices. Pure.
//!
//! [`hosts`](super::hosts) makes names of it and [`relay`](super::relay) listens by it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// On each slice: the Service that it is of.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Namespace and name of a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    pub namespace: String,
    pub name: String,
}

impl std::fmt::Display for ServiceKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// One endpoint of a headless Service, for its names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    pub address: Ipv4Addr,
    /// Of a pod whose subdomain is the Service.
    pub hostname: Option<String>,
}

/// A Service's port, and where its connections go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub port: u16,
    pub node_port: Option<u16>,
    /// Sorted, each once. Those that are ready; if there are none, those that still serve while they end.
    pub endpoints: Vec<SocketAddrV4>,
}

/// A Service as the network sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// `None`: headless.
    pub cluster_ip: Option<Ipv4Addr>,
    /// TCP ports.
    pub ports: Vec<Port>,
    /// Of a headless one, sorted, each once.
    pub named: Vec<Named>,
    /// One client always comes to the same endpoint, while the endpoints stay.
    pub is_sticky: bool,
}

/// All Services that have addresses; those of type ExternalName have none.
#[must_use]
pub fn ways(services: &[Service], slices: &[EndpointSlice]) -> BTreeMap<ServiceKey, Way> {
    let mut of: BTreeMap<(&str, &str), Vec<&EndpointSlice>> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice.address_type == "IPv4") {
        let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
        let service = slice
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(SERVICE_NAME));
        if let Some(service) = service {
            of.entry((namespace, service)).or_default().push(slice);
        }
    }
    let mut ways = BTreeMap::new();
    for service in services {
        let key = ServiceKey {
            namespace: service.metadata.namespace.clone().unwrap_or_default(),
            name: service.metadata.name.clone().unwrap_or_default(),
        };
        let slices = of.get(&(key.namespace.as_str(), key.name.as_str()));
        if let Some(way) = way(service, slices.map(Vec::as_slice).unwrap_or_default()) {
            ways.insert(key, way);
        }
    }
    ways
}

/// `None`: it has no address, and is not headless.
fn way(service: &Service, slices: &[&EndpointSlice]) -> Option<Way> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    let cluster_ip = match spec.cluster_ip.as_deref() {
        Some("None") => None,
        address => Some(address?.parse().ok()?),
    };
    let tcp = spec
        .ports
        .iter()
        .flatten()
        .filter(|port| is_tcp(port.protocol.as_deref()));
    let ports = tcp.filter_map(|port| {
        Some(Port {
            port: u16::try_from(port.port).ok()?,
            node_port: port
                .node_port
                .and_then(|port| u16::try_from(port).ok())
                .filter(|port| *port != 0),
            endpoints: endpoints(slices, port.name.as_deref().unwrap_or_default()),
        })
    });
    Some(Way {
        cluster_ip,
        ports: ports.collect(),
        named: if cluster_ip.is_none() {
            named(slices)
        } else {
            Vec::new()
        },
        is_sticky: spec.session_affinity.as_deref() == Some("ClientIP"),
    })
}

/// What is said of a Service's ports that nobody listens on, because only TCP is relayed (W5). `None`: it has no such port,
/// or it has no address to listen on.
#[must_use]
pub fn not_relayed(service: &Service) -> Option<String> {
    let spec = service.spec.as_ref()?;
    let has_address = spec
        .cluster_ip
        .as_deref()
        .is_some_and(|address| address.parse::<Ipv4Addr>().is_ok());
    let others = spec
        .ports
        .iter()
        .flatten()
        .filter(|port| !is_tcp(port.protocol.as_deref()));
    let ports: Vec<String> = others
        .map(|port| format!("{}/{}", port.port, port.protocol.as_deref().unwrap_or_default()))
        .collect();
    (has_address && !ports.is_empty()).then(|| {
        format!(
            "nobody listens on {}: only TCP is relayed to a Service's pods; reach them by their own addresses",
            ports.join(", ")
        )
    })
}

fn is_tcp(protocol: Option<&str>) -> bool {
    protocol.is_none_or(|protocol| protocol == "TCP")
}

/// Behind the port of this name.
fn endpoints(slices: &[&EndpointSlice], name: &str) -> Vec<SocketAddrV4> {
    let mut ready = Vec::new();
    let mut ending = Vec::new();
    for slice in slices {
        let port = slice
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_deref().unwrap_or_default() == name && is_tcp(port.protocol.as_deref()))
            .and_then(|port| u16::try_from(port.port?).ok());
        let Some(port) = port else {
            continue;
        };
        for endpoint in slice.endpoints.iter().flatten() {
            // As in the reference the first counts: all of them are the same place.
            let Some(address) = endpoint.addresses.first().and_then(|address| address.parse().ok()) else {
                continue;
            };
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            // Unknown is ready.
            let is_ready = conditions.ready.unwrap_or(true);
            if is_ready {
                ready.push(SocketAddrV4::new(address, port));
            } else if conditions.serving.unwrap_or(is_ready) && conditions.terminating.unwrap_or(false) {
                ending.push(SocketAddrV4::new(address, port));
            }
        }
    }
    let mut all = if ready.is_empty() { ending } else { ready };
    all.sort_unstable();
    all.dedup();
    all
}

/// Ready ones; a Service that publishes those that are not has them ready in its slices.
fn named(slices: &[&EndpointSlice]) -> Vec<Named> {
    let mut all: Vec<Named> = slices
        .iter()
        .flat_map(|slice| slice.endpoints.iter().flatten())
        .filter(|endpoint| {
            let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready);
            ready.unwrap_or(true)
        })
        .filter_map(|endpoint| {
            Some(Named {
                address: endpoint.addresses.first()?.parse().ok()?,
                hostname: endpoint.hostname.clone().filter(|name| !name.is_empty()),
            })
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub fn service(name: &str, spec: Value) -> Service {
        let object = json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    /// `endpoints` as in a slice; ports by name.
    pub fn slice(service: &str, ports: Value, endpoints: Value) -> EndpointSlice {
        let object = json!({
            "metadata": {"name": format!("{service}-1"), "namespace": "shop", "labels": {SERVICE_NAME: service}},
            "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
        });
        serde_json::from_value(object).unwrap()
    }

    fn at<'a>(ways: &'a BTreeMap<ServiceKey, Way>, name: &str) -> &'a Way {
        let key = ServiceKey {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        };
        &ways[&key]
    }

    #[test]
    fn w5_a_port_has_the_ready_endpoints_of_its_name_over_all_slices() {
        let web = service(
            "web",
            json!({"clusterIP": "127.64.230.1", "ports": [
                {"name": "http", "port": 80, "nodePort": 30080}, {"name": "admin", "port": 90}, {"port": 53, "name": "dns", "protocol": "UDP"},
            ]}),
        );
        let one = slice(
            "web",
            json!([{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "admin", "port": 9090}]),
            json!([
                {"addresses": ["127.64.1.2"], "conditions": {"ready": true}},
                {"addresses": ["127.64.1.3"], "conditions": {"ready": false}},
            ]),
        );
        let two = slice(
            "web",
            json!([{"name": "http", "port": 8081}]),
            json!([{"addresses": ["127.64.1.1"]}]),
        );
        let ways = ways(&[web], &[one, two]);
        let way = at(&ways, "web");
        let shown: Vec<_> = way
            .ports
            .iter()
            .map(|port| {
                (
                    port.port,
                    port.node_port,
                    port.endpoints.iter().map(ToString::to_string).collect(),
                )
            })
            .collect();
        let expected: [(u16, Option<u16>, Vec<String>); 2] = [
            (
                80,
                Some(30_080),
                vec!["127.64.1.1:8081".to_owned(), "127.64.1.2:8080".to_owned()],
            ),
            (90, None, vec!["127.64.1.2:9090".to_owned()]),
        ];
        assert_eq!(shown, expected);
        assert!(way.named.is_empty());
    }

    #[test]
    fn w5_endpoints_that_end_are_used_while_nobody_is_ready() {
        let web = service("web", json!({"clusterIP": "127.64.230.1", "ports": [{"port": 80}]}));
        let ending =
            json!({"addresses": ["127.64.1.1"], "conditions": {"ready": false, "serving": true, "terminating": true}});
        let broken =
            json!({"addresses": ["127.64.1.2"], "conditions": {"ready": false, "serving": false, "terminating": true}});
        let ready = json!({"addresses": ["127.64.1.3"], "conditions": {"ready": true}});
        let count = |endpoints: Value| {
            let slices = [slice("web", json!([{"port": 8080}]), endpoints)];
            let ways = ways(std::slice::from_ref(&web), &slices);
            at(&ways, "web").ports[0].endpoints.clone()
        };
        assert_eq!(count(json!([ending, broken])), ["127.64.1.1:8080".parse().unwrap()]);
        assert_eq!(count(json!([ending, ready])), ["127.64.1.3:8080".parse().unwrap()]);
        assert!(count(json!([broken])).is_empty());
    }

    #[test]
    fn a_service_without_address_leads_nowhere_and_a_headless_one_has_names_only() {
        let services = [
            service("away", json!({"type": "ExternalName", "externalName": "a.example"})),
            service("new", json!({"ports": [{"port": 80}]})),
            service("db", json!({"clusterIP": "None", "ports": [{"port": 80}]})),
        ];
        let slices = [slice(
            "db",
            json!([{"port": 80}]),
            json!([
                {"addresses": ["127.64.1.9"], "hostname": "db-1"},
                {"addresses": ["127.64.1.8"], "conditions": {"ready": false}},
            ]),
        )];
        let ways = ways(&services, &slices);
        assert_eq!(ways.len(), 1);
        let way = at(&ways, "db");
        assert_eq!(way.cluster_ip, None);
        assert_eq!(way.named.len(), 1);
        assert_eq!(way.named[0].hostname.as_deref(), Some("db-1"));
    }
}
