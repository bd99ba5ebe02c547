//! The servers scenarios are played against, as a user knows them: by a kubeconfig.

use std::path::PathBuf;

use usher_embedded::{Cluster, Controller, Controllers, ListenOptions, Options};

#[derive(Debug, Clone)]
pub struct Server {
    pub kubeconfig: PathBuf,
    /// Garbage collector and namespaces work there; on the other nobody writes but the scenario.
    pub controllers: bool,
    /// Shared with others: a scenario leaves no trace there.
    pub shared: bool,
    /// Lives as long as this.
    _cluster: Option<Cluster>,
}

pub async fn embedded() -> Vec<Server> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut servers = Vec::new();
    for controllers in [false, true] {
        let mut options = Options::default();
        if !controllers {
            // The reference's API server cleans up after definitions by itself.
            options.controllers = Controllers::none().with(Controller::Definitions);
        }
        let cluster = Cluster::start(options).unwrap();
        let listening = cluster.listen(ListenOptions::default()).await.unwrap();
        servers.push(Server {
            kubeconfig: listening.kubeconfig_file().to_owned(),
            controllers,
            shared: false,
            _cluster: Some(cluster),
        });
    }
    servers
}

/// Those that the environment names.
pub fn real() -> Vec<Server> {
    let named = [("USHER_TEST_BARE_KUBECONFIG", false), ("USHER_TEST_KUBECONFIG", true)];
    let servers = named.into_iter().filter_map(|(variable, controllers)| {
        Some(Server {
            kubeconfig: std::env::var_os(variable)?.into(),
            controllers,
            shared: true,
            _cluster: None,
        })
    });
    servers.collect()
}
