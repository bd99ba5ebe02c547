//! `ipFamilies` and `ipFamilyPolicy`, with the reference's words for what one family cannot have.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{Spec, has_addresses, list, text};
use crate::fault::{FieldError, Path};

/// Whether addresses and families can be understood.
pub(super) fn is_well_formed(spec: &Spec) -> bool {
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
pub(super) fn families(spec: &mut Spec, old: Option<&Spec>) -> Result<(), Vec<FieldError>> {
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
