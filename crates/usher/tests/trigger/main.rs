//! The external trigger (spec, section 7) on a real kube-apiserver: real tokens of real ServiceAccounts, the real binary,
//! and a client that trusts what the operator publishes and nothing else.
//!
//! [`answers`]: every answer, on a replica that does not lead; the test itself answers for the leader. [`hostile`]: clients
//! that mean no good. [`rights`]: what the operator itself may lack. [`example`]: the CronJob of the examples.
//! `cluster_embedded` runs the same on our own cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod client;
mod example;
mod hostile;
mod rights;
