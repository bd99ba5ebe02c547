//! Secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::checks::immutable;
use super::config_map::{MOST_BYTES, decoded_len};
use super::metadata::invalid;
use super::names;
use super::reading::{at, default_if_empty, entries, object_mut, same, text, text_at, truth};
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

const WHEN_IMMUTABLE: &str = "field is immutable when `immutable` is set";

pub static RULES: BuiltIn = BuiltIn {
    default,
    on_update,
    check,
    check_update,
    fields: &[("type", |secret| text(secret, "type").to_owned())],
    has_generation: false,
    ..BuiltIn::PLAIN
};

/// The reference moves `stringData` into `data` as it decodes.
fn default(secret: &mut Value) {
    let strings = secret.as_object_mut().and_then(|map| map.remove("stringData"));
    if let Some(Value::Object(strings)) = strings
        && !strings.is_empty()
        && let Some(Value::Object(data)) = object_mut(secret, "data")
    {
        for (key, value) in strings {
            data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
        }
    }
    default_if_empty(secret, "type", "Opaque");
}

/// A type left out keeps the old one; by then it was defaulted, so only Opaque can be meant.
fn on_update(new: &mut Value, old: &Value) {
    if text(new, "type").is_empty()
        && let Some(map) = new.as_object_mut()
    {
        map.insert("type".to_owned(), text(old, "type").into());
    }
}

fn check(secret: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let data = Path::new("data");
    let mut bytes = 0usize;
    for (key, value) in entries(secret, "data") {
        invalid(&mut errors, &data.key(key), key, names::config_key(key));
        bytes += decoded_len(value);
    }
    if bytes > MOST_BYTES {
        errors.push(FieldError::too_long(&data, MOST_BYTES));
    }
    let value = |key: &str| secret.get("data").and_then(|data| data.get(key));
    let require = |errors: &mut Vec<FieldError>, key: &str| {
        errors.push(FieldError::required(&data.key(key), ""));
    };
    match text(secret, "type") {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if text(at(secret, "/metadata/annotations"), key).is_empty() {
                errors.push(FieldError::required(&Path::new("metadata.annotations").key(key), ""));
            }
        }
        "kubernetes.io/dockercfg" => json_object(&mut errors, value(".dockercfg"), &data.key(".dockercfg")),
        "kubernetes.io/dockerconfigjson" => {
            json_object(&mut errors, value(".dockerconfigjson"), &data.key(".dockerconfigjson"));
        }
        "kubernetes.io/basic-auth" if value("username").is_none() && value("password").is_none() => {
            require(&mut errors, "username");
            require(&mut errors, "password");
        }
        "kubernetes.io/ssh-auth" if text_at(secret, "/data/ssh-privatekey").is_empty() => {
            require(&mut errors, "ssh-privatekey");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if value(key).is_none() {
                    require(&mut errors, key);
                }
            }
        }
        _ => {}
    }
    errors
}

fn json_object(errors: &mut Vec<FieldError>, value: Option<&Value>, path: &Path) {
    let Some(value) = value else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
    if let Some(words) = not_an_object(&bytes) {
        errors.push(FieldError::invalid(path, "<secret contents redacted>", words));
    }
}

/// Why the bytes are no JSON object, in Go's words for what appears in practice.
fn not_an_object(bytes: &[u8]) -> Option<String> {
    match serde_json::from_slice::<Value>(bytes) {
        Ok(Value::Object(_) | Value::Null) => None,
        Ok(other) => {
            let name = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            Some(format!(
                "json: cannot unmarshal {name} into Go value of type map[string]interface {{}}"
            ))
        }
        Err(error) if error.is_eof() => Some("unexpected end of JSON input".to_owned()),
        Err(_) => {
            let text = String::from_utf8_lossy(bytes);
            let text = text.trim_start();
            let first = text.chars().next().unwrap_or(' ');
            // A literal that goes wrong midway is told where.
            let literal = ["true", "false", "null"]
                .into_iter()
                .find(|literal| literal.starts_with(first));
            let misfit = literal.and_then(|literal| {
                let (found, wanted) = text
                    .chars()
                    .zip(literal.chars())
                    .find(|(found, wanted)| found != wanted)?;
                Some(format!(
                    "invalid character '{found}' in literal {literal} (expecting '{wanted}')"
                ))
            });
            Some(misfit.unwrap_or_else(|| format!("invalid character '{first}' looking for beginning of value")))
        }
    }
}

fn check_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    immutable(&mut errors, &Path::new("type"), at(new, "/type"), at(old, "/type"));
    if truth(old, "immutable") == Some(true) {
        if truth(new, "immutable") != Some(true) {
            errors.push(FieldError::forbidden(&Path::new("immutable"), WHEN_IMMUTABLE));
        }
        if !same(at(new, "/data"), at(old, "/data")) {
            errors.push(FieldError::forbidden(&Path::new("data"), WHEN_IMMUTABLE));
        }
    }
    errors
}
