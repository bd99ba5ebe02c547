//! A small Kubernetes in one process, for one user on one machine.
//!
//! - [`store`]: the revision log, the index of latest values, compaction, the watch hub; in memory or in one redb file.
//! - [`registry`]: kinds as rows of data; create, get, list, watch, update, patch and delete written once for all of them.
//! - [`kinds`]: the built-in rows: their schemas, defaults, rules and columns.
//! - [`schema`]: structural schemas: types, defaults, pruning, list types, formats, CEL.
//! - [`fields`]: field sets, managedFields, server-side apply, strategic merge, JSON patch.
//! - [`api`]: the HTTP surface as a `tower::Service`.
//! - [`admission`]: built-in steps and webhooks.
//! - [`serve`]: the API on a socket, with TLS; the data folder; kubeconfigs; the audit log.
//! - [`node`]: where pods run: doors that the API asks at, logs, addresses and names.
//! - [`controllers`]: what the API server needs beside it: namespaces and the garbage collector.
//! - `scheduler`: which pod goes where, singly and in gangs.
//! - [`node`]: which nodes there are, and what runs pods on them.
//!
//! This crate depends on none of ours: kinds reach it, like a real cluster, only through the Kubernetes API.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Api;
//! use kube::api::PostParams;
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let cluster = usher_embedded::Cluster::start(usher_embedded::Options::default()).unwrap();
//! let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
//! let map = serde_json::from_value(serde_json::json!({"metadata": {"name": "greeting"}, "data": {"hello": "world"}}));
//! maps.create(&PostParams::default(), &map.unwrap()).await.unwrap();
//! assert_eq!(maps.get("greeting").await.unwrap().data.unwrap()["hello"], "world");
//! # });
//! ```

pub mod admission;
pub mod api;
mod caller;
pub mod clock;
mod cluster;
pub mod controllers;
mod dice;
pub mod fault;
pub mod fields;
mod go;
pub mod kinds;
mod manual;
pub mod node;
pub mod registry;
mod scalars;
mod scheduler;
pub mod schema;
mod security;
pub mod serve;
pub mod store;

pub use api::{ApiBody, ApiService};
pub use cluster::{Cluster, Error, Options, Storage};
pub use controllers::driver::{Work, WorkId};
pub use controllers::{Controller, Controllers};
pub use manual::{Manual, Snapshot};
pub use node::entry::{Capacity, EntryError, NodeEntry, NodeKind};
pub use node::hollow::stages::{Delay, Moment, Stage, Stages, Step};
pub use node::machine::{IsolationChoice, NodeError, NodeHandle, NodeState, ProcessOptions};
pub use security::Secrets;
pub use serve::audit::AuditOptions;
pub use serve::folder::{FolderError, swap_in};
pub use serve::{ListenError, ListenOptions, Listening};
