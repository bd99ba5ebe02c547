//! A manual cluster with nodes and pods, asked by plain requests.

use futures::FutureExt;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use jiff::SignedDuration;
use serde_json::{Value, json};
use usher_embedded::clock::{Clock, ManualClock};
use usher_embedded::{Cluster, Controller, Controllers, Manual, NodeEntry, Options};

pub const PODS: &str = "/api/v1/namespaces/default/pods";
const GANGS: &str = "/apis/scheduler.grove.io/v1alpha1/namespaces/default/podgangs";

pub struct World {
    pub manual: Manual,
}

pub fn options(seed: u64, nodes: Vec<NodeEntry>) -> Options {
    Options {
        clock: Clock::Manual(ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap())),
        seed: Some(seed),
        controllers: Controllers::none()
            .with(Controller::Definitions)
            .with(Controller::Scheduler)
            .with(Controller::HollowNodes),
        nodes,
        ..Options::default()
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(options(7, Vec::new()))
    }

    pub fn with(options: Options) -> Self {
        Self {
            manual: Cluster::manual(options).unwrap(),
        }
    }

    /// With hollow nodes, on which pods may be placed.
    pub fn hollow(nodes: Vec<NodeEntry>) -> Self {
        let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
        let mut world = Self::with(options(7, nodes));
        world.settle();
        for name in names {
            world.untaint(&name);
        }
        world
    }

    /// What the node controller does once a node is ready.
    pub fn untaint(&self, name: &str) {
        self.patch(&format!("/api/v1/nodes/{name}"), &json!({"spec": {"taints": null}}));
    }

    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let content_type = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let body = body.map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
        let request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(path)
            .header("content-type", content_type)
            .body(Full::new(bytes::Bytes::from(body)))
            .unwrap();
        let answer = self.manual.service().answer(request).now_or_never().unwrap();
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    fn ok(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (code, answer) = self.ask(method, path, body);
        assert!(code < 300, "{method} {path}: {code} {answer}");
        answer
    }

    pub fn get(&self, path: &str) -> Value {
        self.ok("GET", path, None)
    }

    pub fn post(&self, path: &str, body: &Value) -> Value {
        self.ok("POST", path, Some(body))
    }

    pub fn patch(&self, path: &str, body: &Value) -> Value {
        self.ok("PATCH", path, Some(body))
    }

    pub fn delete(&self, path: &str) {
        self.ok("DELETE", path, None);
    }

    /// Everything that is ready now has run.
    pub fn settle(&mut self) {
        self.manual.settle().now_or_never().unwrap();
    }

    /// Time goes on, and everything runs that comes due.
    pub fn pass(&mut self, wait: SignedDuration) {
        let end = self.manual.clock().now() + wait;
        self.settle();
        while let Some(next) = self.manual.next_timer().filter(|next| *next <= end) {
            self.manual.advance(next);
            self.settle();
        }
        self.manual.advance(end);
        self.settle();
    }

    /// A node with so many thousandths of a cpu, 1Gi of memory and 10 pods.
    pub fn node(&self, name: &str, cpu: u32, labels: &Value) {
        let has = json!({"cpu": format!("{cpu}m"), "memory": "1Gi", "pods": "10"});
        let mut all = json!({"kubernetes.io/hostname": name});
        for (key, value) in labels.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        self.post(
            "/api/v1/nodes",
            &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": all},
                "status": {"capacity": has, "allocatable": has,
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}),
        );
        self.untaint(name);
    }

    /// A pod that asks for so many thousandths of a cpu; `more` is merged into its spec.
    pub fn pod(&self, name: &str, cpu: u32, more: &Value) -> Value {
        self.labelled(name, cpu, &json!({}), more)
    }

    pub fn labelled(&self, name: &str, cpu: u32, labels: &Value, more: &Value) -> Value {
        let mut spec = json!({"containers": [{"name": "main", "image": "registry.example/main:1",
            "resources": {"requests": {"cpu": format!("{cpu}m")}}}]});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        self.post(
            PODS,
            &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}),
        )
    }

    pub fn get_pod(&self, name: &str) -> Value {
        self.get(&format!("{PODS}/{name}"))
    }

    /// Where a pod is; empty: nowhere.
    pub fn place(&self, name: &str) -> String {
        self.get_pod(name)["spec"]["nodeName"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub fn condition(&self, pod: &str, kind: &str) -> Value {
        let pod = self.get_pod(pod);
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .into_iter()
            .find(|condition| condition["type"] == kind)
            .unwrap_or(Value::Null)
    }

    /// Why a pod has no node.
    pub fn why(&self, pod: &str) -> String {
        let condition = self.condition(pod, "PodScheduled");
        condition["message"].as_str().unwrap_or_default().to_owned()
    }

    /// The events about a pod: type, reason, source and note.
    pub fn events(&self, pod: &str) -> Vec<String> {
        let list = self.get("/apis/events.k8s.io/v1/namespaces/default/events");
        let mut events: Vec<&Value> = list["items"].as_array().unwrap().iter().collect();
        events.retain(|event| event["regarding"]["name"] == pod);
        events.sort_by_key(|event| event["eventTime"].as_str().unwrap().to_owned());
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let line = |event: &&Value| {
            let words = ["type", "reason", "action", "reportingController", "note"];
            words.map(|field| word(&event[field])).join(" | ")
        };
        events.iter().map(line).collect()
    }

    /// Serves PodGangs.
    pub fn define_gangs(&mut self) {
        self.post(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "podgangs.scheduler.grove.io"},
                "spec": {"group": "scheduler.grove.io", "scope": "Namespaced",
                    "names": {"plural": "podgangs", "singular": "podgang", "kind": "PodGang", "listKind": "PodGangList"},
                    "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}),
        );
        self.settle();
    }

    /// A gang: groups with their pods and minimum; `pack` is its packConstraint, or null.
    pub fn gang(&self, name: &str, groups: &[(&str, &[&str], usize)], pack: &Value) {
        let groups: Vec<Value> = groups
            .iter()
            .map(|(name, pods, least)| {
                let pods: Vec<Value> = pods
                    .iter()
                    .map(|pod| json!({"namespace": "default", "name": pod}))
                    .collect();
                json!({"name": name, "podReferences": pods, "minReplicas": least})
            })
            .collect();
        let mut spec = json!({"podgroups": groups});
        if !pack.is_null() {
            spec["topologyConstraint"] = json!({"packConstraint": pack});
        }
        self.post(
            GANGS,
            &json!({"apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang", "metadata": {"name": name}, "spec": spec}),
        );
    }

    /// A pod of a gang, for a scheduler that knows gangs.
    pub fn member(&self, gang: &str, name: &str, cpu: u32, more: &Value) {
        let mut spec = json!({"schedulerName": "kai-scheduler"});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        self.labelled(name, cpu, &json!({"grove.io/podgang": gang}), &spec);
    }

    pub fn places(&self, pods: &[&str]) -> Vec<String> {
        pods.iter().map(|pod| self.place(pod)).collect()
    }
}
