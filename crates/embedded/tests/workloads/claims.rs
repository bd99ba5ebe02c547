//! What a StatefulSet's pods keep (C5): claims, and when they go.

use serde_json::{Value, json};

use crate::stage::{CLAIMS, PODS, STATEFUL, Stage, is_deleting, name, stateful_set};

fn with_claims(when_deleted: &str, when_scaled: &str) -> Stage {
    let mut stage = Stage::new();
    let mut set = stateful_set(2, "a:1");
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data", "labels": {"kind": "disk"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": when_deleted, "whenScaled": when_scaled});
    stage.world.post(STATEFUL, &set);
    stage.settle();
    stage.run();
    stage
}

fn owners(stage: &Stage, claim: &str) -> Vec<String> {
    let claim = stage.get(CLAIMS, claim);
    let owners = claim["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let word = |owner: &Value, field: &str| owner[field].as_str().unwrap().to_owned();
    owners
        .iter()
        .map(|owner| {
            assert_eq!(owner["controller"], true);
            format!("{} {}", word(owner, "kind"), word(owner, "name"))
        })
        .collect()
}

/// Claims that are still there when kubelets, the garbage collector and whoever protects claims in use have run.
fn left(stage: &mut Stage) -> Vec<String> {
    stage.bury();
    for claim in stage.list(CLAIMS).iter().filter(|claim| is_deleting(claim)) {
        stage.patch(CLAIMS, name(claim), json!({"metadata": {"finalizers": null}}));
    }
    stage.world.names(CLAIMS)
}

#[test]
fn c5_a_pod_has_its_claims_before_it_comes_and_mounts_them() {
    let mut stage = with_claims("Retain", "Retain");
    assert_eq!(
        stage.news(),
        [
            "Normal SuccessfulCreate: create Claim data-db-0 Pod db-0 in StatefulSet db success",
            "Normal SuccessfulCreate: create Pod db-0 in StatefulSet db successful",
            "Normal SuccessfulCreate: create Claim data-db-1 Pod db-1 in StatefulSet db success",
            "Normal SuccessfulCreate: create Pod db-1 in StatefulSet db successful",
        ]
    );
    let claim = stage.get(CLAIMS, "data-db-1");
    assert_eq!(claim["metadata"]["labels"], json!({"app": "web", "kind": "disk"}));
    let volumes = stage.get(PODS, "db-1")["spec"]["volumes"].clone();
    assert_eq!(volumes[0], json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-db-1"}}));
    assert!(owners(&stage, "data-db-1").is_empty());
}

#[test]
fn c5_claims_are_kept_or_go_with_the_pod_or_the_set_as_the_policy_says() {
    for (when_deleted, when_scaled, owned_by, after_scaling, after_deletion) in [
        ("Retain", "Retain", &[][..], &["data-db-0", "data-db-1"][..], &["data-db-0", "data-db-1"][..]),
        ("Delete", "Retain", &["StatefulSet db"], &["data-db-0", "data-db-1"], &[]),
        ("Retain", "Delete", &[], &["data-db-0"], &["data-db-0"]),
        ("Delete", "Delete", &["StatefulSet db"], &["data-db-0"], &[]),
    ] {
        let policy = format!("whenDeleted {when_deleted}, whenScaled {when_scaled}");
        let mut stage = with_claims(when_deleted, when_scaled);
        assert_eq!(owners(&stage, "data-db-1"), owned_by, "{policy}");
        stage.patch(STATEFUL, "db", json!({"spec": {"replicas": 1}}));
        if when_scaled == "Delete" {
            assert_eq!(owners(&stage, "data-db-1"), ["Pod db-1"], "{policy}");
        }
        assert_eq!(left(&mut stage), after_scaling, "{policy}, scaled");
        stage.world.delete(&format!("{STATEFUL}/db"), "Background");
        stage.settle();
        assert_eq!(left(&mut stage), after_deletion, "{policy}, deleted");
    }
}

#[test]
fn c5_a_policy_that_changes_changes_the_owners() {
    let mut stage = with_claims("Retain", "Retain");
    let policy = json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}});
    stage.patch(STATEFUL, "db", policy);
    assert_eq!(owners(&stage, "data-db-0"), ["StatefulSet db"]);
    assert_eq!(owners(&stage, "data-db-1"), ["StatefulSet db"]);
    let policy = json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}}});
    stage.patch(STATEFUL, "db", policy);
    assert!(owners(&stage, "data-db-0").is_empty());
}

#[test]
fn c5_a_new_pod_waits_until_the_claim_of_its_predecessor_is_gone() {
    let mut stage = with_claims("Retain", "Delete");
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    stage.patch(CLAIMS, "data-db-1", hold);
    stage.patch(STATEFUL, "db", json!({"spec": {"replicas": 1}}));
    stage.bury();
    stage.patch(STATEFUL, "db", json!({"spec": {"replicas": 2}}));
    assert_eq!(stage.pod_names(), ["db-0"], "its claim is still there, and goes");
    let uid = stage.get(CLAIMS, "data-db-1")["metadata"]["uid"].clone();
    stage.patch(CLAIMS, "data-db-1", json!({"metadata": {"finalizers": null}}));
    assert_eq!(stage.pod_names(), ["db-0", "db-1"]);
    assert_ne!(stage.get(CLAIMS, "data-db-1")["metadata"]["uid"], uid, "with a claim of its own");
}

#[test]
fn c5_a_claim_that_a_waiting_pod_lacks_is_made() {
    let mut stage = Stage::new();
    let mut set = stateful_set(1, "a:1");
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    stage.world.post(STATEFUL, &set);
    stage.settle();
    let uid = stage.get(CLAIMS, "data-db-0")["metadata"]["uid"].clone();
    stage.world.delete(&format!("{CLAIMS}/data-db-0"), "Background");
    assert_eq!(left(&mut stage), ["data-db-0"]);
    assert_ne!(stage.get(CLAIMS, "data-db-0")["metadata"]["uid"], uid);
}
