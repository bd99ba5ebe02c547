//! From a body to an object of the kind: types, unknown fields, defaults (D2, O20).

use serde_json::Value;

use crate::fault::{Fault, FieldError, Path, Subject, quote};
use crate::kinds;
use crate::registry::Registry;
use crate::registry::ask::{Ask, FieldValidation, Parsed, Target};
use crate::registry::object;
use crate::registry::row::Rules;
use crate::schema;

impl Registry {
    /// The body as an object of the target's kind and version, defaults filled in.
    pub(crate) fn decode(target: &Target, body: Parsed, ask: &Ask, warnings: &mut Vec<String>) -> Result<Value, Fault> {
        check_type(target, &body)?;
        let text = |field: &str| {
            body.value
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let (kind, api_version) = (text("kind"), text("apiVersion"));
        Self::decode_or(target, body, ask, warnings).map_err(|why| {
            let row = &target.resource.row;
            let kind = if kind.is_empty() { &*row.kind } else { &kind };
            let version = match api_version.rsplit('/').next() {
                Some(version) if !version.is_empty() => version,
                _ => &target.version.name,
            };
            Fault::bad_request(format!(
                "{kind} in version {} cannot be handled as a {}: {why}",
                quote(version),
                row.kind
            ))
        })
    }

    /// The same, with what is wrong as a bare sentence.
    pub(super) fn decode_or(
        target: &Target,
        body: Parsed,
        ask: &Ask,
        warnings: &mut Vec<String>,
    ) -> Result<Value, String> {
        let Parsed { mut value, text } = body;
        // An empty list is how managedFields are cleared; an empty list is also what is not written.
        let clears = object::meta(&value)
            .get("managedFields")
            .and_then(Value::as_array)
            .is_some_and(Vec::is_empty);
        check_kind(target, &value)?;
        // A second look at the text is worth its time only where it can find something.
        let asks = ask.validation != FieldValidation::Ignore;
        let text = text.filter(|_| asks);
        let has_twice = text
            .as_ref()
            .is_some_and(|text| crate::api::has_duplicate_keys(text, &value));
        let schema = &target.version.schema;
        let row = &target.resource.row;
        match row.rules {
            Rules::BuiltIn(rules) => {
                let mut findings = kinds::decode(schema, &mut value)?;
                if let Some(text) = text.filter(|_| has_twice || !findings.is_empty()) {
                    // In the order of the text, and with what it gives twice.
                    findings = kinds::decode::findings(schema, &text);
                }
                report(findings, ask, warnings)?;
                (rules.default)(&mut value);
            }
            Rules::Custom => {
                check_meta_types(&value)?;
                let mut findings = match text.filter(|_| has_twice) {
                    Some(text) => crate::api::duplicate_keys(&text),
                    None => Vec::new(),
                };
                findings.extend(
                    schema::prune(schema, &mut value)
                        .into_iter()
                        .map(|path| format!("unknown field {}", quote(&path))),
                );
                report(findings, ask, warnings)?;
                schema::default(schema, &mut value);
            }
        }
        if clears {
            object::meta_mut(&mut value).insert("managedFields".to_owned(), Value::Array(Vec::new()));
        }
        // Who leaves the type out means the path's.
        let map = object::as_map(&mut value);
        map.insert("apiVersion".to_owned(), target.api_version().into());
        map.insert("kind".to_owned(), row.kind.to_string().into());
        Ok(value)
    }
}

fn report(findings: Vec<String>, ask: &Ask, warnings: &mut Vec<String>) -> Result<(), String> {
    match ask.validation {
        FieldValidation::Strict if !findings.is_empty() => {
            return Err(format!("strict decoding error: {}", findings.join(", ")));
        }
        FieldValidation::Warn => warnings.extend(findings),
        FieldValidation::Strict | FieldValidation::Ignore => {}
    }
    Ok(())
}

/// A body of another kind cannot become one of this.
fn check_kind(target: &Target, body: &Value) -> Result<(), String> {
    let row = &target.resource.row;
    let text = |field: &str| body.get(field).and_then(Value::as_str).unwrap_or_default();
    let kind = if text("kind").is_empty() {
        &*row.kind
    } else {
        text("kind")
    };
    let (given, expected) = (text("apiVersion"), target.api_version());
    let given = if given.is_empty() { &expected } else { given };
    if kind == &*row.kind && given == expected {
        return Ok(());
    }
    if !kinds::is_known(given, kind) {
        return Err(format!(
            "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
            quote(kind),
            quote(given)
        ));
    }
    let group = match &*row.group {
        "" => "core",
        group => group.split('.').next().unwrap_or_default(),
    };
    let version = given.rsplit('/').next().unwrap_or_default();
    Err(format!(
        "converting ({version}.{kind}) to ({group}.{}): unknown conversion",
        row.kind
    ))
}

/// Whether the body says which version it is of, and that it is the path's.
fn check_type(target: &Target, parsed: &Parsed) -> Result<(), Fault> {
    let body = &parsed.value;
    if body.is_null() && !target.resource.is_custom() {
        return Ok(());
    }
    let Some(map) = body.as_object() else {
        return Err(Fault::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {} ({})",
            target.resource.row.kind,
            crate::go::no_type(crate::go::json_kind(body)),
            crate::api::body_summary(parsed.text.as_deref().unwrap_or_default())
        )));
    };
    let text = |field: &str| map.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let expected = target.api_version();
    if target.resource.is_custom() {
        for (field, given) in [("Kind", kind), ("apiVersion", api_version)] {
            if given.is_empty() {
                let text = parsed.text.as_deref().unwrap_or_default();
                return Err(Fault::bad_request(format!(
                    "the object provided is unrecognized (must be of type {}): Object '{field}' is missing in '{}' ({})",
                    target.resource.row.kind,
                    String::from_utf8_lossy(text),
                    crate::api::body_summary(text)
                )));
            }
        }
        if kind != &*target.resource.row.kind && api_version == expected {
            let error = FieldError::invalid(
                &Path::new("kind"),
                kind,
                format!("must be {}", target.resource.row.kind),
            );
            let subject = Subject {
                kind: kind.to_owned(),
                ..target.subject()
            };
            return Err(Fault::invalid(&subject, object::name(body), &[error]));
        }
    }
    if target.resource.is_custom() && api_version != expected {
        return Err(Fault::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )));
    }
    Ok(())
}

/// Metadata is the one part of a custom resource whose types the server knows by itself.
fn check_meta_types(object: &Value) -> Result<(), String> {
    match object.get("metadata") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(meta)) => check_types(meta, &META_TYPES, "ObjectMeta"),
        Some(other) => Err(format!(
            "json: cannot unmarshal {} into Go value of type v1.ObjectMeta",
            crate::go::json_kind(other)
        )),
    }
}

/// What a field of metadata holds.
#[derive(Clone, Copy)]
enum Holds {
    Text,
    Bool,
    Integer,
    /// Texts by name.
    Texts,
    /// A list of texts.
    TextList,
    Anything,
    /// A list of objects, which Go calls so.
    List(&'static [(&'static str, Holds)], &'static str),
}

const META_TYPES: [(&str, Holds); 15] = [
    ("name", Holds::Text),
    ("generateName", Holds::Text),
    ("namespace", Holds::Text),
    ("selfLink", Holds::Text),
    ("uid", Holds::Text),
    ("resourceVersion", Holds::Text),
    ("generation", Holds::Integer),
    ("creationTimestamp", Holds::Text),
    ("deletionTimestamp", Holds::Text),
    ("deletionGracePeriodSeconds", Holds::Integer),
    ("labels", Holds::Texts),
    ("annotations", Holds::Texts),
    ("finalizers", Holds::TextList),
    (
        "ownerReferences",
        Holds::List(
            &[
                ("apiVersion", Holds::Text),
                ("kind", Holds::Text),
                ("name", Holds::Text),
                ("uid", Holds::Text),
                ("controller", Holds::Bool),
                ("blockOwnerDeletion", Holds::Bool),
            ],
            "v1.OwnerReference",
        ),
    ),
    (
        "managedFields",
        Holds::List(
            &[
                ("manager", Holds::Text),
                ("operation", Holds::Text),
                ("apiVersion", Holds::Text),
                ("time", Holds::Text),
                ("fieldsType", Holds::Text),
                ("fieldsV1", Holds::Anything),
                ("subresource", Holds::Text),
            ],
            "v1.ManagedFieldsEntry",
        ),
    ),
];

fn mistyped(value: &Value, field: &str, wanted: &str) -> String {
    format!(
        "json: cannot unmarshal {} into Go struct field {field} of type {wanted}",
        crate::go::json_kind(value)
    )
}

fn check_types(map: &serde_json::Map<String, Value>, types: &[(&str, Holds)], place: &str) -> Result<(), String> {
    for (field, holds) in types {
        let Some(value) = map.get(*field).filter(|value| !value.is_null()) else {
            continue;
        };
        let path = format!("{place}.{field}");
        let wrong = |value: &Value, wanted: &str| Err(mistyped(value, &path, wanted));
        let is_text = |value: &Value| value.is_string() || value.is_null();
        match (holds, value) {
            (Holds::Anything, _) | (Holds::Text, Value::String(_)) | (Holds::Bool, Value::Bool(_)) => {}
            (Holds::Integer, Value::Number(number)) if number.is_i64() => {}
            (Holds::Texts, Value::Object(entries)) => {
                if let Some(value) = entries.values().find(|value| !is_text(value)) {
                    return wrong(value, "string");
                }
            }
            (Holds::TextList, Value::Array(items)) => {
                if let Some(value) = items.iter().find(|value| !is_text(value)) {
                    return wrong(value, "string");
                }
            }
            (Holds::List(types, wanted), Value::Array(items)) => {
                for item in items {
                    match item {
                        Value::Null => {}
                        Value::Object(map) => {
                            // Go names the struct, and the way to it from the outermost one.
                            let holder = wanted.trim_start_matches("v1.");
                            check_types(map, types, &format!("{holder}.{field}"))?;
                        }
                        other => return wrong(other, wanted),
                    }
                }
            }
            (Holds::Text, other) => return wrong(other, "string"),
            (Holds::Bool, other) => return wrong(other, "bool"),
            (Holds::Integer, other) => return wrong(other, "int64"),
            (Holds::Texts, other) => return wrong(other, "map[string]string"),
            (Holds::TextList, other) => return wrong(other, "[]string"),
            (Holds::List(_, wanted), other) => return wrong(other, &format!("[]{wanted}")),
        }
    }
    Ok(())
}
