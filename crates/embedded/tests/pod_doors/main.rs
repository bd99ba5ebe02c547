//! Logs and commands through the API, with a node whose doors are a test's: real kubectl, and a WebSocket by hand.
//! kubectl must be on PATH.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod exec;
mod fake;
mod kubectl;
mod logs;
mod raw;
mod refused;
mod socket;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use usher_embedded::{Cluster, ListenOptions, Listening, Options};

use fake::Node;

/// A cluster that listens, with one node and on it the pod `p`, whose container `c` runs.
#[derive(Debug)]
pub struct World {
    pub cluster: Cluster,
    pub listening: Listening,
    pub node: Arc<Node>,
}

impl World {
    pub async fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cluster = Cluster::start(Options::default()).unwrap();
        let listening = cluster.listen(ListenOptions::default()).await.unwrap();
        let node = Arc::new(Node::default());
        cluster.open_doors("n1", node.clone());
        let world = Self {
            cluster,
            listening,
            node,
        };
        world
            .pod("p", json!({"running": {"startedAt": "2026-11-16T10:00:00Z"}}))
            .await;
        world
    }

    /// A pod on the node, whose container is in this state.
    pub async fn pod(&self, name: &str, state: Value) {
        let pods: Api<Pod> = Api::default_namespaced(self.cluster.client());
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": "n1", "containers": [
                {"name": "c", "image": "i:1", "ports": [{"containerPort": 8080}]},
            ]},
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
            .await
            .unwrap();
        let status = json!({"status": {
            "phase": "Running", "podIP": "127.64.1.5", "podIPs": [{"ip": "127.64.1.5"}],
            "containerStatuses": [{
                "name": "c", "image": "i:1", "imageID": "", "ready": true, "restartCount": 0, "containerID": "usher://c0",
                "state": state,
            }],
        }});
        let patch = Patch::Merge(status);
        pods.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Asks in this process.
    pub async fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, &[]).await
    }

    pub async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let mut request = http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
        let (parts, body) = self.cluster.service().answer(request).await.into_parts();
        let bytes = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
        (parts.status.as_u16(), String::from_utf8(bytes.to_vec()).unwrap())
    }
}
