//! Node.

use serde_json::{Value, json};

use super::checks::{Errors, about_struct, cidr, go_struct, parse_cidr};
use super::names;
use super::quantity::Quantity;
use super::reading::{at, default_to, entries, given, list, text, truth};
use super::resources::is_whole;
use super::tolerations::check_effect;
use crate::fault::{FieldError, Path, Wrong};
use crate::registry::row::BuiltIn;

pub static RULES: BuiltIn = BuiltIn {
    default,
    check,
    check_update,
    check_status: |new, _| {
        let mut errors = Vec::new();
        check_resources(&mut errors, new);
        check_addresses(&mut errors, new);
        errors
    },
    warn: |node, _| {
        if text(at(node, "/spec"), "externalID").is_empty() {
            return Vec::new();
        }
        vec!["spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned()]
    },
    fields: &[("spec.unschedulable", |node| {
        (truth(at(node, "/spec"), "unschedulable") == Some(true)).to_string()
    })],
    has_generation: false,
    ..BuiltIn::PLAIN
};

/// The first of the ranges has a field of its own, which says what the list says.
fn default_ranges(spec: &mut Value) {
    let first = text(spec, "podCIDR").to_owned();
    let listed = list(spec, "podCIDRs")
        .first()
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if let Some(map) = spec.as_object_mut() {
        if first.is_empty() && !listed.is_empty() {
            map.insert("podCIDR".to_owned(), listed.into());
        } else if !first.is_empty() && first != listed {
            map.insert("podCIDRs".to_owned(), json!([first]));
        }
    }
}

fn default(node: &mut Value) {
    if let Some(spec) = node.get_mut("spec") {
        default_ranges(spec);
    }
    if let Some(status) = node.get_mut("status").filter(|status| status.is_object())
        && let Some(capacity) = status.get("capacity").cloned().filter(|capacity| !capacity.is_null())
    {
        default_to(status, "allocatable", capacity);
    }
}

fn check(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = at(node, "/spec");
    check_taints(&mut errors, list(spec, "taints"), &Path::new("metadata.taints"));
    check_resources(&mut errors, node);
    let (ranges, path) = (list(spec, "podCIDRs"), Path::new("spec.podCIDRs"));
    for (index, range) in ranges.iter().enumerate() {
        cidr(&mut errors, &path.index(index), range.as_str().unwrap_or_default());
    }
    if ranges.len() > 1 {
        let parsed: Vec<_> = ranges.iter().filter_map(|range| parse_cidr(range.as_str()?)).collect();
        let both = matches!(parsed.as_slice(), [one, two] if one.addr().is_ipv4() != two.addr().is_ipv4());
        if !both {
            errors.push(FieldError::invalid(
                &path,
                ranges.to_vec(),
                "may specify no more than one CIDR for each IP family",
            ));
        }
    }
    errors
}

fn check_taints(errors: &mut Errors, taints: &[Value], path: &Path) {
    for (index, taint) in taints.iter().enumerate() {
        let path = path.index(index);
        super::checks::qualified(errors, &path.field("key"), text(taint, "key"));
        let wrong = names::label_value(text(taint, "value"));
        if !wrong.is_empty() {
            errors.push(FieldError::invalid(
                &path.field("value"),
                text(taint, "value"),
                wrong.join(";"),
            ));
        }
        check_effect(errors, text(taint, "effect"), false, &path.field("effect"));
        let twice = |earlier: &Value| {
            text(earlier, "key") == text(taint, "key") && text(earlier, "effect") == text(taint, "effect")
        };
        if taints.iter().take(index).any(twice) {
            let shown = go_struct(
                taint,
                &[
                    ("Key", "key", "\"\""),
                    ("Value", "value", "\"\""),
                    ("Effect", "effect", "\"\""),
                    ("TimeAdded", "timeAdded", "null"),
                ],
            );
            errors.push(about_struct(
                Wrong::Duplicate,
                &path,
                &shown,
                "taints must be unique by key and effect pair",
            ));
        }
    }
}

fn check_resources(errors: &mut Errors, node: &Value) {
    for field in ["capacity", "allocatable"] {
        for (name, value) in entries(at(node, "/status"), field) {
            let path = Path::new("status").field(field).field(name);
            let Some(amount) = Quantity::of(value) else {
                continue;
            };
            if amount.is_negative() {
                errors.push(FieldError::invalid(&path, value.clone(), super::checks::NOT_NEGATIVE));
            }
            if is_whole(name) && amount.milli() % 1000 != 0 {
                errors.push(FieldError::invalid(&path, value.clone(), "must be an integer"));
            }
        }
    }
}

fn check_addresses(errors: &mut Errors, node: &Value) {
    let addresses = list(at(node, "/status"), "addresses");
    for (index, address) in addresses.iter().enumerate() {
        if addresses.iter().take(index).any(|earlier| earlier == address) {
            let shown = go_struct(address, &[("Type", "type", "\"\""), ("Address", "address", "\"\"")]);
            let path = Path::new("status.addresses").index(index);
            errors.push(about_struct(Wrong::Duplicate, &path, &shown, ""));
        }
    }
}

fn check_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (now, before) = (at(new, "/spec"), at(old, "/spec"));
    check_addresses(&mut errors, new);
    if !list(before, "podCIDRs").is_empty() && list(now, "podCIDRs") != list(before, "podCIDRs") {
        errors.push(FieldError::forbidden(
            &Path::new("spec.podCIDRs"),
            "node updates may not change podCIDR except from \"\" to valid",
        ));
    }
    if !text(before, "providerID").is_empty() && text(now, "providerID") != text(before, "providerID") {
        errors.push(FieldError::forbidden(
            &Path::new("spec.providerID"),
            "node updates may not change providerID except from \"\" to valid",
        ));
    }
    if given(now, "externalID") != given(before, "externalID") {
        errors.push(FieldError::forbidden(
            &Path::new("spec.externalID"),
            "may not be updated",
        ));
    }
    errors
}
