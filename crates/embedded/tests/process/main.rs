//! Process nodes with real processes: a pod's life as the API shows it, and as the machine has it.
//!
//! Every test has a cluster of its own in a folder of its own. Programs are the machine's: the image table of [`world`]
//! says that `busybox` is what is in /bin.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod exec;
mod faults;
mod full;
mod kept;
mod lives;
mod nodes;
mod surroundings;
mod trap;
mod world;
