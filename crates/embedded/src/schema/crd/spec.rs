//! The rules of a CRD's spec outside of its schemas.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::parts::{check_columns, check_selectable, check_subresources};
use super::{
    defaults, flag, given, is_shared, keywords, schemas, structural, text, texts, version_has_status, versions,
};
use crate::fault::{FieldError, Path, Wrong};
use crate::schema::cel::Rules;
use crate::schema::{Schema, names};

pub(super) fn check(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let nothing = Map::new();
    let spec = new.get("spec").and_then(Value::as_object).unwrap_or(&nothing);
    let empty_names = Map::new();
    let own_names = spec.get("names").and_then(Value::as_object).unwrap_or(&empty_names);
    let path = Path::new("spec");
    if old.is_none() {
        check_name(new, spec, own_names, errors);
    }
    check_group_and_scope(spec, &path, errors);
    check_versions(spec, &path, errors);
    check_names(own_names, &path.field("names"), errors);
    for place in schemas(new) {
        check_schema(&place, errors);
    }
    check_shared_or_each(spec, "subresources", &path, errors, check_subresources);
    check_shared_or_each(spec, "additionalPrinterColumns", &path, errors, check_columns);
    check_selectable(spec, &path, errors);
    check_conversion(spec, &path.field("conversion"), errors);
    if let Some(old) = old {
        check_change(spec, old, &path, errors);
    }
    check_stored(new, spec, errors);
    check_approval(new, old, spec, errors);
    if flag(spec, "preserveUnknownFields")
        && old.is_none_or(|old| old.pointer("/spec/preserveUnknownFields") != Some(&Value::Bool(true)))
    {
        errors.push(FieldError::invalid(
            &path.field("preserveUnknownFields"),
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
}

fn check_name(new: &Value, spec: &Map<String, Value>, own_names: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let name = new
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let wanted = format!("{}.{}", text(own_names, "plural"), text(spec, "group"));
    if name != wanted {
        errors.push(FieldError::invalid(
            &Path::new("metadata.name"),
            name,
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
}

fn check_group_and_scope(spec: &Map<String, Value>, path: &Path, errors: &mut Vec<FieldError>) {
    let group = text(spec, "group");
    let at = path.field("group");
    let why = names::dns1123_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else if !why.is_empty() {
        errors.push(FieldError::invalid(&at, group, why.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(
            &at,
            group,
            "should be a domain with at least one dot",
        ));
    }
    match text(spec, "scope") {
        "" => errors.push(FieldError::required(&path.field("scope"), "")),
        "Cluster" | "Namespaced" => {}
        other => errors.push(FieldError::not_supported(
            &path.field("scope"),
            other,
            &["Cluster", "Namespaced"],
        )),
    }
    let shared = is_shared(spec, "schema");
    let has_schema = |version: &Map<String, Value>| {
        given(version, "schema")
            .is_some_and(|schema| schema.get("openAPIV3Schema").is_some_and(|schema| !schema.is_null()))
    };
    for (index, version) in versions(spec).enumerate() {
        if !has_schema(version) && (!shared || !versions(spec).any(has_schema)) {
            let at = path
                .field("versions")
                .index(index)
                .field("schema")
                .field("openAPIV3Schema");
            errors.push(FieldError::required(&at, ""));
        }
    }
}

fn check_versions(spec: &Map<String, Value>, path: &Path, errors: &mut Vec<FieldError>) {
    let path = path.field("versions");
    let mut seen: Vec<&str> = Vec::new();
    let mut unique = true;
    for (index, version) in versions(spec).enumerate() {
        let at = path.index(index);
        let name = text(version, "name");
        unique &= !seen.contains(&name);
        seen.push(name);
        if let Some(why) = names::dns1035(name) {
            errors.push(FieldError::invalid(&at.field("name"), name, why));
        }
        check_deprecation(version, &at.field("deprecationWarning"), errors);
    }
    // The first version stands in the reference's own form by itself, too.
    let first = versions(spec).next().map_or("", |version| text(version, "name"));
    if let Some(why) = names::dns1035(first).filter(|_| !first.is_empty()) {
        errors.push(FieldError::invalid(&Path::new("spec.version"), first, why));
    }
    let storage = versions(spec).filter(|version| flag(version, "storage")).count();
    if !unique {
        errors.push(about_versions(spec, &path, "must contain unique version names"));
    }
    if storage != 1 {
        errors.push(about_versions(
            spec,
            &path,
            "must have exactly one version marked as storage version",
        ));
    }
}

/// An error about all versions, shown in the reference's own form, where what all share stands elsewhere.
fn about_versions(spec: &Map<String, Value>, path: &Path, why: &str) -> FieldError {
    let shown: Vec<String> = versions(spec)
        .map(|version| {
            let unless_shared = |key: &str| {
                if is_shared(spec, key) {
                    Value::Null
                } else {
                    version.get(key).cloned().unwrap_or_default()
                }
            };
            format!(
                r#"{{"Name":{},"Served":{},"Storage":{},"Deprecated":{},"DeprecationWarning":{},"Schema":{},"Subresources":{},"AdditionalPrinterColumns":{},"SelectableFields":{}}}"#,
                Value::from(text(version, "name")),
                flag(version, "served"),
                flag(version, "storage"),
                flag(version, "deprecated"),
                version.get("deprecationWarning").unwrap_or(&Value::Null),
                unless_shared("schema"),
                unless_shared("subresources"),
                unless_shared("additionalPrinterColumns"),
                unless_shared("selectableFields"),
            )
        })
        .collect();
    FieldError {
        wrong: Wrong::Invalid,
        path: path.clone(),
        // The fields' order could not be kept in a value.
        value: None,
        detail: format!("[{}]: {why}", shown.join(",")),
    }
}

fn check_deprecation(version: &Map<String, Value>, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else {
        return;
    };
    let mut wrong = |why: String| errors.push(FieldError::invalid(path, warning, why));
    if !flag(version, "deprecated") {
        wrong("can only be set for deprecated versions".to_owned());
        return;
    }
    if warning.len() > 256 {
        wrong("must be <= 256 characters long".to_owned());
    }
    if warning.is_empty() {
        wrong("must not be an empty string".to_owned());
    }
    if let Some((at, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
        wrong(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

fn check_names(own: &Map<String, Value>, path: &Path, errors: &mut Vec<FieldError>) {
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(own, key).is_empty() {
            errors.push(FieldError::required(&path.field(key), ""));
        }
    }
    for key in ["plural", "singular"] {
        let name = text(own, key);
        if let Some(why) = names::dns1035(name).filter(|_| !name.is_empty()) {
            errors.push(FieldError::invalid(&path.field(key), name, why));
        }
    }
    for key in ["kind", "listKind"] {
        let name = text(own, key);
        if let Some(why) = names::dns1035(&name.to_lowercase()).filter(|_| !name.is_empty()) {
            errors.push(FieldError::invalid(
                &path.field(key),
                name,
                format!("may have mixed case, but should otherwise match: {why}"),
            ));
        }
    }
    let mut each = |key: &str| {
        for (index, name) in texts(own, key).into_iter().enumerate() {
            if let Some(why) = names::dns1035(name) {
                errors.push(FieldError::invalid(&path.field(key).index(index), name, why));
            }
        }
    };
    each("shortNames");
    each("categories");
    let kind = text(own, "kind");
    if !kind.is_empty() && kind == text(own, "listKind") {
        errors.push(FieldError::invalid(
            &path.field("listKind"),
            kind,
            "kind and listKind may not be the same",
        ));
    }
}

fn check_schema(place: &super::SchemaAt<'_>, errors: &mut Vec<FieldError>) {
    let path = &place.path;
    let schema = match Schema::parse_at(place.schema, path) {
        Ok(schema) => Arc::new(schema),
        Err(problems) => {
            errors.extend(problems);
            return;
        }
    };
    let Value::Object(map) = place.schema else {
        return;
    };
    if place.has_status {
        keywords::root_with_status(map, path, errors);
    }
    if schema.nullable {
        errors.push(FieldError::forbidden(
            &path.field("nullable"),
            "nullable cannot be true at the root",
        ));
    }
    let shape = keywords::check(map, path);
    let mut wrong = if keywords::hides_structure(map) {
        Vec::new()
    } else {
        structural::check(map, path)
    };
    if wrong.is_empty() && shape.is_empty() {
        wrong = defaults::check(&schema, path);
    }
    let sound = wrong.is_empty() && shape.is_empty();
    errors.extend(wrong);
    errors.extend(shape);
    // Rules are judged once the schema that they speak of is sound.
    if sound && let Err(problems) = Rules::compile_at(&schema, path) {
        errors.extend(problems);
    }
}

/// Runs a check on what all versions share, or on what each has.
fn check_shared_or_each(
    spec: &Map<String, Value>,
    key: &str,
    path: &Path,
    errors: &mut Vec<FieldError>,
    run: fn(&Value, &Path, &mut Vec<FieldError>),
) {
    if is_shared(spec, key) {
        if let Some(value) = versions(spec).next().and_then(|version| given(version, key)) {
            run(value, &path.field(key), errors);
        }
        return;
    }
    for (index, version) in versions(spec).enumerate() {
        if let Some(value) = given(version, key) {
            run(value, &path.field("versions").index(index).field(key), errors);
        }
    }
}

fn check_conversion(spec: &Map<String, Value>, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(conversion) = spec.get("conversion").and_then(Value::as_object) else {
        return;
    };
    match text(conversion, "strategy") {
        "" => errors.push(FieldError::required(&path.field("strategy"), "")),
        "None" => {
            let webhook = conversion.get("webhook").and_then(Value::as_object);
            for (key, inner) in [
                ("webhookClientConfig", "clientConfig"),
                ("conversionReviewVersions", "conversionReviewVersions"),
            ] {
                if webhook
                    .and_then(|webhook| given(webhook, inner))
                    .is_some_and(|value| value != &json!([]))
                {
                    errors.push(FieldError::forbidden(
                        &path.field(key),
                        "should not be set when strategy is not set to Webhook",
                    ));
                }
            }
        }
        "Webhook" => errors.push(FieldError::forbidden(
            &path.field("strategy"),
            "conversion webhooks are not run by this server: serve versions of one schema with strategy None",
        )),
        other => errors.push(FieldError::not_supported(
            &path.field("strategy"),
            other,
            &["None", "Webhook"],
        )),
    }
}

fn check_change(spec: &Map<String, Value>, old: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let nothing = Map::new();
    let old_spec = old.get("spec").and_then(Value::as_object).unwrap_or(&nothing);
    let established = old
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .any(|condition| {
            condition.get("type") == Some(&"Established".into()) && condition.get("status") == Some(&"True".into())
        });
    let mut fixed = |at: Path, new: Option<&Value>, old: Option<&Value>| {
        if new != old {
            errors.push(FieldError::invalid(
                &at,
                new.cloned().unwrap_or_else(|| "".into()),
                "field is immutable",
            ));
        }
    };
    let name = |spec: &'_ Map<String, Value>, key: &str| spec.get("names").and_then(|names| names.get(key)).cloned();
    if established {
        fixed(path.field("scope"), spec.get("scope"), old_spec.get("scope"));
        fixed(
            path.field("names").field("kind"),
            name(spec, "kind").as_ref(),
            name(old_spec, "kind").as_ref(),
        );
    }
    fixed(path.field("group"), spec.get("group"), old_spec.get("group"));
    fixed(
        path.field("names").field("plural"),
        name(spec, "plural").as_ref(),
        name(old_spec, "plural").as_ref(),
    );
}

fn check_stored(new: &Value, spec: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let path = Path::new("status.storedVersions");
    let nothing = Map::new();
    let status = new.get("status").and_then(Value::as_object).unwrap_or(&nothing);
    let stored = texts(status, "storedVersions");
    if stored.is_empty() {
        errors.push(FieldError::invalid(
            &path,
            Value::Null,
            "must have at least one stored version",
        ));
        return;
    }
    for version in versions(spec).filter(|version| flag(version, "storage")) {
        let name = text(version, "name");
        if !stored.contains(&name) {
            errors.push(FieldError::invalid(
                &path,
                json!(stored),
                format!("must have the storage version {name}"),
            ));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions(spec).any(|version| text(version, "name") == *name) {
            errors.push(FieldError::invalid(
                &path.index(index),
                *name,
                format!(
                    "missing from spec.versions; {name} was previously a storage version, and must remain in \
                     spec.versions until a storage migration ensures no data remains persisted in {name} and removes \
                     {name} from status.storedVersions"
                ),
            ));
        }
    }
}

const APPROVED: &str = "api-approved.kubernetes.io";

/// Groups of Kubernetes itself need an annotation.
fn check_approval(new: &Value, old: Option<&Value>, spec: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let group = text(spec, "group");
    let protected =
        |domain: &str| group == domain || group.strip_suffix(domain).is_some_and(|head| head.ends_with('.'));
    if !protected("k8s.io") && !protected("kubernetes.io") {
        return;
    }
    let state = |crd: &Value| {
        let value = crd
            .get("metadata")
            .and_then(|metadata| metadata.get("annotations"))
            .and_then(|annotations| annotations.get(APPROVED))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let is_url = value
            .split_once("://")
            .is_some_and(|(scheme, host)| !scheme.is_empty() && !host.is_empty());
        let kind = match value.as_str() {
            "" => 0,
            text if text.starts_with("unapproved") => 1,
            _ if is_url => 2,
            _ => 3,
        };
        (kind, value)
    };
    let (kind, value) = state(new);
    if old.is_some_and(|old| state(old).0 == kind) {
        return;
    }
    let path = Path::new("metadata.annotations").key(APPROVED);
    match kind {
        0 => errors.push(FieldError::required(
            &path,
            format!(
                "protected groups must have approval annotation \"{APPROVED}\", see \
                 https://github.com/kubernetes/enhancements/pull/1111"
            ),
        )),
        3 => errors.push(FieldError::invalid(
            &path,
            value.as_str(),
            format!(
                "protected groups must have approval annotation \"{APPROVED}\" with either a URL or a reason starting \
                 with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
            ),
        )),
        _ => {}
    }
}

/// Whether the version of a CRD has the status subresource.
pub(super) fn has_status(version: &Map<String, Value>) -> bool {
    version_has_status(version)
}
