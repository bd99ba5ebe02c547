//! What `kubectl get` shows of each built-in kind: its columns, and the cells of an object.
//!
//! The registry puts these into a kind's row; `api::table` calls them for each listed object. Cells are pure functions
//! of the object and of now, and equal the reference's printers, which tests hold against recordings of it. The
//! reference always computes the wide columns too; clients leave out those of priority 1.

mod autoscaling;
mod cluster;
mod core;
mod duration;
mod events;
mod nodes;
mod pods;
mod policies;
mod read;
mod selectors;
mod services;
mod storage;
#[cfg(test)]
mod tests;
mod workloads;

use jiff::Timestamp;
use serde_json::Value;

use crate::registry::row::Column;

pub use duration::{age, human_duration};
pub use pods::row_conditions;

/// The cells of one object, one for each column.
pub type Cells = fn(&Value, Timestamp) -> Vec<Value>;

/// Columns and cells of a built-in kind; those of a kind without its own are its name and when it was created.
#[must_use]
pub fn columns(group: &str, kind: &str) -> Option<(&'static [Column], Cells)> {
    Some(match (group, kind) {
        ("", "Pod") => (pods::COLUMNS, pods::cells),
        ("", "Namespace") => (core::NAMESPACE, core::namespace),
        ("", "ConfigMap") => (core::CONFIG_MAP, core::config_map),
        ("", "Secret") => (core::SECRET, core::secret),
        ("", "ServiceAccount") => (core::NAME_AND_AGE, core::name_and_age),
        ("", "Service") => (services::SERVICE, services::service),
        ("", "Endpoints") => (services::ENDPOINTS, services::endpoints),
        ("", "PersistentVolumeClaim") => (storage::CLAIM, storage::claim),
        ("", "PersistentVolume") => (storage::VOLUME, storage::volume),
        ("", "Node") => (nodes::COLUMNS, nodes::cells),
        ("", "Event") => (events::COLUMNS, events::core_cells),
        ("events.k8s.io", "Event") => (events::COLUMNS, events::cells),
        ("apps", "Deployment") => (workloads::DEPLOYMENT, workloads::deployment),
        ("apps", "ReplicaSet") => (workloads::REPLICA_SET, workloads::replica_set),
        ("apps", "StatefulSet") => (workloads::STATEFUL_SET, workloads::stateful_set),
        ("apps", "ControllerRevision") => (workloads::CONTROLLER_REVISION, workloads::controller_revision),
        ("policy", "PodDisruptionBudget") => (policies::DISRUPTION_BUDGET, policies::disruption_budget),
        ("networking.k8s.io", "NetworkPolicy") => (policies::NETWORK_POLICY, policies::network_policy),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => (cluster::CREATED_AT, cluster::created_at),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => (policies::BINDING, policies::binding),
        ("coordination.k8s.io", "Lease") => (cluster::LEASE, cluster::lease),
        ("discovery.k8s.io", "EndpointSlice") => (services::ENDPOINT_SLICE, services::endpoint_slice),
        ("storage.k8s.io", "StorageClass") => (storage::CLASS, storage::class),
        ("scheduling.k8s.io", "PriorityClass") => (cluster::PRIORITY_CLASS, cluster::priority_class),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => (cluster::CREATED_AT, cluster::created_at),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            (cluster::WEBHOOKS, cluster::webhooks)
        }
        ("autoscaling", "HorizontalPodAutoscaler") => (autoscaling::AUTOSCALER, autoscaling::autoscaler),
        ("autoscaling", "Scale") => (autoscaling::SCALE, autoscaling::scale),
        ("resource.k8s.io", "ResourceClaim") => (policies::RESOURCE_CLAIM, policies::resource_claim),
        ("resource.k8s.io", "ResourceClaimTemplate") => (core::NAME_AND_AGE, core::name_and_age),
        _ => return None,
    })
}

/// A column that is always shown.
const fn column(name: &'static str, kind: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind,
        format: "",
        description,
        priority: 0,
    }
}

/// A text shown with `-o wide` only.
const fn wide(name: &'static str, description: &'static str) -> Column {
    Column {
        priority: 1,
        ..column(name, "string", description)
    }
}

const NAME: Column = Column {
    format: "name",
    ..column("Name", "string", "The object's name.")
};
const AGE: Column = column("Age", "string", "How long ago the object was created.");
const CONTAINERS: Column = wide("Containers", "The template's containers.");
const IMAGES: Column = wide("Images", "The images of the template's containers.");
const SELECTOR: Column = wide("Selector", "Which pods belong to it.");
