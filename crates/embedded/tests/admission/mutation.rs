//! What mutating webhooks do to an object, and what is done after them: with handlers in this process.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::hooks::{MAPS, count, listen, map, respond};
use crate::world::World;

fn patch(operations: &Value) -> Value {
    let text = base64::engine::general_purpose::STANDARD.encode(operations.to_string());
    json!({"allowed": true, "patchType": "JSONPatch", "patch": text})
}

#[tokio::test]
async fn mutating_webhooks_go_one_after_the_other_and_each_sees_what_the_last_did() {
    let world = World::new();
    for name in ["b", "a", "c"] {
        respond(&world, name, move |request| {
            let so_far = request["object"]["data"]["order"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            patch(&json!([{"op": "add", "path": "/data/order", "value": so_far + name}]))
        });
        world.hook("Mutating", name, json!({})).await.ok();
    }
    let validated = listen(&world, "v");
    world.hook("Validating", "v", json!({})).await.ok();
    let made = world.post(MAPS, map("m")).await.ok();
    assert_eq!(made["data"]["order"], "abc");
    let seen = validated.lock().unwrap()[0].clone();
    assert_eq!(seen["object"]["data"]["order"], "abc");
}

#[tokio::test]
async fn who_asked_for_it_is_asked_once_more_if_others_changed_the_object() {
    let world = World::new();
    let asked = |name: &str, value: &'static str, policy: &str| {
        let asked = respond(&world, name, move |request| {
            match request["object"]["data"].get(value) {
                Some(_) => json!({"allowed": true}),
                None => patch(&json!([{"op": "add", "path": format!("/data/{value}"), "value": "x"}])),
            }
        });
        (asked, json!({"reinvocationPolicy": policy}))
    };
    let (first, first_hook) = asked("a", "one", "IfNeeded");
    let (second, second_hook) = asked("b", "two", "Never");
    let (third, third_hook) = asked("c", "three", "IfNeeded");
    for (name, hook) in [("a", first_hook), ("b", second_hook), ("c", third_hook)] {
        world.hook("Mutating", name, hook).await.ok();
    }
    world.post(MAPS, map("m")).await.ok();
    // The third was the last to change it.
    assert_eq!((count(&first), count(&second), count(&third)), (2, 1, 1));
    assert_eq!(first.lock().unwrap()[1]["object"]["data"]["three"], "x");
    // Nobody changes anything: nobody is asked again.
    world
        .merge(&format!("{MAPS}/m"), json!({"data": {"z": "z"}}))
        .await
        .ok();
    assert_eq!((count(&first), count(&second), count(&third)), (3, 2, 2));
}

#[tokio::test]
async fn a_patched_object_is_defaulted_and_goes_through_the_steps_again() {
    let world = World::new();
    respond(&world, "classes", |_| {
        patch(&json!([{"op": "remove", "path": "/preemptionPolicy"}]))
    });
    let rules = json!([{"apiGroups": ["scheduling.k8s.io"], "apiVersions": ["v1"], "resources": ["*"], "operations": ["CREATE"]}]);
    world.hook("Mutating", "classes", json!({"rules": rules})).await.ok();
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "c"},
        "value": 1, "preemptionPolicy": "Never"});
    let made = world
        .post("/apis/scheduling.k8s.io/v1/priorityclasses", class)
        .await
        .ok();
    assert_eq!(made["preemptionPolicy"], "PreemptLowerPriority");

    let sidecar = json!({"name": "sidecar", "image": "s"});
    respond(&world, "pods", move |_| {
        patch(&json!([{"op": "add", "path": "/spec/containers/-", "value": sidecar}]))
    });
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]);
    world.hook("Mutating", "pods", json!({"rules": rules})).await.ok();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = world.post("/api/v1/namespaces/default/pods", pod).await.ok();
    let mounts = &made["spec"]["containers"][1]["volumeMounts"];
    assert_eq!(mounts[0]["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
    assert_eq!(made["spec"]["volumes"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_mutating_webhook_sees_no_address_and_no_uid_and_cannot_choose_them() {
    let world = World::new();
    let asked = respond(&world, "h", |_| {
        patch(&json!([{"op": "add", "path": "/metadata/uid", "value": "mine"}]))
    });
    world.hook("Mutating", "h", json!({})).await.ok();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"type": "ClusterIP", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]}});
    let made = world.post("/api/v1/namespaces/default/services", service).await.ok();
    let seen = asked.lock().unwrap()[0]["object"].clone();
    assert_eq!(
        (&seen["metadata"]["uid"], &seen["spec"]["clusterIP"]),
        (&Value::Null, &Value::Null)
    );
    assert_ne!(made["metadata"]["uid"], "mine");
    assert!(made["spec"]["clusterIP"].is_string());
}

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A kind with two served versions, of which the first is stored.
async fn define(world: &World) {
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer", "default": 3, "maximum": 9}, "colour": {"type": "string", "default": "red"}}},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        }}}})
    };
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [version("v1", true), version("v1beta1", false)]}});
    let made = world
        .post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        .await;
    made.ok();
    // Served as soon as it was answered (A3).
    world.get(WIDGETS).await.ok();
}

fn widget(version: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

#[tokio::test]
async fn custom_resources_are_shown_in_the_version_that_the_rule_names_and_checked_after() {
    let world = World::new();
    let asked = respond(&world, "h", |request| {
        match request["object"]["spec"]["colour"].as_str() {
            Some("red") => patch(
                &json!([{"op": "remove", "path": "/spec/size"}, {"op": "replace", "path": "/spec/colour", "value": "blue"}]),
            ),
            Some("huge") => patch(&json!([{"op": "replace", "path": "/spec/size", "value": 10}])),
            _ => json!({"allowed": true}),
        }
    });
    let rules = json!([{"apiGroups": ["example.com"], "apiVersions": ["v1beta1"], "resources": ["widgets", "widgets/status"], "operations": ["*"]}]);
    world.hook("Mutating", "h", json!({"rules": rules})).await.ok();
    define(&world).await;
    assert_eq!(count(&asked), 0, "never about definitions");
    let made = world.post(WIDGETS, widget("v1", json!({"size": 5}))).await.ok();
    let seen = asked.lock().unwrap()[0].clone();
    assert_eq!(seen["object"]["apiVersion"], "example.com/v1beta1");
    assert_eq!(
        (&seen["kind"]["version"], &seen["requestKind"]["version"]),
        (&json!("v1beta1"), &json!("v1"))
    );
    // Defaulted again, in the version of the request.
    assert_eq!(made["apiVersion"], "example.com/v1");
    assert_eq!(made["spec"], json!({"size": 3, "colour": "blue"}));
    let path = format!("{WIDGETS}/w");
    let broken = world.merge(&path, json!({"spec": {"colour": "huge"}})).await;
    broken.refused(
        422,
        r#"Widget.example.com "w" is invalid: spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9"#,
    );
    world
        .merge(&format!("{path}/status"), json!({"status": {"phase": "x"}}))
        .await
        .ok();
    let last = asked.lock().unwrap().last().unwrap().clone();
    assert_eq!(
        (&last["subResource"], &last["operation"]),
        (&json!("status"), &json!("UPDATE"))
    );
    world
        .hook("Mutating", "exact", json!({"rules": rules, "matchPolicy": "Exact"}))
        .await
        .ok();
    let exact = listen(&world, "exact");
    world.delete(&path).await.ok();
    assert_eq!(count(&exact), 0);
    assert_eq!(asked.lock().unwrap().last().unwrap()["operation"], "DELETE");
}

/// A webhook that sets one field of what is made.
async fn sets(path: &str, value: Value) -> World {
    let world = World::new();
    let patch = json!([{"op": "add", "path": path, "value": value}]).to_string();
    let patch = base64::engine::general_purpose::STANDARD.encode(patch);
    respond(
        &world,
        "m",
        move |_| json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}),
    );
    let rules = json!([{"apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"], "operations": ["*"]}]);
    world.hook("Mutating", "m", json!({"rules": rules})).await.ok();
    world
}

#[tokio::test]
async fn a_webhook_cannot_put_an_object_elsewhere() {
    let elsewhere = "the namespace of the provided object does not match the namespace sent on the request";
    let world = sets("/metadata/namespace", json!("kube-system")).await;
    world.post(MAPS, map("m")).await.refused(400, elsewhere);
    let apply = format!("{MAPS}/m?fieldManager=a");
    let kind = "application/apply-patch+yaml";
    let applied = world.send(http::Method::PATCH, &apply, kind, &map("m")).await;
    applied.refused(400, elsewhere);
    for namespace in ["default", "kube-system"] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/m");
        assert_eq!(world.get(&path).await.code, 404, "{namespace}");
    }
}

#[tokio::test]
async fn a_webhook_may_name_what_is_made_but_not_what_the_path_names() {
    let world = sets("/metadata/name", json!("renamed")).await;
    let made = world.post(MAPS, map("m")).await.ok();
    assert_eq!(made["metadata"]["name"], "renamed");
    assert_eq!(world.get(&format!("{MAPS}/renamed")).await.code, 200);
    let apply = format!("{MAPS}/n?fieldManager=a");
    let kind = "application/apply-patch+yaml";
    let applied = world.send(http::Method::PATCH, &apply, kind, &map("n")).await;
    applied.refused(
        400,
        "the name of the object (renamed) does not match the name on the URL (n)",
    );
    assert_eq!(world.get(&format!("{MAPS}/n")).await.code, 404);
}
