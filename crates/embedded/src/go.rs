//! Values and types as the reference's messages print them: Go's `%v` and type names.

use serde_json::{Map, Value};

/// `map[a:1 b:[x y]]`
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => plain_map(map),
        other => other.to_string(),
    }
}

pub(crate) fn plain_map(map: &Map<String, Value>) -> String {
    let fields: Vec<String> = map
        .iter()
        .map(|(key, value)| format!("{key}:{}", plain(value)))
        .collect();
    format!("map[{}]", fields.join(" "))
}

/// The type a value has after decoding.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// What the JSON decoder calls a value it did not expect.
pub(crate) fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Why a body that is no object, but what [`json_kind`] says, tells nothing of its type.
pub(crate) fn no_type(kind: &str) -> String {
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {kind} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )
}

/// What the decoder's sentence about a mistyped field is called where the change is not read as JSON, but converted.
pub(crate) fn in_converter_words(why: &str) -> Option<String> {
    let rest = why.strip_prefix("json: cannot unmarshal ")?;
    let (given, rest) = rest.split_once(" into Go ")?;
    let (_, wanted) = rest.rsplit_once(" of type ")?;
    let (kind, name) = match given {
        "array" => ("slice", "[]interface {}"),
        "object" => ("map", "map[string]interface {}"),
        "number" => ("int64", "int64"),
        number if number.starts_with("number") => ("float64", "float64"),
        other => (other, other),
    };
    Some(match wanted {
        list if list.starts_with("[]") => format!("cannot restore slice from {kind}"),
        map if map.starts_with("map[") => format!("cannot restore map from {kind}"),
        "string" if kind == "int64" => format!("cannot convert {name} to string"),
        number if kind == "float64" && number.contains("int") => format!("cannot convert {name} to {number}"),
        "string" | "bool" | "int32" | "int64" | "uint32" | "uint64" | "float64" => {
            format!("unrecognized type: {wanted}")
        }
        _ => format!("cannot restore struct from: {kind}"),
    })
}

/// A value as Go source.
pub(crate) fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => crate::fault::quote(text),
        Value::Array(items) => {
            format!(
                "[]interface {{}}{{{}}}",
                items.iter().map(syntax).collect::<Vec<_>>().join(", ")
            )
        }
        Value::Object(map) => {
            let fields: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{}:{}", crate::fault::quote(key), syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// JSON as Go's encoder writes it: what HTML could take for its own is escaped.
pub(crate) fn json(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    escape(&text, &mut out);
    out
}

/// JSON as Go writes it: what browsers could take for markup is escaped.
pub(crate) fn escape(json: &str, out: &mut String) {
    for letter in json.chars() {
        match letter {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            other => out.push(other),
        }
    }
}
