//! A custom column's cell: what its path names, as the column's type wants it.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Number, Value};

use super::{Evaluate, age_column};
use crate::kinds::print;
use crate::registry::row::{Columns, CustomColumn};

/// Custom columns that name none get the age.
pub fn with_default(columns: &Columns) -> Cow<'_, Columns> {
    match columns {
        Columns::Custom(own) if own.is_empty() => Cow::Owned(Columns::Custom(age_column())),
        _ => Cow::Borrowed(columns),
    }
}

/// The name, then one cell for each column.
pub fn custom(object: &Value, columns: &[CustomColumn], now: Timestamp, evaluate: Evaluate<'_>) -> Vec<Value> {
    let name = object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let cells = columns
        .iter()
        .map(|column| match found(object, &column.json_path, evaluate) {
            Some(value) => cell(&column.kind, value, now),
            None => Value::Null,
        });
    std::iter::once(Value::from(name)).chain(cells).collect()
}

/// Nearly every kind has this one path: it is not worth an evaluator.
fn found<'a>(object: &'a Value, path: &str, evaluate: Evaluate<'_>) -> Option<Cow<'a, Value>> {
    match path {
        ".metadata.creationTimestamp" => object.pointer("/metadata/creationTimestamp").map(Cow::Borrowed),
        path => evaluate(object, path).map(Cow::Owned),
    }
}

fn cell(kind: &str, value: Cow<'_, Value>, now: Timestamp) -> Value {
    match (kind, value.as_ref()) {
        ("string", value) => printed(value).into(),
        ("integer", Value::Number(number)) => whole(number),
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.into_owned(),
        // The reference reads both of these as no time at all.
        ("date", Value::String(text)) if text.is_empty() || text == "null" => "<unknown>".into(),
        ("date", Value::String(text)) => match text.parse() {
            Ok(time) => print::age(Some(time), now).into(),
            Err(_) => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

/// A fraction loses what is behind its point.
#[allow(clippy::cast_possible_truncation)]
fn whole(number: &Number) -> Value {
    match number.as_i64() {
        Some(whole) => whole.into(),
        None => number.as_f64().map_or(Value::Null, |fraction| (fraction as i64).into()),
    }
}

/// As Go prints a value: words as they are, maps and lists as JSON.
fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null => "<no value>".into(),
        Value::Number(number) => plain_number(number),
        Value::Array(_) | Value::Object(_) => {
            let mut json = String::new();
            write_json(value, &mut json);
            json
        }
    }
}

/// Go's `%v`: fractions get an exponent of at least two digits below 1e-4 and from 1e6 on.
fn plain_number(number: &Number) -> String {
    match (number.as_i64(), number.as_f64()) {
        (Some(whole), _) => whole.to_string(),
        (None, Some(fraction)) => exponent(fraction, 1e-4..1e6, 2),
        (None, None) => number.to_string(),
    }
}

fn exponent(fraction: f64, plain: std::ops::Range<f64>, digits: usize) -> String {
    let size = fraction.abs();
    if size == 0.0 || plain.contains(&size) {
        return fraction.to_string();
    }
    let text = format!("{fraction:e}");
    let Some((mantissa, power)) = text.split_once('e') else {
        return text;
    };
    let (sign, power) = match power.strip_prefix('-') {
        Some(power) => ('-', power),
        None => ('+', power),
    };
    format!("{mantissa}e{sign}{power:0>digits$}")
}

/// Go's JSON escapes what browsers could take for markup.
fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (index, key) in keys.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_text(key, out);
                out.push(':');
                write_json(map.get(key).unwrap_or(&Value::Null), out);
            }
            out.push('}');
        }
        Value::String(text) => write_text(text, out),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (None, Some(fraction)) => out.push_str(&exponent(fraction, 1e-6..1e21, 1)),
            _ => out.push_str(&number.to_string()),
        },
        other => out.push_str(&other.to_string()),
    }
}

fn write_text(text: &str, out: &mut String) {
    crate::go::escape(&Value::from(text).to_string(), out);
}
