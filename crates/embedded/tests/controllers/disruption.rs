//! Budgets: what their status says, and that evictions spend it (C8).

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::{PODS, World};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

fn budget(world: &World, spec: Value) {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": "db"}});
    let body =
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec});
    world.post(BUDGETS, &body);
}

fn status(world: &World) -> Value {
    world.find(&format!("{BUDGETS}/b"))["status"].clone()
}

/// Pods of a ReplicaSet that wants so many, of which some are ready.
fn set(world: &World, name: &str, replicas: usize, ready: &[bool]) {
    let body = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"of": name}}, "template": {
            "metadata": {"labels": {"of": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let set = world.post("/apis/apps/v1/namespaces/default/replicasets", &body);
    for (number, is_ready) in ready.iter().enumerate() {
        let pod = format!("{name}-{number}");
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "controller": true,
            "uid": set["metadata"]["uid"]}]);
        let body = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "n1",
                "containers": [{"name": "c", "image": "i"}]},
            "metadata": {"name": pod, "labels": {"app": "db", "of": name}, "ownerReferences": owner}});
        world.post(PODS, &body);
        world.pod_says(&pod, &format!("10.0.0.{}", number + 1), *is_ready);
    }
}

fn condition(status: &Value) -> (&str, &str) {
    let condition = &status["conditions"][0];
    assert_eq!(condition["type"], "DisruptionAllowed");
    (
        condition["status"].as_str().unwrap(),
        condition["reason"].as_str().unwrap(),
    )
}

fn evict(world: &World, pod: &str) -> u16 {
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
    world.ask("POST", &format!("{PODS}/{pod}/eviction"), Some(&body)).0
}

/// The node is trusted for a while.
fn a_world() -> World {
    let world = World::with(usher_embedded::Options {
        node_grace: jiff::SignedDuration::from_hours(1),
        ..crate::world::options()
    });
    world.node("n1", &json!({}));
    world
}

#[test]
fn c8_a_budget_counts_what_is_there_and_what_should_be() {
    let mut world = a_world();
    budget(&world, json!({"maxUnavailable": 1}));
    set(&world, "db", 3, &[true, true, true]);
    world.settle();
    let status = status(&world);
    assert_eq!(
        (
            &status["expectedPods"],
            &status["currentHealthy"],
            &status["desiredHealthy"],
            &status["disruptionsAllowed"]
        ),
        (&json!(3), &json!(3), &json!(2), &json!(1))
    );
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(condition(&status), ("True", "SufficientPods"));
}

#[test]
fn c8_an_eviction_spends_the_budget_and_the_next_one_is_refused() {
    let mut world = a_world();
    budget(&world, json!({"minAvailable": 2}));
    set(&world, "db", 3, &[true, true, true]);
    world.settle();
    assert_eq!(evict(&world, "db-0"), 201);
    assert_eq!(evict(&world, "db-1"), 429);
    world.settle();
    assert_eq!(evict(&world, "db-1"), 429);
    let status = status(&world);
    assert_eq!(
        (&status["currentHealthy"], &status["disruptionsAllowed"]),
        (&json!(2), &json!(0))
    );
    assert_eq!(condition(&status), ("False", "InsufficientPods"));
    assert_eq!(
        status["disruptedPods"],
        Value::Null,
        "a pod that goes is not waited for any more"
    );
}

#[test]
fn c8_a_budget_that_was_not_seen_yet_lets_nobody_go() {
    let world = a_world();
    budget(&world, json!({"minAvailable": 1}));
    set(&world, "db", 2, &[true, true]);
    assert_eq!(evict(&world, "db-0"), 429);
}

#[test]
fn c8_a_pod_that_was_to_go_and_did_not_counts_again_after_two_minutes() {
    let mut world = a_world();
    budget(&world, json!({"minAvailable": 1}));
    set(&world, "db", 2, &[true, true]);
    world.settle();
    let now = "2026-01-01T00:00:00Z";
    let path = format!("{BUDGETS}/b/status");
    world.patch(
        &path,
        &json!({"status": {"disruptedPods": {"db-0": now}, "disruptionsAllowed": 0}}),
    );
    world.pass(60);
    let early = status(&world);
    assert_eq!(
        (&early["currentHealthy"], &early["disruptionsAllowed"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(early["disruptedPods"], json!({"db-0": now}));
    world.pass(61);
    let late = status(&world);
    assert_eq!(
        (&late["currentHealthy"], &late["disruptionsAllowed"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(late["disruptedPods"], Value::Null);
    let events = world.events("default", "db-0");
    assert!(events.iter().any(|(reason, _)| reason == "NotDeleted"), "{events:?}");
}

#[test]
fn c8_pods_of_a_kind_that_cannot_be_scaled_fail_the_budget_with_the_reason() {
    let mut world = a_world();
    budget(&world, json!({"maxUnavailable": 1}));
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "controller": true, "uid": "u"}]);
    let body = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "image": "i"}]},
        "metadata": {"name": "p", "labels": {"app": "db"}, "ownerReferences": owner}});
    // The garbage collector would take a pod whose owner never was.
    let mut world_without = World::without(usher_embedded::Controller::GarbageCollector);
    budget(&world_without, json!({"maxUnavailable": 1}));
    world_without.post(PODS, &body);
    world_without.settle();
    let failed = status(&world_without);
    assert_eq!(condition(&failed), ("False", "SyncFailed"));
    assert_eq!(
        failed["conditions"][0]["message"],
        "configmaps does not implement the scale subresource"
    );
    assert_eq!(failed["disruptionsAllowed"], 0);
    world.settle();
    assert_eq!(condition(&status(&world)), ("False", "InsufficientPods"));
}

#[test]
fn c8_a_pod_that_says_it_goes_but_does_not_stops_saying_so() {
    let mut world = a_world();
    world.pod("p", &json!({}), &json!({"nodeName": "n1"}));
    world.patch(
        &format!("{PODS}/p/status"),
        &json!({"status": {"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "True",
            "reason": "EvictionByEvictionAPI", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
    );
    world.pass(119);
    let word = |world: &World| world.find(&format!("{PODS}/p"))["status"]["conditions"][0]["status"].clone();
    assert_eq!(word(&world), "True");
    world.pass(2);
    assert_eq!(word(&world), "False");
}

/// So many per cent of a number, rounded up.
fn part(percent: usize, of: usize) -> usize {
    (percent * of).div_ceil(100)
}

#[derive(Debug, Clone)]
enum Rule {
    Least(usize),
    LeastPercent(usize),
    Most(usize),
    MostPercent(usize),
}

fn rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        (0..6_usize).prop_map(Rule::Least),
        (0..=100_usize).prop_map(Rule::LeastPercent),
        (0..6_usize).prop_map(Rule::Most),
        (0..=100_usize).prop_map(Rule::MostPercent),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn c8_a_budget_allows_what_a_naive_count_does(
        rule in rule(),
        one in (0..6_usize, prop::collection::vec(any::<bool>(), 0..5)),
        two in (0..6_usize, prop::collection::vec(any::<bool>(), 0..5)),
        going in any::<prop::sample::Index>(),
    ) {
        let mut world = a_world();
        budget(&world, match rule {
            Rule::Least(number) => json!({"minAvailable": number}),
            Rule::LeastPercent(number) => json!({"minAvailable": format!("{number}%")}),
            Rule::Most(number) => json!({"maxUnavailable": number}),
            Rule::MostPercent(number) => json!({"maxUnavailable": format!("{number}%")}),
        });
        set(&world, "a", one.0, &one.1);
        set(&world, "b", two.0, &two.1);
        let mut pods: Vec<(String, bool)> = Vec::new();
        for (name, set) in [("a", &one), ("b", &two)] {
            pods.extend(set.1.iter().enumerate().map(|(number, ready)| (format!("{name}-{number}"), *ready)));
        }
        let count = pods.len();
        if count > 0 {
            let gone = going.index(count);
            world.delete(&format!("{PODS}/{}", pods[gone].0));
            pods[gone].1 = false;
        }
        world.settle();
        // Who has a pod is asked how many it wants.
        let owners: usize = [&one, &two].iter().filter(|set| !set.1.is_empty()).map(|set| set.0).sum();
        let (expected, desired) = match rule {
            Rule::Least(number) => (count, number),
            Rule::LeastPercent(number) => (owners, part(number, owners)),
            Rule::Most(number) => (owners, owners.saturating_sub(number)),
            Rule::MostPercent(number) => (owners, owners.saturating_sub(part(number, owners))),
        };
        let healthy = pods.iter().filter(|(_, ready)| *ready).count();
        let allowed = if expected == 0 { 0 } else { healthy.saturating_sub(desired) };
        let status = status(&world);
        prop_assert_eq!(&status["expectedPods"], &json!(expected));
        prop_assert_eq!(&status["desiredHealthy"], &json!(desired));
        prop_assert_eq!(&status["currentHealthy"], &json!(healthy));
        prop_assert_eq!(&status["disruptionsAllowed"], &json!(allowed));
    }
}
