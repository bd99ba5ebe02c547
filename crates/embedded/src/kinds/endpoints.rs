//! Endpoints.

use serde_json::Value;

use super::checks::{Errors, among, dns_label, dns_subdomain, endpoint_ip, ip, port_number, qualified};
use super::reading::{default_if_empty, given, integer, list, list_mut, text};
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

pub(super) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

pub static RULES: BuiltIn = BuiltIn {
    default,
    check,
    has_generation: false,
    create_on_update: true,
    ..BuiltIn::PLAIN
};

fn default(endpoints: &mut Value) {
    for subset in list_mut(endpoints, "subsets") {
        for port in list_mut(subset, "ports") {
            default_if_empty(port, "protocol", "TCP");
        }
    }
}

fn check(endpoints: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, subset) in list(endpoints, "subsets").iter().enumerate() {
        let path = Path::new("subsets").index(index);
        let (ready, waiting) = (list(subset, "addresses"), list(subset, "notReadyAddresses"));
        if ready.is_empty() && waiting.is_empty() {
            errors.push(FieldError::required(
                &path,
                "must specify `addresses` or `notReadyAddresses`",
            ));
        }
        for (field, addresses) in [("addresses", ready), ("notReadyAddresses", waiting)] {
            for (index, address) in addresses.iter().enumerate() {
                check_address(&mut errors, address, &path.field(field).index(index));
            }
        }
        let ports = list(subset, "ports");
        for (index, port) in ports.iter().enumerate() {
            check_port(&mut errors, port, ports.len() > 1, &path.field("ports").index(index));
        }
    }
    errors
}

fn check_address(errors: &mut Errors, address: &Value, path: &Path) {
    let text_ip = text(address, "ip");
    ip(errors, &path.field("ip"), text_ip);
    let host = text(address, "hostname");
    if !host.is_empty() {
        dns_label(errors, &path.field("hostname"), host);
    }
    if given(address, "nodeName").is_some() {
        dns_subdomain(errors, &path.field("nodeName"), text(address, "nodeName"));
    }
    endpoint_ip(errors, &path.field("ip"), text_ip);
}

fn check_port(errors: &mut Errors, port: &Value, named: bool, path: &Path) {
    let name = text(port, "name");
    if named && name.is_empty() {
        errors.push(FieldError::required(&path.field("name"), ""));
    } else if !name.is_empty() {
        dns_label(errors, &path.field("name"), name);
    }
    port_number(errors, &path.field("port"), integer(port, "port").unwrap_or(0));
    if text(port, "protocol").is_empty() {
        errors.push(FieldError::required(&path.field("protocol"), ""));
    } else {
        among(errors, &path.field("protocol"), port.get("protocol"), PROTOCOLS);
    }
    if given(port, "appProtocol").is_some() {
        qualified(errors, &path.field("appProtocol"), text(port, "appProtocol"));
    }
}
