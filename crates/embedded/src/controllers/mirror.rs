//! The objects that controllers look at, decoded once per change and shared by all of them.
//!
//! The driver keeps it at the same place in the log as itself: before a sync runs, the mirror holds everything written,
//! the controllers' own writes too (E3). It is made anew from a list whenever the driver starts anew. An object that does
//! not decode is left out and said in the log; nobody can do anything about it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
    ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use serde::de::DeserializeOwned;

use crate::registry::object;
use crate::store::{Entry, Key, LogEntry};

/// All objects of one kind, by key.
pub(crate) struct Shelf<K> {
    group: &'static str,
    plural: &'static str,
    objects: RwLock<BTreeMap<Key, Arc<K>>>,
}

impl<K> fmt::Debug for Shelf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.len(), self.plural)
    }
}

impl<K: DeserializeOwned> Shelf<K> {
    fn put(&self, entry: &Entry) {
        let object = object::decode(entry)
            .and_then(|value| serde_json::from_value(value).map_err(crate::fault::Fault::internal));
        match object {
            Ok(object) => {
                self.write().insert(entry.key.clone(), Arc::new(object));
            }
            Err(why) => {
                self.write().remove(&entry.key);
                tracing::warn!(key = %entry.key, %why, "a stored object cannot be read and is left alone");
            }
        }
    }
}

impl<K> Shelf<K> {
    fn new(group: &'static str, plural: &'static str) -> Self {
        Self {
            group,
            plural,
            objects: RwLock::default(),
        }
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<Key, Arc<K>>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<Key, Arc<K>>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_of(&self, key: &Key) -> bool {
        key.resource() == self.plural && key.group() == self.group
    }

    pub(crate) fn len(&self) -> usize {
        self.read().len()
    }

    /// `namespace` is `None` for kinds of cluster scope.
    pub(crate) fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        self.read()
            .get(&Key::new(self.group, self.plural, namespace, name))
            .cloned()
    }

    /// Those of a namespace, or all; in the order of their keys.
    pub(crate) fn list(&self, namespace: Option<&str>) -> Vec<Arc<K>> {
        let prefix = Key::prefix(self.group, self.plural, namespace);
        self.read()
            .range::<str, _>((std::ops::Bound::Included(prefix.as_str()), std::ops::Bound::Unbounded))
            .take_while(|(key, _)| prefix.contains(key))
            .map(|(_, object)| object.clone())
            .collect()
    }
}

macro_rules! shelves {
    ($($name:ident: $kind:ty = $group:literal $plural:literal,)*) => {
        /// See the module.
        #[derive(Debug)]
        pub(crate) struct Mirror {
            $(pub(crate) $name: Shelf<$kind>,)*
        }

        impl Default for Mirror {
            fn default() -> Self {
                Self { $($name: Shelf::new($group, $plural),)* }
            }
        }

        impl Mirror {
            /// Forgets everything and starts from the whole state.
            pub(crate) fn begin(&self, state: &[Entry]) {
                $(self.$name.write().clear();)*
                for entry in state {
                    self.put(entry);
                }
            }

            fn put(&self, entry: &Entry) {
                $(if self.$name.is_of(&entry.key) {
                    return self.$name.put(entry);
                })*
            }

            /// Sees one change, in the order of the log.
            pub(crate) fn see(&self, line: &LogEntry) {
                match line.entry() {
                    Some(entry) => self.put(&entry),
                    None => {
                        $(if self.$name.is_of(&line.key) {
                            self.$name.write().remove(&line.key);
                        })*
                    }
                }
            }
        }
    };
}

shelves! {
    pods: Pod = "" "pods",
    nodes: Node = "" "nodes",
    namespaces: Namespace = "" "namespaces",
    services: Service = "" "services",
    endpoints: Endpoints = "" "endpoints",
    slices: EndpointSlice = "discovery.k8s.io" "endpointslices",
    replica_sets: ReplicaSet = "apps" "replicasets",
    deployments: Deployment = "apps" "deployments",
    stateful_sets: StatefulSet = "apps" "statefulsets",
    revisions: ControllerRevision = "apps" "controllerrevisions",
    claims: PersistentVolumeClaim = "" "persistentvolumeclaims",
    volumes: PersistentVolume = "" "persistentvolumes",
    classes: StorageClass = "storage.k8s.io" "storageclasses",
    budgets: PodDisruptionBudget = "policy" "poddisruptionbudgets",
    leases: Lease = "coordination.k8s.io" "leases",
    accounts: ServiceAccount = "" "serviceaccounts",
    config_maps: ConfigMap = "" "configmaps",
    secrets: Secret = "" "secrets",
}
