//! The slice of subnets on a real kube-apiserver, as its users meet it. Each test takes a fresh namespace and an operator
//! of its own, and checks the invariants over its whole watch history before it ends. `acceptance_bare` runs the same cases
//! without kube-controller-manager.
//!
//! [`claims`]: claims get their ranges, wait, and are served in order (A1, A3, A6). [`scale`]: many at once, and who waits
//! longest (A4, A5, A18, A19). [`pools`]: status, growth, exclusion, deletion (A2, A7, A8, A9, A21, A22, A25). [`by_hand`]:
//! Subnets that people make (A11). [`promises`]: sharing, import, restoring (A9, A10, A27). [`children`]: pool claims (A12, A13);
//! [`labels`]: child pools by label (A14). [`legacy`]: what upstream left behind (A23). [`recalculation`]: A20. [`bad_input`]
//! and [`bad_status`]: section 8. [`reading`]: what kubectl shows. [`process`]: writes per claim (I11), rights, scope, stopping (I12).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
pub(crate) mod support;

mod bad_input;
mod bad_status;
mod by_hand;
mod children;
mod claims;
mod labels;
mod legacy;
mod pools;
mod process;
mod promises;
mod reading;
mod recalculation;
mod scale;
