//! A cluster as a value: in memory or on disk, driven by the runtime or by hand.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;

use crate::admission::Admission;
use crate::api::{ApiService, ControllersTask, Server};
use crate::clock::Clock;
use crate::controllers::Controllers;
use crate::controllers::driver::Driver;
use crate::fault::Fault;
use crate::manual::Manual;
use crate::registry::Registry;
use crate::registry::ask::{Ask, Target};
use crate::security::{Secrets, Security};
use crate::store::{self, Durability, Options as StoreOptions, Store, StoreError};

/// What a cluster is made from (E1).
#[derive(Debug, Clone)]
pub struct Options {
    pub clock: Clock,
    /// Names and uids come from it.
    pub seed: u64,
    pub storage: Storage,
    /// `None`: new ones from the operating system.
    pub secrets: Option<Secrets>,
    /// Which of them run: a test may leave out the garbage collector, say.
    pub controllers: Controllers,
}

impl Default for Options {
    /// In memory, by the system's clock.
    fn default() -> Self {
        Self {
            clock: Clock::System,
            seed: 0,
            storage: Storage::Memory,
            secrets: None,
            controllers: Controllers::all(),
        }
    }
}

#[derive(Debug, Clone)]
pub enum Storage {
    Memory,
    Disk { file: PathBuf, durability: Durability },
}

/// A cluster that cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Random(String),
    #[error("a manual cluster needs a manual clock: its time is told by whoever drives it")]
    Clock,
    #[error("the cluster's first objects could not be written: {0}")]
    First(Fault),
}

/// A running cluster. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Cluster {
    server: Arc<Server>,
}

impl Cluster {
    /// Opens the store, writes what every cluster has, and spawns one task for the controllers. Outside of a runtime there
    /// is nowhere to spawn it: then no controller runs.
    pub fn start(options: Options) -> Result<Self, Error> {
        let controllers = options.controllers.clone();
        let mut server = open(options)?;
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let driver = Driver::new(server.registry.clone(), &controllers);
            let task = runtime.spawn(driver.work());
            server.controllers = Some(ControllersTask(task.abort_handle()));
        }
        Ok(Self::of(server))
    }

    /// The same, but nothing runs by itself: time, controllers and watches go on when they are told to.
    pub fn manual(options: Options) -> Result<Manual, Error> {
        let Clock::Manual(clock) = options.clock.clone() else {
            return Err(Error::Clock);
        };
        let controllers = options.controllers.clone();
        let server = open(options)?;
        let driver = Driver::new(server.registry.clone(), &controllers);
        Ok(Manual::new(Self::of(server), clock, driver))
    }

    fn of(server: Server) -> Self {
        Self {
            server: Arc::new(server),
        }
    }

    /// Counts of the store, for tests and benches.
    #[must_use]
    pub fn store_stats(&self) -> store::Stats {
        self.server.registry.store.stats()
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.server.registry
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

    /// A client in this process, in the namespace `default`.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }
}

/// Everything but what runs beside it.
fn open(options: Options) -> Result<Server, Error> {
    let clock = options.clock.clone();
    let store_options = StoreOptions::new(move || clock.now());
    let store = match &options.storage {
        Storage::Memory => Store::memory(store_options),
        Storage::Disk { file, durability } => Store::open(file, *durability, store_options)?,
    };
    let secrets = match options.secrets {
        Some(secrets) => secrets,
        None => Secrets::random().map_err(Error::Random)?,
    };
    let registry = Arc::new(Registry::new(store, options.clock, options.seed, Admission::default()));
    futures::executor::block_on(first_objects(&registry)).map_err(Error::First)?;
    Ok(Server {
        registry,
        security: Security::new(secrets),
        documents: crate::api::Documents::default(),
        controllers: None,
    })
}

/// The namespaces that every cluster has (C2).
async fn first_objects(registry: &Registry) -> Result<(), Fault> {
    let catalog = registry.catalog();
    let Some(resource) = catalog.find("", "namespaces") else {
        return Err(Fault::internal("there is no kind Namespace"));
    };
    let Some(version) = resource.version("v1") else {
        return Err(Fault::internal("there is no version v1 of Namespace"));
    };
    let target = Target {
        version: version.clone(),
        resource: resource.clone(),
        namespace: None,
        name: String::new(),
        subresource: None,
    };
    let ask = Ask::internal("kube-apiserver");
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        if registry.store.head(&target.key_of(name)).is_some() {
            continue;
        }
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let namespace = Registry::decode(&target, body, Vec::new(), &ask, &mut Vec::new())?;
        registry.create(&target, &ask, namespace, Vec::new()).await?;
    }
    Ok(())
}
