//! Admission as clients see it (section 8).
//!
//! - `pods`, `services`, `storage`: the built-in steps.
//! - `hooks`, `mutation`: which webhooks are asked and what comes of it. `transport`: over TLS, to a server of the test's own.
//! - `commands`: evictions and bindings.
//! - `slow`: what happens to a write while a webhook thinks.
//! - `texts`, `reviews`: what clients are told and webhooks are asked, held against what a real server said.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod commands;
mod hooks;
mod mutation;
mod pods;
mod reviews;
mod server;
mod services;
mod slow;
mod storage;
mod texts;
mod transport;
mod world;
