//! What webhooks are asked, field by field, as the reference asks it.
//!
//! `reviews.json` holds the requests that kube-apiserver 1.36.3 sent. To record them again:
//! `USHER_RECORD_WEBHOOKS=KUBECONFIG cargo test -p usher-embedded --test admission -- reviews`.

use serde_json::{Value, json};

use crate::server::Server;
use crate::world::{self, World};

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/admission/reviews.json");
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Without what differs from run to run. Who asks, and who owns which field, is told elsewhere.
fn normal(mut request: Value) -> Value {
    let map = request.as_object_mut().unwrap();
    for field in ["uid", "userInfo"] {
        assert!(map.remove(field).is_some(), "{field}");
    }
    for field in ["object", "oldObject"] {
        let Some(meta) = request[field].get_mut("metadata").and_then(Value::as_object_mut) else {
            continue;
        };
        meta.remove("managedFields");
        for field in ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"] {
            if let Some(value) = meta.get_mut(field).filter(|value| !value.is_null()) {
                *value = json!("<set>");
            }
        }
    }
    request
}

async fn hook(world: &World, server: &Server, kind: &str) {
    let hook = json!({
        "clientConfig": {"url": server.url(), "caBundle": server.authority},
        "objectSelector": {"matchLabels": {"reviews": "yes"}},
        "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}],
    });
    world.hook(kind, "reviews", hook).await.ok();
}

/// Writes of all kinds, each with the request that it led to.
async fn play(world: &World, server: &Server, kind: &str) -> Vec<(String, Value)> {
    let mut seen = Vec::new();
    let mut note = |what: &str| seen.push((format!("{kind}: {what}"), normal(server.last().1["request"].clone())));
    let meta = |name: &str| json!({"name": name, "labels": {"reviews": "yes"}});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("reviewed"), "data": {"a": "b"}});
    world.post(&format!("{MAPS}?fieldManager=m"), map.clone()).await.ok();
    note("create");
    let path = format!("{MAPS}/reviewed");
    let mut put = map.clone();
    put["data"] = json!({"a": "c"});
    world.put(&path, put).await.ok();
    note("replace");
    world
        .merge(&format!("{path}?dryRun=All"), json!({"data": {"d": "e"}}))
        .await
        .ok();
    note("patch, dry");
    world.delete(&path).await.ok();
    note("delete");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": meta("reviewed")});
    world.post("/api/v1/namespaces", namespace).await.ok();
    note("create of a namespace");
    world
        .merge(
            "/api/v1/namespaces/reviewed/status",
            json!({"status": {"phase": "Active"}, "metadata": {"annotations": {"x": kind}}}),
        )
        .await
        .ok();
    note("write of a status");
    seen
}

#[tokio::test]
async fn reviews_read_as_the_references_do() {
    let server = Server::start(&["127.0.0.1"]).await;
    let mut seen = Vec::new();
    match std::env::var_os("USHER_RECORD_WEBHOOKS") {
        Some(kubeconfig) => {
            for kind in ["Mutating", "Validating"] {
                let world = World::real(kubeconfig.to_str().unwrap()).await;
                hook(&world, &server, kind).await;
                let before = server.asked();
                let probe = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe", "labels": {"reviews": "yes"}}});
                while server.asked() == before {
                    world.post(&format!("{MAPS}?dryRun=All"), probe.clone()).await.ok();
                    world::pause().await;
                }
                seen.extend(play(&world, &server, kind).await);
                let kind = kind.to_lowercase();
                let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/reviews");
                world.delete(&path).await.ok();
                // Nobody empties it on a bare server.
                world.delete("/api/v1/namespaces/reviewed").await.ok();
                let empty = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "reviewed"}, "spec": {"finalizers": []}});
                world.put("/api/v1/namespaces/reviewed/finalize", empty).await.ok();
            }
            let recorded: Vec<Value> = seen
                .iter()
                .map(|(what, request)| json!({"what": what, "request": request}))
                .collect();
            std::fs::write(RECORDED, serde_json::to_string_pretty(&recorded).unwrap() + "\n").unwrap();
        }
        None => {
            for kind in ["Mutating", "Validating"] {
                let world = World::new();
                hook(&world, &server, kind).await;
                seen.extend(play(&world, &server, kind).await);
            }
            let recorded: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(RECORDED).unwrap()).unwrap();
            for ((what, request), recorded) in seen.iter().zip(&recorded) {
                assert_eq!(recorded["what"], *what);
                pretty(&recorded["request"], request, what);
            }
            assert_eq!(seen.len(), recorded.len());
        }
    }
}

#[track_caller]
fn pretty(expected: &Value, found: &Value, what: &str) {
    let text = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    assert!(
        expected == found,
        "{what}: expected {}\nfound {}",
        text(expected),
        text(found)
    );
}
