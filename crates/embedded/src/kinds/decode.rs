//! What the reference's decoding into Go structs and writing them again does to a built-in object.
//!
//! Unknown fields go and are reported; null means absent; empty fields go or come as the struct's tags say; amounts and
//! times become canonical. After this, an object looks as if the reference had answered it. Deciding whether a finding
//! is an error, a warning or nothing (`fieldValidation`) is the registry's.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use super::quantity::Quantity;
use super::time;
use crate::schema::{Additional, Schema, Type, Written};

/// Decodes in place. The findings are unknown fields, each as `unknown field "spec.foo"`.
///
/// # Errors
/// A value of the wrong type, in the reference's words: `json: cannot unmarshal string into Go struct field …`.
pub fn decode(schema: &Schema, value: &mut Value) -> Result<Vec<String>, String> {
    let mut decoder = Decoder::default();
    decoder.node(schema, go_name(schema), value)?;
    Ok(decoder.findings)
}

/// Fields that the schema does not know and fields given twice, in the order of the text: what `fieldValidation` is
/// told. A second look at the text, since a parsed value no longer has duplicates or order.
#[must_use]
pub fn findings(schema: &Schema, json: &[u8]) -> Vec<String> {
    super::findings::of_text(schema, json)
}

#[derive(Debug, Default)]
struct Decoder<'a> {
    findings: Vec<String>,
    /// Fields from the root with the struct that has each, as errors name them: without indices.
    fields: Vec<(&'a str, &'a str)>,
    /// From the root with indices, as findings name them.
    places: Vec<Place<'a>>,
    /// The struct that has the innermost field.
    within: Option<&'a str>,
}

#[derive(Debug, Clone)]
enum Place<'a> {
    Field(&'a str),
    Key(String),
    Index(usize),
}

impl<'a> Decoder<'a> {
    fn node(&mut self, schema: &'a Schema, go_type: &str, value: &mut Value) -> Result<(), String> {
        match schema.kind {
            _ if value.is_null() => Ok(()),
            Some(Type::Object) if schema.preserve_unknown => self.whole_object(schema, go_type, value),
            Some(Type::Object) => match &schema.additional {
                Additional::Schema(values) => self.map(values, go_type, value),
                _ => self.object(schema, go_type, value),
            },
            Some(Type::Array) => self.list(schema, go_type, value),
            Some(Type::String) => self.text(schema, go_type, value),
            Some(Type::Boolean) if !value.is_boolean() => Err(self.wrong_type(go_type, value)),
            Some(Type::Number) if !value.is_number() => Err(self.wrong_type(go_type, value)),
            Some(Type::Integer) => self.integer(schema, go_type, value),
            None if schema.int_or_string => self.int_or_string(value),
            None if schema.format.as_deref() == Some("quantity") => quantity(value),
            _ => Ok(()),
        }
    }

    fn object(&mut self, schema: &'a Schema, go_type: &str, value: &mut Value) -> Result<(), String> {
        let Value::Object(map) = value else {
            return Err(self.wrong_type(go_type, value));
        };
        self.unknown(schema, map);
        let outer = self.within;
        self.within = schema.name.as_deref().or(outer);
        for (name, property) in &schema.properties {
            if let Some(field) = map.get_mut(name.as_ref()) {
                self.fields.push((self.within.unwrap_or_default(), name));
                self.places.push(Place::Field(name));
                self.node(property, bare(property), field)?;
                self.fields.pop();
                self.places.pop();
            }
            settle(name, property, map);
        }
        self.within = outer;
        Ok(())
    }

    fn unknown(&mut self, schema: &Schema, map: &mut Map<String, Value>) {
        if map.keys().all(|key| schema.properties.contains_key(key.as_str())) {
            return;
        }
        let unknown: Vec<String> = map
            .keys()
            .filter(|key| !schema.properties.contains_key(key.as_str()))
            .cloned()
            .collect();
        for key in unknown {
            map.remove(&key);
            self.findings.push(format!("unknown field {:?}", self.place(&key)));
        }
    }

    fn place(&self, key: &str) -> String {
        let mut text = String::new();
        for place in &self.places {
            match place {
                Place::Field(name) => push_dotted(&mut text, name),
                Place::Key(key) => push_dotted(&mut text, key),
                Place::Index(index) => text.push_str(&format!("[{index}]")),
            }
        }
        push_dotted(&mut text, key);
        text
    }

    fn map(&mut self, values: &'a Schema, go_type: &str, value: &mut Value) -> Result<(), String> {
        let Value::Object(map) = value else {
            return Err(self.wrong_type(go_type, value));
        };
        let inner = go_type.split_once(']').map_or(go_name(values), |(_, inner)| inner);
        for (key, field) in map.iter_mut() {
            if field.is_null() {
                *field = empty(values, inner);
                continue;
            }
            self.places.push(Place::Key(key.clone()));
            self.node(values, inner.trim_start_matches('*'), field)?;
            self.places.pop();
        }
        Ok(())
    }

    fn list(&mut self, schema: &'a Schema, go_type: &str, value: &mut Value) -> Result<(), String> {
        let Value::Array(list) = value else {
            return Err(self.wrong_type(go_type, value));
        };
        let Some(items) = schema.items.as_deref() else {
            return Ok(());
        };
        let inner = go_type.strip_prefix("[]").unwrap_or_else(|| go_name(items));
        for (index, item) in list.iter_mut().enumerate() {
            if item.is_null() {
                *item = empty(items, inner);
                continue;
            }
            self.places.push(Place::Index(index));
            self.node(items, inner, item)?;
            self.places.pop();
        }
        Ok(())
    }

    fn text(&mut self, schema: &Schema, go_type: &str, value: &mut Value) -> Result<(), String> {
        let Value::String(text) = value else {
            return Err(match schema.format.as_deref() {
                // These types decode themselves from a string.
                Some("date-time" | "micro-time" | "duration") => self.wrong_type("string", value),
                _ => self.wrong_type(go_type, value),
            });
        };
        match schema.format.as_deref() {
            Some("date-time") => *text = time::seconds(text)?,
            Some("micro-time") => *text = time::micros(text)?,
            Some("byte") => *text = STANDARD.encode(bytes(text)?),
            _ => {}
        }
        Ok(())
    }

    fn integer(&mut self, schema: &Schema, go_type: &str, value: &Value) -> Result<(), String> {
        let Value::Number(number) = value else {
            return Err(self.wrong_type(go_type, value));
        };
        let fits = number
            .as_i64()
            .is_some_and(|number| schema.format.as_deref() != Some("int32") || i32::try_from(number).is_ok());
        if fits {
            Ok(())
        } else {
            Err(self.unfit(&format!("number {number}"), go_type))
        }
    }

    fn int_or_string(&mut self, value: &Value) -> Result<(), String> {
        match value {
            Value::String(_) => Ok(()),
            Value::Number(number) if number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()) => Ok(()),
            Value::Number(number) => Err(self.unfit(&format!("number {number}"), "int32")),
            other => Err(self.wrong_type("int32", other)),
        }
    }

    fn whole_object(&mut self, schema: &Schema, go_type: &str, value: &Value) -> Result<(), String> {
        // Raw JSON may be anything; only what stands for an object is looked at.
        if schema.format.is_none() && !value.is_object() {
            return Err(self.wrong_type(go_type, value));
        }
        Ok(())
    }

    fn wrong_type(&self, go_type: &str, value: &Value) -> String {
        self.unfit(crate::go::json_kind(value), go_type)
    }

    fn unfit(&self, what: &str, go_type: &str) -> String {
        match self.within {
            Some(name) if !self.fields.is_empty() => {
                let mut path = String::new();
                for (holder, field) in &self.fields {
                    if let Some(embedded) = embedded(holder, field) {
                        push_dotted(&mut path, embedded);
                    }
                    push_dotted(&mut path, field);
                }
                format!("json: cannot unmarshal {what} into Go struct field {name}.{path} of type {go_type}")
            }
            _ => format!("json: cannot unmarshal {what} into Go value of type {go_type}"),
        }
    }
}

fn push_dotted(text: &mut String, name: &str) {
    if !text.is_empty() {
        text.push('.');
    }
    text.push_str(name);
}

/// The struct that a field was taken over from: Go names it on the way.
fn embedded(holder: &str, field: &str) -> Option<&'static str> {
    match (holder, field) {
        ("Volume", "name") => None,
        ("Volume", _) => Some("VolumeSource"),
        ("Probe", "exec" | "httpGet" | "tcpSocket" | "grpc") => Some("ProbeHandler"),
        ("EphemeralContainer", "targetContainerName") => None,
        ("EphemeralContainer", _) => Some("EphemeralContainerCommon"),
        (
            "ConfigMapKeySelector"
            | "SecretKeySelector"
            | "ConfigMapEnvSource"
            | "SecretEnvSource"
            | "ConfigMapVolumeSource"
            | "ConfigMapProjection"
            | "SecretProjection"
            | "ConfigMapNodeConfigSource",
            "name",
        ) => Some("LocalObjectReference"),
        ("RuleWithOperations", "operations") => None,
        ("RuleWithOperations", _) => Some("Rule"),
        ("PersistentVolumeSpec", field) if super::volume_source::SOURCES_OF_VOLUMES.contains(&field) => {
            Some("PersistentVolumeSource")
        }
        // Kinds have `metadata` of their own; references to others have these two as plain fields.
        (holder, "apiVersion" | "kind") if !holder.ends_with("Reference") && !holder.ends_with("Selector") => {
            Some("TypeMeta")
        }
        _ => None,
    }
}

/// The type an error names: a pointer's target.
fn bare(schema: &Schema) -> &'static str {
    schema.go_type.unwrap_or("").trim_start_matches('*')
}

/// For a definition that stands alone or in a list, where no field says its type.
fn go_name(schema: &Schema) -> &'static str {
    schema.go_type.unwrap_or("v1.Object")
}

/// Removes what is empty and adds what is always written.
fn settle(name: &str, property: &Schema, map: &mut Map<String, Value>) {
    let value = map.get(name);
    let absent = value.is_none_or(Value::is_null);
    // A stored empty list or map of a struct comes back as none.
    let hollow = value.is_some_and(|value| match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(entries) => entries.is_empty() && matches!(property.additional, Additional::Schema(_)),
        _ => false,
    });
    match property.written {
        Written::Always if absent || hollow => {
            map.insert(name.to_owned(), empty(property, property.go_type.unwrap_or("")));
        }
        Written::NotEmpty if absent || value.is_some_and(is_empty) => {
            map.remove(name);
        }
        Written::Given if absent => {
            map.remove(name);
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// What Go writes for a value nobody set.
fn empty(schema: &Schema, go_type: &str) -> Value {
    let bytes = schema.format.as_deref() == Some("byte");
    if !bytes && (go_type.starts_with(['*', '[']) || go_type.starts_with("map[")) {
        return Value::Null;
    }
    match (schema.kind, schema.format.as_deref()) {
        (Some(Type::Boolean), _) => Value::Bool(false),
        (Some(Type::Integer | Type::Number), _) => Value::from(0),
        (None, Some("int-or-string")) => Value::from(0),
        (None, Some("quantity")) => Value::from("0"),
        (Some(Type::String), None | Some("byte")) => Value::from(""),
        (Some(Type::Object), None) if matches!(schema.additional, Additional::No) => {
            let mut map = Map::new();
            for (name, property) in &schema.properties {
                settle(name, property, &mut map);
            }
            Value::Object(map)
        }
        _ => Value::Null,
    }
}

fn quantity(value: &mut Value) -> Result<(), String> {
    let text = match &*value {
        Value::String(text) => text.clone(),
        Value::Number(number) => plain(number),
        other => other.to_string(),
    };
    *value = Quantity::rewrite(&text)?.into();
    Ok(())
}

fn plain(number: &Number) -> String {
    let text = number.to_string();
    // 3.0 was written by a client as 3.0, and reads as an amount just the same.
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Standard base64; line ends within are ignored.
fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let joined: String;
    let text = if text.contains(['\r', '\n']) {
        joined = text.replace(['\r', '\n'], "");
        &joined
    } else {
        text
    };
    STANDARD.decode(text).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            // Go names the start of the group that is not whole.
            base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len() / 4 * 4,
        };
        format!("illegal base64 data at input byte {at}")
    })
}
