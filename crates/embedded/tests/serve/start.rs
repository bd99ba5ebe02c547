//! Starting, stopping and starting again: addresses, folders, certificates.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use usher_embedded::{Cluster, ListenOptions};

use super::raw::token;
use super::{in_folder, in_memory, listening};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

async fn refusal(cluster: &Cluster, address: &str) -> String {
    let options = ListenOptions {
        address: address.parse().unwrap(),
        is_unsafe_allowed: false,
    };
    cluster.listen(options).await.unwrap_err().to_string()
}

#[tokio::test]
async fn an_address_that_cannot_be_had_is_named_with_what_to_do() {
    let (cluster, listening) = in_memory().await;
    let taken = listening.address();
    assert_eq!(
        refusal(&cluster, &taken.to_string()).await,
        format!(
            "{taken} is taken by another program; stop it, or listen elsewhere: --listen 127.0.0.1:0 takes any free port"
        )
    );
    assert_eq!(
        refusal(&cluster, "0.0.0.0:0").await,
        "0.0.0.0:0 can be reached by other machines, and whoever has the token may do everything here; listen on 127.0.0.1, \
         or insist with --listen-unsafe"
    );
    let options = ListenOptions {
        address: SocketAddr::from(([203, 0, 113, 1], 0)),
        is_unsafe_allowed: true,
    };
    let refused = cluster.listen(options).await.unwrap_err().to_string();
    assert_eq!(
        refused,
        "203.0.113.1:0 is no address of this machine; listen on 127.0.0.1"
    );
    let options = ListenOptions {
        address: SocketAddr::from(([0, 0, 0, 0], 0)),
        is_unsafe_allowed: true,
    };
    let open = cluster.listen(options).await.unwrap();
    assert!(open.url().starts_with("https://127.0.0.1:"), "{}", open.url());
    cluster.stop().await;
    let stopped = cluster.listen(ListenOptions::default()).await.unwrap_err().to_string();
    assert_eq!(stopped, "the cluster has been stopped");
}

#[tokio::test]
async fn x1_a_folder_survives_a_restart_and_is_closed_to_others() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("a/b");
    let (cluster, first) = listening(in_folder(&folder)).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let map = serde_json::from_value(json!({"metadata": {"name": "kept"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    assert_eq!(mode(&folder), 0o700);
    for file in ["token", "signing.key", "server.key", "kubeconfig", "ca.crt"] {
        assert_eq!(mode(&folder.join(file)), 0o600, "{file}");
    }
    let keep = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let before = ["token", "signing.key", "ca.crt", "server.crt", "server.key"].map(keep);
    let second = Cluster::start(in_folder(&folder)).unwrap_err().to_string();
    assert!(second.contains("store.redb is in use by process "), "{second}");
    assert!(second.contains(&std::process::id().to_string()), "{second}");
    cluster.stop().await;

    let (cluster, again) = listening(in_folder(&folder)).await;
    assert_eq!(
        ["token", "signing.key", "ca.crt", "server.crt", "server.key"].map(keep),
        before
    );
    assert_eq!(token(&first), token(&again));
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    maps.get("kept").await.unwrap();
    cluster.stop().await;
}

#[tokio::test]
async fn a_cluster_in_memory_tells_where_it_is_and_leaves_nothing() {
    let (cluster, listening) = in_memory().await;
    let file = listening.kubeconfig_file().to_owned();
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    cluster.stop().await;
    drop(cluster);
    assert!(!file.parent().unwrap().exists());
}
