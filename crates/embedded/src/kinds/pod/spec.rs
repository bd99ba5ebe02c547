//! Rules on a pod's spec, alone or in a template.

use serde_json::Value;

use super::containers::{Around, check_containers, check_init_containers, required_word};
use super::placement::{check_affinity, check_spreading};
use super::security::check_pod_security;
use crate::fault::Wrong;
use crate::fault::{FieldError, Path};
use crate::kinds::checks::{Errors, about_struct, among, dns_label, dns_subdomain, go_struct, ip, qualified};
use crate::kinds::metadata::check_label;
use crate::kinds::names;
use crate::kinds::reading::{at, entries, given, integer, list, text, truth};
use crate::kinds::resources::check_amount;
use crate::kinds::tolerations::check_tolerations;
use crate::kinds::volume_source::check_volumes;

const MOST_SEARCHES: usize = 32;
const MOST_SEARCH_BYTES: usize = 2048;
const MOST_NAMESERVERS: usize = 3;

/// `pod` is the pod's name, empty in a template.
pub(in crate::kinds) fn check_spec(errors: &mut Errors, spec: &Value, pod: &str, path: &Path) {
    if given(spec, "terminationGracePeriodSeconds").is_none() {
        errors.push(FieldError::required(&path.field("terminationGracePeriodSeconds"), ""));
    }
    let volumes = check_volumes(errors, list(spec, "volumes"), pod, &path.field("volumes"));
    check_claims(errors, list(spec, "resourceClaims"), &path.field("resourceClaims"));
    let mut claims: Vec<&str> = list(spec, "resourceClaims")
        .iter()
        .map(|claim| text(claim, "name"))
        .collect();
    claims.retain(|name| !name.is_empty());
    claims.sort_unstable();
    let around = Around { spec, volumes, claims };
    check_containers(errors, &around, &path.field("containers"));
    check_init_containers(errors, &around, &path.field("initContainers"));
    check_host_network(errors, spec, pod, path);
    required_word(errors, spec, "restartPolicy", &["Always", "OnFailure", "Never"], path);
    required_word(
        errors,
        spec,
        "dnsPolicy",
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        path,
    );
    for (key, value) in entries(spec, "nodeSelector") {
        check_label(key, value, &path.field("nodeSelector"), errors);
    }
    check_pod_security(errors, spec, &path.field("securityContext"));
    check_affinity(errors, at(spec, "/affinity"), &path.field("affinity"));
    check_dns(errors, spec, &path.field("dnsConfig"));
    check_gates(errors, spec, path);
    check_spreading(
        errors,
        list(spec, "topologySpreadConstraints"),
        &path.field("topologySpreadConstraints"),
    );
    check_host_users(errors, spec, path);
    check_names(errors, spec, path);
    check_rest(errors, spec, path);
}

fn check_claims(errors: &mut Errors, claims: &[Value], path: &Path) {
    for (index, claim) in claims.iter().enumerate() {
        let (path, name) = (path.index(index), text(claim, "name"));
        if name.is_empty() {
            errors.push(FieldError::required(&path.field("name"), ""));
        } else if claims.iter().take(index).any(|earlier| text(earlier, "name") == name) {
            errors.push(FieldError::duplicate(&path.field("name"), name));
        } else {
            dns_label(errors, &path.field("name"), name);
        }
        let (direct, template) = (
            given(claim, "resourceClaimName").is_some(),
            given(claim, "resourceClaimTemplateName").is_some(),
        );
        let words = match (direct, template) {
            (true, true) => Some("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"),
            (false, false) => Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            _ => None,
        };
        if let Some(words) = words {
            let shown = go_struct(
                claim,
                &[
                    ("Name", "name", "\"\""),
                    ("ResourceClaimName", "resourceClaimName", "null"),
                    ("ResourceClaimTemplateName", "resourceClaimTemplateName", "null"),
                ],
            );
            errors.push(about_struct(Wrong::Invalid, &path, &shown, words));
        }
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            if given(claim, field).is_some() {
                dns_subdomain(errors, &path.field(field), text(claim, field));
            }
        }
    }
}

fn check_host_network(errors: &mut Errors, spec: &Value, pod: &str, path: &Path) {
    if truth(spec, "hostNetwork") != Some(true) {
        return;
    }
    for (index, container) in list(spec, "containers").iter().enumerate() {
        for (port_index, port) in list(container, "ports").iter().enumerate() {
            let host = integer(port, "hostPort").unwrap_or(0);
            // In a template it may be left for the pod's defaults.
            let left = host == 0 && pod.is_empty();
            if !left && Some(host) != integer(port, "containerPort") {
                let path = path.field("containers").index(index).field("ports").index(port_index);
                errors.push(FieldError::invalid(
                    &path.field("hostPort"),
                    host,
                    "must match `containerPort` when `hostNetwork` is true",
                ));
            }
        }
    }
}

fn check_dns(errors: &mut Errors, spec: &Value, path: &Path) {
    let config = given(spec, "dnsConfig");
    let servers = config.map(|config| list(config, "nameservers")).unwrap_or_default();
    if text(spec, "dnsPolicy") == "None" {
        if config.is_none() {
            errors.push(FieldError::required(
                path,
                "must provide `dnsConfig` when `dnsPolicy` is None",
            ));
            return;
        }
        if servers.is_empty() {
            errors.push(FieldError::required(
                &path.field("nameservers"),
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            ));
            return;
        }
    }
    let Some(config) = config else {
        return;
    };
    if servers.len() > MOST_NAMESERVERS {
        errors.push(FieldError::invalid(
            &path.field("nameservers"),
            servers.to_vec(),
            format!("must not have more than {MOST_NAMESERVERS} nameservers"),
        ));
    }
    for (index, server) in servers.iter().enumerate() {
        ip(
            errors,
            &path.field("nameservers").index(index),
            server.as_str().unwrap_or_default(),
        );
    }
    let (searches, path_of_searches) = (list(config, "searches"), path.field("searches"));
    if searches.len() > MOST_SEARCHES {
        errors.push(FieldError::invalid(
            &path_of_searches,
            searches.to_vec(),
            format!("must not have more than {MOST_SEARCHES} search paths"),
        ));
    }
    let bytes: usize = searches
        .iter()
        .filter_map(Value::as_str)
        .map(|search| search.len() + 1)
        .sum();
    if bytes > MOST_SEARCH_BYTES + 1 {
        errors.push(FieldError::invalid(
            &path_of_searches,
            searches.to_vec(),
            format!("must not have more than {MOST_SEARCH_BYTES} characters (including spaces) in the search list"),
        ));
    }
    for (index, search) in searches.iter().enumerate() {
        let search = search.as_str().unwrap_or_default();
        if search != "." {
            let search = search.strip_suffix('.').unwrap_or(search);
            check_search(errors, search, &path_of_searches.index(index));
        }
    }
    for (index, option) in list(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.push(FieldError::required(
                &path.field("options").index(index),
                "must not be empty",
            ));
        }
    }
}

/// A subdomain whose parts may start with and contain underscores.
fn check_search(errors: &mut Errors, search: &str, path: &Path) {
    if search.len() > 253 {
        errors.push(FieldError::invalid(path, search, names::too_long(253)));
    }
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = |part: &str| {
        let part = part.strip_prefix('_').unwrap_or(part).as_bytes();
        part.first().is_some_and(plain)
            && part.last().is_some_and(plain)
            && part.iter().all(|byte| plain(byte) || b"-_".contains(byte))
    };
    if !search.split('.').all(fits) {
        errors.push(FieldError::invalid(
            path,
            search,
            names::pattern_error(
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
                 and must start and end with an alphanumeric character",
                &["example.com"],
                r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            ),
        ));
    }
}

fn check_gates(errors: &mut Errors, spec: &Value, path: &Path) {
    for (index, gate) in list(spec, "readinessGates").iter().enumerate() {
        let path = path.field("readinessGates").index(index).field("conditionType");
        qualified(errors, &path, text(gate, "conditionType"));
    }
    let gates = list(spec, "schedulingGates");
    for (index, gate) in gates.iter().enumerate() {
        let (path, name) = (path.field("schedulingGates").index(index), text(gate, "name"));
        qualified(errors, &path, name);
        if gates.iter().take(index).any(|earlier| text(earlier, "name") == name) {
            errors.push(FieldError::duplicate(&path, name));
        }
    }
}

fn check_host_users(errors: &mut Errors, spec: &Value, path: &Path) {
    if truth(spec, "hostUsers") != Some(false) {
        return;
    }
    for (field, shown) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if truth(spec, field) == Some(true) {
            errors.push(FieldError::forbidden(&path.field(shown), "when `hostUsers` is false"));
        }
    }
}

fn check_names(errors: &mut Errors, spec: &Value, path: &Path) {
    if let Some(name) = given(spec, "hostnameOverride").and_then(Value::as_str) {
        let path = path.field("hostnameOverride");
        for (field, words) in [
            (
                "setHostnameAsFQDN",
                "may not be specified when setHostnameAsFQDN is true",
            ),
            ("hostNetwork", "may not be specified when hostNetwork is true"),
        ] {
            if truth(spec, field) == Some(true) {
                errors.push(FieldError::forbidden(&path, words));
            }
        }
        if name.len() > 64 {
            errors.push(FieldError::too_long(&path, 64));
        }
        dns_subdomain(errors, &path, name);
    }
    for field in ["serviceAccountName", "nodeName"] {
        if !text(spec, field).is_empty() {
            dns_subdomain(errors, &path.field(field), text(spec, field));
        }
    }
    if let Some(seconds) =
        integer(spec, "activeDeadlineSeconds").filter(|seconds| !(1..=i64::from(i32::MAX)).contains(seconds))
    {
        errors.push(FieldError::invalid(
            &path.field("activeDeadlineSeconds"),
            seconds,
            names::between(1, i64::from(i32::MAX)),
        ));
    }
    for field in ["hostname", "subdomain"] {
        if !text(spec, field).is_empty() {
            dns_label(errors, &path.field(field), text(spec, field));
        }
    }
}

fn check_rest(errors: &mut Errors, spec: &Value, path: &Path) {
    check_tolerations(errors, list(spec, "tolerations"), &path.field("tolerations"));
    for (index, alias) in list(spec, "hostAliases").iter().enumerate() {
        let path = path.field("hostAliases").index(index);
        ip(errors, &path.field("ip"), text(alias, "ip"));
        for (index, name) in list(alias, "hostnames").iter().enumerate() {
            dns_subdomain(
                errors,
                &path.field("hostnames").index(index),
                name.as_str().unwrap_or_default(),
            );
        }
    }
    for field in ["priorityClassName", "runtimeClassName"] {
        if !text(spec, field).is_empty() || (field == "runtimeClassName" && given(spec, field).is_some()) {
            dns_subdomain(errors, &path.field(field), text(spec, field));
        }
    }
    among(
        errors,
        &path.field("preemptionPolicy"),
        spec.get("preemptionPolicy"),
        &["PreemptLowerPriority", "Never"],
    );
    for (name, value) in entries(spec, "overhead") {
        check_amount(errors, name, value, &path.field("overhead").field("limits").key(name));
    }
    if let Some(os) = given(spec, "os") {
        let path = path.field("os");
        let name = text(os, "name");
        if name.is_empty() {
            errors.push(FieldError::required(&path.field("name"), "cannot be empty"));
        } else if name != "linux" && name != "windows" {
            errors.push(FieldError::not_supported(&path, name, &["linux", "windows"]));
        }
    }
}
