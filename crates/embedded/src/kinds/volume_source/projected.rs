//! Volumes put together from other objects: downward fields and projections.

use serde_json::Value;

use super::{check_item, check_mode, not_reserved, require};
use crate::fault::{FieldError, Path};
use crate::kinds::checks::Errors;
use crate::kinds::pod::environment::{check_field_ref, check_resource_ref};
use crate::kinds::reading::{at, given, integer, list, text};
use crate::kinds::selector::check_selector;

pub(super) fn check_downward(errors: &mut Errors, file: &Value, path: &Path) {
    require(errors, file, "path", path);
    not_reserved(errors, text(file, "path"), &path.field("path"));
    match (given(file, "fieldRef"), given(file, "resourceFieldRef")) {
        (Some(field), other) => {
            check_field_ref(
                errors,
                field,
                &[
                    "metadata.annotations",
                    "metadata.labels",
                    "metadata.name",
                    "metadata.namespace",
                    "metadata.uid",
                ],
                &path.field("fieldRef"),
            );
            if other.is_some() {
                errors.push(FieldError::invalid(
                    path,
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                ));
            }
        }
        (None, Some(resource)) => {
            check_resource_ref(errors, resource, true, &path.field("resourceFieldRef"));
        }
        (None, None) => errors.push(FieldError::required(
            path,
            "one of fieldRef and resourceFieldRef is required",
        )),
    }
    check_mode(errors, file, "mode", path);
}

pub(super) fn check_projections(errors: &mut Errors, sources: &[Value], path: &Path) {
    let mut paths: Vec<&str> = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let here = path.field("sources").index(index);
        let mut count = 0;
        for field in ["secret", "configMap"] {
            if let Some(keys) = given(source, field) {
                count += 1;
                let here = here.field(field);
                require(errors, keys, "name", &here);
                for (index, item) in list(keys, "items").iter().enumerate() {
                    check_item(errors, item, &here.field("items").index(index));
                    unique(errors, &mut paths, text(item, "path"), text(keys, "name"), path);
                }
            }
        }
        if let Some(downward) = given(source, "downwardAPI") {
            count += 1;
            for file in list(downward, "items") {
                check_downward(errors, file, &here.field("downwardAPI"));
                unique(errors, &mut paths, text(file, "path"), text(file, "path"), path);
            }
        }
        if let Some(token) = given(source, "serviceAccountToken") {
            count += 1;
            check_token(errors, token, &here.field("serviceAccountToken"), path);
        }
        if let Some(bundle) = given(source, "clusterTrustBundle") {
            count += 1;
            let here = here.field("clusterTrustBundle");
            require(errors, bundle, "path", &here);
            not_reserved(errors, text(bundle, "path"), &here.field("path"));
            errors.extend(check_selector(
                at(bundle, "/labelSelector"),
                &here.field("labelSelector"),
            ));
        }
        if count > 1 {
            errors.push(FieldError::forbidden(
                &here,
                "may not specify more than 1 volume type per source",
            ));
        }
    }
}

fn unique<'a>(errors: &mut Errors, paths: &mut Vec<&'a str>, target: &'a str, shown: &str, path: &Path) {
    if target.is_empty() {
        return;
    }
    if paths.contains(&target) {
        errors.push(FieldError::invalid(path, shown, "conflicting duplicate paths"));
    } else {
        paths.push(target);
    }
}

fn check_token(errors: &mut Errors, token: &Value, here: &Path, volume: &Path) {
    let seconds = integer(token, "expirationSeconds").unwrap_or(0);
    let words = match seconds {
        ..600 => Some("may not specify a duration less than 10 minutes"),
        seconds if seconds > 1 << 32 => Some("may not specify a duration larger than 2^32 seconds"),
        _ => None,
    };
    if let Some(words) = words {
        errors.push(FieldError::invalid(&here.field("expirationSeconds"), seconds, words));
    }
    if text(token, "path").is_empty() {
        errors.push(FieldError::required(&volume.field("path"), ""));
    } else {
        not_reserved(errors, text(token, "path"), &volume.field("path"));
    }
}
