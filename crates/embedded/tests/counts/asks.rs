//! Requests to a cluster in this process, without any runtime.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use usher_embedded::store::Durability;
use usher_embedded::{ApiBody, Cluster, Options, Storage};

pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub fn in_memory() -> Cluster {
    Cluster::start(Options::default()).unwrap()
}

pub fn on_disk(folder: &std::path::Path) -> Cluster {
    let storage = Storage::Disk {
        file: folder.join("store.redb"),
        durability: Durability::Fsync,
    };
    Cluster::start(Options {
        storage,
        ..Options::default()
    })
    .unwrap()
}

/// A ConfigMap with about this many bytes in it.
pub fn config_map(name: &str, bytes: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"text": "x".repeat(bytes)},
    })
}

pub async fn send(
    cluster: &Cluster,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: String,
) -> Response<ApiBody> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let response = cluster.service().answer(request).await;
    if response.status().is_success() {
        return response;
    }
    let status = response.status();
    let said = response.into_body().collect().await.unwrap().to_bytes();
    panic!("{path}: {status} {}", String::from_utf8_lossy(&said));
}

pub async fn create(cluster: &Cluster, object: &Value) {
    let json = [("content-type", "application/json")];
    send(cluster, Method::POST, CONFIG_MAPS, &json, object.to_string()).await;
}
