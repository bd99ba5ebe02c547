//! Webhooks over TLS: connections are kept, Services are found by their endpoints, certificates must be for their names.

use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::world::World;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn maps_only() -> Value {
    json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}])
}

#[tokio::test]
async fn one_connection_serves_many_reviews() {
    let (world, server) = (World::new(), Server::start(&["127.0.0.1"]).await);
    let client = json!({"url": server.url(), "caBundle": server.authority});
    world
        .hook("Validating", "h", json!({"clientConfig": client, "rules": maps_only()}))
        .await
        .ok();
    for index in 0..5 {
        world.post(MAPS, map(&format!("m{index}"))).await.ok();
    }
    assert_eq!((server.asked(), server.connections()), (5, 1));
    assert_eq!(server.last().0, "/hook?timeout=10s");
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_made_anew() {
    let (world, server) = (World::new(), Server::start(&["127.0.0.1"]).await);
    let client = json!({"url": server.url(), "caBundle": server.authority});
    world
        .hook("Validating", "h", json!({"clientConfig": client, "rules": maps_only()}))
        .await
        .ok();
    world.post(MAPS, map("a")).await.ok();
    server.set(Reply::Hangup);
    assert_eq!(world.post(MAPS, map("b")).await.code, 500);
    server.set(Reply::Response(json!({"allowed": true})));
    world.post(MAPS, map("b")).await.ok();
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_read() {
    let (world, server) = (World::new(), Server::start(&["127.0.0.1"]).await);
    let client = json!({"url": server.url(), "caBundle": server.authority});
    world
        .hook("Validating", "h", json!({"clientConfig": client, "rules": maps_only()}))
        .await
        .ok();
    server.set(Reply::Raw(200, "x".repeat(3 * 1024 * 1024 + 1)));
    let refused = world.post(MAPS, map("a")).await;
    assert_eq!(refused.code, 500);
    assert!(
        refused.message().contains("length limit exceeded"),
        "{}",
        refused.message()
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_service_is_called_at_a_ready_endpoint_under_its_own_name() {
    let (world, server) = (World::new(), Server::start_as_pod(&["hooks.default.svc"]).await);
    let service =
        json!({"service": {"namespace": "default", "name": "hooks", "path": "/x"}, "caBundle": server.authority});
    world
        .hook(
            "Validating",
            "h",
            json!({"clientConfig": service, "rules": maps_only(), "timeoutSeconds": 3}),
        )
        .await
        .ok();
    let told = |why: &str| {
        format!(
            r#"Internal error occurred: failed calling webhook "h.hooks.test": failed to call webhook: Post "https://hooks.default.svc:443/x?timeout=3s": {why}"#
        )
    };
    world
        .post(MAPS, map("a"))
        .await
        .refused(500, &told(r#"service "hooks" not found"#));
    let body = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hooks"},
        "spec": {"type": "ClusterIP", "ports": [{"name": "tls", "port": 443, "protocol": "TCP", "targetPort": 8443}]}});
    world.post("/api/v1/namespaces/default/services", body).await.ok();
    world
        .post(MAPS, map("a"))
        .await
        .refused(500, &told(r#"no endpoints available for service "hooks""#));
    let endpoint = |address: &str, ready: bool| json!({"addresses": [address], "conditions": {"ready": ready}});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "hooks-1", "labels": {"kubernetes.io/service-name": "hooks"}},
        "ports": [{"name": "tls", "port": server.address.port(), "protocol": "TCP"}],
        "endpoints": [endpoint("10.255.255.1", false), endpoint("127.64.1.7", true)]});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    world.post(slices, slice).await.ok();
    world.post(MAPS, map("a")).await.ok();
    assert_eq!(server.last().0, "/x?timeout=3s");
    // Without slices, by Endpoints.
    world.delete(&format!("{slices}/hooks-1")).await.ok();
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "hooks"}, "subsets": [
        {"addresses": [{"ip": "127.64.1.7"}], "ports": [{"name": "tls", "port": server.address.port(), "protocol": "TCP"}]}]});
    world.post("/api/v1/namespaces/default/endpoints", endpoints).await.ok();
    world.post(MAPS, map("b")).await.ok();
    assert_eq!(server.asked(), 2);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_certificate_for_another_service_is_refused() {
    let (world, server) = (World::new(), Server::start_as_pod(&["other.default.svc"]).await);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hooks"},
        "spec": {"type": "ClusterIP", "ports": [{"port": 443, "protocol": "TCP", "targetPort": 443}]}});
    world.post("/api/v1/namespaces/default/services", service).await.ok();
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "hooks"}, "subsets": [
        {"addresses": [{"ip": "127.64.1.7"}], "ports": [{"port": server.address.port(), "protocol": "TCP"}]}]});
    world.post("/api/v1/namespaces/default/endpoints", endpoints).await.ok();
    let client = json!({"service": {"namespace": "default", "name": "hooks"}, "caBundle": server.authority});
    world
        .hook("Validating", "h", json!({"clientConfig": client, "rules": maps_only()}))
        .await
        .ok();
    let refused = world.post(MAPS, map("a")).await;
    assert!(
        refused
            .message()
            .ends_with("x509: certificate is valid for other.default.svc, not hooks.default.svc"),
        "{}",
        refused.message()
    );
}
