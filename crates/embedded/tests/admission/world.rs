//! A cluster in this process, asked over its own HTTP surface.

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use usher_embedded::{Cluster, Options};

pub struct World {
    cluster: Option<Cluster>,
    client: kube::Client,
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
        Self::with(Options::default())
    }

    pub fn with(options: Options) -> Self {
        let cluster = Cluster::start(options).unwrap();
        let client = cluster.client();
        Self {
            cluster: Some(cluster),
            client,
        }
    }

    /// A server elsewhere.
    pub fn over(client: kube::Client) -> Self {
        Self { cluster: None, client }
    }

    pub fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().unwrap()
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
        let response = self
            .client
            .send(request.body(Body::from(bytes)).unwrap())
            .await
            .unwrap();
        let code = response.status().as_u16();
        let warnings = response
            .headers()
            .get_all("warning")
            .iter()
            .map(|value| {
                value
                    .to_str()
                    .unwrap()
                    .trim_start_matches("299 - ")
                    .trim_matches('"')
                    .to_owned()
            })
            .collect();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
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
