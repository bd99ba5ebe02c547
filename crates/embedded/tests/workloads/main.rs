//! Workloads (C3, C4, C5) on a manual cluster: the test plays the kubelet, and tells what happened as a story.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

// Used by the tests of deletion, too: neither needs all of it.
#[path = "../deletion/world.rs"]
#[allow(dead_code)]
mod world;

mod adoption;
mod chronicle;
mod claims;
mod counts;
mod killed;
mod nodes;
mod ordered;
mod properties;
mod rollouts;
mod stage;
