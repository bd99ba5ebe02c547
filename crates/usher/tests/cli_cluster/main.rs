//! The command line against a real kube-apiserver; `cluster_embedded` runs the same on our own cluster.
//!
//! `USHER_TEST_KUBECONFIG` names the kubeconfig of one that others use, too: tests there keep to namespaces of their own.
//! What concerns a whole cluster (install, uninstall) runs on a control plane of its own, started with `USHER_XTASK`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

mod control_plane;
mod life;
mod plan;
mod rights;
