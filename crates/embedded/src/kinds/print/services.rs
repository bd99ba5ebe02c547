//! Services and what answers for them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::read::{age, at, joined, list, name, number, text, with_more};
use super::selectors::labels;
use super::{AGE, NAME, SELECTOR, column};
use crate::registry::row::Column;

/// How many addresses or ports a cell names before it counts the rest.
const NAMED: usize = 3;

pub const SERVICE: &[Column] = &[
    NAME,
    column("Type", "string", "How the service is reached."),
    column("Cluster-IP", "string", "Its address within the cluster."),
    column("External-IP", "string", "Its addresses outside of the cluster."),
    column("Port(s)", "string", "Its ports, with node ports."),
    AGE,
    SELECTOR,
];

pub fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = list(object, &["spec", "ports"]).iter().map(port).collect();
    let address = list(object, &["spec", "clusterIPs"]).first().and_then(Value::as_str);
    vec![
        name(object),
        text(object, &["spec", "type"]).into(),
        address.unwrap_or("<none>").into(),
        external_address(object).into(),
        none_if_empty(ports.join(",")).into(),
        age(object, now),
        labels(object, &["spec", "selector"]).into(),
    ]
}

fn port(port: &Value) -> String {
    let (number_, protocol) = (number(port, &["port"]), text(port, &["protocol"]));
    match number(port, &["nodePort"]) {
        1.. => format!("{number_}:{}/{protocol}", number(port, &["nodePort"])),
        _ => format!("{number_}/{protocol}"),
    }
}

fn external_address(object: &Value) -> String {
    let own = joined(list(object, &["spec", "externalIPs"]));
    match text(object, &["spec", "type"]) {
        "ClusterIP" | "NodePort" => none_if_empty(own),
        "LoadBalancer" => {
            let balancer: BTreeSet<&str> = list(object, &["status", "loadBalancer", "ingress"])
                .iter()
                .map(|ingress| match text(ingress, &["ip"]) {
                    "" => text(ingress, &["hostname"]),
                    ip => ip,
                })
                .filter(|address| !address.is_empty())
                .collect();
            let mut all: Vec<&str> = balancer.into_iter().collect();
            if !own.is_empty() {
                all.push(&own);
            }
            if all.is_empty() {
                "<pending>".into()
            } else {
                all.join(",")
            }
        }
        "ExternalName" => text(object, &["spec", "externalName"]).into(),
        _ => "<unknown>".into(),
    }
}

fn none_if_empty(text: String) -> String {
    if text.is_empty() { "<none>".into() } else { text }
}

pub const ENDPOINTS: &[Column] = &[NAME, column("Endpoints", "string", "Addresses that answer."), AGE];

pub fn endpoints(object: &Value, now: Timestamp) -> Vec<Value> {
    let subsets = list(object, &["subsets"]);
    let shown = if subsets.is_empty() {
        "<none>".into()
    } else {
        with_more(subsets.iter().flat_map(subset).collect(), NAMED, ",")
    };
    vec![name(object), shown.into(), age(object, now)]
}

fn subset(subset: &Value) -> Vec<String> {
    let addresses = || {
        list(subset, &["addresses"])
            .iter()
            .map(|address| text(address, &["ip"]))
    };
    let ports = list(subset, &["ports"]);
    // A headless service may have no port at all.
    if ports.is_empty() {
        return addresses().map(str::to_owned).collect();
    }
    let with_port = |port: &Value| {
        let port = number(port, &["port"]);
        addresses().map(move |ip| match ip.contains(':') {
            true => format!("[{ip}]:{port}"),
            false => format!("{ip}:{port}"),
        })
    };
    ports.iter().flat_map(with_port).collect()
}

pub const ENDPOINT_SLICE: &[Column] = &[
    NAME,
    column("AddressType", "string", "Of which family the addresses are."),
    column("Ports", "string", "Ports that answer."),
    column("Endpoints", "string", "Addresses that answer."),
    AGE,
];

pub fn endpoint_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports = list(object, &["ports"])
        .iter()
        .map(|port| match (at(port, &["port"]), at(port, &["name"])) {
            (Some(number), _) => number.to_string(),
            (None, Some(name)) => name.as_str().unwrap_or_default().to_owned(),
            (None, None) => "*".into(),
        })
        .collect();
    let addresses = list(object, &["endpoints"])
        .iter()
        .flat_map(|endpoint| list(endpoint, &["addresses"]))
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect();
    let shown = |texts| match with_more(texts, NAMED, ",") {
        text if text.is_empty() => "<unset>".into(),
        text => Value::from(text),
    };
    vec![
        name(object),
        text(object, &["addressType"]).into(),
        shown(ports),
        shown(addresses),
        age(object, now),
    ]
}
