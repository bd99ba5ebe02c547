//! The scheduler (K1, K2) and hollow nodes (11.1) in a manual cluster, through the API alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod gangs;
mod hollow;
mod placing;
mod same;
mod volumes;
mod waiting;
mod world;
