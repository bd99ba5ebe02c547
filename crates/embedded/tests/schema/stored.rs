//! What becomes of a custom resource on its way through the API: how it is stored, and how it is shown.

use serde_json::{Value, json};
use usher_embedded::Controllers;

use crate::world::World;
use crate::{DEFINITIONS, THINGS};

fn version(name: &str, is_storage: bool, spec: &Value) -> Value {
    json!({"name": name, "served": true, "storage": is_storage, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": spec}}}})
}

fn world(versions: &[Value]) -> World {
    let world = World::with(Controllers::none());
    world.post(DEFINITIONS, &crate::things(versions));
    world
}

/// One version, which takes anything beside some fields that it knows.
fn free() -> World {
    world(&[version(
        "v1",
        true,
        &json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "number": {"type": "number"}, "integer": {"type": "integer"},
            "given": {"type": "number", "default": 2.0}}}),
    )])
}

fn thing(name: &str, meta: Value, spec: Value) -> Value {
    let mut thing = json!({"apiVersion": "t.example.com/v1", "kind": "Thing", "metadata": meta, "spec": spec});
    thing["metadata"]["name"] = name.into();
    thing
}

#[test]
fn d2_nulls_in_metadata_become_the_empty_values_that_the_reference_makes_of_them() {
    let world = free();
    let made = world.post(
        THINGS,
        &thing(
            "a",
            json!({"labels": {"app": null, "x": "y"}, "annotations": {"b": null}, "finalizers": null}),
            json!({}),
        ),
    );
    assert_eq!(made["metadata"]["labels"], json!({"app": "", "x": "y"}));
    assert_eq!(made["metadata"]["annotations"], json!({"b": ""}));
    // Every selected list and watch reads the labels of all.
    assert_eq!(world.names(&format!("{THINGS}?labelSelector=app%3D,x%3Dy")), ["a"]);
    let path = format!("{THINGS}/a");
    let add = json!([{"op": "add", "path": "/metadata/labels/z", "value": null}]);
    let (code, _) = world.raw("PATCH", &path, "application/json-patch+json", Some(&add));
    assert_eq!(code, 200);
    let applied = json!({"apiVersion": "t.example.com/v1", "kind": "Thing", "metadata": {"labels": {"w": null}}});
    let apply = format!("{path}?fieldManager=me");
    let (code, _) = world.raw("PATCH", &apply, "application/apply-patch+yaml", Some(&applied));
    assert_eq!(code, 200);
    let labels = world.get(&path).unwrap()["metadata"]["labels"].clone();
    assert_eq!(labels, json!({"app": "", "x": "y", "z": "", "w": ""}));
    for (name, meta, wrong) in [
        (
            "b",
            json!({"finalizers": [null]}),
            "metadata.finalizers: Invalid value: \"\": name part must be non-empty",
        ),
        (
            "c",
            json!({"ownerReferences": [null]}),
            "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
        ),
    ] {
        let (code, answer) = world.ask("POST", THINGS, Some(&thing(name, meta, json!({}))));
        assert_eq!(code, 422, "{answer}");
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains(wrong), "{message}");
    }
    world.post(THINGS, &thing("d", json!({"managedFields": [null]}), json!({})));
}

#[test]
fn d2_whole_floats_are_stored_and_shown_as_integers_however_they_are_written() {
    let world = free();
    let path = format!("{THINGS}/a");
    // Texts are compared: what a client reads is more than a number's worth.
    let spec = |answer: &Value| answer["spec"].to_string();
    let body = json!({"number": 1.0, "integer": 3.0, "free": [4.0, 1.5, 1e18, 123_456_789_012_345_680.0]});
    let made = world.post(THINGS, &thing("a", json!({}), body));
    let stored = r#"{"free":[4,1.5,1000000000000000000,123456789012345680],"given":2,"integer":3,"number":1}"#;
    assert_eq!(spec(&made), stored);
    assert_eq!(world.get(&path).unwrap(), made);
    let (_, same) = world.ask("PUT", &path, Some(&made));
    assert_eq!(
        same["metadata"], made["metadata"],
        "what was read and is written back is no change"
    );
    // A float is another value than an integer, until it is stored: the reference counts it as a new generation.
    let mut float = made.clone();
    float["spec"]["number"] = json!(1.0);
    let (code, put) = world.ask("PUT", &path, Some(&float));
    assert_eq!((code, spec(&put)), (200, stored.to_owned()));
    assert_eq!(put["metadata"]["generation"], 2);
    let merged = world.patch(&path, &json!({"spec": {"number": 2.0, "free": null}}));
    let stored = r#"{"given":2,"integer":3,"number":2}"#;
    assert_eq!(spec(&merged), stored);
    let replace = json!([{"op": "replace", "path": "/spec/number", "value": 2.0}]);
    let (_, patched) = world.raw("PATCH", &path, "application/json-patch+json", Some(&replace));
    assert_eq!(spec(&serde_json::from_slice(&patched).unwrap()), stored);
    let status = format!("{path}/status");
    let status = world.patch(&status, &json!({"status": {"number": 5.0}}));
    assert_eq!(status["status"].to_string(), r#"{"given":2,"number":5}"#);
    let dry = world.patch(&format!("{path}?dryRun=All"), &json!({"spec": {"number": 7.0}}));
    assert_eq!(spec(&dry), r#"{"given":2,"integer":3,"number":7}"#);
}

#[test]
fn d2_an_apply_of_a_whole_float_is_an_apply_of_the_integer() {
    let world = free();
    let apply = |manager: &str| {
        let applied =
            json!({"apiVersion": "t.example.com/v1", "kind": "Thing", "spec": {"number": 2.0, "free": [3.0]}});
        let path = format!("{THINGS}/a?fieldManager={manager}");
        let (code, answer) = world.raw("PATCH", &path, "application/apply-patch+yaml", Some(&applied));
        assert!(code < 300);
        serde_json::from_slice::<Value>(&answer).unwrap()
    };
    let made = apply("me");
    assert_eq!(made["spec"].to_string(), r#"{"free":[3],"given":2,"number":2}"#);
    assert_eq!(apply("me"), made);
    assert_eq!(apply("you")["metadata"]["generation"], 1);
}

const SECOND: &str = "/apis/t.example.com/v2/namespaces/default/things";

/// Two versions, each with fields and defaults of its own.
fn two() -> World {
    let text = |default: Option<&str>| match default {
        Some(default) => json!({"type": "string", "default": default}),
        None => json!({"type": "string"}),
    };
    let first = json!({"type": "object", "default": {}, "properties": {"shared": text(None), "a": text(Some("A1")),
        "one": text(Some("1")), "free1": text(None)}});
    let second = json!({"type": "object", "default": {}, "properties": {"shared": text(None), "a": text(Some("A2")),
        "two": text(Some("2")), "free2": text(None)}});
    world(&[version("v1", true, &first), version("v2", false, &second)])
}

fn spec_at(world: &World, path: &str) -> Value {
    world.get(path).unwrap()["spec"].clone()
}

#[test]
fn d2_what_is_written_through_another_version_is_read_with_the_stored_versions_defaults_and_fields() {
    let world = two();
    let mut body = thing("x", json!({}), json!({"shared": "s", "free2": "f"}));
    body["apiVersion"] = "t.example.com/v2".into();
    let shown = json!({"a": "A2", "shared": "s"});
    let made = world.post(SECOND, &body);
    assert_eq!(
        made["spec"], shown,
        "the answer says what was kept, not what the version would like"
    );
    assert_eq!(world.get(&format!("{SECOND}/x")).unwrap(), made);
    let stored = json!({"a": "A2", "one": "1", "shared": "s"});
    assert_eq!(spec_at(&world, &format!("{THINGS}/x")), stored);
    let patched = world.patch(&format!("{SECOND}/x"), &json!({"spec": {"shared": "t", "free2": "g"}}));
    assert_eq!(patched["spec"], json!({"a": "A2", "shared": "t"}));
    let (_, list) = world.ask("GET", SECOND, None);
    assert_eq!(list["items"][0]["spec"], patched["spec"]);
    // And the other way round.
    world.post(THINGS, &thing("y", json!({}), json!({"shared": "s", "free1": "f"})));
    assert_eq!(
        spec_at(&world, &format!("{SECOND}/y")),
        json!({"a": "A1", "shared": "s"})
    );
    let full = json!({"a": "A1", "free1": "f", "one": "1", "shared": "s"});
    assert_eq!(spec_at(&world, &format!("{THINGS}/y")), full);
}

#[test]
fn d2_what_was_stored_in_the_former_version_is_read_by_that_versions_schema() {
    let world = two();
    world.post(THINGS, &thing("y", json!({}), json!({"shared": "s", "free1": "f"})));
    let path = format!("{DEFINITIONS}/things.t.example.com");
    let mut definition = world.get(&path).unwrap();
    definition["spec"]["versions"][0]["storage"] = false.into();
    definition["spec"]["versions"][1]["storage"] = true.into();
    let (code, answer) = world.ask("PUT", &path, Some(&definition));
    assert_eq!(code, 200, "{answer}");
    let first = json!({"a": "A1", "free1": "f", "one": "1", "shared": "s"});
    assert_eq!(spec_at(&world, &format!("{THINGS}/y")), first);
    assert_eq!(
        spec_at(&world, &format!("{SECOND}/y")),
        json!({"a": "A1", "shared": "s"})
    );
}
