//! `metav1.Condition` lists, as statuses carry them.

use serde_json::Value;

use super::checks::{Errors, qualified};
use super::names;
use super::reading::{integer, list, text};
use crate::fault::{FieldError, Path};

/// Rules on `holder.conditions`; `path` names the list.
pub(super) fn check_conditions(holder: &Value, path: &Path) -> Errors {
    let mut errors = Vec::new();
    let conditions = list(holder, "conditions");
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let kind = text(condition, "type");
        if conditions
            .iter()
            .take(index)
            .any(|earlier| text(earlier, "type") == kind)
        {
            errors.push(FieldError::duplicate(&path.field("type"), kind));
        }
        qualified(&mut errors, &path.field("type"), kind);
        let status = text(condition, "status");
        if !matches!(status, "True" | "False" | "Unknown") {
            errors.push(FieldError::not_supported(
                &path.field("status"),
                status,
                &["False", "True", "Unknown"],
            ));
        }
        if let Some(generation) = integer(condition, "observedGeneration").filter(|generation| *generation < 0) {
            errors.push(FieldError::invalid(
                &path.field("observedGeneration"),
                generation,
                "must be greater than or equal to zero",
            ));
        }
        if text(condition, "lastTransitionTime").is_empty() {
            errors.push(FieldError::required(&path.field("lastTransitionTime"), ""));
        }
        check_reason(&mut errors, text(condition, "reason"), &path.field("reason"));
        if text(condition, "message").len() > 32 * 1024 {
            errors.push(FieldError::too_long(&path.field("message"), 32 * 1024));
        }
    }
    errors
}

fn check_reason(errors: &mut Errors, reason: &str, path: &Path) {
    if reason.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let bytes = reason.as_bytes();
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let fits = bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(word)
        && bytes.iter().all(|byte| word(byte) || b",:".contains(byte));
    if !fits {
        let words = "a condition reason must start with alphabetic character, optionally followed by a string of \
                     alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
        let examples = ["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"];
        errors.push(FieldError::invalid(
            path,
            reason,
            names::pattern_error(words, &examples, "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"),
        ));
    }
    if reason.len() > 1024 {
        errors.push(FieldError::too_long(path, 1024));
    }
}
