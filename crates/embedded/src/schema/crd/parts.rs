//! Rules of what a version of a definition has beside its schema: subresources, columns, selectable fields. Called by
//! [`super::spec`].

use serde_json::{Map, Value};

use super::{is_shared, text, versions};
use crate::fault::{FieldError, Path};
use crate::schema::field_path::{self, Notation};
use crate::schema::{Schema, Type};

pub(super) fn check_subresources(value: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(scale) = value.get("scale").and_then(Value::as_object) else {
        return;
    };
    for (key, roots, where_) in [
        ("specReplicasPath", &[".spec."][..], ".spec"),
        ("statusReplicasPath", &[".status."][..], ".status"),
        (
            "labelSelectorPath",
            &[".spec.", ".status."][..],
            "either .spec or .status",
        ),
    ] {
        let at = path.field(&format!("scale.{key}"));
        let given = text(scale, key);
        if given.is_empty() {
            if key != "labelSelectorPath" {
                errors.push(FieldError::required(&at, ""));
            }
        } else if let Some(error) = simple_path(given, &at) {
            errors.push(error);
        } else if !roots.iter().any(|root| given.starts_with(root)) {
            errors.push(FieldError::invalid(
                &at,
                given,
                format!("should be a json path under {where_}"),
            ));
        }
    }
}

fn simple_path(given: &str, at: &Path) -> Option<FieldError> {
    (!given.starts_with('.')).then(|| FieldError::invalid(at, given, "must be a simple json path starting with ."))
}

const COLUMN_TYPES: &str = "boolean,date,integer,number,string";
const COLUMN_FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";

pub(super) fn check_columns(value: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for (index, column) in value.as_array().into_iter().flatten().enumerate() {
        let Value::Object(column) = column else {
            continue;
        };
        let path = path.index(index);
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(&path.field("name"), ""));
        }
        let kind = text(column, "type");
        let one_of_types = || format!("must be one of {COLUMN_TYPES}");
        if kind.is_empty() {
            errors.push(FieldError::required(&path.field("type"), one_of_types()));
        } else if !COLUMN_TYPES.split(',').any(|known| known == kind) {
            errors.push(FieldError::invalid(&path.field("type"), kind, one_of_types()));
        }
        let format = text(column, "format");
        if !format.is_empty() && !COLUMN_FORMATS.split(',').any(|known| known == format) {
            errors.push(FieldError::invalid(
                &path.field("format"),
                format,
                format!("must be one of {COLUMN_FORMATS}"),
            ));
        }
        let json_path = text(column, "jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(&path.field("JSONPath"), ""));
        } else {
            errors.extend(simple_path(json_path, &path.field("JSONPath")));
        }
    }
}

pub(super) fn check_selectable(spec: &Map<String, Value>, path: &Path, errors: &mut Vec<FieldError>) {
    let shared = is_shared(spec, "selectableFields");
    for (index, version) in versions(spec).enumerate() {
        let Some(fields) = version
            .get("selectableFields")
            .and_then(Value::as_array)
            .filter(|list| !list.is_empty())
        else {
            continue;
        };
        let at = if shared {
            path.field("selectableFields")
        } else {
            path.field("versions").index(index).field("selectableFields")
        };
        let schema = version
            .get("schema")
            .and_then(|schema| schema.get("openAPIV3Schema"))
            .and_then(|schema| Schema::parse(schema).ok());
        if let Some(schema) = schema {
            selectable_fields(fields, &schema, &at, errors);
        }
        if shared {
            break;
        }
    }
}

fn selectable_fields(fields: &[Value], schema: &Schema, path: &Path, errors: &mut Vec<FieldError>) {
    const MOST: usize = 8;
    let mut seen: Vec<String> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let at = path.index(index).field("jsonPath");
        let given = field.get("jsonPath").and_then(Value::as_str).unwrap_or_default();
        if given.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        let (found, target) = match field_path::resolve(given, schema, Notation::Dots) {
            Ok(found) => found,
            Err(why) => {
                errors.push(FieldError::invalid(&at, given, format!("is an invalid path: {why}")));
                continue;
            }
        };
        let found = found.as_str();
        if found == "metadata" || found.starts_with("metadata.") || found.starts_with("metadata[") {
            errors.push(FieldError::invalid(&at, given, "must not point to fields in metadata"));
        }
        if !target.is_some_and(|schema| matches!(schema.kind, Some(Type::String | Type::Boolean | Type::Integer))) {
            errors.push(FieldError::invalid(
                &at,
                given,
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats \
                 are allowed.",
            ));
        }
        if seen.iter().any(|path| path == found) {
            errors.push(FieldError::duplicate(&at, given));
        } else {
            seen.push(found.to_owned());
        }
    }
    if seen.len() > MOST {
        errors.push(FieldError::too_many(path, seen.len(), MOST));
    }
}
