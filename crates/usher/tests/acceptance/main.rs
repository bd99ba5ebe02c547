//! The slice of subnets on a real kube-apiserver, as its users meet it. Each test takes a fresh namespace and an operator
//! of its own, and checks the invariants over its whole watch history before it ends. `acceptance_bare` runs the same cases
//! without kube-controller-manager.
//!
//! [`claims`]: claims get their ranges, wait, and are served in order (A1, A3, A6). [`pools`]: status, growth, exclusion,
//! deletion, Subnets made by hand (A2, A7, A8, A9, A11, A21). [`bad_input`]: section 8. [`reading`]: what kubectl shows.
//! [`process`]: writes per claim (I11), rights, scope, stopping (I12).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
pub(crate) mod support;

mod bad_input;
mod bad_status;
mod children;
mod claims;
mod legacy;
mod pools;
mod process;
mod promises;
mod reading;
mod recalculation;
mod scale;
