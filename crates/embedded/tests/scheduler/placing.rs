//! Where one pod goes, and what is said when it goes nowhere: the reference's words.

use serde_json::{Value, json};

use crate::world::{PODS, World};

const NO_HELP: &str =
    "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";

#[test]
fn k1_a_pod_is_bound_to_the_node_with_the_most_room_and_an_event_says_so() {
    let mut world = World::new();
    world.node("a", 1_000, &Value::Null);
    world.node("b", 2_000, &Value::Null);
    world.pod("p", 500, &Value::Null);
    world.settle();
    assert_eq!(world.place("p"), "b");
    assert_eq!(
        world.events("p"),
        ["Normal | Scheduled | Binding | default-scheduler | Successfully assigned default/p to b"]
    );
    let condition = world.condition("p", "PodScheduled");
    assert_eq!(
        (&condition["status"], &condition["message"]),
        (&json!("True"), &Value::Null)
    );
}

#[test]
fn k1_without_nodes_and_without_room_it_is_said_as_the_reference_says_it() {
    let mut world = World::new();
    world.pod("p", 500, &Value::Null);
    world.settle();
    assert_eq!(world.why("p"), "no nodes available to schedule pods");
    world.node("small", 100, &Value::Null);
    world.node("full", 600, &Value::Null);
    world.node("cordoned", 9_000, &Value::Null);
    world.patch("/api/v1/nodes/cordoned", &json!({"spec": {"unschedulable": true}}));
    world.pod("q", 550, &json!({"nodeName": "full"}));
    world.pass(jiff::SignedDuration::from_secs(2));
    let message = "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. \
        no new claims to deallocate, preemption: 0/3 nodes are available: \
        1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.";
    assert_eq!(world.why("p"), message);
    let condition = world.condition("p", "PodScheduled");
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("Unschedulable"))
    );
    assert_eq!(condition["observedGeneration"], 1);
    assert_eq!(
        world.events("p").last().unwrap(),
        &format!("Warning | FailedScheduling | Scheduling | default-scheduler | {message}")
    );
}

/// What keeps a pod with this spec from the one node there is; empty: nothing does.
fn kept_by(set_up: impl Fn(&World), spec: &Value) -> String {
    let mut world = World::new();
    world.node("n", 1_000, &json!({"disk": "ssd", "rank": "5"}));
    set_up(&world);
    world.settle();
    world.labelled("p", 100, &json!({"app": "p"}), spec);
    world.settle();
    if world.place("p").is_empty() {
        world.why("p")
    } else {
        String::new()
    }
}

fn first_words(message: &str) -> &str {
    message.split_once(" no new claims").map_or(message, |(first, _)| first)
}

#[test]
fn k1_each_filter_has_the_reference_s_words() {
    let nothing = |_: &World| {};
    let tainted = |world: &World| {
        let taints = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
        world.patch("/api/v1/nodes/n", &json!({"spec": {"taints": taints}}));
    };
    let other = |world: &World| {
        let port = json!([{"name": "main", "image": "i", "ports": [{"containerPort": 80, "hostPort": 8080}]}]);
        world.labelled(
            "other",
            100,
            &json!({"app": "o"}),
            &json!({"containers": port, "nodeName": "n"}),
        );
    };
    let affinity = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
    let pods = |kind: &str, app: &str, key: &str| {
        let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key});
        json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    let host = "kubernetes.io/hostname";
    let spread = |key: &str, skew: u32| {
        json!({"topologySpreadConstraints": [{"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "minDomains": 2, "labelSelector": {"matchLabels": {"app": "p"}}}]})
    };
    let mut port =
        json!({"containers": [{"name": "main", "image": "i", "ports": [{"containerPort": 80, "hostPort": 8080}]}]});
    let nodes = |reason: &str| format!("0/1 nodes are available: 1 {reason}.");
    let selector = "node(s) didn't match Pod's node affinity/selector";
    let none = String::new();
    for (set_up, spec, expected) in [
        (
            &tainted as &dyn Fn(&World),
            json!({}),
            nodes("node(s) had untolerated taint(s)"),
        ),
        (
            &tainted,
            json!({"tolerations": [{"key": "k", "operator": "Exists"}]}),
            none.clone(),
        ),
        (
            &tainted,
            json!({"tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}]}),
            none.clone(),
        ),
        (
            &tainted,
            json!({"tolerations": [{"key": "k", "value": "w"}]}),
            nodes("node(s) had untolerated taint(s)"),
        ),
        (&nothing, json!({"nodeSelector": {"disk": "hdd"}}), nodes(selector)),
        (&nothing, json!({"nodeSelector": {"disk": "ssd"}}), none.clone()),
        (
            &nothing,
            affinity(json!([{"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["5"]}]}])),
            nodes(selector),
        ),
        (
            &nothing,
            affinity(json!([{"matchExpressions": [{"key": "rank", "operator": "Lt", "values": ["6"]}]}])),
            none.clone(),
        ),
        (
            &nothing,
            affinity(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}])),
            nodes("node(s) didn't satisfy plugin(s) [NodeAffinity]"),
        ),
        (
            &other,
            port.clone(),
            nodes("node(s) didn't have free ports for the requested pod ports"),
        ),
        (
            &nothing,
            pods("podAffinity", "o", host),
            nodes("node(s) didn't match pod affinity rules"),
        ),
        (&other, pods("podAffinity", "o", host), none.clone()),
        (
            &other,
            pods("podAntiAffinity", "o", host),
            nodes("node(s) didn't match pod anti-affinity rules"),
        ),
        (&other, pods("podAntiAffinity", "o", "missing"), none.clone()),
        // The first of its like.
        (&nothing, pods("podAffinity", "p", host), none.clone()),
        (&nothing, spread(host, 1), none.clone()),
        (
            &nothing,
            spread("zone", 1),
            nodes("node(s) didn't match pod topology spread constraints (missing required label)"),
        ),
    ] {
        assert_eq!(first_words(&kept_by(set_up, &spec)), expected, "{spec}");
    }
    port["containers"][0]["ports"][0]["hostPort"] = json!(8081);
    assert_eq!(kept_by(other, &port), "");
    assert!(kept_by(tainted, &json!({})).ends_with(NO_HELP));
}

#[test]
fn k1_who_is_there_keeps_others_away() {
    let keeps_away = |world: &World| {
        let term = json!({"labelSelector": {"matchLabels": {"app": "p"}}, "topologyKey": "kubernetes.io/hostname"});
        let spec = json!({"nodeName": "n",
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
        world.labelled("other", 100, &json!({}), &spec);
    };
    let message = kept_by(keeps_away, &json!({}));
    assert_eq!(
        first_words(&message),
        "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."
    );
}

#[test]
fn k1_pods_are_spread_as_they_must_be() {
    let mut world = World::new();
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        world.node(name, 4_000, &json!({"zone": zone}));
    }
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "p"}}}]});
    for n in 0..6 {
        world.labelled(&format!("p{n}"), 100, &json!({"app": "p"}), &spread);
        world.settle();
    }
    let zones: Vec<String> = (0..6).map(|n| world.place(&format!("p{n}"))[..1].to_owned()).collect();
    assert_eq!(zones.iter().filter(|zone| *zone == "a").count(), 3, "{zones:?}");
    world.patch("/api/v1/nodes/b1", &json!({"spec": {"unschedulable": true}}));
    world.labelled("p6", 100, &json!({"app": "p"}), &spread);
    world.labelled("p7", 100, &json!({"app": "p"}), &spread);
    world.settle();
    assert!(world.place("p6").starts_with('a'));
    assert!(
        world
            .why("p7")
            .contains("2 node(s) didn't match pod topology spread constraints"),
        "{}",
        world.why("p7")
    );
}

#[test]
fn k1_preferences_decide_among_nodes_that_would_do() {
    let mut world = World::new();
    world.node("a", 1_000, &json!({"disk": "hdd"}));
    world.node("b", 1_000, &json!({"disk": "ssd"}));
    world.node("c", 1_000, &json!({"disk": "ssd"}));
    world.patch(
        "/api/v1/nodes/b",
        &json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}}),
    );
    let ssd = json!({"weight": 10, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}});
    let spec = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [ssd]}}});
    world.settle();
    world.pod("p", 100, &spec);
    world.settle();
    assert_eq!(world.place("p"), "c");
    let near = json!({"weight": 50, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "a"}}}});
    world.labelled("first", 100, &json!({"app": "a"}), &json!({"nodeName": "a"}));
    world.pod(
        "second",
        100,
        &json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [near]}}}),
    );
    world.settle();
    assert_eq!(world.place("second"), "a");
}

#[test]
fn k1_many_pods_of_one_service_are_spread_over_nodes_by_themselves() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        world.node(name, 8_000, &Value::Null);
    }
    world.post(
        "/api/v1/namespaces/default/services",
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"selector": {"app": "p"}, "ports": [{"port": 80}]}}),
    );
    for n in 0..6 {
        world.labelled(&format!("p{n}"), 100, &json!({"app": "p"}), &Value::Null);
    }
    world.settle();
    for name in ["a", "b", "c"] {
        let list = world.get(&format!("{PODS}?fieldSelector=spec.nodeName={name}"));
        assert_eq!(list["items"].as_array().unwrap().len(), 2, "{name}");
    }
}

#[test]
fn k1_no_more_pods_than_a_node_takes() {
    let mut world = World::new();
    world.node("n", 1_000, &Value::Null);
    for n in 0..11 {
        world.pod(&format!("p{n:02}"), 0, &Value::Null);
    }
    world.settle();
    assert_eq!(world.place("p09"), "n");
    assert!(
        world
            .why("p10")
            .starts_with("0/1 nodes are available: 1 Too many pods. "),
        "{}",
        world.why("p10")
    );
}
