//! From a body to an object of the kind: types, unknown fields, defaults (D2, O20).

use serde_json::Value;

use crate::fault::{Fault, quote};
use crate::kinds;
use crate::registry::Registry;
use crate::registry::ask::{Ask, FieldValidation, Target};
use crate::registry::row::Rules;
use crate::schema;

impl Registry {
    /// The body as an object of the target's kind and version, defaults filled in. `findings` are those of reading the
    /// body, such as a key given twice.
    pub(crate) fn decode(
        target: &Target,
        mut body: Value,
        mut findings: Vec<String>,
        ask: &Ask,
        warnings: &mut Vec<String>,
    ) -> Result<Value, Fault> {
        check_type(target, &body)?;
        let kind = &target.resource.row.kind;
        match target.resource.row.rules {
            Rules::BuiltIn(rules) => {
                findings.extend(kinds::decode(&target.version.schema, &mut body).map_err(|why| {
                    Fault::bad_request(format!(
                        "{kind} in version {} cannot be handled as a {kind}: {why}",
                        quote(&target.version.name)
                    ))
                })?);
                report(target, findings, ask, warnings)?;
                (rules.default)(&mut body);
            }
            Rules::Custom => {
                findings.extend(
                    schema::prune(&target.version.schema, &mut body)
                        .into_iter()
                        .map(|path| format!("unknown field {}", quote(&path))),
                );
                report(target, findings, ask, warnings)?;
                schema::default(&target.version.schema, &mut body);
            }
        }
        Ok(body)
    }
}

fn report(target: &Target, findings: Vec<String>, ask: &Ask, warnings: &mut Vec<String>) -> Result<(), Fault> {
    if findings.is_empty() {
        return Ok(());
    }
    match ask.validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => warnings.extend(findings),
        FieldValidation::Strict => {
            let row = &target.resource.row;
            return Err(Fault::bad_request(format!(
                "{} in version {} cannot be handled as a {}: strict decoding error: {}",
                row.kind,
                quote(&target.version.name),
                row.kind,
                findings.join(", ")
            )));
        }
    }
    Ok(())
}

/// Whether the body says that it is what the path says.
fn check_type(target: &Target, body: &Value) -> Result<(), Fault> {
    let row = &target.resource.row;
    let Some(map) = body.as_object() else {
        return Err(Fault::bad_request(
            "couldn't get version/kind; json parse error: the body is not a JSON object",
        ));
    };
    let text = |field: &str| map.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let expected = target.api_version();
    if target.resource.is_custom() {
        if kind.is_empty() {
            return Err(Fault::bad_request(format!(
                "Object 'Kind' is missing in '{}'",
                shown(body)
            )));
        }
        if api_version.is_empty() {
            return Err(Fault::bad_request(format!(
                "Object 'apiVersion' is missing in '{}'",
                shown(body)
            )));
        }
    }
    let is_same_kind = kind.is_empty() || kind == &*row.kind;
    let is_same_version = api_version.is_empty() || api_version == expected;
    if !is_same_version {
        return Err(Fault::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )));
    }
    if !is_same_kind {
        return Err(Fault::bad_request(format!(
            "{kind} in version {} cannot be handled as a {}: converting ({kind}) to ({expected}, Kind={}) is not possible",
            quote(&target.version.name),
            row.kind,
            row.kind
        )));
    }
    Ok(())
}

fn shown(body: &Value) -> String {
    let text = body.to_string();
    match text.char_indices().nth(512) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}
