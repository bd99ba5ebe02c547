//! `kubectl logs`, and the parameters it does not have.

use std::io::{BufRead as _, BufReader};

use serde_json::json;

use super::World;

fn talkative(world: &World) {
    for (second, text) in ["one", "two", "three"].iter().enumerate() {
        world.node.say(&format!("2025-11-16T10:00:0{second}.5Z"), text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_logs_shows_all_the_last_or_the_latest_lines() {
    let world = World::new().await;
    talkative(&world);
    assert_eq!(world.says(&["logs", "p"]).await, "one\ntwo\nthree\n");
    assert_eq!(world.says(&["logs", "p", "-c", "c", "--tail=1"]).await, "three\n");
    let since = world
        .says(&["logs", "p", "--since-time=2025-11-16T10:00:01Z", "--timestamps"])
        .await;
    assert_eq!(
        since,
        "2025-11-16T10:00:01.500000000Z two\n2025-11-16T10:00:02.500000000Z three\n"
    );
    assert_eq!(world.says(&["logs", "p", "--limit-bytes=6"]).await, "one\ntw");
    let now = jiff::Timestamp::now().to_string();
    world.node.say(&now, "now");
    assert_eq!(world.says(&["logs", "p", "--since=1h"]).await, "now\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_logs_that_follows_sees_what_comes_and_ends_with_the_container() {
    let world = World::new().await;
    talkative(&world);
    let mut child = world.command(&["logs", "-f", "p", "--tail=1"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for text in ["three", "four", "five"] {
        let read = tokio::task::spawn_blocking(move || (lines.next().unwrap().unwrap(), lines));
        let (line, rest) = read.await.unwrap();
        assert_eq!(line, text);
        lines = rest;
        match text {
            "three" => world.node.say("2025-11-16T10:00:03Z", "four"),
            "four" => world.node.say("2025-11-16T10:00:04Z", "five"),
            _ => drop(world.node.running.send_replace(false)),
        }
    }
    let ended = tokio::task::spawn_blocking(move || (lines.count(), child.wait().unwrap()));
    let (more, status) = ended.await.unwrap();
    assert_eq!((more, status.code()), (0, Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_log_ends_when_the_cluster_stops() {
    let world = World::new().await;
    talkative(&world);
    let mut child = world.command(&["logs", "-f", "p"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = tokio::task::spawn_blocking(move || (lines.next().unwrap().unwrap(), lines));
    let (line, lines) = first.await.unwrap();
    assert_eq!(line, "one");
    world.cluster.stop().await;
    let ended = tokio::task::spawn_blocking(move || (lines.count(), child.wait().unwrap()));
    assert_eq!(ended.await.unwrap().0, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_a_log_is_told_about_in_the_kubelets_words() {
    let world = World::new().await;
    world
        .pod("young", json!({"waiting": {"reason": "ContainerCreating"}}))
        .await;
    assert_eq!(
        world.complains(&["logs", "young"]).await,
        "Error from server (BadRequest): container \"c\" in pod \"young\" is waiting to start: ContainerCreating\n"
    );
    assert_eq!(
        world.complains(&["logs", "-p", "p"]).await,
        "Error from server (BadRequest): previous terminated container \"c\" in pod \"p\" not found\n"
    );
    assert_eq!(
        world.complains(&["logs", "none"]).await,
        "error: error from server (NotFound): pods \"none\" not found in namespace \"default\"\n"
    );
}

#[tokio::test]
async fn parameters_of_a_log_are_checked() {
    let world = World::new().await;
    talkative(&world);
    let log = "/api/v1/namespaces/default/pods/p/log";
    for (query, code, told) in [
        (
            "sinceSeconds=0",
            422,
            "sinceSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "limitBytes=0",
            422,
            "limitBytes: Invalid value: 0: must be greater than 0",
        ),
        (
            "sinceSeconds=1&sinceTime=2025-11-16T10:00:00Z",
            422,
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        ("sinceTime=yesterday", 400, "no time"),
        ("stream=stdout", 422, "Unsupported value"),
        ("stream=Stdout&tailLines=1", 422, "mutually exclusive"),
        ("container=x", 400, "container x is not valid for pod p"),
    ] {
        let (status, body) = world.get(&format!("{log}?{query}")).await;
        assert_eq!(status, code, "{query}: {body}");
        assert!(body.contains(told), "{query}: {body}");
    }
    let (status, body) = world
        .get(&format!("{log}?stream=Stderr&insecureSkipTLSVerifyBackend=true"))
        .await;
    assert_eq!((status, body.as_str()), (200, ""));
    let (status, body) = world.get(&format!("{log}?stream=Stdout")).await;
    assert_eq!((status, body.as_str()), (200, "one\ntwo\nthree\n"));
}

#[tokio::test]
async fn a_node_whose_doors_are_closed_has_no_logs_and_runs_nothing() {
    let world = World::new().await;
    world.cluster.close_doors("n1");
    let told = "pod p is on node n1, which this cluster does not run";
    for path in ["log", "exec?command=ls&stdout=true"] {
        let (status, body) = world.get(&format!("/api/v1/namespaces/default/pods/p/{path}")).await;
        assert_eq!(status, 500);
        assert!(body.contains(told), "{body}");
    }
}
