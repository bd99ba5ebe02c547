//! What is too large is refused with its limit (S8), and what is large is packed for whoever can unpack it (A7).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::io::Read;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use usher_embedded::{ApiBody, Cluster, Options};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn ask(cluster: &Cluster, request: http::request::Builder, body: String) -> (http::response::Parts, Vec<u8>) {
    let request: Request<kube::client::Body> = request.body(body.into_bytes().into()).unwrap();
    let response: Response<ApiBody> = cluster.service().answer(request).await;
    let (parts, body) = response.into_parts();
    (parts, body.collect().await.unwrap().to_bytes().to_vec())
}

fn map(name: &str, bytes: usize) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "x".repeat(bytes)}})
        .to_string()
}

/// Custom resources have no rule of their own on size, so the store's limit is what refuses.
async fn widgets(cluster: &Cluster) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (parts, body) = ask(cluster, Request::post(path), crd.to_string()).await;
    assert_eq!(parts.status, StatusCode::CREATED, "{}", String::from_utf8_lossy(&body));
}

fn widget(name: &str, labels: usize) -> String {
    let labels: serde_json::Map<String, Value> = (0..labels)
        .map(|n| (format!("{}.example.com/n{n:05}", "x".repeat(60)), json!("z".repeat(60))))
        .collect();
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "labels": labels}}).to_string()
}

#[tokio::test]
async fn s8_a_body_of_more_than_3_mib_is_refused_with_the_limit() {
    let cluster = Cluster::start(Options::default()).unwrap();
    let (parts, body) = ask(&cluster, Request::post(MAPS), map("large", 3 << 20)).await;
    assert_eq!(parts.status, StatusCode::PAYLOAD_TOO_LARGE);
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status["reason"], "RequestEntityTooLarge");
    assert!(status["message"].as_str().unwrap().contains("3145728"), "{status}");
}

#[tokio::test]
async fn s8_an_object_of_more_than_1_5_mib_is_refused_and_one_that_fits_without_its_owners_is_kept_without_them() {
    let cluster = Cluster::start(Options::default()).unwrap();
    widgets(&cluster).await;
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    let kept = |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap()["metadata"]["managedFields"].is_array();

    let (parts, body) = ask(&cluster, Request::post(path), widget("small", 100)).await;
    assert!(parts.status == StatusCode::CREATED && kept(&body));
    let (parts, body) = ask(&cluster, Request::post(path), widget("brim", 9_000)).await;
    assert_eq!(parts.status, StatusCode::CREATED);
    assert!(!kept(&body), "who owns which field is the first to go");
    let (parts, body) = ask(&cluster, Request::post(path), widget("larger", 12_000)).await;
    assert_eq!(parts.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(String::from_utf8_lossy(&body).contains("1572864"));
    let (parts, _) = ask(&cluster, Request::get(format!("{path}/larger")), String::new()).await;
    assert_eq!(parts.status, StatusCode::NOT_FOUND, "nothing of it was stored");
}

#[tokio::test]
async fn a7_large_answers_are_packed_for_whoever_asks() {
    let cluster = Cluster::start(Options::default()).unwrap();
    for name in ["a", "b", "c"] {
        let (parts, _) = ask(&cluster, Request::post(MAPS), map(name, 50_000)).await;
        assert_eq!(parts.status, StatusCode::CREATED);
    }
    let (plain, whole) = ask(&cluster, Request::get(MAPS), String::new()).await;
    assert!(plain.headers.get("content-encoding").is_none());
    let asked = Request::get(MAPS).header("accept-encoding", "gzip");
    let (parts, packed) = ask(&cluster, asked, String::new()).await;
    assert_eq!(parts.headers["content-encoding"], "gzip");
    assert!(packed.len() < whole.len() / 4, "{} of {}", packed.len(), whole.len());
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_end(&mut unpacked)
        .unwrap();
    assert_eq!(unpacked, whole);
    let asked = Request::get(format!("{MAPS}/a")).header("accept-encoding", "gzip");
    let (parts, _) = ask(&cluster, asked, String::new()).await;
    assert!(
        parts.headers.get("content-encoding").is_none(),
        "50,000 bytes are not worth it"
    );
}

/// A token dies with its account (X2), and bound to a pod it needs the pod.
#[tokio::test]
async fn x2_a_token_can_be_bound_only_to_what_is_there() {
    let cluster = Cluster::start(Options::default()).unwrap();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    ask(&cluster, Request::post(accounts), account.to_string()).await;
    let token = |bound: Value| json!({"kind": "TokenRequest", "spec": {"boundObjectRef": bound}}).to_string();
    let path = format!("{accounts}/robot/token");
    for (bound, code) in [
        (Value::Null, 201),
        (json!({"apiVersion": "v1", "kind": "Pod", "name": "none"}), 404),
        (
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "name": "robot"}),
            400,
        ),
    ] {
        let (parts, body) = ask(&cluster, Request::post(&path), token(bound.clone())).await;
        assert_eq!(
            parts.status.as_u16(),
            code,
            "{bound}: {}",
            String::from_utf8_lossy(&body)
        );
    }
}

/// `kubectl create token --bound-object-kind` names no uid: it is that of what is found (X2).
#[tokio::test]
async fn x2_a_token_lives_as_long_as_what_it_is_bound_to() {
    let cluster = Cluster::start(Options::default()).unwrap();
    let core = "/api/v1/namespaces/default";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    ask(
        &cluster,
        Request::post(format!("{core}/serviceaccounts")),
        account.to_string(),
    )
    .await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    for (kind, name, collection, object) in [
        ("Pod", "p", format!("{core}/pods"), pod),
        ("Secret", "s", format!("{core}/secrets"), secret),
        ("Node", "n", "/api/v1/nodes".to_owned(), node),
    ] {
        let (parts, _) = ask(&cluster, Request::post(&collection), object.to_string()).await;
        assert_eq!(parts.status, StatusCode::CREATED);
        let request = json!({"kind": "TokenRequest",
            "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}}});
        let path = format!("{core}/serviceaccounts/robot/token");
        let (_, body) = ask(&cluster, Request::post(path), request.to_string()).await;
        let answer: Value = serde_json::from_slice(&body).unwrap();
        let review = json!({"kind": "TokenReview", "spec": {"token": answer["status"]["token"]}}).to_string();
        let is_valid = async || {
            let path = "/apis/authentication.k8s.io/v1/tokenreviews";
            let (_, body) = ask(&cluster, Request::post(path), review.clone()).await;
            serde_json::from_slice::<Value>(&body).unwrap()["status"]["authenticated"] == true
        };
        assert!(is_valid().await, "{kind}: {answer}");
        ask(&cluster, Request::delete(format!("{collection}/{name}")), String::new()).await;
        assert!(!is_valid().await, "{kind}: it is gone");
        ask(&cluster, Request::post(&collection), object.to_string()).await;
        assert!(!is_valid().await, "{kind}: another one of the name");
    }
}
