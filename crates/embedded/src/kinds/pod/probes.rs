//! Probes and lifecycle hooks.

use serde_json::Value;

use crate::fault::{FieldError, Path};
use crate::kinds::checks::{Errors, not_negative, port_number_or_name};
use crate::kinds::metadata::invalid;
use crate::kinds::names;
use crate::kinds::reading::{at, given, integer, list, text};

/// Liveness, readiness and startup probe of a container. `grace` is the pod's grace period in seconds.
pub(super) fn check_probes(errors: &mut Errors, container: &Value, grace: Option<i64>, path: &Path) {
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = given(container, field) else {
            continue;
        };
        let path = path.field(field);
        check_handler(errors, probe, &["exec", "httpGet", "tcpSocket", "grpc"], grace, &path);
        for number in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            not_negative(errors, &path.field(number), integer(probe, number));
        }
        let own = path.field("terminationGracePeriodSeconds");
        let seconds = integer(probe, "terminationGracePeriodSeconds");
        if let Some(seconds) = seconds.filter(|seconds| *seconds <= 0) {
            errors.push(FieldError::invalid(&own, seconds, "must be greater than 0"));
        }
        if field == "readinessProbe" {
            if let Some(seconds) = seconds {
                errors.push(FieldError::invalid(
                    &own,
                    seconds,
                    "must not be set for readinessProbes",
                ));
            }
        } else {
            let threshold = integer(probe, "successThreshold").unwrap_or(0);
            if threshold != 1 {
                errors.push(FieldError::invalid(
                    &path.field("successThreshold"),
                    threshold,
                    "must be 1",
                ));
            }
        }
    }
}

/// Hooks after start and before stop.
pub(super) fn check_lifecycle(errors: &mut Errors, container: &Value, grace: Option<i64>, path: &Path) {
    let Some(lifecycle) = given(container, "lifecycle") else {
        return;
    };
    let path = path.field("lifecycle");
    for field in ["postStart", "preStop"] {
        if let Some(hook) = given(lifecycle, field) {
            check_handler(
                errors,
                hook,
                &["exec", "httpGet", "tcpSocket", "sleep"],
                grace,
                &path.field(field),
            );
        }
    }
}

fn check_handler(errors: &mut Errors, holder: &Value, kinds: &[&str], grace: Option<i64>, path: &Path) {
    let mut found = false;
    for kind in kinds {
        let Some(action) = given(holder, kind) else {
            continue;
        };
        let path = path.field(kind);
        if found {
            errors.push(FieldError::forbidden(&path, "may not specify more than 1 handler type"));
            continue;
        }
        found = true;
        match *kind {
            "exec" => {
                if list(action, "command").is_empty() {
                    errors.push(FieldError::required(&path.field("command"), ""));
                }
            }
            "httpGet" => check_http(errors, action, &path),
            "sleep" => check_sleep(errors, integer(action, "seconds").unwrap_or(0), grace, &path),
            _ => port_number_or_name(errors, &path.field("port"), at(action, "/port")),
        }
    }
    if !found {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

fn check_http(errors: &mut Errors, action: &Value, path: &Path) {
    if text(action, "path").is_empty() {
        errors.push(FieldError::required(&path.field("path"), ""));
    }
    port_number_or_name(errors, &path.field("port"), at(action, "/port"));
    let scheme = text(action, "scheme");
    if scheme != "HTTP" && scheme != "HTTPS" {
        errors.push(FieldError::not_supported(
            &path.field("scheme"),
            scheme,
            &["HTTP", "HTTPS"],
        ));
    }
    for header in list(action, "httpHeaders") {
        let name = text(header, "name");
        invalid(errors, &path.field("httpHeaders"), name, names::http_header(name));
    }
}

fn check_sleep(errors: &mut Errors, seconds: i64, grace: Option<i64>, path: &Path) {
    if let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&seconds)) {
        errors.push(FieldError::invalid(
            path,
            seconds,
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})"),
        ));
    }
}
