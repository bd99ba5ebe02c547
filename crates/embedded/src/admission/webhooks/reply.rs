//! An HTTP reply of a webhook, read as the reference's client reads it.

use http::StatusCode;
use serde_json::Value;

use crate::fault::quote;

/// How much of a text that is no review is repeated.
const MOST_SHOWN: usize = 2_048;

/// The AdmissionReview, or what is wrong with it.
pub(super) fn read(status: StatusCode, content_type: &str, body: &[u8]) -> Result<Value, String> {
    let said = serde_json::from_slice::<Value>(body);
    if !(200..=206).contains(&status.as_u16()) {
        return Err(match said.ok().as_ref().and_then(status_message) {
            Some(message) => message.to_owned(),
            None => unexpected(status.as_u16(), body),
        });
    }
    if body.is_empty() {
        return Err(format!(
            "0-length response with status code: {} and content type: {content_type}",
            status.as_u16()
        ));
    }
    let is = match said {
        Ok(review @ Value::Object(_)) => return check_kind(review),
        Ok(Value::Array(_)) => "array",
        Ok(Value::Number(_)) => "number",
        Ok(Value::Bool(_)) => "bool",
        // The reference tries YAML then, where anything is at least a text.
        Ok(_) | Err(_) => "string",
    };
    Err(crate::go::no_type(is))
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn check_kind(review: Value) -> Result<Value, String> {
    match (text(&review, "apiVersion"), text(&review, "kind")) {
        // Taken for the one that was asked for.
        ("", _) | (_, "") => Ok(review),
        ("admission.k8s.io/v1" | "admission.k8s.io/v1beta1", "AdmissionReview") => Ok(review),
        (version, kind) => Err(format!(
            "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
            quote(kind),
            quote(version)
        )),
    }
}

fn status_message(said: &Value) -> Option<&str> {
    (text(said, "kind") == "Status")
        .then(|| text(said, "message"))
        .filter(|message| !message.is_empty())
}

/// What a code says by itself.
fn unexpected(code: u16, body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body.get(..MOST_SHOWN).unwrap_or(body))
        .trim()
        .to_owned();
    let sentence = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 415 => return body,
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => {
            return format!(
                "an error on the server ({}) has prevented the request from succeeding",
                quote(&body)
            );
        }
        _ => return format!("the server responded with the status code {code} but did not return more information"),
    };
    sentence.to_owned()
}
