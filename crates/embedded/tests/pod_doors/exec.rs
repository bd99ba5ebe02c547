//! `kubectl exec`.

use serde_json::json;

use super::World;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_exec_shows_both_streams_and_ends_with_the_commands_code() {
    let world = World::new().await;
    assert_eq!(
        world.says(&["exec", "p", "--", "echo", "hello", "there"]).await,
        "hello there\n"
    );
    let output = world
        .kubectl(&["exec", "p", "-c", "c", "--", "complain", "3"], None)
        .await;
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "oh no\ncommand terminated with exit code 3\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_exec_passes_a_megabyte_in_and_out_and_ends_its_input() {
    let world = World::new().await;
    let input: Vec<u8> = (0..1_000_000_u32)
        .map(|at| u8::try_from(at * 31 % 251).unwrap())
        .collect();
    let output = world
        .kubectl(&["exec", "-i", "p", "--", "cat"], Some(input.clone()))
        .await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == input, "{} bytes came back", output.stdout.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_run_is_told_by_kubectl() {
    let world = World::new().await;
    let complaint = world.complains(&["exec", "p", "--", "nonsense"]).await;
    assert_eq!(
        complaint,
        "error: Internal error occurred: error executing command in container: no such program: nonsense\n"
    );
    world
        .pod("young", json!({"waiting": {"reason": "ContainerCreating"}}))
        .await;
    let complaint = world.complains(&["exec", "young", "--", "echo"]).await;
    assert_eq!(
        complaint,
        "error: unable to upgrade connection: container not found (\"c\")\n"
    );
    let complaint = world.complains(&["exec", "p", "-c", "x", "--", "echo"]).await;
    assert!(complaint.contains("container x"), "{complaint}");
    let complaint = world.complains(&["exec", "none", "--", "echo"]).await;
    assert_eq!(complaint, "Error from server (NotFound): pods \"none\" not found\n");
}
