//! A cluster with process nodes, and ways to wait for what happens in it.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, LogParams, PostParams};
use serde_json::{Value, json};
use usher_embedded::store::Durability;
use usher_embedded::{Cluster, NodeEntry, Options, ProcessOptions, Storage};

/// Longer than anything here takes, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(90);

pub struct World {
    pub cluster: Cluster,
    data: PathBuf,
    /// Last: it goes when all else is gone.
    _folder: tempfile::TempDir,
}

const IMAGES: &str = r#"images:
- match: "busybox:*"
  bin: ["/usr/bin", "/bin"]
  cmd: [sh]
"#;

pub fn options(data: &Path) -> Options {
    let mut process = ProcessOptions::new(PathBuf::from(env!("CARGO_BIN_EXE_usher-pod")));
    process.restart_backoff = (Duration::from_millis(300), Duration::from_secs(2));
    Options {
        storage: Storage::Folder {
            path: data.to_owned(),
            durability: Durability::Relaxed,
        },
        nodes: NodeEntry::processes(2),
        process: Some(process),
        ..Options::default()
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut options = options(&data);
        change(&mut options);
        let cluster = Cluster::start(options).unwrap();
        std::fs::write(cluster.folder().unwrap().join("images.yaml"), IMAGES).unwrap();
        Self {
            cluster,
            data,
            _folder: folder,
        }
    }

    /// In this folder, which somebody else takes away.
    pub fn at(data: PathBuf) -> Self {
        let cluster = Cluster::start(options(&data)).unwrap();
        std::fs::write(data.join("images.yaml"), IMAGES).unwrap();
        Self {
            cluster,
            data,
            _folder: tempfile::tempdir().unwrap(),
        }
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    /// As after kill -9 of the program: nothing is stopped, told or waited for, and another one starts.
    pub async fn restart(self) -> Self {
        self.restart_with(|_| {}).await
    }

    /// The same, and the other one has other flags.
    pub async fn restart_with(self, change: impl FnOnce(&mut Options)) -> Self {
        let Self { cluster, data, _folder } = self;
        cluster.stop().await;
        drop(cluster);
        let mut options = options(&data);
        change(&mut options);
        let cluster = Cluster::start(options).unwrap();
        Self { cluster, data, _folder }
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.cluster.client())
    }

    pub fn config_maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.cluster.client())
    }

    /// Makes a pod on node-1.
    pub async fn run(&self, name: &str, spec: Value) -> Pod {
        self.run_on("node-1", name, spec).await
    }

    pub async fn run_on(&self, node: &str, name: &str, mut spec: Value) -> Pod {
        spec["nodeName"] = json!(node);
        spec["automountServiceAccountToken"] = json!(false);
        // A shell or a sleep that is the first process of its namespace hears no SIGTERM.
        if spec["terminationGracePeriodSeconds"].is_null() {
            spec["terminationGracePeriodSeconds"] = json!(1);
        }
        let pod = json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let pods = self.pods();
        // The account that pods have by default is made by a controller.
        until("the pod is made", || async {
            match pods.create(&PostParams::default(), &pod).await {
                Ok(made) => Ok(made),
                Err(why) => Err(why.to_string()),
            }
        })
        .await
    }

    /// Waits until the pod is as wanted, and gives it back.
    pub async fn pod_that(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let pods = self.pods();
        until(what, || async {
            let pod = pods.get(name).await.map_err(|why| why.to_string())?;
            let pod = serde_json::to_value(pod).unwrap();
            if is(&pod) {
                Ok(pod)
            } else {
                Err(pod["status"].to_string())
            }
        })
        .await
    }

    pub async fn running(&self, name: &str) -> Value {
        self.pod_that(name, "the pod runs and is ready", is_ready).await
    }

    pub async fn phase(&self, name: &str, phase: &str) -> Value {
        self.pod_that(name, phase, |pod| pod["status"]["phase"] == phase).await
    }

    pub async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn gone(&self, name: &str) {
        let pods = self.pods();
        until("the pod is gone", || async {
            match pods.get_opt(name).await.map_err(|why| why.to_string())? {
                None => Ok(()),
                Some(pod) => Err(serde_json::to_string(&pod.status).unwrap()),
            }
        })
        .await;
    }

    pub async fn log(&self, name: &str) -> String {
        self.pods().logs(name, &LogParams::default()).await.unwrap()
    }

    pub async fn log_of(&self, name: &str, container: &str) -> String {
        let which = LogParams {
            container: Some(container.to_owned()),
            ..LogParams::default()
        };
        self.pods().logs(name, &which).await.unwrap_or_default()
    }

    /// Reason and message of the pod's events, in the order in which they came.
    pub async fn events(&self, name: &str) -> Vec<String> {
        let events: Api<Event> = Api::default_namespaced(self.cluster.client());
        let of_pod = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let mut events = events.list(&of_pod).await.unwrap().items;
        events.sort_by_key(|event| {
            let version = event.metadata.resource_version.as_deref().unwrap_or_default();
            version.parse::<u64>().unwrap_or_default()
        });
        events
            .into_iter()
            .map(|event| {
                format!(
                    "{}: {}",
                    event.reason.unwrap_or_default(),
                    event.message.unwrap_or_default()
                )
            })
            .collect()
    }

    /// Waits for an event that begins so.
    pub async fn told(&self, name: &str, beginning: &str) -> Vec<String> {
        until(&format!("event {beginning}"), || async {
            let events = self.events(name).await;
            if events.iter().any(|event| event.starts_with(beginning)) {
                Ok(events)
            } else {
                Err(format!("{events:?}"))
            }
        })
        .await
    }

    /// Processes of this cluster's pods that are alive: by the uid in their environment.
    pub fn processes(&self, uid: &str) -> Vec<u32> {
        let wanted = format!("USHER_POD_UID={uid}");
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment
                .split(|byte| *byte == 0)
                .any(|part| part == wanted.as_bytes())
            {
                found.push(pid);
            }
        }
        found
    }

    pub async fn no_processes(&self, uid: &str) {
        until("no process of the pod is left", || async {
            let left = self.processes(uid);
            if left.is_empty() {
                Ok(())
            } else {
                Err(format!("{left:?}"))
            }
        })
        .await;
    }
}

pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Ready");
    ready.is_some_and(|ready| ready["status"] == "True")
}

pub fn sh(name: &str, script: &str) -> Value {
    json!({"name": name, "image": "busybox:1", "command": ["sh", "-c", script]})
}

/// Asks until the answer is there. The last answer that was none is told.
pub async fn until<T, F: Future<Output = Result<T, String>>>(what: &str, ask: impl Fn() -> F) -> T {
    let begun = Instant::now();
    loop {
        let answer = ask().await;
        match answer {
            Ok(answer) => return answer,
            Err(last) if begun.elapsed() > LIMIT => panic!("not within {LIMIT:?}: {what}; last seen: {last}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
