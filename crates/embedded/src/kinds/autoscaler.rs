//! HorizontalPodAutoscaler: stored; nobody acts on it.

use serde_json::{Value, json};

use super::checks::{Errors, among, amount_not_negative, dns_label, not_negative};
use super::metadata::invalid;
use super::names;
use super::quantity::Quantity;
use super::reading::{at, default_to, given, integer, list, object_mut, text};
use super::selector::check_selector;
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

pub static RULES: BuiltIn = BuiltIn {
    default,
    on_create: |autoscaler| {
        if let Some(map) = autoscaler.as_object_mut() {
            map.insert(
                "status".to_owned(),
                json!({"desiredReplicas": 0, "currentMetrics": null}),
            );
        }
    },
    check,
    check_status,
    has_generation: false,
    ..BuiltIn::PLAIN
};

const METRICS: &[(&str, &str)] = &[
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];

fn default(autoscaler: &mut Value) {
    let Some(spec) = object_mut(autoscaler, "spec") else {
        return;
    };
    default_to(spec, "minReplicas", 1);
    if list(spec, "metrics").is_empty()
        && let Some(map) = spec.as_object_mut()
    {
        map.insert(
            "metrics".to_owned(),
            json!([{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]),
        );
    }
    if let Some(behavior) = spec.get_mut("behavior").filter(|behavior| behavior.is_object()) {
        let up = json!([
            {"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}
        ]);
        let down = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
        for (field, policies) in [("scaleUp", up), ("scaleDown", down)] {
            if let Some(rules) = object_mut(behavior, field) {
                default_to(rules, "selectPolicy", "Max");
                default_to(rules, "policies", policies);
                if field == "scaleUp" {
                    default_to(rules, "stabilizationWindowSeconds", 0);
                }
            }
        }
    }
}

fn check(autoscaler: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (spec, path) = (at(autoscaler, "/spec"), Path::new("spec"));
    let (least, most) = (integer(spec, "minReplicas"), integer(spec, "maxReplicas").unwrap_or(0));
    if let Some(least) = least.filter(|least| *least < 1) {
        errors.push(FieldError::invalid(
            &path.field("minReplicas"),
            least,
            "must be greater than or equal to 1",
        ));
    }
    let most_path = path.field("maxReplicas");
    if most == 0 {
        errors.push(FieldError::required(&most_path, "must be set and greater than 0"));
    } else if most < 0 {
        errors.push(FieldError::invalid(
            &most_path,
            most,
            "must be greater than or equal to 1",
        ));
    }
    if least.is_some_and(|least| most < least) {
        errors.push(FieldError::invalid(
            &most_path,
            most,
            "must be greater than or equal to `minReplicas`",
        ));
    }
    check_reference(
        &mut errors,
        at(spec, "/scaleTargetRef"),
        false,
        &path.field("scaleTargetRef"),
    );
    for (index, metric) in list(spec, "metrics").iter().enumerate() {
        check_metric(&mut errors, metric, &path.field("metrics").index(index));
    }
    for field in ["scaleUp", "scaleDown"] {
        if let Some(rules) = given(at(spec, "/behavior"), field) {
            check_rules(&mut errors, rules, &path.field("behavior").field(field));
        }
    }
    errors
}

fn check_reference(errors: &mut Errors, reference: &Value, core_too: bool, path: &Path) {
    for field in ["kind", "name"] {
        let value = text(reference, field);
        if value.is_empty() {
            errors.push(FieldError::required(&path.field(field), ""));
        } else {
            invalid(errors, &path.field(field), value, names::path_segment(value));
        }
    }
    let version = text(reference, "apiVersion");
    let words = match version.matches('/').count() {
        0 if !core_too => "apiVersion must specify API group".to_owned(),
        0 | 1 => return,
        _ => format!("unexpected GroupVersion string: {version}"),
    };
    errors.push(FieldError::invalid(&path.field("apiVersion"), version, words));
}

fn check_metric(errors: &mut Errors, metric: &Value, path: &Path) {
    const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];
    let kind = text(metric, "type");
    let kind_path = path.field("type");
    if kind.is_empty() {
        errors.push(FieldError::required(&kind_path, "must specify a metric source type"));
    }
    if !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(&kind_path, kind, TYPES));
    }
    let present: Vec<&str> = METRICS
        .iter()
        .map(|(field, _)| *field)
        .filter(|field| given(metric, field).is_some())
        .collect();
    if let Some(field) = present.first() {
        check_source(errors, at(metric, &format!("/{field}")), field, &path.field(field));
    }
    let expected = METRICS.iter().find(|(_, name)| *name == kind).map(|(field, _)| *field);
    match expected {
        Some(field) if !present.contains(&field) => errors.push(FieldError::required(
            &path.field(field),
            "must populate information for the given metric source",
        )),
        Some(_) => {}
        None => errors.push(FieldError::not_supported(&kind_path, kind, TYPES)),
    }
    if present.len() != 1 {
        for field in present.into_iter().filter(|field| Some(*field) != expected) {
            errors.push(FieldError::forbidden(
                &path.field(field),
                "must populate the given metric source only",
            ));
        }
    }
}

fn check_source(errors: &mut Errors, source: &Value, kind: &str, path: &Path) {
    let (target, target_path) = (at(source, "/target"), path.field("target"));
    let has = |field: &str| given(target, field).is_some();
    if kind == "object" {
        check_reference(
            errors,
            at(source, "/describedObject"),
            true,
            &path.field("describedObject"),
        );
    }
    if matches!(kind, "object" | "external" | "pods") {
        check_identifier(errors, at(source, "/metric"), &path.field("metric"));
    } else {
        if text(source, "name").is_empty() {
            errors.push(FieldError::required(
                &path.field("name"),
                "must specify a resource name",
            ));
        }
        if kind == "containerResource" {
            let container = text(source, "container");
            if container.is_empty() {
                errors.push(FieldError::required(
                    &path.field("container"),
                    "must specify a container",
                ));
            } else {
                dns_label(errors, &path.field("container"), container);
            }
        }
    }
    check_target(errors, target, &target_path);
    let mut required = |field: &str, words: &str| errors.push(FieldError::required(&target_path.field(field), words));
    match kind {
        "object" if !has("value") && !has("averageValue") => {
            required("averageValue", "must set either a target value or averageValue");
        }
        "external" if !has("value") && !has("averageValue") => {
            required(
                "averageValue",
                "must set either a target value for metric or a per-pod target",
            );
        }
        "external" if has("value") && has("averageValue") => errors.push(FieldError::forbidden(
            &target_path.field("value"),
            "may not set both a target value for metric and a per-pod target",
        )),
        "pods" if !has("averageValue") => required("averageValue", "must specify a positive target averageValue"),
        "resource" | "containerResource" if !has("averageUtilization") && !has("averageValue") => {
            required(
                "averageUtilization",
                "must set either a target raw value or a target utilization",
            );
        }
        "resource" | "containerResource" if has("averageUtilization") && has("averageValue") => {
            errors.push(FieldError::forbidden(
                &target_path.field("averageValue"),
                "may not set both a target raw value and a target utilization",
            ));
        }
        _ => {}
    }
}

fn check_identifier(errors: &mut Errors, metric: &Value, path: &Path) {
    let name = text(metric, "name");
    if name.is_empty() {
        errors.push(FieldError::required(&path.field("name"), "must specify a metric name"));
    } else {
        invalid(errors, &path.field("name"), name, names::path_segment(name));
    }
    errors.extend(check_selector(at(metric, "/selector"), &path.field("selector")));
}

fn check_target(errors: &mut Errors, target: &Value, path: &Path) {
    let kind = text(target, "type");
    if kind.is_empty() {
        errors.push(FieldError::required(
            &path.field("type"),
            "must specify a metric target type",
        ));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.push(FieldError::invalid(
            &path.field("type"),
            kind,
            "must be either Utilization, Value, or AverageValue",
        ));
    }
    for field in ["value", "averageValue"] {
        if let Some(value) = given(target, field)
            && Quantity::of(value).is_some_and(|amount| amount <= Quantity::ZERO)
        {
            errors.push(FieldError::invalid(
                &path.field(field),
                value.clone(),
                "must be positive",
            ));
        }
    }
    if let Some(percent) = integer(target, "averageUtilization").filter(|percent| *percent < 1) {
        errors.push(FieldError::invalid(
            &path.field("averageUtilization"),
            percent,
            "must be greater than 0",
        ));
    }
}

fn check_rules(errors: &mut Errors, rules: &Value, path: &Path) {
    let window = integer(rules, "stabilizationWindowSeconds");
    let window_path = path.field("stabilizationWindowSeconds");
    if let Some(window) = window.filter(|window| *window < 0) {
        errors.push(FieldError::invalid(
            &window_path,
            window,
            "must be greater than or equal to zero",
        ));
    }
    if let Some(window) = window.filter(|window| *window > 3600) {
        errors.push(FieldError::invalid(
            &window_path,
            window,
            "must be less than or equal to 3600",
        ));
    }
    among(
        errors,
        &path.field("selectPolicy"),
        rules.get("selectPolicy"),
        &["Disabled", "Max", "Min"],
    );
    let policies = list(rules, "policies");
    if policies.is_empty() {
        errors.push(FieldError::required(
            &path.field("policies"),
            "must specify at least one Policy",
        ));
    }
    for (index, policy) in policies.iter().enumerate() {
        let path = path.field("policies").index(index);
        if !matches!(text(policy, "type"), "Pods" | "Percent") {
            errors.push(FieldError::not_supported(
                &path.field("type"),
                text(policy, "type"),
                &["Percent", "Pods"],
            ));
        }
        for field in ["value", "periodSeconds"] {
            let number = integer(policy, field).unwrap_or(0);
            if number <= 0 {
                errors.push(FieldError::invalid(
                    &path.field(field),
                    number,
                    "must be greater than zero",
                ));
            }
            if field == "periodSeconds" && number > 1800 {
                errors.push(FieldError::invalid(
                    &path.field(field),
                    number,
                    "must be less than or equal to 1800",
                ));
            }
        }
    }
    if let Some(tolerance) = given(rules, "tolerance") {
        amount_not_negative(errors, &path.field("tolerance"), tolerance);
    }
}

fn check_status(new: &Value, _: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let status = at(new, "/status");
    for field in ["currentReplicas", "desiredReplicas"] {
        not_negative(&mut errors, &Path::new("status").field(field), integer(status, field));
    }
    errors
}
