//! What a later start finds, and keeps, although it was started with other flags.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::{Value, json};
use usher_embedded::{IsolationChoice, NodeEntry};

use crate::exec::Shell;
use crate::world::{World, is_ready, sh, until};

fn container(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n2_a_pod_keeps_the_isolation_that_it_began_with() {
    for (before, after) in [
        (IsolationChoice::Auto, IsolationChoice::Paths),
        (IsolationChoice::Paths, IsolationChoice::Auto),
    ] {
        let isolate = |options: &mut usher_embedded::Options, choice| {
            options.process.as_mut().unwrap().isolation = choice;
        };
        let world = World::with(|options| isolate(options, before));
        // Where nothing is mounted, words that begin with the mount's path are rewritten; elsewhere they are not.
        let script = "[ -e $0 ] && echo found; touch $0; exec sleep 1000";
        let spec = json!({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{
            "name": "c", "image": "busybox:1", "command": ["sh", "-c", script, "/v/mark"],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "readinessProbe": {"exec": {"command": ["test", "-e", "/v/mark"]}, "periodSeconds": 1},
        }]});
        world.run("p", spec).await;
        let first = world.running("p").await;
        let world = world.restart_with(|options| isolate(options, after)).await;
        let same = world.running("p").await;
        assert_eq!(
            container(&first)["containerID"],
            container(&same)["containerID"],
            "{before:?}"
        );
        let shell = Shell::of(&world).await;
        let mark = "ls /v";
        shell.says(mark, "mark\n").await;
        // Its next attempt is made as the first was, and finds what that left.
        let node = world.cluster.node("node-1").unwrap();
        node.signal("default", "p", "c", 9).await.unwrap();
        world
            .pod_that("p", "it runs again, and its probe finds the file", |pod| {
                is_ready(pod) && container(pod)["restartCount"] == 1
            })
            .await;
        until("it found what was there", || async {
            match world.log("p").await {
                log if log == "found\n" => Ok(()),
                log => Err(log),
            }
        })
        .await;
        shell.says(mark, "mark\n").await;
    }
}

async fn nodes_are(world: &World, wanted: &[&str]) {
    let nodes: Api<Node> = Api::all(world.cluster.client());
    until("the nodes are these", || async {
        let all = nodes.list(&Default::default()).await.map_err(|why| why.to_string())?;
        let names: Vec<String> = all.items.into_iter().filter_map(|node| node.metadata.name).collect();
        if names == wanted {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_a_start_has_no_more_go_with_their_processes_and_the_others_stay() {
    let world = World::new();
    let spec = || json!({"containers": [sh("c", "exec sleep 1000")]});
    world.run("p", spec()).await;
    world.run("q", spec()).await;
    world.run_on("node-2", "r", spec()).await;
    let (p, q, r) = (
        world.running("p").await,
        world.running("q").await,
        world.running("r").await,
    );
    nodes_are(&world, &["node-1", "node-2"]).await;
    let world = world
        .restart_with(|options| options.nodes = NodeEntry::processes(1))
        .await;
    nodes_are(&world, &["node-1"]).await;
    world.no_processes(&uid(&r)).await;
    for (name, before) in [("p", &p), ("q", &q)] {
        let after = world.running(name).await;
        assert_eq!(
            container(before)["containerID"],
            container(&after)["containerID"],
            "{name}"
        );
        assert!(!world.processes(&uid(before)).is_empty(), "{name}");
    }
    // No node at all: nobody looks after pods, and none is left.
    let world = world
        .restart_with(|options| {
            options.nodes = Vec::new();
            options.process = None;
        })
        .await;
    nodes_are(&world, &[]).await;
    for pod in [&p, &q] {
        world.no_processes(&uid(pod)).await;
    }
    until("no folder of a pod is left", || async {
        let left = std::fs::read_dir(world.data().join("pods")).unwrap().count();
        if left == 0 { Ok(()) } else { Err(format!("{left} are")) }
    })
    .await;
}
