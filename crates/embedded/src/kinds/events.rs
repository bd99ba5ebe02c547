//! Events: core/v1 and events.k8s.io/v1 are two views of one store.
//!
//! Stored as core/v1. The registry turns a body for events.k8s.io/v1 into core/v1 with [`to_core`] before anything else
//! looks at it, and each answer back with [`from_core`]. Both are total and undo each other.

use serde_json::{Map, Value};

use super::checks::{Errors, immutable, qualified};
use super::metadata::invalid;
use super::names;
use super::reading::{at, given, integer, text, text_at};
use crate::fault::{FieldError, Path};
use crate::registry::row::{BuiltIn, FieldText, NameRule};

/// What a field is called in core/v1 and in events.k8s.io/v1.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// In bytes.
const MOST_NOTE: usize = 1024;
const MOST_WORD: usize = 128;
const TTL_SECONDS: u32 = 3600;

pub static CORE_RULES: BuiltIn = BuiltIn {
    check: check_core,
    fields: CORE_FIELDS,
    has_generation: false,
    name: NameRule::Segment,
    create_on_update: true,
    ttl_seconds: Some(TTL_SECONDS),
    ..BuiltIn::PLAIN
};

/// For events.k8s.io/v1; the functions take objects of that version.
pub static RULES: BuiltIn = BuiltIn {
    check,
    check_create,
    check_update,
    fields: FIELDS,
    ..CORE_RULES
};

macro_rules! involved {
    ($object:literal, $field:literal) => {
        (concat!($object, ".", $field), |event| {
            text(involved(event), $field).to_owned()
        })
    };
}

const CORE_FIELDS: &[(&str, FieldText)] = &[
    involved!("involvedObject", "kind"),
    involved!("involvedObject", "namespace"),
    involved!("involvedObject", "name"),
    involved!("involvedObject", "uid"),
    involved!("involvedObject", "apiVersion"),
    involved!("involvedObject", "resourceVersion"),
    involved!("involvedObject", "fieldPath"),
    ("reason", |event| text(event, "reason").to_owned()),
    ("reportingComponent", |event| reporter(event).to_owned()),
    ("source", |event| {
        let source = either(event, "source", "deprecatedSource");
        let component = text(source, "component");
        if component.is_empty() {
            reporter(event)
        } else {
            component
        }
        .to_owned()
    }),
    ("type", |event| text(event, "type").to_owned()),
];

/// The same by the names of events.k8s.io/v1, which has none for the source.
const FIELDS: &[(&str, FieldText)] = &[
    involved!("regarding", "kind"),
    involved!("regarding", "namespace"),
    involved!("regarding", "name"),
    involved!("regarding", "uid"),
    involved!("regarding", "apiVersion"),
    involved!("regarding", "resourceVersion"),
    involved!("regarding", "fieldPath"),
    ("reason", |event| text(event, "reason").to_owned()),
    ("reportingController", |event| reporter(event).to_owned()),
    ("type", |event| text(event, "type").to_owned()),
];

fn either<'a>(event: &'a Value, core: &str, new: &str) -> &'a Value {
    event.get(core).or_else(|| event.get(new)).unwrap_or(&Value::Null)
}

fn involved(event: &Value) -> &Value {
    either(event, "involvedObject", "regarding")
}

fn reporter(event: &Value) -> &str {
    either(event, "reportingComponent", "reportingController")
        .as_str()
        .unwrap_or_default()
}

/// An events.k8s.io/v1 Event as core/v1.
#[must_use]
pub fn to_core(event: &Value) -> Value {
    renamed(event, "v1", NAMES.map(|(core, new)| (new, core)))
}

/// A core/v1 Event as events.k8s.io/v1.
#[must_use]
pub fn from_core(event: &Value) -> Value {
    renamed(event, "events.k8s.io/v1", NAMES)
}

fn renamed(event: &Value, version: &str, names: [(&str, &str); NAMES.len()]) -> Value {
    let Value::Object(map) = event else {
        return event.clone();
    };
    let mut result: Map<String, Value> = map
        .iter()
        .map(|(key, value)| {
            let name = names
                .iter()
                .find(|(from, _)| from == key)
                .map_or(key.as_str(), |(_, to)| to);
            (name.to_owned(), value.clone())
        })
        .collect();
    // A struct that core/v1 always writes and the other may leave out.
    match version {
        "v1" => {
            for (field, empty) in [
                ("involvedObject", Value::Object(Map::new())),
                ("source", Value::Object(Map::new())),
                ("reportingComponent", "".into()),
                ("reportingInstance", "".into()),
                ("firstTimestamp", Value::Null),
                ("lastTimestamp", Value::Null),
                ("eventTime", Value::Null),
            ] {
                result.entry(field).or_insert(empty);
            }
        }
        _ => {
            for field in ["reportingController", "reportingInstance"] {
                if result.get(field).is_some_and(|text| text == "") {
                    result.remove(field);
                }
            }
        }
    }
    if result.contains_key("apiVersion") {
        result.insert("apiVersion".to_owned(), version.into());
    }
    result.into()
}

fn check_core(event: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_either(&mut errors, event, "reportingComponent");
    errors
}

/// What both versions ask of an Event in core/v1's shape.
fn check_either(errors: &mut Errors, event: &Value, reporter: &str) {
    let namespace = text_at(event, "/metadata/namespace");
    let involved = at(event, "/involvedObject");
    let theirs = text(involved, "namespace");
    let mut mismatch = || {
        errors.push(FieldError::invalid(
            &Path::new("involvedObject.namespace"),
            theirs,
            "does not match event.namespace",
        ));
    };
    if given(event, "eventTime").is_none() {
        // The old way of writing Events asks for nothing else.
        if theirs != namespace && !(theirs.is_empty() && namespace == "default") {
            mismatch();
        }
    } else {
        if theirs.is_empty() && namespace != "default" && namespace != "kube-system" {
            mismatch();
        }
        let controller = text(event, "reportingComponent");
        if controller.is_empty() {
            errors.push(FieldError::required(&Path::new(reporter), ""));
        }
        qualified(errors, &Path::new(reporter), controller);
        for field in ["reportingInstance", "action", "reason"] {
            if text(event, field).is_empty() {
                errors.push(FieldError::required(&Path::new(field), ""));
            }
            at_most(errors, event, field, MOST_WORD);
        }
        at_most(errors, event, "message", MOST_NOTE);
    }
    invalid(
        errors,
        &Path::new("namespace"),
        namespace,
        names::dns_subdomain(namespace),
    );
}

fn at_most(errors: &mut Errors, event: &Value, field: &str, most: usize) {
    if text(event, field).len() > most {
        errors.push(FieldError::invalid(
            &Path::new(field),
            "",
            format!("can have at most {most} characters"),
        ));
    }
}

fn check(event: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_either(&mut errors, &to_core(event), "reportingController");
    errors
}

/// An event of before may be changed without being made new.
fn check_create(event: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // Names of older events may be anything that stands in a path.
    let name = event
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    invalid(
        &mut errors,
        &Path::new("metadata.name"),
        name,
        names::dns_subdomain(name),
    );
    let event = to_core(event);
    check_series(&mut errors, &event);
    if given(&event, "eventTime").is_none() {
        errors.push(FieldError::required(&Path::new("eventTime"), ""));
    }
    let kind = text(&event, "type");
    if kind != "Normal" && kind != "Warning" {
        errors.push(FieldError::invalid(
            &Path::new("type"),
            "",
            format!("has invalid value: {kind}"),
        ));
    }
    let source = at(&event, "/source");
    for (field, set) in [
        ("firstTimestamp", given(&event, "firstTimestamp").is_some()),
        ("lastTimestamp", given(&event, "lastTimestamp").is_some()),
        ("count", integer(&event, "count").is_some_and(|count| count != 0)),
        (
            "source",
            !(text(source, "component").is_empty() && text(source, "host").is_empty()),
        ),
    ] {
        if set {
            errors.push(FieldError::invalid(&Path::new(field), "", "needs to be unset"));
        }
    }
    errors
}

fn check_series(errors: &mut Errors, event: &Value) {
    if let Some(series) = given(event, "series") {
        if integer(series, "count").unwrap_or(0) < 2 {
            errors.push(FieldError::invalid(
                &Path::new("series.count"),
                "",
                "should be at least 2",
            ));
        }
        if given(series, "lastObservedTime").is_none() {
            errors.push(FieldError::required(&Path::new("series.lastObservedTime"), ""));
        }
    }
}

fn check_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (new, old) = (to_core(new), to_core(old));
    if at(&new, "/series") != at(&old, "/series") {
        check_series(&mut errors, &new);
    }
    for (field, shown) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        let pointer = format!("/{field}");
        immutable(&mut errors, &Path::new(shown), at(&new, &pointer), at(&old, &pointer));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_the_same_after_both_conversions() {
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a"}, "note": "n", "reason": "r",
            "regarding": {"kind": "Pod"}, "reportingController": "c", "reportingInstance": "i", "deprecatedSource": {},
            "eventTime": "2024-01-01T00:00:00.000000Z", "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
        });
        let core = to_core(&event);
        assert_eq!(core["message"], "n");
        assert_eq!(core["involvedObject"]["kind"], "Pod");
        assert_eq!(core["apiVersion"], "v1");
        assert_eq!(from_core(&core), event);
        assert_eq!(to_core(&from_core(&core)), core);
    }

    #[test]
    fn fields_are_selected_in_both_shapes() {
        let core = json!({"involvedObject": {"name": "x"}, "reportingComponent": "c", "source": {}});
        for event in [core.clone(), from_core(&core)] {
            let select = |fields: &[(&str, FieldText)], name: &str| {
                (fields.iter().find(|field| field.0 == name).unwrap().1)(&event)
            };
            assert_eq!(select(CORE_FIELDS, "involvedObject.name"), "x");
            assert_eq!(select(CORE_FIELDS, "source"), "c");
            assert_eq!(select(FIELDS, "regarding.name"), "x");
            assert_eq!(select(FIELDS, "reportingController"), "c");
        }
    }
}
