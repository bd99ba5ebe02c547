//! Hierarchical IP pools (`plexaubnet.io`): SubnetPool, SubnetClaim, Subnet; SubnetPoolClaim has its schema here already.
//!
//! The rooms: [`api`] (types and schema), [`records`] (what the view keeps of them), [`ledger`] (address maps derived from
//! the view), [`observe`], [`plan`] (pure), [`act`], [`objects`] (pure), [`wake`]; [`kinds`] names them to the runtime.

pub mod act;
pub mod api;
pub mod kinds;
pub mod ledger;
pub mod objects;
pub mod observe;
pub mod plan;
pub mod records;
pub mod wake;

use usher_operator::run::{AnyKind, boxed};

/// The kinds of this crate, ready to run. Pools come first: they declare what the view keeps, in the order of the lists.
pub fn kinds() -> Vec<Box<dyn AnyKind>> {
    vec![
        boxed(kinds::Pools::default()),
        boxed(kinds::Subnets),
        boxed(kinds::Claims),
    ]
}
