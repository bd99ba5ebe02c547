//! The Services, and the budget that keeps drains to one pod at a time.

use serde_json::{Value, json};

use super::{BUS_PORT, CLIENT_PORT, Map, owned, selector, signed};
use crate::api::{ServiceType, labels};
use crate::json::put;
use crate::records::{BUDGETS, ClusterRecord, SERVICES};

fn service(cluster: &ClusterRecord, name: &str, kind: &str, annotations: &Map, spec: Value) -> Value {
    let mut service = owned(cluster, SERVICES, name, &[(labels::SERVICE_TYPE, kind)], annotations);
    put(&mut service, &["spec"], spec);
    put(&mut service, &["spec", "selector"], selector(cluster));
    signed(service)
}

fn port(name: &str, port: u16) -> Value {
    json!({"name": name, "port": port, "targetPort": name, "protocol": "TCP"})
}

/// Names each pod, ready or not: members must find each other before they are.
pub fn headless(cluster: &ClusterRecord) -> Value {
    let spec = json!({
        "clusterIP": "None",
        "publishNotReadyAddresses": true,
        "ports": [port("client", CLIENT_PORT), port("cluster-bus", BUS_PORT)],
    });
    service(cluster, &cluster.headless_service(), "headless", &Map::new(), spec)
}

/// Where clients begin.
pub fn client(cluster: &ClusterRecord) -> Value {
    let spec = json!({"type": "ClusterIP", "ports": [port("client", CLIENT_PORT)]});
    service(cluster, cluster.name(), "client", &Map::new(), spec)
}

/// Where reading clients begin, on request: all pods.
pub fn read(cluster: &ClusterRecord) -> Value {
    let wanted = &cluster.spec.read_service;
    let kind = match wanted.service_type {
        ServiceType::ClusterIP => "ClusterIP",
        ServiceType::NodePort => "NodePort",
        ServiceType::LoadBalancer => "LoadBalancer",
    };
    let spec = json!({"type": kind, "ports": [port("client", CLIENT_PORT)]});
    service(cluster, &cluster.read_service(), "read", &wanted.annotations, spec)
}

/// One pod at a time over the whole cluster: a primary and its only replica never go together.
pub fn budget(cluster: &ClusterRecord) -> Value {
    let mut budget = owned(cluster, BUDGETS, cluster.name(), &[], &Map::new());
    let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": selector(cluster)}});
    put(&mut budget, &["spec"], spec);
    signed(budget)
}
