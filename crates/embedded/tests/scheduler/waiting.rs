//! Who waits, and what ends it.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::world::{PODS, World};

#[test]
fn k1_a_gated_pod_waits_until_its_last_gate_is_gone() {
    let mut world = World::new();
    world.node("n", 1_000, &Value::Null);
    world.pod("p", 100, &json!({"schedulingGates": [{"name": "example.com/hold"}]}));
    world.settle();
    let condition = world.condition("p", "PodScheduled");
    assert_eq!(condition["reason"], "SchedulingGated");
    assert_eq!(
        condition["message"],
        "Scheduling is blocked due to non-empty scheduling gates"
    );
    assert!(world.events("p").is_empty());
    world.patch(&format!("{PODS}/p"), &json!({"spec": {"schedulingGates": []}}));
    world.settle();
    assert_eq!(world.place("p"), "n");
}

#[test]
fn k1_the_highest_priority_goes_first_whoever_came_first() {
    let mut world = World::new();
    world.post(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        &json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}),
    );
    world.pod("early", 800, &Value::Null);
    world.pod("late", 800, &json!({"priorityClassName": "high"}));
    world.node("n", 1_000, &Value::Null);
    world.settle();
    assert_eq!((world.place("early").as_str(), world.place("late").as_str()), ("", "n"));
}

#[test]
fn k1_a_pod_that_found_no_node_rests_ever_longer_and_is_tried_when_something_changes() {
    let mut world = World::new();
    world.node("n", 1_000, &Value::Null);
    world.pod("big", 2_000, &Value::Null);
    world.settle();
    let written = world.manual.cluster().store_stats().writes;
    world.pass(SignedDuration::from_secs(600));
    assert_eq!(
        world.manual.cluster().store_stats().writes,
        written,
        "nothing happened, so nothing is written"
    );
    // After ten minutes it has rested long enough.
    world.node("larger", 3_000, &Value::Null);
    world.settle();
    assert_eq!(world.place("big"), "larger");
    // Another fails; of what changes within its rest, only the first has it tried again at once.
    world.pod("other", 2_500, &Value::Null);
    world.settle();
    world.node("small", 100, &Value::Null);
    world.settle();
    world.delete(&format!("{PODS}/big?gracePeriodSeconds=0"));
    world.settle();
    assert_eq!(world.place("other"), "", "it rests");
    world.pass(SignedDuration::from_secs(2));
    assert_eq!(world.place("other"), "larger");
}

#[test]
fn k1_any_scheduler_s_name_is_served_and_events_come_from_it() {
    let mut world = World::new();
    world.node("n", 1_000, &Value::Null);
    world.pod("p", 100, &json!({"schedulerName": "mine"}));
    world.settle();
    assert_eq!(
        world.events("p"),
        ["Normal | Scheduled | Binding | mine | Successfully assigned default/p to n"]
    );
}

#[test]
fn k1_the_same_failure_again_is_one_series_of_events() {
    let mut world = World::new();
    world.node("n", 1_000, &Value::Null);
    world.pod("big", 2_000, &Value::Null);
    for n in 0..6 {
        world.patch(
            "/api/v1/nodes/n",
            &json!({"metadata": {"labels": {"n": n.to_string()}}}),
        );
        world.pass(SignedDuration::from_secs(20));
    }
    let list = world.get("/apis/events.k8s.io/v1/namespaces/default/events");
    let events = list["items"].as_array().unwrap();
    // One of the pod before its condition was written, one of the pod after it.
    assert_eq!(events.len(), 2, "{events:#?}");
    assert_eq!(
        events.iter().filter(|event| event["series"]["count"] == 2).count(),
        1,
        "{events:#?}"
    );
}

#[test]
fn k1_a_pod_that_is_told_to_go_is_not_placed() {
    let mut world = World::new();
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "finalizers": ["example.com/hold"]},
        "spec": {"containers": [{"name": "main", "image": "i"}]}});
    world.post(PODS, &body);
    world.delete(&format!("{PODS}/p"));
    world.node("n", 1_000, &Value::Null);
    world.settle();
    assert_eq!(world.place("p"), "");
}
