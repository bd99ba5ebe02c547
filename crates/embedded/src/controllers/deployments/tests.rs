//! Steps of a deployment as tables: its sets as numbers, what the plan makes of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use serde_json::{Value, json};

use super::plan::{Plan, Seen, plan};

/// A deployment of image `new` with generation 1.
fn deployment(replicas: i32, surge: i32, unavailable: i32, change: &Value) -> Deployment {
    let mut deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 1},
        "spec": {"replicas": replicas, "progressDeadlineSeconds": 600, "selector": {"matchLabels": {"app": "web"}},
            "template": template("new"), "revisionHistoryLimit": 10, "strategy": {"type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}});
    json_patch::merge(&mut deployment, change);
    serde_json::from_value(deployment).unwrap()
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}})
}

/// A set of an image: how many are wanted, there, available; its revision is its number among them.
fn set(revision: i32, image: &str, (wanted, actual, available): (i32, i32, i32), desired: (i32, i32)) -> Arc<ReplicaSet> {
    let (desired, most) = (desired.0.to_string(), desired.1.to_string());
    Arc::new(
        serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {
                "name": format!("web-{revision}"), "namespace": "default", "uid": revision.to_string(), "generation": 1,
                "creationTimestamp": format!("2026-01-01T00:00:0{revision}Z"), "annotations": {
                    "deployment.kubernetes.io/revision": revision.to_string(),
                    "deployment.kubernetes.io/desired-replicas": desired,
                    "deployment.kubernetes.io/max-replicas": most}},
            "spec": {"replicas": wanted, "selector": {}, "template": template(image)},
            "status": {"replicas": actual, "readyReplicas": available, "availableReplicas": available,
                "observedGeneration": 1, "terminatingReplicas": 0}}))
        .unwrap(),
    )
}

fn decide(deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> Plan {
    plan(Seen {
        deployment,
        sets: sets.to_vec(),
        taken: &|_| false,
        busy: &BTreeSet::new(),
        now: "2026-01-01T01:00:00Z".parse().unwrap(),
    })
}

/// What is scaled: name, from, to. A set that is made has the name `new`.
fn scaled(plan: &Plan) -> Vec<(String, i32, i32)> {
    plan.sets
        .iter()
        .flat_map(|set| {
            let name = if set.is_made { "new" } else { set.name() };
            set.scaled.iter().map(move |(from, to)| (name.to_owned(), *from, *to))
        })
        .collect()
}

#[test]
fn c4_each_step_scales_what_the_limits_allow() {
    type Numbers = (i32, i32, i32);
    // Replicas, surge, unavailable; the old set, the new one if it is there; what is scaled.
    let rows: &[(&str, (i32, i32, i32), Numbers, Option<Numbers>, &[(&str, i32, i32)])] = &[
        ("a new set within the surge", (3, 1, 0), (3, 3, 3), None, &[("new", 0, 1)]),
        ("and without one", (3, 0, 1), (3, 3, 3), None, &[("web-1", 3, 2)]),
        ("both at once", (4, 1, 1), (4, 4, 4), None, &[("new", 0, 1), ("web-1", 4, 3)]),
        ("nothing while the new one is not available", (3, 1, 0), (3, 3, 3), Some((1, 1, 0)), &[]),
        ("down when it is", (3, 1, 0), (3, 3, 3), Some((1, 1, 1)), &[("web-1", 3, 2)]),
        ("up again", (3, 1, 0), (2, 2, 2), Some((1, 1, 1)), &[("web-2", 1, 2)]),
        ("those that are not available go at once", (4, 1, 1), (4, 4, 3), Some((1, 1, 0)), &[("web-1", 4, 3)]),
        ("and then those that are", (4, 1, 1), (4, 4, 3), Some((1, 1, 1)), &[("web-1", 4, 3), ("web-1", 3, 2)]),
        (
            "a status that is older than the size does not count twice",
            (4, 1, 1),
            (3, 4, 4),
            Some((2, 2, 1)),
            &[("web-1", 3, 2)],
        ),
        ("the last one", (3, 1, 0), (1, 1, 1), Some((3, 3, 3)), &[("web-1", 1, 0)]),
        ("a new set that is too large shrinks", (3, 1, 0), (0, 0, 0), Some((4, 4, 4)), &[("web-2", 4, 3)]),
    ];
    for (what, (replicas, surge, unavailable), old, new, wanted) in rows {
        let deployment = deployment(*replicas, *surge, *unavailable, &json!({}));
        let desired = (*replicas, replicas + surge);
        let mut sets = vec![set(1, "old", *old, desired)];
        sets.extend(new.map(|new| set(2, "new", new, desired)));
        let wanted: Vec<_> = wanted.iter().map(|(name, from, to)| ((*name).to_owned(), *from, *to)).collect();
        assert_eq!(scaled(&decide(&deployment, &sets)), wanted, "{what}");
    }
}

#[test]
fn c4_scaled_in_mid_roll_sets_are_scaled_by_their_shares_and_the_largest_gets_the_rest() {
    let deployment = deployment(15, 3, 2, &json!({}));
    let sets = [set(1, "old", (8, 8, 8), (10, 13)), set(2, "new", (5, 5, 0), (10, 13))];
    let plan = decide(&deployment, &sets);
    assert_eq!(
        scaled(&plan),
        [("web-2".to_owned(), 5, 7), ("web-1".to_owned(), 8, 11)],
        "8 and 5 of 13 become 11 and 7 of 18"
    );
    for set in &plan.sets {
        assert_eq!((set.desired(), set.most()), (Some(15), Some(18)));
    }
    // When all new ones are available, the old ones just go.
    let sets = [set(1, "old", (1, 1, 1), (10, 13)), set(2, "new", (15, 15, 15), (15, 18))];
    assert_eq!(scaled(&decide(&deployment, &sets)), [("web-1".to_owned(), 1, 0)]);
}

#[test]
fn c4_a_new_set_has_the_hash_the_notes_and_the_next_revision() {
    let mut deployment = deployment(3, 1, 0, &json!({}));
    deployment.metadata.annotations = Some(
        [
            ("a", "b"),
            ("kubectl.kubernetes.io/last-applied-configuration", "{}"),
            ("deployment.kubernetes.io/revision", "4"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
    );
    let plan = decide(&deployment, &[set(4, "old", (3, 3, 3), (3, 4))]);
    assert_eq!(plan.revision.as_deref(), Some("5"));
    let made = serde_json::to_value(&plan.sets[0].object).unwrap();
    let hash = made["metadata"]["labels"]["pod-template-hash"].as_str().unwrap();
    assert_eq!(made["metadata"]["name"], format!("web-{hash}"));
    assert_eq!(
        made["metadata"]["annotations"],
        json!({"a": "b", "deployment.kubernetes.io/revision": "5", "deployment.kubernetes.io/desired-replicas": "3",
            "deployment.kubernetes.io/max-replicas": "4"})
    );
    let labels = json!({"app": "web", "pod-template-hash": hash});
    assert_eq!(made["metadata"]["labels"], labels);
    assert_eq!(made["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(made["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "d");
}

#[test]
fn c4_recreate_takes_all_old_pods_and_waits_for_them() {
    let deployment = deployment(3, 0, 0, &json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}));
    let old = |numbers| [set(1, "old", numbers, (3, 3))];
    assert_eq!(scaled(&decide(&deployment, &old((3, 3, 3)))), [("web-1".to_owned(), 3, 0)]);
    assert!(scaled(&decide(&deployment, &old((0, 1, 0)))).is_empty(), "one is still there");
    let busy = BTreeSet::from(["1".to_owned()]);
    let waiting = plan(Seen {
        deployment: &deployment,
        sets: old((0, 0, 0)).to_vec(),
        taken: &|_| false,
        busy: &busy,
        now: "2026-01-01T01:00:00Z".parse().unwrap(),
    });
    assert!(scaled(&waiting).is_empty(), "one still goes");
    assert_eq!(scaled(&decide(&deployment, &old((0, 0, 0)))), [("new".to_owned(), 0, 3)]);
}

#[test]
fn c4_a_name_that_is_taken_is_counted_and_nothing_is_made() {
    let deployment = deployment(3, 1, 0, &json!({"status": {"collisionCount": 2}}));
    let collided = plan(Seen {
        deployment: &deployment,
        sets: Vec::new(),
        taken: &|_| true,
        busy: &BTreeSet::new(),
        now: "2026-01-01T01:00:00Z".parse().unwrap(),
    });
    assert!(collided.sets.is_empty());
    assert_eq!(collided.status.collision_count, Some(3));
}
