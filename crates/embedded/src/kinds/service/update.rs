//! What an update of a Service keeps, drops and refuses.

use serde_json::{Value, json};

use super::{default_cluster_ips, externally_accessible, is_headless, needs_health_check};
use crate::fault::{FieldError, Path};
use crate::kinds::checks::Errors;
use crate::kinds::reading::{at, default_if_empty, default_to, given, integer, list, list_mut, text};

const ONCE: &str = "may not change once set";

/// A client that reads, changes and writes may leave out what it does not know: the address stays. What only the old
/// type had goes, unless it was changed on purpose, which is then refused.
pub(super) fn on_update(new: &mut Value, old: &Value) {
    let before = at(old, "/spec");
    let Some(spec) = new.get_mut("spec") else {
        return;
    };
    let kind = text(spec, "type").to_owned();
    if kind != "ExternalName" && text(before, "type") != "ExternalName" {
        if text(spec, "clusterIP").is_empty() && list(spec, "clusterIPs").is_empty() {
            keep(spec, before, "clusterIP");
            keep(spec, before, "clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            keep(spec, before, field);
        }
    }
    follow_first_address(spec, before);
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") && kind == text(before, "type") {
        keep_node_ports(spec, before);
    }
    drop_by_type(spec, before);
    if kind != "LoadBalancer"
        && let Some(Value::Object(status)) = new.get_mut("status")
    {
        status.insert("loadBalancer".to_owned(), json!({}));
    }
}

/// Who changes `clusterIP` and not `clusterIPs` means both.
fn follow_first_address(spec: &mut Value, before: &Value) {
    let changed = |field: &str| spec.get(field) != before.get(field);
    let address = text(spec, "clusterIP").to_owned();
    if !changed("clusterIP") || changed("clusterIPs") {
        default_cluster_ips(spec);
        return;
    }
    if let Some(map) = spec.as_object_mut() {
        if address.is_empty() {
            map.remove("clusterIPs");
        } else {
            map.insert("clusterIPs".to_owned(), json!([address]));
        }
    }
}

fn drop_by_type(spec: &mut Value, before: &Value) {
    let has_address = |spec: &Value| text(spec, "type") != "ExternalName";
    let has_node_ports = |spec: &Value| matches!(text(spec, "type"), "NodePort" | "LoadBalancer");
    let balances = |spec: &Value| text(spec, "type") == "LoadBalancer";
    let mut gone: Vec<&str> = Vec::new();
    if has_address(before) && !has_address(spec) {
        gone.extend(["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]);
    }
    if needs_health_check(before) && !needs_health_check(spec) {
        gone.push("healthCheckNodePort");
    }
    if balances(before) && !balances(spec) {
        gone.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if externally_accessible(before) && !externally_accessible(spec) {
        gone.push("externalTrafficPolicy");
    }
    let ports = |spec: &Value| -> Vec<Option<i64>> {
        list(spec, "ports")
            .iter()
            .map(|port| integer(port, "nodePort"))
            .collect()
    };
    let ports_gone = has_node_ports(before) && !has_node_ports(spec) && ports(before) == ports(spec);
    if let Some(map) = spec.as_object_mut() {
        for field in gone {
            if map.get(field) == before.get(field) {
                map.remove(field);
            }
        }
    }
    if ports_gone {
        for port in list_mut(spec, "ports") {
            if let Some(map) = port.as_object_mut() {
                map.remove("nodePort");
            }
        }
    }
}

fn keep(spec: &mut Value, before: &Value, field: &str) {
    if let Some(value) = given(before, field) {
        default_to(spec, field, value.clone());
    }
}

fn keep_node_ports(spec: &mut Value, before: &Value) {
    let old: Vec<(String, i64, i64)> = list(before, "ports")
        .iter()
        .map(|port| {
            (
                text(port, "protocol").to_owned(),
                integer(port, "port").unwrap_or(0),
                integer(port, "nodePort").unwrap_or(0),
            )
        })
        .collect();
    for port in list_mut(spec, "ports") {
        let (protocol, number) = (text(port, "protocol").to_owned(), integer(port, "port").unwrap_or(0));
        let found = old
            .iter()
            .find(|(kind, port, node)| *kind == protocol && *port == number && *node != 0);
        if let Some((_, _, node)) = found {
            default_if_empty(port, "nodePort", *node);
        }
    }
}

pub(super) fn check_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (now, before) = (at(new, "/spec"), at(old, "/spec"));
    if text(now, "type") != "ExternalName" && text(before, "type") != "ExternalName" {
        check_addresses(&mut errors, now, before);
    }
    let (class, old_class) = (at(now, "/loadBalancerClass"), at(before, "/loadBalancerClass"));
    if text(now, "type") == "LoadBalancer" && text(before, "type") == "LoadBalancer" && class != old_class {
        errors.push(FieldError::invalid(
            &Path::new("spec.loadBalancerClass"),
            class.clone(),
            ONCE,
        ));
    }
    errors
}

fn check_addresses(errors: &mut Errors, now: &Value, before: &Value) {
    if is_headless(now) && is_headless(before) {
        return;
    }
    let (new, old) = (list(now, "clusterIPs"), list(before, "clusterIPs"));
    let path = Path::new("spec.clusterIPs");
    if new.is_empty() && !old.is_empty() {
        errors.push(FieldError::invalid(
            &path.index(0),
            Value::Null,
            "primary clusterIP can not be unset",
        ));
    }
    for (index, (new_one, old_one)) in new.iter().zip(old).enumerate() {
        // Of two, only the first is compared where the other comes or goes.
        if new_one != old_one && (index == 0 || new.len() == old.len()) {
            errors.push(FieldError::invalid(&path.index(index), new.to_vec(), ONCE));
        }
    }
    let single = text(now, "ipFamilyPolicy") == "SingleStack";
    if old.len() > new.len() && new.len() == 1 && !single {
        errors.push(FieldError::invalid(
            &Path::new("spec.ipFamilyPolicy"),
            at(now, "/ipFamilyPolicy").clone(),
            "must be set to 'SingleStack' when releasing the secondary clusterIP",
        ));
    }
    if is_headless(now) != is_headless(before) {
        return;
    }
    let (new, old) = (list(now, "ipFamilies"), list(before, "ipFamilies"));
    for (index, (new_one, old_one)) in new.iter().zip(old).enumerate() {
        if new_one != old_one && (index == 0 || new.len() == old.len()) {
            errors.push(FieldError::invalid(
                &Path::new("spec.ipFamilies").index(0),
                new.to_vec(),
                ONCE,
            ));
        }
    }
}
