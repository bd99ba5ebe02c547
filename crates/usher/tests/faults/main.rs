//! Faults, long loads and large beginnings on a real control plane: A15 ([`kill`], [`writes`]), A16 ([`two`]; with a lease:
//! [`leader`]), A17 ([`proxy`]), A24 ([`scripts`]), A29 ([`restart`]), and an API server that dies, hangs or forgets
//! ([`server`]). One program, so that some work while others wait. `faults_embedded` runs the same on the embedded cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

mod kill;
mod leader;
mod proxy;
mod restart;
mod scripts;
mod server;
mod two;
mod writes;
