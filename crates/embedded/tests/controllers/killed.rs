//! Killing the controllers between any two writes is harmless (E3): started again at any point of a story, they come to the
//! same end as if they had never stopped.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::world::{PODS, World};

/// Everything that the controllers of this part have to do with.
fn story(world: &mut World, mut between: impl FnMut(&mut World)) {
    let mut step = |world: &mut World| between(world);
    for name in ["n1", "n2"] {
        world.node(name, &json!({}));
        step(world);
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "more"}});
    world.post("/api/v1/namespaces", &namespace);
    step(world);
    world.service(
        "web",
        &json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}),
    );
    step(world);
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    world.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget);
    step(world);
    for (name, class) in [
        ("bound", "standard"),
        ("gone", "standard-immediate"),
        ("kept", "retain"),
    ] {
        let body = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name,
                "annotations": {"volume.kubernetes.io/selected-node": "n1"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": {"requests": {"storage": "1Gi"}}}});
        world.post("/api/v1/namespaces/default/persistentvolumeclaims", &body);
        step(world);
    }
    for number in 0..4 {
        let name = format!("p{number}");
        world.pod(
            &name,
            &json!({"app": "web"}),
            &json!({"nodeName": if number < 2 { "n1" } else { "n2" }}),
        );
        world.pod_says(&name, &format!("10.0.0.{}", number + 1), number != 1);
        step(world);
    }
    for name in ["gone", "kept"] {
        world.delete(&format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}"));
        step(world);
    }
    let token = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "t", "annotations": {"kubernetes.io/service-account.name": "default"}}});
    world.post("/api/v1/namespaces/default/secrets", &token);
    step(world);
    world.patch(
        "/api/v1/nodes/n1",
        &json!({"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}}),
    );
    step(world);
    world.delete(&format!("{PODS}/p3"));
    step(world);
    world.node_says("n2", "False");
    step(world);
}

/// All objects of these kinds, without what says when, in which order or by which name they were made.
fn state(world: &World) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for (kind, is_named) in [
        ("/api/v1/pods", true),
        ("/api/v1/nodes", true),
        ("/api/v1/endpoints", true),
        ("/api/v1/serviceaccounts", true),
        ("/api/v1/configmaps", true),
        ("/api/v1/secrets", true),
        ("/api/v1/persistentvolumeclaims", true),
        ("/api/v1/persistentvolumes", false),
        ("/apis/discovery.k8s.io/v1/endpointslices", false),
        ("/apis/policy/v1/poddisruptionbudgets", true),
    ] {
        let mut items = world.list(kind);
        for item in &mut items {
            plain(item);
        }
        items.sort_by_key(ToString::to_string);
        for (number, item) in items.into_iter().enumerate() {
            let name = if is_named {
                item["metadata"]["name"].to_string()
            } else {
                number.to_string()
            };
            let namespace = item["metadata"]["namespace"].to_string();
            all.insert(format!("{kind} {namespace} {name}"), item);
        }
    }
    all
}

const BY_CHANCE: [&str; 13] = [
    "lastHeartbeatTime",
    "uid",
    "resourceVersion",
    "managedFields",
    "creationTimestamp",
    "generation",
    "observedGeneration",
    "token",
    "lastTransitionTime",
    "lastPhaseTransitionTime",
    "timeAdded",
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubernetes.io/service-account.uid",
];

/// Takes out what a restart may change: uids, names from uids, times.
fn plain(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !BY_CHANCE.contains(&key.as_str()));
            if map.contains_key("generateName") {
                map.remove("name");
            }
            if let Some(time) = map.get_mut("deletionTimestamp") {
                *time = "some time".into();
            }
            map.values_mut().for_each(plain);
            map.retain(|_, value| value != &json!({}));
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        Value::String(text) if text.starts_with("pvc-") => "a volume".clone_into(text),
        Value::String(text) if text.starts_with("kube-api-access-") => "a token".clone_into(text),
        _ => {}
    }
}

fn same(found: &BTreeMap<String, Value>, wanted: &BTreeMap<String, Value>, when: &str) {
    let keys = |state: &BTreeMap<String, Value>| state.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(found), keys(wanted), "{when}");
    for (key, wanted) in wanted {
        assert_eq!(&found[key], wanted, "{when}: {key}");
    }
}

/// Goes on sync by sync until nothing is left to do now.
fn crawl(world: &mut World) {
    for _ in 0..2_000 {
        let ready = world.manual.ready();
        let Some(first) = ready.first() else { return };
        let id = first.id.clone();
        assert!(futures::executor::block_on(world.manual.run(&id)));
    }
    panic!("it never ends");
}

fn never_killed() -> BTreeMap<String, Value> {
    let mut world = World::new();
    story(&mut world, World::rest);
    world.rest();
    state(&world)
}

#[test]
fn e3_controllers_that_are_started_anew_before_every_step_come_to_the_same_end() {
    let end = never_killed();
    let mut world = World::new();
    story(&mut world, |world| {
        world.manual.restart_controllers();
        world.rest();
    });
    world.rest();
    same(&state(&world), &end, "started anew before every step");
}

#[test]
fn e3_controllers_that_are_started_anew_after_every_write_come_to_the_same_end() {
    let end = never_killed();
    let mut world = World::new();
    story(&mut world, |world| {
        let mut syncs = 0;
        loop {
            let before = world.writes();
            let ready = world.manual.ready();
            let mut wrote = false;
            for work in &ready {
                futures::executor::block_on(world.manual.run(&work.id));
                syncs += 1;
                assert!(syncs < 20_000, "it never ends");
                if world.writes() != before {
                    wrote = true;
                    break;
                }
            }
            if !wrote {
                break;
            }
            world.manual.restart_controllers();
        }
        crawl(world);
    });
    world.rest();
    same(&state(&world), &end, "started anew after every write");
}
