//! Security contexts of pods and containers: checked, and mostly not enforced by a process node.

use serde_json::Value;

use crate::fault::{FieldError, Path};
use crate::kinds::checks::{Errors, among};
use crate::kinds::names;
use crate::kinds::reading::{at, given, integer, list, text, truth};
use crate::kinds::volume_source::descending;

const MOST_ID: i64 = i32::MAX as i64;

fn id(errors: &mut Errors, value: Option<i64>, path: &Path) {
    if let Some(value) = value {
        for sentence in names::in_range(value, 0, MOST_ID) {
            errors.push(FieldError::invalid(path, value, sentence));
        }
    }
}

pub(super) fn check_pod_security(errors: &mut Errors, spec: &Value, path: &Path) {
    let context = at(spec, "/securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(errors, integer(context, field), &path.field(field));
    }
    for (index, group) in list(context, "supplementalGroups").iter().enumerate() {
        id(errors, group.as_i64(), &path.field("supplementalGroups").index(index));
    }
    if truth(spec, "shareProcessNamespace") == Some(true) && truth(spec, "hostPID") == Some(true) {
        errors.push(FieldError::invalid(
            &path.field("shareProcessNamespace"),
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        ));
    }
    check_sysctls(errors, spec, list(context, "sysctls"), &path.field("sysctls"));
    among(
        errors,
        &path.field("fsGroupChangePolicy"),
        context.get("fsGroupChangePolicy"),
        &["Always", "OnRootMismatch"],
    );
    check_seccomp(errors, context, &path.field("seccompProfile"));
    check_app_armor(errors, context, &path.field("appArmorProfile"));
    among(
        errors,
        &path.field("supplementalGroupsPolicy"),
        context.get("supplementalGroupsPolicy"),
        &["Merge", "Strict"],
    );
    among(
        errors,
        &path.field("seLinuxChangePolicy"),
        context.get("seLinuxChangePolicy"),
        &["MountOption", "Recursive"],
    );
}

fn check_sysctls(errors: &mut Errors, spec: &Value, sysctls: &[Value], path: &Path) {
    for (index, sysctl) in sysctls.iter().enumerate() {
        let (path, name) = (path.index(index).field("name"), text(sysctl, "name"));
        if name.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if name.len() > 253 || !name.split(['.', '/']).all(is_sysctl_part) {
            errors.push(FieldError::invalid(
                &path,
                name,
                "must have at most 253 characters and match regex \
                 ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            ));
        } else if sysctls.iter().take(index).any(|earlier| text(earlier, "name") == name) {
            errors.push(FieldError::duplicate(&path, name));
        }
        for (field, start) in [("hostNetwork", "net."), ("hostIPC", "kernel.shm")] {
            if truth(spec, field) == Some(true) && name.starts_with(start) {
                errors.push(FieldError::invalid(
                    &path,
                    name,
                    format!("may not be specified when '{field}' is true"),
                ));
            }
        }
    }
}

fn is_sysctl_part(part: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|byte| plain(byte) || b"-_".contains(byte))
}

pub(super) fn check_container_security(errors: &mut Errors, context: &Value, host_users: bool, path: &Path) {
    if context.is_null() {
        return;
    }
    for field in ["runAsUser", "runAsGroup"] {
        id(errors, integer(context, field), &path.field(field));
    }
    if given(context, "procMount").is_some() {
        among(
            errors,
            &path.field("procMount"),
            context.get("procMount"),
            &["Default", "Unmasked"],
        );
        if host_users && text(context, "procMount") == "Unmasked" {
            errors.push(FieldError::invalid(
                &path.field("procMount"),
                "Unmasked",
                "`hostUsers` must be false to use `Unmasked`",
            ));
        }
    }
    check_seccomp(errors, context, &path.field("seccompProfile"));
    if truth(context, "allowPrivilegeEscalation") == Some(false) {
        if truth(context, "privileged") == Some(true) {
            errors.push(FieldError::invalid(
                path,
                context.clone(),
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            ));
        }
        if list(at(context, "/capabilities"), "add")
            .iter()
            .any(|name| name == "CAP_SYS_ADMIN")
        {
            errors.push(FieldError::invalid(
                path,
                context.clone(),
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            ));
        }
    }
    check_app_armor(errors, context, &path.field("appArmorProfile"));
}

fn check_seccomp(errors: &mut Errors, context: &Value, path: &Path) {
    let Some(profile) = given(context, "seccompProfile") else {
        return;
    };
    let kind = text(profile, "type");
    match kind {
        "Localhost" | "RuntimeDefault" | "Unconfined" => {}
        "" => errors.push(FieldError::required(
            &path.field("type"),
            "type is required when seccompProfile is set",
        )),
        other => errors.push(FieldError::not_supported(
            &path.field("type"),
            other,
            &["Localhost", "RuntimeDefault", "Unconfined"],
        )),
    }
    let local = path.field("localhostProfile");
    match (kind, given(profile, "localhostProfile")) {
        ("Localhost", None) => errors.push(FieldError::required(
            &local,
            "must be set when seccomp type is Localhost",
        )),
        ("Localhost", Some(file)) => descending(errors, file.as_str().unwrap_or_default(), &local),
        (_, Some(_)) => errors.push(FieldError::invalid(
            &local,
            profile.clone(),
            "can only be set when seccomp type is Localhost",
        )),
        _ => {}
    }
}

fn check_app_armor(errors: &mut Errors, context: &Value, path: &Path) {
    let Some(profile) = given(context, "appArmorProfile") else {
        return;
    };
    let local = text(profile, "localhostProfile");
    let path_of_local = path.field("localhostProfile");
    match text(profile, "type") {
        "Localhost" => {
            if given(profile, "localhostProfile").is_none() {
                errors.push(FieldError::required(
                    &path_of_local,
                    "must be set when AppArmor type is Localhost",
                ));
            } else if local.trim() != local {
                errors.push(FieldError::invalid(
                    &path_of_local,
                    local,
                    "must not be padded with whitespace",
                ));
            } else if local.is_empty() {
                errors.push(FieldError::required(
                    &path_of_local,
                    "must be set when AppArmor type is Localhost",
                ));
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if given(profile, "localhostProfile").is_some() {
                errors.push(FieldError::invalid(
                    &path_of_local,
                    local,
                    "can only be set when AppArmor type is Localhost",
                ));
            }
        }
        "" => errors.push(FieldError::required(
            &path.field("type"),
            "type is required when appArmorProfile is set",
        )),
        other => errors.push(FieldError::not_supported(
            &path.field("type"),
            other,
            &["Localhost", "RuntimeDefault", "Unconfined"],
        )),
    }
}
