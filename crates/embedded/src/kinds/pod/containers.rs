//! Containers of a pod, of all three sorts.

use serde_json::Value;

use super::environment::check_environment;
use super::mounts::check_mounts;
use super::probes::{check_lifecycle, check_probes};
use super::security::check_container_security;
use crate::fault::{FieldError, Path};
use crate::kinds::checks::{Errors, among, dns_label, port_number};
use crate::kinds::endpoints::PROTOCOLS;
use crate::kinds::metadata::invalid;
use crate::kinds::names;
use crate::kinds::reading::{at, given, integer, list, text, truth};
use crate::kinds::resources::check_resources;

/// What the containers of one pod share.
#[derive(Debug)]
pub(super) struct Around<'a> {
    pub(super) spec: &'a Value,
    /// The pod's volumes that are well.
    pub(super) volumes: Vec<&'a Value>,
    /// Names of the pod's resource claims.
    pub(super) claims: Vec<&'a str>,
}

impl Around<'_> {
    fn grace(&self) -> Option<i64> {
        integer(self.spec, "terminationGracePeriodSeconds")
    }
}

pub(super) fn check_containers(errors: &mut Errors, around: &Around<'_>, path: &Path) {
    let containers = list(around.spec, "containers");
    if containers.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        check_common(errors, container, around, &path);
        let name = text(container, "name");
        if containers
            .iter()
            .take(index)
            .any(|earlier| text(earlier, "name") == name)
        {
            errors.push(FieldError::duplicate(&path.field("name"), name));
        }
        check_lifecycle(errors, container, around.grace(), &path);
        check_probes(errors, container, around.grace(), &path);
        check_restart(errors, container, &path);
    }
    check_host_ports(errors, containers, path);
}

pub(super) fn check_init_containers(errors: &mut Errors, around: &Around<'_>, path: &Path) {
    let containers = list(around.spec, "initContainers");
    let regular = list(around.spec, "containers");
    for (index, container) in containers.iter().enumerate() {
        let here = path.index(index);
        check_common(errors, container, around, &here);
        let sidecar = text(container, "restartPolicy") == "Always";
        if sidecar && !list(container, "restartPolicyRules").is_empty() {
            errors.push(FieldError::forbidden(
                &here.field("restartPolicyRules"),
                "restartPolicyRules are not allowed for init containers with restart policy Always",
            ));
        } else if !sidecar {
            check_restart(errors, container, &here);
        }
        let name = text(container, "name");
        let before = regular.iter().chain(containers.iter().take(index));
        if before.into_iter().any(|earlier| text(earlier, "name") == name) {
            errors.push(FieldError::duplicate(&here.field("name"), name));
        }
        check_host_ports(errors, std::slice::from_ref(container), path);
        if sidecar {
            check_lifecycle(errors, container, around.grace(), &here);
            check_probes(errors, container, around.grace(), &here);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if given(container, field).is_some() {
                    errors.push(FieldError::forbidden(
                        &here.field(field),
                        "may not be set for init containers without restartPolicy=Always",
                    ));
                }
            }
        }
    }
}

fn check_common(errors: &mut Errors, container: &Value, around: &Around<'_>, path: &Path) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.push(FieldError::required(&path.field("name"), ""));
    } else {
        dns_label(errors, &path.field("name"), name);
    }
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(&path.field("image"), ""));
    }
    required_word(
        errors,
        container,
        "terminationMessagePolicy",
        &["File", "FallbackToLogsOnError"],
        path,
    );
    check_ports(errors, list(container, "ports"), &path.field("ports"));
    check_environment(errors, container, path);
    check_mounts(errors, container, &around.volumes, path);
    required_word(
        errors,
        container,
        "imagePullPolicy",
        &["Always", "IfNotPresent", "Never"],
        path,
    );
    check_resources(
        errors,
        at(container, "/resources"),
        &around.claims,
        &path.field("resources"),
    );
    check_resize(errors, container, around, &path.field("resizePolicy"));
    let host_users = truth(around.spec, "hostUsers") != Some(false);
    check_container_security(
        errors,
        at(container, "/securityContext"),
        host_users,
        &path.field("securityContext"),
    );
}

/// A word of a closed set that must be there.
pub(super) fn required_word(errors: &mut Errors, holder: &Value, field: &str, words: &[&str], path: &Path) {
    if text(holder, field).is_empty() {
        errors.push(FieldError::required(&path.field(field), ""));
    } else {
        among(errors, &path.field(field), holder.get(field), words);
    }
}

fn check_ports(errors: &mut Errors, ports: &[Value], path: &Path) {
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let wrong = names::port_name(name);
            if wrong.is_empty() && ports.iter().take(index).any(|earlier| text(earlier, "name") == name) {
                errors.push(FieldError::duplicate(&path.field("name"), name));
            }
            invalid(errors, &path.field("name"), name, wrong);
        }
        match integer(port, "containerPort").unwrap_or(0) {
            0 => errors.push(FieldError::required(&path.field("containerPort"), "")),
            number => port_number(errors, &path.field("containerPort"), number),
        }
        match integer(port, "hostPort").unwrap_or(0) {
            0 => {}
            number => port_number(errors, &path.field("hostPort"), number),
        }
        required_word(errors, port, "protocol", PROTOCOLS, &path);
    }
}

fn check_host_ports(errors: &mut Errors, containers: &[Value], path: &Path) {
    let mut taken: Vec<String> = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        for (port_index, port) in list(container, "ports").iter().enumerate() {
            let number = integer(port, "hostPort").unwrap_or(0);
            if number == 0 {
                continue;
            }
            let key = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
            if taken.contains(&key) {
                let path = path.index(index).field("ports").index(port_index).field("hostPort");
                errors.push(FieldError::duplicate(&path, key));
            } else {
                taken.push(key);
            }
        }
    }
}

fn check_resize(errors: &mut Errors, container: &Value, around: &Around<'_>, path: &Path) {
    let policies = list(container, "resizePolicy");
    for (index, policy) in policies.iter().enumerate() {
        let (name, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if policies
            .iter()
            .take(index)
            .any(|earlier| text(earlier, "resourceName") == name)
        {
            errors.push(FieldError::duplicate(&path.index(index), name));
        }
        for (value, words) in [
            (name, &["cpu", "memory"]),
            (restart, &["NotRequired", "RestartContainer"]),
        ] {
            if value.is_empty() {
                errors.push(FieldError::required(path, ""));
            } else if !words.contains(&value) {
                errors.push(FieldError::not_supported(path, value, words));
            }
        }
        if text(around.spec, "restartPolicy") == "Never" && restart != "NotRequired" {
            errors.push(FieldError::invalid(
                path,
                restart,
                "must be 'NotRequired' when pod `restartPolicy` is 'Never'",
            ));
        }
    }
}

/// A container's own restart policy, and rules by exit code.
fn check_restart(errors: &mut Errors, container: &Value, path: &Path) {
    let rules = list(container, "restartPolicyRules");
    if given(container, "restartPolicy").is_none() {
        if rules.is_empty() {
            return;
        }
        errors.push(FieldError::required(
            &path.field("restartPolicy"),
            "must specify restartPolicy when restart rules are used",
        ));
    }
    among(
        errors,
        &path.field("restartPolicy"),
        container.get("restartPolicy"),
        &["Always", "Never", "OnFailure"],
    );
    let path = path.field("restartPolicyRules");
    if rules.len() > 20 {
        errors.push(FieldError::too_many(&path, rules.len(), 20));
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        let action = text(rule, "action");
        if action != "Restart" {
            errors.push(FieldError::not_supported(&path.field("action"), action, &["Restart"]));
        }
        let Some(codes) = given(rule, "exitCodes") else {
            errors.push(FieldError::required(&path.field("exitCodes"), "must be specified"));
            continue;
        };
        let path = path.field("exitCodes");
        let operator = text(codes, "operator");
        if operator != "In" && operator != "NotIn" {
            errors.push(FieldError::not_supported(
                &path.field("operator"),
                operator,
                &["In", "NotIn"],
            ));
        }
        let values = list(codes, "values");
        if values.len() > 255 {
            errors.push(FieldError::too_many(&path.field("values"), values.len(), 255));
        }
    }
}
