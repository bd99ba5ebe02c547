//! Pods that run while `usher up` is killed again and again (N2, N12): those that ran still run and are found again, none
//! is ever started twice, and in the end nothing of them is left.
//!
//! Each container writes a line into a file of the host when it starts, so that a second start shows whatever the API says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;

use crate::chance::Chance;

/// Generous: two cores are shared with a compiler and with other tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many run at a time.
const MOST: usize = 8;

pub struct Pods {
    marks: PathBuf,
    /// In the environment of every process of theirs, and of nobody else's.
    brand: String,
    serial: usize,
    /// The container of each pod that was seen to run.
    running: BTreeMap<String, String>,
    /// Asked for, and perhaps there.
    wished: BTreeSet<String>,
    /// Deleted, and perhaps still there.
    doomed: BTreeSet<String>,
    adopted: usize,
}

impl Pods {
    pub fn new(home: &Path) -> Self {
        let marks = home.join("marks");
        fs::create_dir(&marks).unwrap();
        Self {
            brand: format!("USHER_KILL_TEST={}", home.display()),
            marks,
            serial: 0,
            running: BTreeMap::new(),
            wished: BTreeSet::new(),
            doomed: BTreeSet::new(),
            adopted: 0,
        }
    }

    /// Where containers leave their marks.
    pub fn folder(&self) -> &str {
        self.marks.to_str().unwrap()
    }

    pub fn counts(&self) -> (usize, usize) {
        (self.serial, self.adopted)
    }

    fn pod(&self, name: &str) -> Pod {
        let (variable, value) = self.brand.split_once('=').unwrap();
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main",
                    "image": "busybox:1.36",
                    "command": ["sh", "-c", "echo started >> \"$0/$POD\"; exec sleep 100000", "/marks"],
                    "env": [{"name": "POD", "value": name}, {"name": variable, "value": value}],
                    "volumeMounts": [{"name": "marks", "mountPath": "/marks"}],
                }],
                "volumes": [{"name": "marks", "hostPath": {"path": self.folder(), "type": "Directory"}}],
            },
        }))
        .unwrap()
    }

    /// After a start: everything is as it was, or as it was asked to be.
    pub async fn compare(&mut self, pods: &Api<Pod>) {
        let found = until(async || self.look(pods).await).await;
        self.adopted += self.running.len();
        self.running = found;
        for name in self.running.keys() {
            let starts = fs::read_to_string(self.marks.join(name)).unwrap();
            assert_eq!(starts, "started\n", "{name} was started more than once");
        }
    }

    async fn look(&mut self, pods: &Api<Pod>) -> Result<BTreeMap<String, String>, String> {
        let listed = pods.list(&ListParams::default()).await.map_err(|why| why.to_string())?;
        let there: BTreeMap<String, Pod> = listed
            .items
            .into_iter()
            .map(|pod| (pod.metadata.name.clone().unwrap(), pod))
            .collect();
        // What was asked for and never answered may not be there.
        self.wished.retain(|name| there.contains_key(name));
        if let Some(name) = self.doomed.iter().find(|name| there.contains_key(*name)) {
            let pod = &there[name];
            if pod.metadata.deletion_timestamp.is_some() {
                return Err(format!("{name} was deleted and is still there: {:?}", pod.status));
            }
        }
        // A delete that was never answered may not have come.
        let spared: Vec<String> = self
            .doomed
            .iter()
            .filter(|name| there.contains_key(*name))
            .cloned()
            .collect();
        self.doomed.clear();
        self.wished.extend(spared);
        let mut found = BTreeMap::new();
        for name in self.running.keys().chain(&self.wished) {
            let Some(pod) = there.get(name) else {
                panic!("{name} is gone, and nobody deleted it");
            };
            let status = pod.status.clone().unwrap_or_default();
            let container = status.container_statuses.unwrap_or_default().into_iter().next();
            let running = container.filter(|container| {
                let state = container.state.clone().unwrap_or_default();
                status.phase.as_deref() == Some("Running") && state.running.is_some()
            });
            let Some(container) = running else {
                return Err(format!("{name} does not run: {:?}", pod.status));
            };
            assert_eq!(container.restart_count, 0, "{name} was restarted: {:?}", pod.status);
            found.insert(name.clone(), container.container_id.unwrap_or_default());
        }
        for (name, container) in &self.running {
            assert_eq!(&found[name], container, "{name} is another container now");
        }
        self.wished.clear();
        Ok(found)
    }

    /// Some come, some go, and whether that is answered does not matter: the next start shows.
    pub async fn stir(&mut self, pods: &Api<Pod>, chance: &mut Chance) {
        for _ in 0..chance.between(0, 2) {
            if self.running.len() + self.wished.len() >= MOST {
                break;
            }
            let name = format!("pod-{:03}", self.serial);
            self.serial += 1;
            self.wished.insert(name.clone());
            let _ = pods.create(&PostParams::default(), &self.pod(&name)).await;
        }
        if chance.between(0, 2) == 0 || self.running.len() >= MOST {
            let Some(name) = self.running.keys().next().cloned() else {
                return;
            };
            self.running.remove(&name);
            self.doomed.insert(name.clone());
            let _ = pods.delete(&name, &DeleteParams::default()).await;
        }
    }

    /// Deletes them all, and waits until the API and the machine have nothing of them any more.
    pub async fn end(&mut self, pods: &Api<Pod>) {
        pods.delete_collection(&DeleteParams::default(), &ListParams::default())
            .await
            .unwrap();
        until(async || {
            let left = pods.list(&ListParams::default()).await.unwrap().items.len();
            let strays = self.strays();
            match (left, strays.is_empty()) {
                (0, true) => Ok(()),
                _ => Err(format!("{left} pods are left, and the processes {strays:?}")),
            }
        })
        .await;
    }

    /// Processes of the pods, and supervisors of their folders.
    fn strays(&self) -> Vec<String> {
        let (_, home) = self.brand.split_once('=').unwrap();
        let processes = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let pid = entry.file_name().into_string().ok()?;
            pid.parse::<u32>().ok()?;
            let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace('\0', " ");
            let (environment, line) = (text(read("environ")), text(read("cmdline")));
            let is_ours = environment.contains(&self.brand) || (line.contains("pod-supervisor") && line.contains(home));
            is_ours.then(|| format!("{pid} {line}"))
        });
        processes.collect()
    }
}

/// Until a look finds what it looks for.
async fn until<T>(mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match look().await {
            Ok(found) => return found,
            Err(why) => assert!(begun.elapsed() < PATIENCE, "{why}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
