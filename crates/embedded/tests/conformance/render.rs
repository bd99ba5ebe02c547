//! Answers as text that people read and `diff` compares: YAML-like, keys sorted, what is short on one line, strings
//! always quoted. The same value always gives the same text.

use std::fmt::Write;

use serde_json::{Map, Value};

/// A line that is not longer stays one.
const WIDTH: usize = 120;

pub fn render(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

/// A part of an answer, behind where it was found.
pub fn render_at(place: &str, value: &Value) -> String {
    let mut text = format!("{place}:");
    nested(value, 0, text.len(), &mut text);
    text
}

fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in sorted(map) {
                let _ = write!(out, "{:indent$}{}:", "", word(key));
                nested(value, indent, word(key).len() + 1, out);
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            for element in elements {
                let line = flow(element);
                let is_owner = element.get("fieldsV1").is_some();
                if is_leaf(element) || is_owner || indent + 2 + line.len() <= WIDTH {
                    let _ = writeln!(out, "{:indent$}- {line}", "");
                    continue;
                }
                // The element's first line takes the place behind the dash.
                let mut lines = String::new();
                block(element, indent + 2, &mut lines);
                let _ = write!(out, "{:indent$}- {}", "", lines.trim_start());
            }
        }
        scalar => {
            let _ = writeln!(out, "{:indent$}{}", "", flow(scalar));
        }
    }
}

fn is_leaf(value: &Value) -> bool {
    !matches!(value, Value::Object(_) | Value::Array(_))
}

/// Behind `key:`: on the same line if it fits there.
fn nested(value: &Value, indent: usize, taken: usize, out: &mut String) {
    let line = flow(value);
    if is_leaf(value) || indent + taken + 1 + line.len() <= WIDTH {
        let _ = writeln!(out, " {line}");
    } else {
        out.push('\n');
        block(value, indent + 2, out);
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| match key.as_str() {
                "fieldsV1" => format!("{key}: {}", fields(value)),
                _ => format!("{}: {}", word(key), flow(value)),
            };
            format!("{{{}}}", sorted(map).map(entry).collect::<Vec<_>>().join(", "))
        }
        Value::Array(elements) => format!("[{}]", elements.iter().map(flow).collect::<Vec<_>>().join(", ")),
        leaf => leaf.to_string(),
    }
}

/// A field set in one line, for it is long and of interest only where it differs: `f:metadata{f:labels{. f:app}}`.
fn fields(value: &Value) -> String {
    let Some(map) = value.as_object() else {
        return flow(value);
    };
    let entry = |(key, value): (&String, &Value)| match value.as_object() {
        Some(children) if children.is_empty() => key.clone(),
        _ => format!("{key}{{{}}}", fields(value)),
    };
    sorted(map).map(entry).collect::<Vec<_>>().join(" ")
}

fn word(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./$<>-".contains(c);
    if !key.is_empty() && key.chars().all(plain) {
        key.to_owned()
    } else {
        Value::from(key).to_string()
    }
}

fn sorted(map: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    entries.into_iter()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn short_things_take_one_line_and_long_ones_a_block() {
        let long = "x".repeat(WIDTH);
        let text = render(&json!({"b": {"c": 1, "a": "1"}, "a": [], "l": [long.clone()]}));
        let nested = render(&json!([{"k": [long.clone()], "a": 1}]));
        assert_eq!(nested, format!("- a: 1\n  k:\n    - \"{long}\"\n"));
        assert_eq!(text, format!("a: []\nb: {{a: \"1\", c: 1}}\nl:\n  - \"{long}\"\n"));
    }

    #[test]
    fn a_string_is_never_taken_for_a_number() {
        assert_ne!(render(&json!({"a": "1"})), render(&json!({"a": 1})));
        assert_ne!(render(&json!(null)), render(&json!("null")));
    }

    #[test]
    fn field_sets_are_one_line() {
        let entry = json!({"fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:x": {}}});
        assert_eq!(
            render(&json!([entry])),
            "- {fieldsV1: f:metadata{f:labels{. f:a}} f:x}\n"
        );
    }
}
