//! N7 to N11: how pods begin, run and end.

use serde_json::{Value, json};

use crate::world::{World, sh};

fn condition<'a>(pod: &'a Value, kind: &str) -> &'a Value {
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n11_a_pod_runs_says_so_is_logged_and_goes() {
    let world = World::new();
    let made = world
        .run("p", json!({"containers": [sh("c", "echo hello; exec sleep 1000")]}))
        .await;
    let uid = made.metadata.uid.unwrap();
    let pod = world.running("p").await;
    let status = &pod["status"];
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(status["qosClass"], "BestEffort");
    assert_eq!(status["podIPs"][0]["ip"], status["podIP"]);
    assert!(status["podIP"].as_str().unwrap().starts_with("127."), "{status}");
    assert_eq!(status["hostIPs"][0]["ip"], status["hostIP"]);
    let container = &status["containerStatuses"][0];
    assert_eq!(container["restartCount"], 0);
    assert_eq!(container["started"], true);
    assert!(
        container["containerID"].as_str().unwrap().starts_with("usher://"),
        "{container}"
    );
    assert!(container["state"]["running"]["startedAt"].is_string(), "{container}");
    assert_eq!(condition(&pod, "PodReadyToStartContainers")["status"], "True");
    let events = world.told("p", "Started").await;
    assert_eq!(
        events,
        [
            "Pulled: Container image \"busybox:1\" already present on machine and can be accessed by the pod",
            "Created: Container created",
            "Started: Container started",
        ]
    );
    crate::world::until("the log is there", || async {
        let log = world.log("p").await;
        if log == "hello\n" { Ok(()) } else { Err(log) }
    })
    .await;
    world.delete("p").await;
    world.gone("p").await;
    assert_eq!(
        world.processes(&uid),
        [0_u32; 0],
        "the object goes when no process is left"
    );
    world.told("p", "Killing: Stopping container c").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n10_pods_complete_fail_and_crash_loop() {
    let world = World::new();
    let never = |script: &str| json!({"restartPolicy": "Never", "containers": [sh("c", script)]});
    world.run("good", never("exit 0")).await;
    world.run("bad", never("echo why > /dev/termination-log; exit 3")).await;
    world.run("loop", json!({"containers": [sh("c", "exit 1")]})).await;
    let good = world.phase("good", "Succeeded").await;
    let end = &good["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&end["exitCode"], &end["reason"]), (&json!(0), &json!("Completed")));
    assert_eq!(condition(&good, "Ready")["reason"], "PodCompleted");
    let bad = world.phase("bad", "Failed").await;
    let end = &bad["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&end["exitCode"], &end["reason"]), (&json!(3), &json!("Error")));
    let looping = world
        .pod_that("loop", "it waits before it runs again", |pod| {
            let container = &pod["status"]["containerStatuses"][0];
            container["state"]["waiting"]["reason"] == "CrashLoopBackOff" && container["restartCount"] == 2
        })
        .await;
    let uid = looping["metadata"]["uid"].as_str().unwrap();
    let message = looping["status"]["containerStatuses"][0]["state"]["waiting"]["message"]
        .as_str()
        .unwrap();
    assert_eq!(
        message,
        format!("back-off 600ms restarting failed container=c pod=loop_default({uid})")
    );
    world
        .told("loop", "BackOff: Back-off restarting failed container c in pod")
        .await;
    // A pod that is done leaves its log and no process.
    for name in ["good", "bad"] {
        let uid = world.pods().get(name).await.unwrap().metadata.uid.unwrap();
        world.no_processes(&uid).await;
        world.delete(name).await;
        world.gone(name).await;
        let folder = world.data().join("pods").join(&uid);
        crate::world::until("its folder goes", || async {
            if folder.exists() {
                Err("it is there".to_owned())
            } else {
                Ok(())
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n7_init_containers_and_sidecars_start_in_order_and_end_in_order() {
    let world = World::new();
    let mounts = json!([{"name": "v", "mountPath": "/v"}]);
    let with = |mut container: Value, more: Value| {
        for (key, value) in more.as_object().unwrap() {
            container[key] = value.clone();
        }
        container["volumeMounts"] = mounts.clone();
        container
    };
    let side = r#"trap 'echo side-ends >> /v/log; exit 0' TERM; echo side >> /v/log; while true; do sleep 0.05; done"#;
    world
        .run(
            "p",
            json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 20,
                "volumes": [{"name": "v", "emptyDir": {}}],
                "initContainers": [
                    with(sh("i", "echo init >> /v/log"), json!({})),
                    with(sh("s", side), json!({"restartPolicy": "Always",
                        "startupProbe": {"exec": {"command": ["grep", "side", "/v/log"]}, "periodSeconds": 1}})),
                ],
                "containers": [with(sh("c", "echo main >> /v/log; exit 0"), json!({}))]}),
        )
        .await;
    let pod = world.phase("p", "Succeeded").await;
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let log = world.data().join("pods").join(uid).join("own.d/volumes/v/log");
    assert_eq!(std::fs::read_to_string(log).unwrap(), "init\nside\nmain\nside-ends\n");
    let init = &pod["status"]["initContainerStatuses"];
    assert_eq!(init[0]["ready"], true, "{init}");
    assert_eq!(init[1]["state"]["terminated"]["exitCode"], 0, "{init}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n9_a_pod_that_ignores_sigterm_is_killed_after_its_grace() {
    let world = World::new();
    let script = "trap '' TERM; while true; do sleep 0.05; done";
    let spec = json!({"terminationGracePeriodSeconds": 2, "containers": [sh("c", script)]});
    let uid = world.run("p", spec).await.metadata.uid.unwrap();
    world.running("p").await;
    let begun = std::time::Instant::now();
    world.delete("p").await;
    world.gone("p").await;
    assert!(
        begun.elapsed() >= std::time::Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    assert!(world.processes(&uid).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n8_probes_gate_kill_and_tell() {
    let world = World::new();
    let file =
        |name: &str| json!({"exec": {"command": ["test", "-e", name]}, "periodSeconds": 1, "failureThreshold": 1});
    let mut ready = sh("c", "sleep 1; touch /tmp/up; exec sleep 1000");
    ready["readinessProbe"] = file("/tmp/up");
    world.run("ready", json!({"containers": [ready]})).await;
    let mut sick = sh("c", "exec sleep 1000");
    sick["livenessProbe"] = file("/tmp/none");
    world
        .run(
            "sick",
            json!({"terminationGracePeriodSeconds": 1, "containers": [sick]}),
        )
        .await;
    let pod = world.phase("ready", "Running").await;
    assert_eq!(condition(&pod, "Ready")["reason"], "ContainersNotReady");
    world.running("ready").await;
    world
        .pod_that("sick", "it was started again", |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"].as_i64() >= Some(1)
        })
        .await;
    let events = world
        .told("sick", "Killing: Container c failed liveness probe, will be restarted")
        .await;
    assert!(
        events
            .iter()
            .any(|event| event.starts_with("Unhealthy: Liveness probe failed: ")),
        "{events:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n8_hooks_run_after_the_start_and_before_the_stop() {
    let world = World::new();
    let mut container = sh("c", "trap 'exit 7' TERM; while true; do sleep 0.05; done");
    container["lifecycle"] = json!({
        "postStart": {"exec": {"command": ["sh", "-c", "echo after >> /v/log"]}},
        "preStop": {"exec": {"command": ["sh", "-c", "echo before >> /v/log"]}}});
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let mut bad = sh("b", "exec sleep 1000");
    bad["lifecycle"] = json!({"postStart": {"exec": {"command": ["sh", "-c", "exit 9"]}}});
    world
        .run(
            "p",
            json!({"volumes": [{"name": "v", "hostPath": {"path": world.data().join("volumes").join("x"),
            "type": "DirectoryOrCreate"}}], "containers": [container]}),
        )
        .await;
    world
        .run(
            "q",
            json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [bad]}),
        )
        .await;
    world.running("p").await;
    let log = world.data().join("volumes/x/log");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "after\n");
    world.delete("p").await;
    world.gone("p").await;
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "after\nbefore\n");
    world.phase("q", "Failed").await;
    let events = world.told("q", "Killing: FailedPostStartHook").await;
    assert!(
        events.contains(&"FailedPostStartHook: PostStartHook failed".to_owned()),
        "{events:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_started_says_why_and_what_to_do() {
    let world = World::new();
    world
        .run("image", json!({"containers": [{"name": "c", "image": "unknown:1"}]}))
        .await;
    let mut privileged = sh("c", "true");
    privileged["securityContext"] = json!({"privileged": true});
    world.run("privileged", json!({"containers": [privileged]})).await;
    let mut config = sh("c", "exec sleep 1000");
    config["env"] = json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "a"}}}]);
    world.run("config", json!({"containers": [config]})).await;
    let mut files = sh("c", "cat /m/a; exec sleep 1000");
    files["volumeMounts"] = json!([{"name": "m", "mountPath": "/m"}]);
    world
        .run(
            "files",
            json!({"volumes": [{"name": "m", "configMap": {"name": "later"}}], "containers": [files]}),
        )
        .await;
    let mut big = sh("c", "true");
    big["resources"] = json!({"requests": {"cpu": "10k"}});
    world.run("big", json!({"containers": [big]})).await;
    let waits = |reason: &'static str| {
        move |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == reason
    };
    let message = |pod: &Value| {
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        waiting["message"].as_str().unwrap_or_default().to_owned()
    };
    let pod = world.pod_that("image", "no image", waits("ErrImageNeverPull")).await;
    let table = world.data().join("images.yaml");
    assert_eq!(
        message(&pod),
        format!(
            "Container image \"unknown:1\" is not in the image table ({}): add an entry that says how to run it",
            table.display()
        )
    );
    let pod = world
        .pod_that("privileged", "refused", waits("CreateContainerConfigError"))
        .await;
    assert!(
        message(&pod).contains("securityContext.privileged"),
        "{}",
        message(&pod)
    );
    let pod = world
        .pod_that("config", "no config", waits("CreateContainerConfigError"))
        .await;
    assert_eq!(message(&pod), "configmap \"later\" not found");
    world
        .told(
            "files",
            "FailedMount: MountVolume.SetUp failed for volume \"m\" : configmap \"later\" not found",
        )
        .await;
    let pod = world.phase("big", "Failed").await;
    assert_eq!(pod["status"]["reason"], "OutOfcpu");
    let said = pod["status"]["message"].as_str().unwrap();
    assert!(
        said.starts_with("Pod was rejected: Node didn't have enough resource: cpu, requested: 10000000, used: "),
        "{said}"
    );
    // What was missing comes, and the pods run.
    let map = serde_json::from_value(json!({"metadata": {"name": "later"}, "data": {"a": "one"}})).unwrap();
    world.config_maps().create(&Default::default(), &map).await.unwrap();
    world.running("config").await;
    world.running("files").await;
    let more = "- match: \"unknown:*\"\n  bin: [\"/usr/bin\"]\n  entrypoint: [sleep, \"1000\"]\n";
    let text = std::fs::read_to_string(&table).unwrap();
    std::fs::write(&table, format!("{text}{more}")).unwrap();
    world.running("image").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n5_config_volumes_follow_their_objects() {
    let world = World::new();
    let map = |value: &str| serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"a": value}})).unwrap();
    world
        .config_maps()
        .create(&Default::default(), &map("one"))
        .await
        .unwrap();
    let mut container = sh("c", "while true; do cat /m/a; echo; sleep 0.1; done");
    container["volumeMounts"] = json!([{"name": "m", "mountPath": "/m"}]);
    world
        .run(
            "p",
            json!({"volumes": [{"name": "m", "configMap": {"name": "m"}}], "containers": [container]}),
        )
        .await;
    let says = |word: &'static str| {
        let world = &world;
        async move {
            crate::world::until(word, || async {
                let log = world.log("p").await;
                if log.lines().next_back() == Some(word) {
                    Ok(())
                } else {
                    Err(log)
                }
            })
            .await;
        }
    };
    world.running("p").await;
    says("one").await;
    world
        .config_maps()
        .replace("m", &Default::default(), &map("two"))
        .await
        .unwrap();
    says("two").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n6_a_container_knows_itself_and_its_pod() {
    let world = World::new();
    let mut container = sh("c", "echo $NAME $ADDRESS $(hostname); exec sleep 1000");
    container["env"] = json!([
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
    world.run("p", json!({"containers": [container]})).await;
    let pod = world.running("p").await;
    let address = pod["status"]["podIP"].as_str().unwrap();
    crate::world::until("it says who it is", || async {
        let log = world.log("p").await;
        if log.starts_with(&format!("p {address} ")) {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n10_a_deadline_ends_a_pod() {
    let world = World::new();
    let script = "trap 'exit 0' TERM; while true; do sleep 0.05; done";
    world
        .run(
            "p",
            json!({"activeDeadlineSeconds": 2, "containers": [sh("c", script)]}),
        )
        .await;
    let pod = world.phase("p", "Failed").await;
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
    world
        .told(
            "p",
            "DeadlineExceeded: Pod was active on the node longer than the specified deadline",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n5_where_nothing_can_be_mounted_words_name_the_folders() {
    let world = World::with(|options| {
        if let Some(process) = &mut options.process {
            process.isolation = usher_embedded::IsolationChoice::Paths;
        }
    });
    let mut container = sh(
        "c",
        "echo said > /v/file; cat /v/file; echo $USHER_MOUNT_V; exec sleep 1000",
    );
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    container["readinessProbe"] = json!({"exec": {"command": ["test", "-e", "/v/file"]}, "periodSeconds": 1});
    world
        .run(
            "p",
            json!({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [container]}),
        )
        .await;
    let pod = world.running("p").await;
    let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
    let folder = world
        .data()
        .canonicalize()
        .unwrap()
        .join("pods")
        .join(&uid)
        .join("own.d/volumes/v");
    let wanted = format!("said\n{}\n", folder.display());
    crate::world::until("it has said so", || async {
        let log = world.log("p").await;
        (log == wanted).then_some(()).ok_or(log)
    })
    .await;
    world.told("p", "MountsAsPaths: ").await;
    world.delete("p").await;
    world.gone("p").await;
    assert!(world.processes(&uid).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_pods_at_once_have_one_process_each() {
    let world = World::new();
    let names: Vec<String> = (0..30).map(|number| format!("p{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let node = if number % 2 == 0 { "node-1" } else { "node-2" };
        world
            .run_on(node, name, json!({"containers": [sh("c", "exec sleep 1000")]}))
            .await;
    }
    let mut addresses = std::collections::BTreeSet::new();
    for name in &names {
        let pod = world.running(name).await;
        addresses.insert(pod["status"]["podIP"].as_str().unwrap().to_owned());
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        assert_eq!(world.processes(uid).len(), 1, "{name}");
    }
    assert_eq!(addresses.len(), 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_waits_for_an_image_is_told_that_the_table_is_broken_and_runs_when_it_is_mended() {
    let world = World::new();
    let table = |text: &str| std::fs::write(world.data().join("images.yaml"), text).unwrap();
    table("images:\n- match: [\n");
    let mut container = sh("c", "exec sleep 1000");
    container["image"] = json!("other:1");
    world.run("p", json!({"containers": [container]})).await;
    let waiting = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"].clone();
    let pod = world
        .pod_that("p", "it waits, and says why", |pod| {
            let message = waiting(pod)["message"].as_str().unwrap_or_default().to_owned();
            message.contains("; as it is now it cannot be read: ")
        })
        .await;
    assert_eq!(waiting(&pod)["reason"], "ErrImageNeverPull");
    table("images:\n- match: \"other:*\"\n  bin: [/usr/bin, /bin]\n");
    world.running("p").await;
}
