//! The agent of one process node: what a kubelet does. It decides; each pod's supervisor obeys
//! ([`supervisor`](crate::node::supervisor)).
//!
//! One task per node. It keeps the Node and its Lease, and starts one worker for each pod that is bound to the node or
//! has a folder of it. Everything a worker needs after a crash is in the pod's folder and in its object, so an agent may be
//! dropped at any point: the pods run on, and the next agent goes on from there (N2).
//!
//! - [`life`]: the decisions, pure. [`worker`]: one pod's loop. [`chores`]: its steps. [`launch`]: what a container is
//!   started with. [`messages`]: what it leaves to say. [`measure`]: what it has on the disk. [`patience`]: with a
//!   supervisor that does not answer.
//! - [`publish`]: statuses. [`doors`]: logs and exec. [`registration`]: Node and Lease. [`admission`]: what the node
//!   will not have. [`surroundings`]: the objects that pods name. [`folder`]: what is on disk.

mod admission;
mod chores;
pub(crate) mod doors;
mod folder;
pub(crate) mod launch;
pub mod life;
mod measure;
mod messages;
mod patience;
mod publish;
mod registration;
mod surroundings;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use crate::controllers::hand::reference;
use crate::controllers::recorder::Happening;
use crate::node::entry::NodeEntry;
use crate::node::machine::Machine;
use crate::node::supervisor::client::Supervisor;
pub(crate) use folder::PodAtRest;
use folder::PodFolder;
use life::{Attempts, Telling};
use worker::Worker;

/// Events that wait to be written; more are dropped, as the reference does.
const MOST_TELLINGS: usize = 1_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) machine: Arc<Machine>,
    pub(crate) entry: NodeEntry,
    pub(crate) address: Ipv4Addr,
    /// Pods to be looked at, by namespace and name.
    dirty: Mutex<BTreeSet<(String, String)>>,
    woken: Notify,
    posts: Mutex<BTreeMap<String, Post>>,
    own: Weak<Agent>,
    /// Whether the API can be reached.
    reach: watch::Sender<bool>,
    tellings: mpsc::Sender<(Arc<Pod>, Telling)>,
}

/// What the agent has of a pod's worker.
#[derive(Debug)]
struct Post {
    namespace: String,
    name: String,
    seen: watch::Sender<Seen>,
    view: watch::Receiver<View>,
}

/// A pod's object, as the worker is to see it.
#[derive(Debug, Clone)]
struct Seen {
    pod: Arc<Pod>,
    is_gone: bool,
}

/// What a worker knows, for those who ask the node.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    status: PodStatus,
    attempts: Attempts,
    supervisor: Option<Supervisor>,
}

impl Agent {
    /// The agent, and what it is to do: to be spawned by whoever wants it to run.
    pub(crate) fn new(
        machine: Arc<Machine>,
        entry: NodeEntry,
        address: Ipv4Addr,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send) {
        let (tellings, told) = mpsc::channel(MOST_TELLINGS);
        let agent = Arc::new_cyclic(|own| Self {
            own: own.clone(),
            machine,
            entry,
            address,
            dirty: Mutex::default(),
            woken: Notify::new(),
            posts: Mutex::default(),
            reach: watch::Sender::new(true),
            tellings,
        });
        (agent.clone(), agent.run(told))
    }

    /// Something about this pod was written.
    pub(crate) fn pod_changed(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        self.woken.notify_one();
    }

    /// Everything may have changed.
    pub(crate) fn all_changed(&self) {
        let bound = self.machine.hand().mirror.pods.list(None);
        let bound = bound.iter().filter(|pod| self.is_ours(pod)).map(|pod| key_of(pod));
        let posts = self.posts();
        let posted = posts.values().map(|post| (post.namespace.clone(), post.name.clone()));
        let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
        dirty.extend(bound.chain(posted));
        self.woken.notify_one();
    }

    /// Cuts the agent off from the API, or lets it reach it again.
    pub(crate) fn set_reach(&self, is_reached: bool) {
        self.reach.send_replace(is_reached);
        self.woken.notify_one();
    }

    /// Done when the API can be reached.
    async fn reached(&self) {
        // The sender is ours: it cannot be gone.
        let _ = self.reach.subscribe().wait_for(|is_reached| *is_reached).await;
    }

    fn posts(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Post>> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a pod's worker knows now, and what it will know.
    fn view(&self, uid: &str) -> Option<watch::Receiver<View>> {
        self.posts().get(uid).map(|post| post.view.clone())
    }

    fn is_ours(&self, pod: &Pod) -> bool {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node == Some(self.entry.name.as_str())
    }

    /// Never ends by itself.
    async fn run(self: Arc<Self>, told: mpsc::Receiver<(Arc<Pod>, Telling)>) {
        let mut tasks: JoinSet<()> = JoinSet::new();
        tasks.spawn(self.clone().tell_all(told));
        tasks.spawn(self.clone().stay_registered());
        let mut workers: JoinSet<String> = JoinSet::new();
        let mut uids: HashMap<tokio::task::Id, String> = HashMap::new();
        // Events and statuses need no Node, but people expect it to be there first.
        self.reached().await;
        self.adopt_all(&mut workers, &mut uids);
        self.all_changed();
        loop {
            self.reached().await;
            for key in self.take_dirty() {
                self.look_at(&key, &mut workers, &mut uids);
            }
            tokio::select! {
                () = self.woken.notified() => {}
                Some(done) = workers.join_next_with_id() => {
                    let (id, is_panic) = match &done {
                        Ok((id, _)) => (*id, false),
                        Err(error) => (error.id(), error.is_panic()),
                    };
                    if is_panic {
                        tracing::error!(node = self.entry.name, "a pod's worker panicked and is started anew");
                    }
                    let post = uids.remove(&id).and_then(|uid| self.posts().remove(&uid));
                    if let Some(post) = post {
                        self.pod_changed(&post.namespace, &post.name);
                    }
                }
            }
        }
    }

    fn take_dirty(&self) -> BTreeSet<(String, String)> {
        std::mem::take(&mut *self.dirty.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Pods that have a folder, whether or not they still have an object (N2).
    fn adopt_all(self: &Arc<Self>, workers: &mut JoinSet<String>, uids: &mut HashMap<tokio::task::Id, String>) {
        let mirror = &self.machine.hand().mirror;
        for (uid, folder) in PodFolder::all(self.machine.data()) {
            // One whose file cannot be read is met again by its object, if it has one here.
            let kept = folder.kept().ok().flatten();
            let Some(kept) = kept.filter(|kept| kept.node == self.entry.name) else {
                continue;
            };
            let object = mirror.pods.get(Some(&kept.namespace), &kept.name);
            let object = object.filter(|pod| pod.metadata.uid.as_deref() == Some(uid.as_str()));
            let seen = match (object, folder.object()) {
                (Some(pod), _) => Seen { pod, is_gone: false },
                (None, Some(pod)) => Seen {
                    pod: Arc::new(pod),
                    is_gone: true,
                },
                // Nothing was started without one.
                (None, None) => Seen {
                    pod: Arc::new(Pod {
                        metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                            name: Some(kept.name),
                            namespace: Some(kept.namespace),
                            uid: Some(uid.clone()),
                            ..Default::default()
                        },
                        ..Pod::default()
                    }),
                    is_gone: true,
                },
            };
            self.post(uid, folder, seen, workers, uids);
        }
    }

    fn look_at(
        self: &Arc<Self>,
        key: &(String, String),
        workers: &mut JoinSet<String>,
        uids: &mut HashMap<tokio::task::Id, String>,
    ) {
        let (namespace, name) = key;
        let pod = self.machine.hand().mirror.pods.get(Some(namespace), name);
        let pod = pod.filter(|pod| self.is_ours(pod));
        let uid = pod.as_ref().and_then(|pod| pod.metadata.uid.clone());
        let mut has_post = false;
        for (posted, post) in self.posts().iter() {
            if post.namespace != *namespace || post.name != *name {
                continue;
            }
            if Some(posted) == uid.as_ref() {
                has_post = true;
                if let Some(pod) = &pod {
                    let seen = Seen {
                        pod: pod.clone(),
                        is_gone: false,
                    };
                    post.seen.send_replace(seen);
                }
            } else {
                post.seen
                    .send_if_modified(|seen| !std::mem::replace(&mut seen.is_gone, true));
            }
        }
        if let (Some(pod), Some(uid), false) = (pod, uid, has_post) {
            let folder = PodFolder::new(self.machine.data(), &uid);
            self.post(uid, folder, Seen { pod, is_gone: false }, workers, uids);
        }
    }

    fn post(
        self: &Arc<Self>,
        uid: String,
        folder: PodFolder,
        seen: Seen,
        workers: &mut JoinSet<String>,
        uids: &mut HashMap<tokio::task::Id, String>,
    ) {
        let (namespace, name) = key_of(&seen.pod);
        let (view, views) = watch::channel(View {
            status: seen.pod.status.clone().unwrap_or_default(),
            ..View::default()
        });
        let (seen, sights) = watch::channel(seen);
        let post = Post {
            namespace,
            name,
            seen,
            view: views,
        };
        self.posts().insert(uid.clone(), post);
        let worker = Worker::new(self.clone(), uid.clone(), folder, sights, view);
        let own = uid.clone();
        let handle = workers.spawn(async move {
            worker.run().await;
            own
        });
        uids.insert(handle.id(), uid);
    }

    /// Puts an event in line.
    fn tell(&self, pod: &Arc<Pod>, telling: Telling) {
        if self.tellings.try_send((pod.clone(), telling)).is_err() {
            tracing::debug!(node = self.entry.name, "too many events wait: one is dropped");
        }
    }

    fn tell_pod(&self, pod: &Pod, is_warning: bool, reason: &str, message: String) {
        let telling = Telling {
            container: None,
            is_warning,
            reason: reason.to_owned(),
            message,
        };
        self.tell(&Arc::new(pod.clone()), telling);
    }

    /// One after the other, so that they keep their order.
    async fn tell_all(self: Arc<Self>, mut told: mpsc::Receiver<(Arc<Pod>, Telling)>) {
        while let Some((pod, telling)) = told.recv().await {
            self.reached().await;
            let mut about = reference(&*pod);
            about.field_path = telling.container.as_deref().map(|name| field_path(&pod, name));
            let happening = Happening {
                component: "kubelet",
                host: &self.entry.name,
                about,
                kind: if telling.is_warning { "Warning" } else { "Normal" },
                reason: &telling.reason,
                message: telling.message,
            };
            self.machine.hand().tell(happening).await;
        }
    }

    /// The object goes, if it still is this pod's.
    async fn remove_object(&self, pod: &Pod) -> Result<(), String> {
        self.reached().await;
        let hand = self.machine.hand();
        let meta = &pod.metadata;
        let target = hand
            .target_of::<Pod>(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
            .map_err(|fault| fault.to_string())?;
        let uid = meta.uid.as_deref().unwrap_or_default();
        match hand.remove(&target, uid, Some(0)).await {
            // Another pod of that name is there already.
            Err(fault) if fault.code == 409 => Ok(()),
            done => done.map_err(|fault| fault.to_string()),
        }
    }

    /// Kills every process of the node's pods, their supervisors first; tells nobody. For an agent that has been dropped.
    pub(crate) async fn kill_all(data: &std::path::Path, node: &str) {
        let mut ends = JoinSet::new();
        for (uid, folder) in PodFolder::all(data) {
            match folder.kept() {
                Ok(Some(kept)) if kept.node == node => {
                    ends.spawn(async move {
                        if let Err(why) = folder.kill(&uid).await {
                            tracing::warn!(pod = uid, why, "a pod of a killed node may run on");
                        }
                    });
                }
                Ok(Some(_) | None) => {}
                // It may be another node's.
                Err(why) => tracing::warn!(pod = uid, %why, "nobody knows whose pod this is: it runs on"),
            }
        }
        while ends.join_next().await.is_some() {}
    }

    /// Folders of pods whose node is none of these: nobody will ever look after them again.
    pub(crate) async fn clear_others(data: &std::path::Path, nodes: &[String]) {
        for (uid, folder) in PodFolder::all(data) {
            match folder.kept() {
                Ok(Some(kept)) if nodes.contains(&kept.node) => continue,
                Ok(Some(_) | None) => {}
                // What cannot be read now may be read later.
                Err(why) => {
                    tracing::warn!(pod = uid, %why, "nobody knows whose pod this is: it is left");
                    continue;
                }
            }
            match folder.kill(&uid).await {
                Ok(()) => drop(folder.remove()),
                Err(why) => tracing::warn!(pod = uid, why, "a pod of a node that is no more is left"),
            }
        }
    }

    /// One signal to a container's first process.
    pub(crate) async fn signal(&self, pod: &Pod, container: &str, signal: i32) -> Result<(), String> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let view = self.view(uid).map(|view| view.borrow().clone());
        let view = view.ok_or_else(|| format!("node {} has no such pod", self.entry.name))?;
        let latest = view
            .attempts
            .get(container)
            .and_then(|attempts| attempts.last_key_value());
        let (attempt, _) = latest.ok_or_else(|| format!("container {container:?} has not been started"))?;
        let supervisor = view.supervisor.ok_or("the pod does not run")?;
        let signalled = supervisor.signal(container, *attempt, signal).await;
        signalled.map_err(|why| why.to_string())
    }
}

fn key_of(pod: &Pod) -> (String, String) {
    (
        pod.metadata.namespace.clone().unwrap_or_default(),
        pod.metadata.name.clone().unwrap_or_default(),
    )
}

fn field_path(pod: &Pod, container: &str) -> String {
    let init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let field = if init.into_iter().any(|init| init.name == container) {
        "initContainers"
    } else {
        "containers"
    };
    format!("spec.{field}{{{container}}}")
}
