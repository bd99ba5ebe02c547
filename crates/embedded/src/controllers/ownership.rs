//! Who controls what: whom a change concerns, and how controllers adopt what they select and release what they do not.
//!
//! The rules are the reference's: what is controlled by another is left alone; what is controlled by nobody and selected is
//! adopted; what is controlled but not selected any more is released. A controller that is being deleted does neither.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::hand::Hand;
use super::pods;
use crate::fault::Fault;
use crate::registry::select::LabelSelector;
use crate::store::{Kind, LogEntry, Value as Stored};

/// An owner reference that says: this one controls it.
pub(super) fn controller_reference<K: Metadata<Ty = ObjectMeta>>(controller: &K) -> OwnerReference {
    let meta = controller.metadata();
    OwnerReference {
        api_version: K::API_VERSION.to_owned(),
        kind: K::KIND.to_owned(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Whom a change of a dependent concerns.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Concerned {
    /// Names of those of the kind that control it, or did before.
    pub(super) controllers: BTreeSet<String>,
    /// The labels of one that nobody controls: whoever selects it may want it.
    pub(super) orphan: Option<BTreeMap<String, String>>,
}

/// The part of a dependent that this is about.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Head {
    metadata: Meta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Meta {
    labels: BTreeMap<String, String>,
    owner_references: Vec<Reference>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reference {
    kind: String,
    name: String,
    controller: bool,
}

fn head(value: &Stored) -> Meta {
    serde_json::from_slice::<Head>(value.json())
        .map(|head| head.metadata)
        .unwrap_or_default()
}

/// Whom of `kind` a change concerns.
pub(super) fn concerned(line: &LogEntry, kind: &str) -> Concerned {
    let mut concerned = Concerned::default();
    let mut note = |meta: &Meta| {
        let controller = meta.owner_references.iter().find(|owner| owner.controller);
        if let Some(owner) = controller.filter(|owner| owner.kind == kind) {
            concerned.controllers.insert(owner.name.clone());
        }
        controller.is_none()
    };
    if let Some((_, before)) = &line.previous {
        note(&head(before));
    }
    let now = head(&line.value);
    let is_orphan = note(&now);
    if is_orphan && line.kind != Kind::Delete {
        concerned.orphan = Some(now.labels);
    }
    concerned
}

/// What a controller does about an object of the kind that it controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    Ours,
    Adopt,
    Release,
    LeaveAlone,
}

/// One that controls others by a selector.
#[derive(Debug, Clone)]
pub(super) struct Controller {
    reference: OwnerReference,
    is_deleting: bool,
    selector: LabelSelector,
}

impl Controller {
    pub(super) fn new<K: Metadata<Ty = ObjectMeta>>(controller: &K, selector: LabelSelector) -> Self {
        Self {
            reference: controller_reference(controller),
            is_deleting: pods::is_deleting(controller.metadata()),
            selector,
        }
    }

    pub(super) fn uid(&self) -> &str {
        &self.reference.uid
    }

    pub(super) fn selects(&self, meta: &ObjectMeta) -> bool {
        pods::selects(&self.selector, meta)
    }

    /// See the module.
    pub(super) fn judge(&self, meta: &ObjectMeta) -> Claim {
        let is_selected = self.selects(meta);
        match pods::controller_of(meta) {
            Some(owner) if owner.uid != self.reference.uid => Claim::LeaveAlone,
            Some(_) if is_selected => Claim::Ours,
            Some(_) if self.is_deleting => Claim::LeaveAlone,
            Some(_) => Claim::Release,
            None if self.is_deleting || !is_selected || pods::is_deleting(meta) => Claim::LeaveAlone,
            None => Claim::Adopt,
        }
    }

    /// Adopts and releases, and gives back what is the controller's then.
    pub(super) async fn claim<K>(&self, hand: &Hand, objects: Vec<Arc<K>>) -> Result<Vec<Arc<K>>, Fault>
    where
        K: Metadata<Ty = ObjectMeta> + DeserializeOwned,
    {
        let mut ours = Vec::with_capacity(objects.len());
        for object in objects {
            let meta = object.metadata();
            match self.judge(meta) {
                Claim::Ours => ours.push(object),
                Claim::LeaveAlone => {}
                Claim::Adopt => {
                    let owners = owners(meta).chain([&self.reference]).collect::<Vec<_>>();
                    if let Some(adopted) = own::<K>(hand, meta, json!(owners)).await? {
                        ours.push(Arc::new(serde_json::from_value(adopted).map_err(Fault::internal)?));
                    }
                }
                Claim::Release => {
                    let left: Vec<_> = owners(meta).filter(|owner| owner.uid != self.uid()).collect();
                    let left = if left.is_empty() { Value::Null } else { json!(left) };
                    own::<K>(hand, meta, left).await?;
                }
            }
        }
        Ok(ours)
    }
}

fn owners(meta: &ObjectMeta) -> impl Iterator<Item = &OwnerReference> {
    meta.owner_references.iter().flatten()
}

/// Writes an object's owners, if it is still what was read; `None` if it is gone.
async fn own<K: k8s_openapi::Resource>(hand: &Hand, meta: &ObjectMeta, owners: Value) -> Result<Option<Value>, Fault> {
    let target = hand.target_of::<K>(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())?;
    let change = json!({"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version,
        "ownerReferences": owners}});
    match hand.patch(&target, "", change).await {
        Ok(outcome) => Ok(Some(outcome.object)),
        Err(fault) if fault.code == 404 => Ok(None),
        Err(fault) => Err(fault),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;

    use super::*;

    fn meta(value: Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn c3_what_is_selected_and_nobodys_is_adopted_and_what_is_ours_but_not_selected_is_released() {
        let set = |deleting: bool| {
            let mut set: ReplicaSet = serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
                "metadata": {"name": "web", "uid": "1"}}))
            .unwrap();
            if deleting {
                set.metadata.deletion_timestamp =
                    meta(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})).deletion_timestamp;
            }
            Controller::new(&set, LabelSelector::parse("app=web").unwrap())
        };
        let owner = |uid: &str, controller: bool| {
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
            "uid": uid, "controller": controller}])
        };
        let (web, other) = (json!({"app": "web"}), json!({"app": "other"}));
        for (labels, owners, gone, wanted, wanted_when_deleting) in [
            (&web, owner("1", true), false, Claim::Ours, Claim::Ours),
            (&web, owner("1", true), true, Claim::Ours, Claim::Ours),
            (&other, owner("1", true), false, Claim::Release, Claim::LeaveAlone),
            (&web, owner("2", true), false, Claim::LeaveAlone, Claim::LeaveAlone),
            (&web, owner("2", false), false, Claim::Adopt, Claim::LeaveAlone),
            (&web, json!([]), false, Claim::Adopt, Claim::LeaveAlone),
            (&web, json!([]), true, Claim::LeaveAlone, Claim::LeaveAlone),
            (&other, json!([]), false, Claim::LeaveAlone, Claim::LeaveAlone),
        ] {
            let mut pod = json!({"labels": labels, "ownerReferences": owners});
            if gone {
                pod["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            let pod = meta(pod);
            assert_eq!(set(false).judge(&pod), wanted, "{pod:?}");
            assert_eq!(
                set(true).judge(&pod),
                wanted_when_deleting,
                "{pod:?}, while the set is deleted"
            );
        }
    }
}
