//! The built-in steps: namespace lifecycle, and what keeps the first namespaces.

use serde_json::Value;

use crate::admission::{Operation, Review};
use crate::fault::{Fault, Subject};
use crate::registry::{Registry, object};
use crate::store::Key;

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

impl Registry {
    pub(super) fn built_in_steps(&self, review: &Review<'_>, _object: &mut Value) -> Result<(), Fault> {
        if review.operation == Operation::Create {
            self.namespace_is_open(review)?;
        }
        Ok(())
    }

    /// O9: a namespace that is not there, or on its way out, takes nothing new.
    fn namespace_is_open(&self, review: &Review<'_>) -> Result<(), Fault> {
        let Some(namespace) = &review.target.namespace else {
            return Ok(());
        };
        let namespaces = Subject {
            group: String::new(),
            kind: "namespaces".to_owned(),
        };
        let Some(entry) = self.store.head(&Key::new("", "namespaces", None, namespace)) else {
            return Err(Fault::not_found(&namespaces, namespace));
        };
        let found = object::decode(&entry)?;
        if object::is_deleting(&found) {
            return Err(Fault::forbidden(
                &review.target.plural(),
                review.name,
                &format!("unable to create new content in namespace {namespace} because it is being terminated"),
            )
            .cause(
                "NamespaceTerminating",
                &format!("namespace {namespace} is being terminated"),
                "metadata.namespace",
            ));
        }
        Ok(())
    }

    pub(crate) fn admit_delete(&self, review: &Review<'_>) -> Result<(), Fault> {
        let row = &review.target.resource.row;
        if row.group.is_empty() && &*row.kind == "Namespace" && IMMORTAL.contains(&review.name) {
            return Err(Fault::forbidden(
                &review.target.plural(),
                review.name,
                "this namespace may not be deleted",
            ));
        }
        Ok(())
    }
}
