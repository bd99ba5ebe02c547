//! Tolerations of pods, and effects of taints.

use serde_json::Value;

use super::checks::{Errors, qualified};
use super::names;
use super::reading::{given, list, same, text};
use crate::fault::{FieldError, Path};

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn check_effect(errors: &mut Errors, effect: &str, may_be_empty: bool, path: &Path) {
    if effect.is_empty() && !may_be_empty {
        errors.push(FieldError::required(path, ""));
    } else if !EFFECTS.contains(&effect) {
        errors.push(FieldError::not_supported(path, effect, EFFECTS));
    }
}

pub(super) fn check_tolerations(errors: &mut Errors, tolerations: &[Value], path: &Path) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let (key, value) = (text(toleration, "key"), text(toleration, "value"));
        let (operator, effect) = (text(toleration, "operator"), text(toleration, "effect"));
        if !key.is_empty() {
            qualified(errors, &path.field("key"), key);
        } else if operator != "Exists" {
            errors.push(FieldError::invalid(
                &path.field("operator"),
                operator,
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            ));
        }
        if given(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            errors.push(FieldError::invalid(
                &path.field("effect"),
                effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            ));
        }
        match operator {
            "Equal" | "" => {
                let wrong = names::label_value(value);
                if !wrong.is_empty() {
                    errors.push(FieldError::invalid(&path.field("operator"), value, wrong.join(";")));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    errors.push(FieldError::invalid(
                        &path.field("operator"),
                        value,
                        "value must be empty when `operator` is 'Exists'",
                    ));
                }
            }
            "Lt" | "Gt" => errors.push(FieldError::not_supported(
                &path.field("operator"),
                operator,
                &["Equal", "Exists", "Lt", "Gt"],
            )),
            _ => errors.push(FieldError::not_supported(
                &path.field("operator"),
                operator,
                &["Equal", "Exists"],
            )),
        }
        if !effect.is_empty() {
            check_effect(errors, effect, true, &path.field("effect"));
        }
    }
}

/// A pod's tolerations may only become more; of those that were there, the seconds alone may change.
pub(super) fn check_only_added(errors: &mut Errors, new: &Value, old: &Value, path: &Path) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(map) = toleration.as_object_mut() {
            map.remove("tolerationSeconds");
        }
        toleration
    };
    let now: Vec<Value> = list(new, "tolerations").iter().map(without_seconds).collect();
    for toleration in list(old, "tolerations").iter().map(without_seconds) {
        if !now.iter().any(|new| same(new, &toleration)) {
            errors.push(FieldError::forbidden(
                path,
                "existing toleration can not be modified except its tolerationSeconds",
            ));
            return;
        }
    }
    check_tolerations(errors, list(new, "tolerations"), path);
}
