//! Workload controllers killed between any two writes leave what the others finish (E3); the same for a rollout without
//! kubelets, where nothing waits for anybody.

use serde_json::{Value, json};

use super::tests::{AfterEachWrite, ask, kill, settle};
use super::{Controller, Controllers};
use crate::clock::{Clock, ManualClock};
use crate::{Cluster, Manual, Options};

const APPS: &str = "/apis/apps/v1/namespaces/default";
const CORE: &str = "/api/v1/namespaces/default";

fn template(app: &str, image: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "main", "image": image}]}})
}

/// A deployment that takes all its pods at once, a set with claims, and a pod that waits to be adopted.
fn applied() -> Manual {
    let controllers = [
        Controller::GarbageCollector,
        Controller::Deployments,
        Controller::ReplicaSets,
        Controller::StatefulSets,
    ];
    let manual = Cluster::manual(Options {
        clock: Clock::Manual(ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap())),
        seed: Some(1),
        controllers: controllers.into_iter().fold(Controllers::none(), Controllers::with),
        ..Options::default()
    })
    .unwrap();
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 3,
        "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "a:1"),
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "100%"}}}});
    ask(&manual, "POST", &format!("{APPS}/deployments"), &web);
    let db = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {"replicas": 3,
        "selector": {"matchLabels": {"app": "db"}}, "template": template("db", "a:1"), "podManagementPolicy": "Parallel",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}]}});
    ask(&manual, "POST", &format!("{APPS}/statefulsets"), &db);
    let alone = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "alone"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "alone"}}, "template": template("alone", "a:1")}});
    let mut stray = template("alone", "a:1");
    stray["metadata"]["name"] = "stray".into();
    ask(&manual, "POST", &format!("{CORE}/pods"), &stray);
    ask(&manual, "POST", &format!("{APPS}/replicasets"), &alone);
    manual
}

/// A new image for all, and fewer of them.
fn changed() -> Manual {
    let mut manual = applied();
    settle(&mut manual);
    let change = json!({"spec": {"replicas": 2,
        "template": {"spec": {"containers": [{"name": "main", "image": "a:2"}]}}}});
    for path in ["deployments/web", "statefulsets/db"] {
        ask(&manual, "PATCH", &format!("{APPS}/{path}"), &change);
    }
    ask(&manual, "PATCH", &format!("{APPS}/replicasets/alone"), &json!({"spec": {"replicas": 1}}));
    manual
}

fn items(manual: &Manual, path: &str) -> Vec<Value> {
    ask(manual, "GET", path, &Value::Null)["items"].as_array().unwrap().clone()
}

/// What there is, but for the names that chance gave and the condition that says how a new set was noticed.
fn summary(manual: &Manual) -> Vec<String> {
    let mut lines = Vec::new();
    for kind in ["deployments", "replicasets", "statefulsets", "controllerrevisions"] {
        for mut object in items(manual, &format!("{APPS}/{kind}")) {
            if let Some(status) = object["status"].as_object_mut() {
                status.remove("conditions");
            }
            let meta = &object["metadata"];
            lines.push(format!(
                "{kind} {} {} {} {}",
                meta["name"], meta["annotations"], object["spec"]["replicas"], object["status"]
            ));
        }
    }
    for kind in ["pods", "persistentvolumeclaims"] {
        for object in items(manual, &format!("{CORE}/{kind}")) {
            let owner = &object["metadata"]["ownerReferences"][0];
            lines.push(format!(
                "{kind} of {} {} {} {}",
                owner["kind"],
                owner["name"],
                object["metadata"]["labels"],
                object["metadata"]["deletionTimestamp"]
            ));
        }
    }
    lines.sort();
    lines
}

fn same_end_after_any_write(mut manual: Manual, least: usize) {
    let hook = AfterEachWrite::on(&manual.cluster().registry().store);
    settle(&mut manual);
    let end = summary(&manual);
    let snapshots = hook.taken();
    assert!(snapshots.len() >= least, "{} writes", snapshots.len());
    for (number, snapshot) in snapshots.iter().enumerate() {
        kill(&mut manual, snapshot);
        settle(&mut manual);
        assert_eq!(summary(&manual), end, "killed after write {number}");
    }
}

#[test]
fn e3_workload_controllers_killed_after_any_write_leave_what_the_others_finish() {
    same_end_after_any_write(applied(), 25);
}

#[test]
fn e3_a_rollout_whose_controllers_are_killed_after_any_write_comes_to_the_same_end() {
    same_end_after_any_write(changed(), 15);
}
