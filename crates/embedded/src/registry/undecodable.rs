//! What is said of a patch that leads to no object of the kind.

use serde_json::Value;

use crate::fault::{Fault, FieldError, Path, Subject};
use crate::registry::Patch;
use crate::schema::metadata::{FIELDS, MANAGED_FIELDS, OWNER_FIELDS};

pub(super) fn undecodable(patch: &Patch, changed: &Value, why: &str) -> Fault {
    let (shown, why) = match patch {
        Patch::Strategic(body) => {
            let why = crate::go::in_converter_words(why).unwrap_or_else(|| why.to_owned());
            (crate::go::plain(body), why)
        }
        _ => (in_field_order(changed), why.to_owned()),
    };
    let subject = Subject {
        group: String::new(),
        kind: String::new(),
    };
    Fault::invalid(&subject, "", &[FieldError::invalid(&Path::new("patch"), shown, why)])
}

/// An object's JSON with its metadata in the order in which the reference writes it.
fn in_field_order(object: &Value) -> String {
    /// The named fields first; `inner` writes what stands in one.
    fn written(value: &Value, order: &[&str], inner: impl Fn(&str, &Value) -> String) -> String {
        let Value::Object(map) = value else {
            return value.to_string();
        };
        let known = order.iter().filter_map(|name| map.get_key_value(*name));
        let others = map.iter().filter(|(name, _)| !order.contains(&name.as_str()));
        let fields: Vec<String> = known
            .chain(others)
            .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), inner(name, value)))
            .collect();
        format!("{{{}}}", fields.join(","))
    }
    let entries = |value: &Value, order| {
        let entries = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let entries: Vec<String> = entries
            .iter()
            .map(|entry| written(entry, order, |_, value| value.to_string()))
            .collect();
        format!("[{}]", entries.join(","))
    };
    written(object, &[], |field, value| match field {
        "metadata" => written(value, &FIELDS, |field, value| match field {
            "ownerReferences" => entries(value, &OWNER_FIELDS),
            "managedFields" => entries(value, &MANAGED_FIELDS),
            _ => value.to_string(),
        }),
        _ => value.to_string(),
    })
}
