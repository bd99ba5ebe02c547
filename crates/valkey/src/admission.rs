//! What an API server is to refuse, and neither schema nor CEL can say: `/validate-valkeycluster`.
//!
//! It saves people from a Failed cluster; nothing depends on it. Where it is not installed, the plan says the same.

use kube::core::admission::{AdmissionRequest, AdmissionResponse, Operation};
use kube::core::{DynamicObject, Resource as _};
use serde::Deserialize as _;
use usher_operator::webhook::Routes;

use crate::api::annotations::{UPGRADE_IN_PROGRESS, UPGRADE_NAME};
use crate::api::{ValkeyClusterSpec, ValkeyClusterStatus};
use crate::plan::validate::reported;
use crate::words::ServerVersion;

/// Where it is answered.
pub const PATH: &str = "/validate-valkeycluster";

/// The reviewers of this crate. `own` is the user that this operator is to the API server: its own edits are let through.
pub fn routes(own: String) -> Routes {
    Routes::new().on(PATH, move |request: AdmissionRequest<DynamicObject>| {
        let verdict = judge(&request, &own);
        let response = AdmissionResponse::from(&request);
        async move {
            match verdict {
                Ok(()) => response,
                Err(sentence) => response.deny(sentence),
            }
        }
    })
}

/// Whether an edit may be; a sentence that begins with the reason where it may not.
pub fn judge(request: &AdmissionRequest<DynamicObject>, own: &str) -> Result<(), String> {
    let (Some(old), Some(new)) = (&request.old_object, &request.object) else {
        return Ok(());
    };
    let is_own = request.user_info.username.as_deref() == Some(own);
    if request.operation != Operation::Update || is_own || new.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    // What cannot be read is the schema's to refuse.
    let (Some(was), Some(will)) = (spec(old), spec(new)) else {
        return Ok(());
    };
    upgrading(old, &was, &will)?;
    downgrade(old, &was, &will)
}

fn spec(object: &DynamicObject) -> Option<ValkeyClusterSpec> {
    ValkeyClusterSpec::deserialize(object.data.get("spec")?).ok()
}

fn upgrading(old: &DynamicObject, was: &ValkeyClusterSpec, will: &ValkeyClusterSpec) -> Result<(), String> {
    let annotation = |name: &str| old.meta().annotations.as_ref()?.get(name).map(String::as_str);
    if annotation(UPGRADE_IN_PROGRESS) != Some("true") {
        return Ok(());
    }
    let changes = [
        ("masters", was.masters != will.masters),
        ("replicasPerMaster", was.replicas_per_master != will.replicas_per_master),
        ("image", was.image != will.image),
        ("resources", was.resources != will.resources),
        ("persistence", was.persistence != will.persistence),
        ("labels", was.labels != will.labels),
        ("scheduling", was.scheduling != will.scheduling),
        ("config", was.config != will.config),
    ];
    let changed: Vec<_> = changes
        .into_iter()
        .filter(|(_, is)| *is)
        .map(|(field, _)| format!("spec.{field}"))
        .collect();
    if changed.is_empty() {
        return Ok(());
    }
    let upgrade = annotation(UPGRADE_NAME).unwrap_or("(not named)");
    Err(format!(
        "UpgradeInProgress: {} cannot change while ValkeyUpgrade {upgrade} is at work: wait for its end, or delete it",
        changed.join(", ")
    ))
}

/// A lower tag than before, unless no server has run anything newer: going back from a version that never started is safe.
fn downgrade(old: &DynamicObject, was: &ValkeyClusterSpec, will: &ValkeyClusterSpec) -> Result<(), String> {
    let version = |spec: &ValkeyClusterSpec| ServerVersion::parse(&spec.image.tag);
    let (Some(before), Some(after)) = (version(was), version(will)) else {
        return Ok(());
    };
    let status = old
        .data
        .get("status")
        .and_then(|status| ValkeyClusterStatus::deserialize(status).ok());
    let running = status.and_then(|status| reported(status.valkey_version.as_deref()?));
    let newest = running.unwrap_or(before);
    if after >= before || after >= newest || will.image.allow_downgrade {
        return Ok(());
    }
    Err(format!(
        "DowngradeBlocked: spec.image.tag {:?} is older than {newest}, which servers run; an older server may be unable to \
         read their data. Set spec.image.allowDowngrade to true if it is to be",
        will.image.tag
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn asked(user: &str, annotations: Value, status: Value, old: Value, new: Value) -> Result<(), String> {
        let object = |spec: Value| {
            json!({"apiVersion": "valkey-operator.smoketurner.com/v1alpha1", "kind": "ValkeyCluster", "spec": spec,
                "metadata": {"namespace": "ns", "name": "c", "annotations": annotations}, "status": status})
        };
        let request = json!({
            "uid": "1", "operation": "UPDATE", "name": "c", "userInfo": {"username": user}, "dryRun": false,
            "kind": {"group": "g", "version": "v1alpha1", "kind": "ValkeyCluster"},
            "resource": {"group": "g", "version": "v1alpha1", "resource": "valkeyclusters"},
            "object": object(new), "oldObject": object(old), "options": null,
        });
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let review: kube::core::admission::AdmissionReview<DynamicObject> = serde_json::from_value(review).unwrap();
        judge(
            &review.try_into().unwrap(),
            "system:serviceaccount:usher:usher-operator",
        )
    }

    fn tag(tag: &str) -> Value {
        json!({"image": {"tag": tag}})
    }

    #[test]
    fn an_upgrade_in_progress_keeps_the_spec_as_it_is() {
        let upgrade = json!({UPGRADE_IN_PROGRESS: "true", UPGRADE_NAME: "to-9-1"});
        let edit = |user, spec| asked(user, upgrade.clone(), json!({}), json!({}), spec);
        let told = edit("ann", json!({"masters": 5, "config": {"maxmemory": "1gb"}})).unwrap_err();
        assert!(
            told.starts_with("UpgradeInProgress: spec.masters, spec.config cannot change"),
            "{told}"
        );
        assert!(told.contains("ValkeyUpgrade to-9-1"), "{told}");
        for spec in [
            json!({"replicasPerMaster": 2}),
            json!({"labels": {"a": "b"}}),
            tag("9.1.2"),
        ] {
            assert!(edit("ann", spec.clone()).is_err(), "{spec}");
        }
        assert_eq!(edit("ann", json!({"readService": {"enabled": true}})), Ok(()));
        assert_eq!(edit("system:serviceaccount:usher:usher-operator", tag("9.1.2")), Ok(()));
        assert_eq!(
            asked("ann", json!({}), json!({}), json!({}), json!({"masters": 5})),
            Ok(())
        );
    }

    #[test]
    fn a_downgrade_is_refused_where_servers_run_something_newer() {
        let edit = |status, old, new| asked("ann", json!({}), status, old, new);
        let running = |version: &str| json!({"valkeyVersion": version});
        let told = edit(running("9.1.2"), tag("9.1.2"), tag("9.0.0-alpine")).unwrap_err();
        assert!(
            told.starts_with("DowngradeBlocked: spec.image.tag \"9.0.0-alpine\" is older than 9.1.2"),
            "{told}"
        );
        assert!(edit(running("9.0.0..9.1.2"), tag("9.1.2"), tag("9.0.0")).is_err());
        assert!(
            edit(json!({}), tag("9.1.2"), tag("9.0.0")).is_err(),
            "nobody knows what runs"
        );
        assert_eq!(
            edit(running("9.1.0"), tag("9.9.9"), tag("9.1.0")),
            Ok(()),
            "9.9.9 never started"
        );
        assert_eq!(edit(running("9.1.0"), tag("9.1.0"), tag("9.1.2")), Ok(()));
        assert_eq!(edit(running("9.1.2"), tag("9.1.2"), tag("latest")), Ok(()));
        let allowed = json!({"image": {"tag": "9.0.0", "allowDowngrade": true}});
        assert_eq!(edit(running("9.1.2"), tag("9.1.2"), allowed), Ok(()));
    }
}
