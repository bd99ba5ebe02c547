//! The objects that controllers look at, decoded at most once per change and shared by all of them.
//!
//! The driver keeps it at the same place in the log as itself: before a sync runs, the mirror holds everything written,
//! the controllers' own writes too (E3). It is made anew from a list whenever the driver starts anew. An object that does
//! not decode is left out and said in the log; nobody can do anything about it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

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
use serde_json::Value;

use crate::fault::Fault;
use crate::registry::object;
use crate::store::{Entry, Key, LogEntry};

/// How many decoded objects of a kind are kept. A decoded Pod is several times what is stored of it; a cluster with more of
/// them than this pays with time, not with memory: those that are kept stay, so that a look at all of them decodes the rest
/// only.
const MOST_DECODED: usize = 1_024;

/// All objects of one kind, by key: as they are stored, and decoded when somebody looks.
pub(crate) struct Shelf<K> {
    group: &'static str,
    plural: &'static str,
    objects: Mutex<Objects<K>>,
}

struct Objects<K> {
    stored: BTreeMap<Key, Entry>,
    decoded: HashMap<Key, Arc<K>>,
}

impl<K> fmt::Debug for Shelf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.len(), self.plural)
    }
}

impl<K> Shelf<K> {
    fn new(group: &'static str, plural: &'static str) -> Self {
        Self {
            group,
            plural,
            objects: Mutex::new(Objects {
                stored: BTreeMap::new(),
                decoded: HashMap::new(),
            }),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Objects<K>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clear(&self) {
        let mut objects = self.lock();
        objects.stored.clear();
        objects.decoded.clear();
    }

    fn put(&self, entry: &Entry) {
        let mut objects = self.lock();
        objects.decoded.remove(&entry.key);
        objects.stored.insert(entry.key.clone(), entry.clone());
    }

    fn take(&self, key: &Key) {
        let mut objects = self.lock();
        objects.decoded.remove(key);
        objects.stored.remove(key);
    }

    fn is_of(&self, key: &Key) -> bool {
        key.resource() == self.plural && key.group() == self.group
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().stored.len()
    }
}

impl<K: DeserializeOwned> Shelf<K> {
    /// `namespace` is `None` for kinds of cluster scope.
    pub(crate) fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        let mut objects = self.lock();
        let Objects { stored, decoded } = &mut *objects;
        let entry = stored.get(&Key::new(self.group, self.plural, namespace, name))?;
        decode(entry, decoded)
    }

    /// Those of a namespace, or all; in the order of their keys.
    pub(crate) fn list(&self, namespace: Option<&str>) -> Vec<Arc<K>> {
        let prefix = Key::prefix(self.group, self.plural, namespace);
        let mut objects = self.lock();
        let Objects { stored, decoded } = &mut *objects;
        stored
            .range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded))
            .take_while(|(key, _)| prefix.contains(key))
            .filter_map(|(_, entry)| decode(entry, decoded))
            .collect()
    }
}

fn decode<K: DeserializeOwned>(entry: &Entry, decoded: &mut HashMap<Key, Arc<K>>) -> Option<Arc<K>> {
    if let Some(object) = decoded.get(&entry.key) {
        return Some(object.clone());
    }
    let object = object::decode(entry).and_then(|mut value| {
        // Most of a decoded object is who owns its fields, which no controller asks. What is written without it keeps it.
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        serde_json::from_value::<K>(value).map_err(Fault::internal)
    });
    match object {
        Ok(object) => {
            let object = Arc::new(object);
            if decoded.len() < MOST_DECODED {
                decoded.insert(entry.key.clone(), object.clone());
            }
            Some(object)
        }
        Err(why) => {
            tracing::warn!(key = %entry.key, %why, "a stored object cannot be read and is left alone");
            None
        }
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
                $(self.$name.clear();)*
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
                            self.$name.take(&line.key);
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
