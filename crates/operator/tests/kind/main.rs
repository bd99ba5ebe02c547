//! A second kind runs through the `Kind` trait, which shows that the runtime knows nothing of subnets.
//!
//! `greeting` is the kind; the rest are its tests, and tests of the pass pipeline that need some kind, against a real API
//! server (`USHER_TEST_KUBECONFIG`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod greeting;
#[path = "../support/mod.rs"]
mod support;

mod applied;
mod documented;
mod life;
mod pipeline;
mod told;
mod turns;
