//! N1, N2, N3, N12: what dies, and what is there again.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::world::{World, is_ready, sh, until};

fn container(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// The supervisor's number, from what it wrote.
pub fn supervisor(data: &Path, uid: &str) -> Pid {
    let file = data.join("pods").join(uid).join("state.json");
    let text = std::fs::read_to_string(file).unwrap();
    let state: Value = serde_json::from_str(text.trim_end_matches(['\0', ' ', '\n'])).unwrap();
    Pid::from_raw(i32::try_from(state["supervisor"]["pid"].as_i64().unwrap()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n2_pods_outlive_the_cluster_and_are_found_again() {
    let world = World::new();
    world
        .run("p", json!({"containers": [sh("c", "exec sleep 1000")]}))
        .await;
    world
        .run(
            "ends",
            json!({"restartPolicy": "Never", "containers": [sh("c", "sleep 0.5; exit 4")]}),
        )
        .await;
    world
        .run("gone", json!({"containers": [sh("c", "exec sleep 1000")]}))
        .await;
    let before = world.running("p").await;
    let gone = uid(&world.running("gone").await);
    world.phase("ends", "Running").await;
    let pids = world.processes(&uid(&before));
    // One of them is deleted while no agent looks.
    world.cluster.node("node-1").unwrap().stop().await;
    let by_force = kube::api::DeleteParams {
        grace_period_seconds: Some(0),
        ..Default::default()
    };
    world.pods().delete("gone", &by_force).await.unwrap();
    let world = world.restart().await;
    world.phase("ends", "Failed").await;
    world.no_processes(&gone).await;
    let after = world.running("p").await;
    assert_eq!(container(&before)["containerID"], container(&after)["containerID"]);
    assert_eq!(container(&after)["restartCount"], 0);
    assert_eq!(before["status"]["podIP"], after["status"]["podIP"]);
    assert_eq!(pids, world.processes(&uid(&after)), "nothing was started");
    world.delete("p").await;
    world.gone("p").await;
    assert!(world.processes(&uid(&after)).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n12_a_killed_supervisor_is_replaced_and_its_containers_begin_anew() {
    let world = World::new();
    world
        .run("p", json!({"containers": [sh("c", "exec sleep 1000")]}))
        .await;
    world
        .run(
            "once",
            json!({"restartPolicy": "Never", "containers": [sh("c", "exec sleep 1000")]}),
        )
        .await;
    let pod = world.running("p").await;
    let once = world.running("once").await;
    let old = world.processes(&uid(&pod));
    let killed = jiff::Timestamp::now();
    for pod in [&pod, &once] {
        kill(supervisor(world.data(), &uid(pod)), Signal::SIGKILL).unwrap();
    }
    let again = world
        .pod_that("p", "it runs again", |pod| {
            is_ready(pod) && container(pod)["restartCount"] == 1
        })
        .await;
    let last = &container(&again)["lastState"]["terminated"];
    assert_eq!(
        (&last["exitCode"], &last["reason"]),
        (&json!(137), &json!("ContainerStatusUnknown"))
    );
    // In whole seconds: within ten, nine is the most that can be seen of it.
    let noticed: jiff::Timestamp = last["finishedAt"].as_str().unwrap().parse().unwrap();
    assert!(
        noticed.duration_since(killed).as_secs() < 10,
        "{noticed} after {killed}"
    );
    let told = world.events("p").await;
    let count = |reason: &str| told.iter().filter(|event| event.starts_with(reason)).count();
    assert_eq!((count("Started"), count("Killing")), (1, 0), "{told:?}");
    let new = world.processes(&uid(&pod));
    assert!(old.iter().all(|pid| !new.contains(pid)), "{old:?} {new:?}");
    world.phase("once", "Failed").await;
    world.no_processes(&uid(&once)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n12_a_stopped_supervisor_is_woken() {
    let world = World::new();
    world
        .run(
            "p",
            json!({"restartPolicy": "Never", "containers": [sh("c", "sleep 2; exit 5")]}),
        )
        .await;
    let pod = world.running("p").await;
    kill(supervisor(world.data(), &uid(&pod)), Signal::SIGSTOP).unwrap();
    let pod = world.phase("p", "Failed").await;
    assert_eq!(container(&pod)["state"]["terminated"]["exitCode"], 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n12_a_state_that_cannot_be_read_kills_nobody_unless_the_pod_is_to_go() {
    let world = World::new();
    for name in ["stays", "goes"] {
        world
            .run(name, json!({"containers": [sh("c", "exec sleep 1000")]}))
            .await;
    }
    let (stays, goes) = (world.running("stays").await, world.running("goes").await);
    world.cluster.node("node-1").unwrap().stop().await;
    let file = |pod: &Value| world.data().join("pods").join(uid(pod)).join("state.json");
    let (first, second) = (file(&stays), file(&goes));
    let good = std::fs::read(&first).unwrap();
    for file in [&first, &second] {
        std::fs::write(file, "{\"uid").unwrap();
    }
    world.delete("goes").await;
    let world = world.restart().await;
    world.told("stays", "FailedSync: error determining status: ").await;
    assert!(!world.processes(&uid(&stays)).is_empty(), "nobody is killed");
    world.gone("goes").await;
    world.no_processes(&uid(&goes)).await;
    std::fs::write(&first, good).unwrap();
    world.delete("stays").await;
    world.gone("stays").await;
    world.no_processes(&uid(&stays)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n12_a_stopped_container_can_be_deleted() {
    let world = World::new();
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [sh("c", "exec sleep 1000")]});
    world.run("p", spec).await;
    let pod = world.running("p").await;
    let node = world.cluster.node("node-1").unwrap();
    node.signal("default", "p", "c", 19).await.unwrap();
    world.delete("p").await;
    world.gone("p").await;
    assert!(world.processes(&uid(&pod)).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_stopped_killed_cut_off_and_started() {
    let world = World::new();
    world
        .run("p", json!({"containers": [sh("c", "exec sleep 1000")]}))
        .await;
    world
        .run_on("node-2", "q", json!({"containers": [sh("c", "exec sleep 1000")]}))
        .await;
    let p = world.running("p").await;
    let q = world.running("q").await;
    let (one, two) = (
        world.cluster.node("node-1").unwrap(),
        world.cluster.node("node-2").unwrap(),
    );
    // Stopped: the processes run on, and logs have nobody to ask.
    one.stop().await;
    assert!(!world.processes(&uid(&p)).is_empty());
    let told = async |name: &str| {
        let refused = world.pods().logs(name, &Default::default()).await;
        refused.unwrap_err().to_string()
    };
    let why = told("p").await;
    let back = "it has no logs of it; `usher node node-1 start` brings it back";
    assert!(
        why.contains(&format!("pod p is on node node-1, which is stopped: {back}")),
        "{why}"
    );
    // Killed: nothing runs, and nobody is told.
    two.kill().await;
    assert!(world.processes(&uid(&q)).is_empty());
    let why = told("q").await;
    assert!(why.contains("pod q is on node node-2, which was killed: "), "{why}");
    assert!(is_ready(
        &serde_json::to_value(world.pods().get("q").await.unwrap()).unwrap()
    ));
    one.start().await;
    two.start().await;
    let again = world
        .pod_that("q", "it runs again", |pod| {
            is_ready(pod) && container(pod)["restartCount"] == 1
        })
        .await;
    assert_ne!(container(&q)["containerID"], container(&again)["containerID"]);
    let same = world.running("p").await;
    assert_eq!(container(&p)["containerID"], container(&same)["containerID"]);
    // Cut off: a deletion is not heard until the node is back.
    one.cut().await.unwrap();
    let why = told("p").await;
    assert!(
        why.contains(&format!(
            "pod p is on node node-1, which is cut off from the API: {back}"
        )),
        "{why}"
    );
    world.delete("p").await;
    world
        .run("r", json!({"containers": [sh("c", "exec sleep 1000")]}))
        .await;
    until("the other node still works", || async {
        let pid = world.processes(&uid(&again));
        if pid.is_empty() {
            Err("not yet".to_owned())
        } else {
            Ok(())
        }
    })
    .await;
    assert!(!world.processes(&uid(&p)).is_empty());
    one.start().await;
    world.gone("p").await;
    world.running("r").await;
    assert!(world.cluster.node("node-3").is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_stopped_with_their_grace_and_run_again_at_the_next_start() {
    let world = World::new();
    let script = "trap 'echo bye; exit 0' TERM; echo here; while true; do sleep 0.05; done";
    world.run("p", json!({"containers": [sh("c", script)]})).await;
    let pod = world.running("p").await;
    let told = std::sync::Mutex::new(Vec::new());
    world
        .cluster
        .stop_pods(|left| told.lock().unwrap().push(left.to_vec()))
        .await;
    assert_eq!(told.lock().unwrap().first().unwrap(), &["default/p"]);
    assert_eq!(told.lock().unwrap().last().unwrap(), &[""; 0]);
    assert!(world.processes(&uid(&pod)).is_empty());
    let world = world.restart().await;
    world.cluster.pods_found().await;
    let found = serde_json::to_value(world.pods().get("p").await.unwrap()).unwrap();
    assert!(
        !is_ready(&found) || container(&found)["restartCount"] == 1,
        "it still says what was true before the stop: {found}"
    );
    world
        .pod_that("p", "it runs again", |pod| {
            is_ready(pod) && container(pod)["restartCount"] == 1
        })
        .await;
    let previous = kube::api::LogParams {
        previous: true,
        ..Default::default()
    };
    assert_eq!(world.pods().logs("p", &previous).await.unwrap(), "here\nbye\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n8_pods_that_are_stopped_with_the_machine_run_their_hooks_within_their_grace() {
    let world = World::new();
    let stopping = |script: &str, hook: &str, grace: u64| {
        let mut container = sh("c", script);
        container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        container["lifecycle"] = json!({"preStop": {"exec": {"command": ["sh", "-c", hook]}}});
        json!({"terminationGracePeriodSeconds": grace, "volumes": [{"name": "v", "emptyDir": {}}], "containers": [container]})
    };
    let script = "trap 'echo signal >> /v/log; exit 0' TERM; cat /v/log; while true; do sleep 0.05; done";
    let hook = "echo hook >> /v/log; sleep 0.3; echo its end >> /v/log";
    world.run("p", stopping(script, hook, 30)).await;
    world.run("late", stopping("exec sleep 1000", "sleep 1000", 1)).await;
    let (pod, late) = (world.running("p").await, world.running("late").await);
    world.cluster.stop_pods(|_| {}).await;
    for pod in [&pod, &late] {
        assert!(world.processes(&uid(pod)).is_empty());
    }
    let world = world.restart().await;
    world
        .pod_that("p", "it runs again", |pod| {
            is_ready(pod) && container(pod)["restartCount"] == 1
        })
        .await;
    until("the log tells in which order it ended", || async {
        match world.log("p").await {
            log if log == "hook\nits end\nsignal\n" => Ok(()),
            log => Err(log),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n10_pods_that_were_stopped_with_the_cluster_do_not_back_off_at_the_next_start() {
    let mut world = World::new();
    let script = "trap 'exit 0' TERM; while true; do sleep 0.05; done";
    world.run("p", json!({"containers": [sh("c", script)]})).await;
    world.running("p").await;
    for restarts in 1..=3 {
        world.cluster.stop_pods(|_| {}).await;
        world = world.restart().await;
        world
            .pod_that("p", "it runs again", |pod| {
                is_ready(pod) && container(pod)["restartCount"] == restarts
            })
            .await;
    }
    let told = world.events("p").await;
    assert!(told.iter().any(|event| event.contains("Started")), "{told:?}");
    assert!(
        !told.iter().any(|event| event.contains("BackOff")),
        "it was no fault of its own: {told:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n7_sidecars_of_pods_that_are_stopped_with_the_machine_stop_last_and_in_reverse() {
    let world = World::new();
    let writer = |name: &str, restart: Option<&str>| {
        // The main one takes its time; whoever does not wait for it is in the file before it.
        let rest = if restart.is_none() { "sleep 0.5; " } else { "" };
        let script = format!(
            "trap '{rest}echo {name} >> /v/log; exit 0' TERM; if [ {name} = main ]; then cat /v/log; fi; while true; do sleep 0.05; done"
        );
        let mut container = sh(name, &script);
        container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        if let Some(restart) = restart {
            container["restartPolicy"] = json!(restart);
        }
        container
    };
    let spec = json!({"terminationGracePeriodSeconds": 30, "volumes": [{"name": "v", "emptyDir": {}}],
        "initContainers": [writer("first", Some("Always")), writer("second", Some("Always"))],
        "containers": [writer("main", None)]});
    world.run("p", spec).await;
    world.running("p").await;
    world.cluster.stop_pods(|_| {}).await;
    let world = world.restart().await;
    let main = kube::api::LogParams {
        container: Some("main".to_owned()),
        ..Default::default()
    };
    until("the log tells in which order they ended", || async {
        let log = world.pods().logs("p", &main).await.map_err(|why| why.to_string())?;
        if log == "main\nsecond\nfirst\n" {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n1_in_memory_pods_end_with_the_cluster() {
    let world = World::with(|options| options.storage = usher_embedded::Storage::Memory);
    world
        .run("p", json!({"containers": [sh("c", "exec sleep 1000")]}))
        .await;
    let uid = uid(&world.running("p").await);
    world.cluster.stop().await;
    let World { cluster, .. } = world;
    drop(cluster);
    let left = || {
        let wanted = format!("USHER_POD_UID={uid}");
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter(|entry| {
                let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
                environment
                    .split(|byte| *byte == 0)
                    .any(|part| part == wanted.as_bytes())
            })
            .count()
    };
    until("its processes are gone", || async {
        match left() {
            0 => Ok(()),
            count => Err(format!("{count} are left")),
        }
    })
    .await;
}

/// A small file system of its own, gone with this value. Only root can make one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = Some("size=32m");
        let made = nix::mount::mount(
            Some("tmpfs"),
            folder.path(),
            Some("tmpfs"),
            nix::mount::MsFlags::empty(),
            options,
        );
        made.ok().map(|()| Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(self.0.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n12_after_a_full_disk_objects_and_processes_agree_again() {
    let Some(disk) = SmallDisk::new() else {
        eprintln!("not root: nobody here can make a small disk, and N12's full one was not checked");
        return;
    };
    let world = World::at(disk.0.path().join("data"));
    world
        .run("p", json!({"containers": [sh("c", "exec sleep 1000")]}))
        .await;
    let pod = world.running("p").await;
    let filler = disk.0.path().join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut file, &[7; 4096]).is_ok() {}
    // The container dies while nothing can be written down. What could be reserved for it beforehand may start it anew.
    let old = world.processes(&uid(&pod));
    for pid in &old {
        let _ = kill(Pid::from_raw(i32::try_from(*pid).unwrap()), Signal::SIGKILL);
    }
    until("it is dead", || async {
        let left = world.processes(&uid(&pod));
        if left.iter().any(|pid| old.contains(pid)) {
            Err(format!("{left:?}"))
        } else {
            Ok(())
        }
    })
    .await;
    drop(file);
    std::fs::remove_file(&filler).unwrap();
    let again = world
        .pod_that("p", "it runs again", |pod| {
            is_ready(pod) && container(pod)["restartCount"].as_i64() >= Some(1)
        })
        .await;
    assert!(!world.processes(&uid(&again)).is_empty());
    // A disk that is taken away is not an empty folder: what runs there would not notice.
    world.delete("p").await;
    world.gone("p").await;
}

/// Supervisors of pods below a data folder.
fn supervisors(data: &std::path::Path) -> Vec<String> {
    let folder = data.display().to_string();
    let words = |entry: std::io::Result<std::fs::DirEntry>| {
        let words = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&words).replace('\0', " "))
    };
    let all = std::fs::read_dir("/proc").unwrap().filter_map(words);
    all.filter(|words| words.contains("pod-supervisor") && words.contains(&folder))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n3_a_stop_in_the_middle_of_a_start_leaves_no_supervisor() {
    let mut world = World::new();
    for pod in 0..24 {
        let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [sh("c", "exec sleep 1000")]});
        world.run(&format!("p{pod}"), spec).await;
    }
    for pod in 0..24 {
        world.running(&format!("p{pod}")).await;
    }
    for started in [0, 1, 4, 12] {
        world.cluster.stop_pods(|_| {}).await;
        until("supervisors that have told that nothing is left are gone", || async {
            match supervisors(world.data()) {
                left if left.is_empty() => Ok(()),
                left => Err(format!("{left:?}")),
            }
        })
        .await;
        world = world.restart().await;
        until("some are being started", || async {
            match supervisors(world.data()).len() {
                enough if enough >= started => Ok(()),
                few => Err(few.to_string()),
            }
        })
        .await;
    }
}
