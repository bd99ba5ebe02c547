//! Roles and bindings: stored, not enforced.

use serde_json::Value;

use super::checks::{Errors, about_struct, among, go_struct};
use super::metadata::invalid;
use super::names;
use super::reading::{at, default_if_empty, given, list, list_mut, same, text};
use super::selector::check_selector;
use crate::fault::{FieldError, Path, Wrong};
use crate::registry::row::{BuiltIn, NameRule};

const GROUP: &str = "rbac.authorization.k8s.io";

const SHARED: BuiltIn = BuiltIn {
    has_generation: false,
    name: NameRule::Segment,
    create_on_update: true,
    ..BuiltIn::PLAIN
};

pub static ROLE: BuiltIn = BuiltIn {
    check: |role| {
        let mut errors = Vec::new();
        check_rules(&mut errors, role, true);
        errors
    },
    ..SHARED
};

pub static CLUSTER_ROLE: BuiltIn = BuiltIn {
    check: check_cluster_role,
    ..SHARED
};

pub static ROLE_BINDING: BuiltIn = BuiltIn {
    default: default_binding,
    check: |binding| check_binding(binding, true),
    check_update: check_binding_update,
    ..SHARED
};

pub static CLUSTER_ROLE_BINDING: BuiltIn = BuiltIn {
    default: default_binding,
    check: |binding| check_binding(binding, false),
    check_update: check_binding_update,
    ..SHARED
};

fn default_binding(binding: &mut Value) {
    if let Some(role) = binding.get_mut("roleRef") {
        default_if_empty(role, "apiGroup", GROUP);
    }
    for subject in list_mut(binding, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            default_if_empty(subject, "apiGroup", GROUP);
        }
    }
}

fn check_rules(errors: &mut Errors, role: &Value, namespaced: bool) {
    for (index, rule) in list(role, "rules").iter().enumerate() {
        let path = Path::new("rules").index(index);
        let empty = |field: &str| list(rule, field).is_empty();
        if empty("verbs") {
            errors.push(FieldError::required(
                &path.field("verbs"),
                "verbs must contain at least one value",
            ));
        }
        if !empty("nonResourceURLs") {
            let path = path.field("nonResourceURLs");
            let shown = || Value::from(list(rule, "nonResourceURLs").to_vec());
            if namespaced {
                errors.push(FieldError::invalid(
                    &path,
                    shown(),
                    "namespaced rules cannot apply to non-resource URLs",
                ));
            }
            if !(empty("apiGroups") && empty("resources") && empty("resourceNames")) {
                errors.push(FieldError::invalid(
                    &path,
                    shown(),
                    "rules cannot apply to both regular resources and non-resource URLs",
                ));
            }
            continue;
        }
        if empty("apiGroups") {
            errors.push(FieldError::required(
                &path.field("apiGroups"),
                "resource rules must supply at least one api group",
            ));
        }
        if empty("resources") {
            errors.push(FieldError::required(
                &path.field("resources"),
                "resource rules must supply at least one resource",
            ));
        }
    }
}

fn check_cluster_role(role: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_rules(&mut errors, role, false);
    if let Some(rule) = given(role, "aggregationRule") {
        let path = Path::new("aggregationRule.clusterRoleSelectors");
        let selectors = list(rule, "clusterRoleSelectors");
        if selectors.is_empty() {
            errors.push(FieldError::required(
                &path,
                "at least one clusterRoleSelector required if aggregationRule is non-nil",
            ));
        }
        for (index, selector) in selectors.iter().enumerate() {
            errors.extend(check_selector(selector, &path.index(index)));
        }
    }
    errors
}

fn check_binding(binding: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (role, path) = (at(binding, "/roleRef"), Path::new("roleRef"));
    if text(role, "apiGroup") != GROUP {
        errors.push(FieldError::not_supported(
            &path.field("apiGroup"),
            text(role, "apiGroup"),
            &[GROUP],
        ));
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if !kinds.contains(&text(role, "kind")) {
        errors.push(FieldError::not_supported(
            &path.field("kind"),
            text(role, "kind"),
            kinds,
        ));
    }
    let name = text(role, "name");
    if name.is_empty() {
        errors.push(FieldError::required(&path.field("name"), ""));
    } else {
        invalid(&mut errors, &path.field("name"), name, names::path_segment(name));
    }
    for (index, subject) in list(binding, "subjects").iter().enumerate() {
        check_subject(&mut errors, subject, namespaced, &Path::new("subjects").index(index));
    }
    errors
}

fn check_subject(errors: &mut Errors, subject: &Value, namespaced: bool, path: &Path) {
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
    if name.is_empty() {
        errors.push(FieldError::required(&path.field("name"), ""));
    }
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                invalid(errors, &path.field("name"), name, names::dns_subdomain(name));
            }
            if !group.is_empty() {
                among(errors, &path.field("apiGroup"), subject.get("apiGroup"), &[""]);
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(&path.field("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.push(FieldError::not_supported(&path.field("apiGroup"), group, &[GROUP]));
            }
        }
        other => errors.push(FieldError::not_supported(
            &path.field("kind"),
            other,
            &["ServiceAccount", "User", "Group"],
        )),
    }
}

fn check_binding_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let (now, before) = (at(new, "/roleRef"), at(old, "/roleRef"));
    if same(now, before) {
        return Vec::new();
    }
    let fields = [
        ("APIGroup", "apiGroup", "\"\""),
        ("Kind", "kind", "\"\""),
        ("Name", "name", "\"\""),
    ];
    vec![about_struct(
        Wrong::Invalid,
        &Path::new("roleRef"),
        &go_struct(now, &fields),
        "cannot change roleRef",
    )]
}
