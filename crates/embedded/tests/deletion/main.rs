//! Deletion: what goes with what, in which order, and what stays (C1, O12 to O15, D6).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod definitions;
mod events;
mod garbage;
mod namespaces;
mod property;
mod recorded;
mod work;
mod world;
