//! Rollouts of a Deployment (C4), told step by step.

use serde_json::{Value, json};

use crate::stage::{DEPLOYMENTS, PODS, SETS, Stage, deployment, name};

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})
}

/// A deployment whose pods are all ready.
fn running(replicas: i32, change: &Value) -> Stage {
    let mut stage = Stage::new();
    let mut deployment = deployment(replicas, "a:1");
    json_patch::merge(&mut deployment, change);
    stage.world.post(DEPLOYMENTS, &deployment);
    stage.settle();
    stage.run();
    stage.tell("it runs");
    stage
}

fn rolling(surge: Value, unavailable: Value) -> Value {
    json!({"spec": {"strategy": {"type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}})
}

#[test]
fn c4_a_rollout_with_surge_goes_up_by_one_and_down_by_one() {
    let mut stage = Stage::new();
    let mut web = deployment(3, "a:1");
    json_patch::merge(&mut web, &rolling(json!(1), json!(0)));
    stage.world.post(DEPLOYMENTS, &web);
    stage.settle();
    stage.tell("applied");
    stage.make_ready(2);
    stage.tell("two are ready");
    stage.make_ready(1);
    stage.tell("all are ready");
    stage.patch(DEPLOYMENTS, "web", image("a:2"));
    stage.tell("a new image");
    for round in ["the first new pod is ready", "the second one", "the third one"] {
        stage.make_ready(1);
        stage.tell(round);
        stage.bury();
        stage.tell("the old pod is gone");
    }
    stage.ends_as("surge");
}

#[test]
fn c4_without_surge_old_pods_go_first() {
    let mut stage = running(4, &rolling(json!(0), json!("50%")));
    stage.patch(DEPLOYMENTS, "web", image("a:2"));
    stage.tell("a new image");
    stage.bury();
    stage.make_ready(1);
    stage.tell("the old pods are gone, one new pod is ready");
    stage.run();
    stage.tell("at the end");
    stage.ends_as("unavailable");
}

#[test]
fn c4_old_pods_that_are_not_available_go_before_those_that_are() {
    let mut stage = running(4, &rolling(json!(1), json!(1)));
    let broken = stage.pod_names().pop().unwrap();
    stage.report(&broken, "Running", false);
    stage.settle();
    stage.patch(DEPLOYMENTS, "web", image("a:2"));
    stage.tell("one pod is not ready, and there is a new image");
    let pods = stage.list(PODS);
    let gone = pods.iter().find(|pod| name(pod) == broken);
    assert!(gone.is_none_or(crate::stage::is_deleting), "the broken pod goes");
    stage.ends_as("unhealthy");
}

#[test]
fn c4_a_paused_deployment_rolls_out_only_when_it_is_resumed() {
    let mut stage = running(2, &json!({}));
    stage.patch(DEPLOYMENTS, "web", json!({"spec": {"paused": true}}));
    stage.patch(DEPLOYMENTS, "web", image("a:2"));
    stage.tell("paused, with a new image");
    stage.patch(DEPLOYMENTS, "web", json!({"spec": {"replicas": 3}}));
    stage.tell("scaled while it is paused");
    stage.patch(DEPLOYMENTS, "web", json!({"spec": {"paused": null}}));
    stage.tell("resumed");
    stage.run();
    stage.tell("at the end");
    stage.ends_as("pause");
}

#[test]
fn c4_undo_uses_the_old_set_again_with_a_new_revision() {
    let mut stage = running(2, &json!({}));
    stage.patch(DEPLOYMENTS, "web", image("a:2"));
    stage.run();
    stage.tell("the second image runs");
    // What `kubectl rollout undo` does: it puts the old template back.
    stage.patch(DEPLOYMENTS, "web", image("a:1"));
    stage.tell("the first image again");
    stage.run();
    stage.tell("at the end");
    let mut revisions: Vec<Value> = stage
        .list(SETS)
        .iter()
        .map(|set| {
            let note = |name: &str| set["metadata"]["annotations"][format!("deployment.kubernetes.io/{name}")].clone();
            json!([
                note("revision"),
                note("revision-history"),
                note("desired-replicas"),
                note("max-replicas")
            ])
        })
        .collect();
    revisions.sort_by_key(ToString::to_string);
    assert_eq!(revisions, [json!(["2", null, "2", "3"]), json!(["3", "1", "2", "3"])]);
    stage.ends_as("undo");
}

#[test]
fn c4_scaled_in_mid_roll_all_sets_get_their_share() {
    let mut stage = running(10, &rolling(json!(3), json!(2)));
    stage.patch(DEPLOYMENTS, "web", image("a:broken"));
    stage.bury();
    stage.tell("a new image that never becomes ready");
    stage.patch(DEPLOYMENTS, "web", json!({"spec": {"replicas": 15}}));
    stage.tell("scaled to 15");
    stage.patch(DEPLOYMENTS, "web", json!({"spec": {"replicas": 5}}));
    stage.bury();
    stage.tell("scaled to 5");
    stage.ends_as("proportional");
}

#[test]
fn c4_recreate_waits_until_the_last_old_pod_is_gone() {
    let mut stage = running(2, &json!({"spec": {"strategy": {"type": "Recreate"}}}));
    stage.patch(DEPLOYMENTS, "web", image("a:2"));
    stage.tell("a new image");
    stage.bury();
    stage.tell("the old pods are gone");
    stage.run();
    stage.tell("at the end");
    stage.ends_as("recreate");
}

#[test]
fn c4_a_rollout_without_progress_times_out_at_its_deadline_and_recovers() {
    let mut stage = running(1, &json!({"spec": {"progressDeadlineSeconds": 60}}));
    stage.patch(DEPLOYMENTS, "web", image("a:broken"));
    stage.advance(60);
    stage.tell("after 60 seconds");
    assert!(stage.world.manual.next_timer().is_some(), "the deadline is waited for");
    stage.advance(1);
    stage.tell("after 61 seconds");
    stage.patch(DEPLOYMENTS, "web", image("a:2"));
    stage.run();
    stage.tell("with an image that works");
    stage.ends_as("deadline");
}

#[test]
fn c4_available_is_only_who_was_ready_for_a_while() {
    let mut stage = running(0, &json!({"spec": {"minReadySeconds": 10}}));
    stage.patch(DEPLOYMENTS, "web", json!({"spec": {"replicas": 1}}));
    stage.make_ready(1);
    stage.tell("ready");
    stage.advance(9);
    stage.tell("ready for 9 seconds");
    stage.advance(1);
    stage.tell("ready for 10 seconds");
    stage.ends_as("minready");
}

#[test]
fn c4_history_is_as_long_as_is_wanted() {
    let mut stage = running(1, &json!({"spec": {"revisionHistoryLimit": 2}}));
    for version in 2..=6 {
        stage.patch(DEPLOYMENTS, "web", image(&format!("a:{version}")));
        stage.run();
    }
    let mut revisions: Vec<String> = stage
        .list(SETS)
        .iter()
        .map(|set| {
            let revision = &set["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
            revision.as_str().unwrap().to_owned()
        })
        .collect();
    revisions.sort();
    assert_eq!(revisions, ["4", "5", "6"]);
}

#[test]
fn c4_a_name_that_is_taken_is_avoided_and_counted() {
    let mut stage = running(1, &json!({}));
    let set = stage.list(SETS).remove(0);
    let taken = name(&set).to_owned();
    stage.world.delete(&format!("{DEPLOYMENTS}/web"), "Background");
    stage.settle();
    stage.run();
    // Another's set with the very name that the deployment's next set would get.
    let mut other = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": taken},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "other"}}, "template": set["spec"]["template"].clone()}});
    other["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    stage.world.post(SETS, &other);
    stage.world.post(DEPLOYMENTS, &deployment(1, "a:1"));
    stage.settle();
    stage.run();
    let web = stage.get(DEPLOYMENTS, "web");
    assert_eq!(web["status"]["collisionCount"], 1, "{web}");
    assert_eq!(web["status"]["availableReplicas"], 1, "{web}");
    assert_eq!(stage.world.names(SETS).len(), 2);
}

#[test]
fn c4_pods_that_cannot_be_made_are_said_in_the_conditions() {
    let mut stage = Stage::new();
    let mut web = deployment(2, "a:1");
    web["spec"]["template"]["spec"]["priorityClassName"] = "nowhere".into();
    stage.world.post(DEPLOYMENTS, &web);
    stage.settle();
    stage.tell("a class that is not there");
    stage.ends_as("failure");
}
