//! StatefulSet.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::checks::{Errors, about_struct, at_most_100_percent, count_or_percent, dns_label, go_struct, not_negative};
use super::claim;
use super::pod::{default_template, template_warnings};
use super::reading::{at, default_if_empty, default_to, given, integer, list, list_mut, object_mut, same, text};
use super::workload::{check_collisions, check_counts, check_runs_always, check_template};
use crate::fault::{FieldError, Path, Wrong};
use crate::registry::row::{BuiltIn, NameRule};

/// What may change; the rest of the spec is as it was created.
const MAY_CHANGE: &[&str] = &[
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

pub static RULES: BuiltIn = BuiltIn {
    default,
    on_create: |set| {
        if let Some(map) = set.as_object_mut() {
            map.insert("status".to_owned(), json!({"replicas": 0, "availableReplicas": 0}));
        }
    },
    check,
    check_update,
    check_status,
    warn,
    name: NameRule::Label,
    ..BuiltIn::PLAIN
};

fn default(set: &mut Value) {
    let Some(spec) = object_mut(set, "spec") else {
        return;
    };
    default_template(spec);
    for template in list_mut(spec, "volumeClaimTemplates") {
        claim::default(template);
        default_to(template, "apiVersion", "v1");
        default_to(template, "kind", "PersistentVolumeClaim");
    }
    default_if_empty(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = object_mut(spec, "updateStrategy") {
        if text(strategy, "type").is_empty() {
            default_if_empty(strategy, "type", "RollingUpdate");
            default_to(strategy, "rollingUpdate", json!({}));
        }
        let rolls = text(strategy, "type") == "RollingUpdate";
        if let Some(rolling) = strategy
            .get_mut("rollingUpdate")
            .filter(|rolling| rolls && rolling.is_object())
        {
            default_to(rolling, "partition", 0);
        }
    }
    if let Some(policy) = object_mut(spec, "persistentVolumeClaimRetentionPolicy") {
        default_if_empty(policy, "whenDeleted", "Retain");
        default_if_empty(policy, "whenScaled", "Retain");
    }
    default_to(spec, "replicas", 1);
    default_to(spec, "revisionHistoryLimit", 10);
}

fn check(set: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (spec, path) = (at(set, "/spec"), Path::new("spec"));
    let policy = text(spec, "podManagementPolicy");
    if policy != "OrderedReady" && policy != "Parallel" {
        errors.push(FieldError::invalid(
            &path.field("podManagementPolicy"),
            policy,
            "must be 'OrderedReady' or 'Parallel'",
        ));
    }
    check_strategy(&mut errors, at(spec, "/updateStrategy"), &path.field("updateStrategy"));
    let retention = at(spec, "/persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        let policy = text(retention, field);
        if given(spec, "persistentVolumeClaimRetentionPolicy").is_some() && !matches!(policy, "Retain" | "Delete") {
            errors.push(FieldError::not_supported(
                &path.field("persistentVolumeClaimRetentionPolicy").field(field),
                policy,
                &["Retain", "Delete"],
            ));
        }
    }
    for (index, template) in list(spec, "volumeClaimTemplates").iter().enumerate() {
        let path = path.field("volumeClaimTemplates").index(index).field("spec");
        claim::check_spec(&mut errors, at(template, "/spec"), &path);
    }
    for field in ["replicas", "minReadySeconds"] {
        not_negative(&mut errors, &path.field(field), integer(spec, field));
    }
    not_negative(
        &mut errors,
        &path.field("ordinals").field("start"),
        integer(at(spec, "/ordinals"), "start"),
    );
    if !text(spec, "serviceName").is_empty() {
        dns_label(&mut errors, &path.field("serviceName"), text(spec, "serviceName"));
    }
    let template = with_claims(spec);
    check_template(&mut errors, spec, &template, "statefulset", &path);
    check_runs_always(&mut errors, at(spec, "/template"), "StatefulSet", &path);
    errors
}

/// The template as its pods will be: with a volume for each claim template, and names that the set gives.
fn with_claims(spec: &Value) -> Cow<'_, Value> {
    let template = at(spec, "/template");
    let claims = list(spec, "volumeClaimTemplates");
    let pod = at(template, "/spec");
    if claims.is_empty() && text(pod, "hostname").is_empty() && text(pod, "subdomain").is_empty() {
        return Cow::Borrowed(template);
    }
    let mut template = template.clone();
    if let Some(Value::Object(pod)) = template.get_mut("spec") {
        pod.remove("hostname");
        pod.remove("subdomain");
        let name = |claim: &Value| at(claim, "/metadata/name").as_str().unwrap_or_default().to_owned();
        let mut volumes: Vec<Value> = claims
            .iter()
            .map(|claim| json!({"name": name(claim), "persistentVolumeClaim": {"claimName": name(claim)}}))
            .collect();
        if let Some(Value::Array(own)) = pod.get("volumes") {
            let covered = |volume: &Value| claims.iter().any(|claim| name(claim) == text(volume, "name"));
            volumes.extend(own.iter().filter(|volume| !covered(volume)).cloned());
        }
        if !volumes.is_empty() {
            pod.insert("volumes".to_owned(), volumes.into());
        }
    }
    Cow::Owned(template)
}

fn check_strategy(errors: &mut Errors, strategy: &Value, path: &Path) {
    let rolling = given(strategy, "rollingUpdate");
    match (text(strategy, "type"), rolling) {
        ("", _) => errors.push(FieldError::required(path, "")),
        ("OnDelete", Some(rolling)) => {
            let shown = go_struct(
                rolling,
                &[
                    ("Partition", "partition", "0"),
                    ("MaxUnavailable", "maxUnavailable", "null"),
                ],
            );
            errors.push(about_struct(
                Wrong::Invalid,
                &path.field("rollingUpdate"),
                &shown,
                "only allowed for updateStrategy 'RollingUpdate'",
            ));
        }
        ("RollingUpdate", Some(rolling)) => {
            let path = path.field("rollingUpdate");
            not_negative(errors, &path.field("partition"), integer(rolling, "partition"));
            if let Some(most) = given(rolling, "maxUnavailable") {
                let path = path.field("maxUnavailable");
                count_or_percent(errors, &path, most);
                if matches!(most, Value::Number(number) if number.as_i64() == Some(0)) || most == "0%" {
                    errors.push(FieldError::invalid(&path, most.clone(), "cannot be 0"));
                }
                at_most_100_percent(errors, &path, most);
            }
        }
        ("OnDelete" | "RollingUpdate", None) => {}
        _ => {
            let shown = go_struct(
                strategy,
                &[("Type", "type", "\"\""), ("RollingUpdate", "rollingUpdate", "null")],
            );
            errors.push(about_struct(
                Wrong::Invalid,
                path,
                &shown,
                "must be 'RollingUpdate' or 'OnDelete'",
            ));
        }
    }
}

fn warn(set: &Value, _: Option<&Value>) -> Vec<String> {
    let spec = at(set, "/spec");
    let mut warnings = template_warnings(at(spec, "/template"), &Path::new("spec.template"));
    for (index, template) in list(spec, "volumeClaimTemplates").iter().enumerate() {
        let path = Path::new("spec.volumeClaimTemplates").index(index);
        warnings.extend(claim::fractions(at(template, "/spec"), &path));
    }
    if integer(spec, "revisionHistoryLimit").is_some_and(|limit| limit < 0) {
        warnings.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                .to_owned(),
        );
    }
    warnings
}

fn check_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let (mut now, before) = (at(new, "/spec").clone(), at(old, "/spec"));
    if let Some(map) = now.as_object_mut() {
        for &field in MAY_CHANGE {
            match before.get(field) {
                Some(value) => map.insert(field.to_owned(), value.clone()),
                None => map.remove(field),
            };
        }
    }
    if same(&now, before) {
        return Vec::new();
    }
    vec![FieldError::forbidden(
        &Path::new("spec"),
        "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
         'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
    )]
}

fn check_status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_counts(
        &mut errors,
        at(new, "/status"),
        &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
        &[
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
        ],
        "status.readyReplicas",
        &Path::new("status"),
    );
    check_collisions(&mut errors, new, old);
    errors
}
