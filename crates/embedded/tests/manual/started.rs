//! A cluster that runs by itself has the same controllers.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams, PropagationPolicy, WatchEvent, WatchParams};
use serde_json::json;
use usher_embedded::{Cluster, Options};

#[tokio::test]
async fn c1_a_started_cluster_collects_garbage_by_itself() {
    let cluster = Cluster::start(Options::default()).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let owner: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    let owner = maps.create(&PostParams::default(), &owner).await.unwrap();
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": owner.metadata.uid,
        "blockOwnerDeletion": true});
    let child = json!({"metadata": {"name": "b", "ownerReferences": [reference]}});
    let child: ConfigMap = serde_json::from_value(child).unwrap();
    let child = maps.create(&PostParams::default(), &child).await.unwrap();
    let from = child.metadata.resource_version.unwrap();
    let most = WatchParams::default().timeout(20);
    let events = maps.watch(&most, &from).await.unwrap();
    let foreground = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..DeleteParams::default()
    };
    maps.delete("a", &foreground).await.unwrap();
    let gone: Vec<String> = events
        .filter_map(|event| async move {
            match event.unwrap() {
                WatchEvent::Deleted(map) => map.metadata.name,
                _ => None,
            }
        })
        .take(2)
        .collect()
        .await;
    assert_eq!(gone, ["b", "a"]);
}

#[test]
fn a_manual_cluster_needs_a_manual_clock() {
    let error = Cluster::manual(Options::default()).unwrap_err();
    assert!(error.to_string().contains("manual clock"), "{error}");
}
