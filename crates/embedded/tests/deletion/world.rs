//! A manual cluster that is asked by plain requests, each of which must be answered at its first poll (E2).

use futures::FutureExt;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use usher_embedded::clock::{Clock, ManualClock};
use usher_embedded::{Cluster, Controller, Controllers, Manual, Options};

pub struct World {
    pub manual: Manual,
}

/// An owner reference to an object.
pub fn owner(object: &Value, block: Option<bool>) -> Value {
    let mut owner = json!({"apiVersion": object["apiVersion"], "kind": object["kind"],
        "name": object["metadata"]["name"], "uid": object["metadata"]["uid"]});
    if let Some(block) = block {
        owner["blockOwnerDeletion"] = block.into();
    }
    owner
}

/// Those that take things away because others went: no other writes anything here.
pub fn deleting() -> Controllers {
    Controllers::none()
        .with(Controller::GarbageCollector)
        .with(Controller::Namespaces)
        .with(Controller::Definitions)
        .with(Controller::Events)
        .with(Controller::Compaction)
}

impl World {
    pub fn new() -> Self {
        Self::with(deleting())
    }

    pub fn with(controllers: Controllers) -> Self {
        Self::seeded(7, controllers)
    }

    pub fn seeded(seed: u64, controllers: Controllers) -> Self {
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        let options = Options {
            clock: Clock::Manual(clock),
            seed: Some(seed),
            controllers,
            ..Options::default()
        };
        let manual = Cluster::manual(options).unwrap();
        Self { manual }
    }

    /// A request, answered at its first poll: code and whole body.
    pub fn raw(&self, method: &str, path: &str, content_type: &str, body: Option<&Value>) -> (u16, Vec<u8>) {
        let body = body.map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
        let request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(path)
            .header("content-type", content_type)
            .header("user-agent", "script/1")
            .body(Full::new(bytes::Bytes::from(body)))
            .unwrap();
        let answer = self.manual.service().answer(request).now_or_never();
        let answer = answer.unwrap_or_else(|| panic!("E2: {method} {path} was not answered at its first poll"));
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().now_or_never();
        let body = body.unwrap_or_else(|| panic!("E2: the body of {method} {path} was not there at its first poll"));
        (code, body.unwrap().to_bytes().to_vec())
    }

    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let content_type = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let (code, body) = self.raw(method, path, content_type, body);
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    fn ok(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (code, answer) = self.ask(method, path, body);
        assert!(code < 300, "{method} {path}: {code} {answer}");
        answer
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        let (code, answer) = self.ask("GET", path, None);
        match code {
            200 => Some(answer),
            404 => None,
            _ => panic!("GET {path}: {code} {answer}"),
        }
    }

    pub fn names(&self, path: &str) -> Vec<String> {
        let list = self.ok("GET", path, None);
        let items = list["items"].as_array().unwrap();
        items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }

    pub fn post(&self, path: &str, body: &Value) -> Value {
        self.ok("POST", path, Some(body))
    }

    pub fn patch(&self, path: &str, body: &Value) -> Value {
        self.ok("PATCH", path, Some(body))
    }

    pub fn delete(&self, path: &str, propagation: &str) -> Value {
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation});
        self.ok("DELETE", path, Some(&body))
    }

    /// A namespace, as the reference makes them.
    pub fn namespace(&self, name: &str) -> Value {
        self.post(
            "/api/v1/namespaces",
            &json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]}}),
        )
    }

    pub fn config_map(&self, namespace: &str, name: &str, owners: Vec<Value>) -> Value {
        self.config_map_with(namespace, name, json!({"ownerReferences": owners}))
    }

    pub fn config_map_with(&self, namespace: &str, name: &str, meta: Value) -> Value {
        let mut body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta});
        body["metadata"]["name"] = name.into();
        self.post(&format!("/api/v1/namespaces/{namespace}/configmaps"), &body)
    }

    /// Runs the controllers until they have nothing more to do now.
    pub fn settle(&mut self) -> usize {
        self.manual.settle().now_or_never().expect("E2: syncs complete at once")
    }

    pub fn advance(&mut self, seconds: i64) {
        let to = self.now() + SignedDuration::from_secs(seconds);
        self.manual.advance(to);
    }

    pub fn now(&self) -> Timestamp {
        self.manual.clock().now()
    }
}

pub fn map(name: &str) -> String {
    format!("/api/v1/namespaces/default/configmaps/{name}")
}

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
