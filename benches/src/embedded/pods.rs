//! Pods: a thousand of a Deployment on nodes that run nothing, beside the same on the real control plane; and real ones, as
//! processes of this machine.
//!
//! On the real control plane this program plays the kubelets: it watches pods that have a node, and writes the status that
//! a hollow node of ours writes. Both are asked over TLS by the same client, by turns.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::discovery::ApiResource;
use serde_json::{Value, json};
use usher_embedded::{Cluster, ListenOptions, NodeEntry, Options as ClusterOptions, ProcessOptions, Storage};

use super::{Options, asks, http};
use crate::error::{Error, Result};
use crate::plane::Plane;
use crate::report::Row;

const PODS: i64 = 1_000;
/// 110 pods each.
const NODES: usize = 10;
const AT_ONCE: usize = 30;
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(5);

/// What a run of the Deployment came to.
struct Rollout {
    seconds: f64,
    writes_per_pod: f64,
}

/// Both control planes by turns.
pub(super) fn beside(options: &Options, plane: &Plane) -> Result<Vec<Row>> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let runtime = asks::runtime()?;
    runtime.block_on(make_nodes(&plane.kubeconfig()))?;
    for _ in 0..options.runs.clamp(1, 3) {
        ours.push(runtime.block_on(hollow())?);
        theirs.push(runtime.block_on(real(&plane.kubeconfig()))?);
    }
    let seconds = |runs: &[Rollout]| runs.iter().map(|run| run.seconds).collect::<Vec<_>>();
    let writes = |runs: &[Rollout]| runs.iter().map(|run| run.writes_per_pod).collect::<Vec<_>>();
    let ratios = seconds(&theirs)
        .iter()
        .zip(seconds(&ours))
        .map(|(theirs, ours)| theirs / ours)
        .collect();
    Ok(vec![
        Row::new(
            format!("{PODS} pods of a Deployment to Ready, embedded"),
            "s",
            seconds(&ours),
        )
        .best_at_most(5.0)
        .note("hollow nodes, in memory"),
        Row::new("writes per pod, embedded", "", writes(&ours)).at_most(5.0),
        Row::new(
            format!("{PODS} pods of a Deployment to Ready, real"),
            "s",
            seconds(&theirs),
        )
        .note("kube-controller-manager (300 requests per second), kube-scheduler; this program plays the kubelets"),
        Row::new("writes per pod, real", "", writes(&theirs)),
        Row::new("real / embedded", "x", ratios),
    ])
}

async fn hollow() -> Result<Rollout> {
    let options = ClusterOptions {
        nodes: NodeEntry::hollows(NODES),
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(options).map_err(|why| Error::api("start an embedded cluster", why))?;
    let listening = cluster.listen(ListenOptions::default()).await;
    let listening = listening.map_err(|why| Error::api("listen", why))?;
    let client = http::client(listening.kubeconfig_file()).await?;
    let rollout = roll_out(&client).await;
    cluster.stop().await;
    rollout
}

async fn real(kubeconfig: &Path) -> Result<Rollout> {
    let client = http::client(kubeconfig).await?;
    let kubelets = tokio::spawn(play_kubelets(client.clone()));
    let rollout = roll_out(&client).await;
    let cleared = clear(&client).await;
    kubelets.abort();
    cleared?;
    rollout
}

fn of(group: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() {
        "v1".to_owned()
    } else {
        format!("{group}/v1")
    };
    ApiResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

fn pods(client: &kube::Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), "default", &of("", "Pod", "pods"))
}

fn deployments(client: &kube::Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), "default", &of("apps", "Deployment", "deployments"))
}

fn object(value: Value) -> Result<DynamicObject> {
    serde_json::from_value(value).map_err(|why| Error::Wrong(format!("no object: {why}")))
}

async fn revision(client: &kube::Client) -> Result<f64> {
    let listed = pods(client).list(&ListParams::default().limit(1)).await;
    let listed = listed.map_err(|why| Error::api("list pods", why))?;
    Ok(listed
        .metadata
        .resource_version
        .and_then(|text| text.parse().ok())
        .unwrap_or(0.0))
}

async fn roll_out(client: &kube::Client) -> Result<Rollout> {
    let deployment = object(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "bench"},
        "spec": {"replicas": PODS, "selector": {"matchLabels": {"app": "bench"}}, "template": {
            "metadata": {"labels": {"app": "bench"}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "busybox:1.36"}]},
        }},
    }))?;
    let before = revision(client).await?;
    let begun = Instant::now();
    let api = deployments(client);
    let made = api.create(&PostParams::default(), &deployment).await;
    made.map_err(|why| Error::api("create the Deployment", why))?;
    until(&format!("{PODS} pods to be Ready"), async || {
        let live = api
            .get("bench")
            .await
            .map_err(|why| Error::api("read the Deployment", why))?;
        Ok(live.data.pointer("/status/readyReplicas").and_then(Value::as_i64) == Some(PODS))
    })
    .await?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Rollout {
        seconds,
        writes_per_pod: (revision(client).await? - before) / PODS as f64,
    })
}

async fn clear(client: &kube::Client) -> Result<()> {
    let gone = deployments(client).delete("bench", &DeleteParams::foreground()).await;
    gone.map_err(|why| Error::api("delete the Deployment", why))?;
    until("the pods to go", async || {
        let left = pods(client).list(&ListParams::default()).await;
        Ok(left.map_err(|why| Error::api("list pods", why))?.items.is_empty())
    })
    .await
}

async fn until(what: &str, done: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !done().await? {
        if begun.elapsed() > PATIENCE {
            return Err(Error::Wrong(format!("waited {} s for {what}", PATIENCE.as_secs())));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Nodes with room for all, that are Ready.
async fn make_nodes(kubeconfig: &Path) -> Result<()> {
    let client = http::client(kubeconfig).await?;
    let nodes: Api<DynamicObject> = Api::all_with(client, &of("", "Node", "nodes"));
    for n in 1..=NODES {
        let name = format!("hollow-{n}");
        let node = object(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}))?;
        let made = nodes.create(&PostParams::default(), &node).await;
        made.map_err(|why| Error::api("create a node", why))?;
        let room = json!({"cpu": "64", "memory": "256Gi", "pods": "110"});
        let status = json!({"status": {"capacity": room, "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "hollow"}]}});
        let told = nodes
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
            .await;
        told.map_err(|why| Error::api("write a node's status", why))?;
    }
    Ok(())
}

/// Until it is aborted: every pod that has a node becomes Ready.
async fn play_kubelets(client: kube::Client) -> Result<()> {
    let api = pods(&client);
    let events = api.watch(&WatchParams::default(), "0").await;
    let events = events.map_err(|why| Error::api("watch pods", why))?;
    events
        .map_err(|why| Error::api("watch pods", why))
        .try_for_each_concurrent(16, |event| {
            let api = api.clone();
            async move {
                let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else {
                    return Ok(());
                };
                let has_node = pod.data.pointer("/spec/nodeName").is_some();
                let is_running = pod.data.pointer("/status/phase").and_then(Value::as_str) == Some("Running");
                if !has_node || is_running {
                    return Ok(());
                }
                let name = pod.metadata.name.unwrap_or_default();
                // A pod that went meanwhile is no matter.
                let _ = api
                    .patch_status(&name, &PatchParams::default(), &Patch::Merge(running()))
                    .await;
                Ok(())
            }
        })
        .await
}

fn running() -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"].map(condition);
    json!({"status": {
        "phase": "Running", "startTime": now, "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": conditions,
        "containerStatuses": [{"name": "main", "image": "busybox:1.36", "imageID": "", "ready": true, "started": true,
            "restartCount": 0, "state": {"running": {"startedAt": now}}}],
    }})
}

/// Real processes: from the create to Running, one at a time, and many at once.
pub(super) fn processes(options: &Options, program: &Path) -> Result<Vec<Row>> {
    let runtime = asks::runtime()?;
    let folder = super::start::scratch("pods")?;
    let measured = runtime.block_on(measure(options, program, &folder));
    let _ = std::fs::remove_dir_all(&folder);
    let (lone, many) = measured?;
    Ok(vec![
        Row::new("a sleep pod on a process node, to Running", "ms", lone).best_at_most(50.0),
        Row::new(format!("{AT_ONCE} sleep pods at once, to Running"), "s", many).best_at_most(2.0),
    ])
}

async fn measure(options: &Options, program: &Path, folder: &Path) -> Result<(Vec<f64>, Vec<f64>)> {
    let images: PathBuf = folder.join("images.yaml");
    std::fs::write(&images, "images:\n- match: \"busybox:*\"\n  bin: [/bin, /usr/bin]\n")
        .map_err(Error::at("write", &images))?;
    let cluster = Cluster::start(ClusterOptions {
        storage: Storage::Folder {
            path: folder.join("data"),
            durability: usher_embedded::store::Durability::Fsync,
        },
        nodes: NodeEntry::processes(1),
        process: Some(ProcessOptions {
            images: vec![images],
            ..ProcessOptions::new(program.to_owned())
        }),
        ..ClusterOptions::default()
    })
    .map_err(|why| Error::api("start an embedded cluster", why))?;
    let client = cluster.client();
    let (mut lone, mut many) = (Vec::new(), Vec::new());
    let mut outcome = Ok(());
    for _ in 0..options.runs.max(1) {
        match (start(&client, 1).await, start(&client, AT_ONCE).await) {
            (Ok(one), Ok(all)) => {
                lone.push(one * 1e3);
                many.push(all);
            }
            (one, all) => outcome = one.and(all).map(drop),
        }
    }
    cluster.stop().await;
    outcome.map(|()| (lone, many))
}

/// Seconds until as many pods run; they are gone afterwards.
async fn start(client: &kube::Client, count: usize) -> Result<f64> {
    let api = pods(client);
    let sleep = |n: usize| {
        object(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("sleep-{n}")},
            "spec": {"terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "busybox:1.36", "command": ["sleep", "100000"]}]}}),
        )
    };
    let wanted = (0..count).map(sleep).collect::<Result<Vec<_>>>()?;
    let begun = Instant::now();
    futures::stream::iter(wanted)
        .map(|pod| {
            let api = api.clone();
            async move {
                api.create(&PostParams::default(), &pod)
                    .await
                    .map_err(|why| Error::api("create a pod", why))
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    until("the pods to run", async || {
        let listed = api
            .list(&ListParams::default())
            .await
            .map_err(|why| Error::api("list pods", why))?;
        let runs = |pod: &DynamicObject| pod.data.pointer("/status/phase").and_then(Value::as_str) == Some("Running");
        Ok(listed.items.iter().filter(|pod| runs(pod)).count() == count)
    })
    .await?;
    let seconds = begun.elapsed().as_secs_f64();
    let gone = api
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await;
    gone.map_err(|why| Error::api("delete pods", why))?;
    until("the pods to go", async || {
        let left = api.list(&ListParams::default()).await;
        Ok(left.map_err(|why| Error::api("list pods", why))?.items.is_empty())
    })
    .await?;
    Ok(seconds)
}
