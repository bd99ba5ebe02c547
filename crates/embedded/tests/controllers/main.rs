//! Controllers at work in manual worlds: what they make of each other's objects, step by step (C2, C6 to C9).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod accounts;
mod disruption;
mod endpoints;
mod endpoints_model;
mod killed;
mod nodes;
mod volumes;
mod world;
