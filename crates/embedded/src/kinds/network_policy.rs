//! NetworkPolicy: stored, not enforced.

use serde_json::Value;

use super::checks::{Errors, among, cidr, parse_cidr, port_number};
use super::metadata::invalid;
use super::names;
use super::reading::{at, default_to, given, integer, list, list_mut, text};
use super::selector::check_selector;
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

pub static RULES: BuiltIn = BuiltIn {
    default,
    check,
    ..BuiltIn::PLAIN
};

fn default(policy: &mut Value) {
    let Some(spec) = policy.get_mut("spec") else {
        return;
    };
    for direction in ["ingress", "egress"] {
        for rule in list_mut(spec, direction) {
            for port in list_mut(rule, "ports") {
                default_to(port, "protocol", "TCP");
            }
        }
    }
    if list(spec, "policyTypes").is_empty()
        && let Some(map) = spec.as_object_mut()
    {
        let egress = map
            .get("egress")
            .and_then(Value::as_array)
            .is_some_and(|rules| !rules.is_empty());
        let types: &[&str] = if egress { &["Ingress", "Egress"] } else { &["Ingress"] };
        map.insert("policyTypes".to_owned(), types.to_vec().into());
    }
}

fn check(policy: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (spec, path) = (at(policy, "/spec"), Path::new("spec"));
    errors.extend(check_selector(at(spec, "/podSelector"), &path.field("podSelector")));
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in list(spec, direction).iter().enumerate() {
            let path = path.field(direction).index(index);
            for (index, port) in list(rule, "ports").iter().enumerate() {
                check_port(&mut errors, port, &path.field("ports").index(index));
            }
            for (index, peer) in list(rule, peers).iter().enumerate() {
                check_peer(&mut errors, peer, &path.field(peers).index(index));
            }
        }
    }
    let (types, path) = (list(spec, "policyTypes"), path.field("policyTypes"));
    if types.len() > 2 {
        errors.push(FieldError::invalid(
            &path,
            Value::from(types.to_vec()),
            "may not specify more than two policyTypes",
        ));
        return errors;
    }
    for (index, kind) in types.iter().enumerate() {
        among(&mut errors, &path.index(index), Some(kind), &["Ingress", "Egress"]);
    }
    errors
}

fn check_port(errors: &mut Errors, port: &Value, path: &Path) {
    among(
        errors,
        &path.field("protocol"),
        port.get("protocol"),
        &["TCP", "UDP", "SCTP"],
    );
    let end = integer(port, "endPort");
    let end_path = path.field("endPort");
    match given(port, "port") {
        Some(Value::String(name)) => {
            if let Some(end) = end {
                errors.push(FieldError::invalid(
                    &end_path,
                    end,
                    "may not be specified when `port` is non-numeric",
                ));
            }
            invalid(errors, &path.field("port"), name, names::port_name(name));
        }
        Some(number) => {
            let number = number.as_i64().unwrap_or(0);
            port_number(errors, &path.field("port"), number);
            if let Some(end) = end {
                if end < number {
                    // The reference shows the port, not the end.
                    errors.push(FieldError::invalid(
                        &end_path,
                        number,
                        "must be greater than or equal to `port`",
                    ));
                }
                port_number(errors, &end_path, end);
            }
        }
        None => {
            if let Some(end) = end {
                errors.push(FieldError::invalid(
                    &end_path,
                    end,
                    "may not be specified when `port` is not specified",
                ));
            }
        }
    }
}

fn check_peer(errors: &mut Errors, peer: &Value, path: &Path) {
    let mut peers = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = given(peer, field) {
            peers += 1;
            errors.extend(check_selector(selector, &path.field(field)));
        }
    }
    let block = given(peer, "ipBlock");
    if let Some(block) = block {
        peers += 1;
        check_block(errors, block, &path.field("ipBlock"));
    }
    if peers == 0 {
        errors.push(FieldError::required(path, "must specify a peer"));
    } else if peers > 1 && block.is_some() {
        errors.push(FieldError::forbidden(
            path,
            "may not specify both ipBlock and another peer",
        ));
    }
}

fn check_block(errors: &mut Errors, block: &Value, path: &Path) {
    let whole = text(block, "cidr");
    if whole.is_empty() {
        errors.push(FieldError::required(&path.field("cidr"), ""));
        return;
    }
    cidr(errors, &path.field("cidr"), whole);
    let Some(whole) = parse_cidr(whole) else {
        return;
    };
    for (index, except) in list(block, "except").iter().enumerate() {
        let (path, except) = (path.field("except").index(index), except.as_str().unwrap_or_default());
        cidr(errors, &path, except);
        if let Some(part) = parse_cidr(except)
            && !(whole.contains(&part.network()) && whole.prefix_len() < part.prefix_len())
        {
            errors.push(FieldError::invalid(&path, except, "must be a strict subset of `cidr`"));
        }
    }
}
