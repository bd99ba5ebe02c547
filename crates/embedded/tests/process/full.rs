//! Volumes that are full: who is told, who has to go, and that nobody else notices.

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use crate::world::{World, is_ready, sh, until};

fn restarts(pod: &Value) -> i64 {
    let statuses = pod["status"]["containerStatuses"].as_array().unwrap();
    statuses
        .iter()
        .map(|status| status["restartCount"].as_i64().unwrap())
        .sum()
}

/// What this machine has mounted of the cluster's: never anything.
fn mounts(world: &World) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let data = world.data().to_str().unwrap().to_owned();
    table
        .lines()
        .filter(|line| line.contains(&data))
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_volume_in_memory_is_the_matter_of_its_writer_alone() {
    let world = World::new();
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not root: nothing is mounted here, and volumes in memory were not checked");
        return;
    }
    let mounting = |name: &str, script: &str| {
        let mut container = sh(name, script);
        container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        container
    };
    let writer = "head -c 3000000 /dev/zero > /v/x || echo full: $?; exec sleep 1000";
    let reader = "while ! test -e /v/x; do sleep 0.1; done; df /v | tail -1; exec sleep 1000";
    let spec = json!({
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
        "containers": [mounting("w", writer), mounting("r", reader)]});
    world
        .run("beside", json!({"containers": [sh("c", "exec sleep 1000")]}))
        .await;
    world.run("p", spec).await;
    let pod = world.running("p").await;
    let log = |container: &'static str, wanted: &'static str| {
        let world = &world;
        async move {
            until("the log has it", || async {
                let log = world.log_of("p", container).await;
                if log.contains(wanted) { Ok(()) } else { Err(log) }
            })
            .await;
        }
    };
    log("w", "No space left on device").await;
    log("w", "full: 1").await;
    // Its neighbour sees the same files: a file system of 1 MiB.
    log("r", "tmpfs").await;
    log("r", " 1024 ").await;
    assert_eq!(
        mounts(&world),
        Vec::<String>::new(),
        "nothing is mounted on the machine"
    );
    for name in ["p", "beside"] {
        let pod = world.pod_that(name, "it is ready", is_ready).await;
        assert_eq!(restarts(&pod), 0, "{name}");
    }
    // Whatever dies: what was mounted goes with it, and the next supervisor has a volume of its own.
    let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
    kill(crate::faults::supervisor(world.data(), &uid), Signal::SIGKILL).unwrap();
    world
        .pod_that("p", "its containers begin anew", |pod| {
            is_ready(pod) && restarts(pod) >= 2
        })
        .await;
    log("w", "full: 1").await;
    world.delete("p").await;
    world.gone("p").await;
    world.no_processes(&uid).await;
    assert_eq!(restarts(&world.running("beside").await), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_pod_gives_its_room_back_and_is_found_so_after_a_restart() {
    let world = World::new();
    let mut container = sh(
        "c",
        "trap 'exit 3' TERM; head -c 3000000 /dev/zero > /v/x; while true; do sleep 0.1; done",
    );
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let spec = json!({"terminationGracePeriodSeconds": 1000, "containers": [container],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]});
    world
        .run("beside", json!({"containers": [sh("c", "exec sleep 1000")]}))
        .await;
    world.run("p", spec).await;
    let pod = world.phase("p", "Failed").await;
    assert_eq!(pod["status"]["reason"], "Evicted");
    let file = world
        .data()
        .join("pods")
        .join(pod["metadata"]["uid"].as_str().unwrap())
        .join("own.d/volumes/v/x");
    until("its files are gone", || async {
        if file.exists() {
            Err(file.display().to_string())
        } else {
            Ok(())
        }
    })
    .await;
    let log = world.log("p").await;
    assert_eq!(log, "", "its log can be asked for");
    let world = world.restart().await;
    world.running("beside").await;
    let again = world.phase("p", "Failed").await;
    assert_eq!(again["status"], pod["status"], "nothing of it runs again");
    world.delete("p").await;
    world.gone("p").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nothing_can_be_mounted_a_volume_in_memory_is_a_folder_with_the_same_limit() {
    let world = World::with(|options| {
        if let Some(process) = &mut options.process {
            process.isolation = usher_embedded::IsolationChoice::Paths;
        }
    });
    let script = "trap 'exit 3' TERM; head -c 3000000 /dev/zero > $USHER_MOUNT_V/x; while true; do sleep 0.1; done";
    let mut container = sh("c", script);
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let spec = json!({"containers": [container],
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]});
    world.run("p", spec).await;
    let pod = world.phase("p", "Failed").await;
    let message = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";
    assert_eq!(
        (&pod["status"]["reason"], &pod["status"]["message"]),
        (&json!("Evicted"), &json!(message))
    );
    assert_eq!(
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"],
        3
    );
    world.told("p", &format!("Evicted: {message}")).await;
}
