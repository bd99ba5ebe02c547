//! What Usher shows to those who watch it (spec, section 9; A26): the metrics of a running operator on a real
//! kube-apiserver, and the alert rules and the board that read them. `cluster_embedded` runs what asks an API server on our own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

mod events;
mod exposition;
mod promql;
mod rules;
mod scrape;
