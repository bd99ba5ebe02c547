//! Pod: defaults, rules, what may change, quality of service.

mod containers;
mod defaults;
pub(super) mod environment;
mod mounts;
mod placement;
mod probes;
mod security;
mod spec;
mod status;
mod update;
mod warnings;

use serde_json::{Map, Value, json};

use super::checks::Errors;
use super::metadata::check_template;
use super::quantity::Quantity;
use super::reading::{at, entries, given, list, text, text_at, truth};
use crate::fault::{FieldError, Path};
use crate::registry::row::BuiltIn;

pub(super) use defaults::default_spec;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub static RULES: BuiltIn = BuiltIn {
    default: defaults::default_pod,
    on_create,
    check,
    check_update: update::check_update,
    check_status: status::check_status,
    warn: warnings::of_pod,
    fields: &[
        ("spec.nodeName", |pod| text_at(pod, "/spec/nodeName").to_owned()),
        ("spec.restartPolicy", |pod| {
            text_at(pod, "/spec/restartPolicy").to_owned()
        }),
        ("spec.schedulerName", |pod| {
            text_at(pod, "/spec/schedulerName").to_owned()
        }),
        ("spec.serviceAccountName", |pod| {
            text_at(pod, "/spec/serviceAccountName").to_owned()
        }),
        ("spec.hostNetwork", |pod| {
            (truth(at(pod, "/spec"), "hostNetwork") == Some(true)).to_string()
        }),
        ("status.phase", |pod| text_at(pod, "/status/phase").to_owned()),
        ("status.podIP", |pod| {
            let first = text_at(pod, "/status/podIPs/0/ip");
            if first.is_empty() {
                text_at(pod, "/status/podIP")
            } else {
                first
            }
            .to_owned()
        }),
        ("status.nominatedNodeName", |pod| {
            text_at(pod, "/status/nominatedNodeName").to_owned()
        }),
    ],
    subresources: &["binding", "eviction", "exec", "log"],
    ..BuiltIn::PLAIN
};

/// A new pod waits, whatever its status said. It was stamped before: its time is the conditions' time.
fn on_create(pod: &mut Value) {
    let now = at(pod, "/metadata/creationTimestamp").clone();
    let mut status = json!({"phase": "Pending", "qosClass": quality(at(pod, "/spec"))});
    if !list(at(pod, "/spec"), "schedulingGates").is_empty()
        && let Some(map) = status.as_object_mut()
    {
        map.insert(
            "conditions".to_owned(),
            json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": null, "lastTransitionTime": now,
            }]),
        );
    }
    if let Some(map) = pod.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
    // Less than nothing is the least that a pod can be given.
    if let Some(grace) = pod.pointer_mut("/spec/terminationGracePeriodSeconds")
        && grace.as_i64().is_some_and(|seconds| seconds < 0)
    {
        *grace = 1.into();
    }
}

/// Guaranteed, Burstable or BestEffort, by what all containers ask for.
#[must_use]
pub fn quality(spec: &Value) -> &'static str {
    let containers = || list(spec, "containers").iter().chain(list(spec, "initContainers"));
    let positive = |holder: &Value, field: &str, name: &str| -> Option<Quantity> {
        let amount = Quantity::of(holder.get("resources")?.get(field)?.get(name)?)?;
        (amount > Quantity::ZERO).then_some(amount)
    };
    let holders: Vec<&Value> = if given(spec, "resources").is_some() {
        vec![spec]
    } else {
        containers().collect()
    };
    let named = |holder: &Value| {
        ["limits", "requests"].iter().any(|field| {
            ["cpu", "memory"]
                .iter()
                .any(|name| positive(holder, field, name).is_some())
        })
    };
    let whole = |holder: &Value| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = positive(holder, "limits", name);
            limit.is_some() && positive(holder, "requests", name).or(limit) == limit
        })
    };
    if !holders.iter().any(|holder| named(holder)) {
        "BestEffort"
    } else if holders.iter().all(|holder| whole(holder)) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

fn check(pod: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (spec, path) = (at(pod, "/spec"), Path::new("spec"));
    check_annotations(&mut errors, at(pod, "/metadata"), &Path::new("metadata.annotations"));
    spec::check_spec(&mut errors, spec, text_at(pod, "/metadata/name"), &path);
    for field in ["containers", "initContainers"] {
        for (index, container) in list(spec, field).iter().enumerate() {
            let image = text(container, "image");
            if image.trim() != image {
                errors.push(FieldError::invalid(
                    &path.field(field).index(index).field("image"),
                    image,
                    "must not have leading or trailing whitespace",
                ));
            }
        }
    }
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.push(FieldError::forbidden(
            &path.field("ephemeralContainers"),
            "cannot be set on create",
        ));
    }
    if !text(spec, "nodeName").is_empty() && !list(spec, "schedulingGates").is_empty() {
        errors.push(FieldError::forbidden(
            &path.field("nodeName"),
            "cannot be set until all schedulingGates have been cleared",
        ));
    }
    errors
}

fn check_annotations(errors: &mut Errors, meta: &Value, path: &Path) {
    for (key, value) in entries(meta, "annotations").filter(|(key, _)| *key == DELETION_COST) {
        let value = value.as_str().unwrap_or_default();
        let canonical = value.parse::<i32>().is_ok_and(|number| number.to_string() == value);
        if !canonical {
            errors.push(FieldError::invalid(&path.key(key), value, "must be a 32bit integer"));
        }
    }
}

/// A template of Deployments and the like; `path` names it.
pub(super) fn check_pod_template(errors: &mut Errors, template: &Value, path: &Path) {
    // The reference's paths leave out `metadata` here.
    errors.extend(check_template(at(template, "/metadata"), path));
    check_annotations(errors, at(template, "/metadata"), &path.field("annotations"));
    spec::check_spec(errors, at(template, "/spec"), "", &path.field("spec"));
    if !list(at(template, "/spec"), "ephemeralContainers").is_empty() {
        errors.push(FieldError::forbidden(
            &path.field("spec").field("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        ));
    }
}

/// Warnings about a template's spec.
pub(super) fn template_warnings(template: &Value, path: &Path) -> Vec<String> {
    warnings::of_spec(at(template, "/spec"), &path.field("spec"))
}

/// Fills in a template.
pub(super) fn default_template(holder: &mut Value) {
    if let Some(template) = holder.get_mut("template").filter(|template| template.is_object()) {
        super::reading::default_to(template, "metadata", Map::new());
        if let Some(spec) = super::reading::object_mut(template, "spec") {
            default_spec(spec);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_follows_what_all_containers_ask_for() {
        let container = |resources: Value| json!({"name": "c", "resources": resources});
        let whole = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1Gi"}});
        let some = json!({"requests": {"cpu": "1"}});
        let of = |all: &[Value]| {
            let containers: Vec<Value> = all.iter().cloned().map(container).collect();
            quality(&json!({"containers": containers}))
        };
        assert_eq!(of(&[json!({})]), "BestEffort");
        assert_eq!(of(&[json!({"requests": {"cpu": "0"}})]), "BestEffort");
        assert_eq!(of(std::slice::from_ref(&whole)), "Guaranteed");
        assert_eq!(of(&[whole.clone(), some.clone()]), "Burstable");
        assert_eq!(of(&[whole, json!({})]), "Burstable");
    }
}
