//! Fields: sets, server-side apply, tracking of updates, and patches (rules O16 to O19, S8).
//!
//! - `scripts`: what happens to an object and its owners, step by step, as text.
//! - `recorded`: what kube-apiserver 1.36.3 and its libraries answered, replayed.
//! - `laws`: what must hold for any input.
//! - `patches`: the patches that are not applies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod laws;
mod openapi;
mod patches;
mod recorded;
mod scripts;
