//! Services are given their addresses and node ports, and the fields that go with them (O22, W1).
//!
//! As in the reference this is the last change before the rules: webhooks do not see it. One family, IPv4.

mod book;

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Map, Value, json};

use crate::admission::{Operation, Review};
use crate::fault::{Fault, FieldError, Path};
use crate::registry::{Registry, object};

pub(super) use book::Book;
pub(crate) use book::Reserved;
use book::Turn;

type Spec = Map<String, Value>;

fn text<'a>(spec: &'a Spec, field: &str) -> &'a str {
    spec.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(spec: &'a Spec, field: &str) -> &'a [Value] {
    spec.get(field)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn number(map: &Value, field: &str) -> i64 {
    map.get(field).and_then(Value::as_i64).unwrap_or(0)
}

fn has_addresses(spec: &Spec) -> bool {
    text(spec, "type") != "ExternalName"
}

fn is_headless(spec: &Spec) -> bool {
    matches!(list(spec, "clusterIPs").first(), Some(first) if first == "None")
}

fn has_node_ports(spec: &Spec) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

fn wants_node_ports(spec: &Spec) -> bool {
    text(spec, "type") == "NodePort"
        || (text(spec, "type") == "LoadBalancer"
            && spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false)))
}

fn has_health_port(spec: &Spec) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn is_accessible(spec: &Spec) -> bool {
    has_node_ports(spec) || (text(spec, "type") == "ClusterIP" && !list(spec, "externalIPs").is_empty())
}

impl Registry {
    /// What a Service being written has from now on, held until it is stored.
    pub(super) fn give_addresses(&self, review: &Review<'_>, service: &mut Value) -> Result<Reserved, Fault> {
        if !review.is("", "Service") || review.operation == Operation::Delete {
            return Ok(Reserved::default());
        }
        let uid = match review.old {
            Some(old) => object::text(old, "uid"),
            None => object::text(service, "uid"),
        }
        .to_owned();
        let old = review.old.and_then(|old| old.get("spec")).and_then(Value::as_object);
        let spec = object::field_mut(service, "spec");
        if let Some(old) = old {
            keep_given(spec, old);
        }
        normalize(spec, old);
        if !is_well_formed(spec) {
            // The rules say what is wrong.
            return Ok(Reserved::default());
        }
        let refuse = |errors: &[FieldError]| Fault::invalid(&review.target.subject(), review.name, errors);
        families(spec, old).map_err(|errors| refuse(&errors))?;
        let key = review.target.key_of(review.name);
        let mut turn = self.admission.book.turn(&self.store, key, &uid, review.ask.dry_run);
        address(&mut turn, spec, old).map_err(|wrong| wrong.fault(&refuse))?;
        ports(&mut turn, spec, old).map_err(|wrong| wrong.fault(&refuse))?;
        health_port(&mut turn, spec, old).map_err(|wrong| wrong.fault(&refuse))?;
        let reserved = turn.hold();
        if let Some(old) = old {
            drop_by_type(spec, old);
        }
        Ok(reserved)
    }
}

/// What is wrong with a claim: a field, or the server.
enum Wrong {
    Field(FieldError),
    Server(String),
}

impl Wrong {
    fn fault(self, refuse: &dyn Fn(&[FieldError]) -> Fault) -> Fault {
        match self {
            Self::Field(error) => refuse(&[error]),
            Self::Server(why) => Fault::internal(why),
        }
    }
}

/// A client that writes back what it knows leaves the rest as it is.
fn keep_given(spec: &mut Spec, old: &Spec) {
    if has_addresses(old) && has_addresses(spec) {
        if text(spec, "clusterIP").is_empty() {
            copy(spec, old, "clusterIP");
        }
        if list(spec, "clusterIPs").is_empty() {
            copy(spec, old, "clusterIPs");
        }
    }
    if has_node_ports(old) && has_node_ports(spec) {
        let before: Vec<i64> = list(old, "ports").iter().map(|port| number(port, "nodePort")).collect();
        let used: Vec<i64> = list(spec, "ports")
            .iter()
            .map(|port| number(port, "nodePort"))
            .filter(|port| *port != 0 && before.contains(port))
            .collect();
        for port in spec
            .get_mut("ports")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let name = |port: &Value| port.get("name").cloned().unwrap_or_else(|| json!(""));
            let known = list(old, "ports").iter().rev().find(|known| name(known) == name(port));
            let known = known.map_or(0, |known| number(known, "nodePort"));
            if number(port, "nodePort") == 0 && known != 0 && !used.contains(&known) {
                object::as_map(port).insert("nodePort".to_owned(), known.into());
            }
        }
    }
    let unset = spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0) == 0;
    if has_health_port(old) && has_health_port(spec) && unset {
        copy(spec, old, "healthCheckNodePort");
    }
}

fn copy(spec: &mut Spec, old: &Spec, field: &str) {
    if let Some(value) = old.get(field) {
        spec.insert(field.to_owned(), value.clone());
    }
}

/// `clusterIP` is the first of `clusterIPs`; whoever changes one of them means both.
fn normalize(spec: &mut Spec, old: Option<&Spec>) {
    let address = text(spec, "clusterIP").to_owned();
    let Some(old) = old else {
        if !address.is_empty() && list(spec, "clusterIPs").is_empty() {
            spec.insert("clusterIPs".to_owned(), json!([address]));
        }
        return;
    };
    let is_same_list = list(old, "clusterIPs") == list(spec, "clusterIPs");
    if list(spec, "clusterIPs").is_empty() && text(old, "clusterIP") == address {
        copy(spec, old, "clusterIPs");
    } else if text(old, "clusterIP") != address && is_same_list {
        if address.is_empty() {
            spec.remove("clusterIPs");
        } else {
            spec.insert("clusterIPs".to_owned(), json!([address]));
        }
    }
}

/// Whether addresses and families can be understood.
fn is_well_formed(spec: &Spec) -> bool {
    let addresses = list(spec, "clusterIPs");
    let first = addresses.first().and_then(Value::as_str).unwrap_or_default();
    let families = list(spec, "ipFamilies");
    let policy = spec.get("ipFamilyPolicy").filter(|policy| !policy.is_null());
    !has_addresses(spec)
        || (first == text(spec, "clusterIP")
            && addresses.len() <= 2
            && addresses.iter().enumerate().all(|(index, address)| {
                let address = address.as_str().unwrap_or_default();
                (index == 0 && address == "None" && addresses.len() == 1) || address.parse::<IpAddr>().is_ok()
            })
            && families.iter().all(|family| family == "IPv4" || family == "IPv6")
            && (families.len() < 2 || families.first() != families.get(1))
            && families.len() <= 2
            && addresses.iter().zip(families).all(|(address, family)| {
                let address = address.as_str().and_then(|address| address.parse::<IpAddr>().ok());
                address.is_none_or(|address| address.is_ipv4() == (family == "IPv4"))
            })
            && policy.is_none_or(|policy| {
                matches!(
                    policy.as_str(),
                    Some("SingleStack" | "PreferDualStack" | "RequireDualStack")
                )
            }))
}

/// `ipFamilies` and `ipFamilyPolicy`, on a cluster that has IPv4 alone.
fn families(spec: &mut Spec, old: Option<&Spec>) -> Result<(), Vec<FieldError>> {
    if !has_addresses(spec) {
        return Ok(());
    }
    let root = Path::new("spec");
    let is_headless = text(spec, "clusterIP") == "None";
    let selects = spec
        .get("selector")
        .and_then(Value::as_object)
        .is_some_and(|map| !map.is_empty());
    if spec.get("ipFamilyPolicy").is_none_or(Value::is_null) {
        let before = old
            .and_then(|old| old.get("ipFamilyPolicy"))
            .filter(|policy| !policy.is_null());
        let policy = match before {
            Some(policy) => policy.clone(),
            None if is_headless && !selects => json!("RequireDualStack"),
            None => json!("SingleStack"),
        };
        spec.insert("ipFamilyPolicy".to_owned(), policy);
    }
    let policy = text(spec, "ipFamilyPolicy").to_owned();
    let policy_path = root.field("ipFamilyPolicy");
    let mut errors = Vec::new();
    if policy == "SingleStack" {
        if let Some(old) = old {
            for field in ["clusterIPs", "ipFamilies"] {
                let is_same = list(old, field) == list(spec, field);
                if let Some(items) = spec.get_mut(field).and_then(Value::as_array_mut).filter(|_| is_same) {
                    items.truncate(1);
                }
            }
        }
        for (field, words) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if list(spec, field).len() == 2 {
                errors.push(FieldError::invalid(
                    &policy_path,
                    policy.as_str(),
                    format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {words} are specified"),
                ));
            }
        }
    } else if let Some(old) = old {
        for (field, words) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
            let now = list(spec, field).len();
            if now > 0 && now < list(old, field).len() {
                errors.push(FieldError::invalid(
                    &policy_path,
                    policy.as_str(),
                    format!("must be 'SingleStack' to release the secondary {words}"),
                ));
            }
        }
    }
    let addresses = list(spec, "clusterIPs").to_vec();
    for (index, address) in addresses.iter().enumerate().skip(list(spec, "ipFamilies").len()) {
        match address.as_str().map(str::parse::<IpAddr>) {
            Some(Ok(IpAddr::V4(_))) => push(spec, "ipFamilies", json!("IPv4")),
            Some(Ok(IpAddr::V6(_))) => errors.push(FieldError::invalid(
                &root.field("clusterIPs").index(index),
                addresses.clone(),
                "IPv6 is not configured on this cluster",
            )),
            _ => break,
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    if is_headless && !selects {
        // Its endpoints are somebody else's: they may be of any family.
        if list(spec, "ipFamilies").is_empty() {
            push(spec, "ipFamilies", json!("IPv4"));
        }
        if let ([one], true) = (list(spec, "ipFamilies"), policy != "SingleStack") {
            let other = if one == "IPv4" { "IPv6" } else { "IPv4" };
            push(spec, "ipFamilies", json!(other));
        }
        return Ok(());
    }
    if policy == "RequireDualStack" {
        errors.push(FieldError::invalid(
            &policy_path,
            policy,
            "this cluster is not configured for dual-stack services",
        ));
    }
    for (index, family) in list(spec, "ipFamilies").iter().enumerate() {
        if family != "IPv4" {
            errors.push(FieldError::invalid(
                &root.field("ipFamilies").index(index),
                family.clone(),
                "not configured on this cluster",
            ));
        }
    }
    if errors.is_empty() && list(spec, "ipFamilies").is_empty() {
        push(spec, "ipFamilies", json!("IPv4"));
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn push(spec: &mut Spec, field: &str, value: Value) {
    match spec.get_mut(field).and_then(Value::as_array_mut) {
        Some(items) => items.push(value),
        None => {
            spec.insert(field.to_owned(), json!([value]));
        }
    }
}

/// An address is given once, and kept while the Service has a use for one.
fn address(turn: &mut Turn<'_>, spec: &mut Spec, old: Option<&Spec>) -> Result<(), Wrong> {
    let had = old.is_some_and(has_addresses);
    if !has_addresses(spec) || is_headless(spec) || had {
        return Ok(());
    }
    let all = list(spec, "clusterIPs").to_vec();
    let asked = all.first().and_then(Value::as_str).unwrap_or_default();
    let path = Path::new("spec.clusterIPs");
    let taken = match asked.parse::<Ipv4Addr>() {
        Ok(address) => {
            turn.take_address(address).map_err(|why| {
                Wrong::Field(FieldError::invalid(
                    &path,
                    all.clone(),
                    format!("failed to allocate IP {address}: {why}"),
                ))
            })?;
            address
        }
        Err(_) => turn
            .any_address()
            .map_err(|why| Wrong::Server(format!("failed to allocate a serviceIP for Service: {why}")))?,
    };
    let taken = taken.to_string();
    spec.insert("clusterIP".to_owned(), taken.clone().into());
    spec.insert("clusterIPs".to_owned(), json!([taken]));
    Ok(())
}

/// Node ports: those asked for, those it had, and new ones for the rest. Ports of one number (TCP and UDP) share one.
fn ports(turn: &mut Turn<'_>, spec: &mut Spec, old: Option<&Spec>) -> Result<(), Wrong> {
    if !has_node_ports(spec) {
        return Ok(());
    }
    let wants = wants_node_ports(spec);
    let path = Path::new("spec.ports");
    let had: Vec<i64> = old.map_or_else(Vec::new, |old| {
        list(old, "ports").iter().map(|port| number(port, "nodePort")).collect()
    });
    let mut items: Vec<Value> = list(spec, "ports").to_vec();
    let asked: Vec<(i64, i64)> = items
        .iter()
        .map(|port| (number(port, "port"), number(port, "nodePort")))
        .collect();
    // What this write took, by port number.
    let mut taken: Vec<(i64, i64)> = Vec::new();
    for (index, item) in items.iter_mut().enumerate() {
        let (port, node) = (number(item, "port"), number(item, "nodePort"));
        if node == 0 && !wants {
            continue;
        }
        let shared = taken.iter().find(|(known, _)| *known == port).map(|(_, node)| *node);
        let wanted = match node {
            // Only a new Service shares a port that it did not ask for.
            0 if old.is_none() => shared.or_else(|| {
                asked
                    .iter()
                    .find(|(known, node)| *known == port && *node != 0)
                    .map(|(_, node)| *node)
            }),
            0 => None,
            node => Some(node),
        };
        let node = match wanted {
            Some(node) => {
                if !had.contains(&node) && !taken.iter().any(|(_, known)| *known == node) {
                    turn.take_port(node).map_err(|why| {
                        Wrong::Field(FieldError::invalid(
                            &path.index(index).field("nodePort"),
                            node,
                            why.to_string(),
                        ))
                    })?;
                }
                node
            }
            None => turn
                .any_port()
                .map(i64::from)
                .map_err(|why| Wrong::Server(format!("failed to allocate a nodePort: {why}")))?,
        };
        object::as_map(item).insert("nodePort".to_owned(), node.into());
        taken.push((port, node));
    }
    spec.insert("ports".to_owned(), items.into());
    Ok(())
}

fn health_port(turn: &mut Turn<'_>, spec: &mut Spec, old: Option<&Spec>) -> Result<(), Wrong> {
    if !has_health_port(spec) || old.is_some_and(has_health_port) {
        return Ok(());
    }
    let asked = spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0);
    if asked != 0 {
        return turn.take_port(asked).map_err(|why| {
            Wrong::Server(format!(
                "failed to allocate requested HealthCheck NodePort {asked}: {why}"
            ))
        });
    }
    let port = turn
        .any_port()
        .map_err(|why| Wrong::Server(format!("failed to allocate a HealthCheck NodePort 0: {why}")))?;
    spec.insert("healthCheckNodePort".to_owned(), port.into());
    Ok(())
}

/// What a type had and the next has not is taken away, unless the same write changed it: then the rules refuse it.
fn drop_by_type(spec: &mut Spec, old: &Spec) {
    let same = |spec: &Spec, field: &str| spec.get(field) == old.get(field);
    if has_addresses(old) && !has_addresses(spec) {
        if same(spec, "clusterIP") && same(spec, "clusterIPs") {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if same(spec, field) {
                spec.remove(field);
            }
        }
    }
    let nodes = |spec: &Spec| -> Vec<i64> {
        list(spec, "ports")
            .iter()
            .map(|port| number(port, "nodePort"))
            .collect()
    };
    if has_node_ports(old) && !has_node_ports(spec) && nodes(spec) == nodes(old) {
        for port in spec
            .get_mut("ports")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            object::as_map(port).remove("nodePort");
        }
    }
    if has_health_port(old) && !has_health_port(spec) && same(spec, "healthCheckNodePort") {
        spec.remove("healthCheckNodePort");
    }
    if text(old, "type") == "LoadBalancer" && text(spec, "type") != "LoadBalancer" {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same(spec, field) {
                spec.remove(field);
            }
        }
    }
    if is_accessible(old) && !is_accessible(spec) && same(spec, "externalTrafficPolicy") {
        spec.remove("externalTrafficPolicy");
    }
}
