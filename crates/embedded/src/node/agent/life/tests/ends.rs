//! N7, N8, N9, N10: what is stopped, in which order, and with how much time.

use serde_json::json;

use super::*;

#[test]
fn n9_a_deleted_pod_is_stopped_ended_and_removed() {
    let mut world = World::new(json!({"containers": [{"name": "a"}, {"name": "b"}]}));
    world.runs("a", 0);
    world.runs("b", 0);
    world.decide();
    world.deleted(30);
    assert_eq!(world.steps(), [stop("a", 0, 30), stop("b", 0, 30)]);
    world.is_asked_to_stop("a", 0, 30);
    world.is_asked_to_stop("b", 0, 30);
    world.pass(5);
    assert!(world.steps().is_empty(), "asked once");
    world.exits("a", 0, 0);
    assert!(world.steps().is_empty());
    world.exits("b", 0, 143);
    let decision = world.decide();
    assert_eq!(decision.steps, [Step::End]);
    assert!(!decision.is_settled, "an end is told as a whole");
    world.supervisor = Supervisor::Over;
    let decision = world.decide();
    assert_eq!(decision.steps, [Step::Remove]);
    assert_eq!(decision.status.phase.as_deref(), Some("Failed"));
    world.is_gone = true;
    assert_eq!(world.steps(), [Step::Forget]);
}

#[test]
fn n9_a_shorter_grace_is_asked_for_again() {
    let mut world = World::new(json!({"containers": [{"name": "a"}]}));
    world.runs("a", 0);
    world.deleted(300);
    assert_eq!(world.steps(), [stop("a", 0, 300)]);
    world.is_asked_to_stop("a", 0, 300);
    world.pass(1);
    world.deleted(5);
    assert_eq!(world.steps(), [stop("a", 0, 4)]);
    world.is_asked_to_stop("a", 0, 4);
    assert!(world.steps().is_empty());
}

#[test]
fn n9_the_hook_spends_the_grace_and_two_seconds_are_always_left() {
    let spec = json!({"containers": [{"name": "a", "lifecycle": {"preStop": {"exec": {"command": ["x"]}}}}]});
    let mut world = World::new(spec);
    world.runs("a", 0);
    world.deleted(10);
    let hook = |seconds| Step::PreStop {
        container: "a".to_owned(),
        attempt: 0,
        within: Duration::from_secs(seconds),
    };
    let decision = world.decide();
    assert_eq!(decision.steps, [hook(10)]);
    assert_eq!(decision.wake, Some(at(10)));
    world.pass(7);
    world.kept.container("a").pre_stop = Some(0);
    assert_eq!(world.steps(), [stop("a", 0, 3)]);
    world.kept.container("a").pre_stop = None;
    world.pass(4);
    assert_eq!(world.steps(), [stop("a", 0, 2)], "the hook did not end in time");
}

#[test]
fn n7_sidecars_stop_last_and_in_reverse_order() {
    let mut world = World::new(json!({
        "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "t", "restartPolicy": "Always"}],
        "containers": [{"name": "c"}]}));
    for name in ["s", "t", "c"] {
        world.runs(name, 0);
    }
    world.decide();
    world.deleted(30);
    let decision = world.decide();
    assert_eq!(decision.steps, [stop("c", 0, 30)]);
    assert_eq!(decision.wake, Some(at(30)));
    world.pass(4);
    world.exits("c", 0, 0);
    assert_eq!(world.steps(), [stop("t", 0, 26)]);
    world.exits("t", 0, 0);
    assert_eq!(world.steps(), [stop("s", 0, 26)]);
    world.exits("s", 0, 0);
    assert_eq!(world.steps(), [Step::End]);
}

#[test]
fn n7_when_the_main_containers_are_done_sidecars_are_stopped_and_not_started_again() {
    let mut world = World::new(json!({"restartPolicy": "Never",
        "initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "c"}]}));
    world.runs("s", 0);
    world.runs("c", 0);
    world.decide();
    world.exits("c", 0, 0);
    let decision = world.decide();
    assert_eq!(decision.steps, [stop("s", 0, 30)]);
    assert_eq!(decision.status.phase.as_deref(), Some("Running"), "something runs");
    world.exits("s", 0, 137);
    assert_eq!(world.steps(), [Step::End]);
    world.supervisor = Supervisor::Over;
    assert_eq!(world.decide().status.phase.as_deref(), Some("Succeeded"));
}

#[test]
fn n10_a_deadline_fails_the_pod_once_nothing_runs() {
    let mut world = World::new(json!({"activeDeadlineSeconds": 5, "containers": [{"name": "c"}]}));
    world.runs("c", 0);
    assert_eq!(world.decide().wake, Some(at(5)));
    world.pass(5);
    let decision = world.decide();
    assert_eq!(decision.steps, [stop("c", 0, 30)]);
    assert_eq!(decision.status.phase.as_deref(), Some("Running"));
    world.exits("c", 0, 143);
    world.supervisor = Supervisor::Over;
    let decision = world.decide();
    assert!(decision.steps.is_empty());
    assert_eq!(decision.status.phase.as_deref(), Some("Failed"));
    assert_eq!(decision.status.reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(
        decision.status.message.as_deref(),
        Some("Pod was active on the node longer than the specified deadline")
    );
}

#[test]
fn n8_a_doomed_container_is_stopped_with_its_own_grace_and_started_again() {
    let mut world = World::new(json!({"containers": [{"name": "c"}]}));
    world.runs("c", 0);
    world.decide();
    world.kept.container("c").doomed = Some(Doomed {
        attempt: 0,
        since: world.now,
        grace_seconds: Some(4),
        message: "Container c failed liveness probe, will be restarted".to_owned(),
        waiting: None,
    });
    let decision = world.decide();
    assert_eq!(decision.steps, [stop("c", 0, 4)]);
    let told: Vec<&str> = decision
        .tellings
        .iter()
        .map(|telling| telling.message.as_str())
        .collect();
    assert_eq!(told, ["Container c failed liveness probe, will be restarted"]);
    world.exits("c", 0, 137);
    assert_eq!(world.steps(), [start("c", 1)]);
    world.runs("c", 1);
    assert!(world.steps().is_empty(), "only that attempt was doomed");
}

#[test]
fn a_pod_that_never_started_and_is_deleted_says_so() {
    let mut world = World::new(json!({"containers": [{"name": "c"}]}));
    world.supervisor = Supervisor::None;
    world.deleted(30);
    let decision = world.decide();
    assert_eq!(decision.steps, [Step::Remove]);
    assert_eq!(decision.status.phase.as_deref(), Some("Failed"));
    assert_eq!(
        status(&decision, "c")["state"]["terminated"],
        json!({"exitCode": 137, "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was terminated"})
    );
}

#[test]
fn a_pod_whose_finalizers_hold_it_is_removed_once() {
    let mut world = World::new(json!({"containers": [{"name": "c"}]}));
    world.supervisor = Supervisor::None;
    world.deleted(0);
    assert!(world.steps().is_empty());
}
