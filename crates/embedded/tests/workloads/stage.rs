//! A cluster with nothing but the workload controllers, on which the test plays the kubelet.
//!
//! What happened is told in lines: events as they came, then what there is. Hashes become letters in the order in which
//! they were first seen, and the suffixes of pods become a star.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use usher_embedded::{Controller, Controllers};

use crate::world::World;

pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
pub const STATEFUL: &str = "/apis/apps/v1/namespaces/default/statefulsets";
pub const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

pub struct Stage {
    pub world: World,
    letters: BTreeMap<String, String>,
    told: BTreeSet<String>,
    pub story: String,
}

pub fn deployment(replicas: i32, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template(image)}})
}

pub fn stateful_set(replicas: i32, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {"replicas": replicas, "serviceName": "db", "selector": {"matchLabels": {"app": "web"}},
            "template": template(image)}})
}

pub fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}})
}

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

pub fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// It has ended by itself.
pub fn is_ended(pod: &Value) -> bool {
    pod["status"]["phase"] == "Failed" || pod["status"]["phase"] == "Succeeded"
}

pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

pub fn workload_controllers() -> Controllers {
    [
        Controller::GarbageCollector,
        Controller::Namespaces,
        Controller::Deployments,
        Controller::ReplicaSets,
        Controller::StatefulSets,
    ]
    .into_iter()
    .fold(Controllers::none(), Controllers::with)
}

impl Stage {
    pub fn new() -> Self {
        Self::seeded(7)
    }

    pub fn seeded(seed: u64) -> Self {
        Self::on(World::seeded(seed, workload_controllers()))
    }

    /// With others than the workload controllers alone.
    pub fn with(controllers: Controllers) -> Self {
        Self::on(World::seeded(7, controllers))
    }

    fn on(world: World) -> Self {
        Self {
            world,
            letters: BTreeMap::new(),
            told: BTreeSet::new(),
            story: String::new(),
        }
    }

    pub fn settle(&mut self) {
        self.world.settle();
    }

    pub fn list(&self, path: &str) -> Vec<Value> {
        let (code, list) = self.world.ask("GET", path, None);
        assert_eq!(code, 200, "{path}: {list}");
        list["items"].as_array().unwrap().clone()
    }

    pub fn get(&self, path: &str, name: &str) -> Value {
        self.world
            .get(&format!("{path}/{name}"))
            .unwrap_or_else(|| panic!("no {name}"))
    }

    pub fn pod_names(&self) -> Vec<String> {
        self.world.names(PODS)
    }

    /// Patches an object of the kind, and settles.
    pub fn patch(&mut self, path: &str, name: &str, change: Value) {
        self.world.patch(&format!("{path}/{name}"), &change);
        self.settle();
    }

    /// A kubelet takes the pod: its node is `node`.
    pub fn bind(&self, pod: &str, node: &str) {
        if self.get(PODS, pod)["spec"]["nodeName"].is_string() {
            return;
        }
        let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"kind": "Node", "name": node}});
        self.world.post(&format!("{PODS}/{pod}/binding"), &body);
    }

    /// A kubelet says how a pod is. Nothing settles.
    pub fn report(&self, pod: &str, phase: &str, ready: bool) {
        self.bind(pod, "node-1");
        let now = self.world.now().to_string();
        let conditions = json!([{"type": "Ready", "status": if ready { "True" } else { "False" },
            "lastTransitionTime": now}]);
        let status = json!({"status": {"phase": phase, "conditions": conditions}});
        self.world.patch(&format!("{PODS}/{pod}/status"), &status);
    }

    /// Those that run and are not ready become ready, up to `most` of them.
    pub fn make_ready(&mut self, most: usize) {
        let waiting: Vec<Value> = self
            .list(PODS)
            .into_iter()
            .filter(|pod| !is_deleting(pod) && !is_ended(pod) && !is_ready(pod))
            .take(most)
            .collect();
        for pod in waiting {
            self.report(name(&pod), "Running", true);
        }
        self.settle();
    }

    /// Pods that were told to go are gone.
    pub fn bury(&mut self) {
        for pod in self.list(PODS).iter().filter(|pod| is_deleting(pod)) {
            let now = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
            let (code, answer) = self.world.ask("DELETE", &format!("{PODS}/{}", name(pod)), Some(&now));
            assert_eq!(code, 200, "{answer}");
        }
        self.settle();
    }

    /// The kubelets do all they can, until nothing changes.
    pub fn run(&mut self) {
        for _ in 0..200 {
            let before = self.list(PODS);
            self.bury();
            self.make_ready(usize::MAX);
            if self.list(PODS) == before {
                return;
            }
        }
        panic!("it never ends: {}", self.picture());
    }

    pub fn advance(&mut self, seconds: i64) {
        self.world.advance(seconds);
        self.settle();
    }

    fn letter(&mut self, hash: &str) -> String {
        let next = char::from(b'A' + u8::try_from(self.letters.len()).unwrap());
        self.letters
            .entry(hash.to_owned())
            .or_insert_with(|| next.to_string())
            .clone()
    }

    /// A text with letters instead of hashes.
    pub fn plain(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (hash, letter) in &self.letters {
            while let Some(start) = text.find(hash.as_str()) {
                let mut end = start + hash.len();
                // The suffix of a pod.
                if text[end..].starts_with('-') {
                    end += 1 + text[end + 1..].chars().take(5).count();
                    text.replace_range(start..end, &format!("{letter}-*"));
                } else {
                    text.replace_range(start..end, letter);
                }
            }
        }
        text
    }

    pub fn learn_hashes(&mut self) {
        let mut sets = self.list(SETS);
        sets.extend(self.list(REVISIONS));
        sets.sort_by_key(|set| {
            set["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .parse::<u64>()
                .unwrap()
        });
        for set in sets {
            let labels = &set["metadata"]["labels"];
            for label in ["pod-template-hash", "controller.kubernetes.io/hash"] {
                if let Some(hash) = labels[label].as_str() {
                    self.letter(hash);
                }
            }
        }
    }

    /// Events that were not told yet, in the order of their writing; several of the same are one line.
    pub fn news(&mut self) -> Vec<String> {
        self.learn_hashes();
        let mut events = self.list("/api/v1/namespaces/default/events");
        events.sort_by_key(|event| {
            event["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .parse::<u64>()
                .unwrap()
        });
        let mut lines: Vec<(String, usize)> = Vec::new();
        for event in events {
            let version = event["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            if !self.told.insert(version) {
                continue;
            }
            let word = |field: &str| event[field].as_str().unwrap_or_default();
            let line = self.plain(&format!("{} {}: {}", word("type"), word("reason"), word("message")));
            match lines.last_mut() {
                Some((last, count)) if *last == line => *count += 1,
                _ => lines.push((line, 1)),
            }
        }
        lines
            .into_iter()
            .map(|(line, count)| {
                if count > 1 {
                    format!("{line} ({count} times)")
                } else {
                    line
                }
            })
            .collect()
    }

    /// What there is: sets with pods, pods of stateful sets, and what the workloads say of themselves.
    pub fn picture(&mut self) -> String {
        self.learn_hashes();
        let pods = self.list(PODS);
        let mut lines = Vec::new();
        for set in self.list(SETS) {
            let mine = |pod: &&Value| pod["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"];
            let mine: Vec<&Value> = pods.iter().filter(mine).collect();
            let count = |holds: fn(&Value) -> bool| mine.iter().filter(|pod| holds(pod)).count();
            if set["spec"]["replicas"] == 0 && mine.is_empty() {
                continue;
            }
            let line = format!(
                "{} wants {}: {} ready, {} not, {} going",
                name(&set),
                set["spec"]["replicas"],
                count(|pod| is_ready(pod) && !is_deleting(pod)),
                count(|pod| !is_ready(pod) && !is_deleting(pod)),
                count(is_deleting)
            );
            lines.push(self.plain(&line));
        }
        lines.sort();
        for pod in pods
            .iter()
            .filter(|pod| pod["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet")
        {
            let state = match (is_deleting(pod), is_ready(pod)) {
                (true, _) => "going",
                (_, true) => "ready",
                _ => pod["status"]["phase"].as_str().unwrap(),
            };
            let revision = pod["metadata"]["labels"]["controller-revision-hash"].as_str().unwrap();
            lines.push(self.plain(&format!("{} {state}, {revision}", name(pod))));
        }
        for path in [DEPLOYMENTS, STATEFUL] {
            for workload in self.list(path) {
                lines.push(self.plain(&says(&workload, path == DEPLOYMENTS)));
            }
        }
        lines.join("\n")
    }

    /// One chapter of the story.
    pub fn tell(&mut self, title: &str) {
        self.story.push_str(&format!("# {title}\n"));
        for line in self.news() {
            self.story.push_str(&format!("- {line}\n"));
        }
        let picture = self.picture();
        self.story.push_str(&format!("{picture}\n\n"));
    }

    /// Compares the story with the one that is written down beside the tests; `BLESS=1` writes it down anew.
    pub fn ends_as(&self, file: &str) {
        let path = format!("{}/tests/workloads/stories/{file}.txt", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &self.story).unwrap();
        }
        let wanted = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(self.story, wanted, "the story differs from {path}");
    }
}

/// A workload's own words.
fn says(workload: &Value, is_deployment: bool) -> String {
    let status = &workload["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let mut conditions: Vec<String> = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|condition| {
            let word = |field: &str| condition[field].as_str().unwrap_or_default();
            format!(
                "{} {} {} \"{}\"",
                word("type"),
                word("status"),
                word("reason"),
                word("message")
            )
        })
        .collect();
    conditions.sort();
    let mut line = format!(
        "{} says: {} replicas, {} updated, {} ready, {} available",
        name(workload),
        number("replicas"),
        number("updatedReplicas"),
        number("readyReplicas"),
        number("availableReplicas"),
    );
    if is_deployment {
        let revision = &workload["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
        line.push_str(&format!(
            ", {} unavailable, {} terminating, revision {}",
            number("unavailableReplicas"),
            number("terminatingReplicas"),
            revision.as_str().unwrap_or("unknown")
        ));
    } else {
        let word = |field: &str| status[field].as_str().unwrap_or("none").to_owned();
        line.push_str(&format!(
            ", {} current; current {}, update {}",
            number("currentReplicas"),
            word("currentRevision"),
            word("updateRevision")
        ));
    }
    for condition in conditions {
        line.push_str(&format!("\n  {condition}"));
    }
    line
}
