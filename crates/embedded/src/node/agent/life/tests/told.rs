//! N8, N11: events, and what statuses say.

use serde_json::json;

use super::*;

#[test]
fn n11_each_attempt_is_told_of_once() {
    let mut world = World::new(json!({"containers": [{"name": "c"}]}));
    assert!(world.told().is_empty());
    world.runs("c", 0);
    assert_eq!(world.told(), ["Started: Container started"]);
    assert!(world.told().is_empty());
    world.exits("c", 0, 1);
    assert!(world.told().is_empty());
    world.exits("c", 1, 1);
    assert_eq!(
        world.told(),
        [
            "Started: Container started",
            "BackOff: Back-off restarting failed container c in pod p_n(u)"
        ],
        "nobody saw it run"
    );
    assert!(world.told().is_empty());
}

#[test]
fn n9_stopping_is_told_once() {
    let mut world = World::new(json!({"containers": [{"name": "c"}]}));
    world.runs("c", 0);
    world.told();
    world.deleted(30);
    assert_eq!(world.told(), ["Killing: Stopping container c"]);
    assert!(world.told().is_empty());
}

#[test]
fn n11_a_program_that_cannot_be_executed_is_told_of_and_waits() {
    let mut world = World::new(json!({"containers": [{"name": "c"}]}));
    world.exits_with("c", 0, 128, ExitReason::StartError, "no such file");
    let decision = world.decide();
    let told: Vec<&str> = decision
        .tellings
        .iter()
        .map(|telling| telling.message.as_str())
        .collect();
    assert_eq!(told, ["Error: no such file"]);
    let shown = status(&decision, "c");
    assert_eq!(
        shown["state"]["waiting"],
        json!({"reason": "RunContainerError", "message": "no such file"})
    );
    assert_eq!(
        shown["lastState"]["terminated"],
        json!({"containerID": "usher://c-0", "exitCode": 128, "reason": "StartError", "message": "no such file",
            "startedAt": "1970-01-01T00:00:00Z", "finishedAt": "2027-01-15T08:00:00Z"})
    );
}

#[test]
fn n11_readiness_and_startup_gate_the_conditions() {
    let spec = json!({"containers": [{"name": "c", "startupProbe": {}, "readinessProbe": {}}, {"name": "d"}]});
    let mut world = World::new(spec);
    world.runs("c", 0);
    world.runs("d", 0);
    let decision = world.decide();
    let shown = status(&decision, "c");
    assert_eq!((&shown["started"], &shown["ready"]), (&json!(false), &json!(false)));
    let unready = "False ContainersNotReady containers with unready status: [c]";
    assert_eq!(condition(&decision, "Ready"), unready);
    assert_eq!(condition(&decision, "ContainersReady"), unready);
    world.health("c", 0, true, false);
    let shown = status(&world.decide(), "c");
    assert_eq!((&shown["started"], &shown["ready"]), (&json!(true), &json!(false)));
    world.health("c", 0, true, true);
    assert_eq!(condition(&world.decide(), "Ready"), "True");
    world.health("c", 7, true, true);
    assert_eq!(condition(&world.decide(), "Ready"), unready, "that was another attempt");
}

#[test]
fn n11_a_condition_keeps_its_time_while_its_status_stays() {
    let mut world = World::new(json!({"containers": [{"name": "c"}]}));
    world.runs("c", 0);
    let first = world.decide().status.conditions.unwrap();
    world.pass(100);
    let later = world.decide().status.conditions.unwrap();
    assert_eq!(first, later);
    world.exits("c", 0, 1);
    let last = world.decide().status.conditions.unwrap();
    let time = |conditions: &[k8s_openapi::api::core::v1::PodCondition], type_: &str| {
        let found = conditions.iter().find(|condition| condition.type_ == type_).unwrap();
        found.last_transition_time.clone().unwrap().0
    };
    assert_eq!(time(&last, "Ready"), at(100));
    assert_eq!(time(&last, "PodScheduled"), at(0));
}

#[test]
fn n11_conditions_come_in_the_reference_s_order_after_those_of_others() {
    let mut world = World::new(json!({"containers": [{"name": "c"}],
        "readinessGates": [{"conditionType": "x/y"}, {"conditionType": "z"}]}));
    let mut pod = serde_json::to_value(&world.pod).unwrap();
    pod["status"]["conditions"] =
        json!([{"type": "PodScheduled", "status": "True"}, {"type": "x/y", "status": "False"}]);
    world.pod = serde_json::from_value(pod).unwrap();
    world.runs("c", 0);
    let decision = world.decide();
    let types: Vec<String> = decision
        .status
        .conditions
        .iter()
        .flatten()
        .map(|condition| condition.type_.clone())
        .collect();
    assert_eq!(
        types,
        [
            "x/y",
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled"
        ]
    );
    assert_eq!(
        condition(&decision, "Ready"),
        "False ReadinessGatesNotReady the status of pod readiness gate \"x/y\" is not \"True\", but False, \
         corresponding condition of pod readiness gate \"z\" does not exist."
    );
}

#[test]
fn n8_a_container_is_running_only_after_its_post_start_hook() {
    let spec = json!({"containers": [{"name": "c", "lifecycle": {"postStart": {"exec": {"command": ["x"]}}}}]});
    let mut world = World::new(spec);
    world.runs("c", 0);
    let decision = world.decide();
    let hook = Step::PostStart {
        container: "c".to_owned(),
        attempt: 0,
    };
    assert_eq!(decision.steps, [hook]);
    assert_eq!(decision.status.phase.as_deref(), Some("Pending"));
    world.kept.container("c").post_start = Some(0);
    let decision = world.decide();
    assert!(decision.steps.is_empty());
    assert_eq!(decision.status.phase.as_deref(), Some("Running"));
}

#[test]
fn n8_a_failed_post_start_hook_waits_with_its_reason() {
    let spec = json!({"containers": [{"name": "c", "lifecycle": {"postStart": {"exec": {"command": ["x"]}}}}]});
    let mut world = World::new(spec);
    world.runs("c", 0);
    world.decide();
    world.kept.container("c").doomed = Some(Doomed {
        attempt: 0,
        since: world.now,
        grace_seconds: None,
        message: "FailedPostStartHook".to_owned(),
        waiting: Some(("PostStartHookError".to_owned(), "it failed".to_owned())),
    });
    assert_eq!(world.steps(), [stop("c", 0, 30)]);
    world.exits("c", 0, 137);
    let shown = status(&world.decide(), "c");
    assert_eq!(
        shown["state"]["waiting"],
        json!({"reason": "PostStartHookError", "message": "it failed"})
    );
}

#[test]
fn n11_what_a_container_left_to_say_is_in_its_end() {
    let mut world = World::new(json!({"restartPolicy": "Never", "containers": [{"name": "c"}]}));
    world.exits("c", 0, 3);
    world.messages.insert(("c".to_owned(), 0), "because".to_owned());
    let shown = status(&world.decide(), "c");
    assert_eq!(shown["state"]["terminated"]["message"], "because");
    assert_eq!(shown["state"]["terminated"]["reason"], "Error");
}

#[test]
fn a_rejected_pod_has_failed_and_says_why() {
    let mut world = World::new(json!({"containers": [{"name": "c"}]}));
    world.kept.rejected = Some(Verdict {
        reason: "OutOfcpu".to_owned(),
        message: "Node didn't have enough resource: cpu, requested: 4000, used: 0, capacity: 2000".to_owned(),
    });
    let decision = world.decide();
    assert!(decision.steps.is_empty());
    assert_eq!(decision.status.phase.as_deref(), Some("Failed"));
    assert_eq!(decision.status.reason.as_deref(), Some("OutOfcpu"));
    assert_eq!(decision.status.container_statuses, None);
    world.deleted(30);
    assert_eq!(world.steps(), [Step::Remove]);
}

#[test]
fn n11_an_address_is_told_once_the_ground_is_laid() {
    let mut world = World::new(json!({"containers": [{"name": "c"}]}));
    world.supervisor = Supervisor::None;
    world.is_prepared = false;
    let decision = world.decide();
    assert_eq!(decision.steps, [Step::Prepare]);
    assert_eq!(decision.status.pod_ip, None);
    assert_eq!(condition(&decision, "PodReadyToStartContainers"), "False");
    world.supervisor = Supervisor::Alive;
    world.is_prepared = true;
    assert_eq!(world.decide().status.pod_ip.as_deref(), Some("127.64.1.7"));
}
