//! Pods: a thousand of a Deployment on nodes that run nothing, beside the same on the real control plane; and real ones, as
//! processes of this machine.
//!
//! On the real control plane this program plays the kubelets: it watches pods that have a node, and writes the status that
//! a hollow node of ours writes. Both are asked over TLS by the same client, by turns.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::discovery::ApiResource;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
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
/// As kubelets do.
const RENEW: Duration = Duration::from_secs(10);

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
        .note("kube-controller-manager and kube-scheduler (300 requests per second each); this program plays the kubelets"),
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
    let measured = async {
        let rollout = roll_out(&client).await?;
        clear(&client).await?;
        Ok(rollout)
    };
    // Without kubelets nothing becomes Ready: their failure is the run's.
    tokio::select! {
        measured = measured => measured,
        failed = play_kubelets(&client) => Err(failed),
        failed = renew_nodes(&client) => Err(failed),
    }
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

fn nodes(client: &kube::Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &of("", "Node", "nodes"))
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Nodes with room for all, that are Ready.
async fn make_nodes(kubeconfig: &Path) -> Result<()> {
    let client = http::client(kubeconfig).await?;
    for n in 1..=NODES {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("hollow-{n}")}});
        let made = nodes(&client).create(&PostParams::default(), &object(node)?).await;
        made.map_err(|why| Error::api("create a node", why))?;
    }
    tell_nodes(&client).await
}

async fn tell_nodes(client: &kube::Client) -> Result<()> {
    let room = json!({"cpu": "64", "memory": "256Gi", "pods": "110"});
    for n in 1..=NODES {
        let status = json!({"status": {"capacity": room, "allocatable": room, "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "hollow", "lastHeartbeatTime": now(),
        }]}});
        let told = nodes(client)
            .patch_status(&format!("hollow-{n}"), &PatchParams::default(), &Patch::Merge(status))
            .await;
        told.map_err(|why| Error::api("write a node's status", why))?;
    }
    Ok(())
}

/// Until it is dropped: nodes that say nothing for 50 s are taken for dead, and get no pods.
async fn renew_nodes(client: &kube::Client) -> Error {
    loop {
        if let Err(why) = tell_nodes(client).await {
            return why;
        }
        tokio::time::sleep(RENEW).await;
    }
}

/// Until it is dropped: every pod that has a node becomes Ready.
async fn play_kubelets(client: &kube::Client) -> Error {
    loop {
        // The server ends a watch whose reader falls behind; the next one begins with all pods there are.
        if let Err(why) = play_once(&pods(client)).await {
            return why;
        }
    }
}

async fn play_once(api: &Api<DynamicObject>) -> Result<()> {
    let events = api.watch(&WatchParams::default(), "0").await;
    let events = events.map_err(|why| Error::api("watch pods", why))?;
    // Events are read as they come, and pods looked after a few at a time.
    let hands = Semaphore::new(16);
    events
        .map_err(|why| Error::api("watch pods", why))
        .try_for_each_concurrent(None, |event| {
            let hands = &hands;
            async move {
                let _hand = hands.acquire().await;
                match event {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => run(api, &pod).await,
                    WatchEvent::Error(why) => Err(Error::api("watch pods", why.message)),
                    WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => Ok(()),
                }
            }
        })
        .await
}

async fn run(api: &Api<DynamicObject>, pod: &DynamicObject) -> Result<()> {
    let has_node = pod.data.pointer("/spec/nodeName").is_some();
    if !has_node || is_running(pod) {
        return Ok(());
    }
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let told = api
        .patch_status(name, &PatchParams::default(), &Patch::Merge(running()))
        .await;
    match told {
        Ok(_) => Ok(()),
        // A pod that went meanwhile is no matter.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(why) => Err(Error::api("write a pod's status", why)),
    }
}

fn is_running(pod: &DynamicObject) -> bool {
    pod.data.pointer("/status/phase").and_then(Value::as_str) == Some("Running")
}

fn running() -> Value {
    let now = now();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"].map(condition);
    json!({"status": {
        "phase": "Running", "startTime": now, "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": conditions,
        "containerStatuses": [{"name": "main", "image": "busybox:1.36", "imageID": "", "ready": true, "started": true,
            "restartCount": 0, "state": {"running": {"startedAt": now}}}],
    }})
}

/// Real processes: one at a time, and many at once.
pub(super) fn processes(options: &Options, program: &Path) -> Result<Vec<Row>> {
    let runtime = asks::runtime()?;
    let folder = super::start::scratch("pods")?;
    let measured = runtime.block_on(measure(options, program, &folder));
    let _ = std::fs::remove_dir_all(&folder);
    let (lone, many) = measured?;
    let ms = |of: fn(&Course) -> f64| lone.iter().map(|course| of(course) * 1e3).collect();
    Ok(vec![
        Row::new(
            "a sleep pod on a process node, bound to Running",
            "ms",
            ms(|course| course.bound_to_running),
        )
        .best_at_most(50.0)
        .note("as a watch sees it; objects on disk, fsync"),
        Row::new("the same, create to Running", "ms", ms(|course| course.whole)),
        Row::new(
            format!("{AT_ONCE} sleep pods at once, create to Running"),
            "s",
            many.iter().map(|course| course.whole).collect(),
        )
        .best_at_most(2.0),
    ])
}

async fn measure(options: &Options, program: &Path, folder: &Path) -> Result<(Vec<Course>, Vec<Course>)> {
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
    let measured = async {
        node_is_free(&client).await?;
        let (mut lone, mut many) = (Vec::new(), Vec::new());
        for _ in 0..options.runs.max(1) {
            lone.push(start(&client, 1).await?);
        }
        for _ in 0..options.runs.max(1) {
            many.push(start(&client, AT_ONCE).await?);
        }
        Ok((lone, many))
    }
    .await;
    // Objects go at once with a grace of none, and their supervisors a little later: none is to be left.
    cluster.stop_pods(|_| {}).await;
    cluster.stop().await;
    measured
}

/// A pod that is made before its node is Ready rests a second or more before it is looked at again.
async fn node_is_free(client: &kube::Client) -> Result<()> {
    until("the node to be Ready", async || {
        let listed = nodes(client).list(&ListParams::default()).await;
        let listed = listed.map_err(|why| Error::api("list nodes", why))?;
        let is_free = |node: &DynamicObject| {
            let conditions = node.data.pointer("/status/conditions").and_then(Value::as_array);
            let is_ready = conditions
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
            is_ready && node.data.pointer("/spec/taints").is_none()
        };
        Ok(!listed.items.is_empty() && listed.items.iter().all(is_free))
    })
    .await
}

/// How pods that were made together came to run, in seconds.
struct Course {
    /// From the first create that was sent to the last pod that runs.
    whole: f64,
    /// The longest that any of them took.
    bound_to_running: f64,
}

/// Makes as many pods, and has them gone again.
async fn start(client: &kube::Client, count: usize) -> Result<Course> {
    let api = pods(client);
    let sleep = |n: usize| {
        object(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("sleep-{n}")},
            "spec": {"terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "busybox:1.36", "command": ["sleep", "100000"]}]}}),
        )
    };
    let wanted = (0..count).map(sleep).collect::<Result<Vec<_>>>()?;
    let since = (revision(client).await? as u64).to_string();
    let begun = Instant::now();
    let creates = futures::stream::iter(wanted)
        .map(|pod| {
            let api = api.clone();
            async move {
                api.create(&PostParams::default(), &pod)
                    .await
                    .map_err(|why| Error::api("create a pod", why))
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_for_each(|_| async { Ok(()) });
    let watched = tokio::time::timeout(PATIENCE, watch(&api, &since, count));
    let ((), watched) = futures::future::try_join(creates, async {
        watched
            .await
            .map_err(|_| Error::Wrong(format!("waited {} s for the pods to run", PATIENCE.as_secs())))
    })
    .await?;
    let course = Course {
        whole: begun.elapsed().as_secs_f64(),
        bound_to_running: watched?,
    };
    let gone = api
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await;
    gone.map_err(|why| Error::api("delete pods", why))?;
    until("the pods to go", async || {
        let left = api.list(&ListParams::default()).await;
        Ok(left.map_err(|why| Error::api("list pods", why))?.items.is_empty())
    })
    .await?;
    Ok(course)
}

/// Until as many pods run. Seconds from bound to Running, of the slowest.
async fn watch(api: &Api<DynamicObject>, since: &str, count: usize) -> Result<f64> {
    let events = api.watch(&WatchParams::default(), since).await;
    let mut events = std::pin::pin!(events.map_err(|why| Error::api("watch pods", why))?);
    let mut bound: BTreeMap<String, Instant> = BTreeMap::new();
    let mut took: BTreeMap<String, f64> = BTreeMap::new();
    while let Some(event) = events.next().await {
        let pod = match event.map_err(|why| Error::api("watch pods", why))? {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => pod,
            WatchEvent::Error(why) => return Err(Error::api("watch pods", why.message)),
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => continue,
        };
        let name = pod.metadata.name.clone().unwrap_or_default();
        if pod.data.pointer("/spec/nodeName").is_none() {
            continue;
        }
        let since = *bound.entry(name.clone()).or_insert_with(Instant::now);
        if is_running(&pod) {
            took.entry(name).or_insert_with(|| since.elapsed().as_secs_f64());
        }
        if took.len() == count {
            return Ok(took.into_values().fold(0.0, f64::max));
        }
    }
    Err(Error::Wrong("the watch of pods ended before they ran".to_owned()))
}
