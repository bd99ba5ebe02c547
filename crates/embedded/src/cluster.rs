//! A cluster as a value: in memory or on disk, driven by the runtime or by hand.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::admission::Admission;
use crate::api::{ApiService, Server};
use crate::clock::Clock;
use crate::fault::Fault;
use crate::registry::Registry;
use crate::registry::ask::{Ask, Target};
use crate::security::{Secrets, Security};
use crate::store::{Durability, Options as StoreOptions, Store, StoreError};

/// What a cluster is made from (E1).
#[derive(Debug, Clone)]
pub struct Options {
    pub clock: Clock,
    /// Names and uids come from it.
    pub seed: u64,
    pub storage: Storage,
    /// `None`: new ones from the operating system.
    pub secrets: Option<Secrets>,
}

impl Default for Options {
    /// In memory, by the system's clock.
    fn default() -> Self {
        Self {
            clock: Clock::System,
            seed: 0,
            storage: Storage::Memory,
            secrets: None,
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
    #[error("the cluster's first objects could not be written: {0}")]
    First(Fault),
}

/// A running cluster. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Cluster {
    server: Arc<Server>,
}

impl Cluster {
    /// Opens the store and writes what every cluster has.
    pub fn start(options: Options) -> Result<Self, Error> {
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
        Ok(Self {
            server: Arc::new(Server {
                registry,
                security: Security::new(secrets),
                documents: crate::api::Documents::default(),
                openapi: crate::api::openapi::Documents::new(crate::kinds::definition),
            }),
        })
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
        let namespace = Registry::decode(&target, body.into(), &ask, &mut Vec::new())?;
        registry.create(&target, &ask, namespace, Vec::new()).await?;
    }
    Ok(())
}
