//! The operator behind a proxy that misbehaves in every way a real API server and the network before it do.
//!
//! After each fault: it recovers without a restart, nothing was done twice, and somebody was told. The test kind serves,
//! a real API server answers (`USHER_TEST_KUBECONFIG`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[allow(dead_code, reason = "the tests of the kind itself use the rest")]
#[path = "../kind/greeting.rs"]
mod greeting;
#[path = "../support/mod.rs"]
mod support;

mod passes;
mod watches;
mod writes;
