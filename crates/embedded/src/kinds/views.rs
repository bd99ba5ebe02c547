//! Where a kind is stored, if not under its own name: `events.k8s.io` is a view of the core Events.

use serde_json::Value;

use super::{alias_of, events};
use crate::registry::row::{Row, Rules, Version};

/// Group and plural under which another kind keeps this one's objects.
pub(crate) fn stored_as(row: &Row) -> Option<(&'static str, &'static str)> {
    alias_of(&row.group, &row.plural)
}

/// An object of the view, as it is stored.
pub(crate) fn to_storage(row: &Row, object: &mut Value) {
    if stored_as(row).is_some() {
        *object = events::to_core(object);
    }
}

/// A stored object, as the view shows it.
pub(crate) fn from_storage(row: &Row, object: &mut Value) {
    if stored_as(row).is_some() {
        *object = events::from_core(object);
    }
}

/// Kinds whose delete answers the object that is gone, not a `Status`.
pub(crate) fn answers_deleted_object(row: &Row) -> bool {
    matches!(
        (&*row.group, &*row.kind),
        (
            "",
            "Pod" | "Service" | "ServiceAccount" | "PersistentVolume" | "PersistentVolumeClaim" | "Namespace"
        ) | ("storage.k8s.io", "StorageClass")
            | ("resource.k8s.io", "ResourceClaim" | "ResourceClaimTemplate")
    )
}

/// Whether the kind has the subresource in this version.
pub(crate) fn has_subresource(row: &Row, version: &Version, name: &str) -> bool {
    match name {
        "status" => version.has_status,
        "scale" => version.scale.is_some(),
        _ => match row.rules {
            Rules::BuiltIn(rules) => rules.subresources.contains(&name),
            Rules::Custom => false,
        },
    }
}
