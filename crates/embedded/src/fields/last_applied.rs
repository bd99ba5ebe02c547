//! kubectl's way from its own apply to the server's: fields that its annotation says it applied are its own to take.

use serde_json::Value;

use super::compare::compare;
use super::conflicts::Conflicts;
use super::set::Set;
use super::shape::Shape;
use crate::schema::Schema;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// All annotations together may have this many bytes.
const MOST_ANNOTATION_BYTES: usize = 256 * 1024;

/// Only this manager is treated so; who does not want it names another.
pub(super) const MANAGER: &str = "kubectl";

fn annotation(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

/// The conflicts that are left when fields the annotation speaks for, unchanged since, are taken without asking.
pub(super) fn remaining(conflicts: Conflicts, live: &Value, schema: &Schema, api_version: &str) -> Option<Conflicts> {
    let allowed = annotation(live)
        .and_then(|text| serde_json::from_str::<Value>(text).ok())
        .filter(|last| last.get("apiVersion").and_then(Value::as_str) == Some(api_version))
        .map(|last| {
            let difference = compare(&last, live, Shape::Root(schema));
            Set::of(&last, schema)
                .difference(&difference.modified)
                .difference(&difference.added)
                .difference(&difference.removed)
        });
    let Some(allowed) = allowed else { return Some(conflicts) };
    let left: Vec<_> = conflicts
        .0
        .into_iter()
        .filter(|conflict| !allowed.has(&conflict.path))
        .collect();
    (!left.is_empty()).then_some(Conflicts(left))
}

/// Brings an existing annotation up to date, so that kubectl's own apply keeps working.
pub(super) fn refresh(merged: &mut Value, applied: &Value) {
    if annotation(merged).is_none() {
        return;
    }
    let mut applied = applied.clone();
    if let Some(Value::Object(annotations)) = applied.get_mut("metadata").and_then(|map| map.get_mut("annotations")) {
        annotations.remove(ANNOTATION);
    }
    let Some(Value::Object(annotations)) = merged.get_mut("metadata").and_then(|map| map.get_mut("annotations")) else {
        return;
    };
    annotations.insert(ANNOTATION.to_owned(), format!("{}\n", crate::go::json(&applied)).into());
    let bytes: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if bytes > MOST_ANNOTATION_BYTES {
        annotations.remove(ANNOTATION);
    }
}
