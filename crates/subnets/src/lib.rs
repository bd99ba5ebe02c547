//! Hierarchical IP pools (`plexaubnet.io`): SubnetPool, SubnetPoolClaim, SubnetClaim, Subnet.
//!
//! The rooms: [`api`] (types and schema), [`records`] (what the view keeps of them), [`ledger`] (address maps derived from
//! the view), [`answers`] (what was asked past the view), [`observe`], [`plan`] (pure), [`act`], [`objects`] (pure),
//! [`wake`], [`rank`], [`tell`], [`metrics`]; [`kinds`] names them to the runtime.

pub mod act;
pub mod answers;
pub mod api;
pub mod explain;
pub mod kinds;
pub mod ledger;
pub mod metrics;
pub mod objects;
pub mod observe;
pub mod plan;
pub mod rank;
pub mod records;
pub mod tell;
pub mod wake;

use k8s_openapi::api::rbac::v1::PolicyRule;
use usher_operator::run::{AnyKind, boxed};
use usher_operator::trigger::Trigger;

/// The kinds of this crate, ready to run. Pools come first: they declare what the view keeps, in the order of the lists.
pub fn kinds(pools: kinds::Pools) -> Vec<Box<dyn AnyKind>> {
    vec![
        boxed(pools),
        boxed(kinds::Subnets),
        boxed(kinds::Claims),
        boxed(kinds::PoolClaims),
    ]
}

/// What may be triggered from outside: the recalculation of a pool (R50).
pub fn triggers() -> Vec<Trigger> {
    vec![Trigger {
        resource: records::POOLS,
        called: "pool",
        annotation: api::RECALCULATE_ANNOTATION,
        answered_in: "recalculated",
    }]
}

/// The rights these kinds need on their own resources: what `act` and the watches ask for, and no more.
///
/// `finalizers` is asked for by the admission plugin that guards `blockOwnerDeletion` in owner references.
pub fn rules() -> Vec<PolicyRule> {
    let plurals = ["subnetpools", "subnetclaims", "subnets", "subnetpoolclaims"];
    let rule = |subresource: &str, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![api::GROUP.to_owned()]),
        resources: Some(plurals.iter().map(|plural| format!("{plural}{subresource}")).collect()),
        verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        ..PolicyRule::default()
    };
    vec![
        rule("", &["get", "list", "watch", "create", "update", "patch", "delete"]),
        rule("/status", &["update", "patch"]),
        rule("/finalizers", &["update"]),
    ]
}
