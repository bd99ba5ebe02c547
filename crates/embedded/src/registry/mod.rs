//! Kinds as rows of data, and what can be done with an object, written once for all of them.
//!
//! - [`row`], [`catalog`]: what kinds there are. [`ask`]: a request, understood.
//! - [`read`], [`watch`]: get, list, watch. [`create`], [`update`], [`delete`]: the three ways to write.
//! - [`decode`]: from a body to an object of the kind. [`scale`]: the subresource that all kinds share.
//! - [`select`]: selectors. [`object`]: metadata, and how an object is stored. [`definitions`]: CRDs become kinds,
//!   [`naming`]: under names that no other has.
//!
//! In memory every write completes at its first poll (E2): nothing here waits but for the store's commit and for webhooks.

pub mod ask;
pub mod catalog;
mod create;
mod decode;
pub(crate) mod definitions;
mod delete;
mod delete_options;
mod eviction;
mod ground;
mod logs;
mod naming;
pub mod object;
mod owners;
pub(crate) mod read;
pub mod row;
mod scale;
pub mod select;
mod subresources;
mod undecodable;
mod update;
pub(crate) mod watch;

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use crate::admission::Admission;
use crate::clock::Clock;
use crate::dice::Dice;
use crate::fault::Fault;
use crate::kinds;
use crate::registry::ask::Target;
use crate::registry::catalog::{Catalog, Resource};
use crate::registry::row::Version;
use crate::schema;
use crate::store::{self, Change, Commit, Entry, Expect, Key, ReadError, Revision, Store, Write, WriteError};

pub(crate) use delete_options::{DeleteOptions, check_dry_run};
pub(crate) use logs::{LogOptions, PodPlace};
pub(crate) use update::Patch;

/// How often a write that named no revision is tried again when somebody was faster (O10).
const TRIES: usize = 5;

/// The objects of a cluster, and everything that may be done with them.
#[derive(Debug)]
pub struct Registry {
    pub(crate) store: Store,
    catalog: RwLock<Arc<Catalog>>,
    pub(crate) clock: Clock,
    pub(crate) dice: Dice,
    pub(crate) admission: Admission,
    /// Held by who gives names to definitions.
    naming: tokio::sync::Mutex<()>,
}

/// Why a write did not happen.
#[derive(Debug)]
enum Refused {
    /// The object is not as expected any more.
    Moved,
    Fault(Fault),
}

impl Registry {
    /// Over a store that may already hold objects: its CRDs are read.
    pub fn new(store: Store, clock: Clock, seed: u64, admission: Admission) -> Self {
        let first = store.revision();
        let registry = Self {
            store,
            catalog: RwLock::new(Arc::new(Catalog::built_in())),
            clock,
            dice: Dice::new(seed, first),
            admission,
            naming: tokio::sync::Mutex::default(),
        };
        registry.read_definitions();
        registry
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// After the store went back to a snapshot: the kinds are those of its definitions.
    pub(crate) fn reread_definitions(&self) {
        self.set_catalog(|_| Catalog::built_in());
        self.read_definitions();
    }

    fn set_catalog(&self, change: impl FnOnce(&Catalog) -> Catalog) {
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        *catalog = Arc::new(change(&catalog));
    }

    /// A stored object as a version of its kind.
    pub(crate) fn present(
        &self,
        resource: &Resource,
        version: &str,
        value: &store::Value,
        revision: Revision,
    ) -> Result<Value, Fault> {
        self.present_as(resource, version, value, revision, revision)
    }

    /// The same of a value that was written at one revision and is shown with another, as an event shows what is gone.
    pub(crate) fn present_as(
        &self,
        resource: &Resource,
        version: &str,
        value: &store::Value,
        written: Revision,
        shown: Revision,
    ) -> Result<Value, Fault> {
        let mut object = object::decode_value(value, shown)?;
        if resource.is_custom() {
            let own = object.get("apiVersion").and_then(Value::as_str);
            let own = own.and_then(|own| resource.version_of(own)).or(resource.storage());
            if let Some(own) = own {
                if written < resource.shaped {
                    Self::shape(own, &mut object);
                }
                // The defaults are those of the version it was stored in; what the asked one does not know is not shown.
                if &*own.name != version
                    && let Some(asked) = resource.row.versions.iter().find(|known| &*known.name == version)
                {
                    schema::prune(&asked.schema, &mut object);
                }
            }
        }
        kinds::from_storage(&resource.row, &mut object);
        if let Some(api_version) = object.get_mut("apiVersion") {
            let wanted = resource.api_version(version);
            if api_version.as_str() != Some(wanted.as_str()) {
                *api_version = Value::String(wanted);
            }
        }
        Ok(object)
    }

    /// Whether the stored bytes are already what [`Self::present`] would make of them.
    pub(crate) fn is_plain(resource: &Resource, version: &str, revision: Revision) -> bool {
        revision >= resource.shaped
            && kinds::stored_as(&resource.row).is_none()
            && resource.storage().is_some_and(|storage| &*storage.name == version)
    }

    /// The last step before a custom resource is stored, after all checks.
    fn settle(resource: &Resource, object: &mut Value) {
        if resource.is_custom() {
            schema::settle_numbers(object);
        }
    }

    /// Makes of a custom resource what it is in the version that it is stored in.
    fn shape(storage: &Version, object: &mut Value) {
        schema::prune(&storage.schema, object);
        schema::default(&storage.schema, object);
        schema::settle_numbers(object);
    }

    /// The object as it is stored. What was written through another version is stored with the defaults of the stored
    /// one, and without what that does not know.
    fn store_form(resource: &Resource, object: &Value) -> Result<store::Value, Fault> {
        let Some(storage) = resource.storage() else {
            return Err(Fault::internal("a kind without a version that is stored"));
        };
        let api_version = resource.api_version(&storage.name);
        let is_same = object.get("apiVersion").and_then(Value::as_str) == Some(api_version.as_str());
        if is_same && kinds::stored_as(&resource.row).is_none() {
            return limited(object::encode(object)?);
        }
        let mut stored = object.clone();
        object::as_map(&mut stored).insert("apiVersion".to_owned(), api_version.into());
        if resource.is_custom() {
            Self::shape(storage, &mut stored);
        }
        kinds::to_storage(&resource.row, &mut stored);
        limited(object::encode(&stored)?)
    }

    /// The same for an object that may be just too large: who owns which field is left out before it is refused, as the
    /// reference does. The object becomes what a read in its version would show.
    fn fitting_form(resource: &Resource, object: &mut Value) -> Result<store::Value, Fault> {
        let stored = match Self::store_form(resource, object) {
            Err(fault) if fault.code == 413 && object::meta(object).contains_key("managedFields") => {
                object::meta_mut(object).remove("managedFields");
                Self::store_form(resource, object)
            }
            other => other,
        }?;
        let own = object.get("apiVersion").and_then(Value::as_str);
        if resource.is_custom()
            && let Some(own) = own.and_then(|own| resource.version_of(own))
            && !own.storage
            && let Some(storage) = resource.storage()
        {
            Self::shape(storage, object);
            schema::prune(&own.schema, object);
        }
        Ok(stored)
    }

    /// What a writer builds upon, in the request's version.
    fn live(&self, target: &Target, key: &Key) -> Result<Option<(Entry, Value)>, Fault> {
        match self.store.head(key) {
            None => Ok(None),
            Some(entry) => {
                let object = self.present(&target.resource, &target.version.name, &entry.value, entry.revision)?;
                Ok(Some((entry, object)))
            }
        }
    }

    /// One write, answered when it is as durable as promised.
    async fn commit(&self, key: Key, expect: Expect, change: Change) -> Result<Revision, Refused> {
        self.commit_all(vec![Write { key, expect, change }]).await
    }

    /// Waits until what a writer was shown is as durable as promised, so that an answer may show it (S5).
    async fn settled(&self, entry: &Entry) -> Result<(), Refused> {
        let same = Change::Put(entry.value.clone());
        self.commit(entry.key.clone(), Expect::Revision(entry.revision), same)
            .await
            .map(|_| ())
    }

    /// Several writes, all or none of them.
    async fn commit_all(&self, writes: Vec<Write>) -> Result<Revision, Refused> {
        Self::answered(self.store.write(writes)).await
    }

    async fn answered(accepted: Result<Commit, WriteError>) -> Result<Revision, Refused> {
        match accepted {
            Ok(commit) => commit
                .await
                .map_err(|why| Refused::Fault(Fault::internal(why.to_string()))),
            Err(WriteError::Conflict { .. }) => Err(Refused::Moved),
            Err(why) => Err(Refused::Fault(Fault::internal(why.to_string()))),
        }
    }
}

/// An object larger than the store takes (S8).
fn limited(value: store::Value) -> Result<store::Value, Fault> {
    const MOST: usize = 1_536 * 1024;
    if value.len() > MOST {
        return Err(Fault::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "Request entity too large: limit is {MOST} bytes for one object, this one has {}",
                value.len()
            ),
        ));
    }
    Ok(value)
}

/// A revision that cannot be read.
pub(crate) fn read_fault(error: &ReadError, asked: Revision) -> Fault {
    match error {
        ReadError::Compacted { .. } => Fault::expired(format!(
            "The provided resource version {asked} is too old: it is no longer kept"
        )),
        ReadError::Future { current } => Fault::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        )
        .cause("ResourceVersionTooLarge", "Too large resource version", "")
        .retry_after(1),
    }
}

#[cfg(test)]
mod tests;
