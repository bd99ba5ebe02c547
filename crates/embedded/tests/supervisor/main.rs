//! The pod supervisor with real processes, at every isolation level that this machine has (spec 11.2, 11.4, 11.6).
//!
//! Each test goes through the same client as the node's agent, with `usher-pod` for the program. As root every level is
//! tried as root and as `nobody`; as an ordinary user, as that user.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod endings;
mod execs;
mod files;
mod full_disk;
mod life;
mod world;
