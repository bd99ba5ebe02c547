//! N7, N10: what is started, and when.

use serde_json::json;

use super::*;

#[test]
fn n7_containers_without_init_start_at_once_and_together() {
    let mut world = World::new(json!({"containers": [{"name": "b"}, {"name": "a"}]}));
    let decision = world.decide();
    assert_eq!(decision.steps, [start("b", 0), start("a", 0)]);
    assert_eq!(decision.status.phase.as_deref(), Some("Pending"));
    assert_eq!(
        status(&decision, "a")["state"],
        json!({"waiting": {"reason": "ContainerCreating"}})
    );
    world.runs("a", 0);
    assert_eq!(world.steps(), [start("b", 0)]);
    world.runs("b", 0);
    let decision = world.decide();
    assert!(decision.steps.is_empty());
    assert_eq!(decision.status.phase.as_deref(), Some("Running"));
    assert_eq!(condition(&decision, "Ready"), "True");
    let names: Vec<&str> = decision
        .status
        .container_statuses
        .iter()
        .flatten()
        .map(|status| status.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"], "sorted by name");
}

#[test]
fn n7_init_containers_run_in_order_and_sidecars_count_once_started() {
    let mut world = World::new(json!({
        "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always", "startupProbe": {}}, {"name": "j"}],
        "containers": [{"name": "c"}]}));
    assert_eq!(world.steps(), [start("i", 0)]);
    world.runs("i", 0);
    let decision = world.decide();
    assert!(decision.steps.is_empty());
    assert_eq!(
        condition(&decision, "Initialized"),
        "False ContainersNotInitialized containers with incomplete status: [i s j]"
    );
    assert_eq!(
        status(&decision, "c")["state"],
        json!({"waiting": {"reason": "PodInitializing"}})
    );
    world.exits("i", 0, 0);
    assert_eq!(world.steps(), [start("s", 0)]);
    world.runs("s", 0);
    assert!(world.steps().is_empty(), "its startup probe has not succeeded");
    world.health("s", 0, true, true);
    assert_eq!(world.steps(), [start("j", 0)]);
    world.exits("j", 0, 0);
    assert_eq!(world.steps(), [start("c", 0)]);
    world.runs("c", 0);
    let decision = world.decide();
    assert!(decision.steps.is_empty());
    assert_eq!(decision.status.phase.as_deref(), Some("Running"));
    assert_eq!(condition(&decision, "Initialized"), "True");
    // A sidecar that ends is started again, and the others run on.
    world.exits("s", 0, 1);
    let decision = world.decide();
    assert_eq!(decision.steps, [start("s", 1)]);
    assert_eq!(decision.status.phase.as_deref(), Some("Running"));
}

#[test]
fn n7_an_init_container_that_fails_for_good_fails_the_pod() {
    let mut world = World::new(json!({"restartPolicy": "Never", "initContainers": [{"name": "i"}],
        "containers": [{"name": "c"}]}));
    world.exits("i", 0, 3);
    assert_eq!(world.steps(), [Step::End]);
    world.supervisor = Supervisor::Over;
    let decision = world.decide();
    assert!(decision.steps.is_empty());
    assert_eq!(decision.status.phase.as_deref(), Some("Failed"));
    assert_eq!(
        condition(&decision, "Initialized"),
        "False ContainersNotInitialized containers with incomplete status: [i]"
    );
    assert_eq!(condition(&decision, "Ready"), "False PodFailed");
    assert_eq!(
        status(&decision, "c")["state"],
        json!({"waiting": {"reason": "PodInitializing"}})
    );
}

#[test]
fn n10_the_first_restart_is_at_once_then_waits_grow() {
    let mut world = World::new(json!({"containers": [{"name": "c"}]}));
    world.steps();
    world.exits("c", 0, 1);
    assert_eq!(world.steps(), [start("c", 1)]);
    assert_eq!(
        world.steps(),
        [start("c", 1)],
        "asked for until it shows, and counted once"
    );
    world.pass(1);
    world.exits("c", 1, 1);
    let decision = world.decide();
    assert!(decision.steps.is_empty());
    assert_eq!(decision.wake, Some(at(11)));
    let shown = status(&decision, "c");
    assert_eq!(
        shown["state"]["waiting"],
        json!({"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container=c pod=p_n(u)"})
    );
    assert_eq!(shown["lastState"]["terminated"]["exitCode"], 1);
    assert_eq!(shown["restartCount"], 1);
    assert_eq!(decision.status.phase.as_deref(), Some("Running"));
    world.pass(10);
    assert_eq!(world.steps(), [start("c", 2)]);
    world.exits("c", 2, 0);
    let waiting = status(&world.decide(), "c")["state"]["waiting"]["message"].clone();
    assert_eq!(waiting, "back-off 20s restarting failed container=c pod=p_n(u)");
}

#[test]
fn n10_policies_decide_whether_a_pod_is_done() {
    for (policy, code, phase) in [
        ("Never", 0, "Succeeded"),
        ("Never", 5, "Failed"),
        ("OnFailure", 0, "Succeeded"),
    ] {
        let mut world = World::new(json!({"restartPolicy": policy, "containers": [{"name": "c"}]}));
        world.runs("c", 0);
        world.decide();
        world.exits("c", 0, code);
        let decision = world.decide();
        assert_eq!(decision.steps, [Step::End], "{policy} {code}");
        world.supervisor = Supervisor::Over;
        let decision = world.decide();
        assert!(decision.steps.is_empty());
        assert_eq!(decision.status.phase.as_deref(), Some(phase));
        assert_eq!(condition(&decision, "PodReadyToStartContainers"), "False");
    }
}

#[test]
fn n11_a_trouble_is_shown_and_tried_again_in_time() {
    let mut world = World::new(json!({"containers": [{"name": "c"}]}));
    let trouble = Trouble {
        reason: "ErrImageNeverPull".to_owned(),
        message: "not there".to_owned(),
        retry_at: at(10),
        failures: 1,
    };
    world.troubles.insert("c".to_owned(), trouble);
    let decision = world.decide();
    assert!(decision.steps.is_empty());
    assert_eq!(decision.wake, Some(at(10)));
    assert_eq!(
        status(&decision, "c")["state"]["waiting"],
        json!({"reason": "ErrImageNeverPull", "message": "not there"})
    );
    world.pass(10);
    let decision = world.decide();
    assert_eq!(decision.steps, [start("c", 0)]);
    assert_eq!(
        status(&decision, "c")["state"]["waiting"]["reason"],
        "ErrImageNeverPull"
    );
}

#[test]
fn n12_without_a_supervisor_one_is_asked_for_and_nothing_else() {
    let mut world = World::new(json!({"containers": [{"name": "c"}]}));
    world.supervisor = Supervisor::None;
    assert_eq!(world.steps(), [Step::Prepare]);
    world.exits_with("c", 0, 137, ExitReason::ContainerStatusUnknown, "");
    world.supervisor = Supervisor::Alive;
    let decision = world.decide();
    assert_eq!(decision.steps, [start("c", 1)], "never the same attempt twice");
    assert_eq!(
        status(&decision, "c")["state"]["terminated"]["message"],
        "The container could not be located when the pod was terminated"
    );
}
