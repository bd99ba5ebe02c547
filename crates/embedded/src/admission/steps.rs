//! The built-in steps, in the reference's order, and namespace lifecycle itself.
//!
//! [`Registry::built_in_steps`] may change the object and runs before webhooks and rules; [`Registry::built_in_checks`]
//! runs when the object is as it will be stored. Steps look at whole objects: writes of subresources pass.

use serde_json::Value;

use crate::admission::{Operation, Review, nodes, pods, storage, webhooks};
use crate::fault::{Fault, Subject};
use crate::kinds;
use crate::registry::ask::Target;
use crate::registry::{Registry, object};
use crate::store::{Entry, Key};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

impl Review<'_> {
    /// Whether this is a write of a built-in kind's whole objects.
    pub(super) fn is(&self, group: &str, kind: &str) -> bool {
        let row = &self.target.resource.row;
        self.target.subresource.is_none() && &*row.group == group && &*row.kind == kind
    }

    pub(super) fn forbidden(&self, why: &str) -> Fault {
        let name = if self.base.is_empty() { self.name } else { self.base };
        Fault::forbidden(&self.target.plural(), name, why)
    }

    /// The namespace, empty for kinds without one.
    pub(super) fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or_default()
    }
}

/// Of an object only whether it is on its way out.
#[derive(serde::Deserialize)]
struct Dated {
    metadata: DatedMeta,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct DatedMeta {
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

impl Registry {
    pub(super) fn built_in_steps(&self, review: &Review<'_>, object: &mut Value) -> Result<(), Fault> {
        if !review.target.resource.row.group.is_empty() {
            return Ok(());
        }
        if review.is("", "Pod") {
            if review.operation == Operation::Create {
                pods::give_account(self, review, object)?;
                pods::label_by_node(self, object);
            }
            pods::give_priority(self, review, object)?;
            pods::tolerate_lost_nodes(object);
        } else if review.is("", "PersistentVolumeClaim") {
            if review.operation == Operation::Create {
                storage::choose_class(self, object);
                storage::protect(object, storage::CLAIM_PROTECTION);
            }
        } else if review.is("", "PersistentVolume") {
            if review.operation == Operation::Create {
                storage::protect(object, storage::VOLUME_PROTECTION);
            }
        } else if review.is("", "Node") && review.operation == Operation::Create {
            nodes::start_not_ready(object);
        }
        Ok(())
    }

    /// What built-in steps refuse once the object is complete.
    pub(super) fn built_in_checks(&self, review: &Review<'_>, object: Option<&Value>) -> Result<(), Fault> {
        let Some(object) = object else {
            return Ok(());
        };
        if review.is("", "PersistentVolumeClaim") {
            storage::check_growth(self, review, object)
        } else if review.is("scheduling.k8s.io", "PriorityClass") {
            pods::only_one_default(self, review, object)
        } else if review.is("admissionregistration.k8s.io", "MutatingWebhookConfiguration")
            || review.is("admissionregistration.k8s.io", "ValidatingWebhookConfiguration")
        {
            webhooks::check_conditions(review, object)
        } else {
            Ok(())
        }
    }

    /// O9: a namespace that is not there, or on its way out, takes nothing new. The registry asks before anything else, and
    /// again if it has moved until the object is stored.
    pub(crate) fn open_namespace(&self, review: &Review<'_>) -> Result<Option<Entry>, Fault> {
        let Some(namespace) = &review.target.namespace else {
            return Ok(None);
        };
        let namespaces = Subject {
            group: String::new(),
            kind: "namespaces".to_owned(),
        };
        let Some(entry) = self.store.head(&Key::new("", "namespaces", None, namespace)) else {
            return Err(Fault::not_found(&namespaces, namespace));
        };
        // Asked before every write of something new: no more of it is read than that.
        let found: Dated = serde_json::from_slice(entry.value.json()).map_err(Fault::internal)?;
        if found.metadata.deletion_timestamp.is_some() {
            return Err(review
                .forbidden(&format!(
                    "unable to create new content in namespace {namespace} because it is being terminated"
                ))
                .cause(
                    "NamespaceTerminating",
                    &format!("namespace {namespace} is being terminated"),
                    "metadata.namespace",
                ));
        }
        Ok(Some(entry))
    }

    /// The classes that every cluster has stay. Only who names one is refused: the reference deletes them with all others.
    pub(crate) fn admit_named_delete(&self, target: &Target) -> Result<(), Fault> {
        let row = &target.resource.row;
        let is_class = &*row.group == "scheduling.k8s.io" && &*row.kind == "PriorityClass";
        if is_class && kinds::SYSTEM_CLASSES.iter().any(|(name, ..)| *name == target.name) {
            let why = "this is a system priority class and cannot be deleted";
            return Err(Fault::forbidden(&target.plural(), &target.name, why));
        }
        Ok(())
    }

    /// Before a delete.
    pub(crate) fn admit_delete(&self, review: &Review<'_>) -> Result<(), Fault> {
        if review.is("", "Namespace") && IMMORTAL.contains(&review.name) {
            return Err(review.forbidden("this namespace may not be deleted"));
        }
        Ok(())
    }

    /// An object of a built-in kind, as steps look it up: with writes that are not yet shown to clients.
    pub(super) fn find(&self, group: &str, plural: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
        let entry = self.store.head(&Key::new(group, plural, namespace, name))?;
        object::decode(&entry).ok()
    }

    /// All objects of a built-in kind without namespaces, as far as they can be read.
    pub(super) fn every(&self, group: &str, plural: &str) -> Vec<Value> {
        let Ok(page) = self.store.list(&Key::prefix(group, plural, None), None, None, 0) else {
            return Vec::new();
        };
        page.entries
            .iter()
            .filter_map(|entry| object::decode(entry).ok())
            .collect()
    }
}
