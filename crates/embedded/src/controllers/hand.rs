//! How controllers read and write: registry calls, as the reference's controller manager would make them.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::fault::Fault;
use crate::registry::ask::{Ask, Outcome, Target};
use crate::registry::catalog::{Catalog, Resource};
use crate::registry::{DeleteOptions, Patch, Registry};
use crate::store::{Key, Value as Stored};

/// Who owns the fields that controllers write, as in the reference.
const MANAGER: &str = "kube-controller-manager";

/// The way all controllers work on the cluster.
#[derive(Debug, Clone)]
pub(super) struct Hand {
    pub(super) registry: Arc<Registry>,
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
    pub(super) fn now(&self) -> Timestamp {
        self.registry.clock.now()
    }

    pub(super) fn catalog(&self) -> Arc<Catalog> {
        self.registry.catalog()
    }

    /// The object of a key now, for a controller that decides by metadata alone.
    pub(super) fn meta(&self, key: &Key) -> Option<(Meta, u64)> {
        let entry = self.registry.store.head(key)?;
        Some((meta_of(&entry.value)?, entry.revision))
    }

    /// The whole object, in the version that is stored.
    pub(super) fn read(&self, target: &Target) -> Result<Option<Value>, Fault> {
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
    pub(super) async fn patch(&self, target: &Target, subresource: &str, change: Value) -> Result<Outcome, Fault> {
        let target = Target {
            subresource: (!subresource.is_empty()).then(|| subresource.to_owned()),
            ..target.clone()
        };
        let outcome = self
            .registry
            .patch(&target, &Ask::internal(MANAGER), &Patch::Merge(change))
            .await?;
        self.registry.after_write(&target, &outcome).await;
        Ok(outcome)
    }

    /// Deletes one object if it still is what was read.
    pub(super) async fn delete(
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
        let outcome = self.registry.delete(target, &Ask::internal(MANAGER), &options).await?;
        self.registry.after_write(target, &outcome).await;
        Ok(())
    }

    /// Deletes all objects of a kind, in one namespace or everywhere. What is already on its way stays as it is.
    pub(super) async fn delete_all(&self, target: &Target) -> Result<(), Fault> {
        let all = crate::registry::read::ListOptions::default();
        self.registry
            .delete_collection(target, &Ask::internal(MANAGER), &in_the("Background"), &all)
            .await
            .map(|_| ())
    }

    pub(super) async fn create(&self, target: &Target, body: Value) -> Result<Outcome, Fault> {
        let ask = Ask::internal(MANAGER);
        let object = Registry::decode(target, body.into(), &ask, &mut Vec::new())?;
        self.registry.create(target, &ask, object, Vec::new()).await
    }

    pub(super) async fn replace(&self, target: &Target, subresource: &str, body: Value) -> Result<Outcome, Fault> {
        let target = Target {
            subresource: (!subresource.is_empty()).then(|| subresource.to_owned()),
            ..target.clone()
        };
        self.registry
            .replace(&target, &Ask::internal(MANAGER), body.into())
            .await
    }
}

/// A request about an object of a kind, in the version that is stored.
pub(super) fn target(resource: &Arc<Resource>, namespace: Option<&str>, name: &str) -> Option<Target> {
    Some(Target {
        version: resource.storage()?.clone(),
        resource: resource.clone(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
        subresource: None,
    })
}

fn in_the(propagation: &str) -> DeleteOptions {
    DeleteOptions {
        propagation: Some(propagation.to_owned()),
        raw: json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}),
        ..DeleteOptions::default()
    }
}
