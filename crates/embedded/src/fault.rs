//! What a client is told when it cannot have what it asked for: always a `Status`, and one cause for each field.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value, json};

/// Where a field is: `spec.containers[0].name`, `metadata.labels[a/b]`. Built from the root down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// A field of the object at this path.
    #[must_use]
    pub fn field(&self, name: &str) -> Self {
        if self.0.is_empty() {
            Self(name.to_owned())
        } else {
            Self(format!("{}.{name}", self.0))
        }
    }

    /// An item of the list at this path.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// An entry of the map at this path.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The reference writes the root as nil.
        formatter.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    Required,
    Invalid,
    /// The type is wrong; reads like `Invalid`.
    TypeInvalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Duplicate,
    NotFound,
    Internal,
}

impl Wrong {
    /// The cause's `reason`.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }

    /// Whether the value is shown.
    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::Internal)
    }
}

/// One thing wrong with one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    pub wrong: Wrong,
    pub path: Path,
    /// `None` where the value is left out of the text.
    pub value: Option<Value>,
    pub detail: String,
}

impl FieldError {
    #[must_use]
    pub fn new(wrong: Wrong, path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self {
            wrong,
            path: path.clone(),
            value: Some(value.into()),
            detail: detail.into(),
        }
    }

    #[must_use]
    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self {
            wrong: Wrong::Required,
            path: path.clone(),
            value: None,
            detail: detail.into(),
        }
    }

    #[must_use]
    pub fn invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(Wrong::Invalid, path, value, detail)
    }

    #[must_use]
    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self {
            wrong: Wrong::Forbidden,
            path: path.clone(),
            value: None,
            detail: detail.into(),
        }
    }

    #[must_use]
    pub fn duplicate(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(Wrong::Duplicate, path, value, "")
    }

    /// A value outside a closed set.
    #[must_use]
    pub fn not_supported(path: &Path, value: impl Into<Value>, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|word| quote(word)).collect();
        Self::new(
            Wrong::NotSupported,
            path,
            value,
            format!("supported values: {}", quoted.join(", ")),
        )
    }

    /// A text longer than `most` bytes.
    #[must_use]
    pub fn too_long(path: &Path, most: usize) -> Self {
        Self {
            wrong: Wrong::TooLong,
            path: path.clone(),
            value: None,
            detail: format!("may not be more than {most} bytes"),
        }
    }

    /// A list of `count` items where `most` are allowed.
    #[must_use]
    pub fn too_many(path: &Path, count: usize, most: usize) -> Self {
        Self::new(Wrong::TooMany, path, count, format!("must have at most {most} items"))
    }

    /// The text without the path: the cause's `message`.
    #[must_use]
    pub fn body(&self) -> String {
        let mut text = self.wrong.words().to_owned();
        if self.wrong.shows_value()
            && let Some(value) = &self.value
        {
            text.push_str(": ");
            match value {
                Value::String(word) => text.push_str(&quote(word)),
                Value::Number(number) if !number.is_i64() => {
                    text.push_str(&show_float(number.as_f64().unwrap_or(f64::NAN)));
                }
                other => text.push_str(&other.to_string()),
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    fn cause(&self) -> Value {
        json!({"reason": self.wrong.reason(), "message": self.body(), "field": self.path.to_string()})
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.body())
    }
}

/// A float as Go's `%v` shows it: `1.5`, `5`, `1e+06`.
#[must_use]
pub fn show_float(float: f64) -> String {
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        // Go changes to exponents at a million, and writes them with two digits.
        Ok(power) if !(-4..6).contains(&power) => {
            format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
        }
        _ => format!("{float}"),
    }
}

/// A text in double quotes, escaped as Go's `%q` does.
#[must_use]
pub fn quote(text: &str) -> String {
    use std::fmt::Write as _;
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            letter if letter.is_ascii_control() => {
                // Writing to a String cannot fail.
                let _ = write!(quoted, "\\x{:02x}", u32::from(letter));
            }
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// The kind or resource a message is about, with its group: `pods`, `deployments.apps`, `Deployment.apps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub group: String,
    /// A resource (`deployments`) or a kind (`Deployment`), as the message wants it.
    pub kind: String,
}

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(formatter, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// An answer that is not what was asked for.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    pub code: u16,
    /// One of the reference's words, or what a webhook said.
    pub reason: Cow<'static, str>,
    pub message: String,
    pub details: Option<Map<String, Value>>,
    /// For the header `Retry-After`, and in `details`.
    pub retry_after_seconds: Option<u32>,
    /// `metadata.continue`: how to go on with a list whose snapshot is gone.
    pub next: Option<Box<str>>,
    /// Said as plain text: the path names nothing of Kubernetes.
    pub is_plain: bool,
    /// For headers `Warning`: what was noticed before it failed.
    pub warnings: Noticed,
}

/// See [`Fault::warnings`]. One word long, since most have none and every result carries it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Noticed(Option<Box<Noted>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Noted {
    all: Vec<String>,
}

impl Noticed {
    #[must_use]
    pub fn all(&self) -> &[String] {
        self.0.as_ref().map(|noted| noted.all.as_slice()).unwrap_or_default()
    }
}

impl Fault {
    #[must_use]
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: Cow::Borrowed(reason),
            message: message.into(),
            details: None,
            retry_after_seconds: None,
            next: None,
            is_plain: false,
            warnings: Noticed::default(),
        }
    }

    /// With what was noticed before; what it has itself came later.
    #[must_use]
    pub fn with_warnings(mut self, mut earlier: Vec<String>) -> Self {
        earlier.extend_from_slice(self.warnings.all());
        self.warnings = Noticed((!earlier.is_empty()).then(|| Box::new(Noted { all: earlier })));
        self
    }

    /// With `details` about this subject.
    #[must_use]
    pub fn about(mut self, subject: &Subject, name: &str) -> Self {
        let details = self.details.get_or_insert_default();
        for (key, value) in [("name", name), ("group", &subject.group), ("kind", &subject.kind)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), value.into());
            }
        }
        self
    }

    /// With one more cause.
    #[must_use]
    pub fn cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let mut cause = Map::new();
        for (key, value) in [("reason", reason), ("message", message), ("field", field)] {
            if !value.is_empty() {
                cause.insert(key.to_owned(), value.into());
            }
        }
        let details = self.details.get_or_insert_default();
        if let Value::Array(causes) = details.entry("causes").or_insert_with(|| Value::Array(Vec::new())) {
            causes.push(Value::Object(cause));
        }
        self
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = Some(seconds);
        self.details
            .get_or_insert_default()
            .insert("retryAfterSeconds".to_owned(), seconds.into());
        self
    }

    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    #[must_use]
    pub fn not_found(resource: &Subject, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} {} not found", quote(name))).about(resource, name)
    }

    #[must_use]
    pub fn already_exists(resource: &Subject, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{resource} {} already exists", quote(name)),
        )
        .about(resource, name)
    }

    /// `why` completes "Operation cannot be fulfilled on …: ".
    #[must_use]
    pub fn conflict(resource: &Subject, name: &str, why: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {resource} {}: {why}", quote(name)),
        )
        .about(resource, name)
    }

    #[must_use]
    pub fn forbidden(resource: &Subject, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {} is forbidden: {why}", quote(name))
        };
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    /// Fields that break rules. `kind` names a kind, not a resource.
    #[must_use]
    pub fn invalid(kind: &Subject, name: &str, errors: &[FieldError]) -> Self {
        // The same sentence twice is said once.
        let mut texts: Vec<String> = Vec::new();
        for error in errors {
            let text = error.to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let list = match texts.as_slice() {
            [] => String::new(),
            [one] => format!(": {one}"),
            many => format!(": [{}]", many.join(", ")),
        };
        let mut fault = Self::new(422, "Invalid", format!("{kind} {} is invalid{list}", quote(name))).about(kind, name);
        if !errors.is_empty() {
            fault
                .details
                .get_or_insert_default()
                .insert("causes".to_owned(), errors.iter().map(FieldError::cause).collect());
        }
        fault
    }

    #[must_use]
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}")).cause(
            "",
            &message.to_string(),
            "",
        )
    }

    /// A revision that is no longer kept.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The `Status` that is sent.
    #[must_use]
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if let Value::Object(map) = &mut status {
            if !self.reason.is_empty() {
                map.insert("reason".to_owned(), self.reason.as_ref().into());
            }
            if let Some(next) = &self.next {
                map.insert("metadata".to_owned(), json!({"continue": next}));
            }
            if let Some(details) = &self.details {
                map.insert("details".to_owned(), Value::Object(details.clone()));
            }
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_error_reads_like_the_reference() {
        let path = Path::root().field("spec").field("containers").index(0).field("name");
        let error = FieldError::invalid(&path, "A b", "must be lower case");
        assert_eq!(
            error.to_string(),
            r#"spec.containers[0].name: Invalid value: "A b": must be lower case"#
        );
        assert_eq!(FieldError::required(&path, "").body(), "Required value");
    }

    #[test]
    fn several_field_errors_are_one_status_with_a_cause_each() {
        let kind = Subject {
            group: "apps".into(),
            kind: "Deployment".into(),
        };
        let one = FieldError::required(&Path::new("spec.selector"), "");
        let two = FieldError::forbidden(&Path::new("spec.x"), "no");
        let fault = Fault::invalid(&kind, "web", &[one, two]);
        assert_eq!(
            fault.message,
            r#"Deployment.apps "web" is invalid: [spec.selector: Required value, spec.x: Forbidden: no]"#
        );
        let status = fault.status();
        assert_eq!(status["details"]["causes"][1]["reason"], "FieldValueForbidden");
        assert_eq!(status["code"], 422);
    }
}
