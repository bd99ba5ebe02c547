use super::*;
use crate::api::{MANAGER, labels};
use crate::records::{BUDGETS, PODS, SECRETS, SERVICES, SETS, VOLUMES};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use usher_operator::record::ApiType;
use usher_operator::view::Event;

/// Versions only ever grow: what is not newer is no news to a view.
fn next_version() -> String {
    static VERSION: AtomicU64 = AtomicU64::new(1);
    VERSION.fetch_add(1, Ordering::Relaxed).to_string()
}

/// A view with two clusters in it: `cache`, whose password is in Secret `geheim`, and `other`.
fn view() -> View {
    let mut view = View::default();
    register(&mut view);
    for (name, spec) in [
        ("cache", json!({"auth": {"secretRef": {"name": "geheim"}}})),
        ("other", json!({})),
    ] {
        let woken = apply(&mut view, CLUSTERS, name, json!({}), json!({"spec": spec}));
        assert_eq!(woken, [name], "a new cluster looks at itself");
    }
    view
}

fn object(kind: ApiType, name: &str, metadata: Value, rest: Value) -> Box<kube::core::DynamicObject> {
    let mut object = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {
        "namespace": "ns", "name": name, "uid": format!("{name}-uid"), "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z"}});
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .extend(metadata.as_object().unwrap().clone());
    object
        .as_object_mut()
        .unwrap()
        .extend(rest.as_object().unwrap().clone());
    object["metadata"]["resourceVersion"] = next_version().into();
    serde_json::from_value(object).unwrap()
}

fn woken(outcome: usher_operator::view::Outcome) -> Vec<String> {
    assert!(outcome.unreadable.is_none(), "{:?}", outcome.unreadable);
    outcome.wakes.iter().map(|wake| wake.key.name().to_owned()).collect()
}

fn apply(view: &mut View, kind: ApiType, name: &str, metadata: Value, rest: Value) -> Vec<String> {
    woken(view.apply(kind, Event::Applied(object(kind, name, metadata, rest))))
}

fn delete(view: &mut View, kind: ApiType, name: &str, metadata: Value, rest: Value) -> Vec<String> {
    woken(view.apply(kind, Event::Deleted(object(kind, name, metadata, rest))))
}

fn ours(version: u32) -> Value {
    let labels = json!({labels::MANAGED_BY: MANAGER, labels::INSTANCE: "cache"});
    let owners = json!([{"apiVersion": "v1", "kind": "StatefulSet", "name": "cache", "uid": "s"}]);
    json!({"labels": labels, "ownerReferences": owners, "resourceVersion": version.to_string()})
}

#[test]
fn a_pod_wakes_its_cluster_when_it_matters() {
    let mut view = view();
    let running = json!({"status": {"phase": "Running", "podIP": "10.0.0.1"}});
    assert_eq!(apply(&mut view, PODS, "cache-0", ours(1), json!({})), ["cache"]);
    assert_eq!(apply(&mut view, PODS, "cache-0", ours(2), running.clone()), ["cache"]);
    let mut labelled = ours(3);
    labelled["labels"][labels::ROLE] = "primary".into();
    let none: [&str; 0] = [];
    assert_eq!(
        apply(&mut view, PODS, "cache-0", labelled, running.clone()),
        none,
        "we wrote that"
    );
    let ready = json!({"status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(apply(&mut view, PODS, "cache-0", ours(4), ready.clone()), ["cache"]);
    assert_eq!(delete(&mut view, PODS, "cache-0", ours(5), ready), ["cache"]);
    assert_eq!(apply(&mut view, PODS, "stranger", json!({}), running), none);
}

#[test]
fn what_is_owned_wakes_its_owner_and_what_only_has_its_name_too() {
    let mut view = view();
    let owner = json!([{"apiVersion": "v1", "kind": "ValkeyCluster", "name": "cache", "uid": "cache-uid"}]);
    for kind in [SETS, SERVICES, BUDGETS] {
        let of = |version: u32| {
            json!({"labels": {labels::MANAGED_BY: MANAGER, labels::INSTANCE: "cache"}, "ownerReferences": owner,
                "resourceVersion": version.to_string()})
        };
        assert_eq!(
            apply(&mut view, kind, "cache", of(1), json!({"spec": {"replicas": 1}})),
            ["cache"]
        );
        let none: [&str; 0] = [];
        assert_eq!(
            apply(
                &mut view,
                kind,
                "cache",
                of(2),
                json!({"spec": {"replicas": 1}, "status": {"x": 1}})
            ),
            none
        );
        assert_eq!(
            apply(&mut view, kind, "cache", of(3), json!({"spec": {"replicas": 2}})),
            ["cache"]
        );
        assert_eq!(
            apply(&mut view, kind, "other", json!({}), json!({})),
            ["other"],
            "somebody else's"
        );
        assert_eq!(delete(&mut view, kind, "other", json!({}), json!({})), ["other"]);
    }
    assert_eq!(
        apply(&mut view, SERVICES, "cache-headless", json!({}), json!({})),
        ["cache"]
    );
}

#[test]
fn a_secret_wakes_whoever_names_it() {
    let mut view = view();
    assert_eq!(
        apply(
            &mut view,
            SECRETS,
            "geheim",
            json!({}),
            json!({"data": {"password": "eA=="}})
        ),
        ["cache"]
    );
    assert_eq!(delete(&mut view, SECRETS, "geheim", json!({}), json!({})), ["cache"]);
    assert_eq!(
        apply(&mut view, SECRETS, "other-config", json!({}), json!({})),
        ["other"]
    );
    let none: [&str; 0] = [];
    assert_eq!(apply(&mut view, SECRETS, "unrelated", json!({}), json!({})), none);
}

#[test]
fn a_volume_wakes_the_cluster_of_its_name() {
    let mut view = view();
    assert_eq!(
        apply(&mut view, VOLUMES, "data-cache-0", json!({}), json!({})),
        ["cache"]
    );
    let none: [&str; 0] = [];
    let bound = json!({"resourceVersion": "2"});
    assert_eq!(
        apply(
            &mut view,
            VOLUMES,
            "data-cache-0",
            bound,
            json!({"status": {"phase": "Bound"}})
        ),
        none
    );
    assert_eq!(
        delete(&mut view, VOLUMES, "data-cache-0", json!({}), json!({})),
        ["cache"]
    );
    assert_eq!(apply(&mut view, VOLUMES, "data-nobody-0", json!({}), json!({})), none);
}

#[test]
fn r7_a_cluster_looks_again_when_what_it_wrote_down_is_there_to_be_read() {
    let mut view = view();
    let none: [&str; 0] = [];
    let of =
        |version: u32, annotations: Value| json!({"resourceVersion": version.to_string(), "annotations": annotations});
    let with = |status: Value| json!({"spec": {}, "status": status});
    assert_eq!(
        apply(
            &mut view,
            CLUSTERS,
            "other",
            of(2, json!({})),
            with(json!({"phase": "Pending"}))
        ),
        ["other"]
    );
    assert_eq!(
        apply(
            &mut view,
            CLUSTERS,
            "other",
            of(3, json!({})),
            with(json!({"phase": "Pending"}))
        ),
        none
    );
    let paused = json!({"usher.dev/paused": "true"});
    assert_eq!(
        apply(
            &mut view,
            CLUSTERS,
            "other",
            of(4, paused),
            with(json!({"phase": "Pending"}))
        ),
        ["other"]
    );
}
