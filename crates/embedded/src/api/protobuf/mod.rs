//! Bodies in protobuf, which client-go's typed clients send and with them `kubectl create`, `drain` and Helm (A5).
//!
//! A body is four bytes that say so, and an envelope with the type and the object's message. [`decode`] makes of the
//! message the JSON that says the same, by the numbers in `kinds/definitions.txt` ([`messages`]); from there on nobody
//! knows what was sent. Fields that nobody knows are passed over without a word, as in the reference, also where
//! `fieldValidation` is `Strict`. Answers are JSON, which all these clients read.

mod decode;
#[cfg(test)]
mod filled;
mod messages;
#[cfg(test)]
mod tests;
mod wire;

use serde_json::{Map, Value};

use self::wire::Reader;
use crate::api::openapi::definitions;
use crate::fault::{Fault, quote};

/// What a body in this format begins with.
const MAGIC: &[u8] = b"k8s\0";
pub(crate) const DELETE_OPTIONS: &str = "DeleteOptions";

/// Which type a body is of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyType<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
}

impl BodyType<'_> {
    pub(crate) const DELETE_OPTIONS: Self = BodyType {
        group: "",
        version: "v1",
        kind: DELETE_OPTIONS,
    };

    fn api_version(self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }
}

/// The object of a body, whose type should be this one, and is if it does not say.
pub(crate) fn parse(bytes: &[u8], expected: BodyType) -> Result<Value, Fault> {
    let envelope = Envelope::read(bytes).map_err(|why| {
        Fault::bad_request(match expected.kind {
            DELETE_OPTIONS => why,
            kind => format!(
                "the object provided is unrecognized (must be of type {kind}): {why} ({})",
                crate::api::body_summary(bytes)
            ),
        })
    })?;
    let given = envelope.given(expected);
    let mut object = read_as(expected, given, envelope.message).map_err(|why| {
        Fault::bad_request(match expected.kind {
            DELETE_OPTIONS => why,
            wanted => format!(
                "{} in version {} cannot be handled as a {wanted}: {why}",
                given.kind,
                quote(given.version)
            ),
        })
    })?;
    object.insert("apiVersion".to_owned(), given.api_version().into());
    object.insert("kind".to_owned(), given.kind.into());
    Ok(Value::Object(object))
}

fn read_as(expected: BodyType, given: BodyType, message: &[u8]) -> Result<Map<String, Value>, String> {
    // Options are of every group, and nothing else is in their place.
    let definition = match (given.kind, expected.kind) {
        (DELETE_OPTIONS, DELETE_OPTIONS) => definitions::DELETE_OPTIONS.to_owned(),
        (_, DELETE_OPTIONS) => String::new(),
        (kind, _) => definitions::name(given.group, given.version, kind),
    };
    let Some(known) = messages::all().of(&definition) else {
        return Err(format!(
            "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
            quote(given.kind),
            quote(&given.api_version())
        ));
    };
    let object = decode::object(known, message)?;
    if given.kind == expected.kind {
        return Ok(object);
    }
    let group = match expected.group {
        "" => "core",
        group => group.split('.').next().unwrap_or(group),
    };
    Err(format!(
        "converting ({}.{}) to ({group}.{}): unknown conversion",
        given.version, given.kind, expected.kind
    ))
}

/// What stands around a message.
#[derive(Debug, Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    message: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, String> {
        if bytes.is_empty() {
            return Err("empty data".to_owned());
        }
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| {
            format!(
                "provided data does not appear to be a protobuf message, expected prefix {}",
                listed(MAGIC)
            )
        })?;
        if rest.is_empty() {
            return Err("empty body".to_owned());
        }
        let mut envelope = Self::default();
        let mut reader = Reader::new(rest);
        while let Some(tag) = reader.tag("Unknown")? {
            match tag.field {
                1 => envelope.read_type(reader.bytes(tag, &"TypeMeta")?)?,
                2 => envelope.message = reader.bytes(tag, &"Raw")?,
                3 => drop(reader.bytes(tag, &"ContentEncoding")?),
                4 => drop(reader.bytes(tag, &"ContentType")?),
                _ => reader.skip(tag)?,
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut reader = Reader::new(bytes);
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        while let Some(tag) = reader.tag("TypeMeta")? {
            match tag.field {
                1 => self.api_version = text(reader.bytes(tag, &"APIVersion")?),
                2 => self.kind = text(reader.bytes(tag, &"Kind")?),
                _ => reader.skip(tag)?,
            }
        }
        Ok(())
    }

    /// The type that it names, or what it must be where it names none.
    fn given<'b>(&'b self, expected: BodyType<'b>) -> BodyType<'b> {
        let (group, version) = match self.api_version.split_once('/') {
            Some(both) => both,
            None if self.api_version.is_empty() => (expected.group, expected.version),
            None => ("", &*self.api_version),
        };
        let kind = if self.kind.is_empty() {
            expected.kind
        } else {
            &self.kind
        };
        BodyType { group, version, kind }
    }
}

/// Bytes as Go prints them.
fn listed(bytes: &[u8]) -> String {
    let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
    format!("[{}]", numbers.join(" "))
}
