//! A manual cluster that is asked by plain requests, each of which must be answered at its first poll (E2), and in which
//! the test plays the kubelet and the scheduler.

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

/// Those that this suite is about, and who takes away what they leave. Nobody makes or places pods but the test.
pub fn controllers() -> Controllers {
    [
        Controller::GarbageCollector,
        Controller::Namespaces,
        Controller::ServiceAccounts,
        Controller::RootCertificates,
        Controller::Tokens,
        Controller::Endpoints,
        Controller::EndpointSlices,
        Controller::Volumes,
        Controller::Protection,
        Controller::Disruption,
        Controller::Nodes,
        Controller::PodGarbage,
        Controller::Definitions,
    ]
    .into_iter()
    .fold(Controllers::none(), Controllers::with)
}

pub fn options() -> Options {
    Options {
        controllers: controllers(),
        clock: Clock::Manual(ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap())),
        seed: Some(7),
        ..Options::default()
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(options())
    }

    pub fn with(options: Options) -> Self {
        let manual = Cluster::manual(options).unwrap();
        let mut world = Self { manual };
        world.settle();
        world
    }

    pub fn without(controller: Controller) -> Self {
        Self::with(Options {
            controllers: controllers().without(controller),
            ..options()
        })
    }

    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let content_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = body.map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
        let request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(path)
            .header("content-type", content_type)
            .header("user-agent", "kubelet/1")
            .body(Full::new(bytes::Bytes::from(body)))
            .unwrap();
        let answer = self.manual.service().answer(request).now_or_never();
        let answer = answer.unwrap_or_else(|| panic!("E2: {method} {path} was not answered at its first poll"));
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    pub fn ok(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (code, answer) = self.ask(method, path, body);
        assert!(code < 300, "{method} {path}: {code} {answer}");
        answer
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        match self.ask("GET", path, None) {
            (200, answer) => Some(answer),
            (404, _) => None,
            (code, answer) => panic!("GET {path}: {code} {answer}"),
        }
    }

    pub fn find(&self, path: &str) -> Value {
        self.get(path).unwrap_or_else(|| panic!("{path} is not there"))
    }

    pub fn list(&self, path: &str) -> Vec<Value> {
        self.ok("GET", path, None)["items"].as_array().unwrap().clone()
    }

    pub fn post(&self, path: &str, body: &Value) -> Value {
        self.ok("POST", path, Some(body))
    }

    pub fn patch(&self, path: &str, body: &Value) -> Value {
        self.ok("PATCH", path, Some(body))
    }

    pub fn delete(&self, path: &str) -> Value {
        self.ok("DELETE", path, None)
    }

    /// Runs the controllers until nothing is left to do now.
    pub fn settle(&mut self) {
        self.manual.settle().now_or_never().expect("E2: syncs complete at once");
    }

    /// The same, and waits for what is due within a second: endpoints are written in batches.
    pub fn rest(&mut self) {
        let end = self.now() + SignedDuration::from_secs(1);
        self.settle();
        while let Some(next) = self.manual.next_timer().filter(|next| *next <= end) {
            self.manual.advance(next);
            self.settle();
        }
    }

    /// Time goes on, and everything that comes due is done in its time.
    pub fn pass(&mut self, seconds: i64) {
        let end = self.now() + SignedDuration::from_secs(seconds);
        self.settle();
        while let Some(next) = self.manual.next_timer().filter(|next| *next <= end) {
            self.manual.advance(next);
            self.settle();
        }
        self.manual.advance(end);
        self.settle();
    }

    /// Now, as objects say it.
    pub fn time(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    pub fn now(&self) -> Timestamp {
        self.manual.clock().now()
    }

    pub fn writes(&self) -> u64 {
        self.manual.cluster().store_stats().writes
    }

    /// The events about an object: reason and message, in the order of their names.
    pub fn events(&self, namespace: &str, about: &str) -> Vec<(String, String)> {
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        self.list(&format!("/api/v1/namespaces/{namespace}/events"))
            .iter()
            .filter(|event| event["involvedObject"]["name"] == about)
            .map(|event| (text(event, "reason"), text(event, "message")))
            .collect()
    }

    /// A node that says it is ready.
    pub fn node(&self, name: &str, labels: &Value) -> Value {
        let mut all = json!({"kubernetes.io/hostname": name});
        for (key, value) in labels.as_object().unwrap() {
            all[key] = value.clone();
        }
        let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": all}});
        self.post("/api/v1/nodes", &body);
        self.node_says(name, "True")
    }

    pub fn node_says(&self, name: &str, ready: &str) -> Value {
        let now = self.time();
        self.patch(
            &format!("/api/v1/nodes/{name}/status"),
            &json!({"status": {"conditions": [{"type": "Ready", "status": ready, "reason": "KubeletReady",
                "message": "kubelet is posting ready status", "lastHeartbeatTime": now, "lastTransitionTime": now}]}}),
        )
    }

    /// A pod with labels, placed on a node if one is named.
    pub fn pod(&self, name: &str, labels: &Value, more: &Value) -> Value {
        let mut spec = json!({"containers": [{"name": "c", "image": "i", "ports": [
            {"name": "http", "containerPort": 8080}]}]});
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let body =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec});
        self.post("/api/v1/namespaces/default/pods", &body)
    }

    /// What a kubelet says of a running pod.
    pub fn pod_says(&self, name: &str, ip: &str, is_ready: bool) {
        let ready = if is_ready { "True" } else { "False" };
        self.patch(
            &format!("/api/v1/namespaces/default/pods/{name}/status"),
            &json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": self.time()}]}}),
        );
    }

    pub fn service(&self, name: &str, spec: &Value) -> Value {
        let body = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "labels": {"of": name}}, "spec": spec});
        self.post("/api/v1/namespaces/default/services", &body)
    }
}

pub const PODS: &str = "/api/v1/namespaces/default/pods";
