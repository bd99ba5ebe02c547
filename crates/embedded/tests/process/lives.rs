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
    let made = world.run("p", json!({"containers": [sh("c", "echo hello; exec sleep 1000")]})).await;
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
    assert!(container["containerID"].as_str().unwrap().starts_with("usher://"), "{container}");
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
    assert_eq!(world.processes(&uid), [0_u32; 0], "the object goes when no process is left");
    world.told("p", "Killing: Stopping container c").await;
}
