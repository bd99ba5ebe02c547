//! A cluster in this process, asked over its own HTTP surface.

use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use usher_embedded::{Cluster, Controller, Controllers, Options};

pub struct World {
    server: Server,
}

enum Server {
    /// Asked without a client between: a poll of the request is a poll of the server.
    Here(Cluster),
    /// For recording.
    Real(kube::Client),
}

/// While a real server has not yet seen something. Recording only: nothing here waits.
pub async fn pause() {
    tokio::time::sleep(std::time::Duration::from_millis(100)).await; // edge: recording from a real server only
}

/// An answer: its code, body and warnings.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub body: Value,
    pub warnings: Vec<String>,
}

impl Answer {
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    #[track_caller]
    pub fn ok(self) -> Value {
        assert!(self.code < 300, "{}: {}", self.code, self.body);
        self.body
    }

    #[track_caller]
    pub fn refused(&self, code: u16, message: &str) {
        assert_eq!((self.code, self.message()), (code, message));
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(Options {
            seed: Some(0),
            // Those of the API server itself: the others' writes would be asked about, too.
            controllers: Controllers::none()
                .with(Controller::GarbageCollector)
                .with(Controller::Namespaces)
                .with(Controller::Definitions),
            ..Options::default()
        })
    }

    pub fn with(options: Options) -> Self {
        let server = Server::Here(Cluster::start(options).unwrap());
        Self { server }
    }

    pub fn of(cluster: Cluster) -> Self {
        Self {
            server: Server::Here(cluster),
        }
    }

    pub async fn real(kubeconfig: &str) -> Self {
        let config = Kubeconfig::read_from(kubeconfig).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
        config.default_retry = false;
        let server = Server::Real(kube::Client::try_from(config).unwrap());
        Self { server }
    }

    pub fn cluster(&self) -> &Cluster {
        match &self.server {
            Server::Here(cluster) => cluster,
            Server::Real(_) => panic!("a real server has no handlers"),
        }
    }

    /// Registers one webhook, with all that a configuration must say, in a configuration of its own.
    pub async fn hook(&self, kind: &str, name: &str, hook: Value) -> Answer {
        let mut whole = json!({
            "name": format!("{name}.hooks.test"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("https://in.process/{name}")},
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}],
        });
        for (field, value) in hook.as_object().unwrap() {
            whole[field] = value.clone();
        }
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations",
            kind.to_lowercase()
        );
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("{kind}WebhookConfiguration"), "metadata": {"name": name}, "webhooks": [whole]});
        self.post(&path, configuration).await
    }

    pub async fn send(&self, method: Method, path: &str, content: &str, body: &Value) -> Answer {
        let bytes = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let mut request = Request::builder().method(method).uri(path);
        if !bytes.is_empty() {
            request = request.header("content-type", content);
        }
        let (parts, bytes) = match &self.server {
            Server::Here(cluster) => {
                let request = request.body(Full::from(bytes)).unwrap();
                let (parts, body) = cluster.service().answer(request).await.into_parts();
                (parts, body.collect().await.unwrap().to_bytes())
            }
            Server::Real(client) => {
                let request = request.body(Body::from(bytes)).unwrap();
                let (parts, body) = client.send(request).await.unwrap().into_parts();
                (parts, body.collect().await.unwrap().to_bytes())
            }
        };
        let code = parts.status.as_u16();
        let warnings = parts
            .headers
            .get_all("warning")
            .iter()
            .map(|value| {
                let text = value.to_str().unwrap();
                text.trim_start_matches("299 - ").trim_matches('"').to_owned()
            })
            .collect();
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
        Answer { code, body, warnings }
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, "application/json", &body).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PUT, path, "application/json", &body).await
    }

    pub async fn merge(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, "application/merge-patch+json", &body)
            .await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "", &Value::Null).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, "", &Value::Null).await
    }
}
