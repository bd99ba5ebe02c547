//! The CronJob of the examples does what it says: its own script is run here, as its pod would, with the addresses of
//! this test.

use std::process::Command;

use kube::ResourceExt;
use serde_json::json;

use super::client::{Client, update};
use crate::support::World;

const EXAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/subnets/recalculate-cronjob.yaml"
);

/// The lines of the block that begins with `args: [..., |`, without their indent.
fn script(example: &str) -> String {
    let (_, after) = example.split_once("- |\n").expect("a script as a block of lines");
    let indent = after.len() - after.trim_start().len();
    let lines = after
        .lines()
        .take_while(|line| line.trim().is_empty() || line.starts_with(&" ".repeat(indent)));
    lines
        .map(|line| line.get(indent..).unwrap_or_default().to_owned() + "\n")
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_of_the_cronjob_triggers_and_waits() {
    let example = std::fs::read_to_string(EXAMPLE).unwrap();
    let world = World::new().await;
    world.take_lease().await;
    world.pool("office", json!({"cidr": "10.0.0.0/16"})).await;
    assert!(example.contains("verbs: [update]") && example.contains("resourceNames: [office]"));
    let mut rules = update(&["office"]);
    // What an installation lets everybody read.
    let read = json!({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["usher-operator-ca"],
        "verbs": ["get"]});
    rules.as_array_mut().unwrap().push(read);
    let token = world.token("recalculate-office", rules).await;
    let operator = world.operator().standby().tls().ready().await;
    Client::of(&world, &operator).await;

    // What a pod has mounted.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), &token).unwrap();
    std::fs::copy(world.server.dir.join("ca.crt"), folder.path().join("ca.crt")).unwrap();
    let server = world.server.config().await.cluster_url.to_string();
    let mut script = script(&example);
    let mounted = folder.path().display();
    for (there, here) in [
        ("/tmp/", format!("{mounted}/")),
        ("/var/run/secrets/kubernetes.io/serviceaccount", mounted.to_string()),
        ("https://kubernetes.default.svc/", server),
        (
            "https://usher-operator.usher-system.svc",
            format!("https://{}", operator.tls),
        ),
        ("/namespaces/usher-system/", format!("/namespaces/{}/", world.namespace)),
        ("/default/office", format!("/{}/office", world.namespace)),
    ] {
        assert!(script.contains(there), "{there} is not in the script:\n{script}");
        script = script.replace(there, &here);
    }
    let answers = async {
        let mut value = None;
        world
            .until("the pool is annotated", |now| {
                let pool = now.pools.get("office");
                value = pool.and_then(|pool| pool.annotations().get("usher.dev/recalculate").cloned());
                value.is_some()
            })
            .await;
        let answer = json!({"trigger": value, "at": "2026-11-05T12:00:00Z", "drift": 0});
        world
            .scribble(&world.pools, "office", json!({"recalculated": answer}))
            .await;
        std::future::pending::<()>().await;
    };
    let run = tokio::task::spawn_blocking(move || Command::new("sh").args(["-c", &script]).output().unwrap());
    let output = tokio::select! { output = run => output.unwrap(), () = answers => unreachable!() };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{complaint}");
    assert!(said.contains("\"drift\":0"), "{said}{complaint}");
}
