//! This machine as the place of a cluster's process nodes (11.1): what they share, and the handles by which they are
//! stopped, killed, cut off and started.
//!
//! [`Machine`] is made by [`crate::Cluster::start`] when there is a process node. It follows the store's log (one mirror
//! for all nodes), feeds the service relay and the names of pods, watches the image tables, and runs one
//! [`Agent`](super::agent) per node. When it is dropped the agents stop; the pods run on (N1).
//!
//! - [`follow`]: from the log to those whom a change concerns. [`handle`]: [`NodeHandle`]. [`rest`]: stopping all pods.
//!   [`way_in`]: how pods reach the API.

mod follow;
mod handle;
mod rest;
mod way_in;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::{Notify, OnceCell, Semaphore, watch};
use tokio::task::JoinHandle;

use super::agent::life::Limits;
use super::agent::{Agent, PodAtRest};
use super::entry::{NodeEntry, NodeKind};
use super::images::Images;
use super::net::{Addresses, HeldBlock, Names, Relay};
use super::supervisor::client::{self, Supervisor};
use super::supervisor::probe;
use super::supervisor::processes;
use super::supervisor::protocol::{Isolation, ProcessMark};
use super::volumes::{HostPaths, TokenKeeper};
use crate::api::Server;
use crate::controllers::hand::Hand;

pub use handle::{NodeError, NodeHandle, NodeState};

/// How many supervisors are started at once, for each core.
const STARTS_PER_CORE: usize = 4;

/// How a cluster's process nodes run pods.
#[derive(Debug, Clone)]
pub struct ProcessOptions {
    /// Our own program, which answers as a supervisor ([`crate::node::supervisor::main`]).
    pub program: PathBuf,
    pub isolation: IsolationChoice,
    /// Image tables, the first one first. None: `images.yaml` in the data folder.
    pub images: Vec<PathBuf>,
    /// Paths of the machine that pods of a cluster that runs as root may mount, besides `volumes` in the data folder (X4).
    pub host_paths: Vec<PathBuf>,
    /// The shortest and the longest wait before a container runs again (N10).
    pub restart_backoff: (Duration, Duration),
}

impl ProcessOptions {
    #[must_use]
    pub fn new(program: PathBuf) -> Self {
        Self {
            program,
            isolation: IsolationChoice::Auto,
            images: Vec::new(),
            host_paths: Vec::new(),
            restart_backoff: (Duration::from_secs(10), Duration::from_secs(300)),
        }
    }
}

/// Which level of isolation is wanted (11.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IsolationChoice {
    /// The best that the machine allows.
    #[default]
    Auto,
    /// Namespaces or nothing: without them the nodes are not ready.
    Namespaces,
    Paths,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Machine {
    hand: Hand,
    server: Weak<Server>,
    data: PathBuf,
    options: ProcessOptions,
    host_paths: HostPaths,
    /// Found out once, before the first pod.
    isolation: OnceCell<(Isolation, String)>,
    held: HeldBlock,
    addresses: Mutex<Addresses>,
    images: Images,
    tokens: TokenKeeper,
    /// In memory mode: pods end with this process.
    dies_with: Option<ProcessMark>,
    slots: Mutex<BTreeMap<String, Slot>>,
    config: watch::Sender<u64>,
    names: watch::Sender<Arc<Names>>,
    tables: watch::Sender<u64>,
    net_changed: Notify,
    /// Pods of an earlier start of which nothing was reported yet: what their objects say may be long past.
    unfound: watch::Sender<BTreeSet<String>>,
    /// Who has it may go through a pod's files.
    measuring: Semaphore,
    /// Who has one may start a supervisor: a machine that starts a hundred pods at once answers nobody.
    starts: Arc<Semaphore>,
    starts_at_once: u32,
    runtime: String,
    kernel: String,
}

/// One node.
#[derive(Debug)]
struct Slot {
    entry: NodeEntry,
    address: Ipv4Addr,
    state: NodeState,
    running: Option<(Arc<Agent>, JoinHandle<()>)>,
}

impl Machine {
    /// `None`: none of the entries is a process node. The hand's mirror is kept by this machine.
    pub(crate) fn new(
        server: &Arc<Server>,
        hand: &Hand,
        data: PathBuf,
        options: ProcessOptions,
        entries: &[NodeEntry],
        held: HeldBlock,
        is_in_memory: bool,
    ) -> Option<Arc<Self>> {
        let block = held.block();
        let nodes = entries.iter().filter(|entry| matches!(entry.kind, NodeKind::Process));
        let slots: BTreeMap<String, Slot> = nodes
            .enumerate()
            .filter_map(|(index, entry)| {
                let slot = Slot {
                    entry: entry.clone(),
                    address: block.node(index)?,
                    // About to: it is started when the state has been read.
                    state: NodeState::Running,
                    running: None,
                };
                Some((entry.name.clone(), slot))
            })
            .collect();
        if slots.is_empty() {
            return None;
        }
        let at_rest = PodAtRest::all(&data).into_iter();
        let unfound = at_rest
            .filter(|pod| slots.contains_key(pod.node()))
            .map(|pod| pod.uid().to_owned())
            .collect();
        let is_root = rustix::process::geteuid().is_root();
        let host_paths = HostPaths::new(is_root, options.host_paths.clone(), &data);
        let tables = if options.images.is_empty() {
            vec![data.join("images.yaml")]
        } else {
            options.images.clone()
        };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let starts_at_once = u32::try_from(cores * STARTS_PER_CORE).unwrap_or(u32::MAX);
        // Addresses begin elsewhere at every start: those that rested are forgotten.
        let start = u64::from(std::process::id()).wrapping_mul(7_919);
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Some(Arc::new(Self {
            hand: hand.named("kubelet"),
            server: Arc::downgrade(server),
            host_paths,
            isolation: OnceCell::new(),
            addresses: Mutex::new(Addresses::new(block, start)),
            held,
            images: Images::new(tables),
            tokens: TokenKeeper::default(),
            dies_with: if is_in_memory {
                processes::mark(std::process::id())
            } else {
                None
            },
            slots: Mutex::new(slots),
            config: watch::Sender::new(0),
            names: watch::Sender::new(Arc::new(Names::new(&[], &[]))),
            tables: watch::Sender::new(0),
            net_changed: Notify::new(),
            unfound: watch::Sender::new(unfound),
            measuring: Semaphore::new(1),
            starts: Arc::new(Semaphore::new(starts_at_once as usize)),
            starts_at_once,
            runtime: format!("usher://{}", env!("CARGO_PKG_VERSION")),
            kernel: kernel.trim().to_owned(),
            data,
            options,
        }))
    }

    /// Runs the nodes, until it is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        let _guard = Guard(self.clone());
        self.find_isolation().await;
        let names: Vec<String> = self.slots().keys().cloned().collect();
        Agent::clear_others(&self.data, &names).await;
        let seed = u64::from(std::process::id());
        let relay = Relay::new(seed);
        let begun = Notify::new();
        let nodes = async {
            begun.notified().await;
            for name in names {
                self.spawn(&name);
            }
            std::future::pending::<()>().await;
        };
        tokio::join!(
            self.follow(&begun),
            self.serve_names(relay),
            self.watch_tables(),
            self.write_way_in(),
            nodes
        );
    }

    /// Which isolation pods have, and why: tried once, for real.
    pub(crate) async fn find_isolation(&self) -> &(Isolation, String) {
        let find = async || {
            let program = self.options.program.clone();
            let choice = self.options.isolation;
            let found = tokio::task::spawn_blocking(move || match choice {
                IsolationChoice::Paths => (Isolation::Paths, "paths, because it was asked for".to_owned()),
                IsolationChoice::Auto | IsolationChoice::Namespaces => {
                    let probed = probe::probe(&program);
                    (probed.isolation, probed.why)
                }
            });
            let paths =
                |why: tokio::task::JoinError| (Isolation::Paths, format!("paths: the trial of others failed: {why}"));
            let found = found.await.unwrap_or_else(paths);
            tracing::info!(why = found.1, "isolation of pods");
            found
        };
        self.isolation.get_or_init(find).await
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a node's agent, unless it runs.
    fn spawn(self: &Arc<Self>, name: &str) {
        let mut slots = self.slots();
        let Some(slot) = slots.get_mut(name) else {
            return;
        };
        slot.state = NodeState::Running;
        let agent = match &slot.running {
            Some((agent, _)) => {
                agent.set_reach(true);
                agent.clone()
            }
            None => {
                let (agent, work) = Agent::new(self.clone(), slot.entry.clone(), slot.address);
                slot.running = Some((agent.clone(), tokio::spawn(work)));
                agent
            }
        };
        drop(slots);
        agent.all_changed();
        if let Some(server) = self.server() {
            server.doors.open(name, super::agent::doors::of(&agent));
        }
    }

    /// Agents that run, whichever they are.
    fn agents(&self) -> Vec<Arc<Agent>> {
        let slots = self.slots();
        let running = slots.values().filter_map(|slot| slot.running.as_ref());
        running.map(|(agent, _)| agent.clone()).collect()
    }

    pub(crate) fn hand(&self) -> &Hand {
        &self.hand
    }

    /// `None`: the cluster is going.
    pub(crate) fn server(&self) -> Option<Arc<Server>> {
        self.server.upgrade()
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn program(&self) -> &Path {
        &self.options.program
    }

    pub(crate) fn isolation(&self) -> Isolation {
        self.isolation
            .get()
            .map_or(Isolation::Paths, |(isolation, _)| *isolation)
    }

    /// Which isolation pods have, and why; `None` before that is known.
    pub(crate) fn isolation_told(&self) -> Option<String> {
        self.isolation.get().map(|(_, why)| why.clone())
    }

    /// Why no pod can run here, if so.
    pub(crate) fn trouble(&self) -> String {
        match self.isolation.get() {
            Some((Isolation::Paths, why)) if self.options.isolation == IsolationChoice::Namespaces => {
                format!("isolation namespaces was asked for and is not to be had: {why}")
            }
            _ => String::new(),
        }
    }

    pub(crate) fn host_paths(&self) -> &HostPaths {
        &self.host_paths
    }

    pub(crate) fn images(&self) -> &Images {
        &self.images
    }

    /// Starts a pod's supervisor. Whoever does not wait for the end of it leaves it to itself: it is started, or it is not,
    /// and [`Machine::starts_over`] tells when that is so.
    pub(crate) async fn start_supervisor(&self, folder: &Path) -> Result<Supervisor, String> {
        let turn = self.starts.clone().acquire_owned().await;
        let held = self
            .held_for_supervisor()
            .map_err(|why| format!("the cluster's addresses cannot be held: {why}"))?;
        let (program, folder) = (self.program().to_owned(), folder.to_owned());
        let starting = tokio::spawn(async move {
            let _turn = turn;
            client::start(&program, &folder, held).await
        });
        match starting.await {
            Ok(started) => started.map_err(|why| why.to_string()),
            Err(why) => Err(why.to_string()),
        }
    }

    /// Done when every supervisor that was being started is there, or is known not to be.
    pub(super) async fn starts_over(&self) {
        let _ = self.starts.acquire_many(self.starts_at_once).await;
    }

    pub(crate) fn measuring(&self) -> &Semaphore {
        &self.measuring
    }

    pub(crate) fn tokens(&self) -> &TokenKeeper {
        &self.tokens
    }

    pub(crate) fn dies_with(&self) -> Option<&ProcessMark> {
        self.dies_with.as_ref()
    }

    pub(crate) fn limits(&self) -> Limits {
        let (shortest, longest) = self.options.restart_backoff;
        let signed = |duration: Duration| SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
        Limits {
            shortest: signed(shortest),
            longest: signed(longest),
        }
    }

    /// Whom containers run as that do not say.
    pub(crate) fn own_ids(&self) -> (u32, u32) {
        (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    }

    /// The runtime's name and the kernel's version.
    pub(crate) fn system(&self) -> (&str, &str) {
        (&self.runtime, &self.kernel)
    }

    /// A descriptor that holds the cluster's addresses for as long as it is open.
    pub(crate) fn held_for_supervisor(&self) -> std::io::Result<Option<OwnedFd>> {
        self.held.for_supervisor().map(Some)
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, Addresses> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What became of a pod of an earlier start is written.
    pub(crate) fn found(&self, uid: &str) {
        self.unfound.send_if_modified(|unfound| unfound.remove(uid));
    }

    /// Done when that is true of all of them.
    pub(crate) async fn all_found(&self) {
        // The sender is ours: it cannot be gone.
        let _ = self.unfound.subscribe().wait_for(BTreeSet::is_empty).await;
    }

    pub(crate) fn take_address(&self, uid: &str) -> Result<Ipv4Addr, String> {
        let now = self.hand.now();
        self.addresses().take(uid, now).map_err(|why| why.to_string())
    }

    /// Of a pod that was found.
    pub(crate) fn keep_address(&self, uid: &str, address: Ipv4Addr) {
        if let Err(why) = self.addresses().keep(uid, address) {
            tracing::debug!(pod = uid, %why, "a pod's address is not its own");
        }
    }

    /// Nothing of the pod is left.
    pub(crate) fn forget_pod(&self, uid: &str) {
        self.found(uid);
        let now = self.hand.now();
        self.addresses().free(uid, now);
        self.tokens.forget(uid);
    }

    pub(crate) fn names(&self) -> Arc<Names> {
        self.names.borrow().clone()
    }

    pub(crate) fn name_changes(&self) -> watch::Receiver<Arc<Names>> {
        self.names.subscribe()
    }

    pub(crate) fn config_changes(&self) -> watch::Receiver<u64> {
        self.config.subscribe()
    }

    pub(crate) fn image_changes(&self) -> watch::Receiver<u64> {
        self.tables.subscribe()
    }
}

/// Stops the agents when the machine's task is dropped: their tasks hold the machine, so it would never go by itself.
#[derive(Debug)]
struct Guard(Arc<Machine>);

impl Drop for Guard {
    fn drop(&mut self) {
        for (name, slot) in self.0.slots().iter_mut() {
            if let Some((_, task)) = slot.running.take() {
                task.abort();
            }
            if let Some(server) = self.0.server.upgrade() {
                server.doors.close(name);
            }
        }
    }
}
