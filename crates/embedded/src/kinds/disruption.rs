//! PodDisruptionBudget.

use serde_json::{Value, json};

use super::checks::{about_struct, among, at_most_100_percent, count_or_percent, go_struct, not_negative};
use super::reading::{at, given, integer};
use super::selector::check_selector;
use crate::fault::{FieldError, Path, Wrong};
use crate::registry::row::BuiltIn;

pub static RULES: BuiltIn = BuiltIn {
    on_create,
    check,
    check_status,
    unconditional_update: false,
    ..BuiltIn::PLAIN
};

fn on_create(budget: &mut Value) {
    if let Some(map) = budget.as_object_mut() {
        map.insert(
            "status".to_owned(),
            json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}),
        );
    }
}

fn check(budget: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (spec, path) = (at(budget, "/spec"), Path::new("spec"));
    let (least, most) = (given(spec, "minAvailable"), given(spec, "maxUnavailable"));
    if least.is_some() && most.is_some() {
        let shown = go_struct(
            spec,
            &[
                ("MinAvailable", "minAvailable", "null"),
                ("Selector", "selector", "null"),
                ("MaxUnavailable", "maxUnavailable", "null"),
                ("UnhealthyPodEvictionPolicy", "unhealthyPodEvictionPolicy", "null"),
            ],
        );
        errors.push(about_struct(
            Wrong::Invalid,
            &path,
            &shown,
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    for (field, value) in [("minAvailable", least), ("maxUnavailable", most)] {
        if let Some(value) = value {
            count_or_percent(&mut errors, &path.field(field), value);
            at_most_100_percent(&mut errors, &path.field(field), value);
        }
    }
    errors.extend(check_selector(at(spec, "/selector"), &path.field("selector")));
    among(
        &mut errors,
        &path.field("unhealthyPodEvictionPolicy"),
        spec.get("unhealthyPodEvictionPolicy"),
        &["AlwaysAllow", "IfHealthyBudget"],
    );
    errors
}

fn check_status(new: &Value, _: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (status, path) = (at(new, "/status"), Path::new("status"));
    errors.extend(super::conditions::check_conditions(status, &path.field("conditions")));
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        not_negative(&mut errors, &path.field(field), integer(status, field));
    }
    errors
}
