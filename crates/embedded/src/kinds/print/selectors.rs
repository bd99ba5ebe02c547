//! Label selectors and label maps as one line of text.

use serde_json::Value;

use super::read::{at, list, text};

/// `a=b,c=d`, sorted; `<none>` for none.
pub fn labels(object: &Value, path: &[&str]) -> String {
    let mut pairs: Vec<String> = at(object, path)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() {
        return "<none>".into();
    }
    pairs.sort();
    pairs.join(",")
}

/// A `LabelSelector` in the words of a query, requirements by key; empty where it selects everything. `None`: it is wrong.
pub fn selector(selector: Option<&Value>) -> Option<String> {
    let Some(selector) = selector else {
        return Some(String::new());
    };
    let mut requirements: Vec<(&str, String)> = Vec::new();
    for (key, value) in at(selector, &["matchLabels"])
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        requirements.push((key, format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in list(selector, &["matchExpressions"]) {
        let key = text(expression, &["key"]);
        let mut values: Vec<&str> = list(expression, &["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let requirement = match (text(expression, &["operator"]), values.is_empty()) {
            ("In", false) => format!("{key} in ({})", values.join(",")),
            ("NotIn", false) => format!("{key} notin ({})", values.join(",")),
            ("Exists", true) => key.to_owned(),
            ("DoesNotExist", true) => format!("!{key}"),
            _ => return None,
        };
        requirements.push((key, requirement));
    }
    requirements.sort_by_key(|(key, _)| *key);
    let texts: Vec<String> = requirements.into_iter().map(|(_, text)| text).collect();
    Some(texts.join(","))
}

/// As [`selector`], for columns where nothing is `<none>`.
pub fn selector_or_none(value: Option<&Value>) -> String {
    match selector(value) {
        None => "<error>".into(),
        Some(text) if text.is_empty() => "<none>".into(),
        Some(text) => text,
    }
}
