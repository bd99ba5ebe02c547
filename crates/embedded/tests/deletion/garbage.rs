//! The garbage collector.

use serde_json::json;

use crate::world::{MAPS, World, deleting, map, owner};

#[test]
fn c1_dependents_go_with_their_owner_in_the_background() {
    let mut world = World::new();
    let a = world.config_map("default", "a", vec![]);
    let b = world.config_map("default", "b", vec![owner(&a, None)]);
    world.config_map("default", "c", vec![owner(&b, None)]);
    world.settle();
    assert_eq!(world.names(MAPS), ["a", "b", "c"]);
    world.delete(&map("a"), "Background");
    assert_eq!(world.names(MAPS), ["b", "c"]);
    world.settle();
    assert!(world.names(MAPS).is_empty());
}

#[test]
fn c1_one_solid_owner_keeps_an_object_and_lost_references_are_dropped() {
    let mut world = World::new();
    let a = world.config_map("default", "a", vec![]);
    let b = world.config_map("default", "b", vec![]);
    world.config_map("default", "c", vec![owner(&a, None), owner(&b, None)]);
    world.settle();
    world.delete(&map("a"), "Background");
    world.settle();
    let c = world.get(&map("c")).unwrap();
    assert_eq!(c["metadata"]["ownerReferences"], json!([owner(&b, None)]));
}

#[test]
fn c1_an_owner_of_the_same_name_and_another_uid_is_not_the_owner() {
    let mut world = World::new();
    let a = world.config_map("default", "a", vec![]);
    let mut other = owner(&a, None);
    other["uid"] = "11111111-2222-4333-8444-555555555555".into();
    world.config_map("default", "b", vec![other]);
    world.settle();
    assert_eq!(world.names(MAPS), ["a"]);
}

#[test]
fn c1_a_cluster_scoped_owner_owns_objects_in_namespaces() {
    let mut world = World::new();
    let node = world.post(
        "/api/v1/nodes",
        &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}),
    );
    world.config_map("default", "a", vec![owner(&node, None)]);
    world.settle();
    assert_eq!(world.names(MAPS), ["a"]);
    world.delete("/api/v1/nodes/n", "Background");
    world.settle();
    assert!(world.names(MAPS).is_empty());
}

#[test]
fn c1_an_owner_in_another_namespace_is_none_and_an_event_says_so() {
    let mut world = World::new();
    world.namespace("other");
    let a = world.config_map("other", "a", vec![]);
    world.config_map("default", "b", vec![owner(&a, None)]);
    world.settle();
    assert!(world.names(MAPS).is_empty());
    let events = world.ask("GET", "/api/v1/namespaces/default/events", None).1;
    let event = &events["items"][0];
    assert_eq!(event["reason"], "OwnerRefInvalidNamespace");
    assert_eq!(event["type"], "Warning");
    let uid = a["metadata"]["uid"].as_str().unwrap();
    assert_eq!(
        event["message"],
        format!(
            "ownerRef [v1/ConfigMap, namespace: default, name: a, uid: {uid}] does not exist in namespace \"default\""
        )
    );
    assert_eq!(event["involvedObject"]["name"], "b");
    assert_eq!(event["source"]["component"], "garbage-collector-controller");
}

#[test]
fn c1_a_cluster_scoped_object_with_an_owner_in_a_namespace_stays() {
    let mut world = World::new();
    let a = world.config_map("default", "a", vec![]);
    let body = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "ownerReferences": [owner(&a, None)]}});
    world.post("/api/v1/nodes", &body);
    world.settle();
    world.delete(&map("a"), "Background");
    world.settle();
    assert_eq!(world.names("/api/v1/nodes"), ["n"]);
}

#[test]
fn c1_an_owner_of_a_kind_that_is_not_served_keeps_its_dependents() {
    let mut world = World::new();
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Ghost", "name": "g",
        "uid": "11111111-2222-4333-8444-555555555555"});
    world.config_map("default", "a", vec![owner]);
    world.settle();
    assert_eq!(world.names(MAPS), ["a"]);
}

#[test]
fn o13_foreground_waits_for_the_dependents_that_block_and_takes_the_others_along() {
    let mut world = World::new();
    let a = world.config_map("default", "a", vec![]);
    let held = json!({"ownerReferences": [owner(&a, Some(true))], "finalizers": ["example.com/hold"]});
    world.config_map_with("default", "blocks", held);
    let held = json!({"ownerReferences": [owner(&a, Some(false))], "finalizers": ["example.com/hold"]});
    world.config_map_with("default", "does-not", held);
    world.settle();
    let answer = world.delete(&map("a"), "Foreground");
    assert_eq!(answer["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(answer["metadata"]["deletionGracePeriodSeconds"], 0);
    world.settle();
    assert_eq!(world.names(MAPS), ["a", "blocks", "does-not"]);
    for name in ["blocks", "does-not"] {
        assert!(world.get(&map(name)).unwrap()["metadata"]["deletionTimestamp"].is_string());
    }
    world.patch(&map("blocks"), &json!({"metadata": {"finalizers": null}}));
    world.settle();
    assert_eq!(world.names(MAPS), ["does-not"]);
}

#[test]
fn o13_foreground_reaches_dependents_of_dependents_first() {
    let mut world = World::new();
    let a = world.config_map("default", "a", vec![]);
    let b = world.config_map("default", "b", vec![owner(&a, Some(true))]);
    world.config_map_with(
        "default",
        "c",
        json!({"ownerReferences": [owner(&b, Some(true))], "finalizers": ["example.com/hold"]}),
    );
    world.settle();
    world.delete(&map("a"), "Foreground");
    world.settle();
    let b = world.get(&map("b")).unwrap();
    assert_eq!(b["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(world.names(MAPS), ["a", "b", "c"]);
    world.patch(&map("c"), &json!({"metadata": {"finalizers": null}}));
    world.settle();
    assert!(world.names(MAPS).is_empty());
}

#[test]
fn c1_a_cycle_in_foreground_is_unblocked_and_goes() {
    let mut world = World::new();
    let a = world.config_map("default", "a", vec![]);
    let b = world.config_map("default", "b", vec![owner(&a, Some(true))]);
    world.patch(
        &map("a"),
        &json!({"metadata": {"ownerReferences": [owner(&b, Some(true))]}}),
    );
    world.settle();
    assert_eq!(world.names(MAPS), ["a", "b"]);
    world.delete(&map("a"), "Foreground");
    world.settle();
    assert!(world.names(MAPS).is_empty());
}

#[test]
fn o13_orphan_strips_the_references_then_the_owner_goes() {
    let mut world = World::new();
    let a = world.config_map("default", "a", vec![]);
    let b = world.config_map("default", "b", vec![]);
    world.config_map("default", "c", vec![owner(&a, Some(true)), owner(&b, None)]);
    world.config_map("default", "d", vec![owner(&a, None)]);
    world.settle();
    let answer = world.delete(&map("a"), "Orphan");
    assert_eq!(answer["metadata"]["finalizers"], json!(["orphan"]));
    world.settle();
    assert_eq!(world.names(MAPS), ["b", "c", "d"]);
    let c = world.get(&map("c")).unwrap();
    assert_eq!(c["metadata"]["ownerReferences"], json!([owner(&b, None)]));
    let d = world.get(&map("d")).unwrap();
    assert!(d["metadata"]["ownerReferences"].is_null());
}

#[test]
fn o12_an_object_goes_with_its_last_finalizer_and_its_dependents_follow() {
    let mut world = World::new();
    let a = world.config_map_with("default", "a", json!({"finalizers": ["example.com/hold"]}));
    world.config_map("default", "b", vec![owner(&a, None)]);
    world.delete(&map("a"), "Background");
    world.settle();
    assert_eq!(world.names(MAPS), ["a", "b"]);
    world.patch(&map("a"), &json!({"metadata": {"finalizers": null}}));
    world.settle();
    assert!(world.names(MAPS).is_empty());
}

#[test]
fn e1_a_cluster_without_the_collector_keeps_dependents() {
    use usher_embedded::Controller;
    let mut world = World::with(deleting().without(Controller::GarbageCollector));
    let a = world.config_map("default", "a", vec![]);
    world.config_map("default", "b", vec![owner(&a, None)]);
    world.delete(&map("a"), "Background");
    world.settle();
    assert_eq!(world.names(MAPS), ["b"]);
}

#[test]
fn e3_an_idle_cluster_has_nothing_ready() {
    let mut world = World::new();
    world.settle();
    assert!(world.manual.ready().is_empty());
    let a = world.config_map("default", "a", vec![]);
    world.config_map("default", "b", vec![owner(&a, None)]);
    // Its owner is there: nothing is to be done, and nothing is read to find out.
    assert!(world.manual.ready().is_empty());
    // History is looked at once a minute while there is any to forget, then no more.
    world.advance(60);
    assert_eq!(world.settle(), 1);
    assert_eq!(world.manual.next_timer(), None);
}
