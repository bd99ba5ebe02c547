//! A cluster as a value: in memory or on disk, driven by the runtime or by hand.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use futures::FutureExt as _;
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admission::Admission;
use crate::api::{ApiService, Server};
use crate::clock::Clock;
use crate::controllers::driver::Driver;
use crate::controllers::hand::{Hand, Settings};
use crate::controllers::volumes::CLASSES;
use crate::controllers::{Controller, Controllers, certificates};
use crate::fault::Fault;
use crate::kinds;
use crate::manual::Manual;
use crate::node::door::{AllDoors, Doors};
use crate::node::entry::NodeEntry;
use crate::node::machine::{Machine, NodeError, NodeHandle, ProcessOptions};
use crate::node::net::held::BlockError;
use crate::node::net::{Block, HeldBlock};
use crate::node::retired;
use crate::registry::Registry;
use crate::registry::ask::{Ask, Target};
use crate::security::{self, Secrets, Security};
use crate::serve::audit::{Audit, AuditOptions};
use crate::serve::certificate::Authority;
use crate::serve::folder::{Folder, FolderError};
use crate::serve::{ListenError, ListenOptions, Listener, Listening};
use crate::store::{self, Durability, Options as StoreOptions, Store, StoreError};

/// What a cluster is made from (E1).
#[derive(Debug, Clone)]
pub struct Options {
    pub clock: Clock,
    /// Names and uids come from it, and from how far the store had come: no start gives again what an earlier one gave.
    /// `None`: from the operating system, so that no two clusters have the same; a manual one has seed 0.
    pub seed: Option<u64>,
    pub storage: Storage,
    /// `None`: those of the data folder, or new ones from the operating system.
    pub secrets: Option<Secrets>,
    /// Whether there is an `audit.log` in the data folder (X5). A cluster in memory has it in a folder that goes with it.
    pub audit: Option<AuditOptions>,
    /// Which of them run: a test may leave out the garbage collector, say.
    pub controllers: Controllers,
    /// Which nodes there are (11.1). None: nothing runs pods, unless somebody else registers a node.
    pub nodes: Vec<NodeEntry>,
    /// Where pods and Services have their addresses (W1). Where processes run this is not asked: a block of addresses is
    /// taken for the cluster ([`crate::node::net::HeldBlock`]).
    pub network: Block,
    /// How process nodes run pods. Without it there are no process nodes.
    pub process: Option<ProcessOptions>,
    /// How long a node may be silent before it counts as lost: the reference's 50 s, or less for who tries fail-over.
    pub node_grace: SignedDuration,
}

impl Default for Options {
    /// In memory, by the system's clock.
    fn default() -> Self {
        Self {
            clock: Clock::System,
            seed: None,
            storage: Storage::Memory,
            secrets: None,
            audit: None,
            controllers: Controllers::all(),
            nodes: Vec::new(),
            network: Block::default(),
            process: None,
            node_grace: SignedDuration::from_secs(50),
        }
    }
}

#[derive(Debug, Clone)]
pub enum Storage {
    Memory,
    /// One file, and nothing beside it but its lock.
    Disk {
        file: PathBuf,
        durability: Durability,
    },
    /// A data folder (X1): the store, and what outlives a restart beside it.
    Folder {
        path: PathBuf,
        durability: Durability,
    },
}

/// A cluster that cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("{0}")]
    Random(String),
    #[error("a manual cluster needs a manual clock: its time is told by whoever drives it")]
    Clock,
    #[error("the cluster's first objects could not be written: {0}")]
    First(Fault),
    #[error(transparent)]
    Block(#[from] BlockError),
}

/// A running cluster. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Cluster {
    server: Arc<Server>,
    life: Arc<Life>,
}

/// What goes with a cluster's last handle.
#[derive(Debug)]
struct Life {
    /// Turns true when the cluster stops.
    stop: watch::Sender<bool>,
    /// Listeners and the controllers; aborted when this is dropped.
    tasks: Mutex<JoinSet<()>>,
    /// Of a cluster in memory: made when it is needed, gone with it.
    folder: OnceLock<Folder>,
    /// Where that is, for controllers.
    data: Arc<OnceLock<PathBuf>>,
    node_grace: SignedDuration,
    /// The cluster's addresses, until the machine has them.
    held: Mutex<Option<HeldBlock>>,
    machine: OnceLock<Arc<Machine>>,
    nodes: Arc<[NodeEntry]>,
}

impl Cluster {
    /// Opens the store and writes what every cluster has.
    ///
    /// Called within a tokio runtime, it also spawns one task for the controllers there, until [`Cluster::stop`] or until the last
    /// handle is dropped. Without a runtime nothing happens by itself. It listens nowhere: see [`Cluster::listen`].
    pub fn start(options: Options) -> Result<Self, Error> {
        let controllers = options.controllers.clone();
        let (nodes, process) = (options.nodes.clone(), options.process.clone());
        let is_in_memory = matches!(options.storage, Storage::Memory);
        let cluster = Self::still(options)?;
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let driver = cluster.driver(&controllers);
            let mut stop = cluster.life.stop.subscribe();
            let server = Arc::downgrade(&cluster.server);
            let work = async move {
                tokio::select! {
                    () = supervised(server, driver.work()) => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
            };
            cluster.life.tasks().spawn_on(work, &runtime);
            let hand = Hand::new(cluster.server.registry.clone(), cluster.settings());
            let data = cluster.life.data.get().filter(|_| process.is_none()).cloned();
            cluster
                .life
                .tasks()
                .spawn_on(retired::clear(hand, data, nodes.clone()), &runtime);
            if let Some(process) = process {
                cluster.start_machine(process, &nodes, is_in_memory, &runtime)?;
            }
        }
        Ok(cluster)
    }

    /// The process nodes.
    fn start_machine(
        &self,
        options: ProcessOptions,
        nodes: &[NodeEntry],
        is_in_memory: bool,
        runtime: &tokio::runtime::Handle,
    ) -> Result<(), Error> {
        let Some(held) = self.life.held() else {
            return Ok(());
        };
        let hand = Hand::new(self.server.registry.clone(), self.settings());
        let data = self.folder()?.to_owned();
        let Some(machine) = Machine::new(&self.server, &hand, data, options, nodes, held, is_in_memory) else {
            return Ok(());
        };
        let _ = self.server.machine.set(Arc::downgrade(&machine));
        let _ = self.life.machine.set(machine.clone());
        let mut stop = self.life.stop.subscribe();
        let work = async move {
            tokio::select! {
                () = machine.run() => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        };
        self.life.tasks().spawn_on(work, runtime);
        Ok(())
    }

    /// A process node, to be stopped, killed, cut off and started again.
    pub fn node(&self, name: &str) -> Result<NodeHandle, NodeError> {
        match self.life.machine.get() {
            Some(machine) => machine.node(name),
            None => Err(NodeError::NoNode(name.to_owned())),
        }
    }

    /// All process nodes.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeHandle> {
        self.life.machine.get().map(Machine::nodes).unwrap_or_default()
    }

    /// How pods are kept apart from the rest of the machine, and why; `None` without process nodes.
    pub async fn isolation(&self) -> Option<String> {
        Some(self.life.machine.get()?.find_isolation().await.1.clone())
    }

    /// Stops the process nodes and their pods, with each pod's grace; the objects stay, and at the next start the pods run
    /// again. `progress` is told of the pods that are waited for. To be called before [`Cluster::stop`]; dropped in the
    /// middle, it leaves the rest of them running.
    pub async fn stop_pods(&self, progress: impl FnMut(&[String])) {
        if let Some(machine) = self.life.machine.get() {
            machine.stop_pods(progress).await;
        }
    }

    /// Done when the objects of all pods of an earlier start say what became of them: until then they say what was true
    /// when it ended.
    pub async fn pods_found(&self) {
        if let Some(machine) = self.life.machine.get() {
            machine.all_found().await;
        }
    }

    /// The same, but nothing runs by itself: time, controllers and watches go on when they are told to.
    pub fn manual(options: Options) -> Result<Manual, Error> {
        let Clock::Manual(clock) = options.clock.clone() else {
            return Err(Error::Clock);
        };
        let controllers = options.controllers.clone();
        let cluster = Self::still(options)?;
        let driver = cluster.driver(&controllers);
        Ok(Manual::new(cluster, clock, driver))
    }

    /// Counts of the store, for tests and benches.
    #[must_use]
    pub fn store_stats(&self) -> store::Stats {
        self.server.registry.store.stats()
    }

    fn settings(&self) -> Settings {
        Settings {
            node_grace: self.life.node_grace,
            security: self.server.security.clone(),
            data: self.life.data.clone(),
            nodes: self.life.nodes.clone(),
        }
    }

    fn driver(&self, controllers: &Controllers) -> Driver {
        Driver::new(self.server.registry.clone(), self.settings(), controllers)
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.server.registry
    }

    /// A cluster in which nothing happens by itself.
    fn still(options: Options) -> Result<Self, Error> {
        let clock = options.clock.clone();
        let store_options = StoreOptions::new(move || clock.now());
        let mut life = Life::new(options.node_grace, options.nodes.clone());
        let authority = Authority::new(matches!(options.clock, Clock::System));
        let (store, kept) = match &options.storage {
            Storage::Memory => (Store::memory(store_options), None),
            Storage::Disk { file, durability } => (Store::open(file, *durability, store_options)?, None),
            Storage::Folder { path, durability } => {
                let folder = Folder::open(path)?;
                let store = Store::open(folder.store(), *durability, store_options)?;
                // Only now is the folder ours.
                let secrets = folder.secrets()?;
                authority.read(&folder)?;
                life.keep(folder);
                (store, Some(secrets))
            }
        };
        let secrets = match options.secrets.or(kept) {
            Some(secrets) => secrets,
            None => Secrets::random().map_err(Error::Random)?,
        };
        let audit = match options.audit {
            Some(options) => Some(Audit::new(life.folder()?.file("audit.log"), options)),
            None => None,
        };
        let seed = match (options.seed, &options.clock) {
            (Some(seed), _) => seed,
            (None, Clock::Manual(_)) => 0,
            (None, Clock::System) => security::random_number().map_err(Error::Random)?,
        };
        let network = match &options.process {
            Some(_) => {
                let held = HeldBlock::take(life.folder()?.path())?;
                let block = held.block();
                life.hold(held);
                block
            }
            None => options.network,
        };
        let admission = Admission::in_block(network.number());
        let registry = Arc::new(Registry::new(store, options.clock, seed, admission));
        let has_volumes = options.controllers.has(Controller::Volumes);
        futures::executor::block_on(async {
            first_objects(&registry, has_volumes).await?;
            registry.establish_definitions().await
        })
        .map_err(Error::First)?;
        let mut security = Security::new(secrets);
        security.authority = authority;
        Ok(Self {
            server: Arc::new(Server {
                registry,
                security: Arc::new(security),
                documents: crate::api::Documents::default(),
                audit,
                doors: AllDoors::default(),
                machine: OnceLock::new(),
                controllers_failed: OnceLock::new(),
                openapi: crate::api::openapi::Documents::new(crate::kinds::definition),
            }),
            life: Arc::new(life),
        })
    }

    /// Where token, keys and logs are. That of a cluster in memory goes with it.
    pub fn folder(&self) -> Result<&Path, FolderError> {
        self.life.folder().map(Folder::path)
    }

    /// Takes an address and answers there, until the cluster stops.
    pub async fn listen(&self, options: ListenOptions) -> Result<Listening, ListenError> {
        let stop = self.life.stop.subscribe();
        if *stop.borrow() {
            return Err(ListenError::Stopped);
        }
        let authority = &self.server.security.authority;
        authority.keep(self.life.folder()?)?;
        let listener = Listener::open(options, self.life.folder()?, self.server.security.token()).await?;
        let listening = listener.listening.clone();
        self.server.security.set_address(listening.address());
        authority.set(listening.access().authority());
        certificates::republish(&Hand::new(self.server.registry.clone(), self.settings())).await;
        let api = self.guarded_service();
        if let Some(machine) = self.life.machine.get() {
            let (machine, address) = (machine.clone(), listening.address());
            let mut stop = stop.clone();
            self.life.tasks().spawn(async move {
                tokio::select! {
                    () = machine.serve_pods(address) => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
            });
        }
        self.life.tasks().spawn(listener.run(api, stop));
        Ok(listening)
    }

    /// Stops: no new connections, watches end, requests under way are answered, then everything is on disk and the file
    /// is free. In-process clients are refused their writes from then on.
    pub async fn stop(&self) {
        self.life.stop.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.life.tasks());
        while tasks.join_next().await.is_some() {}
        let store = self.server.registry.store.clone();
        // Waits for the disk.
        if tokio::task::spawn_blocking(move || store.close()).await.is_err() {
            tracing::error!("the store could not be closed");
        }
    }

    /// For clients in this process: no socket, no TLS, no token.
    #[must_use]
    pub fn service(&self) -> ApiService {
        ApiService::trusted(self.server.clone())
    }

    /// For the listener: callers must say who they are.
    #[must_use]
    pub fn guarded_service(&self) -> ApiService {
        ApiService::guarded(self.server.clone())
    }

    /// Answers in this process what webhooks at this URL are asked: no socket, no TLS. The handler is given an
    /// AdmissionReview and returns one. A Service's URL is `https://NAME.NAMESPACE.svc:PORT/PATH`.
    pub fn handle_webhook<H, F>(&self, url: &str, handler: H)
    where
        H: Fn(Value) -> F + Send + Sync + 'static,
        F: Future<Output = Value> + Send + 'static,
    {
        self.server.registry.admission.handle(url, handler);
    }

    /// From now on this node is asked for the logs of its pods, and for commands in them.
    pub fn open_doors(&self, node: &str, doors: Arc<dyn Doors>) {
        self.server.doors.open(node, doors);
    }

    /// The node has stopped, or cannot be reached: nobody is asked for its pods' logs any more.
    pub fn close_doors(&self, node: &str) {
        self.server.doors.close(node);
    }

    /// Forgets all history: whoever watches from before must list anew.
    pub fn compact_now(&self) {
        self.server.registry.store.forget();
    }

    /// A client in this process, in the namespace `default`.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }
}

/// The controllers' work, which never ends by itself. If it does, nothing is collected or finished any more: that is said
/// in the log and by `/readyz`, and requests are answered all the same.
async fn supervised(server: Weak<Server>, work: impl Future<Output = ()>) {
    let why = match AssertUnwindSafe(work).catch_unwind().await {
        Ok(()) => "they have come to an end".to_owned(),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            format!(
                "they panicked: {}",
                text.unwrap_or_else(|| "no reason given".to_owned())
            )
        }
    };
    tracing::error!(why, "the controllers have stopped: start the cluster anew");
    if let Some(server) = server.upgrade() {
        let _ = server.controllers_failed.set(why);
    }
}

impl Life {
    fn new(node_grace: SignedDuration, nodes: Vec<NodeEntry>) -> Self {
        Self {
            stop: watch::Sender::new(false),
            tasks: Mutex::default(),
            folder: OnceLock::new(),
            data: Arc::default(),
            node_grace,
            held: Mutex::default(),
            machine: OnceLock::new(),
            nodes: nodes.into(),
        }
    }

    fn hold(&self, held: HeldBlock) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
    }

    fn held(&self) -> Option<HeldBlock> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Of a cluster on disk.
    fn keep(&mut self, folder: Folder) {
        let _ = self.data.set(folder.path().to_owned());
        let _ = self.folder.set(folder);
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self) -> Result<&Folder, FolderError> {
        if let Some(folder) = self.folder.get() {
            return Ok(folder);
        }
        let folder = Folder::temporary()?;
        let folder = self.folder.get_or_init(|| folder);
        let _ = self.data.set(folder.path().to_owned());
        Ok(folder)
    }
}

/// The namespaces (C2) and priority classes that every cluster has, and the storage classes (C7) of one that has volumes.
async fn first_objects(registry: &Registry, has_volumes: bool) -> Result<(), Fault> {
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        first_object(registry, ("", "namespaces"), name, body).await?;
    }
    for (name, value, description) in kinds::SYSTEM_CLASSES {
        let body = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description});
        first_object(registry, ("scheduling.k8s.io", "priorityclasses"), name, body).await?;
    }
    if has_volumes {
        for class in CLASSES {
            first_object(registry, ("storage.k8s.io", "storageclasses"), class.name, class.body()).await?;
        }
    }
    Ok(())
}

/// Made if it is not there.
async fn first_object(registry: &Registry, kind: (&str, &str), name: &str, body: Value) -> Result<(), Fault> {
    let (group, plural) = kind;
    let catalog = registry.catalog();
    let Some(resource) = catalog.find(group, plural) else {
        return Err(Fault::internal(format!("there is no kind {plural}")));
    };
    let Some(version) = resource.version("v1") else {
        return Err(Fault::internal(format!("there is no version v1 of {plural}")));
    };
    let target = Target {
        version: version.clone(),
        resource: resource.clone(),
        namespace: None,
        name: String::new(),
        subresource: None,
    };
    let ask = Ask {
        // Who decides about it may need this very server, which does not listen yet.
        is_admitted: true,
        ..Ask::internal("kube-apiserver")
    };
    if registry.store.head(&target.key_of(name)).is_some() {
        return Ok(());
    }
    let object = Registry::decode(&target, body.into(), &ask, &mut Vec::new())?;
    registry.create(&target, &ask, object, Vec::new()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::{BodyExt as _, Empty};

    use super::{Cluster, Options, supervised};

    async fn readyz(cluster: &Cluster) -> (u16, String) {
        let request = Request::get("/readyz").body(Empty::<bytes::Bytes>::new()).unwrap();
        let (parts, body) = cluster.service().answer(request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        (parts.status.as_u16(), String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_cluster_whose_controllers_panicked_says_that_it_is_not_ready() {
        let cluster = Cluster::start(Options::default()).unwrap();
        assert_eq!(readyz(&cluster).await.0, 200);
        let server = std::sync::Arc::downgrade(&cluster.server);
        supervised(server, async { panic!("of all things") }).await;
        let (code, told) = readyz(&cluster).await;
        assert_eq!(code, 500);
        assert!(
            told.contains("[-]controllers failed: they panicked: of all things"),
            "{told}"
        );
    }
}
