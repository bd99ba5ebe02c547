//! What an object's owner references point to, by a live read of each owner.

use serde_json::json;

use super::{Garbage, Item, State};
use crate::controllers::Hand;
use crate::controllers::hand::{Owner, target};
use crate::fault::{Fault, quote};
use crate::registry::object;
use crate::store::Key;

/// An object's owner references, sorted by what has become of the owners.
#[derive(Debug, Default)]
pub(super) struct References {
    /// The owner is there and does not wait for its dependents to be gone.
    pub(super) solid: Vec<Owner>,
    /// There is no such owner.
    pub(super) dangling: Vec<Owner>,
    /// The owner waits for this object to be gone.
    pub(super) waiting: Vec<Owner>,
    /// The first that dangles only because it is in another namespace.
    pub(super) elsewhere: Option<Owner>,
}

/// Why nobody can say what a reference points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unclear {
    /// The kind is not served.
    Kind,
    /// An object of cluster scope names an owner in a namespace.
    Scope,
}

/// Where an owner would be: in the dependent's namespace, or in cluster scope.
fn owner_key(hand: &Hand, dependent: &Key, owner: &Owner) -> Result<Key, Unclear> {
    let (group, version) = owner.api_version.rsplit_once('/').unwrap_or(("", &owner.api_version));
    let catalog = hand.catalog();
    let resource = catalog.of_kind(group, &owner.kind).ok_or(Unclear::Kind)?;
    if resource.version(version).is_none() {
        return Err(Unclear::Kind);
    }
    if !resource.row.namespaced {
        return Ok(resource.key(None, &owner.name));
    }
    match dependent.namespace() {
        Some(namespace) => Ok(resource.key(Some(namespace), &owner.name)),
        None => Err(Unclear::Scope),
    }
}

impl Garbage {
    /// Whether the graph alone says that the owner is there: then nothing needs to be read.
    pub(super) fn is_sound(&self, hand: &Hand, dependent: &Key, owner: &Owner) -> bool {
        let Some(place) = self.graph.place(&owner.uid) else {
            return false;
        };
        owner_key(hand, dependent, owner).is_ok_and(|key| key == *place)
    }

    pub(super) fn classify(&self, hand: &Hand, item: &Item) -> Result<References, Unclear> {
        let mut references = References::default();
        for owner in &item.meta.owner_references {
            let key = match owner_key(hand, &item.key, owner) {
                Ok(key) => key,
                // A kind can stop being served before the dependents of its last objects were looked at.
                Err(_) if self.graph.is_gone(&owner.uid, &item.key) => {
                    references.dangling.push(owner.clone());
                    continue;
                }
                Err(unclear) => return Err(unclear),
            };
            match hand.meta(&key) {
                Some((meta, _)) if meta.uid == owner.uid => {
                    if State::of(&meta) == State::Foreground {
                        references.waiting.push(owner.clone());
                    } else {
                        references.solid.push(owner.clone());
                    }
                }
                _ => {
                    if references.elsewhere.is_none() && self.is_elsewhere(&item.key, owner) {
                        references.elsewhere = Some(owner.clone());
                    }
                    references.dangling.push(owner.clone());
                }
            }
        }
        Ok(references)
    }

    /// An object with the owner's uid is there, in a namespace that is not the dependent's.
    fn is_elsewhere(&self, dependent: &Key, owner: &Owner) -> bool {
        let place = self.graph.place(&owner.uid).and_then(Key::namespace);
        place.is_some() && place != dependent.namespace()
    }

    /// Event `OwnerRefInvalidNamespace`, in the reference's words. Its name is made of the two uids: when the collector is
    /// killed before it deletes the object, the next one does not tell it twice.
    pub(super) async fn tell_invalid(&self, hand: &Hand, item: &Item, owner: &Owner) -> Result<(), Fault> {
        let namespace = item.key.namespace().unwrap_or_default();
        let place = if namespace.is_empty() { "default" } else { namespace };
        let catalog = hand.catalog();
        let Some(events) = catalog
            .find("", "events")
            .and_then(|resource| target(resource, Some(place), ""))
        else {
            return Ok(());
        };
        let message = format!(
            "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace {}",
            owner.api_version,
            owner.kind,
            owner.name,
            owner.uid,
            quote(namespace)
        );
        let now = object::time(hand.now());
        let mut involved = json!({"kind": &*item.target.resource.row.kind, "apiVersion": item.target.api_version(),
            "name": item.key.name(), "uid": item.meta.uid});
        if !namespace.is_empty() {
            object::as_map(&mut involved).insert("namespace".to_owned(), namespace.into());
        }
        let name = format!("{}.{:016x}", item.key.name(), mark(&item.meta.uid, &owner.uid));
        let body = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": place},
            "involvedObject": involved, "reason": "OwnerRefInvalidNamespace", "message": message,
            "source": {"component": "garbage-collector-controller"},
            "reportingComponent": "garbage-collector-controller",
            "firstTimestamp": now, "lastTimestamp": now, "count": 1, "type": "Warning",
        });
        match hand.create(&events, body).await {
            Ok(_) => Ok(()),
            Err(fault) => {
                tracing::debug!(%fault, "an event could not be written");
                Ok(())
            }
        }
    }
}

/// FNV-1a of both uids.
fn mark(one: &str, two: &str) -> u64 {
    one.bytes()
        .chain(two.bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}
