//! Nodes that fall silent, and what becomes of their pods (C9).

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::world::{PODS, World, options};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

fn ready(world: &World, node: &str) -> (String, String) {
    let node = world.find(&format!("/api/v1/nodes/{node}"));
    let conditions = node["status"]["conditions"].as_array().unwrap();
    let ready = conditions
        .iter()
        .find(|condition| condition["type"] == "Ready")
        .unwrap();
    let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

fn taints(world: &World, node: &str) -> Vec<String> {
    let node = world.find(&format!("/api/v1/nodes/{node}"));
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let text = |taint: &Value| {
        format!(
            "{}:{}",
            taint["key"].as_str().unwrap(),
            taint["effect"].as_str().unwrap()
        )
    };
    taints.iter().map(text).collect()
}

fn renew(world: &World, node: &str) {
    let now = format!("{}", world.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ"));
    let path = format!("{LEASES}/{node}");
    if world.get(&path).is_some() {
        world.patch(&path, &json!({"spec": {"renewTime": now}}));
    } else {
        world.post(
            LEASES,
            &json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node},
                "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now}}),
        );
    }
}

/// Time passes, and these nodes are heard of every ten seconds.
fn live(world: &mut World, alive: &[&str], seconds: i64) {
    for _ in 0..seconds / 10 {
        world.pass(10);
        for node in alive {
            renew(world, node);
        }
        world.settle();
    }
}

fn two_nodes() -> World {
    let mut world = World::new();
    for name in ["n1", "n2"] {
        world.node(name, &json!({"kubernetes.io/os": "linux"}));
    }
    world.settle();
    world
}

#[test]
fn c9_a_new_node_loses_its_taint_when_it_is_ready_and_gets_its_old_labels() {
    let mut world = World::new();
    let body = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}}});
    world.post("/api/v1/nodes", &body);
    world.settle();
    assert_eq!(taints(&world, "n1"), ["node.kubernetes.io/not-ready:NoSchedule"]);
    world.node_says("n1", "True");
    world.settle();
    assert!(taints(&world, "n1").is_empty());
    let labels = &world.find("/api/v1/nodes/n1")["metadata"]["labels"];
    assert_eq!(labels["beta.kubernetes.io/os"], "linux");
    assert_eq!(labels["beta.kubernetes.io/arch"], "amd64");
    let told = (
        "RegisteredNode".to_owned(),
        "Node n1 event: Registered Node n1 in Controller".to_owned(),
    );
    assert_eq!(world.events("default", "n1"), [told]);
}

#[test]
fn c9_a_node_that_renews_its_lease_stays_ready_and_costs_no_write() {
    let mut world = two_nodes();
    live(&mut world, &["n1", "n2"], 20);
    let before = world.writes();
    live(&mut world, &["n1", "n2"], 300);
    assert_eq!(world.writes() - before, 60, "the renewals themselves");
    assert_eq!(ready(&world, "n1").0, "True");
}

#[test]
fn c9_a_silent_node_is_unknown_after_the_grace_and_its_pods_are_not_ready() {
    let mut world = two_nodes();
    world.pod("p", &json!({}), &json!({"nodeName": "n1"}));
    world.pod_says("p", "10.0.0.1", true);
    live(&mut world, &["n2"], 50);
    assert_eq!(ready(&world, "n1").0, "True");
    live(&mut world, &["n2"], 10);
    assert_eq!(
        ready(&world, "n1"),
        ("Unknown".to_owned(), "NodeStatusUnknown".to_owned())
    );
    assert_eq!(ready(&world, "n2").0, "True");
    assert_eq!(
        taints(&world, "n1"),
        [
            "node.kubernetes.io/unreachable:NoSchedule",
            "node.kubernetes.io/unreachable:NoExecute"
        ]
    );
    let pod = world.find(&format!("{PODS}/p"));
    assert_eq!(pod["status"]["conditions"][0]["status"], "False");
    assert_eq!(
        world.events("default", "p"),
        [("NodeNotReady".to_owned(), "Node is not ready".to_owned())]
    );
    let told = (
        "NodeNotReady".to_owned(),
        "Node n1 status is now: NodeNotReady".to_owned(),
    );
    assert!(world.events("default", "n1").contains(&told));
    // It comes back.
    world.node_says("n1", "True");
    world.settle();
    assert!(taints(&world, "n1").is_empty());
}

#[test]
fn c9_the_grace_is_what_the_options_say() {
    let mut world = World::with(usher_embedded::Options {
        node_grace: SignedDuration::from_secs(5),
        ..options()
    });
    world.node("n1", &json!({}));
    world.pass(5);
    assert_eq!(ready(&world, "n1").0, "True");
    world.pass(1);
    assert_eq!(ready(&world, "n1").0, "Unknown");
}

#[test]
fn c9_pods_leave_a_lost_node_when_their_patience_ends() {
    let mut world = two_nodes();
    world.pod("p", &json!({}), &json!({"nodeName": "n1"}));
    world.pod_says("p", "10.0.0.1", true);
    live(&mut world, &["n2"], 60);
    live(&mut world, &["n2"], 280);
    assert_eq!(
        world.find(&format!("{PODS}/p"))["metadata"]["deletionTimestamp"],
        Value::Null
    );
    live(&mut world, &["n2"], 20);
    let pod = world.find(&format!("{PODS}/p"));
    assert_ne!(pod["metadata"]["deletionTimestamp"], Value::Null);
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let target = conditions
        .iter()
        .find(|condition| condition["type"] == "DisruptionTarget")
        .unwrap();
    assert_eq!(
        (&target["reason"], &target["message"]),
        (
            &json!("DeletionByTaintManager"),
            &json!("Taint manager: deleting due to NoExecute taint")
        )
    );
    let told = (
        "TaintManagerEviction".to_owned(),
        "Marking for deletion Pod default/p".to_owned(),
    );
    assert!(world.events("default", "p").contains(&told));
}

#[test]
fn c9_a_node_that_comes_back_in_time_keeps_its_pods() {
    let mut world = two_nodes();
    world.pod("p", &json!({}), &json!({"nodeName": "n1"}));
    world.pod_says("p", "10.0.0.1", true);
    live(&mut world, &["n2"], 160);
    world.node_says("n1", "True");
    live(&mut world, &["n1", "n2"], 400);
    assert_eq!(
        world.find(&format!("{PODS}/p"))["metadata"]["deletionTimestamp"],
        Value::Null
    );
    let told = (
        "TaintManagerEviction".to_owned(),
        "Cancelling deletion of Pod default/p".to_owned(),
    );
    assert!(world.events("default", "p").contains(&told));
}

#[test]
fn c9_a_taint_of_the_user_sends_away_who_does_not_tolerate_it() {
    let mut world = two_nodes();
    world.pod("p", &json!({}), &json!({"nodeName": "n1"}));
    let tolerations = json!([{"key": "mine", "operator": "Exists"}]);
    world.pod("q", &json!({}), &json!({"nodeName": "n1", "tolerations": tolerations}));
    for name in ["p", "q"] {
        world.pod_says(name, "10.0.0.1", true);
    }
    let taint = json!({"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}});
    world.patch("/api/v1/nodes/n1", &taint);
    world.settle();
    assert_ne!(
        world.find(&format!("{PODS}/p"))["metadata"]["deletionTimestamp"],
        Value::Null
    );
    assert_eq!(
        world.find(&format!("{PODS}/q"))["metadata"]["deletionTimestamp"],
        Value::Null
    );
}

#[test]
fn c9_where_all_nodes_are_lost_nobody_is_sent_away() {
    let mut world = two_nodes();
    world.pod("p", &json!({}), &json!({"nodeName": "n1"}));
    world.pod_says("p", "10.0.0.1", true);
    world.pass(600);
    assert_eq!(ready(&world, "n1").0, "Unknown");
    assert_eq!(taints(&world, "n1"), ["node.kubernetes.io/unreachable:NoSchedule"]);
    assert_eq!(
        world.find(&format!("{PODS}/p"))["metadata"]["deletionTimestamp"],
        Value::Null
    );
}

#[test]
fn c9_a_cordoned_node_is_tainted_until_it_is_uncordoned() {
    let mut world = two_nodes();
    world.patch("/api/v1/nodes/n1", &json!({"spec": {"unschedulable": true}}));
    world.settle();
    assert_eq!(taints(&world, "n1"), ["node.kubernetes.io/unschedulable:NoSchedule"]);
    world.patch("/api/v1/nodes/n1", &json!({"spec": {"unschedulable": null}}));
    world.settle();
    assert!(taints(&world, "n1").is_empty());
}

#[test]
fn c9_pods_of_a_node_that_vanished_fail_and_go_after_forty_seconds() {
    let mut world = two_nodes();
    world.pod(
        "p",
        &json!({}),
        &json!({"nodeName": "n1", "terminationGracePeriodSeconds": 3600}),
    );
    world.pod_says("p", "10.0.0.1", true);
    let held = json!({"metadata": {"finalizers": ["example.com/look"]}});
    world.patch(&format!("{PODS}/p"), &held);
    world.settle();
    world.delete("/api/v1/nodes/n1");
    world.pass(39);
    assert_eq!(world.find(&format!("{PODS}/p"))["status"]["phase"], "Running");
    world.pass(2);
    let pod = world.find(&format!("{PODS}/p"));
    assert_eq!(pod["status"]["phase"], "Failed");
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 0);
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let target = conditions
        .iter()
        .find(|condition| condition["type"] == "DisruptionTarget")
        .unwrap();
    assert_eq!(target["message"], "PodGC: node no longer exists");
    world.patch(&format!("{PODS}/p"), &json!({"metadata": {"finalizers": null}}));
    world.settle();
    assert_eq!(world.get(&format!("{PODS}/p")), None);
}

#[test]
fn c9_a_node_made_again_within_forty_seconds_keeps_its_pods() {
    let mut world = two_nodes();
    world.pod("p", &json!({}), &json!({"nodeName": "n1"}));
    world.pod_says("p", "10.0.0.1", true);
    world.delete("/api/v1/nodes/n1");
    world.pass(30);
    world.node("n1", &json!({}));
    world.pass(20);
    assert_eq!(world.find(&format!("{PODS}/p"))["status"]["phase"], "Running");
}

#[test]
fn c9_an_out_of_service_node_gives_its_pods_up_at_once() {
    let mut world = two_nodes();
    world.pod("p", &json!({}), &json!({"nodeName": "n1"}));
    world.pod_says("p", "10.0.0.1", true);
    live(&mut world, &["n2"], 60);
    assert!(world.get(&format!("{PODS}/p")).is_some());
    let node = world.find("/api/v1/nodes/n1");
    let mut taints = node["spec"]["taints"].as_array().unwrap().clone();
    taints.push(json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}));
    world.patch("/api/v1/nodes/n1", &json!({"spec": {"taints": taints}}));
    world.settle();
    assert_eq!(world.get(&format!("{PODS}/p")), None);
}
