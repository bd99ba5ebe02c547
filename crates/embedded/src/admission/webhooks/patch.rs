//! What a mutating webhook sees, and the object with its JSON patch. What fails is told as the reference's library tells it.

use serde_json::{Value, json};

use super::Failure;
use super::review::{self, Verdict};
use crate::admission::{Operation, Review};
use crate::fault::Fault;
use crate::fields;
use crate::registry::ask::{Ask, FieldValidation};
use crate::registry::{Registry, object};

/// The object with the webhook's patch: decoded and defaulted again, as if it had been sent so.
pub(super) fn patched(
    review: &Review<'_>,
    seen: &Value,
    version: &str,
    verdict: &Verdict,
) -> Result<Option<Value>, Failure> {
    let Some(operations) = verdict.patch().map_err(Failure::Call)? else {
        return Ok(None);
    };
    let internal = |why: &str| Failure::Refused(Fault::internal(why));
    let shown = review::shown(review, seen, version);
    let patched = apply(&shown, &operations).map_err(|why| internal(&why))?;
    if review.target.subresource.as_deref() == Some("scale") {
        let mut new = seen.clone();
        if let (Some(scale), Some(replicas)) = (&review.target.version.scale, object::at(&patched, "spec.replicas")) {
            object::set_at(&mut new, &scale.spec_replicas, replicas.clone());
        }
        return Ok(Some(new));
    }
    let mut patched = patched;
    if review::is_command(review) {
        let definition = review::own_kind(review)
            .and_then(|(group, version, kind)| crate::kinds::definition_of(group, version, kind));
        if let Some(schema) = definition {
            crate::kinds::decode(&schema, &mut patched).map_err(|why| internal(&why))?;
        }
        return Ok(Some(patched));
    }
    let asked = &review.target.version.name;
    if version != &**asked
        && patched.get("apiVersion").and_then(Value::as_str) == Some(&*review.target.resource.api_version(version))
    {
        patched = review::in_version(review, &patched, asked);
    }
    let about = format!(" cannot be handled as a {}: ", review.target.resource.row.kind);
    let lenient = Ask {
        validation: FieldValidation::Ignore,
        ..review.ask.clone()
    };
    Registry::decode(review.target, patched.into(), &lenient, &mut Vec::new())
        .map(Some)
        // The bare sentence: the reference decodes here without naming the kind.
        .map_err(|fault| internal(fault.message.split_once(&about).map_or(&fault.message, |(_, why)| why)))
}

/// What the server gives to an object only after mutating webhooks have seen it.
const STAMPS: [&str; 3] = ["uid", "creationTimestamp", "generation"];

pub(super) fn unstamped(review: &Review<'_>, object: &Value) -> Value {
    let mut seen = object.clone();
    // Those of a command are its own.
    if review.operation == Operation::Create && !review::is_command(review) {
        let meta = object::meta_mut(&mut seen);
        for field in STAMPS {
            meta.remove(field);
        }
    }
    seen
}

pub(super) fn restamped(mut new: Value, object: &Value) -> Value {
    let meta = object::meta_mut(&mut new);
    for field in STAMPS {
        if let Some(value) = object::meta(object).get(field) {
            meta.insert(field.to_owned(), value.clone());
        }
    }
    new
}

/// The object with the operations applied, in order.
fn apply(object: &Value, operations: &Value) -> Result<Value, String> {
    match fields::json_patch(object, operations) {
        Ok(patched) => Ok(patched),
        Err(_) => Err(failing(object, operations)),
    }
}

/// The sentence about the first operation that fails.
fn failing(object: &Value, operations: &Value) -> String {
    let mut document = object.clone();
    for operation in operations.as_array().into_iter().flatten() {
        match fields::json_patch(&document, &json!([operation])) {
            Ok(next) => document = next,
            Err(_) => return words(&document, operation),
        }
    }
    // Too many operations, or together too much.
    "the patch is too large".to_owned()
}

fn words(document: &Value, operation: &Value) -> String {
    let text = |field: &str| operation.get(field).and_then(Value::as_str).unwrap_or_default();
    let (kind, path, from) = (text("op"), text("path"), text("from"));
    let (parent, key) = path.rsplit_once('/').unwrap_or(("", path));
    let has = |pointer: &str| {
        let (parent, _) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        document
            .pointer(parent)
            .is_some_and(|parent| parent.is_object() || parent.is_array())
    };
    let index = match document.pointer(parent) {
        Some(Value::Array(_)) => match key.parse::<i64>() {
            Ok(index) => Some(format!(
                "Unable to access invalid index: {index}: invalid index referenced"
            )),
            Err(_) => Some(format!(
                "value was not a proper array index: '{key}': strconv.Atoi: parsing \"{key}\": invalid syntax"
            )),
        },
        _ => None,
    };
    match kind {
        "add" | "remove" if !has(path) => {
            format!("{kind} operation does not apply: doc is missing path: \"{path}\": missing value")
        }
        "remove" => {
            let why = index.unwrap_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value"));
            format!("error in remove for path: '{path}': {why}")
        }
        "add" => format!("error in add for path: '{path}': {}", index.unwrap_or_default()),
        "replace" if path.is_empty() => "replace operation value must be object or array: %!w(<nil>)".to_owned(),
        "replace" if !has(path) => {
            format!("replace operation does not apply: doc is missing path: {path}: missing value")
        }
        "replace" => format!("replace operation does not apply: doc is missing key: {path}: missing value"),
        "test" if !path.is_empty() && !has(path) => {
            format!("test operation does not apply: is missing path: {path}: missing value")
        }
        "test" => format!("testing value {path} failed: test failed"),
        "move" | "copy" if !has(from) => {
            format!("{kind} operation does not apply: doc is missing from path: {from}: missing value")
        }
        "move" | "copy" => {
            format!("{kind} operation does not apply: doc is missing destination path: {path}: missing value")
        }
        other => format!("Unexpected kind: {other}"),
    }
}
