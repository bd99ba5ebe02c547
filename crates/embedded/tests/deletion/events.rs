//! Events live for an hour.

use serde_json::{Value, json};

use crate::world::World;

const EVENTS: &str = "/api/v1/namespaces/default/events";

fn event(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "finalizers": ["example.com/hold"]},
        "involvedObject": {"kind": "ConfigMap", "namespace": "default", "name": "a"}, "reason": "R", "type": "Normal"})
}

#[test]
fn an_event_goes_an_hour_after_its_last_write_whatever_holds_it() {
    let mut world = World::new();
    world.post(EVENTS, &event("a"));
    world.post(EVENTS, &event("b"));
    world.advance(1_800);
    world.settle();
    world.patch(&format!("{EVENTS}/b"), &json!({"count": 2}));
    world.advance(1_799);
    world.settle();
    assert_eq!(world.names(EVENTS), ["a", "b"]);
    world.advance(1);
    world.settle();
    assert_eq!(world.names(EVENTS), ["b"]);
    // A controller that starts anew knows when the other one goes.
    world.manual.restart_controllers();
    world.advance(1_799);
    world.settle();
    assert_eq!(world.names(EVENTS), ["b"]);
    world.advance(1);
    world.settle();
    assert!(world.names(EVENTS).is_empty());
    assert!(
        world
            .names("/apis/events.k8s.io/v1/namespaces/default/events")
            .is_empty()
    );
}

#[test]
fn e3_a_cluster_with_an_event_waits_for_its_hour_and_for_nothing_else() {
    let mut world = World::new();
    world.post(EVENTS, &event("a"));
    let end = world.now() + jiff::SignedDuration::from_secs(3_600);
    world.settle();
    world.advance(60);
    world.settle();
    assert_eq!(world.manual.next_timer(), Some(end));
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    world.patch(&format!("{EVENTS}/a"), &json!({"metadata": {"finalizers": null}}));
    world.ask("DELETE", &format!("{EVENTS}/a"), Some(&options));
    world.settle();
    world.advance(60);
    world.settle();
    assert_eq!(world.manual.next_timer(), None);
}
