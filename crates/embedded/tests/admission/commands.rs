//! Webhooks and commands: an eviction or a binding is what is asked about, not what comes of it.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::hooks::{Asked, listen, respond};
use crate::world::World;

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// A ready pod under a budget that allows one disruption.
async fn guarded(world: &World) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    world.post("/api/v1/namespaces/default/serviceaccounts", account).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    world.post(PODS, pod).await.ok();
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    world.merge(&format!("{PODS}/p/status"), status).await.ok();
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "minAvailable": 0}});
    world.post(BUDGETS, budget).await.ok();
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 1,
        "desiredHealthy": 0, "expectedPods": 1}});
    world.merge(&format!("{BUDGETS}/b/status"), status).await.ok();
}

fn eviction() -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "default"}})
}

fn binding() -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}})
}

/// Operation, resource with subresource, and kind of each question about pods.
fn about_pods(asked: &Asked) -> Vec<String> {
    let asked = asked.lock().unwrap();
    let about = asked.iter().filter(|request| request["resource"]["resource"] == "pods");
    about
        .map(|request| {
            format!(
                "{} pods/{} {}/{} {}",
                request["operation"].as_str().unwrap(),
                request["subResource"].as_str().unwrap_or_default(),
                request["kind"]["group"].as_str().unwrap(),
                request["kind"]["version"].as_str().unwrap(),
                request["object"]["kind"].as_str().unwrap_or_default()
            )
        })
        .collect()
}

#[tokio::test]
async fn webhooks_are_asked_about_an_eviction_and_not_about_the_delete_in_it() {
    let world = World::new();
    guarded(&world).await;
    let asked = listen(&world, "h");
    world.hook("Validating", "h", json!({})).await.ok();
    world.hook("Mutating", "h", json!({})).await.ok();
    world.post(&format!("{PODS}/p/eviction"), eviction()).await.ok();
    let about = "CREATE pods/eviction policy/v1 Eviction";
    assert_eq!(about_pods(&asked), [about, about]);
    assert_eq!(world.get(&format!("{PODS}/p")).await.code, 404);
}

#[tokio::test]
async fn a_webhook_that_refuses_an_eviction_leaves_pod_and_budget_as_they_are() {
    let world = World::new();
    guarded(&world).await;
    respond(
        &world,
        "h",
        |request| json!({"allowed": request["subResource"] != "eviction"}),
    );
    world.hook("Validating", "h", json!({})).await.ok();
    let refused = world.post(&format!("{PODS}/p/eviction"), eviction()).await;
    assert_eq!(refused.code, 400, "{}", refused.body);
    let pod = world.get(&format!("{PODS}/p")).await.ok();
    assert!(pod["metadata"]["deletionTimestamp"].is_null());
    assert!(!pod["status"]["conditions"].to_string().contains("DisruptionTarget"));
    let budget = world.get(&format!("{BUDGETS}/b")).await.ok();
    assert_eq!(budget["status"]["disruptionsAllowed"], 1);
}

#[tokio::test]
async fn webhooks_are_asked_about_a_binding_and_may_change_it() {
    let world = World::new();
    guarded(&world).await;
    let patch = json!([{"op": "replace", "path": "/target/name", "value": "m"}]).to_string();
    let patch = base64::engine::general_purpose::STANDARD.encode(patch);
    let asked = respond(&world, "m", move |request| match request["subResource"].as_str() {
        Some("binding") => json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}),
        _ => json!({"allowed": true}),
    });
    world.hook("Mutating", "m", json!({})).await.ok();
    world.post(&format!("{PODS}/p/binding"), binding()).await.ok();
    assert_eq!(about_pods(&asked), ["CREATE pods/binding /v1 Binding"]);
    let pod = world.get(&format!("{PODS}/p")).await.ok();
    assert_eq!(pod["spec"]["nodeName"], "m");
}

#[tokio::test]
async fn a_webhook_that_refuses_a_binding_leaves_the_pod_unbound() {
    let world = World::new();
    guarded(&world).await;
    respond(&world, "h", |_| json!({"allowed": false}));
    world.hook("Validating", "h", json!({})).await.ok();
    assert_eq!(world.post(&format!("{PODS}/p/binding"), binding()).await.code, 400);
    let pod = world.get(&format!("{PODS}/p")).await.ok();
    assert!(pod["spec"]["nodeName"].is_null());
}

#[tokio::test]
async fn a_delete_of_a_collection_shows_webhooks_its_options() {
    let world = World::new();
    let maps = "/api/v1/namespaces/default/configmaps";
    world
        .post(
            maps,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        )
        .await
        .ok();
    let asked = listen(&world, "h");
    world.hook("Validating", "h", json!({})).await.ok();
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan"});
    let delete = http::Method::DELETE;
    world.send(delete, maps, "application/json", &options).await.ok();
    let asked = asked.lock().unwrap();
    assert_eq!(asked[0]["operation"], "DELETE");
    assert_eq!(asked[0]["options"]["propagationPolicy"], "Orphan");
}
