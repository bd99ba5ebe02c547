//! Watches of custom resources, and what becomes of them when the definition changes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use http_body::Body;
use http_body_util::Empty;
use serde_json::{Value, json};
use usher_embedded::ApiBody;

use crate::world::World;
use crate::{DEFINITIONS, THINGS};

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.t.example.com";

fn definition() -> Value {
    let version = |name: &str, is_storage: bool| {
        json!({"name": name, "served": true, "storage": is_storage, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": {"x": {"type": "string"}}}}}}})
    };
    crate::things(&[version("v1", true), version("v2", false)])
}

fn world() -> World {
    let world = World::new();
    world.post(DEFINITIONS, &definition());
    world
}

fn make(world: &World, name: &str) -> Value {
    let body = json!({"apiVersion": "t.example.com/v1", "kind": "Thing",
        "metadata": {"name": name, "labels": {"l": "1"}}, "spec": {"x": "y"}});
    world.post(THINGS, &body)
}

/// Changes the definition by a JSON patch.
fn redefine(world: &World, patch: &Value) {
    let (code, answer) = world.raw("PATCH", DEFINITION, "application/json-patch+json", Some(patch));
    assert_eq!(code, 200, "{}", String::from_utf8_lossy(&answer));
}

struct Watching(ApiBody);

impl Watching {
    fn open(world: &World, path: &str, accept: &str) -> Self {
        let request = Request::builder().uri(path).header("accept", accept);
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let answer = world.manual.service().answer(request).now_or_never().unwrap();
        assert_eq!(answer.status(), 200);
        Self(answer.into_body())
    }

    /// What there is to be seen now, and whether that was the end.
    fn seen(&mut self) -> (Vec<Value>, bool) {
        let mut text = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        let has_ended = loop {
            match Pin::new(&mut self.0).poll_frame(&mut context) {
                Poll::Ready(Some(frame)) => text.extend_from_slice(&frame.unwrap().into_data().unwrap()),
                Poll::Ready(None) => break true,
                Poll::Pending => break false,
            }
        };
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        (
            lines.map(|line| serde_json::from_slice(line).unwrap()).collect(),
            has_ended,
        )
    }

    /// The same as short words.
    fn words(&mut self) -> (Vec<String>, bool) {
        let (events, has_ended) = self.seen();
        let word = |event: &Value| {
            let object = &event["object"];
            let part = |value: &Value| value.as_str().unwrap_or("?").to_owned();
            let name = part(&object["metadata"]["name"]);
            format!("{} {} {name}", part(&event["type"]), part(&object["apiVersion"]))
        };
        (events.iter().map(word).collect(), has_ended)
    }
}

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

#[test]
fn d6_a_watch_ends_after_what_was_written_when_the_definition_changes() {
    let world = world();
    make(&world, "a");
    let mut first = Watching::open(&world, &format!("{THINGS}?watch=1"), JSON);
    let second = THINGS.replace("v1", "v2");
    let mut second = Watching::open(&world, &format!("{second}?watch=1"), JSON);
    assert_eq!(first.words(), (vec!["ADDED t.example.com/v1 a".to_owned()], false));
    // What says nothing of the kind ends nothing.
    redefine(
        &world,
        &json!([{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}]),
    );
    assert_eq!(first.words(), (vec![], false));
    make(&world, "b");
    redefine(
        &world,
        &json!([{"op": "replace", "path": "/spec/versions/0/storage", "value": false},
            {"op": "replace", "path": "/spec/versions/1/storage", "value": true}]),
    );
    // Stored in the other version: no watch of before may show its bytes.
    make(&world, "c");
    assert_eq!(first.words(), (vec!["ADDED t.example.com/v1 b".to_owned()], true));
    let of_second = ["a", "b"].map(|name| format!("ADDED t.example.com/v2 {name}"));
    assert_eq!(second.words(), (of_second.to_vec(), true));
    let from = world.get(&format!("{THINGS}/b")).unwrap()["metadata"]["resourceVersion"].clone();
    let path = format!("{THINGS}?watch=1&resourceVersion={}", from.as_str().unwrap());
    let mut again = Watching::open(&world, &path, JSON);
    assert_eq!(again.words(), (vec!["ADDED t.example.com/v1 c".to_owned()], false));
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn d6_a_watch_that_waits_is_woken_when_the_definition_changes() {
    let world = world();
    let mut watching = Watching::open(&world, &format!("{THINGS}?watch=1"), JSON);
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    assert!(Pin::new(&mut watching.0).poll_frame(&mut context).is_pending());
    redefine(
        &world,
        &json!([{"op": "add", "path": "/spec/names/shortNames", "value": ["th"]}]),
    );
    assert!(woken.0.load(Ordering::SeqCst));
    assert_eq!(watching.words(), (vec![], true));
}

#[test]
fn d6_a_watch_shows_the_last_instances_go_and_ends_with_the_definition() {
    let mut world = world();
    make(&world, "a");
    let mut watching = Watching::open(&world, &format!("{THINGS}?watch=1"), JSON);
    assert_eq!(watching.words().0.len(), 1);
    world.delete(DEFINITION, "Background");
    assert_eq!(watching.words(), (vec![], false));
    world.settle();
    assert_eq!(world.get(DEFINITION), None);
    assert_eq!(watching.words(), (vec!["DELETED t.example.com/v1 a".to_owned()], true));
}

#[test]
fn s9_watchers_before_and_after_a_change_of_columns_share_no_rendering() {
    let world = world();
    let path = format!("{THINGS}?watch=1");
    let from = make(&world, "a")["metadata"]["resourceVersion"].clone();
    let path_from = format!("{path}&resourceVersion={}", from.as_str().unwrap());
    let cells = |events: &[Value]| -> Vec<Value> {
        let rows = events.iter().map(|event| &event["object"]["rows"][0]["cells"]);
        rows.cloned().collect()
    };
    let mut before = Watching::open(&world, &path_from, TABLE);
    // The first event tells the columns and so is a form of its own: the second is the one that could be shared.
    for name in ["b", "c"] {
        make(&world, name);
    }
    let shown = cells(&before.seen().0);
    assert_eq!((shown.len(), shown[1].as_array().unwrap().len()), (2, 2));
    let x = json!([{"name": "X", "type": "string", "jsonPath": ".spec.x"}]);
    redefine(
        &world,
        &json!([{"op": "add", "path": "/spec/versions/0/additionalPrinterColumns", "value": x}]),
    );
    let mut after = Watching::open(&world, &path_from, TABLE);
    assert_eq!(cells(&after.seen().0), [json!(["b", "y"]), json!(["c", "y"])]);
}

#[test]
fn d2_what_is_gone_is_shown_by_the_schema_that_holds_now() {
    let world = world();
    make(&world, "a");
    make(&world, "b");
    let other = json!({"type": "object", "properties": {"spec": {"type": "object", "properties":
        {"d": {"type": "string", "default": "new"}}}}});
    redefine(
        &world,
        &json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": other}]),
    );
    let mut watching = Watching::open(&world, &format!("{THINGS}?watch=1"), JSON);
    let mut selected = Watching::open(&world, &format!("{THINGS}?watch=1&labelSelector=l%3D1"), JSON);
    let (events, _) = watching.seen();
    assert_eq!(events[0]["object"]["spec"], json!({"d": "new"}));
    assert_eq!(selected.seen().0.len(), 2);
    world.delete(&format!("{THINGS}/a"), "Background");
    for watching in [&mut watching, &mut selected] {
        let (events, _) = watching.seen();
        assert_eq!(events[0]["type"], "DELETED");
        assert_eq!(events[0]["object"]["spec"], json!({"d": "new"}));
    }
    // Leaving a selector is as being gone.
    world.patch(&format!("{THINGS}/b"), &json!({"metadata": {"labels": {"l": "2"}}}));
    let (events, _) = selected.seen();
    assert_eq!(events[0]["type"], "DELETED");
    assert_eq!(events[0]["object"]["spec"], json!({"d": "new"}));
    assert_eq!(events[0]["object"]["metadata"]["labels"], json!({"l": "1"}));
}
