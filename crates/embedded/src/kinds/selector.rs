//! Label selectors of built-in kinds: their rules, whom they select, and as text.

use serde_json::Value;

use super::metadata::{check_label, invalid};
use super::names;
use super::reading::{entries, list, text};
use crate::fault::{FieldError, Path};

/// Rules on a `LabelSelector`; absent is fine.
#[must_use]
pub fn check_selector(selector: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let labels = path.field("matchLabels");
    for (key, value) in entries(selector, "matchLabels") {
        check_label(key, value, &labels, &mut errors);
    }
    for (index, requirement) in list(selector, "matchExpressions").iter().enumerate() {
        let path = path.field("matchExpressions").index(index);
        let values = list(requirement, "values");
        match text(requirement, "operator") {
            "In" | "NotIn" => {
                if values.is_empty() {
                    errors.push(FieldError::required(
                        &path.field("values"),
                        "must be specified when `operator` is 'In' or 'NotIn'",
                    ));
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    errors.push(FieldError::forbidden(
                        &path.field("values"),
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    ));
                }
            }
            other => errors.push(FieldError::invalid(
                &path.field("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        let key = text(requirement, "key");
        invalid(&mut errors, &path.field("key"), key, names::label_key(key));
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            let path = path.field("values").index(index);
            invalid(&mut errors, &path, value, names::label_value(value));
        }
    }
    errors
}

/// Whether a `LabelSelector` names nothing, and so selects all.
#[must_use]
pub fn selects_all(selector: &Value) -> bool {
    entries(selector, "matchLabels").next().is_none() && list(selector, "matchExpressions").is_empty()
}

/// Whether the labels (an object, or null) are selected. A selector that is absent selects nothing.
#[must_use]
pub fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    selector.is_object()
        && entries(selector, "matchLabels").all(|(key, value)| label(key) == value.as_str())
        && list(selector, "matchExpressions").iter().all(|requirement| {
            let found = label(text(requirement, "key"));
            let among = || found.is_some_and(|found| list(requirement, "values").iter().any(|value| value == found));
            match text(requirement, "operator") {
                "In" => among(),
                "NotIn" => !among(),
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

/// A `LabelSelector` as `kubectl --selector` takes it and as `scale` shows it: `a=b,c in (d,e),!f`.
#[must_use]
pub fn selector_text(selector: &Value) -> String {
    let mut parts: Vec<(&str, String)> = entries(selector, "matchLabels")
        .map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for requirement in list(selector, "matchExpressions") {
        let key = text(requirement, "key");
        let mut values: Vec<&str> = list(requirement, "values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let part = match text(requirement, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        parts.push((key, part));
    }
    parts.sort_by(|one, other| one.0.cmp(other.0));
    let parts: Vec<String> = parts.into_iter().map(|(_, part)| part).collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_selects_and_reads_as_text() {
        let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]},
            {"key": "c", "operator": "DoesNotExist"},
            {"key": "d", "operator": "NotIn", "values": ["z"]},
        ]});
        assert_eq!(selector_text(&selector), "a in (x,y),b=1,!c,d notin (z)");
        assert!(selects(&selector, &json!({"a": "x", "b": "1"})));
        assert!(!selects(&selector, &json!({"a": "x", "b": "1", "c": ""})));
        assert!(!selects(&selector, &json!({"a": "x", "b": "1", "d": "z"})));
        assert!(!selects(&Value::Null, &json!({})));
        assert!(selects(&json!({}), &Value::Null) && selects_all(&json!({})));
    }

    #[test]
    fn o20_a_bad_requirement_says_what_it_lacks() {
        let selector = json!({"matchExpressions": [
            {"key": "a", "operator": "In"}, {"key": "a", "operator": "Exists", "values": ["x"]}, {"key": "a", "operator": "Near"}
        ]});
        let errors: Vec<String> = check_selector(&selector, &Path::new("s"))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            errors,
            [
                "s.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                "s.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                r#"s.matchExpressions[2].operator: Invalid value: "Near": not a valid selector operator"#,
            ]
        );
    }
}
