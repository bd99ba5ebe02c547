//! Controllers that are killed after every sync come to the same end (E3).

use futures::FutureExt;
use serde_json::{Value, json};

use crate::stage::{CLAIMS, DEPLOYMENTS, PODS, REVISIONS, SETS, STATEFUL, Stage, deployment, name, stateful_set};

/// How the controllers work between two moves of the kubelets.
#[derive(Clone, Copy)]
enum Drive {
    Settle,
    /// Killed before each sync: whoever runs knows only what is stored.
    KilledEachTime,
}

fn drive(stage: &mut Stage, how: Drive) {
    match how {
        Drive::Settle => stage.settle(),
        Drive::KilledEachTime => loop {
            let writes = |stage: &Stage| stage.world.manual.cluster().store_stats().writes;
            let before = writes(stage);
            for work in stage.world.manual.ready() {
                stage.world.manual.restart_controllers();
                stage.world.manual.run(&work.id).now_or_never().unwrap();
            }
            if writes(stage) == before {
                return;
            }
        },
    }
}

/// The kubelets make one pod ready, or take one away that goes; false: there is none.
fn move_on(stage: &Stage) -> bool {
    for pod in stage.list(PODS) {
        if crate::stage::is_deleting(&pod) {
            let now = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
            stage.world.ask("DELETE", &format!("{PODS}/{}", name(&pod)), Some(&now));
            return true;
        }
        if !crate::stage::is_ready(&pod) {
            stage.report(name(&pod), "Running", true);
            return true;
        }
    }
    false
}

fn run(stage: &mut Stage, how: Drive) {
    drive(stage, how);
    for _ in 0..500 {
        if !move_on(stage) {
            return;
        }
        drive(stage, how);
    }
    panic!("it never ends: {}", stage.picture());
}

/// Everything but what says when, by which write and under which chance.
fn end(stage: &Stage) -> Vec<Value> {
    let mut all = Vec::new();
    for path in [DEPLOYMENTS, SETS, STATEFUL, REVISIONS, CLAIMS] {
        for mut object in stage.list(path) {
            for field in ["uid", "resourceVersion", "managedFields", "creationTimestamp", "generation", "ownerReferences"] {
                object["metadata"].as_object_mut().unwrap().remove(field);
            }
            let status = object["status"].as_object_mut();
            if let Some(status) = status {
                status.remove("observedGeneration");
                if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
                    conditions.sort_by_key(|condition| condition["type"].to_string());
                }
            }
            all.push(object);
        }
    }
    let mut pods: Vec<Value> = stage
        .list(PODS)
        .iter()
        .map(|pod| json!([pod["metadata"]["labels"], pod["spec"]["containers"][0]["image"]]))
        .collect();
    pods.sort_by_key(ToString::to_string);
    all.extend(pods);
    all
}

fn play(how: Drive) -> Vec<Value> {
    let mut stage = Stage::new();
    let mut db = stateful_set(3, "a:1");
    db["spec"]["selector"] = json!({"matchLabels": {"app": "db"}});
    db["spec"]["template"]["metadata"]["labels"] = json!({"app": "db"});
    db["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    db["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenScaled": "Delete", "whenDeleted": "Retain"});
    stage.world.post(DEPLOYMENTS, &deployment(4, "a:1"));
    stage.world.post(STATEFUL, &db);
    run(&mut stage, how);
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "a:2"}]}}}});
    stage.world.patch(&format!("{DEPLOYMENTS}/web"), &image);
    stage.world.patch(&format!("{STATEFUL}/db"), &image);
    // In the middle of it all, both are scaled.
    drive(&mut stage, how);
    move_on(&stage);
    drive(&mut stage, how);
    stage.world.patch(&format!("{DEPLOYMENTS}/web"), &json!({"spec": {"replicas": 6}}));
    stage.world.patch(&format!("{STATEFUL}/db"), &json!({"spec": {"replicas": 2}}));
    run(&mut stage, how);
    end(&stage)
}

#[test]
fn e3_controllers_killed_after_every_sync_come_to_the_same_end() {
    let (calm, killed) = (play(Drive::Settle), play(Drive::KilledEachTime));
    assert_eq!(calm.len(), killed.len());
    for (calm, killed) in calm.iter().zip(&killed) {
        assert_eq!(calm, killed);
    }
}
