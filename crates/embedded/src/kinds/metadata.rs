//! Rules on `metadata` that all objects share, built-in and custom: names, labels, annotations, owners, finalizers.
//!
//! The registry calls these beside a kind's own checks. A kind calls them for the metadata of a template.

use serde_json::Value;

use super::checks::about_struct;
use super::names;
use super::reading::{entries, integer, list, text};
use crate::fault::{FieldError, Path, Wrong};
use crate::registry::row::NameRule;

/// All keys and values of annotations together, in bytes.
pub const MOST_ANNOTATION_BYTES: usize = 256 * 1024;

/// What is wrong with a name. `prefix`: it is a `generateName`, to which characters will be added.
#[must_use]
pub fn check_name(name: &str, rule: NameRule, prefix: bool) -> Vec<String> {
    let masked;
    let name = match name.strip_suffix('-') {
        // A dash at the end is fine when something follows.
        Some(start) if prefix && !start.is_empty() && rule != NameRule::Segment => {
            masked = format!("{start}a");
            masked.as_str()
        }
        _ => name,
    };
    match rule {
        NameRule::Subdomain => names::dns_subdomain(name),
        NameRule::Label => names::dns_label(name),
        NameRule::Dns1035 => names::dns_1035(name),
        NameRule::Segment => names::path_segment(name),
    }
}

/// Rules on the metadata of an object that is created.
#[must_use]
pub fn check_metadata(meta: &Value, rule: NameRule, namespaced: bool, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let generate = text(meta, "generateName");
    if !generate.is_empty() {
        invalid(
            &mut errors,
            &path.field("generateName"),
            generate,
            check_name(generate, rule, true),
        );
    }
    let name = text(meta, "name");
    if name.is_empty() {
        errors.push(FieldError::required(
            &path.field("name"),
            "name or generateName is required",
        ));
    } else {
        invalid(&mut errors, &path.field("name"), name, check_name(name, rule, false));
    }
    let namespace = text(meta, "namespace");
    if namespaced && namespace.is_empty() {
        errors.push(FieldError::required(&path.field("namespace"), ""));
    } else if namespaced {
        invalid(
            &mut errors,
            &path.field("namespace"),
            namespace,
            names::dns_label(namespace),
        );
    } else if !namespace.is_empty() {
        errors.push(FieldError::forbidden(
            &path.field("namespace"),
            "not allowed on this type",
        ));
    }
    if let Some(generation) = integer(meta, "generation").filter(|generation| *generation < 0) {
        errors.push(FieldError::invalid(
            &path.field("generation"),
            generation,
            "must be greater than or equal to 0",
        ));
    }
    check_shared(meta, path, &mut errors);
    errors
}

/// Rules on a change of metadata. Whether `resourceVersion` may be absent is the registry's.
#[must_use]
pub fn check_metadata_update(new: &Value, old: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !text(old, "deletionTimestamp").is_empty() {
        let before = list(old, "finalizers");
        let mut added: Vec<&str> = list(new, "finalizers")
            .iter()
            .filter(|finalizer| !before.contains(finalizer))
            .filter_map(Value::as_str)
            .collect();
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let quoted: Vec<String> = added.iter().map(|word| crate::fault::quote(word)).collect();
            errors.push(FieldError::forbidden(
                &path.field("finalizers"),
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    quoted.join(", ")
                ),
            ));
        }
    }
    let (generation, before) = (integer(new, "generation"), integer(old, "generation"));
    if generation.unwrap_or(0) < before.unwrap_or(0) {
        errors.push(FieldError::invalid(
            &path.field("generation"),
            generation.unwrap_or(0),
            "must not be decremented",
        ));
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let value = new.get(field).unwrap_or(&Value::Null);
        if value != old.get(field).unwrap_or(&Value::Null) {
            let shown = match (field, value) {
                ("name" | "namespace" | "uid", Value::Null) => Value::from(""),
                _ => value.clone(),
            };
            errors.push(FieldError::invalid(&path.field(field), shown, "field is immutable"));
        }
    }
    check_shared(new, path, &mut errors);
    errors
}

/// Rules that hold for creates, updates and templates alike.
fn check_shared(meta: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    check_labels(meta, &path.field("labels"), errors);
    check_annotations(meta, &path.field("annotations"), errors);
    check_owners(list(meta, "ownerReferences"), &path.field("ownerReferences"), errors);
    check_finalizers(list(meta, "finalizers"), &path.field("finalizers"), errors);
    check_managed_fields(list(meta, "managedFields"), &path.field("managedFields"), errors);
}

/// Labels and annotations of a template, whose other metadata is not looked at.
#[must_use]
pub fn check_template(meta: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_labels(meta, &path.field("labels"), &mut errors);
    check_annotations(meta, &path.field("annotations"), &mut errors);
    errors
}

/// One error for each sentence.
pub(crate) fn invalid(errors: &mut Vec<FieldError>, path: &Path, value: &str, sentences: Vec<String>) {
    for sentence in sentences {
        errors.push(FieldError::invalid(path, value, sentence));
    }
}

/// The labels in `holder.labels`; `path` names the map.
fn check_labels(holder: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for (key, value) in entries(holder, "labels") {
        check_label(key, value, path, errors);
    }
}

/// One label, or one requirement of a selector's `matchLabels`.
pub(crate) fn check_label(key: &str, value: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let value = value.as_str().unwrap_or_default();
    invalid(errors, path, key, names::label_key(key));
    invalid(errors, path, value, names::label_value(value));
}

fn check_annotations(holder: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let mut bytes = 0usize;
    for (key, value) in entries(holder, "annotations") {
        invalid(errors, path, key, names::label_key(&key.to_lowercase()));
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > MOST_ANNOTATION_BYTES {
        errors.push(FieldError::too_long(path, MOST_ANNOTATION_BYTES));
    }
}

fn check_owners(owners: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    let mut controller: Option<String> = None;
    for owner in owners {
        let api_version = text(owner, "apiVersion");
        // `group/version`, or the version alone for the core group.
        let version = api_version.rsplit('/').next().unwrap_or_default();
        for (field, empty, words) in [
            ("apiVersion", version.is_empty(), "version must not be empty"),
            ("kind", text(owner, "kind").is_empty(), "must not be empty"),
            ("name", text(owner, "name").is_empty(), "must not be empty"),
            ("uid", text(owner, "uid").is_empty(), "must not be empty"),
        ] {
            if empty {
                errors.push(FieldError::invalid(&path.field(field), text(owner, field), words));
            }
        }
        if api_version == "v1" && text(owner, "kind") == "Event" {
            errors.push(FieldError::invalid(
                path,
                owner.clone(),
                "/v1, Kind=Event is disallowed from being an owner",
            ));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let this = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            match &controller {
                Some(first) => errors.push(about_struct(
                    Wrong::Invalid,
                    path,
                    &shown(owners),
                    &format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {this}"
                    ),
                )),
                None => controller = Some(this),
            }
        }
    }
}

/// References in the order of their fields in Go.
fn shown(owners: &[Value]) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let owners: Vec<String> = owners
        .iter()
        .map(|owner| {
            let fields: Vec<String> = fields
                .iter()
                .filter_map(|field| Some(format!("\"{field}\":{}", owner.get(field)?)))
                .collect();
            format!("{{{}}}", fields.join(","))
        })
        .collect();
    format!("[{}]", owners.join(","))
}

fn check_finalizers(finalizers: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    let names: Vec<&str> = finalizers.iter().filter_map(Value::as_str).collect();
    for name in &names {
        invalid(errors, path, name, names::label_key(name));
    }
    if names.contains(&"orphan") && names.contains(&"foregroundDeletion") {
        errors.push(FieldError::invalid(
            path,
            Value::from(finalizers.to_vec()),
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
}

/// Finalizers of built-in kinds must name a domain, but for the few that the reference itself uses. Not for custom
/// resources.
///
/// The reference leaves out Leases, webhook configurations and CRDs, one of whose own finalizers names no domain.
#[must_use]
pub fn check_finalizers_of_kind(group: &str, meta: &Value, path: &Path) -> Vec<FieldError> {
    match group {
        "admissionregistration.k8s.io" | "apiextensions.k8s.io" | "coordination.k8s.io" => Vec::new(),
        _ => check_built_in_finalizers(meta, path),
    }
}

#[must_use]
pub fn check_built_in_finalizers(meta: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, finalizer) in list(meta, "finalizers").iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        let path = path.field("finalizers").index(index);
        if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
            errors.push(FieldError::invalid(
                &path,
                name,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    errors
}

fn check_managed_fields(entries: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    for (index, entry) in entries.iter().enumerate() {
        let path = path.index(index);
        let operation = text(entry, "operation");
        if operation != "Apply" && operation != "Update" {
            errors.push(FieldError::invalid(
                &path.field("operation"),
                operation,
                "must be `Apply` or `Update`",
            ));
        }
        let fields_type = text(entry, "fieldsType");
        if !fields_type.is_empty() && fields_type != "FieldsV1" {
            errors.push(FieldError::invalid(
                &path.field("fieldsType"),
                fields_type,
                "must be `FieldsV1`",
            ));
        }
        if text(entry, "manager").len() > 128 {
            errors.push(FieldError::too_long(&path.field("manager"), 128));
        }
        if text(entry, "subresource").len() > 256 {
            errors.push(FieldError::too_long(&path.field("subresource"), 256));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn o6_a_generated_name_may_end_with_a_dash_and_a_whole_one_may_not() {
        assert!(check_name("a-", NameRule::Subdomain, true).is_empty());
        assert_eq!(check_name("a-", NameRule::Subdomain, false).len(), 1);
        assert!(check_name("system:node", NameRule::Segment, false).is_empty());
    }

    #[test]
    fn o7_identity_is_immutable() {
        let old = json!({"name": "a", "namespace": "b", "uid": "1", "creationTimestamp": "2024-01-01T00:00:00Z"});
        let new = json!({"name": "a", "namespace": "b", "uid": "2", "creationTimestamp": "2024-01-01T00:00:00Z"});
        assert_eq!(
            texts(&check_metadata_update(&new, &old, &Path::new("metadata"))),
            [r#"metadata.uid: Invalid value: "2": field is immutable"#]
        );
        assert!(check_metadata_update(&old, &old, &Path::new("metadata")).is_empty());
    }

    #[test]
    fn o12_a_dying_object_gets_no_new_finalizers() {
        let old = json!({"name": "a", "deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["x/a"]});
        let new = json!({"name": "a", "deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["x/a", "x/b"]});
        assert_eq!(
            texts(&check_metadata_update(&new, &old, &Path::new("metadata"))),
            [concat!(
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, ",
                r#"found new finalizers []string{"x/b"}"#
            )]
        );
    }

    #[test]
    fn o20_annotations_are_limited_together() {
        let meta = json!({"name": "a", "annotations": {"a": "x".repeat(200 * 1024), "b": "x".repeat(60 * 1024)}});
        assert_eq!(
            texts(&check_metadata(
                &meta,
                NameRule::Subdomain,
                false,
                &Path::new("metadata")
            )),
            ["metadata.annotations: Too long: may not be more than 262144 bytes"]
        );
    }

    #[test]
    fn only_one_owner_controls() {
        let owner = |name| json!({"apiVersion": "v1", "kind": "K", "name": name, "uid": "u", "controller": true});
        let meta = json!({"name": "a", "ownerReferences": [owner("x"), owner("y")]});
        let errors = texts(&check_metadata(
            &meta,
            NameRule::Subdomain,
            false,
            &Path::new("metadata"),
        ));
        assert_eq!(errors.len(), 1);
        assert!(errors[0].ends_with(
            r#"Only one reference can have Controller set to true. Found "true" in references for K/x and K/y"#
        ));
    }
}
