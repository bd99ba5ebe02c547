//! Hollow nodes: registered, alive, and their pods as stages tell.

use jiff::SignedDuration;
use serde_json::{Value, json};
use usher_embedded::{NodeEntry, Stages};

use crate::world::{PODS, World};

fn millis(count: i64) -> SignedDuration {
    SignedDuration::from_millis(count)
}

fn with(stages: Stages) -> World {
    World::hollow(vec![NodeEntry::hollow("h", stages)])
}

#[test]
fn a_hollow_node_is_registered_as_a_kubelet_does_and_renews_its_lease_every_ten_seconds() {
    let mut world = World::hollow(vec![
        NodeEntry::hollow("h", Stages::default()).with_label("topology.kubernetes.io/zone", "z"),
    ]);
    let node = world.get("/api/v1/nodes/h");
    assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], "z");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "h");
    assert_eq!(
        node["status"]["allocatable"],
        json!({"cpu": "32", "ephemeral-storage": "256Gi", "memory": "256Gi", "pods": "110"})
    );
    let ready = node["status"]["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&ready["type"], &ready["status"], &ready["reason"], &ready["message"]),
        (
            &json!("Ready"),
            &json!("True"),
            &json!("KubeletReady"),
            &json!("kubelet is posting ready status")
        )
    );
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/h";
    let lease = world.get(path);
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
    assert_eq!(lease["spec"]["holderIdentity"], "h");
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
    let before = world.manual.cluster().store_stats().writes;
    world.pass(SignedDuration::from_secs(60));
    assert_eq!(
        world.manual.cluster().store_stats().writes - before,
        6,
        "one write for each renewal"
    );
    assert_eq!(world.get(path)["spec"]["renewTime"], "2026-01-01T00:01:00.000000Z");
}

#[test]
fn a_hollow_node_that_somebody_doubts_says_again_that_it_is_ready() {
    let mut world = with(Stages::default());
    let unknown =
        json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}});
    world.patch("/api/v1/nodes/h/status", &unknown);
    world.settle();
    let node = world.get("/api/v1/nodes/h");
    assert_eq!(node["status"]["conditions"][3]["status"], "True");
}

#[test]
fn a_pod_on_a_hollow_node_is_ready_after_ten_milliseconds_in_one_write_and_gone_when_deleted() {
    let mut world = with(Stages::default());
    world.pod("p", 100, &json!({"initContainers": [{"name": "init", "image": "i"}]}));
    world.settle();
    assert_eq!(world.place("p"), "h");
    let bound = world.manual.cluster().store_stats().writes;
    world.pass(millis(9));
    assert_eq!(world.get_pod("p")["status"]["phase"], "Pending");
    world.pass(millis(1));
    assert_eq!(world.manual.cluster().store_stats().writes - bound, 1);
    let pod = world.get_pod("p");
    let status = &pod["status"];
    assert_eq!(
        (&status["phase"], &status["qosClass"]),
        (&json!("Running"), &json!("Burstable"))
    );
    assert_eq!(
        (&status["podIP"], &status["hostIP"]),
        (&json!("10.64.0.1"), &json!("10.0.0.1"))
    );
    assert_eq!(status["podIPs"], json!([{"ip": "10.64.0.1"}]));
    assert_eq!(status["startTime"], "2026-01-01T00:00:00Z");
    let conditions = status["conditions"].as_array().unwrap();
    let all: Vec<(&str, &str)> = conditions
        .iter()
        .map(|condition| {
            (
                condition["type"].as_str().unwrap(),
                condition["status"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        all,
        [
            ("PodReadyToStartContainers", "True"),
            ("Initialized", "True"),
            ("Ready", "True"),
            ("ContainersReady", "True"),
            ("PodScheduled", "True")
        ]
    );
    let container = &status["containerStatuses"][0];
    assert_eq!(
        container["state"],
        json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}})
    );
    assert_eq!(
        (&container["ready"], &container["restartCount"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(
        status["initContainerStatuses"][0]["state"]["terminated"]["reason"],
        "Completed"
    );
    let owners: Vec<&str> = pod["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|entry| entry["manager"].as_str())
        .collect();
    assert!(owners.contains(&"kubelet"), "{owners:?}");
    world.delete(&format!("{PODS}/p"));
    assert_eq!(world.get_pod("p")["metadata"]["deletionGracePeriodSeconds"], 30);
    world.pass(millis(10));
    assert_eq!(world.ask("GET", &format!("{PODS}/p"), None).0, 404);
}

#[test]
fn scripts_are_tables_of_stages_never_ready_and_slow_stop() {
    let mut world = with(Stages::never_ready());
    world.pod("p", 100, &Value::Null);
    world.pass(SignedDuration::from_secs(60));
    let ready = world.condition("p", "Ready");
    assert_eq!(
        (&ready["status"], &ready["reason"]),
        (&json!("False"), &json!("ContainersNotReady"))
    );
    assert_eq!(ready["message"], "containers with unready status: [main]");
    assert_eq!(world.get_pod("p")["status"]["phase"], "Running");

    let mut world = with(Stages::slow_stop());
    world.pod("p", 100, &json!({"terminationGracePeriodSeconds": 20}));
    world.pass(SignedDuration::from_secs(1));
    world.delete(&format!("{PODS}/p"));
    world.pass(SignedDuration::from_secs(19));
    assert!(world.get_pod("p")["metadata"]["deletionTimestamp"].is_string());
    world.pass(SignedDuration::from_secs(1));
    assert_eq!(world.ask("GET", &format!("{PODS}/p"), None).0, 404);
}

#[test]
fn a_crash_loop_restarts_at_once_then_backs_off_ever_longer() {
    let mut world = with(Stages::crash_loop());
    world.pod("p", 100, &Value::Null);
    let seen = |world: &World| {
        let pod = world.get_pod("p");
        let container = &pod["status"]["containerStatuses"][0];
        let state = container["state"].as_object().unwrap().keys().next().unwrap().clone();
        (state, container["restartCount"].as_i64().unwrap())
    };
    world.pass(millis(10));
    assert_eq!(seen(&world), ("running".to_owned(), 0));
    world.pass(millis(1_000));
    assert_eq!(
        seen(&world),
        ("running".to_owned(), 1),
        "the first restart comes at once"
    );
    world.pass(millis(1_000));
    assert_eq!(seen(&world), ("waiting".to_owned(), 1));
    let pod = world.get_pod("p");
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let container = &pod["status"]["containerStatuses"][0];
    assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!(
        container["state"]["waiting"]["message"],
        format!("back-off 10s restarting failed container=main pod=p_default({uid})")
    );
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 1);
    world.pass(millis(10_000));
    assert_eq!(seen(&world), ("running".to_owned(), 2));
    world.pass(millis(1_000));
    assert_eq!(seen(&world), ("waiting".to_owned(), 2));
    world.pass(millis(19_999));
    assert_eq!(seen(&world), ("waiting".to_owned(), 2));
    world.pass(millis(1));
    assert_eq!(seen(&world), ("running".to_owned(), 3));
}

#[test]
fn a_stage_may_be_for_some_pods_and_its_jitter_comes_from_their_uids() {
    let text = "nodes: [{name: h, kind: hollow, stages: [{at: bound, selector: {app: slow}, delay: 1s, jitter: 9s, next: ready}, \
        {at: bound, next: succeed}]}]";
    let mut world = World::hollow(NodeEntry::parse("nodes.yaml", text).unwrap());
    world.labelled("quick", 100, &json!({}), &json!({"restartPolicy": "Never"}));
    for n in 0..5 {
        world.labelled(&format!("slow-{n}"), 100, &json!({"app": "slow"}), &Value::Null);
    }
    world.settle();
    let quick = world.get_pod("quick");
    assert_eq!(quick["status"]["phase"], "Succeeded");
    assert_eq!(world.condition("quick", "Ready")["reason"], "PodCompleted");
    let mut times = Vec::new();
    world.pass(SignedDuration::from_secs(1) - millis(1));
    assert_eq!(world.get_pod("slow-0")["status"]["phase"], "Pending");
    for second in 0..9 {
        world.pass(SignedDuration::from_secs(1));
        let ready = (0..5).filter(|n| world.get_pod(&format!("slow-{n}"))["status"]["phase"] == "Running");
        times.push((second, ready.count()));
    }
    assert_eq!(times.last().unwrap().1, 5);
    assert!(times[0].1 < 5, "not all at once: {times:?}");
}

#[test]
fn pods_of_a_hollow_node_have_addresses_of_their_own_also_after_a_restart() {
    let mut world = World::hollow(NodeEntry::hollows(2));
    for n in 0..6 {
        world.pod(&format!("p{n}"), 100, &Value::Null);
    }
    world.pass(SignedDuration::from_secs(1));
    world.manual.restart_controllers();
    for n in 6..12 {
        world.pod(&format!("p{n}"), 100, &Value::Null);
    }
    world.pass(SignedDuration::from_secs(1));
    let mut addresses: Vec<String> = (0..12)
        .map(|n| {
            world.get_pod(&format!("p{n}"))["status"]["podIP"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 12);
}
