//! Service. Addresses and node ports are given out by the registry's admission; here are defaults and rules.

mod update;

use std::net::IpAddr;

use serde_json::{Value, json};

use super::checks::{
    Errors, about_struct, among, cidr, dns_label, dns_subdomain, endpoint_ip, go_struct, ip, parse_ip, port_number,
    port_number_or_name, qualified,
};
use super::endpoints::PROTOCOLS;
use super::metadata::check_label;
use super::reading::{
    at, default_if_empty, default_to, entries, given, integer, list, list_mut, object_mut, text, text_at,
};
use crate::fault::{FieldError, Path, Wrong};
use crate::registry::row::{BuiltIn, NameRule};

/// Seconds that a client keeps its pod, where the Service asks for that at all.
const AFFINITY_SECONDS: i64 = 10_800;
const MOST_AFFINITY_SECONDS: i64 = 86_400;
const FOR_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";

pub static RULES: BuiltIn = BuiltIn {
    default,
    on_create: |service| {
        if let Some(map) = service.as_object_mut() {
            map.insert("status".to_owned(), json!({"loadBalancer": {}}));
        }
        if let Some(spec) = service.get_mut("spec") {
            default_cluster_ips(spec);
        }
    },
    on_update: update::on_update,
    check,
    check_update: update::check_update,
    warn,
    fields: &[
        ("spec.clusterIP", |service| {
            text_at(service, "/spec/clusterIP").to_owned()
        }),
        ("spec.type", |service| text_at(service, "/spec/type").to_owned()),
    ],
    has_generation: false,
    // Since 1.36 a name may start with a digit.
    name: NameRule::Label,
    create_on_update: true,
    ..BuiltIn::PLAIN
};

fn externally_accessible(spec: &Value) -> bool {
    matches!(text(spec, "type"), "LoadBalancer" | "NodePort")
        || (text(spec, "type") == "ClusterIP" && !list(spec, "externalIPs").is_empty())
}

fn needs_health_check(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn is_headless(spec: &Value) -> bool {
    matches!(list(spec, "clusterIPs"), [one] if one == "None")
}

fn default(service: &mut Value) {
    let Some(spec) = object_mut(service, "spec") else {
        return;
    };
    default_if_empty(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            if let Some(map) = spec.as_object_mut() {
                map.remove("sessionAffinityConfig");
            }
        }
        "ClientIP" if at(spec, "/sessionAffinityConfig/clientIP/timeoutSeconds").is_null() => {
            if let Some(map) = spec.as_object_mut() {
                map.insert(
                    "sessionAffinityConfig".to_owned(),
                    json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}),
                );
            }
        }
        _ => {}
    }
    default_if_empty(spec, "type", "ClusterIP");
    for port in list_mut(spec, "ports") {
        default_if_empty(port, "protocol", "TCP");
        let number = integer(port, "port").unwrap_or(0);
        default_if_empty(port, "targetPort", number);
    }
    if externally_accessible(spec) {
        default_if_empty(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(text(spec, "type"), "NodePort" | "LoadBalancer" | "ClusterIP") {
        default_to(spec, "internalTrafficPolicy", "Cluster");
    }
    if text(spec, "type") == "LoadBalancer" {
        default_to(spec, "allocateLoadBalancerNodePorts", true);
    }
    let balances = text(spec, "type") == "LoadBalancer";
    if let Some(balancer) = service.pointer_mut("/status/loadBalancer").filter(|_| balances) {
        for ingress in list_mut(balancer, "ingress") {
            if !text(ingress, "ip").is_empty() {
                default_to(ingress, "ipMode", "VIP");
            }
        }
    }
}

/// `clusterIP` alone means a list of one.
fn default_cluster_ips(spec: &mut Value) {
    let address = text(spec, "clusterIP").to_owned();
    if !address.is_empty()
        && list(spec, "clusterIPs").is_empty()
        && let Some(map) = spec.as_object_mut()
    {
        map.insert("clusterIPs".to_owned(), json!([address]));
    }
}

fn warn(service: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = at(service, "/spec");
    let addresses = |service: &Value| !list(at(service, "/spec"), "externalIPs").is_empty();
    if is_headless(spec) {
        if addresses(service) {
            warnings.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if text(spec, "sessionAffinity") == "ClientIP" {
            warnings.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    } else if addresses(service) && !old.is_some_and(addresses) {
        warnings.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    warnings
}

fn check(service: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (spec, path) = (at(service, "/spec"), Path::new("spec"));
    let (kind, ports) = (text(spec, "type"), list(spec, "ports"));
    let headless = is_headless(spec);
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(FieldError::required(&path.field("ports"), ""));
    }
    if headless && matches!(kind, "LoadBalancer" | "NodePort") {
        errors.push(FieldError::invalid(
            &path.field("clusterIPs").index(0),
            "None",
            format!("may not be set to 'None' for {kind} services"),
        ));
    }
    if kind == "ExternalName" {
        check_external_name(&mut errors, spec, &path);
    }
    for (index, port) in ports.iter().enumerate() {
        check_port(&mut errors, ports, port, index, &path.field("ports").index(index));
    }
    for (key, value) in entries(spec, "selector") {
        check_label(key, value, &path.field("selector"), &mut errors);
    }
    check_affinity(&mut errors, spec, &path);
    if kind != "ExternalName" {
        check_cluster_ips(&mut errors, spec, &path);
    }
    for (index, address) in list(spec, "externalIPs").iter().enumerate() {
        let (path, address) = (
            path.field("externalIPs").index(index),
            address.as_str().unwrap_or_default(),
        );
        let before = errors.len();
        ip(&mut errors, &path, address);
        if errors.len() == before {
            endpoint_ip(&mut errors, &path, address);
        }
    }
    among(
        &mut errors,
        &path.field("type"),
        spec.get("type"),
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    );
    check_node_ports(&mut errors, kind, ports, &path.field("ports"));
    check_balancer(&mut errors, service, spec, &path);
    check_traffic(&mut errors, spec, &path);
    errors
}

fn check_external_name(errors: &mut Errors, spec: &Value, path: &Path) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let set = match at(spec, &format!("/{field}")) {
            Value::Array(items) => !items.is_empty(),
            other => !other.is_null(),
        };
        if set {
            errors.push(FieldError::forbidden(
                &path.field(field),
                "may not be set for ExternalName services",
            ));
        }
    }
    let name = text(spec, "externalName");
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        errors.push(FieldError::required(&path.field("externalName"), ""));
    } else {
        dns_subdomain(errors, &path.field("externalName"), name);
    }
}

fn check_port(errors: &mut Errors, ports: &[Value], port: &Value, index: usize, path: &Path) {
    let name = text(port, "name");
    if ports.len() > 1 && name.is_empty() {
        errors.push(FieldError::required(&path.field("name"), ""));
    } else if !name.is_empty() {
        dns_label(errors, &path.field("name"), name);
        if ports.iter().take(index).any(|earlier| text(earlier, "name") == name) {
            errors.push(FieldError::duplicate(&path.field("name"), name));
        }
    }
    port_number(errors, &path.field("port"), integer(port, "port").unwrap_or(0));
    among(errors, &path.field("protocol"), port.get("protocol"), PROTOCOLS);
    port_number_or_name(errors, &path.field("targetPort"), at(port, "/targetPort"));
    if given(port, "appProtocol").is_some() {
        qualified(errors, &path.field("appProtocol"), text(port, "appProtocol"));
    }
}

fn check_affinity(errors: &mut Errors, spec: &Value, path: &Path) {
    among(
        errors,
        &path.field("sessionAffinity"),
        spec.get("sessionAffinity"),
        &["ClientIP", "None"],
    );
    if text(spec, "sessionAffinity") == "ClientIP" {
        let seconds = at(spec, "/sessionAffinityConfig/clientIP/timeoutSeconds")
            .as_i64()
            .unwrap_or(0);
        if seconds <= 0 || seconds > MOST_AFFINITY_SECONDS {
            errors.push(FieldError::invalid(
                &path
                    .field("sessionAffinityConfig")
                    .field("clientIP")
                    .field("timeoutSeconds"),
                seconds,
                format!("must be greater than 0 and less than {MOST_AFFINITY_SECONDS}"),
            ));
        }
    }
}

fn check_cluster_ips(errors: &mut Errors, spec: &Value, path: &Path) {
    let (first, all, list_path) = (
        text(spec, "clusterIP"),
        list(spec, "clusterIPs"),
        path.field("clusterIPs"),
    );
    if first.is_empty() {
        if !all.is_empty() {
            errors.push(FieldError::invalid(
                &list_path,
                all.to_vec(),
                "must be empty when `clusterIP` is not specified",
            ));
        }
    } else if all.first().is_none_or(|address| address != first) {
        errors.push(FieldError::invalid(
            &list_path,
            all.to_vec(),
            "first value must match `clusterIP`",
        ));
    }
    let families = list(spec, "ipFamilies");
    for (index, family) in families.iter().enumerate() {
        let path = path.field("ipFamilies").index(index);
        among(errors, &path, Some(family), &["IPv4", "IPv6"]);
        if families.iter().take(index).any(|earlier| earlier == family) {
            errors.push(FieldError::duplicate(&path, family.clone()));
        }
    }
    among(
        errors,
        &path.field("ipFamilyPolicy"),
        spec.get("ipFamilyPolicy"),
        &["PreferDualStack", "RequireDualStack", "SingleStack"],
    );
    let before = errors.len();
    for (index, address) in all.iter().enumerate() {
        if index == 0 && address == "None" {
            if all.len() > 1 {
                errors.push(FieldError::invalid(
                    &list_path,
                    all.to_vec(),
                    "'None' must be the first and only value",
                ));
            }
            continue;
        }
        ip(errors, &list_path.index(index), address.as_str().unwrap_or_default());
    }
    if all.len() > 2 {
        errors.push(FieldError::invalid(
            &list_path,
            all.to_vec(),
            "may only hold up to 2 values",
        ));
    }
    if errors.len() > before {
        return;
    }
    let parsed: Vec<IpAddr> = all.iter().filter_map(|address| parse_ip(address.as_str()?)).collect();
    if let [one, two, ..] = parsed.as_slice()
        && one.is_ipv4() == two.is_ipv4()
    {
        errors.push(FieldError::invalid(
            &list_path,
            all.to_vec(),
            "may specify no more than one IP for each IP family",
        ));
    }
    for (index, (address, family)) in parsed.iter().zip(families).enumerate() {
        let family = family.as_str().unwrap_or_default();
        if matches!(family, "IPv4" | "IPv6") && address.is_ipv4() != (family == "IPv4") {
            errors.push(FieldError::invalid(
                &list_path.index(index),
                all.get(index).cloned().unwrap_or_default(),
                format!("expected an {family} value as indicated by `ipFamilies[{index}]`"),
            ));
        }
    }
}

fn check_node_ports(errors: &mut Errors, kind: &str, ports: &[Value], path: &Path) {
    let node = |port: &Value| integer(port, "nodePort").unwrap_or(0);
    if kind == "ClusterIP" {
        for (index, port) in ports.iter().enumerate() {
            if node(port) != 0 {
                errors.push(FieldError::forbidden(
                    &path.index(index).field("nodePort"),
                    "may not be used when `type` is 'ClusterIP'",
                ));
            }
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let twice = |earlier: &&Value| node(earlier) == node(port) && earlier.get("protocol") == port.get("protocol");
        if node(port) != 0 && ports.iter().take(index).any(|earlier| twice(&earlier)) {
            errors.push(FieldError::duplicate(&path.index(index).field("nodePort"), node(port)));
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let same = |earlier: &Value| {
            earlier.get("port") == port.get("port") && earlier.get("protocol") == port.get("protocol")
        };
        if ports.iter().take(index).any(same) {
            // The reference compares, and shows, protocol and port alone.
            let shown = go_struct(
                &json!({"protocol": port.get("protocol"), "port": port.get("port")}),
                &[
                    ("Name", "-", "\"\""),
                    ("Protocol", "protocol", "\"\""),
                    ("AppProtocol", "-", "null"),
                    ("Port", "port", "0"),
                    ("TargetPort", "-", "0"),
                    ("NodePort", "-", "0"),
                ],
            );
            errors.push(about_struct(Wrong::Duplicate, &path.index(index), &shown, ""));
        }
    }
}

fn check_balancer(errors: &mut Errors, service: &Value, spec: &Value, path: &Path) {
    const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let balancer = text(spec, "type") == "LoadBalancer";
    let ranges = list(spec, "loadBalancerSourceRanges");
    let annotated = text(at(service, "/metadata/annotations"), RANGES);
    if !ranges.is_empty() {
        let path = path.field("LoadBalancerSourceRanges");
        if !balancer {
            errors.push(FieldError::forbidden(&path, FOR_BALANCERS));
        }
        for (index, range) in ranges.iter().enumerate() {
            cidr(errors, &path.index(index), range.as_str().unwrap_or_default().trim());
        }
    } else if !annotated.is_empty() {
        let path = Path::new("metadata.annotations").key(RANGES);
        if !balancer {
            errors.push(FieldError::forbidden(&path, FOR_BALANCERS));
        }
        for range in annotated.split(',') {
            cidr(errors, &path, range.trim());
        }
    }
    if !balancer && given(spec, "allocateLoadBalancerNodePorts").is_some() {
        errors.push(FieldError::forbidden(
            &path.field("allocateLoadBalancerNodePorts"),
            FOR_BALANCERS,
        ));
    }
    if given(spec, "loadBalancerClass").is_some() {
        let path = path.field("loadBalancerClass");
        if balancer {
            qualified(errors, &path, text(spec, "loadBalancerClass"));
        } else {
            errors.push(FieldError::forbidden(&path, FOR_BALANCERS));
        }
    }
}

fn check_traffic(errors: &mut Errors, spec: &Value, path: &Path) {
    let policy = text(spec, "externalTrafficPolicy");
    let policy_path = path.field("externalTrafficPolicy");
    if externally_accessible(spec) {
        if policy.is_empty() {
            errors.push(FieldError::required(&policy_path, ""));
        } else {
            among(
                errors,
                &policy_path,
                spec.get("externalTrafficPolicy"),
                &["Cluster", "Local"],
            );
        }
    } else if !policy.is_empty() {
        errors.push(FieldError::invalid(
            &policy_path,
            policy,
            "may only be set for externally-accessible services",
        ));
    }
    let health = integer(spec, "healthCheckNodePort").unwrap_or(0);
    if health != 0 && !needs_health_check(spec) {
        errors.push(FieldError::invalid(
            &path.field("healthCheckNodePort"),
            health,
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        ));
    }
    among(
        errors,
        &path.field("internalTrafficPolicy"),
        spec.get("internalTrafficPolicy"),
        &["Cluster", "Local"],
    );
    among(
        errors,
        &path.field("trafficDistribution"),
        spec.get("trafficDistribution"),
        &["PreferClose", "PreferSameZone", "PreferSameNode"],
    );
}
