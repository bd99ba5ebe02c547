//! What the fuzzer found, cut down to what matters, so that it stays mended.

use serde_json::{Value, json};

use crate::request::Sent;
use crate::world::{Got, World};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const JSON: &str = "application/json";

fn send(world: &World, sent: &Sent) -> Got {
    let before = world.writes();
    let got = world.send(sent).unwrap().unwrap();
    crate::judge::answer(sent, &got, world.writes() - before).unwrap();
    got
}

fn ask(world: &World, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let media = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        JSON
    };
    let got = send(world, &Sent::new(method, path).with_body(media, body.to_string()));
    (got.code, serde_json::from_slice(&got.body).unwrap_or_default())
}

#[test]
fn what_the_client_cannot_read_is_not_written() {
    let world = World::new();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let unreadable = ["application/json;as=Chart;g=x;v=y", "application/cbor"];
    for accept in unreadable {
        let mut post = Sent::new("POST", MAPS).with_body(JSON, map.to_string());
        post.set_header("accept", accept);
        assert_eq!(send(&world, &post).code, 406);
    }
    assert_eq!(ask(&world, "POST", MAPS, &map).0, 201, "it was not there");
    let mut table = Sent::new("PATCH", &format!("{MAPS}/a?includeObject=nope"));
    table = table.with_body("application/merge-patch+json", r#"{"data": {"a": "b"}}"#);
    table.set_header("accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
    let before = world.writes();
    assert_eq!(send(&world, &table).code, 400);
    for (method, path) in [
        ("DELETE", format!("{MAPS}/a")),
        ("DELETE", MAPS.to_owned()),
        ("PUT", format!("{MAPS}/a")),
    ] {
        for accept in unreadable {
            let mut sent = Sent::new(method, &path);
            if method == "PUT" {
                sent = sent.with_body(JSON, map.to_string());
            }
            sent.set_header("accept", accept);
            assert_eq!(send(&world, &sent).code, 406, "{method} {path}");
        }
    }
    assert_eq!(world.writes(), before);
}

/// `kubectl edit crd` while it goes: its own finalizer names no domain.
#[test]
fn a_definition_that_is_going_can_be_changed() {
    let world = World::new();
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    assert_eq!(ask(&world, "POST", DEFINITIONS, &definition).0, 201);
    let place = format!("{DEFINITIONS}/things.example.com");
    assert_eq!(send(&world, &Sent::new("DELETE", &place)).code, 200);
    let (code, answer) = ask(&world, "PATCH", &place, &json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(code, 200, "{answer}");
}

/// The older kind of events has times and counts that the newer refuses, but only in new ones.
#[test]
fn an_older_event_can_be_put_back_as_a_newer_one() {
    let world = World::new();
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "count": 2, "type": "Normal",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "source": {"component": "kubelet"},
        "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:06Z"});
    assert_eq!(ask(&world, "POST", "/api/v1/namespaces/default/events", &event).0, 201);
    let place = "/apis/events.k8s.io/v1/namespaces/default/events/e";
    let newer = ask(&world, "GET", place, &json!(null)).1;
    let before = world.writes();
    let (code, answer) = ask(&world, "PUT", place, &newer);
    assert_eq!((code, world.writes()), (200, before), "{answer}");
}

#[test]
fn o11_a_dry_binding_binds_nothing_and_annotations_are_texts() {
    let world = World::new();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    ask(&world, "POST", "/api/v1/namespaces/default/serviceaccounts", &account);
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(ask(&world, "POST", pods, &pod).0, 201);
    let mut binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"}});
    let before = world.writes();
    let (code, answer) = ask(&world, "POST", &format!("{pods}/p/binding?dryRun=All"), &binding);
    assert_eq!((code, world.writes()), (201, before), "{answer}");
    binding["metadata"]["annotations"] = json!({"a": 1});
    assert_eq!(ask(&world, "POST", &format!("{pods}/p/binding"), &binding).0, 400);
}
