//! Which webhooks are asked, in which order, and what comes of their answers: with handlers in this process.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use usher_embedded::Options;
use usher_embedded::clock::{Clock, ManualClock};

use crate::server::answer;
use crate::world::World;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// What a webhook was asked, in order.
type Asked = Arc<Mutex<Vec<Value>>>;

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

/// A handler that says yes and remembers what it was asked.
fn listen(world: &World, name: &str) -> Asked {
    respond(world, name, |_| json!({"allowed": true}))
}

fn respond(world: &World, name: &str, response: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Asked {
    let asked = Asked::default();
    let kept = asked.clone();
    world
        .cluster()
        .handle_webhook(&format!("https://in.process/{name}"), move |review| {
            kept.lock().unwrap().push(review["request"].clone());
            let whole = answer(&review, response(&review["request"]));
            async move { whole }
        });
    asked
}

fn patch(operations: &Value) -> Value {
    let text = base64::engine::general_purpose::STANDARD.encode(operations.to_string());
    json!({"allowed": true, "patchType": "JSONPatch", "patch": text})
}

fn count(asked: &Asked) -> usize {
    asked.lock().unwrap().len()
}

#[tokio::test]
async fn rules_decide_by_operation_group_version_resource_and_scope() {
    let rule = |operations: &[&str], groups: &[&str], versions: &[&str], resources: &[&str], scope: &str| json!({"operations": operations, "apiGroups": groups, "apiVersions": versions, "resources": resources, "scope": scope});
    // A rule, and how often it is asked about a create, an update and a delete of a ConfigMap, a create of a Namespace,
    // and a write of a node's status.
    let table = [
        (rule(&["CREATE"], &[""], &["v1"], &["configmaps"], "*"), [1, 0, 0, 0, 0]),
        (
            rule(&["UPDATE", "DELETE"], &[""], &["v1"], &["configmaps"], "*"),
            [0, 1, 1, 0, 0],
        ),
        (rule(&["*"], &["*"], &["*"], &["*"], "*"), [1, 1, 1, 1, 0]),
        (rule(&["*"], &["*"], &["*"], &["*/*"], "*"), [1, 1, 1, 1, 1]),
        (rule(&["*"], &["*"], &["*"], &["*"], "Cluster"), [0, 0, 0, 1, 0]),
        (rule(&["*"], &["*"], &["*"], &["*"], "Namespaced"), [1, 1, 1, 0, 0]),
        (rule(&["*"], &[""], &["v1"], &["nodes/status"], "*"), [0, 0, 0, 0, 1]),
        (rule(&["*"], &[""], &["v1"], &["*/status"], "*"), [0, 0, 0, 0, 1]),
        (rule(&["*"], &[""], &["v1"], &["nodes/*"], "*"), [0, 0, 0, 0, 1]),
        (rule(&["*"], &["apps"], &["*"], &["*"], "*"), [0, 0, 0, 0, 0]),
        (rule(&["*"], &[""], &["v2"], &["*"], "*"), [0, 0, 0, 0, 0]),
    ];
    for (rule, expected) in table {
        let world = World::new();
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
        world.post("/api/v1/nodes", node).await.ok();
        let asked = listen(&world, "h");
        world.hook("Validating", "h", json!({"rules": [rule]})).await.ok();
        let mut counts = Vec::new();
        let mut before = 0;
        let mut step = || {
            counts.push(count(&asked) - before);
            before = count(&asked);
        };
        world.post(MAPS, map("m")).await.ok();
        step();
        world
            .merge(&format!("{MAPS}/m"), json!({"data": {"c": "d"}}))
            .await
            .ok();
        step();
        world.delete(&format!("{MAPS}/m")).await.ok();
        step();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}});
        world.post("/api/v1/namespaces", namespace).await.ok();
        step();
        world
            .merge("/api/v1/nodes/n/status", json!({"status": {"phase": "Running"}}))
            .await
            .ok();
        step();
        assert_eq!(counts, expected, "{rule}");
    }
}

#[tokio::test]
async fn webhooks_are_never_asked_about_what_runs_the_cluster() {
    let world = World::new();
    let asked = listen(&world, "h");
    world.hook("Validating", "h", json!({})).await.ok();
    world.hook("Mutating", "h", json!({})).await.ok();
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
    world
        .post("/apis/coordination.k8s.io/v1/namespaces/default/leases", lease)
        .await
        .ok();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    world
        .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        .await
        .ok();
    world
        .delete("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/h")
        .await
        .ok();
    assert_eq!(count(&asked), 0);
    world.post(MAPS, map("m")).await.ok();
    assert_eq!(count(&asked), 1);
}

#[tokio::test]
async fn selectors_look_at_the_namespace_and_at_the_object_before_and_after() {
    let world = World::new();
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "red", "labels": {"colour": "red"}}});
    world.post("/api/v1/namespaces", namespace).await.ok();
    let in_red = listen(&world, "in-red");
    let labelled = listen(&world, "labelled");
    let selector = json!({"matchLabels": {"colour": "red"}});
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "namespaces"], "operations": ["*"]}]);
    world
        .hook(
            "Validating",
            "in-red",
            json!({"namespaceSelector": selector, "rules": rules}),
        )
        .await
        .ok();
    world
        .hook(
            "Validating",
            "labelled",
            json!({"objectSelector": selector, "rules": rules}),
        )
        .await
        .ok();
    world.post(MAPS, map("m")).await.ok();
    world.post("/api/v1/namespaces/red/configmaps", map("m")).await.ok();
    assert_eq!((count(&in_red), count(&labelled)), (1, 0));
    let path = format!("{MAPS}/m");
    world
        .merge(&path, json!({"metadata": {"labels": {"colour": "red"}}}))
        .await
        .ok();
    world.merge(&path, json!({"metadata": {"labels": null}})).await.ok();
    world.merge(&path, json!({"data": {"x": "y"}})).await.ok();
    assert_eq!((count(&in_red), count(&labelled)), (1, 2));
    // A namespace is judged by the labels that it is written with.
    world
        .merge(
            "/api/v1/namespaces/red",
            json!({"metadata": {"labels": {"colour": "blue"}}}),
        )
        .await
        .ok();
    assert_eq!((count(&in_red), count(&labelled)), (1, 3));
    // A kind without namespaces is not left out by their selector.
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let all = listen(&world, "nodes");
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["*"]}]);
    world
        .hook(
            "Validating",
            "nodes",
            json!({"namespaceSelector": selector, "rules": rules}),
        )
        .await
        .ok();
    world.post("/api/v1/nodes", node).await.ok();
    assert_eq!(count(&all), 1);
}

#[tokio::test]
async fn conditions_speak_of_the_objects_and_the_request() {
    let table = [
        ("object.metadata.name == 'm'", true),
        ("oldObject == null", true),
        (
            "request.operation == 'CREATE' && request.userInfo.username == 'usher-admin'",
            true,
        ),
        ("request.kind.kind == 'Secret'", false),
        ("'a' in object.data && object.data.all(key, key.startsWith('a'))", true),
        ("!has(object.data) || object.data.size() > 5", false),
    ];
    for (expression, expected) in table {
        let world = World::new();
        let asked = listen(&world, "h");
        let conditions = json!([{"name": "c", "expression": expression}]);
        world
            .hook("Validating", "h", json!({"matchConditions": conditions}))
            .await
            .ok();
        world.post(MAPS, map("m")).await.ok();
        assert_eq!(count(&asked) == 1, expected, "{expression}");
    }
}

#[tokio::test]
async fn a_condition_that_fails_refuses_the_write_or_is_passed_over_by_policy() {
    let world = World::new();
    let asked = listen(&world, "h");
    let conditions = json!([{"name": "c", "expression": "object.spec.x == 1"}]);
    world
        .hook(
            "Mutating",
            "h",
            json!({"matchConditions": conditions, "failurePolicy": "Ignore"}),
        )
        .await
        .ok();
    world.post(MAPS, map("m")).await.ok();
    assert_eq!(count(&asked), 0);
    world
        .hook("Mutating", "strict", json!({"matchConditions": conditions}))
        .await
        .ok();
    world.post(MAPS, map("n")).await.refused(
        403,
        r#"configmaps "n" is forbidden: expression 'object.spec.x == 1' resulted in error: no such key: spec"#,
    );
}

#[tokio::test]
async fn a_condition_that_cannot_be_read_refuses_the_configuration() {
    let world = World::new();
    for expression in [
        "object.",
        "objekt == null",
        "authorizer.group('').resource('pods').check('get').allowed()",
    ] {
        let conditions = json!([{"name": "c", "expression": expression}]);
        let refused = world
            .hook("Validating", "h", json!({"matchConditions": conditions}))
            .await;
        assert_eq!(refused.code, 422, "{expression}: {refused:?}");
        let cause = &refused.body["details"]["causes"][0];
        assert_eq!(cause["field"], "webhooks[0].matchConditions[0].expression");
        assert!(
            cause["message"].as_str().unwrap().contains("compilation failed: "),
            "{cause}"
        );
    }
}

#[tokio::test]
async fn a_change_of_a_configuration_holds_for_the_next_request() {
    let world = World::new();
    let asked = respond(&world, "h", |_| json!({"allowed": false}));
    world.hook("Validating", "h", json!({})).await.ok();
    world.post(MAPS, map("m")).await.refused(
        400,
        r#"admission webhook "h.hooks.test" denied the request without explanation"#,
    );
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/h";
    let configuration = world.get(path).await.ok();
    let mut hooks = configuration["webhooks"].clone();
    hooks[0]["rules"][0]["operations"] = json!(["DELETE"]);
    world.merge(path, json!({"webhooks": hooks})).await.ok();
    world.post(MAPS, map("m")).await.ok();
    assert_eq!(count(&asked), 1);
    world.delete(path).await.ok();
    world.delete(&format!("{MAPS}/m")).await.ok();
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

#[tokio::test]
async fn warnings_of_all_webhooks_are_passed_on() {
    let world = World::new();
    for (kind, name) in [("Mutating", "a"), ("Validating", "b"), ("Validating", "c")] {
        respond(
            &world,
            name,
            move |_| json!({"allowed": true, "warnings": [format!("by {name}")]}),
        );
        world.hook(kind, name, json!({})).await.ok();
    }
    let made = world.post(MAPS, map("m")).await;
    assert_eq!(made.warnings, ["by a", "by b", "by c"]);
}

#[tokio::test]
async fn o11_a_dry_run_is_told_and_stores_nothing() {
    let world = World::new();
    let asked = listen(&world, "h");
    world
        .hook("Validating", "h", json!({"sideEffects": "NoneOnDryRun"}))
        .await
        .ok();
    world.post(&format!("{MAPS}?dryRun=All"), map("m")).await.ok();
    world.post(MAPS, map("m")).await.ok();
    let dry: Vec<Value> = asked
        .lock()
        .unwrap()
        .iter()
        .map(|request| request["dryRun"].clone())
        .collect();
    assert_eq!(dry, [true, false]);
}

fn frozen() -> (World, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_second(1_800_000_000).unwrap());
    let options = Options {
        clock: Clock::Manual(clock.clone()),
        ..Options::default()
    };
    (World::with(options), clock)
}

#[tokio::test]
async fn a_webhook_that_never_answers_is_waited_for_as_long_as_it_says() {
    for (policy, code) in [("Fail", 500), ("Ignore", 201)] {
        let (world, clock) = frozen();
        world
            .cluster()
            .handle_webhook("https://in.process/h", |_| std::future::pending());
        let hook = json!({"timeoutSeconds": 7, "failurePolicy": policy});
        world.hook("Validating", "h", hook).await.ok();
        let mut request = std::pin::pin!(world.post(MAPS, map("m")));
        assert!(futures::poll!(&mut request).is_pending());
        clock.advance(SignedDuration::from_secs(6));
        assert!(futures::poll!(&mut request).is_pending());
        clock.advance(SignedDuration::from_secs(1));
        let answer = request.await;
        assert_eq!(answer.code, code, "{answer:?}");
        if code == 500 {
            assert_eq!(
                answer.message(),
                r#"Internal error occurred: failed calling webhook "h.hooks.test": failed to call webhook: Post "https://in.process/h?timeout=7s": context deadline exceeded"#
            );
        }
    }
}

#[tokio::test]
async fn validating_webhooks_are_asked_at_the_same_time() {
    let world = World::new();
    let meeting = Arc::new(tokio::sync::Barrier::new(2));
    for name in ["a", "b"] {
        let meeting = meeting.clone();
        world
            .cluster()
            .handle_webhook(&format!("https://in.process/{name}"), move |review| {
                let meeting = meeting.clone();
                async move {
                    meeting.wait().await;
                    answer(&review, json!({"allowed": true}))
                }
            });
        world.hook("Validating", name, json!({})).await.ok();
    }
    world.post(MAPS, map("m")).await.ok();
}

#[tokio::test]
async fn a_service_of_the_cluster_can_be_answered_in_process_too() {
    let world = World::new();
    world
        .cluster()
        .handle_webhook("https://hooks.default.svc:443/admit", |review| async move {
            answer(&review, json!({"allowed": false, "status": {"message": "by service"}}))
        });
    let client = json!({"service": {"namespace": "default", "name": "hooks", "path": "/admit"}});
    world
        .hook("Validating", "h", json!({"clientConfig": client}))
        .await
        .ok();
    world.post(MAPS, map("m")).await.refused(
        400,
        r#"admission webhook "h.hooks.test" denied the request: by service"#,
    );
}

#[tokio::test]
async fn the_older_version_of_reviews_is_spoken_to_those_who_know_no_other() {
    let world = World::new();
    world
        .cluster()
        .handle_webhook("https://in.process/h", |review| async move {
            assert_eq!(review["apiVersion"], "admission.k8s.io/v1beta1");
            // Neither uid nor patchType is asked for.
            let operations = json!([{"op": "add", "path": "/data/x", "value": "y"}]).to_string();
            let patch = base64::engine::general_purpose::STANDARD.encode(operations);
            json!({"response": {"allowed": true, "patch": patch}})
        });
    let hook = json!({"admissionReviewVersions": ["v1beta1"]});
    world.hook("Mutating", "h", hook).await.ok();
    let made = world.post(MAPS, map("m")).await.ok();
    assert_eq!(made["data"]["x"], "y");
}
