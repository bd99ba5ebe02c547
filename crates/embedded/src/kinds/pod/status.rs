//! What may be said of a pod's state.

use serde_json::Value;

use crate::fault::{FieldError, Path};
use crate::kinds::checks::{Errors, dns_subdomain, immutable, ip, parse_ip, qualified};
use crate::kinds::reading::{at, given, integer, list, text};

pub(super) fn check_status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (now, before, path) = (at(new, "/status"), at(old, "/status"), Path::new("status"));
    check_conditions(&mut errors, list(now, "conditions"), &path.field("conditions"));
    let nominated = text(now, "nominatedNodeName");
    if !nominated.is_empty() && nominated != text(before, "nominatedNodeName") {
        let path = path.field("nominatedNodeName");
        dns_subdomain(&mut errors, &path, nominated);
        if !text(at(old, "/spec"), "nodeName").is_empty() {
            errors.push(FieldError::forbidden(
                &path,
                "may not be set on pods that are already bound to a node",
            ));
        }
    }
    not_negative(&mut errors, now, &path);
    if given(now, "qosClass").is_some() {
        immutable(
            &mut errors,
            &path.field("qosClass"),
            at(now, "/qosClass"),
            at(before, "/qosClass"),
        );
    }
    check_transitions(&mut errors, new, old, &path.field("containerStatuses"));
    check_addresses(&mut errors, now, &path);
    errors
}

fn not_negative(errors: &mut Errors, holder: &Value, path: &Path) {
    if let Some(generation) = integer(holder, "observedGeneration").filter(|generation| *generation < 0) {
        errors.push(FieldError::invalid(
            &path.field("observedGeneration"),
            generation,
            "must be a non-negative integer",
        ));
    }
}

fn check_conditions(errors: &mut Errors, conditions: &[Value], path: &Path) {
    for (index, condition) in conditions.iter().enumerate() {
        let (path, kind) = (path.index(index), text(condition, "type"));
        not_negative(errors, condition, &path);
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            qualified(errors, &path.field("Type"), kind);
        }
    }
}

/// A container that ended runs again only where the pod's restart policy, or its own, says so.
fn check_transitions(errors: &mut Errors, new: &Value, old: &Value, path: &Path) {
    let spec = at(old, "/spec");
    let statuses = |pod: &'_ Value| -> Vec<Value> { list(at(pod, "/status"), "containerStatuses").to_vec() };
    let now = statuses(new);
    for (index, status) in statuses(old).iter().enumerate() {
        let Some(ended) = status.pointer("/state/terminated").filter(|ended| !ended.is_null()) else {
            continue;
        };
        let name = text(status, "name");
        let runs = |status: &Value| text(status, "name") == name && at(status, "/state/terminated").is_null();
        if now.iter().any(runs) && !restarts(spec, name, integer(ended, "exitCode").unwrap_or(0)) {
            errors.push(FieldError::forbidden(
                &path.index(index).field("state"),
                "may not be transitioned to non-terminated state",
            ));
        }
    }
}

fn restarts(spec: &Value, name: &str, code: i64) -> bool {
    let Some(container) = list(spec, "containers")
        .iter()
        .find(|container| text(container, "name") == name)
    else {
        return false;
    };
    for rule in list(container, "restartPolicyRules") {
        let codes = at(rule, "/exitCodes");
        let among = list(codes, "values").iter().any(|value| value.as_i64() == Some(code));
        if among == (text(codes, "operator") == "In") {
            return text(rule, "action") == "Restart";
        }
    }
    let own = text(container, "restartPolicy");
    match if own.is_empty() {
        text(spec, "restartPolicy")
    } else {
        own
    } {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

fn check_addresses(errors: &mut Errors, status: &Value, path: &Path) {
    for field in ["podIPs", "hostIPs"] {
        let (path, addresses) = (path.field(field), list(status, field));
        if let Some(first) = addresses.first().filter(|_| field == "hostIPs") {
            let first = text(first, "ip");
            if first != text(status, "hostIP") {
                errors.push(FieldError::invalid(
                    &path.index(0).field("ip"),
                    first,
                    "must be equal to `hostIP`",
                ));
            }
        }
        for (index, address) in addresses.iter().enumerate() {
            ip(errors, &path.index(index), text(address, "ip"));
        }
        if addresses.len() > 1 {
            let parsed: Vec<_> = addresses
                .iter()
                .filter_map(|address| parse_ip(text(address, "ip")))
                .collect();
            let both = matches!(parsed.as_slice(), [one, two] if one.is_ipv4() != two.is_ipv4());
            if !both {
                let shown: Vec<Value> = addresses
                    .iter()
                    .map(|address| serde_json::json!({"IP": text(address, "ip")}))
                    .collect();
                errors.push(FieldError::invalid(
                    &path,
                    shown,
                    "may specify no more than one IP for each IP family",
                ));
            }
        }
    }
}
