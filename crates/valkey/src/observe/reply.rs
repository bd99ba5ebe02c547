//! What a server answers to one command, whoever read it from the wire.

use std::borrow::Cow;
use std::fmt;

/// One answer. Texts are bytes: keys need not be UTF-8.
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    /// Nothing there.
    Nil,
    /// A number.
    Number(i64),
    /// A text, simple or bulk.
    Bytes(Vec<u8>),
    /// Several answers in one.
    List(Vec<Reply>),
    /// An error reply, whole: its code and what follows.
    Refusal(String),
}

impl Reply {
    /// A text reply.
    pub fn of(text: impl Into<String>) -> Self {
        Self::Bytes(text.into().into_bytes())
    }

    /// As text, where it is one.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Bytes(bytes) => Some(String::from_utf8_lossy(bytes)),
            _ => None,
        }
    }

    /// As a number, where it is one or reads as one: servers answer both ways.
    pub fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Bytes(_) => self.text()?.parse().ok(),
            _ => None,
        }
    }

    /// Its parts.
    pub fn list(&self) -> Option<&[Reply]> {
        match self {
            Self::List(parts) => Some(parts),
            _ => None,
        }
    }

    /// What the server refuses with.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Refusal(words) => Some(words),
            _ => None,
        }
    }
}

/// For messages about answers that cannot be read: short, and the first characters tell enough.
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Number(number) => number.fmt(f),
            Self::Bytes(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                let shown: String = text.chars().take(80).collect();
                let more = if shown.len() < text.len() { "…" } else { "" };
                write!(f, "{shown:?}{more}")
            }
            Self::List(parts) => write!(f, "a list of {}", parts.len()),
            Self::Refusal(words) => write!(f, "-{words}"),
        }
    }
}

impl From<redis::Value> for Reply {
    fn from(value: redis::Value) -> Self {
        use redis::Value;
        let list = |values: Vec<Value>| Self::List(values.into_iter().map(Self::from).collect());
        match value {
            Value::Nil => Self::Nil,
            Value::Int(number) => Self::Number(number),
            Value::Boolean(truth) => Self::Number(truth.into()),
            Value::BulkString(bytes) | Value::BigNumber(bytes) => Self::Bytes(bytes),
            Value::SimpleString(text) | Value::VerbatimString { text, .. } => Self::of(text),
            Value::Okay => Self::of("OK"),
            Value::Double(number) => Self::of(number.to_string()),
            Value::Array(values) | Value::Set(values) | Value::Push { data: values, .. } => list(values),
            Value::Map(pairs) => list(pairs.into_iter().flat_map(|(name, value)| [name, value]).collect()),
            Value::Attribute { data, .. } => (*data).into(),
            Value::ServerError(error) => Self::Refusal(refusal(error.code(), error.details())),
            other => Self::Refusal(format!("ERR an answer that this client does not know: {other:?}")),
        }
    }
}

/// An error reply as the server wrote it.
pub(super) fn refusal(code: &str, details: Option<&str>) -> String {
    match details {
        Some(details) => format!("{code} {details}"),
        None => code.to_owned(),
    }
}
