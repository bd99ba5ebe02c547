//! Gangs: all of the minimum at once, or nothing (K2). The property is held beside the code, in `scheduler/tests.rs`.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::world::{PODS, World};

#[test]
fn k2_a_gang_is_placed_only_when_all_of_its_minimum_fits() {
    let mut world = World::new();
    world.define_gangs();
    world.node("a", 1_000, &Value::Null);
    world.node("b", 1_000, &Value::Null);
    world.pod("rival", 600, &json!({"nodeName": "b"}));
    world.gang("g", &[("one", &["g-0", "g-1"], 2), ("two", &["g-2"], 1)], &Value::Null);
    for name in ["g-0", "g-1", "g-2"] {
        world.member("g", name, 500, &Value::Null);
    }
    world.settle();
    assert_eq!(world.places(&["g-0", "g-1", "g-2"]), ["", "", ""]);
    let events = world.events("g-0");
    let last = events.last().unwrap();
    assert!(
        last.starts_with(
            "Warning | Unschedulable | Scheduling | kai-scheduler | gang default/g needs 3 pods placed at once"
        ),
        "{last}"
    );
    world.delete(&format!("{PODS}/rival?gracePeriodSeconds=0"));
    world.pass(SignedDuration::from_secs(10));
    let mut places = world.places(&["g-0", "g-1", "g-2"]);
    places.sort();
    assert!(places.iter().all(|place| !place.is_empty()), "{places:?}");
}

#[test]
fn k2_no_list_at_any_revision_shows_a_part_of_a_gang() {
    let mut world = World::new();
    world.define_gangs();
    world.node("a", 4_000, &Value::Null);
    world.gang("g", &[("one", &["g-0", "g-1", "g-2"], 3)], &Value::Null);
    for name in ["g-0", "g-1", "g-2"] {
        world.member("g", name, 500, &Value::Null);
    }
    let revision = |list: &Value| {
        list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let before = revision(&world.get(PODS));
    world.settle();
    let after = revision(&world.get(PODS));
    assert!(after >= before + 3, "each pod has its own revision");
    let mut seen = Vec::new();
    for at in before..=after {
        let list = world.get(&format!("{PODS}?resourceVersion={at}&resourceVersionMatch=Exact"));
        let pods = list["items"].as_array().unwrap();
        let bound = pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count();
        assert!(bound == 0 || bound == 3, "{bound} are bound at {at}");
        assert!(revision(&list) >= at, "{at}");
        seen.push(bound);
    }
    assert!(
        seen.is_sorted() && seen.first() == Some(&0) && seen.last() == Some(&3),
        "{seen:?}"
    );
}

#[test]
fn k2_a_gang_waits_for_its_gates_and_its_podgang_and_says_what_it_waits_for() {
    let mut world = World::new();
    world.define_gangs();
    world.node("a", 4_000, &Value::Null);
    world.member("g", "g-0", 500, &Value::Null);
    world.member(
        "g",
        "g-1",
        500,
        &json!({"schedulingGates": [{"name": "grove.io/podgang-pending-creation"}]}),
    );
    world.settle();
    assert_eq!(world.why("g-0"), "waiting for PodGang \"g\"");
    world.gang("g", &[("one", &["g-0", "g-1"], 2)], &Value::Null);
    world.settle();
    assert_eq!(world.places(&["g-0", "g-1"]), ["", ""]);
    assert_eq!(
        world.why("g-0"),
        "waiting for the pods of PodGang \"g\": not every pod group has its minReplicas"
    );
    world.patch(&format!("{PODS}/g-1"), &json!({"spec": {"schedulingGates": []}}));
    world.settle();
    assert_eq!(world.places(&["g-0", "g-1"]), ["a", "a"]);
}

#[test]
fn k2_pods_beyond_the_minimum_follow_singly_within_the_pack() {
    let mut world = World::new();
    world.define_gangs();
    world.node("a1", 1_000, &json!({"rack": "a"}));
    world.node("b1", 1_000, &json!({"rack": "b"}));
    world.node("b2", 1_000, &json!({"rack": "b"}));
    world.gang(
        "g",
        &[("one", &["g-0", "g-1", "g-2", "g-3"], 2)],
        &json!({"required": "rack"}),
    );
    for name in ["g-0", "g-1", "g-2", "g-3"] {
        world.member("g", name, 900, &Value::Null);
    }
    world.settle();
    let places = world.places(&["g-0", "g-1", "g-2", "g-3"]);
    assert_eq!(places, ["b1", "b2", "", ""]);
    assert!(
        world
            .why("g-2")
            .contains("1 node(s) didn't match the PodGang's pack constraint \"rack\""),
        "{}",
        world.why("g-2")
    );
}

#[test]
fn k2_a_required_pack_takes_the_rack_with_room_and_a_preferred_one_is_given_up() {
    for (pack, expected) in [
        (json!({"required": "rack"}), ["b1", "b2"]),
        (json!({"preferred": "rack"}), ["b1", "b2"]),
    ] {
        let mut world = World::new();
        world.define_gangs();
        world.node("a1", 1_000, &json!({"rack": "a"}));
        world.node("b1", 1_000, &json!({"rack": "b"}));
        world.node("b2", 1_000, &json!({"rack": "b"}));
        world.gang("g", &[("one", &["g-0", "g-1"], 2)], &pack);
        world.member("g", "g-0", 900, &Value::Null);
        world.member("g", "g-1", 900, &Value::Null);
        world.settle();
        assert_eq!(world.places(&["g-0", "g-1"]), expected);
    }
    for (pack, fits) in [
        (json!({"required": "rack"}), false),
        (json!({"preferred": "rack"}), true),
    ] {
        let mut world = World::new();
        world.define_gangs();
        world.node("a1", 1_000, &json!({"rack": "a"}));
        world.node("b1", 1_000, &json!({"rack": "b"}));
        world.gang("g", &[("one", &["g-0", "g-1"], 2)], &pack);
        world.member("g", "g-0", 900, &Value::Null);
        world.member("g", "g-1", 900, &Value::Null);
        world.settle();
        assert_eq!(
            world.places(&["g-0", "g-1"]).iter().all(|place| !place.is_empty()),
            fits,
            "{pack}"
        );
    }
}

#[test]
fn k2_small_and_large_pods_that_fit_only_packed_are_placed_at_the_first_try() {
    let mut world = World::new();
    world.define_gangs();
    world.node("a", 1_000, &Value::Null);
    world.node("b", 1_000, &Value::Null);
    world.gang(
        "g",
        &[("small", &["s-0", "s-1"], 2), ("large", &["l-0"], 1)],
        &Value::Null,
    );
    world.member("g", "s-0", 500, &Value::Null);
    world.member("g", "s-1", 500, &Value::Null);
    world.member("g", "l-0", 1_000, &Value::Null);
    world.settle();
    let places = world.places(&["s-0", "s-1", "l-0"]);
    assert_eq!(places[0], places[1]);
    assert_ne!(places[0], places[2]);
}

#[test]
fn k2_the_default_scheduler_does_not_know_gangs() {
    let mut world = World::new();
    world.define_gangs();
    world.node("a", 1_000, &Value::Null);
    world.gang("g", &[("one", &["g-0", "g-1"], 2)], &Value::Null);
    world.labelled("g-0", 900, &json!({"grove.io/podgang": "g"}), &Value::Null);
    world.settle();
    assert_eq!(world.place("g-0"), "a");
}

#[test]
fn k2_a_pod_that_replaces_one_of_a_bound_gang_is_placed_where_the_others_are() {
    let mut world = World::new();
    world.define_gangs();
    for (name, rack) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")] {
        world.node(name, 1_000, &json!({"rack": rack}));
    }
    world.gang("g", &[("one", &["g-0", "g-1"], 2)], &json!({"required": "rack"}));
    world.member("g", "g-0", 900, &Value::Null);
    world.member("g", "g-1", 900, &Value::Null);
    world.settle();
    assert_eq!(world.places(&["g-0", "g-1"]), ["a1", "a2"]);
    world.delete(&format!("{PODS}/g-0?gracePeriodSeconds=0"));
    world.settle();
    world.member("g", "g-0", 900, &Value::Null);
    world.settle();
    assert_eq!(world.place("g-0"), "a1");
}
