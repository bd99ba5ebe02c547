//! Time goes on when the test says so: watches end, bookmarks come, history is forgotten.

use futures::{FutureExt, StreamExt};
use http::Request;
use http_body_util::{BodyExt, Empty};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::world::World;

type Lines = futures::stream::BoxStream<'static, Value>;

fn watch(world: &World, query: &str) -> Lines {
    let request = Request::get(format!("/api/v1/namespaces/default/configmaps?watch=true{query}"))
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let answer = world.manual.service().answer(request).now_or_never().unwrap();
    assert_eq!(answer.status(), 200);
    let lines = answer.into_body().into_data_stream();
    lines
        .map(|line| serde_json::from_slice(&line.unwrap()).unwrap())
        .boxed()
}

/// What is seen now: kinds of events; `None` at the end says that the watch was closed.
fn seen(lines: &mut Lines) -> Vec<Option<String>> {
    let mut seen = Vec::new();
    while let Some(line) = lines.next().now_or_never() {
        let Some(line) = line else {
            seen.push(None);
            return seen;
        };
        seen.push(line["type"].as_str().map(str::to_owned));
    }
    seen
}

fn bookmark() -> Option<String> {
    Some("BOOKMARK".to_owned())
}

#[test]
fn o3_a_watch_closes_at_its_timeout_by_the_manual_clock() {
    let mut world = World::new();
    let mut lines = watch(&world, "&timeoutSeconds=10");
    assert!(seen(&mut lines).is_empty());
    world.advance(9);
    assert!(seen(&mut lines).is_empty());
    let end = world.now() + SignedDuration::from_secs(1);
    assert_eq!(world.manual.clock().next_alarm(), Some(end));
    world.advance(1);
    assert_eq!(seen(&mut lines), [None]);
}

#[test]
fn o3_a_watch_without_a_timeout_closes_within_half_an_hour_and_an_hour_by_the_seed() {
    let ends = |seed: u64| -> Vec<i64> {
        let world = World::seeded(seed, usher_embedded::Controllers::none());
        let mut watches = [watch(&world, ""), watch(&world, "")];
        for lines in &mut watches {
            assert!(seen(lines).is_empty());
        }
        let start = world.now();
        let mut ends = Vec::new();
        while let Some(next) = world.manual.clock().next_alarm() {
            world.manual.advance(next);
            for lines in &mut watches {
                if seen(lines) == [None] {
                    ends.push(next.duration_since(start).as_secs());
                    *lines = futures::stream::pending().boxed();
                }
            }
        }
        assert_eq!(ends.len(), 2);
        ends
    };
    let one = ends(1);
    for end in &one {
        assert!((1_800..3_600).contains(end), "{end}");
    }
    assert_eq!(one, ends(1));
    assert_ne!(one, ends(2));
}

#[test]
fn o4_bookmarks_come_each_minute_and_in_the_last_two_seconds() {
    let mut world = World::new();
    let mut lines = watch(&world, "&allowWatchBookmarks=true&timeoutSeconds=150");
    assert!(seen(&mut lines).is_empty());
    for (at, wanted) in [
        (59, vec![]),
        (60, vec![bookmark()]),
        (119, vec![]),
        (120, vec![bookmark()]),
        (147, vec![]),
        (148, vec![bookmark()]),
        (149, vec![]),
        (150, vec![None]),
    ] {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        world.manual.advance(start + SignedDuration::from_secs(at));
        assert_eq!(seen(&mut lines), wanted, "after {at} s");
    }
    world.settle();
}

#[test]
fn o4_a_watch_that_wants_no_bookmarks_gets_none() {
    let mut world = World::new();
    let mut lines = watch(&world, "&timeoutSeconds=150");
    world.advance(149);
    assert!(seen(&mut lines).is_empty());
}

#[test]
fn s7_history_is_forgotten_by_the_minute_and_kept_for_five() {
    let mut world = World::new();
    let first = world.config_map("default", "a", vec![]);
    let version = first["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    for number in 0..1_200 {
        world.patch(
            "/api/v1/namespaces/default/configmaps/a",
            &json!({"data": {"n": number.to_string()}}),
        );
    }
    let list = format!("/api/v1/configmaps?resourceVersion={version}&resourceVersionMatch=Exact");
    for minute in 1..=5 {
        world.advance(60);
        world.settle();
        assert_eq!(world.ask("GET", &list, None).0, 200, "minute {minute}");
    }
    world.advance(60);
    world.settle();
    assert_eq!(world.ask("GET", &list, None).0, 410);
    // A thousand revisions are kept whatever their age: nothing more is due.
    assert_eq!(world.manual.next_timer(), None);
}

#[test]
fn o14_a_grace_that_is_shortened_later_counts_from_the_first_delete() {
    let mut world = World::new();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    world.ask("POST", "/api/v1/namespaces/default/serviceaccounts", Some(&account));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    world.post("/api/v1/namespaces/default/pods", &pod);
    let begun = world.now();
    let delete = |world: &mut World, grace: i64| -> (Timestamp, Value) {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace});
        let (code, pod) = world.ask("DELETE", "/api/v1/namespaces/default/pods/p", Some(&options));
        assert_eq!(code, 200, "{pod}");
        let meta = &pod["metadata"];
        let end = meta["deletionTimestamp"].as_str().unwrap().parse().unwrap();
        (end, meta["deletionGracePeriodSeconds"].clone())
    };
    let after = |seconds: i64| begun + SignedDuration::from_secs(seconds);
    assert_eq!(delete(&mut world, 30), (after(30), json!(30)));
    world.advance(20);
    assert_eq!(delete(&mut world, 25), (after(25), json!(25)), "not 25 s from now");
    // A longer one changes nothing.
    assert_eq!(delete(&mut world, 40), (after(25), json!(25)));
}
