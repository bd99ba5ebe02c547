//! The cluster on a socket: TLS, tokens, folders, kubeconfigs, and how it stops. kubectl must be on PATH.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod kubectl;
mod raw;
mod start;

use std::path::Path;

use usher_embedded::store::Durability;
use usher_embedded::{Cluster, Controller, Controllers, ListenOptions, Listening, Options, Storage};

/// A cluster in memory that listens on any port.
pub async fn in_memory() -> (Cluster, Listening) {
    // What nobody here asked for would be seen by watches.
    let controllers = Controllers::all().without(Controller::RootCertificates);
    listening(Options {
        controllers,
        ..Options::default()
    })
    .await
}

pub async fn listening(options: Options) -> (Cluster, Listening) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cluster = Cluster::start(options).unwrap();
    let listening = cluster.listen(ListenOptions::default()).await.unwrap();
    (cluster, listening)
}

pub fn in_folder(path: &Path) -> Options {
    Options {
        storage: Storage::Folder {
            path: path.to_owned(),
            durability: Durability::Fsync,
        },
        ..Options::default()
    }
}
