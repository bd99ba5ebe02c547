//! FieldsV1: how a set of fields is written in `metadata.managedFields`.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::element::{Element, in_json};
use super::set::{Node, Set};
use super::shape::DEEPEST;

/// A text that is not FieldsV1, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotFields(String);

impl Set {
    /// Reads FieldsV1. Kinds of elements this version does not know are left out, as the reference does.
    ///
    /// # Errors
    /// Where a key is not an element, or a value not a map.
    pub fn from_fields_v1(fields: &Value) -> Result<Self, NotFields> {
        match fields {
            Value::Null => Ok(Self::new()),
            Value::Object(map) => Ok(read(map, 0)?.0),
            other => Err(NotFields(format!("expected a map, got {other}"))),
        }
    }

    /// Writes FieldsV1.
    #[must_use]
    pub fn to_fields_v1(&self) -> Value {
        fn map(set: &Set, own: bool) -> Map<String, Value> {
            let mut out = Map::new();
            if own && !set.is_empty() {
                out.insert(".".to_owned(), Value::Object(Map::new()));
            }
            for node in &set.nodes {
                out.insert(written(&node.element), Value::Object(map(&node.children, node.member)));
            }
            out
        }
        Value::Object(map(self, false))
    }

    /// FieldsV1 as text, in the order of elements, byte for byte as the reference writes it.
    #[must_use]
    pub fn to_text(&self) -> String {
        fn write(set: &Set, own: bool, out: &mut String) {
            out.push('{');
            let mut first = true;
            if own && !set.is_empty() {
                out.push_str("\".\":{}");
                first = false;
            }
            for node in &set.nodes {
                if !first {
                    out.push(',');
                }
                first = false;
                // Writing to a text does not fail.
                let _ = write!(out, "{}:", Value::from(written(&node.element)));
                write(&node.children, node.member, out);
            }
            out.push('}');
        }
        let mut out = String::new();
        write(self, false, &mut out);
        out
    }
}

/// What is in a map, and whether the map's own path is a member.
fn read(map: &Map<String, Value>, depth: usize) -> Result<(Set, bool), NotFields> {
    if depth > DEEPEST {
        return Err(NotFields("nested too deep".to_owned()));
    }
    let mut set = Set::new();
    let mut own = false;
    for (key, value) in map {
        if key == "." {
            own = true;
            continue;
        }
        let Some(element) = element(key)? else { continue };
        let (children, member) = match value {
            Value::Object(below) => read(below, depth + 1)?,
            Value::Null => (Set::new(), true),
            other => return Err(NotFields(format!("expected a map at {key}, got {other}"))),
        };
        set.put(Node {
            element,
            member,
            children,
        });
    }
    // A path with nothing below is a member whether it says so or not.
    let own = own || set.is_empty();
    Ok((set, own))
}

fn element(key: &str) -> Result<Option<Element>, NotFields> {
    if key.len() < 2 {
        return Err(NotFields("key must be 2 characters long:".to_owned()));
    }
    let Some((kind, rest)) = key.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
        return Err(NotFields(format!("missing colon: {key}")));
    };
    Ok(Some(match kind {
        "f" => Element::field(rest),
        "v" => Element::Value(Box::new(
            serde_json::from_str(rest).map_err(|error| NotFields(format!("{key}: {error}")))?,
        )),
        "k" => {
            let fields: Map<String, Value> =
                serde_json::from_str(rest).map_err(|error| NotFields(format!("{key}: {error}")))?;
            Element::of_keys(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
        }
        "i" => Element::Index(rest.parse().map_err(|error| NotFields(format!("{key}: {error}")))?),
        _ => return Ok(None),
    }))
}

fn written(element: &Element) -> String {
    let mut out = String::new();
    match element {
        Element::Field(name) => {
            out.reserve(name.len() + 2);
            out.push_str("f:");
            out.push_str(name);
        }
        Element::Value(value) => {
            out.push_str("v:");
            out.push_str(&in_json(value));
        }
        Element::Index(index) => {
            let _ = write!(out, "i:{index}");
        }
        Element::Key(fields) => {
            out.push_str("k:{");
            for (position, (name, value)) in fields.iter().enumerate() {
                let comma = if position == 0 { "" } else { "," };
                let _ = write!(out, "{comma}{}:{}", in_json(&Value::from(&**name)), in_json(value));
            }
            out.push('}');
        }
    }
    out
}
