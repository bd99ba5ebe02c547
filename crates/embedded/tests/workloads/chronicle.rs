//! Nodes and pods in the course of time: every change that can be seen, line by line, with the moment at which it came. The
//! test plays the kubelets: each renews its node's Lease every ten seconds and needs some seconds for what it does.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use usher_embedded::Controllers;

use crate::stage::{PODS, Stage, is_deleting, is_ready, name};

pub const NODES: &str = "/api/v1/nodes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const EVENTS: &str = "/api/v1/events";
/// As often as kubelets do.
const BEAT: SignedDuration = SignedDuration::from_secs(10);

pub struct Chronicle {
    pub stage: Stage,
    begun: Timestamp,
    /// What was last seen of each object, by kind and name, with its revision.
    seen: BTreeMap<String, (u64, String)>,
    alive: BTreeSet<String>,
    next_beat: Timestamp,
    /// When a kubelet is through with what a pod asks of it.
    due: BTreeMap<String, Timestamp>,
    pub start_seconds: i64,
    pub stop_seconds: i64,
}

impl Chronicle {
    /// All controllers, and nodes that are ready.
    pub fn new(nodes: &[&str]) -> Self {
        let stage = Stage::with(Controllers::all());
        let begun = stage.world.now();
        let mut chronicle = Self {
            stage,
            begun,
            seen: BTreeMap::new(),
            alive: BTreeSet::new(),
            next_beat: begun,
            due: BTreeMap::new(),
            start_seconds: 2,
            stop_seconds: 3,
        };
        for node in nodes {
            let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
            chronicle.stage.world.post(NODES, &body);
            chronicle.says_ready(node);
            chronicle.alive.insert((*node).to_owned());
        }
        chronicle.stage.settle();
        chronicle
    }

    /// Whatever was until now is not told; time counts from here.
    pub fn begin(&mut self) {
        self.look();
        self.begun = self.stage.world.now();
        self.stage.story.clear();
    }

    /// A node's kubelet is gone, and so are its pods' processes: nobody says so.
    pub fn kill(&mut self, node: &str) {
        self.alive.remove(node);
        self.write(&format!("{node} is killed"));
    }

    /// Its kubelet is there again, and finds out what it has to do.
    pub fn revive(&mut self, node: &str) {
        self.write(&format!("{node} is started"));
        self.alive.insert(node.to_owned());
        self.says_ready(node);
        self.catch_up();
    }

    fn says_ready(&self, node: &str) {
        let now = self.stage.world.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let amounts = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "kubelet is posting ready status", "lastHeartbeatTime": now, "lastTransitionTime": now}]}});
        self.stage.world.patch(&format!("{NODES}/{node}/status"), &status);
    }

    fn renew(&self, node: &str) {
        let now = self.stage.world.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let path = format!("{LEASES}/{node}");
        let spec = json!({"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now});
        if self.stage.world.get(&path).is_some() {
            self.stage.world.patch(&path, &json!({"spec": spec}));
        } else {
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node},
                "spec": spec});
            self.stage.world.post(LEASES, &lease);
        }
    }

    /// Time goes on, and everything is done in its time.
    pub fn pass(&mut self, seconds: i64) {
        let end = self.stage.world.now() + SignedDuration::from_secs(seconds);
        self.catch_up();
        loop {
            let timer = self.stage.world.manual.next_timer();
            let due = self.due.values().min().copied();
            let next = timer.into_iter().chain(due).chain([self.next_beat]).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.stage.world.manual.advance(next);
            if self.next_beat <= next {
                self.next_beat = next + BEAT;
                for node in &self.alive {
                    self.renew(node);
                }
            }
            self.catch_up();
        }
        self.stage.world.manual.advance(end);
        self.catch_up();
    }

    /// Until nothing is left to do now; what is seen meanwhile is told in its order.
    pub fn catch_up(&mut self) {
        loop {
            while let Some(work) = self.stage.world.manual.ready().first() {
                let id = work.id.clone();
                self.stage.world.manual.run(&id).now_or_never().expect("E2");
                self.look();
            }
            if !self.kubelets() {
                return;
            }
            self.look();
        }
    }

    /// Each does what is due. Whether any did anything.
    fn kubelets(&mut self) -> bool {
        let now = self.stage.world.now();
        let mut has_done = false;
        let mut wanted = BTreeMap::new();
        for pod in self.stage.list(PODS) {
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            if !self.alive.contains(node) || (is_ready(&pod) && !is_deleting(&pod)) {
                continue;
            }
            let (what, seconds) = match is_deleting(&pod) {
                true => ("stops", self.stop_seconds),
                false => ("starts", self.start_seconds),
            };
            let key = format!("{} {what}", name(&pod));
            let known = self.due.get(&key).copied();
            let due = known.unwrap_or(now + SignedDuration::from_secs(seconds));
            if due > now {
                wanted.insert(key, due);
                continue;
            }
            has_done = true;
            if is_deleting(&pod) {
                let at_once = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
                let path = format!("{PODS}/{}", name(&pod));
                assert_eq!(self.stage.world.ask("DELETE", &path, Some(&at_once)).0, 200);
            } else {
                self.stage.report(name(&pod), "Running", true);
            }
        }
        self.due = wanted;
        has_done
    }

    /// Tells what is different from what was seen last, in the order in which it was written.
    pub fn look(&mut self) {
        self.stage.learn_hashes();
        let mut now: BTreeMap<String, (u64, String)> = BTreeMap::new();
        let revision = |object: &Value| {
            let text = object["metadata"]["resourceVersion"].as_str().unwrap();
            text.parse::<u64>().unwrap()
        };
        for (kind, path, tell) in [
            ("node", NODES, node_line as fn(&Value) -> Option<String>),
            ("pod", PODS, pod_line),
            ("event", EVENTS, event_line),
        ] {
            for object in self.stage.list(path) {
                if let Some(line) = tell(&object) {
                    now.insert(format!("{kind} {}", name(&object)), (revision(&object), line));
                }
            }
        }
        let mut news: Vec<(u64, String)> = Vec::new();
        for (key, (revision, line)) in &now {
            if self.seen.get(key).is_none_or(|(_, seen)| seen != line) {
                news.push((*revision, line.clone()));
            }
        }
        let gone: Vec<&String> = self.seen.keys().filter(|key| !now.contains_key(*key)).collect();
        for key in gone.into_iter().filter(|key| !key.starts_with("event")) {
            news.push((u64::MAX, format!("{key} is gone")));
        }
        news.sort();
        self.seen = now;
        for (_, line) in news {
            self.write(&line);
        }
    }

    pub fn write(&mut self, line: &str) {
        let since = self.stage.world.now().duration_since(self.begun).as_secs_f64();
        let line = self.stage.plain(line);
        self.stage.story.push_str(&format!("{since:>8.3} s  {line}\n"));
    }
}

fn node_line(node: &Value) -> Option<String> {
    let conditions = node["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
    let taints: Vec<String> = node["spec"]["taints"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|taint| {
            let key = taint["key"].as_str().unwrap().trim_start_matches("node.kubernetes.io/");
            format!("{key}:{}", taint["effect"].as_str().unwrap())
        })
        .collect();
    Some(format!(
        "node {}: Ready {} {} \"{}\" [{}]",
        name(node),
        ready["status"].as_str().unwrap(),
        ready["reason"].as_str().unwrap(),
        ready["message"].as_str().unwrap(),
        taints.join(" ")
    ))
}

fn pod_line(pod: &Value) -> Option<String> {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or("no node");
    let mut line = format!("pod {} on {node}: {}", name(pod), pod["status"]["phase"].as_str()?);
    line.push_str(if is_ready(pod) { ", ready" } else { ", not ready" });
    if is_deleting(pod) {
        let grace = &pod["metadata"]["deletionGracePeriodSeconds"];
        line.push_str(&format!(", has {grace} s to go"));
    }
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    for condition in conditions.filter(|condition| condition["type"] == "DisruptionTarget") {
        line.push_str(&format!(
            ", DisruptionTarget {} \"{}\"",
            condition["reason"].as_str().unwrap(),
            condition["message"].as_str().unwrap()
        ));
    }
    Some(line)
}

fn event_line(event: &Value) -> Option<String> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let about = &event["involvedObject"];
    let again = match event["count"].as_i64() {
        Some(count) if count > 1 => format!(" ({count} times)"),
        _ => String::new(),
    };
    Some(format!(
        "event by {} on {} {}: {} {}: {}{again}",
        word(&event["reportingComponent"]),
        word(&about["kind"]).to_lowercase(),
        word(&about["name"]),
        word(&event["type"]),
        word(&event["reason"]),
        word(&event["message"])
    ))
}
