//! kubectl and kube-rs against the listener, as users have them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{PostParams, WatchEvent, WatchParams};
use serde_json::json;

use super::in_memory;

fn kubectl(kubeconfig: &Path) -> Command {
    let mut command = Command::new("kubectl");
    command
        .env("KUBECONFIG", kubeconfig)
        .env("HOME", kubeconfig.parent().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Off the runtime's threads, which serve what kubectl asks.
async fn run(kubeconfig: &Path, arguments: &'static [&'static str], input: Option<&'static str>) -> Output {
    let mut command = kubectl(kubeconfig);
    command.args(arguments);
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let running = move || {
        let mut child = command.spawn().unwrap();
        if let Some(input) = input {
            child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        }
        child.wait_with_output().unwrap()
    };
    tokio::task::spawn_blocking(running).await.unwrap()
}

fn text(output: Output) -> String {
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: greeting}\ndata: {word: hello}\n";

#[tokio::test(flavor = "multi_thread")]
async fn a1_kubectl_gets_applies_and_deletes_over_https() {
    let (cluster, listening) = in_memory().await;
    let kubeconfig = listening.kubeconfig_file();
    let names = text(run(kubeconfig, &["get", "namespaces", "-o", "name"], None).await);
    assert!(names.contains("namespace/default\n"), "{names}");
    let applied = text(run(kubeconfig, &["apply", "--server-side", "-f", "-"], Some(MAP)).await);
    assert_eq!(applied, "configmap/greeting serverside-applied\n");
    let word = text(
        run(
            kubeconfig,
            &["get", "cm", "greeting", "-o", "jsonpath={.data.word}"],
            None,
        )
        .await,
    );
    assert_eq!(word, "hello");
    let table = text(run(kubeconfig, &["get", "cm"], None).await);
    assert!(table.starts_with("NAME"), "{table}");
    let deleted = text(run(kubeconfig, &["delete", "cm", "greeting"], None).await);
    assert!(deleted.contains("greeting"), "{deleted}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_kubectl_sees_changes_and_ends_when_the_cluster_stops() {
    let (cluster, listening) = in_memory().await;
    let mut command = kubectl(listening.kubeconfig_file());
    command.args(["get", "configmaps", "--watch", "-o", "name"]);
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let mut lines = lines;
    // The first may be of the list with which kubectl begins; the second proves that it watches.
    for name in ["seen", "seen-too"] {
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
        let read = tokio::task::spawn_blocking(move || (lines.next().unwrap().unwrap(), lines));
        let (line, rest) = read.await.unwrap();
        assert_eq!(line, format!("configmap/{name}"));
        lines = rest;
    }
    cluster.stop().await;
    let ended = tokio::task::spawn_blocking(move || (lines.count(), child.wait().unwrap()));
    let (more, status) = ended.await.unwrap();
    assert_eq!((more, status.code()), (0, Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_rs_reads_the_kubeconfig_and_watches() {
    let (cluster, listening) = in_memory().await;
    let kubeconfig = kube::config::Kubeconfig::read_from(listening.kubeconfig_file()).unwrap();
    assert_eq!(kubeconfig.current_context.as_deref(), Some("usher"));
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let mut events = Box::pin(maps.watch(&WatchParams::default(), "0").await.unwrap());
    let map = serde_json::from_value(json!({"metadata": {"name": "seen"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    match events.try_next().await.unwrap() {
        Some(WatchEvent::Added(map)) => assert_eq!(map.metadata.name.as_deref(), Some("seen")),
        other => panic!("{other:?}"),
    }
    cluster.stop().await;
    assert!(events.try_next().await.unwrap().is_none(), "the stop ends a watch");
}
