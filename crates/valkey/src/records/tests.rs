use super::pod::Member;
use super::*;
use crate::observe::PodPhase;
use crate::words::Ordinal;
use serde_json::{Value, json};
use std::time::Duration;
use usher_operator::record::{Record, read};

fn object(kind: &str, name: &str, metadata: Value, rest: Value) -> DynamicObject {
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {
        "namespace": "ns", "name": name, "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
    }});
    let merge = |into: &mut Value, from: Value| {
        let into = into.as_object_mut().unwrap();
        into.extend(from.as_object().unwrap().clone());
    };
    merge(&mut object["metadata"], metadata);
    merge(&mut object, rest);
    serde_json::from_value(object).unwrap()
}

fn record<R: Record>(kind: &str, name: &str, metadata: Value, rest: Value) -> R {
    read(&object(kind, name, metadata, rest)).unwrap()
}

fn ours() -> Value {
    json!({labels::MANAGED_BY: MANAGER, labels::INSTANCE: "c", labels::NAME: "c"})
}

fn cluster(annotations: Value) -> ClusterRecord {
    record(
        "ValkeyCluster",
        "c",
        json!({"annotations": annotations}),
        json!({"spec": {}}),
    )
}

#[test]
fn a_cluster_says_how_big_it_is() {
    let plain = cluster(json!({}));
    assert_eq!((plain.masters(), plain.replicas_per_master(), plain.size()), (3, 1, 6));
    assert_eq!(cluster(json!({"usher.dev/surge": "true"})).size(), 7);
    assert_eq!(plain.wishes, Wishes::default());
    assert_eq!(
        plain.selector(),
        "app.kubernetes.io/instance=c,app.kubernetes.io/name=c"
    );
}

#[test]
fn wishes_are_read_from_annotations() {
    let shard = "a".repeat(40);
    let wishes = cluster(json!({
        "usher.dev/paused": "true", "usher.dev/slot-balance": "manual", "usher.dev/max-migrations": "5",
        "usher.dev/drain-linger-seconds": "0", "usher.dev/accept-data-loss": shard, "usher.dev/roll": "now",
        "valkey-operator.smoketurner.com/upgrade-in-progress": "true", "valkey-operator.smoketurner.com/upgrade-name": "up",
    }))
    .wishes;
    assert!(wishes.paused && !wishes.balance && wishes.misread.is_empty());
    assert_eq!((wishes.max_migrations, wishes.linger), (5, Duration::ZERO));
    assert_eq!(wishes.accept_data_loss.unwrap().as_str(), shard);
    assert_eq!(
        (wishes.roll.as_deref(), wishes.upgrade.as_deref()),
        (Some("now"), Some("up"))
    );
}

#[test]
fn wishes_that_make_no_sense_are_told_and_change_nothing() {
    let wishes = cluster(json!({
        "usher.dev/paused": "yes", "usher.dev/max-migrations": "0", "usher.dev/drain-linger-seconds": "-1",
        "usher.dev/accept-data-loss": "all", "usher.dev/slot-balance": "",
    }))
    .wishes;
    assert_eq!(wishes.misread.len(), 4, "{:?}", wishes.misread);
    assert_eq!(
        Wishes {
            misread: Vec::new(),
            ..wishes
        },
        Wishes::default()
    );
}

#[test]
fn a_status_of_nonsense_reads_as_none() {
    let read: ClusterRecord = record(
        "ValkeyCluster",
        "c",
        json!({}),
        json!({"spec": {}, "status": {"phase": 7}}),
    );
    assert_eq!(read.status, crate::api::ValkeyClusterStatus::default());
}

fn pod(name: &str, labels: Value, status: Value) -> PodRecord {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "c", "uid": "s", "controller": true}]);
    let annotations = json!({"usher.dev/revision": "r1"});
    let metadata = json!({"labels": labels, "ownerReferences": owner, "annotations": annotations});
    record(
        "Pod",
        name,
        metadata,
        json!({"spec": {"nodeName": "n"}, "status": status}),
    )
}

#[test]
fn a_pod_is_read_where_it_is_ours() {
    let status = json!({"phase": "Running", "podIP": "10.0.0.7", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"}]});
    let Member { cluster, ordinal, seen } = *pod("c-4", ours(), status.clone()).member.unwrap();
    assert_eq!((&*cluster, ordinal), ("c", Ordinal(4)));
    assert!(seen.ready && seen.phase == PodPhase::Running && seen.trouble.is_none());
    assert_eq!(seen.ready_changed.to_string(), "2026-01-01T00:00:09Z");
    assert_eq!(
        (seen.template.as_deref(), seen.node.as_deref()),
        (Some("r1"), Some("n"))
    );
    assert_eq!(seen.address.unwrap().to_string(), "10.0.0.7");
    let strangers = [
        pod("c-04", ours(), status.clone()),
        pod("c-x", ours(), status.clone()),
        pod("d-1", ours(), status.clone()),
        pod("c-1", json!({labels::INSTANCE: "c"}), status),
    ];
    for stranger in strangers {
        assert_eq!(stranger.member, None, "{}", stranger.meta.key);
    }
}

#[test]
fn a_pod_tells_why_it_does_not_run() {
    let trouble = |status| pod("c-0", ours(), status).member.unwrap().seen.trouble;
    let waiting = |reason: &str| json!({"reason": reason, "message": "back-off"});
    assert_eq!(
        trouble(json!({"containerStatuses": [{"state": {"waiting": waiting("ImagePullBackOff")}}]})).as_deref(),
        Some("ImagePullBackOff: back-off")
    );
    let crashed =
        json!({"state": {"waiting": waiting("CrashLoopBackOff")}, "lastState": {"terminated": {"exitCode": 1}}});
    assert_eq!(
        trouble(json!({"containerStatuses": [{"state": {"running": {}}}, crashed]})).as_deref(),
        Some("CrashLoopBackOff: back-off (exit code 1)")
    );
    assert_eq!(
        trouble(json!({"containerStatuses": [{"state": {"waiting": waiting("ContainerCreating")}}]})),
        None
    );
    // It runs again: what was is over.
    let again = json!({"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1}}});
    assert_eq!(trouble(json!({"containerStatuses": [again]})), None);
    let unscheduled =
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"});
    assert_eq!(
        trouble(json!({"conditions": [unscheduled]})).as_deref(),
        Some("Unschedulable: 0/1 nodes")
    );
}

#[test]
fn a_secret_tells_what_is_the_same_and_nothing_else() {
    let secret: SecretRecord = record(
        "Secret",
        "s",
        json!({}),
        json!({"data": {"a": "Z2VoZWlt", "b": "Z2VoZWlt", "c": "eA=="}}),
    );
    let digest = |key| secret.digest(key).unwrap();
    assert!(digest("a").same(digest("b")) && !digest("a").same(digest("c")));
    assert!(digest("a").same(secret::Digest::of(b"geheim")));
    assert_eq!(secret.digest("d"), None);
    assert!(!format!("{secret:?}").contains("Z2VoZWlt"));
}

#[test]
fn a_volume_belongs_to_a_cluster_by_its_name() {
    let volume = |name| record::<VolumeRecord>("PersistentVolumeClaim", name, json!({}), json!({}));
    let of = |name| {
        volume(name)
            .cluster()
            .map(|(cluster, ordinal)| format!("{cluster} {ordinal}"))
    };
    assert_eq!(of("data-my-cache-12").as_deref(), Some("my-cache 12"));
    for name in ["data-c", "data-c-01", "other-c-1", "data-c-x"] {
        assert_eq!(of(name), None, "{name}");
    }
}

#[test]
fn a_set_says_its_size_and_revision() {
    let template = json!({"metadata": {"annotations": {"usher.dev/revision": "r1"}}});
    let spec = json!({"spec": {"replicas": 6, "template": template}});
    let set: SetRecord = record("StatefulSet", "c", json!({"labels": ours()}), spec.clone());
    assert_eq!((set.replicas(), set.revision()), (6, Some("r1")));
    let foreign: SetRecord = record("StatefulSet", "c", json!({}), spec);
    assert_eq!((foreign.cluster, foreign.live), (None, None));
}
