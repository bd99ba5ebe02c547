//! Starting, stopping and starting again: addresses, folders, certificates.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use usher_embedded::{Cluster, ListenOptions, Options};

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
    // Somebody made it beforehand, open to all.
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (cluster, first) = listening(in_folder(&folder)).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let map = serde_json::from_value(json!({"metadata": {"name": "kept"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    assert_eq!(mode(&folder), 0o700);
    for file in [
        "token",
        "signing.key",
        "server.key",
        "kubeconfig",
        "ca.crt",
        "store.redb",
    ] {
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

fn complaint(folder: &Path) -> String {
    let said = Cluster::start(in_folder(folder)).unwrap_err().to_string();
    said.replace(&std::fs::canonicalize(folder).unwrap().display().to_string(), "FOLDER")
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::write(path.join("file"), "").unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(
        complaint(path),
        "FOLDER holds files that are not Usher's, and its mode would have to be changed to 0700; name an empty folder, or one \
         that does not exist yet"
    );
    assert_eq!(mode(path), 0o755, "it is left as it was");
    assert_eq!(
        complaint(&path.join("file")),
        "FOLDER is a file; a data folder is needed"
    );
}

#[tokio::test]
async fn broken_secrets_are_named_and_never_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    Cluster::start(in_folder(path)).unwrap().stop().await;
    let token = std::fs::read_to_string(path.join("token")).unwrap();
    for wrong in [
        "",
        "short-s3cr3t",
        "with a space 0123456789012345678901234567890123456789",
    ] {
        std::fs::write(path.join("token"), wrong).unwrap();
        assert_eq!(
            complaint(path),
            "FOLDER/token is broken: a token is one line of at least 43 letters, digits, - and _; delete it, and a new one is \
             made at the next start"
        );
    }
    std::fs::write(path.join("token"), token).unwrap();
    std::fs::write(path.join("signing.key"), "c2hvcnQ").unwrap();
    let said = complaint(path);
    assert!(
        said.starts_with("FOLDER/signing.key is broken: it must hold 32 bytes"),
        "{said}"
    );
}

#[tokio::test]
async fn s7_a_newer_file_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    Cluster::start(in_folder(path)).unwrap().stop().await;
    let file = redb::Database::open(path.join("store.redb")).unwrap();
    let writing = file.begin_write().unwrap();
    let meta: redb::TableDefinition<&str, u64> = redb::TableDefinition::new("meta");
    writing.open_table(meta).unwrap().insert("format", 3).unwrap();
    writing.commit().unwrap();
    drop(file);
    assert_eq!(
        complaint(path),
        "FOLDER/store.redb has format 3, and this version of usher knows only 2; use the version that wrote it"
    );
}

#[tokio::test]
async fn x5_the_audit_log_has_every_write_and_no_token_and_no_body() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = in_folder(folder.path());
    options.audit = Some(usher_embedded::AuditOptions::default());
    let (cluster, listening) = listening(options).await;
    let kubeconfig = kube::config::Kubeconfig::read_from(listening.kubeconfig_file()).unwrap();
    let choice = kube::config::KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &choice).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(kube::Client::try_from(config.clone()).unwrap());
    let map = json!({"metadata": {"generateName": "made-"}, "data": {"password": "s3cr3t"}});
    let map: ConfigMap = serde_json::from_value(map).unwrap();
    let name = maps
        .create(&PostParams::default(), &map)
        .await
        .unwrap()
        .metadata
        .name
        .unwrap();
    maps.get(&name).await.unwrap();
    config.auth_info.impersonate = Some("jane".to_owned());
    let as_jane: Api<ConfigMap> = Api::default_namespaced(kube::Client::try_from(config).unwrap());
    as_jane
        .delete(&name, &kube::api::DeleteParams::default())
        .await
        .unwrap();
    as_jane
        .delete("nothing", &kube::api::DeleteParams::default())
        .await
        .unwrap_err();
    // The line is there before the answer.
    let log = std::fs::read_to_string(folder.path().join("audit.log")).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            let text = |pointer: &str| {
                line.pointer(pointer)
                    .and_then(|value| value.as_str())
                    .unwrap_or("-")
                    .to_owned()
            };
            let code = line["responseStatus"]["code"].as_u64().unwrap();
            (
                text("/verb"),
                text("/objectRef/name"),
                text("/impersonatedUser/username"),
                code,
            )
        })
        .collect();
    let row = |verb: &str, name: &str, other: &str, code| (verb.to_owned(), name.to_owned(), other.to_owned(), code);
    assert_eq!(
        seen,
        [
            row("create", &name, "-", 201),
            row("delete", &name, "jane", 200),
            row("delete", "nothing", "jane", 404),
        ]
    );
    assert!(
        lines.iter().all(|line| line["user"]["username"] == "usher-admin"),
        "{log}"
    );
    assert!(!log.contains("s3cr3t") && !log.contains(&token(&listening)), "{log}");
    cluster.stop().await;
}

#[tokio::test]
async fn who_asks_before_anybody_listens_is_told_the_address_once_somebody_does() {
    let cluster = Cluster::start(usher_embedded::Options::default()).unwrap();
    let address = async || {
        let request = http::Request::get("/api").body(Vec::new()).unwrap();
        let answer: serde_json::Value = cluster.client().request(request).await.unwrap();
        answer["serverAddressByClientCIDRs"][0]["serverAddress"].clone()
    };
    let before = address().await;
    let listening = cluster.listen(ListenOptions::default()).await.unwrap();
    assert_ne!(before, json!(listening.address().to_string()));
    assert_eq!(address().await, json!(listening.address().to_string()));
    cluster.stop().await;
}

/// What an earlier start has given, a later one never gives again: the garbage collector, and whoever else goes by uid, would
/// take one object for the other.
#[tokio::test]
async fn e1_no_two_starts_give_the_same_uid_or_the_same_generated_name() {
    for seed in [None, Some(7)] {
        let folder = tempfile::tempdir().unwrap();
        let (mut uids, mut names) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..4 {
            let options = Options {
                seed,
                ..in_folder(folder.path())
            };
            let cluster = Cluster::start(options).unwrap();
            let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
            for _ in 0..10 {
                let map = serde_json::from_value(json!({"metadata": {"generateName": "gen-"}})).unwrap();
                let made = maps.create(&PostParams::default(), &map).await.unwrap().metadata;
                assert!(uids.insert(made.uid.unwrap()), "{seed:?}");
                assert!(names.insert(made.name.unwrap()), "{seed:?}");
            }
            cluster.stop().await;
        }
    }
}

#[tokio::test]
async fn no_two_clusters_are_the_same_unless_they_are_asked_to_be() {
    let identity = async |seed| {
        let options = Options {
            seed,
            ..Options::default()
        };
        let client = Cluster::start(options).unwrap().client();
        let namespaces: Api<Namespace> = Api::all(client);
        namespaces.get("kube-system").await.unwrap().metadata.uid.unwrap()
    };
    assert_ne!(identity(None).await, identity(None).await);
    assert_eq!(identity(Some(1)).await, identity(Some(1)).await);
}
