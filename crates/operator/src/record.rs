//! Slim records: what the view keeps of an object.
//!
//! Watches bring whole objects; kinds need a few fields of each. A [`Record`] is those fields, read once. Reading is
//! per object, so that one object somebody wrote nonsense into is reported by name and disturbs nothing else.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use kube::api::DynamicObject;
use usher_engine::hash::CanonicalHash;
use usher_engine::{ObjectKey, Second, Text, Uid};

/// A resource type as the API names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiType {
    /// API group; empty for core.
    pub group: &'static str,
    /// Version within the group.
    pub version: &'static str,
    /// Kind, as in manifests.
    pub kind: &'static str,
    /// Plural, as in paths and RBAC.
    pub plural: &'static str,
}

impl ApiType {
    /// `group/version`, or the version alone for core.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Path of the type's objects in a namespace.
    pub fn path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis/" };
        format!(
            "{root}{}/{}/namespaces/{namespace}/{}",
            self.group, self.version, self.plural
        )
    }

    /// For kube's dynamic API.
    pub fn resource(&self) -> kube::discovery::ApiResource {
        kube::discovery::ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version: self.api_version(),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }
}

/// One owner reference, as far as we use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Kind of the owner.
    pub kind: Text,
    /// Its name.
    pub name: Text,
    /// Its uid: the only thing that tells it from a later object of that name.
    pub uid: Uid,
}

/// The metadata every record keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Which object.
    pub key: ObjectKey,
    /// Which incarnation of it.
    pub uid: Uid,
    /// Which version of that: `resourceVersion`, decimal since forever and comparable since KEP-5504.
    pub revision: u64,
    /// Spec generation.
    pub generation: i64,
    /// When it was created.
    pub created: Second,
    /// Its deletion mark.
    pub deleting: Option<Second>,
    /// Who owns it.
    pub owners: Box<[Owner]>,
    /// What holds it back from vanishing.
    pub finalizers: Arc<[Text]>,
    /// Hash of the status as stored: tells whether a planned status says something new.
    pub status_hash: Option<CanonicalHash>,
}

impl Meta {
    /// Whether this finalizer is on the object.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|f| &**f == finalizer)
    }

    /// Whether the object names an owner of this uid.
    pub fn owned_by(&self, uid: &Uid) -> bool {
        self.owners.iter().any(|o| o.uid == *uid)
    }
}

/// Why an object could not be read into a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {object} cannot be read: {problem}; correct the object or delete it")]
pub struct Unreadable {
    /// Its kind.
    pub kind: &'static str,
    /// Namespace and name, as far as known.
    pub object: String,
    /// What is wrong, with the field.
    pub problem: String,
}

/// What the view keeps of one object.
pub trait Record: Debug + PartialEq + Send + Sync + Sized + 'static {
    /// Which objects these are.
    const TYPE: ApiType;

    /// Reads the kind's own fields. `Err` says what is wrong and in which field; the object is then reported and left
    /// out of the view.
    fn read(meta: Meta, object: &DynamicObject) -> Result<Self, String>;

    /// The metadata.
    fn meta(&self) -> &Meta;
}

/// Lists of names that very many objects have alike (finalizers): each is kept once.
#[derive(Debug, Default)]
pub(crate) struct Alike(BTreeSet<Arc<[Text]>>);

impl Alike {
    /// There are a handful of them, unless somebody makes up one per object.
    const MOST: usize = 256;

    fn share(&mut self, names: impl Iterator<Item = Text>) -> Arc<[Text]> {
        let names: Arc<[Text]> = names.collect();
        if let Some(known) = self.0.get(&names) {
            return known.clone();
        }
        if self.0.len() < Self::MOST {
            self.0.insert(names.clone());
        }
        names
    }
}

/// Reads one object, metadata first.
pub fn read<R: Record>(object: &DynamicObject) -> Result<R, Unreadable> {
    read_among(object, &mut Alike::default())
}

/// Reads one object of many.
pub(crate) fn read_among<R: Record>(object: &DynamicObject, alike: &mut Alike) -> Result<R, Unreadable> {
    let problem = |problem: String| Unreadable {
        kind: R::TYPE.kind,
        object: format!(
            "{}/{}",
            object.metadata.namespace.as_deref().unwrap_or("?"),
            object.metadata.name.as_deref().unwrap_or("?")
        ),
        problem,
    };
    let meta = read_meta(object, alike).map_err(problem)?;
    R::read(meta, object).map_err(problem)
}

fn read_meta(object: &DynamicObject, alike: &mut Alike) -> Result<Meta, String> {
    let meta = &object.metadata;
    let key = ObjectKey::new(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
    .map_err(|e| e.to_string())?;
    let version = meta.resource_version.as_deref().unwrap_or_default();
    let status = object.data.get("status").filter(|s| !s.is_null());
    Ok(Meta {
        key,
        uid: meta.uid.as_deref().ok_or("metadata.uid is missing")?.into(),
        revision: version
            .parse()
            .map_err(|_| format!("metadata.resourceVersion {version:?} is no number"))?,
        generation: meta.generation.unwrap_or(0),
        created: meta
            .creation_timestamp
            .as_ref()
            .map(|t| t.0.into())
            .ok_or("metadata.creationTimestamp is missing")?,
        deleting: meta.deletion_timestamp.as_ref().map(|t| t.0.into()),
        owners: meta
            .owner_references
            .iter()
            .flatten()
            .map(|o| Owner {
                kind: o.kind.as_str().into(),
                name: o.name.as_str().into(),
                uid: o.uid.as_str().into(),
            })
            .collect(),
        finalizers: alike.share(meta.finalizers.iter().flatten().map(|f| f.as_str().into())),
        status_hash: status.map(CanonicalHash::of_json),
    })
}

#[cfg(test)]
mod tests;
