//! kube-rs as operators use it, against the embedded server (F6): a controller, reflectors, leader election, events.
//! Every story is told twice, in process and over HTTPS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod controller;
mod events;
mod leases;
mod line;
mod reflectors;

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use usher_embedded::{Cluster, ListenOptions, Options};

/// What takes longer does not come. Generous: two cores may be shared with a compiler.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster, and one way to speak to it.
struct World {
    cluster: Cluster,
    client: kube::Client,
}

impl World {
    fn in_process() -> Self {
        let cluster = Cluster::start(Options::default()).unwrap();
        let client = cluster.client();
        Self { cluster, client }
    }

    async fn over_https() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cluster = Cluster::start(Options::default()).unwrap();
        let listening = cluster.listen(ListenOptions::default()).await.unwrap();
        let kubeconfig = Kubeconfig::read_from(listening.kubeconfig_file()).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .unwrap();
        let client = kube::Client::try_from(config).unwrap();
        Self { cluster, client }
    }
}

/// Waits for what must come.
async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, coming)
        .await
        .unwrap_or_else(|_| panic!("it never came: {what}"))
}

/// The same story twice.
macro_rules! stories {
    ($($story:ident: $teller:path;)*) => {
        $(mod $story {
            #[tokio::test(flavor = "multi_thread")]
            async fn in_process() {
                let world = super::World::in_process();
                $teller(&world).await;
                world.cluster.stop().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn over_https() {
                let world = super::World::over_https().await;
                $teller(&world).await;
                world.cluster.stop().await;
            }
        })*
    };
}

stories! {
    f6_a_controller_keeps_its_children_and_cleans_up: super::controller::keeps_its_children_and_cleans_up;
    f6_reflectors_stay_equal_to_the_server: super::reflectors::stay_equal_to_the_server;
    f6_one_contender_leads_and_another_takes_over: super::leases::one_leads_and_another_takes_over;
    f6_recorded_events_are_seen_through_both_groups: super::events::are_seen_through_both_groups;
}
