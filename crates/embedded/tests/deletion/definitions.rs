//! Definitions on their way out, and the kinds that come and go with them.

use bytes::Bytes;
use futures::FutureExt;
use futures::executor::block_on;
use futures::future::join_all;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use usher_embedded::clock::{Clock, ManualClock};
use usher_embedded::store::Durability;
use usher_embedded::{Cluster, Options, Storage};

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

/// A definition of the kind Widget under another plural.
fn rival(plural: &str) -> Value {
    let mut rival = definition();
    rival["metadata"]["name"] = format!("{plural}.example.com").into();
    rival["spec"]["names"]["plural"] = plural.into();
    rival["spec"]["names"]["singular"] = format!("a{plural}").into();
    rival
}

fn condition(definition: &Value, name: &str) -> (String, String) {
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|found| found["type"] == name).unwrap();
    let text = |field: &str| found[field].as_str().unwrap().to_owned();
    (text("status"), text("reason"))
}

fn both(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn d6_names_that_another_definition_has_are_had_when_that_one_goes() {
    let mut world = World::new();
    world.post(DEFINITIONS, &definition());
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    world.post(DEFINITIONS, &rival("gadgets"));
    let refused = world.get(&path).unwrap();
    assert_eq!(condition(&refused, "NamesAccepted"), both("False", "ListKindConflict"));
    assert_eq!(condition(&refused, "Established"), both("False", "NotAccepted"));
    assert_eq!(
        refused["status"]["acceptedNames"],
        json!({"kind": "", "plural": "gadgets", "singular": "agadgets"})
    );
    let gadgets = WIDGETS.replace("widgets", "gadgets");
    assert_eq!(world.ask("GET", &gadgets, None).0, 404);
    world.delete(DEFINITION, "Background");
    world.settle();
    let accepted = world.get(&path).unwrap();
    assert_eq!(condition(&accepted, "NamesAccepted"), both("True", "NoConflicts"));
    assert_eq!(
        condition(&accepted, "Established"),
        both("True", "InitialNamesAccepted")
    );
    assert_eq!(accepted["status"]["acceptedNames"], accepted["spec"]["names"]);
    assert!(world.names(&gadgets).is_empty());
}

#[test]
fn d6_a_short_name_that_is_let_go_is_given_to_who_waits_for_it() {
    let world = World::new();
    let mut first = definition();
    first["spec"]["names"]["shortNames"] = json!(["w"]);
    world.post(DEFINITIONS, &first);
    let mut second = rival("gadgets");
    for (field, name) in [("kind", "Gadget"), ("listKind", "GadgetList")] {
        second["spec"]["names"][field] = name.into();
    }
    second["spec"]["names"]["shortNames"] = json!(["w"]);
    world.post(DEFINITIONS, &second);
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    let refused = world.get(&path).unwrap();
    assert_eq!(
        condition(&refused, "NamesAccepted"),
        both("False", "ShortNamesConflict")
    );
    world.patch(DEFINITION, &json!({"spec": {"names": {"shortNames": null}}}));
    let accepted = world.get(&path).unwrap();
    assert_eq!(condition(&accepted, "NamesAccepted"), both("True", "NoConflicts"));
    assert_eq!(accepted["status"]["acceptedNames"]["shortNames"], json!(["w"]));
}

/// A manual cluster whose writes wait for a disk.
fn on_disk(folder: &tempfile::TempDir) -> World {
    let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
    let options = Options {
        clock: Clock::Manual(clock),
        storage: Storage::Disk {
            file: folder.path().join("store"),
            durability: Durability::Fsync,
        },
        ..Options::default()
    };
    World {
        manual: Cluster::manual(options).unwrap(),
    }
}

fn posted(world: &World, body: &Value) -> impl Future<Output = u16> + use<> {
    let request = Request::post(DEFINITIONS).header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let service = world.manual.service();
    async move { service.answer(request).await.status().as_u16() }
}

#[test]
fn d6_of_definitions_of_one_kind_that_are_made_at_once_one_is_established() {
    let folder = tempfile::tempdir().unwrap();
    let world = on_disk(&folder);
    let rivals = ["as", "bs", "cs", "ds", "es", "fs"];
    let posts = rivals.map(|plural| posted(&world, &rival(plural)));
    assert_eq!(block_on(join_all(posts)), [201; 6]);
    let is_established = |plural: &&&str| {
        let live = world.get(&format!("{DEFINITIONS}/{plural}.example.com")).unwrap();
        condition(&live, "Established").0 == "True"
    };
    assert_eq!(rivals.iter().filter(is_established).count(), 1);
}

#[test]
fn d6_a_definition_whose_writer_went_away_is_established_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    // However far the writer came.
    for polls in 1..5 {
        let mut world = on_disk(&folder);
        let plural = format!("things{polls}");
        let mut body = rival(&plural);
        body["spec"]["group"] = format!("g{polls}.example.com").into();
        body["metadata"]["name"] = format!("{plural}.g{polls}.example.com").into();
        let mut writer = Box::pin(posted(&world, &body));
        for _ in 0..polls {
            if writer.as_mut().now_or_never().is_some() {
                break;
            }
            // What is written after it is durable after it.
            block_on(posted(&world, &rival(&format!("others{polls}"))));
        }
        drop(writer);
        block_on(posted(&world, &rival(&format!("lasts{polls}"))));
        block_on(world.manual.settle());
        let list = format!("/apis/g{polls}.example.com/v1/{plural}");
        assert_eq!(world.ask("GET", &list, None).0, 200, "after {polls} polls");
    }
}
