//! Writes that pods cost from their creation until they are Ready, on hollow nodes.

use futures::FutureExt;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use usher_embedded::clock::{Clock, ManualClock};
use usher_embedded::{Cluster, NodeEntry, Options};

use super::asks::send;

/// Debug builds take their time.
const PODS: u64 = if cfg!(debug_assertions) { 200 } else { 1_000 };

#[tokio::test]
async fn pods_of_a_deployment_on_hollow_nodes_take_at_most_five_writes_each() {
    let mut manual = Cluster::manual(Options {
        clock: Clock::Manual(ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap())),
        seed: Some(1),
        nodes: NodeEntry::hollows(10),
        ..Options::default()
    })
    .unwrap();
    manual.settle().now_or_never().unwrap();
    let before = manual.cluster().store_stats().writes;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "many"},
        "spec": {"replicas": PODS, "selector": {"matchLabels": {"app": "many"}},
            "template": {"metadata": {"labels": {"app": "many"}},
                "spec": {"containers": [{"name": "main", "image": "registry.example/main:1"}]}}}});
    let json_body = [("content-type", "application/json")];
    let path = "/apis/apps/v1/namespaces/default/deployments";
    send(manual.cluster(), Method::POST, path, &json_body, deployment.to_string()).await;
    let mut ready = 0;
    // Nothing here is due later than its stage of 10 ms.
    for _ in 0..20 {
        manual.settle().now_or_never().unwrap();
        let answer = send(
            manual.cluster(),
            Method::GET,
            &format!("{path}/many"),
            &[],
            String::new(),
        )
        .await;
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let live: Value = serde_json::from_slice(&body).unwrap();
        ready = live["status"]["readyReplicas"].as_u64().unwrap_or_default();
        if ready == PODS {
            break;
        }
        let next = manual.next_timer().unwrap();
        manual.advance(next);
    }
    assert_eq!(ready, PODS);
    let writes = manual.cluster().store_stats().writes - before;
    assert!(writes >= 3 * PODS, "{writes} writes: are they counted at all?");
    assert!(writes <= 5 * PODS, "{writes} writes for {PODS} pods");
    println!(
        "{writes} writes for {PODS} pods: {:.2} each",
        writes as f64 / PODS as f64
    );
}
