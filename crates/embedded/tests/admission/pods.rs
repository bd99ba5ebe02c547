//! What pods are given: account, token, priority, tolerations (O22); and where nothing may be made (O9).

use serde_json::{Value, json};

use crate::world::World;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

fn pod(name: &str, spec: Value) -> Value {
    let mut whole = json!({"containers": [{"name": "c", "image": "i"}]});
    for (field, value) in spec.as_object().unwrap() {
        whole[field] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole})
}

async fn account(world: &World, name: &str, more: Value) {
    let mut account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    for (field, value) in more.as_object().unwrap() {
        account[field] = value.clone();
    }
    let made = world.post("/api/v1/namespaces/default/serviceaccounts", account).await;
    // Where a controller makes the account `default`, it may be there already.
    assert!(made.code == 201 || (made.code == 409 && name == "default"), "{made:?}");
}

#[tokio::test]
async fn o22_a_pod_is_given_account_token_priority_and_tolerations() {
    let world = World::new();
    account(&world, "default", json!({})).await;
    let made = world.post(PODS, pod("p", json!({}))).await.ok();
    let spec = &made["spec"];
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["serviceAccount"], "default");
    assert_eq!(
        (&spec["priority"], &spec["preemptionPolicy"]),
        (&json!(0), &json!("PreemptLowerPriority"))
    );
    let volume = spec["volumes"][0]["name"].as_str().unwrap();
    assert!(volume.starts_with("kube-api-access-") && volume.len() == 21, "{volume}");
    assert_eq!(
        spec["containers"][0]["volumeMounts"],
        json!([{"name": volume, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}])
    );
    assert_eq!(
        spec["volumes"][0]["projected"]["sources"][0],
        json!({"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}})
    );
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(spec["tolerations"][1]["key"], "node.kubernetes.io/unreachable");
    assert_eq!(spec["tolerations"][1]["tolerationSeconds"], 300);
}

#[tokio::test]
async fn an_account_that_is_not_there_is_refused_in_the_references_words() {
    let world = World::new();
    world
        .post(PODS, pod("p", json!({"serviceAccountName": "none"})))
        .await
        .refused(
            403,
            r#"pods "p" is forbidden: error looking up service account default/none: serviceaccount "none" not found"#,
        );
}

#[tokio::test]
async fn the_account_default_may_still_be_on_its_way() {
    let world = World::new();
    let made = world.post(PODS, pod("p", json!({}))).await.ok();
    assert_eq!(made["spec"]["serviceAccountName"], "default");
}

#[tokio::test]
async fn tokens_are_mounted_as_the_pod_says_and_else_as_the_account_says() {
    let world = World::new();
    account(&world, "default", json!({})).await;
    account(
        &world,
        "quiet",
        json!({"automountServiceAccountToken": false, "imagePullSecrets": [{"name": "s"}]}),
    )
    .await;
    let quiet = world
        .post(PODS, pod("a", json!({"serviceAccountName": "quiet"})))
        .await
        .ok();
    assert_eq!(quiet["spec"]["volumes"], Value::Null);
    assert_eq!(quiet["spec"]["imagePullSecrets"], json!([{"name": "s"}]));
    let loud = json!({"serviceAccountName": "quiet", "automountServiceAccountToken": true, "imagePullSecrets": [{"name": "own"}]});
    let loud = world.post(PODS, pod("b", loud)).await.ok();
    assert!(loud["spec"]["volumes"].is_array());
    assert_eq!(loud["spec"]["imagePullSecrets"], json!([{"name": "own"}]));
    let none = world
        .post(PODS, pod("c", json!({"automountServiceAccountToken": false})))
        .await
        .ok();
    assert_eq!(none["spec"]["volumes"], Value::Null);
}

#[tokio::test]
async fn a_container_with_something_else_at_the_tokens_path_keeps_it() {
    let world = World::new();
    account(&world, "default", json!({})).await;
    let own = json!([{"name": "v", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]);
    let spec = json!({
        "initContainers": [{"name": "i", "image": "i"}],
        "containers": [{"name": "c", "image": "i", "volumeMounts": own}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    });
    let made = world.post(PODS, pod("p", spec)).await.ok();
    assert_eq!(
        made["spec"]["containers"][0]["volumeMounts"].as_array().unwrap().len(),
        1
    );
    assert_eq!(made["spec"]["containers"][0]["volumeMounts"][0]["name"], "v");
    assert_eq!(
        made["spec"]["initContainers"][0]["volumeMounts"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(made["spec"]["volumes"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn tolerations_of_the_pods_own_are_kept() {
    let world = World::new();
    let own = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]);
    let made = world.post(PODS, pod("p", json!({"tolerations": own}))).await.ok();
    let tolerations = made["spec"]["tolerations"].as_array().unwrap().clone();
    assert_eq!(tolerations.len(), 2);
    assert_eq!(tolerations[0]["tolerationSeconds"], 5);
    let made = world
        .post(PODS, pod("all", json!({"tolerations": [{"operator": "Exists"}]})))
        .await
        .ok();
    assert_eq!(made["spec"]["tolerations"].as_array().unwrap().len(), 1);
}

fn class(name: &str, value: i64, more: Value) -> Value {
    let mut class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value});
    for (field, value) in more.as_object().unwrap() {
        class[field] = value.clone();
    }
    class
}

#[tokio::test]
async fn priority_comes_from_the_class_that_is_named_or_from_the_default_one() {
    let world = World::new();
    world
        .post(CLASSES, class("high", 1000, json!({"preemptionPolicy": "Never"})))
        .await
        .ok();
    let high = world
        .post(PODS, pod("a", json!({"priorityClassName": "high"})))
        .await
        .ok();
    assert_eq!(
        (&high["spec"]["priority"], &high["spec"]["preemptionPolicy"]),
        (&json!(1000), &json!("Never"))
    );
    world
        .post(PODS, pod("b", json!({"priorityClassName": "nope"})))
        .await
        .refused(
            403,
            r#"pods "b" is forbidden: no PriorityClass with name nope was found"#,
        );
    world.post(PODS, pod("b", json!({"priorityClassName": "high", "priority": 7}))).await.refused(
        403,
        r#"pods "b" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name"#,
    );
    world
        .post(CLASSES, class("usual", 50, json!({"globalDefault": true})))
        .await
        .ok();
    let usual = world.post(PODS, pod("c", json!({}))).await.ok();
    assert_eq!(
        (&usual["spec"]["priority"], &usual["spec"]["priorityClassName"]),
        (&json!(50), &json!("usual"))
    );
    world.post(CLASSES, class("other", 60, json!({"globalDefault": true}))).await.refused(
        403,
        r#"priorityclasses.scheduling.k8s.io "other" is forbidden: PriorityClass usual is already marked as default. Only one default can exist"#,
    );
}

#[tokio::test]
async fn o9_first_namespaces_stay_and_a_missing_one_takes_nothing() {
    let world = World::new();
    for name in ["default", "kube-system", "kube-public"] {
        world.delete(&format!("/api/v1/namespaces/{name}")).await.refused(
            403,
            &format!("namespaces {name:?} is forbidden: this namespace may not be deleted"),
        );
    }
    let made = world.post("/api/v1/namespaces/nowhere/pods", pod("p", json!({}))).await;
    made.refused(404, r#"namespaces "nowhere" not found"#);
}

/// As on a real server, where a single delete is refused though one of all is not.
#[tokio::test]
async fn o22_the_systems_priority_classes_are_there_are_resolved_and_stay() {
    let world = World::new();
    for (name, value) in [
        ("system-cluster-critical", 2_000_000_000),
        ("system-node-critical", 2_000_001_000),
    ] {
        let path = format!("{CLASSES}/{name}");
        let class = world.get(&path).await.ok();
        assert_eq!(
            (&class["value"], &class["preemptionPolicy"]),
            (&json!(value), &json!("PreemptLowerPriority"))
        );
        let [entry] = class["metadata"]["managedFields"].as_array().unwrap().as_slice() else {
            panic!("{class}");
        };
        assert_eq!(entry["manager"], "kube-apiserver");
        assert_eq!(
            entry["fieldsV1"],
            json!({"f:description": {}, "f:preemptionPolicy": {}, "f:value": {}})
        );
        let made = world
            .post(PODS, pod(name, json!({"priorityClassName": name})))
            .await
            .ok();
        assert_eq!(made["spec"]["priority"], value);
        world.delete(&path).await.refused(
            403,
            &format!(
                "priorityclasses.scheduling.k8s.io \"{name}\" is forbidden: this is a system priority class and cannot be \
                 deleted"
            ),
        );
    }
    world.delete(CLASSES).await.ok();
    assert_eq!(world.get(CLASSES).await.ok()["items"], json!([]));
}
