//! How controllers read and write: registry calls, as the reference's controller manager would make them.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::mirror::Mirror;
use super::recorder::{Happening, Recorder};
use crate::fault::Fault;
use crate::node::entry::NodeEntry;
use crate::registry::ask::{Ask, Outcome, Target};
use crate::registry::catalog::{Catalog, Resource};
use crate::registry::{DeleteOptions, Patch, Registry};
use crate::security::Security;
use crate::store::{Key, Value as Stored};

/// Who owns the fields that controllers write, as in the reference.
const MANAGER: &str = "kube-controller-manager";

/// The way all controllers work on the cluster.
#[derive(Debug, Clone)]
pub(crate) struct Hand {
    pub(crate) registry: Arc<Registry>,
    /// What there is, decoded.
    pub(crate) mirror: Arc<Mirror>,
    recorder: Arc<Recorder>,
    pub(crate) settings: Settings,
    manager: &'static str,
}

/// What controllers are told beside the objects.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// How long a node may be silent before it counts as lost (C9).
    pub(crate) node_grace: SignedDuration,
    /// Who signs the tokens of accounts, and whom their bearers are to believe (C2).
    pub(crate) security: Arc<Security>,
    /// The data folder, once there is one: a cluster in memory makes it when somebody needs it.
    pub(crate) data: Arc<OnceLock<PathBuf>>,
    /// Which nodes there are (11.1).
    pub(crate) nodes: Arc<[NodeEntry]>,
}

/// The part of an object that deletion is about.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Head {
    pub(super) metadata: Meta,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) uid: String,
    pub(super) deletion_timestamp: Option<String>,
    pub(super) finalizers: Vec<String>,
    pub(super) owner_references: Vec<Owner>,
}

/// An owner reference: apiVersion, kind, name and uid together say who the owner is (C1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Owner {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) block_owner_deletion: Option<bool>,
}

impl Meta {
    pub(super) fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub(super) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }
}

/// Reads only the metadata of a stored object.
pub(super) fn meta_of(value: &Stored) -> Option<Meta> {
    match serde_json::from_slice::<Head>(value.json()) {
        Ok(head) => Some(head.metadata),
        Err(why) => {
            tracing::warn!(%why, "a stored object has metadata that cannot be read");
            None
        }
    }
}

impl Hand {
    pub(crate) fn new(registry: Arc<Registry>, settings: Settings) -> Self {
        Self {
            registry,
            mirror: Arc::default(),
            recorder: Arc::default(),
            settings,
            manager: MANAGER,
        }
    }

    /// The same hand, whose writes are owned by another: the scheduler, a kubelet.
    pub(crate) fn named(&self, manager: &'static str) -> Self {
        Self {
            manager,
            ..self.clone()
        }
    }

    fn ask(&self) -> Ask {
        Ask::internal(self.manager)
    }

    /// Says what happened in an event; see [`Recorder`].
    pub(crate) async fn tell(&self, happening: Happening<'_>) {
        self.recorder.tell(self, happening).await;
    }

    /// The same for controllers, which are on no host.
    pub(crate) async fn say(
        &self,
        component: &str,
        about: ObjectReference,
        kind: &str,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.tell(Happening {
            component,
            host: "",
            about,
            kind,
            reason,
            message: message.into(),
        })
        .await;
    }

    /// What a typed object's kind and name are in the registry.
    pub(crate) fn target_of<K: k8s_openapi::Resource>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Target, Fault> {
        let catalog = self.catalog();
        catalog
            .find(K::GROUP, K::URL_PATH_SEGMENT)
            .and_then(|resource| target(resource, namespace, name))
            .ok_or_else(|| Fault::internal(format!("there is no kind {}", K::KIND)))
    }

    /// Creates a typed object.
    pub(crate) async fn make<K: k8s_openapi::Resource + Serialize>(
        &self,
        namespace: Option<&str>,
        object: &K,
    ) -> Result<Outcome, Fault> {
        let target = self.target_of::<K>(namespace, "")?;
        self.create(&target, serde_json::to_value(object).map_err(Fault::internal)?)
            .await
    }

    /// Writes the whole of a typed object, or its subresource, over what was read: its resourceVersion decides.
    pub(crate) async fn put<K: k8s_openapi::Resource + Serialize>(
        &self,
        namespace: Option<&str>,
        name: &str,
        subresource: &str,
        object: &K,
    ) -> Result<Outcome, Fault> {
        let target = self.target_of::<K>(namespace, name)?;
        self.replace(
            &target,
            subresource,
            serde_json::to_value(object).map_err(Fault::internal)?,
        )
        .await
    }

    /// Deletes an object if it still has this uid. Gone already is as good.
    pub(crate) async fn remove(&self, target: &Target, uid: &str, grace_seconds: Option<i64>) -> Result<(), Fault> {
        let mut raw = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
        if let (Some(seconds), Some(map)) = (grace_seconds, raw.as_object_mut()) {
            map.insert("gracePeriodSeconds".to_owned(), json!(seconds));
        }
        let options = DeleteOptions::read(raw).map_err(Fault::internal)?;
        match self.registry.delete(target, &self.ask(), &options).await {
            Ok(outcome) => {
                self.registry.after_write(target, &outcome).await;
                Ok(())
            }
            Err(fault) if fault.code == 404 => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Sends pods to nodes, all of them or none. Each is a pod, its uid and the node.
    pub(crate) async fn bind(&self, bindings: &[(Target, String, String)]) -> Result<(), Fault> {
        self.registry.bind_all(&self.ask(), bindings).await
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.registry.clock.now()
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.registry.catalog()
    }

    /// The object of a key now, for a controller that decides by metadata alone.
    pub(super) fn meta(&self, key: &Key) -> Option<(Meta, u64)> {
        let entry = self.registry.store.head(key)?;
        Some((meta_of(&entry.value)?, entry.revision))
    }

    /// The whole object, in the version that is stored.
    pub(crate) fn read(&self, target: &Target) -> Result<Option<Value>, Fault> {
        match self.registry.store.head(&target.key()) {
            None => Ok(None),
            Some(entry) => self
                .registry
                .present(&target.resource, &target.version.name, &entry.value, entry.revision)
                .map(Some),
        }
    }

    /// What a key names, if its kind is still served.
    pub(super) fn target(&self, key: &Key) -> Option<Target> {
        let catalog = self.catalog();
        target(catalog.find(key.group(), key.resource())?, key.namespace(), key.name())
    }

    /// A merge patch. `subresource` is empty for the object itself.
    pub(crate) async fn patch(&self, target: &Target, subresource: &str, change: Value) -> Result<Outcome, Fault> {
        let target = Target {
            subresource: (!subresource.is_empty()).then(|| subresource.to_owned()),
            ..target.clone()
        };
        let outcome = self.registry.patch(&target, &self.ask(), &Patch::Merge(change)).await?;
        self.registry.after_write(&target, &outcome).await;
        Ok(outcome)
    }

    /// Deletes one object if it still is what was read.
    pub(crate) async fn delete(
        &self,
        target: &Target,
        uid: &str,
        revision: u64,
        propagation: &str,
    ) -> Result<(), Fault> {
        let options = DeleteOptions {
            uid: Some(uid.to_owned()),
            resource_version: Some(revision.to_string()),
            raw: json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation,
                "preconditions": {"uid": uid, "resourceVersion": revision.to_string()}}),
            ..in_the(propagation)
        };
        let outcome = self.registry.delete(target, &self.ask(), &options).await?;
        self.registry.after_write(target, &outcome).await;
        Ok(())
    }

    /// Deletes all objects of a kind, in one namespace or everywhere. What is already on its way stays as it is.
    pub(super) async fn delete_all(&self, target: &Target) -> Result<(), Fault> {
        let all = crate::registry::read::ListOptions::default();
        self.registry
            .delete_collection(target, &self.ask(), &in_the("Background"), &all)
            .await
            .map(|_| ())
    }

    pub(crate) async fn create(&self, target: &Target, body: Value) -> Result<Outcome, Fault> {
        let ask = self.ask();
        let object = Registry::decode(target, body.into(), &ask, &mut Vec::new())?;
        self.registry.create(target, &ask, object, Vec::new()).await
    }

    pub(crate) async fn replace(&self, target: &Target, subresource: &str, body: Value) -> Result<Outcome, Fault> {
        let target = Target {
            subresource: (!subresource.is_empty()).then(|| subresource.to_owned()),
            ..target.clone()
        };
        self.registry.replace(&target, &self.ask(), body.into()).await
    }
}

/// A request about an object of a kind, in the version that is stored.
pub(crate) fn target(resource: &Arc<Resource>, namespace: Option<&str>, name: &str) -> Option<Target> {
    Some(Target {
        version: resource.storage()?.clone(),
        resource: resource.clone(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
        subresource: None,
    })
}

/// The key by which controllers speak of an object in a namespace: `namespace/name`.
pub(crate) fn place(meta: &ObjectMeta) -> String {
    let word = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", word(&meta.namespace), word(&meta.name))
}

pub(crate) fn name_of(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

pub(crate) fn uid_of(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// An annotation of an object.
pub(crate) fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether the API refused because the namespace is on its way out: then nobody needs what was to be made.
pub(crate) fn is_closing(fault: &Fault) -> bool {
    let causes = fault.details.as_ref().and_then(|details| details.get("causes"));
    causes
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .any(|cause| cause.get("reason").and_then(Value::as_str) == Some("NamespaceTerminating"))
}

/// Something that somebody else has made, that is gone, or whose namespace goes: each is as good as done.
pub(crate) fn made(outcome: Result<Outcome, Fault>) -> Result<(), Fault> {
    match outcome {
        Err(fault) if fault.reason == "AlreadyExists" || fault.code == 404 || is_closing(&fault) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// The same of a change to what is there.
pub(crate) fn changed(outcome: Result<Outcome, Fault>) -> Result<(), Fault> {
    match outcome {
        Err(fault) if fault.code == 404 => Ok(()),
        other => other.map(|_| ()),
    }
}

/// How events and owner lists speak of a typed object.
pub(crate) fn reference<K>(object: &K) -> ObjectReference
where
    K: k8s_openapi::Resource + k8s_openapi::Metadata<Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>,
{
    let meta = object.metadata();
    ObjectReference {
        api_version: Some(K::API_VERSION.to_owned()),
        kind: Some(K::KIND.to_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

fn in_the(propagation: &str) -> DeleteOptions {
    DeleteOptions {
        propagation: Some(propagation.to_owned()),
        raw: json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}),
        ..DeleteOptions::default()
    }
}
