//! Valkey clusters (`valkey-operator.smoketurner.com`): ValkeyCluster.
//!
//! The rooms: [`api`] (types and schema), [`records`] (what the view keeps), [`words`] (what members, shards and slots are),
//! [`seen`] (what one pass saw, a plain value), [`observe`] (how it is seen), [`plan`] (pure), [`act`], [`objects`] (pure),
//! [`wake`], [`admission`], [`explain`], [`metrics`]; [`model`] is a data plane for tests, [`load`] a client that sees everything. [`kinds`] names
//! them to the runtime.

pub mod act;
pub mod admission;
pub mod api;
pub mod explain;
mod json;
pub mod kinds;
pub mod load;
pub mod metrics;
pub mod model;
pub mod objects;
pub mod observe;
pub mod plan;
pub mod records;
pub mod seen;
pub mod wake;
pub mod words;

use k8s_openapi::api::rbac::v1::PolicyRule;
use usher_operator::run::{AnyKind, boxed};

/// The kinds of this crate, ready to run.
pub fn kinds(settings: kinds::Settings) -> Vec<Box<dyn AnyKind>> {
    vec![boxed(kinds::Clusters::new(settings))]
}

/// The rights these kinds need: what `act` and the watches ask for, and no more.
///
/// `finalizers` is asked for by the admission plugin that guards `blockOwnerDeletion` in owner references.
pub fn rules() -> Vec<PolicyRule> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.iter().map(|&resource| resource.to_owned()).collect()),
        verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        ..PolicyRule::default()
    };
    let watch = ["get", "list", "watch"];
    let keep = ["get", "list", "watch", "create", "patch"];
    vec![
        rule(api::GROUP, &["valkeyclusters"], &["get", "list", "watch", "patch"]),
        rule(api::GROUP, &["valkeyclusters/status"], &["update"]),
        rule(api::GROUP, &["valkeyclusters/finalizers"], &["update"]),
        rule("apps", &["statefulsets"], &keep),
        rule("policy", &["poddisruptionbudgets"], &keep),
        rule("", &["secrets"], &keep),
        rule("", &["services"], &[&keep[..], &["delete"]].concat()),
        rule("", &["pods"], &["get", "list", "watch", "patch", "delete"]),
        rule("", &["persistentvolumeclaims"], &watch),
    ]
}

/// Rights on what has no namespace: where nodes are. Without them primaries are not spread over places.
pub fn cluster_rules() -> Vec<PolicyRule> {
    vec![PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["nodes".to_owned()]),
        verbs: vec!["list".to_owned()],
        ..PolicyRule::default()
    }]
}
