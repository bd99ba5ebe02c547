//! The manual cluster: nothing happens by itself, everything is reproducible, and time is told by the test (E1, E2, E3).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

// Used by the tests of deletion, too: neither needs all of it.
#[path = "../deletion/world.rs"]
#[allow(dead_code)]
mod world;

mod first_poll;
mod script;
mod started;
mod time;
