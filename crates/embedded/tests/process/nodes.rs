//! C9 with real processes: a node is killed, found to be so, and its pods go elsewhere.

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::world::{World, is_ready, sh, until};

/// The conditions and taints of a node, in words.
async fn told_of(world: &World, node: &str) -> String {
    let nodes: Api<Node> = Api::all(world.cluster.client());
    let Some(node) = nodes.get_opt(node).await.unwrap() else {
        return "not there".to_owned();
    };
    let node = serde_json::to_value(node).unwrap();
    let ready = node["status"]["conditions"].as_array().unwrap();
    let ready = ready.iter().find(|condition| condition["type"] == "Ready").unwrap();
    let mut words = vec![ready["status"].as_str().unwrap().to_owned()];
    for taint in node["spec"]["taints"].as_array().into_iter().flatten() {
        let word = |field: &str| taint[field].as_str().unwrap().to_owned();
        words.push(format!("{}:{}", word("key"), word("effect")));
    }
    words.join(" ")
}

async fn is_told(world: &World, node: &str, wanted: &str) {
    until(wanted, || async {
        let told = told_of(world, node).await;
        if told == wanted { Ok(()) } else { Err(told) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c9_the_pods_of_a_killed_node_run_elsewhere_and_go_when_it_is_back() {
    let world = World::with(|options| options.node_grace = SignedDuration::from_secs(4));
    for node in ["node-1", "node-2"] {
        is_told(&world, node, "True").await;
    }
    let soon = |key: &str| {
        json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists",
        "effect": "NoExecute", "tolerationSeconds": 1})
    };
    let mut template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {
        "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "tolerations": [soon("unreachable"), soon("not-ready")],
        "containers": [sh("c", "exec sleep 1000")]}});
    template["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let deployment: Deployment = serde_json::from_value(json!({"metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}}))
    .unwrap();
    let deployments: Api<Deployment> = Api::default_namespaced(world.cluster.client());
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let pods = || async {
        let list = world.pods().list(&Default::default()).await.unwrap();
        list.items
            .iter()
            .map(|pod| serde_json::to_value(pod).unwrap())
            .collect::<Vec<Value>>()
    };
    let on = |node: &'static str, count: usize| {
        let pods = &pods;
        async move {
            until("as many are ready there", || async {
                let all = pods().await;
                let ready: Vec<&Value> = all
                    .iter()
                    .filter(|pod| pod["spec"]["nodeName"] == node && is_ready(pod))
                    .collect();
                match ready.first() {
                    Some(first) if ready.len() == count => Ok((*first).clone()),
                    _ => Err(format!("{all:?}")),
                }
            })
            .await
        }
    };
    on("node-1", 1).await;
    let lost = on("node-2", 1).await;
    let lost = lost["metadata"]["name"].as_str().unwrap().to_owned();
    world.cluster.node("node-2").unwrap().kill().await;
    let unreachable = "Unknown node.kubernetes.io/unreachable:NoSchedule node.kubernetes.io/unreachable:NoExecute";
    is_told(&world, "node-2", unreachable).await;
    on("node-1", 2).await;
    let pod = world
        .pod_that(&lost, "it is to go", |pod| {
            pod["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
    assert!(
        !is_ready(&pod),
        "its node does not say so, but is not believed any more"
    );
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let target = conditions
        .iter()
        .find(|condition| condition["type"] == "DisruptionTarget");
    assert_eq!(target.unwrap()["reason"], "DeletionByTaintManager");
    world.told(&lost, "NodeNotReady: Node is not ready").await;
    world
        .told(
            &lost,
            &format!("TaintManagerEviction: Marking for deletion Pod default/{lost}"),
        )
        .await;
    world.cluster.node("node-2").unwrap().start().await;
    is_told(&world, "node-2", "True").await;
    world.gone(&lost).await;
    on("node-1", 2).await;
}
