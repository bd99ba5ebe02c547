//! PersistentVolumeClaim, and claim templates of pods and StatefulSets.

use serde_json::{Value, json};

use super::checks::{Errors, among, amount_not_negative, dns_label, dns_subdomain, immutable, qualified};
use super::difference;
use super::quantity::Quantity;
use super::reading::{at, default_if_empty, default_to, entries, given, list, object_mut, same, text, text_at};
use super::selector::check_selector;
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

pub(super) const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
pub(super) const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub static RULES: BuiltIn = BuiltIn {
    default,
    on_create: |claim| {
        if let Some(map) = claim.as_object_mut() {
            map.insert("status".to_owned(), json!({"phase": "Pending"}));
        }
        settle_sources(claim.get_mut("spec"));
    },
    check: |claim| {
        let mut errors = Vec::new();
        check_spec(&mut errors, at(claim, "/spec"), &Path::new("spec"));
        errors
    },
    check_update,
    check_status,
    warn,
    has_generation: false,
    ..BuiltIn::PLAIN
};

pub(super) fn default(claim: &mut Value) {
    if let Some(status) = object_mut(claim, "status") {
        default_if_empty(status, "phase", "Pending");
    }
    if let Some(spec) = object_mut(claim, "spec") {
        default_spec(spec);
    }
}

pub(super) fn default_spec(spec: &mut Value) {
    default_to(spec, "volumeMode", "Filesystem");
}

/// The old and the new field for a source say the same, where both can.
fn settle_sources(spec: Option<&mut Value>) {
    let Some(map) = spec.and_then(Value::as_object_mut) else {
        return;
    };
    let (old, new) = (map.get("dataSource").cloned(), map.get("dataSourceRef").cloned());
    match (old, new) {
        (Some(old), None) => {
            map.insert("dataSourceRef".to_owned(), old);
        }
        (None, Some(new)) if text(&new, "namespace").is_empty() => {
            let mut old = new;
            if let Some(map) = old.as_object_mut() {
                map.remove("namespace");
            }
            map.insert("dataSource".to_owned(), old);
        }
        _ => {}
    }
}

pub(super) fn check_access_modes(errors: &mut Errors, spec: &Value, path: &Path) {
    let modes = list(spec, "accessModes");
    let path = path.field("accessModes");
    for mode in modes {
        among(errors, &path, Some(mode), ACCESS_MODES);
    }
    let known = |mode: &&Value| mode.as_str().is_some_and(|mode| ACCESS_MODES.contains(&mode));
    let alone = modes.iter().any(|mode| mode == "ReadWriteOncePod");
    if alone && modes.iter().filter(known).any(|mode| mode != "ReadWriteOncePod") {
        errors.push(FieldError::forbidden(
            &path,
            "may not use ReadWriteOncePod with other access modes",
        ));
    }
}

pub(super) fn check_spec(errors: &mut Errors, spec: &Value, path: &Path) {
    if list(spec, "accessModes").is_empty() {
        errors.push(FieldError::required(
            &path.field("accessModes"),
            "at least 1 access mode is required",
        ));
    }
    errors.extend(check_selector(at(spec, "/selector"), &path.field("selector")));
    check_access_modes(errors, spec, path);
    check_size(errors, spec, &path.field("resources").key("storage"));
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        dns_subdomain(errors, &path.field("storageClassName"), class);
    }
    among(errors, &path.field("volumeMode"), spec.get("volumeMode"), VOLUME_MODES);
    for field in ["dataSource", "dataSourceRef"] {
        if let Some(source) = given(spec, field) {
            check_source(errors, source, &path.field(field));
        }
    }
    if let (Some(old), Some(new)) = (given(spec, "dataSource"), given(spec, "dataSourceRef")) {
        let words = if text(new, "namespace").is_empty() {
            let differs = ["apiGroup", "kind", "name"]
                .iter()
                .any(|field| old.get(field) != new.get(field));
            differs.then_some("must match dataSourceRef")
        } else {
            Some("may not be specified when dataSourceRef.namespace is specified")
        };
        if let Some(words) = words {
            errors.push(FieldError::invalid(path, json!({}), words));
        }
    }
    let attributes = text(spec, "volumeAttributesClassName");
    if !attributes.is_empty() {
        dns_subdomain(errors, &path.field("volumeAttributesClassName"), attributes);
    }
}

fn check_size(errors: &mut Errors, spec: &Value, path: &Path) {
    let Some(size) = spec.pointer("/resources/requests/storage") else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    let Some(amount) = Quantity::of(size) else {
        return;
    };
    if amount <= Quantity::ZERO {
        errors.push(FieldError::invalid(path, size.clone(), "must be greater than zero"));
    }
}

fn check_source(errors: &mut Errors, source: &Value, path: &Path) {
    for field in ["name", "kind"] {
        if text(source, field).is_empty() {
            errors.push(FieldError::required(&path.field(field), ""));
        }
    }
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errors.push(FieldError::invalid(
            path,
            kind,
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        ));
    }
    if !group.is_empty() {
        dns_subdomain(errors, &path.field("apiGroup"), group);
    }
    let namespace = text(source, "namespace");
    if !namespace.is_empty() {
        dns_label(errors, &path.field("namespace"), namespace);
    }
}

fn check_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (mut now, mut before) = (at(new, "/spec").clone(), at(old, "/spec").clone());
    let set = |spec: &mut Value, field: &str, value: &Value| {
        if let Some(map) = spec.as_object_mut() {
            match value {
                Value::Null => map.remove(field),
                value => map.insert(field.to_owned(), value.clone()),
            };
        }
    };
    if text(&before, "volumeName").is_empty() {
        set(&mut before, "volumeName", at(&now, "/volumeName"));
    }
    immutable_annotation(&mut errors, new, old);
    if given(&before, "storageClassName").is_none() && given(&now, "storageClassName").is_some() {
        set(&mut now, "storageClassName", &Value::Null);
    }
    let (size, old_size) = (at(&now, STORAGE).clone(), at(&before, STORAGE).clone());
    if text_at(new, "/status/phase") == "Bound" {
        if let (Some(slot), false) = (now.pointer_mut(STORAGE), old_size.is_null()) {
            *slot = old_size.clone();
        }
        set(
            &mut now,
            "volumeAttributesClassName",
            at(&before, "/volumeAttributesClassName"),
        );
    }
    if !same(&now, &before) {
        errors.push(FieldError::forbidden(
            &Path::new("spec"),
            format!(
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
                 claims\n{}",
                difference::of_lines(&internal(&before), &internal(&now))
            ),
        ));
    }
    if let (Some(size), Some(old_size)) = (Quantity::of(&size), Quantity::of(&old_size))
        && size < old_size
    {
        let given_size = old
            .pointer("/status/capacity/storage")
            .and_then(Quantity::of)
            .unwrap_or(Quantity::ZERO);
        if size <= given_size {
            errors.push(FieldError::forbidden(
                &Path::new("spec.resources.requests.storage"),
                "field can not be less than status.capacity",
            ));
        }
    }
    immutable(
        &mut errors,
        &Path::new("volumeMode"),
        at(new, "/spec/volumeMode"),
        at(old, "/spec/volumeMode"),
    );
    errors
}

/// A spec as the reference's internal type reads, for the difference that a refusal shows.
fn internal(spec: &Value) -> String {
    let mut text = "{\n".to_owned();
    let nested = |value: &Value| difference::pretty(value).replace('\n', "\n ");
    let fields = [
        ("AccessModes", "accessModes", "null"),
        ("Selector", "selector", "null"),
        ("Resources", "", ""),
        ("VolumeName", "volumeName", "\"\""),
        ("StorageClassName", "storageClassName", "null"),
        ("VolumeMode", "volumeMode", "null"),
        ("DataSource", "dataSource", "null"),
        ("DataSourceRef", "dataSourceRef", "null"),
        ("VolumeAttributesClassName", "volumeAttributesClassName", "null"),
    ];
    for (index, (name, field, empty)) in fields.into_iter().enumerate() {
        let value = match (name, given(spec, field)) {
            ("Resources", _) => {
                let part = |field: &str| nested(at(spec, &format!("/resources/{field}"))).replace('\n', "\n ");
                format!(
                    "{{\n  \"Limits\": {},\n  \"Requests\": {}\n }}",
                    part("limits"),
                    part("requests")
                )
            }
            (_, Some(value)) => nested(value),
            (_, None) => empty.to_owned(),
        };
        let comma = if index + 1 < fields.len() { "," } else { "" };
        text.push_str(&format!(" \"{name}\": {value}{comma}\n"));
    }
    text.push('}');
    text
}

fn warn(claim: &Value, _: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    if !text(at(claim, "/metadata/annotations"), OLD_CLASS).is_empty() {
        warnings.push(format!(
            "metadata.annotations[{OLD_CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
        ));
    }
    warnings.extend(fractions(at(claim, "/spec"), &Path::new("spec")));
    warnings
}

/// There is no half of a byte.
pub(super) fn fractions(spec: &Value, path: &Path) -> Vec<String> {
    let size = at(spec, STORAGE);
    let whole = Quantity::of(size).is_none_or(Quantity::is_whole);
    if whole {
        return Vec::new();
    }
    let path = path.field("resources").field("requests").key("storage");
    vec![format!(
        "{path}: fractional byte value {size} is invalid, must be an integer"
    )]
}

const STORAGE: &str = "/resources/requests/storage";

fn immutable_annotation(errors: &mut Errors, new: &Value, old: &Value) {
    let value = |claim| text(at(claim, "/metadata/annotations"), OLD_CLASS);
    if value(new) != value(old) {
        errors.push(FieldError::invalid(
            &Path::new("metadata.annotations").key(OLD_CLASS),
            value(new),
            super::checks::IMMUTABLE,
        ));
    }
}

fn check_status(new: &Value, _: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if list(at(new, "/spec"), "accessModes").is_empty() {
        errors.push(FieldError::required(&Path::new("Spec.accessModes"), ""));
    }
    let status = at(new, "/status");
    for (name, amount) in entries(status, "capacity") {
        let path = Path::new("status.capacity").key(name);
        let units = Quantity::of(amount)
            .filter(|amount| amount.is_negative())
            .map(Quantity::units);
        if let Some(units) = units.and_then(|units| i64::try_from(units).ok()) {
            errors.push(FieldError::invalid(&path, units, "must be a valid resource quantity"));
        }
    }
    for (name, amount) in entries(status, "allocatedResources") {
        let path = Path::new("status.allocatedResources");
        qualified(&mut errors, &path, name);
        amount_not_negative(&mut errors, &path.key(name), amount);
    }
    errors
}
