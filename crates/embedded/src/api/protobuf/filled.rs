//! For tests: an object with a value in every field, as bytes and as JSON, each made without the decoder. That the numbers
//! are the reference's is held by `cargo xtask definitions`, and by what a real server wrote (`recorded.txt`).

use serde_json::{Map, Value, json};

use super::messages::{self, Kind, Message, Type};

/// More than any object has.
const LEVELS: usize = 20;

/// An object of this definition.
pub(super) fn object(definition: &str) -> (Vec<u8>, Value) {
    filled(messages::all().of(definition).unwrap(), LEVELS)
}

pub(super) fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A field of bytes.
pub(super) fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

fn number(number: u64, value: i64) -> Vec<u8> {
    [varint(number << 3), varint(value as u64)].concat()
}

fn message(message: &Message, into: &mut Map<String, Value>, levels: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, known) in message.fields() {
        let at = u64::from(at);
        match known.kind {
            Kind::Inline(index) => {
                let inside = self::message(messages::all().at(index).unwrap(), into, levels);
                bytes.extend(field(at, &inside));
            }
            Kind::One(kind) => {
                if let Some((made, value)) = one(at, kind, levels) {
                    bytes.extend(made);
                    into.insert(known.name.to_owned(), value);
                }
            }
            Kind::List(kind) => {
                if let Some((made, value)) = one(at, kind, levels) {
                    bytes.extend(made);
                    into.insert(known.name.to_owned(), json!([value]));
                }
            }
            Kind::Map(kind) => {
                if let Some((made, value)) = one(2, kind, levels) {
                    bytes.extend(field(at, &[field(1, b"key"), made].concat()));
                    into.insert(known.name.to_owned(), json!({"key": value}));
                }
            }
            Kind::MapOfLists(kind) => {
                if let Some((made, value)) = one(1, kind, levels) {
                    bytes.extend(field(at, &[field(1, b"key"), field(2, &made)].concat()));
                    into.insert(known.name.to_owned(), json!({"key": [value]}));
                }
            }
        }
    }
    bytes
}

/// A field of this type with a value. `None`: it would go on for ever.
fn one(at: u64, kind: Type, levels: usize) -> Option<(Vec<u8>, Value)> {
    let below = levels.checked_sub(1)?;
    let schema = || filled(messages::all().schema().unwrap(), below);
    Some(match kind {
        Type::Text => (field(at, "t\u{e9}xt".as_bytes()), json!("t\u{e9}xt")),
        Type::Bool => (number(at, 1), json!(true)),
        Type::Int32 => (number(at, -7), json!(-7)),
        Type::Int64 => (number(at, i64::MAX), json!(i64::MAX)),
        Type::Double => (
            [varint(at << 3 | 1), 1.5f64.to_le_bytes().to_vec()].concat(),
            json!(1.5),
        ),
        Type::Bytes => (field(at, b"\0\xff!"), json!("AP8h")),
        Type::Time => (
            field(at, &[number(1, 1_000_000_000), number(2, 5)].concat()),
            json!("2001-09-09T01:46:40Z"),
        ),
        Type::MicroTime => (
            field(at, &[number(1, 1_000_000_000), number(2, 123_456_789)].concat()),
            json!("2001-09-09T01:46:40.123456Z"),
        ),
        Type::Quantity => (field(at, &field(1, b"250m")), json!("250m")),
        Type::IntOrString => (
            field(at, &[number(1, 1), number(2, 0), field(3, b"25%")].concat()),
            json!("25%"),
        ),
        Type::Json | Type::Fields => (field(at, &field(1, br#"{"f:a":{}}"#)), json!({"f:a": {}})),
        Type::SchemaOrList => {
            let (bytes, value) = schema();
            (field(at, &field(1, &bytes)), value)
        }
        Type::SchemaOrBool => {
            let (bytes, value) = schema();
            (field(at, &[number(1, 1), field(2, &bytes)].concat()), value)
        }
        Type::SchemaOrStrings => (field(at, &[field(2, b"a"), field(2, b"b")].concat()), json!(["a", "b"])),
        Type::Message(index) => {
            let (bytes, value) = filled(messages::all().at(index).unwrap(), below);
            (field(at, &bytes), value)
        }
    })
}

fn filled(known: &Message, levels: usize) -> (Vec<u8>, Value) {
    // Schemas are within schemas, in many fields: one level of them is enough, and more would not end.
    let is_schema = std::ptr::eq(known, messages::all().schema().unwrap());
    let mut map = Map::new();
    let bytes = message(known, &mut map, if is_schema { levels.min(1) } else { levels });
    (bytes, Value::Object(map))
}
