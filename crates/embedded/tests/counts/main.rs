//! The counts of the spec's section 13 through the API: what a start, a write, an event and an apply cost, in numbers
//! that no busy machine changes. Those of memory are in `counts_memory`, the times in `benches/`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod asks;
mod events;
mod pods;
mod writes;

#[cfg(target_os = "linux")]
mod start;
