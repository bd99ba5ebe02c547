//! EndpointSlice.

use serde_json::Value;

use super::checks::{Errors, among, dns_label, dns_subdomain, endpoint_ip, immutable, parse_ip, qualified};
use super::endpoints::PROTOCOLS;
use super::metadata::{check_label, invalid};
use super::names;
use super::reading::{at, default_to, entries, given, list, list_mut, text};
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

const MOST_ENDPOINTS: usize = 1000;
const MOST_ADDRESSES: usize = 100;
const MOST_PORTS: usize = 20_000;
const MOST_TOPOLOGY: usize = 16;
const MOST_HINTS: usize = 8;

pub static RULES: BuiltIn = BuiltIn {
    default,
    check,
    check_update,
    generation_counts: "labels",
    ..BuiltIn::PLAIN
};

fn default(slice: &mut Value) {
    for port in list_mut(slice, "ports") {
        default_to(port, "name", "");
        default_to(port, "protocol", "TCP");
    }
}

fn check(slice: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = text(slice, "addressType");
    if kind.is_empty() {
        errors.push(FieldError::required(&Path::new("addressType"), ""));
    } else {
        among(
            &mut errors,
            &Path::new("addressType"),
            slice.get("addressType"),
            &["FQDN", "IPv4", "IPv6"],
        );
    }
    check_ports(&mut errors, list(slice, "ports"), &Path::new("ports"));
    check_endpoints(&mut errors, list(slice, "endpoints"), kind, &Path::new("endpoints"));
    errors
}

fn check_ports(errors: &mut Errors, ports: &[Value], path: &Path) {
    if ports.len() > MOST_PORTS {
        errors.push(FieldError::too_many(path, ports.len(), MOST_PORTS));
        return;
    }
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            dns_label(errors, &path.field("name"), name);
        }
        if ports.iter().take(index).any(|earlier| text(earlier, "name") == name) {
            errors.push(FieldError::duplicate(&path.field("name"), name));
        }
        among(errors, &path.field("protocol"), port.get("protocol"), PROTOCOLS);
        if given(port, "appProtocol").is_some() {
            qualified(errors, &path.field("appProtocol"), text(port, "appProtocol"));
        }
    }
}

fn check_endpoints(errors: &mut Errors, endpoints: &[Value], kind: &str, path: &Path) {
    if endpoints.len() > MOST_ENDPOINTS {
        errors.push(FieldError::too_many(path, endpoints.len(), MOST_ENDPOINTS));
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let path = path.index(index);
        let addresses = list(endpoint, "addresses");
        let addresses_path = path.field("addresses");
        if addresses.is_empty() {
            errors.push(FieldError::required(&addresses_path, "must contain at least 1 address"));
        } else if addresses.len() > MOST_ADDRESSES {
            errors.push(FieldError::too_many(&addresses_path, addresses.len(), MOST_ADDRESSES));
        }
        for (index, address) in addresses.iter().enumerate() {
            check_address(
                errors,
                address.as_str().unwrap_or_default(),
                kind,
                &addresses_path,
                index,
            );
        }
        if given(endpoint, "nodeName").is_some() {
            dns_subdomain(errors, &path.field("nodeName"), text(endpoint, "nodeName"));
        }
        let topology = path.field("deprecatedTopology");
        let labels = entries(endpoint, "deprecatedTopology").count();
        if labels > MOST_TOPOLOGY {
            errors.push(FieldError::too_many(&topology, labels, MOST_TOPOLOGY));
        }
        for (key, value) in entries(endpoint, "deprecatedTopology") {
            check_label(key, value, &topology, errors);
        }
        if given(endpoint, "hostname").is_some() {
            dns_label(errors, &path.field("hostname"), text(endpoint, "hostname"));
        }
        check_hints(errors, at(endpoint, "/hints"), &path.field("hints"));
    }
}

fn check_address(errors: &mut Errors, address: &str, kind: &str, list: &Path, index: usize) {
    let path = list.index(index);
    match kind {
        "IPv4" | "IPv6" => {
            let before = errors.len();
            super::checks::ip(errors, &path, address);
            let Some(parsed) = parse_ip(address).filter(|_| errors.len() == before) else {
                return;
            };
            if parsed.is_ipv4() != (kind == "IPv4") {
                errors.push(FieldError::invalid(list, address, format!("must be an {kind} address")));
            }
            endpoint_ip(errors, &path, address);
        }
        "FQDN" => check_domain(errors, address, &path),
        _ => {}
    }
}

fn check_domain(errors: &mut Errors, name: &str, path: &Path) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let wrong = names::dns_subdomain(name);
    if !wrong.is_empty() {
        errors.push(FieldError::invalid(path, name, wrong.join(",")));
    } else if !name.contains('.') {
        errors.push(FieldError::invalid(
            path,
            name,
            "should be a domain with at least two segments separated by dots",
        ));
    } else if let Some(label) = name.split('.').find(|label| !names::dns_label(label).is_empty()) {
        errors.push(FieldError::invalid(path, label, names::dns_label(label).join(",")));
    }
}

fn check_hints(errors: &mut Errors, hints: &Value, path: &Path) {
    for (field, rule) in [
        ("forZones", names::label_value as fn(&str) -> Vec<String>),
        ("forNodes", names::dns_subdomain),
    ] {
        let (path, places) = (path.field(field), list(hints, field));
        if places.len() > MOST_HINTS {
            errors.push(FieldError::too_many(&path, places.len(), MOST_HINTS));
            return;
        }
        for (index, place) in places.iter().enumerate() {
            let (path, name) = (path.index(index).field("name"), text(place, "name"));
            if places.iter().take(index).any(|earlier| text(earlier, "name") == name) {
                errors.push(FieldError::duplicate(&path, name));
            }
            invalid(errors, &path, name, rule(name));
        }
    }
}

fn check_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    immutable(
        &mut errors,
        &Path::new("addressType"),
        at(new, "/addressType"),
        at(old, "/addressType"),
    );
    errors
}
