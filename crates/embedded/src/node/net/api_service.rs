//! The Service `kubernetes`, by which pods reach the API (W5), and its endpoint. Pure.
//!
//! Whoever starts a cluster with processes writes both, and listens on [`Block::api`].

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::node::net::Block;
use crate::node::net::block::API_PORT;
use crate::node::net::endpoints::SERVICE_NAME;

const NAME: &str = "kubernetes";
const NAMESPACE: &str = "default";
const PORT_NAME: &str = "https";

fn meta(labels: &[(&str, &str)]) -> ObjectMeta {
    let labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ObjectMeta {
        name: Some(NAME.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        labels: Some(labels.collect::<BTreeMap<_, _>>()),
        ..ObjectMeta::default()
    }
}

/// As the reference has it, but on port 6443, on which everybody may listen.
#[must_use]
pub fn service(block: Block) -> Service {
    let address = block.kubernetes_service().to_string();
    Service {
        metadata: meta(&[("component", "apiserver"), ("provider", NAME)]),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            cluster_ip: Some(address.clone()),
            cluster_ips: Some(vec![address]),
            ports: Some(vec![ServicePort {
                name: Some(PORT_NAME.to_owned()),
                protocol: Some("TCP".to_owned()),
                port: i32::from(API_PORT),
                target_port: Some(IntOrString::Int(i32::from(API_PORT))),
                ..ServicePort::default()
            }]),
            session_affinity: Some("None".to_owned()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// Where it leads: [`Block::api`].
#[must_use]
pub fn slice(block: Block) -> EndpointSlice {
    EndpointSlice {
        metadata: meta(&[(SERVICE_NAME, NAME)]),
        address_type: "IPv4".to_owned(),
        endpoints: Some(vec![Endpoint {
            addresses: vec![block.api().to_string()],
            conditions: Some(EndpointConditions {
                ready: Some(true),
                ..EndpointConditions::default()
            }),
            ..Endpoint::default()
        }]),
        ports: Some(vec![EndpointPort {
            name: Some(PORT_NAME.to_owned()),
            port: Some(i32::from(API_PORT)),
            protocol: Some("TCP".to_owned()),
            ..EndpointPort::default()
        }]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::endpoints::ways;
    use super::*;

    #[test]
    fn w5_the_service_kubernetes_leads_to_the_blocks_api_address() {
        let block = Block::new(77).unwrap();
        let ways = ways(&[service(block)], &[slice(block)]);
        let (key, way) = ways.first_key_value().unwrap();
        assert_eq!(key.to_string(), "default/kubernetes");
        assert_eq!(way.cluster_ip, Some(block.kubernetes_service()));
        assert_eq!(way.ports[0].port, 6443);
        assert_eq!(way.ports[0].endpoints, ["127.77.0.1:6443".parse().unwrap()]);
    }
}
