//! StatefulSets (C5), told step by step: who comes, who goes, in which order.

use serde_json::{Value, json};

use crate::stage::{PODS, REVISIONS, STATEFUL, Stage, is_deleting, name, stateful_set};

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})
}

fn applied(replicas: i32, change: &Value) -> Stage {
    let mut stage = Stage::new();
    let mut set = stateful_set(replicas, "a:1");
    json_patch::merge(&mut set, change);
    stage.world.post(STATEFUL, &set);
    stage.settle();
    stage
}

fn running(replicas: i32, change: &Value) -> Stage {
    let mut stage = applied(replicas, change);
    stage.run();
    stage.news();
    stage
}

#[test]
fn c5_pods_come_in_order_each_when_all_before_it_are_ready_and_go_from_the_top() {
    let mut stage = applied(3, &json!({}));
    stage.tell("applied");
    stage.make_ready(1);
    stage.tell("the first is ready");
    stage.make_ready(1);
    stage.make_ready(1);
    stage.tell("all are ready");
    stage.patch(STATEFUL, "db", json!({"spec": {"replicas": 1}}));
    stage.tell("scaled to 1");
    stage.bury();
    stage.tell("the last is gone");
    stage.bury();
    stage.tell("the second is gone");
    stage.ends_as("ordered");
}

#[test]
fn c5_a_pod_has_its_name_its_number_and_its_revision() {
    let stage = applied(1, &json!({"spec": {"ordinals": {"start": 5}}}));
    let pod = stage.get(PODS, "db-5");
    let revision = name(&stage.list(REVISIONS)[0]).to_owned();
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"app": "web", "apps.kubernetes.io/pod-index": "5", "controller-revision-hash": revision,
            "statefulset.kubernetes.io/pod-name": "db-5"})
    );
    assert_eq!(pod["spec"]["hostname"], "db-5");
    assert_eq!(pod["spec"]["subdomain"], "db");
    assert_eq!(pod["metadata"]["generateName"], "db-");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "StatefulSet");
    let kept = &stage.list(REVISIONS)[0];
    assert_eq!(kept["revision"], 1);
    assert_eq!(kept["data"]["spec"]["template"]["$patch"], "replace");
    let hash = kept["metadata"]["labels"]["controller.kubernetes.io/hash"].as_str().unwrap();
    assert_eq!(revision, format!("db-{hash}"));
}

#[test]
fn c5_an_update_goes_from_the_top_one_at_a_time_and_stops_at_one_that_is_not_available() {
    let mut stage = running(3, &json!({}));
    stage.patch(STATEFUL, "db", image("a:2"));
    stage.tell("a new image");
    stage.bury();
    stage.tell("the last one is gone");
    stage.make_ready(1);
    stage.tell("its successor is ready");
    stage.run();
    stage.tell("at the end");
    stage.ends_as("update");
}

#[test]
fn c5_below_the_partition_pods_keep_the_current_revision() {
    let partition = |at: i32| json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": at}}}});
    let mut stage = running(3, &partition(2));
    stage.patch(STATEFUL, "db", image("a:2"));
    stage.run();
    stage.tell("a new image with partition 2");
    stage.world.delete(&format!("{PODS}/db-0"), "Background");
    stage.settle();
    stage.run();
    stage.tell("the first one was deleted");
    stage.patch(STATEFUL, "db", partition(0));
    stage.run();
    stage.tell("partition 0");
    stage.ends_as("partition");
}

#[test]
fn c5_on_delete_updates_only_who_is_deleted() {
    let mut stage = running(2, &json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}));
    stage.patch(STATEFUL, "db", image("a:2"));
    stage.run();
    stage.tell("a new image");
    stage.world.delete(&format!("{PODS}/db-0"), "Background");
    stage.settle();
    stage.run();
    stage.tell("the first one was deleted");
    stage.ends_as("ondelete");
}

#[test]
fn c5_parallel_pods_come_and_go_together() {
    let mut stage = applied(3, &json!({"spec": {"podManagementPolicy": "Parallel"}}));
    stage.tell("applied");
    stage.run();
    stage.patch(STATEFUL, "db", json!({"spec": {"replicas": 0}}));
    stage.tell("scaled to 0");
    stage.ends_as("parallel");
}

#[test]
fn c5_pods_that_ended_are_deleted_and_made_again() {
    let mut stage = running(2, &json!({}));
    for (pod, phase) in [("db-0", "Failed"), ("db-1", "Succeeded")] {
        let before = stage.get(PODS, pod)["metadata"]["uid"].clone();
        stage.report(pod, phase, false);
        stage.settle();
        // One that has ended needs no grace: it is gone, and its successor is there.
        assert_ne!(stage.get(PODS, pod)["metadata"]["uid"], before, "{pod} {phase}");
        stage.run();
        assert_eq!(stage.get(PODS, pod)["status"]["phase"], "Running");
    }
    stage.tell("both came back");
    stage.ends_as("ended");
}

#[test]
fn c5_the_next_pod_waits_until_the_one_before_it_is_available() {
    let mut stage = applied(2, &json!({"spec": {"minReadySeconds": 10}}));
    stage.make_ready(1);
    stage.advance(9);
    assert_eq!(stage.pod_names(), ["db-0"]);
    let status = stage.get(STATEFUL, "db")["status"].clone();
    assert_eq!((&status["readyReplicas"], &status["availableReplicas"]), (&json!(1), &json!(0)));
    stage.advance(1);
    assert_eq!(stage.pod_names(), ["db-0", "db-1"]);
}

#[test]
fn c5_a_template_that_comes_back_is_the_newest_revision_again_and_history_has_a_limit() {
    let mut stage = running(1, &json!({"spec": {"revisionHistoryLimit": 1}}));
    let first = stage.get(STATEFUL, "db")["status"]["currentRevision"].clone();
    stage.patch(STATEFUL, "db", image("a:2"));
    stage.run();
    stage.patch(STATEFUL, "db", image("a:1"));
    stage.run();
    let status = stage.get(STATEFUL, "db")["status"].clone();
    assert_eq!(status["updateRevision"], first);
    let mut numbers: Vec<i64> = stage.list(REVISIONS).iter().map(|kept| kept["revision"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3]);
    for version in 3..=5 {
        stage.patch(STATEFUL, "db", image(&format!("a:{version}")));
        stage.run();
    }
    let mut numbers: Vec<i64> = stage.list(REVISIONS).iter().map(|kept| kept["revision"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [5, 6], "the newest, and one before it");
}

#[test]
fn c5_a_set_that_is_deleted_makes_nothing_any_more() {
    let mut stage = running(3, &json!({}));
    stage.world.delete(&format!("{STATEFUL}/db"), "Foreground");
    stage.settle();
    assert!(stage.list(PODS).iter().all(is_deleting));
    stage.bury();
    assert!(stage.list(PODS).is_empty() && stage.list(STATEFUL).is_empty() && stage.list(REVISIONS).is_empty());
}
