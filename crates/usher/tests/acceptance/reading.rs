//! What people read: kubectl's tables, descriptions, explanations and waits. The transcripts are the review: a change in
//! what users see is a diff there.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::{Value, json};

use crate::support::World;
use crate::support::kubectl::assert_transcript;

const CRDS: [&str; 4] = [
    "subnetpools.plexaubnet.io",
    "subnetclaims.plexaubnet.io",
    "subnets.plexaubnet.io",
    "subnetpoolclaims.plexaubnet.io",
];

/// One claim Bound, one waiting, one invalid, one Subnet made by hand that fails.
async fn scene(world: &World) {
    world
        .pool("office", json!({"cidr": "10.0.0.0/24", "exclude": ["10.0.0.0/26"]}))
        .await;
    world
        .claim(
            "tokyo",
            json!({"poolRef": "office", "clusterID": "tokyo", "blockSize": 25}),
        )
        .await;
    world.until_bound(&["tokyo"]).await;
    world
        .claim(
            "osaka",
            json!({"poolRef": "office", "clusterID": "osaka", "blockSize": 25}),
        )
        .await;
    world
        .claim(
            "kyoto",
            json!({"poolRef": "office", "clusterID": "kyoto", "blockSize": 30}),
        )
        .await;
    world.subnet("by-hand", "office", "10.0.0.192/26").await;
    world
        .until("the scene is set", |now| {
            now.reason("osaka") == Some("PoolExhausted")
                && now.reason("kyoto") == Some("InvalidRequest")
                && now
                    .subnets
                    .get("by-hand")
                    .is_some_and(|s| s.status.as_ref().is_some_and(|s| s.reason.is_some()))
        })
        .await;
    world.until_event("SubnetClaim", "tokyo", "SubnetAllocated").await;
    world.until_event("SubnetClaim", "osaka", "SubnetPoolExhausted").await;
    world.until_event("SubnetClaim", "kyoto", "ValidationFailed").await;
    world.until_event("Subnet", "by-hand", "AllocationConflict").await;
    world.until_exact("office").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_get_and_describe_read_well() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    scene(&world).await;
    let mut said = String::new();
    for words in [
        &["get", "subnetpools"][..],
        &["get", "subnetpools", "-o", "wide"],
        &["get", "subnetclaims"],
        &["get", "subnetclaims", "-o", "wide"],
        &["get", "subnets"],
        &["get", "subnets", "--field-selector", "spec.poolRef=office"],
        &[
            "get",
            "subnet",
            "office-10-0-0-128-25",
            "-o",
            "jsonpath={.status.phase}",
        ],
        &["describe", "subnetpool", "office"],
        &["describe", "subnetclaim", "tokyo"],
        &["describe", "subnetclaim", "osaka"],
        &["describe", "subnetclaim", "kyoto"],
        &["describe", "subnet", "by-hand"],
    ] {
        said += &world.transcript(words).await;
    }
    assert_transcript("get_and_describe.txt", &said);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_wait_for_ready_ends_when_it_is_and_fails_when_it_is_not() {
    let world = World::new().await;
    let _operator = world.operator().ready().await;
    world.pool("pool", json!({"cidr": "10.0.0.0/28"})).await;
    let ready = "--for=condition=Ready";
    world
        .kubectl(&["wait", ready, "subnetpool/pool", "--timeout=30s"])
        .await;
    world.claim("first", json!({"poolRef": "pool", "blockSize": 28})).await;
    world
        .kubectl(&["wait", ready, "subnetclaim/first", "--timeout=30s"])
        .await;
    world.claim("second", json!({"poolRef": "pool", "blockSize": 28})).await;
    let exhausted = "--for=jsonpath={.status.conditions[?(@.type==\"Ready\")].reason}=PoolExhausted";
    world
        .kubectl(&["wait", exhausted, "subnetclaim/second", "--timeout=30s"])
        .await;
    let too_soon = world
        .try_kubectl(&["wait", ready, "subnetclaim/second", "--timeout=1s"])
        .await;
    assert!(!too_soon.status.success(), "a waiting claim is not Ready");
    world
        .kubectl(&[
            "wait",
            "--for=jsonpath={.status.phase}=Allocated",
            "subnet/pool-10-0-0-0-28",
            "--timeout=30s",
        ])
        .await;
    let wait = ["wait", ready, "subnetclaim/second", "--timeout=30s"];
    let (served, ()) = tokio::join!(world.kubectl(&wait), world.unclaim("first"));
    assert!(served.contains("condition met"), "{served}");
    let gone = world
        .kubectl(&[
            "delete",
            "subnetclaim/second",
            "subnetpool/pool",
            "--wait",
            "--timeout=30s",
        ])
        .await;
    assert!(gone.contains("deleted"), "{gone}");
    world.history.check();
}

/// Every property below `schema` that no description explains.
fn unexplained(path: &str, schema: &Value, found: &mut Vec<String>) {
    if let Some(properties) = schema["properties"].as_object() {
        for (name, property) in properties {
            let path = format!("{path}.{name}");
            let text = property["description"].as_str().unwrap_or_default();
            // `metadata` is explained by Kubernetes itself.
            if text.trim().is_empty() && !path.ends_with(".metadata") {
                found.push(path.clone());
            }
            unexplained(&path, property, found);
        }
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            unexplained(&format!("{path}[]"), &schema[inner], found);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_is_explained() {
    let world = World::new().await;
    let crds: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let mut found = Vec::new();
    for name in CRDS {
        let crd = serde_json::to_value(crds.get(name).await.unwrap()).unwrap();
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let schema = &version["schema"]["openAPIV3Schema"];
            assert!(
                schema["description"].as_str().is_some_and(|text| !text.is_empty()),
                "{kind}"
            );
            unexplained(kind, schema, &mut found);
        }
    }
    assert!(
        found.is_empty(),
        "no description, so that `kubectl explain` says nothing: {found:#?}"
    );
    let mut said = String::new();
    for words in [
        &["explain", "subnetpool.spec"][..],
        &["explain", "subnetpool.status"],
        &["explain", "subnetclaim.spec"],
        &["explain", "subnetclaim.status.phase"],
        &["explain", "subnet.spec.claimRef"],
        &["explain", "subnetpc.spec"],
    ] {
        said += &world.transcript(words).await;
    }
    assert_transcript("explain.txt", &said);
}
