//! Definitions on their way out, and the kinds that come and go with them.

use serde_json::{Value, json};

use crate::world::{MAPS, World, map, owner};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true}}}}}]}})
}

fn widget(name: &str, meta: Value) -> Value {
    let mut body = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta});
    body["metadata"]["name"] = name.into();
    body
}

fn terminating(definition: &Value) -> Option<&Value> {
    let conditions = definition["status"]["conditions"].as_array()?;
    conditions.iter().find(|found| found["type"] == "Terminating")
}

#[test]
fn d6_a_definition_takes_its_instances_along_and_the_kind_is_no_longer_served() {
    let mut world = World::new();
    world.post(DEFINITIONS, &definition());
    for name in ["a", "b"] {
        world.post(WIDGETS, &widget(name, json!({})));
    }
    world.settle();
    let answer = world.delete(DEFINITION, "Background");
    let cleanup = json!(["customresourcecleanup.apiextensions.k8s.io"]);
    assert_eq!(answer["metadata"]["finalizers"], cleanup);
    assert_eq!(world.names(WIDGETS), ["a", "b"]);
    world.settle();
    assert_eq!(world.get(DEFINITION), None);
    assert_eq!(world.ask("GET", WIDGETS, None).0, 404);
    assert_eq!(world.ask("GET", "/apis/example.com/v1", None).0, 404);
    // The same kind, made again, has none of the old instances.
    world.post(DEFINITIONS, &definition());
    assert!(world.names(WIDGETS).is_empty());
}

#[test]
fn d6_a_definition_waits_for_an_instance_that_is_held() {
    let mut world = World::new();
    world.post(DEFINITIONS, &definition());
    world.post(WIDGETS, &widget("a", json!({"finalizers": ["example.com/hold"]})));
    world.post(WIDGETS, &widget("b", json!({})));
    world.delete(DEFINITION, "Background");
    world.settle();
    let live = world.get(DEFINITION).unwrap();
    let condition = terminating(&live).unwrap();
    assert_eq!(condition["status"], "True");
    assert_eq!(condition["reason"], "InstanceDeletionInProgress");
    assert_eq!(condition["message"], "CustomResource deletion is in progress");
    assert_eq!(world.names(WIDGETS), ["a"]);
    let (code, refused) = world.ask("POST", WIDGETS, Some(&widget("late", json!({}))));
    assert_eq!(code, 403);
    assert_eq!(
        refused["message"],
        "widgets.example.com \"late\" is forbidden: create not allowed while custom resource definition is terminating"
    );
    world.patch(&format!("{WIDGETS}/a"), &json!({"metadata": {"finalizers": null}}));
    world.settle();
    assert_eq!(world.get(DEFINITION), None);
}

#[test]
fn c1_custom_resources_own_and_are_owned() {
    let mut world = World::new();
    world.post(DEFINITIONS, &definition());
    let a = world.post(WIDGETS, &widget("a", json!({})));
    let b = world.post(
        WIDGETS,
        &widget("b", json!({"ownerReferences": [owner(&a, Some(true))]})),
    );
    world.config_map("default", "c", vec![owner(&b, Some(true))]);
    world.settle();
    assert_eq!(world.names(MAPS), ["c"]);
    world.delete(&format!("{WIDGETS}/a"), "Foreground");
    world.settle();
    assert!(world.names(WIDGETS).is_empty());
    assert!(world.names(MAPS).is_empty());
}

#[test]
fn c1_orphans_among_custom_resources_forget_their_owner() {
    let mut world = World::new();
    world.post(DEFINITIONS, &definition());
    let a = world.post(WIDGETS, &widget("a", json!({})));
    world.post(
        WIDGETS,
        &widget("b", json!({"ownerReferences": [owner(&a, Some(true))]})),
    );
    world.settle();
    world.delete(&format!("{WIDGETS}/a"), "Orphan");
    world.settle();
    let b = world.get(&format!("{WIDGETS}/b")).unwrap();
    assert!(b["metadata"]["ownerReferences"].is_null(), "{b}");
    assert_eq!(world.names(WIDGETS), ["b"]);
}

#[test]
fn c1_dependents_of_instances_go_even_when_the_kind_goes_first() {
    let mut world = World::new();
    world.post(DEFINITIONS, &definition());
    let a = world.post(WIDGETS, &widget("a", json!({})));
    world.config_map("default", "c", vec![owner(&a, None)]);
    world.settle();
    world.delete(DEFINITION, "Background");
    // The definition's controller runs alone until the kind is gone.
    while world.get(DEFINITION).is_some() {
        let ready = world.manual.ready();
        let work = ready
            .iter()
            .find(|work| work.id.controller == usher_embedded::Controller::Definitions)
            .unwrap();
        let id = work.id.clone();
        assert!(futures::executor::block_on(world.manual.run(&id)));
    }
    assert_eq!(world.names(MAPS), ["c"]);
    world.settle();
    assert!(world.names(MAPS).is_empty());
}

#[test]
fn c1_an_owner_of_a_kind_that_comes_later_is_looked_for_then() {
    let mut world = World::new();
    let ghost = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "g",
        "uid": "11111111-2222-4333-8444-555555555555"});
    world.config_map("default", "c", vec![ghost]);
    world.settle();
    assert!(world.get(&map("c")).is_some());
    world.post(DEFINITIONS, &definition());
    world.settle();
    assert!(world.get(&map("c")).is_none());
}

#[test]
fn o15_instances_go_with_their_namespace() {
    let mut world = World::new();
    world.post(DEFINITIONS, &definition());
    world.namespace("gone");
    let inside = "/apis/example.com/v1/namespaces/gone/widgets";
    world.post(inside, &widget("a", json!({"finalizers": ["example.com/hold"]})));
    world.ask("DELETE", "/api/v1/namespaces/gone", None);
    world.settle();
    let namespace = world.get("/api/v1/namespaces/gone").unwrap();
    let conditions = namespace["status"]["conditions"].to_string();
    assert!(
        conditions.contains("widgets.example.com has 1 resource instances"),
        "{conditions}"
    );
    world.patch(&format!("{inside}/a"), &json!({"metadata": {"finalizers": null}}));
    world.settle();
    assert_eq!(world.get("/api/v1/namespaces/gone"), None);
}

#[test]
fn e1_a_restored_cluster_serves_the_kinds_of_its_definitions() {
    let mut world = World::new();
    let without = world.manual.snapshot();
    world.post(DEFINITIONS, &definition());
    world.post(WIDGETS, &widget("a", json!({})));
    let with = world.manual.snapshot();
    world.manual.restore(&without).unwrap();
    assert_eq!(world.ask("GET", WIDGETS, None).0, 404);
    world.manual.restore(&with).unwrap();
    assert_eq!(world.names(WIDGETS), ["a"]);
    world.settle();
    assert_eq!(world.names(WIDGETS), ["a"]);
}

#[test]
fn a3_a_definition_whose_status_was_wiped_is_established_again() {
    let mut world = World::new();
    world.post(DEFINITIONS, &definition());
    world.post(WIDGETS, &widget("a", json!({})));
    world.settle();
    let made = world.get(DEFINITION).unwrap();
    let mut wiped = made.clone();
    wiped["status"] = json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": [], "storedVersions": []});
    let (code, answer) = world.ask("PUT", &format!("{DEFINITION}/status"), Some(&wiped));
    assert_eq!(code, 200, "{answer}");
    world.settle();
    let live = world.get(DEFINITION).unwrap();
    assert_eq!(live["status"], made["status"]);
    assert_eq!(world.names(WIDGETS), ["a"]);
}
