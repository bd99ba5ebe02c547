//! One step of a field path: a named field, a list item by its keys, a set item by its value, an item by its index.
//!
//! The order of elements is the order in which FieldsV1 is written, so it must equal the reference's.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

use crate::fault::quote;

/// A step from a value to one of its parts.
#[derive(Debug, Clone)]
pub enum Element {
    /// `f:name`
    Field(Box<str>),
    /// `k:{"name":"a"}`, sorted by name.
    Key(Box<[(Box<str>, Value)]>),
    /// `v:"text"`
    Value(Box<Value>),
    /// `i:0`
    Index(i64),
}

impl Element {
    #[must_use]
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// An item of a map list. The fields may come in any order.
    #[must_use]
    pub fn key(fields: &[(&str, Value)]) -> Self {
        Self::of_keys(
            fields
                .iter()
                .map(|(name, value)| ((*name).into(), value.clone()))
                .collect(),
        )
    }

    pub(super) fn of_keys(mut fields: Vec<(Box<str>, Value)>) -> Self {
        // Stable, so that a key given twice keeps its order.
        fields.sort_by(|left, right| left.0.cmp(&right.0));
        Self::Key(fields.into())
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left.cmp(right),
            (Self::Key(left), Self::Key(right)) => keys_in_order(left, right),
            (Self::Value(left), Self::Value(right)) => in_order(left, right),
            (Self::Index(left), Self::Index(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Element {}

impl fmt::Display for Element {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(formatter, ".{name}"),
            Self::Key(fields) => {
                formatter.write_str("[")?;
                for (position, (name, value)) in fields.iter().enumerate() {
                    let comma = if position == 0 { "" } else { "," };
                    write!(formatter, "{comma}{name}={}", shown(value))?;
                }
                formatter.write_str("]")
            }
            Self::Value(value) => write!(formatter, "[={}]", shown(value)),
            Self::Index(index) => write!(formatter, "[{index}]"),
        }
    }
}

/// A value as conflicts and list errors show it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(",")),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| format!("{key}={}", shown(value)))
            .collect(),
        other => in_json(other),
    }
}

/// A scalar as the reference writes it: a whole number without a fraction, whatever it was sent as.
pub(super) fn in_json(value: &Value) -> String {
    match value.as_f64() {
        // Below this all whole numbers are exact, and none is written with an exponent.
        Some(number) if !value.is_i64() && number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0 => {
            format!("{number:.0}")
        }
        _ => crate::go::json(value),
    }
}

fn keys_in_order(left: &[(Box<str>, Value)], right: &[(Box<str>, Value)]) -> Ordering {
    for ((left_name, left_value), (right_name, right_value)) in left.iter().zip(right) {
        let order = left_name
            .cmp(right_name)
            .then_with(|| in_order(left_value, right_value));
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len())
}

/// Numbers, then text, booleans, lists, maps, null; numbers by size whether written as integers or not.
fn in_order(left: &Value, right: &Value) -> Ordering {
    fn rank(value: &Value) -> u8 {
        match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => numbers_in_order(left, right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            for (left, right) in left.iter().zip(right) {
                let order = in_order(left, right);
                if order.is_ne() {
                    return order;
                }
            }
            left.len().cmp(&right.len())
        }
        (Value::Object(left), Value::Object(right)) => {
            for ((left_key, left), (right_key, right)) in left.iter().zip(right) {
                let order = left_key.cmp(right_key).then_with(|| in_order(left, right));
                if order.is_ne() {
                    return order;
                }
            }
            left.len().cmp(&right.len())
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

fn numbers_in_order(left: &Number, right: &Number) -> Ordering {
    match (left.as_i64(), right.as_i64()) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => {
            let (left, right) = (left.as_f64().unwrap_or(0.0), right.as_f64().unwrap_or(0.0));
            left.partial_cmp(&right).unwrap_or(Ordering::Equal)
        }
    }
}

/// Whether two values are the same; `1` and `1.0` are.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || numbers_in_order(left, right).is_eq(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|((left_key, left), (right_key, right))| left_key == right_key && same(left, right))
        }
        _ => left == right,
    }
}
