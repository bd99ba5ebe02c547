//! Whose pods are whose (C3): adoption, release, and what a set does about its number.

use serde_json::{Value, json};

use crate::stage::{DEPLOYMENTS, PODS, SETS, Stage, deployment, is_deleting, name, template};

fn set(replicas: i32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("a:1")}})
}

fn pod(name: &str, app: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "a:1"}]}})
}

fn owner(object: &Value) -> Value {
    let owner = &object["metadata"]["ownerReferences"][0];
    json!([owner["kind"], owner["name"], owner["controller"], owner["blockOwnerDeletion"]])
}

#[test]
fn c3_a_pod_that_nobody_has_is_adopted_and_one_that_is_relabelled_is_released_and_replaced() {
    let mut stage = Stage::new();
    stage.world.post(PODS, &pod("stray", "web"));
    stage.world.post(PODS, &pod("other", "other"));
    stage.world.post(SETS, &set(2));
    stage.settle();
    assert_eq!(owner(&stage.get(PODS, "stray")), json!(["ReplicaSet", "web", true, true]));
    assert_eq!(owner(&stage.get(PODS, "other")), json!([null, null, null, null]));
    assert_eq!(stage.pod_names().len(), 3, "one was adopted, so one was made");

    stage.patch(PODS, "stray", json!({"metadata": {"labels": {"app": "debug"}}}));
    assert_eq!(owner(&stage.get(PODS, "stray")), json!([null, null, null, null]));
    assert_eq!(stage.pod_names().len(), 4, "it was replaced");

    // One more that fits comes: the set has one too many then.
    stage.world.post(PODS, &pod("late", "web"));
    stage.settle();
    assert_eq!(stage.pod_names().len(), 4);
    assert_eq!(stage.get(SETS, "web")["status"]["replicas"], 2);
}

#[test]
fn c3_a_set_counts_what_it_has_and_replaces_what_has_ended() {
    let mut stage = Stage::new();
    stage.world.post(SETS, &set(3));
    stage.settle();
    let pods = stage.pod_names();
    for pod in &pods {
        stage.report(pod, "Running", true);
    }
    stage.settle();
    let status = |stage: &Stage| stage.get(SETS, "web")["status"].clone();
    assert_eq!(
        status(&stage),
        json!({"replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
            "terminatingReplicas": 0, "observedGeneration": 1})
    );
    stage.report(&pods[0], "Failed", false);
    stage.settle();
    assert_eq!(stage.pod_names().len(), 4, "the one that failed stays and is replaced");
    stage.world.delete(&format!("{PODS}/{}", pods[1]), "Background");
    stage.settle();
    assert_eq!(stage.pod_names().len(), 5, "the one that goes is replaced before it is gone");
    assert_eq!(status(&stage)["terminatingReplicas"], 1);
    assert_eq!(status(&stage)["replicas"], 3);
    assert_eq!(status(&stage)["readyReplicas"], 1);
    stage.bury();
    assert_eq!(status(&stage)["terminatingReplicas"], 0);
}

#[test]
fn c3_a_smaller_set_gives_up_the_pod_that_is_missed_least() {
    let mut stage = Stage::new();
    stage.world.post(SETS, &set(4));
    stage.settle();
    let pods = stage.pod_names();
    for pod in &pods[..3] {
        stage.report(pod, "Running", true);
    }
    stage.settle();
    let cheap = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}});
    stage.patch(PODS, &pods[1], cheap);
    stage.patch(SETS, "web", json!({"spec": {"replicas": 3}}));
    assert!(!stage.pod_names().contains(&pods[3]), "the one without a node is gone at once");
    stage.patch(SETS, "web", json!({"spec": {"replicas": 2}}));
    assert!(is_deleting(&stage.get(PODS, &pods[1])), "then the cheap one goes");
    let going = stage.list(PODS).iter().filter(|pod| is_deleting(pod)).count();
    assert_eq!(going, 1);
}

#[test]
fn c3_pods_that_cannot_be_made_are_tried_one_at_a_time_ever_more_slowly() {
    let mut stage = Stage::new();
    let mut bad = set(10);
    bad["spec"]["template"]["spec"]["priorityClassName"] = "nowhere".into();
    stage.world.post(SETS, &bad);
    stage.settle();
    let news = stage.news();
    // Once, and once more because the set then said so: never all ten.
    assert_eq!(news.len(), 2, "{news:?}");
    for line in news {
        let rest = line.strip_prefix("Warning FailedCreate: Error creating: pods \"web-").unwrap();
        assert!(rest.ends_with("\" is forbidden: no PriorityClass with name nowhere was found"), "{rest}");
    }
    let condition = stage.get(SETS, "web")["status"]["conditions"][0].clone();
    assert_eq!(condition["type"], "ReplicaFailure");
    assert_eq!(condition["reason"], "FailedCreate");
    // The class comes: what failed is tried again, and the failure is forgotten.
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "nowhere"},
        "value": 1});
    stage.world.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    stage.advance(1);
    assert_eq!(stage.pod_names().len(), 10);
    assert_eq!(stage.get(SETS, "web")["status"]["conditions"], Value::Null);
}

#[test]
fn c4_a_set_that_nobody_has_is_adopted_by_the_deployment_that_selects_it() {
    let mut stage = Stage::new();
    stage.world.post(SETS, &set(1));
    stage.settle();
    let orphan = stage.pod_names();
    stage.world.post(DEPLOYMENTS, &deployment(1, "a:1"));
    stage.settle();
    assert_eq!(owner(&stage.get(SETS, "web")), json!(["Deployment", "web", true, true]));
    assert_eq!(stage.world.names(SETS), ["web"], "it has the deployment's template: no other is made");
    assert_eq!(stage.pod_names(), orphan);
    let web = stage.get(DEPLOYMENTS, "web");
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    let says = &web["status"]["conditions"][1];
    assert_eq!(says["message"], "ReplicaSet \"web\" is progressing.", "{web}");
}

#[test]
fn c1_a_deployment_takes_its_sets_and_pods_along() {
    let mut stage = Stage::new();
    stage.world.post(DEPLOYMENTS, &deployment(2, "a:1"));
    stage.settle();
    stage.run();
    stage.world.delete(&format!("{DEPLOYMENTS}/web"), "Foreground");
    stage.settle();
    assert!(stage.list(PODS).iter().all(is_deleting), "none is made again");
    assert_eq!(stage.list(SETS).len(), 1, "the set waits for its pods");
    stage.bury();
    assert!(stage.list(PODS).is_empty() && stage.list(SETS).is_empty());
    assert!(stage.list(DEPLOYMENTS).iter().all(|web| name(web) != "web"));
}
