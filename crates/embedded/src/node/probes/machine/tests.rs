use super::*;
use serde_json::{Value, json};

fn container(probes: Value) -> Container {
    let mut whole = json!({"name": "c"});
    whole
        .as_object_mut()
        .unwrap()
        .extend(probes.as_object().unwrap().clone());
    serde_json::from_value(whole).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn good() -> Answer {
    Answer::new(Outcome::Success, "")
}

fn bad(why: &str) -> Answer {
    Answer::new(Outcome::Failure, why)
}

fn second_of(due: Option<Timestamp>) -> Option<i64> {
    due.map(Timestamp::as_second)
}

#[test]
fn n8_without_probes_a_container_is_started_and_ready_at_once_and_nothing_is_due() {
    let mut prober = Prober::new(&container(json!({})), at(0));
    assert!(prober.started() && prober.ready());
    assert_eq!(prober.next_due(), None);
    assert_eq!(prober.take_due(at(100)), []);
}

#[test]
fn n8_readiness_begins_as_failed_and_holds_after_its_thresholds() {
    let mut prober = Prober::new(
        &container(json!({"readinessProbe": {"periodSeconds": 5, "successThreshold": 2, "failureThreshold": 3}})),
        at(0),
    );
    let mut now = 0;
    let mut step = |answer: Answer| {
        assert_eq!(prober.take_due(at(now)), [Kind::Readiness], "{now}");
        assert_eq!(prober.take_due(at(now)), [], "it is being asked");
        let change = prober.took(Kind::Readiness, &answer, at(now));
        now += 5;
        assert_eq!(second_of(prober.next_due()), Some(now));
        (prober.ready(), change.status)
    };
    assert_eq!(step(good()), (false, false));
    assert_eq!(step(good()), (true, true));
    assert_eq!(step(bad("x")), (true, false));
    assert_eq!(step(good()), (true, false));
    assert_eq!(step(bad("x")), (true, false));
    assert_eq!(step(bad("x")), (true, false));
    assert_eq!(step(bad("x")), (false, true));
    assert_eq!(step(bad("x")), (false, false));
    assert_eq!(step(good()), (false, false));
    assert_eq!(step(bad("x")), (false, false));
    assert_eq!(step(good()), (false, false));
    assert_eq!(step(good()), (true, true));
}

#[test]
fn n8_nothing_is_asked_before_the_initial_delay() {
    let mut prober = Prober::new(
        &container(json!({"livenessProbe": {"initialDelaySeconds": 7}, "readinessProbe": {"initialDelaySeconds": 3}})),
        at(10),
    );
    assert_eq!(second_of(prober.next_due()), Some(13));
    assert_eq!(prober.take_due(at(12)), []);
    assert_eq!(prober.take_due(at(13)), [Kind::Readiness]);
    assert_eq!(second_of(prober.next_due()), Some(17));
    assert_eq!(prober.take_due(at(17)), [Kind::Liveness]);
    assert_eq!(prober.next_due(), None, "both are being asked");
}

#[test]
fn n8_a_late_round_is_not_made_up_for() {
    let mut prober = Prober::new(&container(json!({"livenessProbe": {"periodSeconds": 10}})), at(0));
    assert_eq!(prober.take_due(at(4)), [Kind::Liveness]);
    prober.took(Kind::Liveness, &good(), at(4));
    assert_eq!(second_of(prober.next_due()), Some(10), "in step");
    assert_eq!(prober.take_due(at(35)), [Kind::Liveness]);
    prober.took(Kind::Liveness, &good(), at(36));
    assert_eq!(second_of(prober.next_due()), Some(45));
}

#[test]
fn n8_liveness_fails_after_its_threshold_and_kills_with_its_own_grace() {
    let mut prober = Prober::new(
        &container(json!({"livenessProbe": {"failureThreshold": 2, "terminationGracePeriodSeconds": 4}})),
        at(0),
    );
    prober.take_due(at(0));
    let first = prober.took(Kind::Liveness, &bad("HTTP probe failed with statuscode: 500"), at(0));
    assert_eq!(first.killing, None);
    assert_eq!(
        first.event.unwrap(),
        UnhealthyEvent {
            reason: "Unhealthy",
            message: "Liveness probe failed: HTTP probe failed with statuscode: 500".to_owned()
        }
    );
    prober.take_due(at(10));
    let second = prober.took(Kind::Liveness, &bad("x"), at(10));
    assert_eq!(
        second.killing.unwrap(),
        Killing {
            message: "Container c failed liveness probe, will be restarted".to_owned(),
            grace_seconds: Some(4)
        }
    );
    assert!(!second.status && prober.ready(), "liveness says nothing of readiness");
    assert_eq!(prober.next_due(), None);
    assert_eq!(prober.took(Kind::Liveness, &bad("x"), at(11)), Change::default());
}

#[test]
fn n8_startup_gates_the_others_which_are_due_as_soon_as_it_succeeds() {
    let mut prober = Prober::new(
        &container(json!({
            "startupProbe": {"periodSeconds": 1, "failureThreshold": 30},
            "livenessProbe": {}, "readinessProbe": {"initialDelaySeconds": 60},
        })),
        at(0),
    );
    assert!(!prober.started() && !prober.ready());
    assert_eq!(prober.take_due(at(0)), [Kind::Startup]);
    assert_eq!(prober.took(Kind::Startup, &bad("x"), at(0)).killing, None);
    assert_eq!(prober.take_due(at(1)), [Kind::Startup]);
    let change = prober.took(Kind::Startup, &good(), at(1));
    assert!(change.status && prober.started() && !prober.ready());
    assert_eq!(prober.take_due(at(1)), [Kind::Liveness]);
    assert_eq!(second_of(prober.next_due()), Some(60));
    prober.took(Kind::Liveness, &good(), at(1));
    assert_eq!(second_of(prober.next_due()), Some(11), "startup is asked no more");
}

#[test]
fn n8_startup_without_readiness_makes_a_container_ready() {
    let mut prober = Prober::new(&container(json!({"startupProbe": {}})), at(0));
    prober.take_due(at(0));
    assert!(prober.took(Kind::Startup, &good(), at(0)).status);
    assert!(prober.ready());
    assert_eq!(prober.next_due(), None);
}

#[test]
fn n8_startup_that_fails_too_often_kills() {
    let mut prober = Prober::new(&container(json!({"startupProbe": {"failureThreshold": 1}})), at(0));
    prober.take_due(at(0));
    let killing = prober.took(Kind::Startup, &bad("x"), at(0)).killing.unwrap();
    assert_eq!(killing.message, "Container c failed startup probe, will be restarted");
    assert_eq!(killing.grace_seconds, None);
}

#[test]
fn n8_a_warning_counts_as_success_and_an_unknown_result_as_nothing() {
    let mut prober = Prober::new(&container(json!({"readinessProbe": {"failureThreshold": 1}})), at(0));
    let mut step = |outcome, now| {
        prober.take_due(at(now));
        let change = prober.took(Kind::Readiness, &Answer::new(outcome, "m"), at(now));
        (prober.ready(), change.event.map(|event| (event.reason, event.message)))
    };
    let (ready, event) = step(Outcome::Warning, 0);
    assert!(ready);
    assert_eq!(
        event.unwrap(),
        ("ProbeWarning", "Readiness probe warning: m".to_owned())
    );
    let (ready, event) = step(Outcome::Unknown, 10);
    assert!(ready);
    assert_eq!(
        event.unwrap(),
        (
            "Unhealthy",
            "Readiness probe errored and resulted in unknown state: m".to_owned()
        )
    );
    assert_eq!(step(Outcome::Success, 20), (true, None));
    assert!(!step(Outcome::Failure, 30).0);
}

#[test]
fn n8_a_pod_that_stops_is_asked_for_readiness_alone() {
    let mut prober = Prober::new(
        &container(json!({"livenessProbe": {"failureThreshold": 1}, "readinessProbe": {"failureThreshold": 1}})),
        at(0),
    );
    assert_eq!(prober.take_due(at(0)), [Kind::Liveness, Kind::Readiness]);
    prober.took(Kind::Readiness, &good(), at(0));
    prober.stop();
    assert_eq!(prober.took(Kind::Liveness, &bad("x"), at(1)), Change::default());
    assert_eq!(prober.take_due(at(10)), [Kind::Readiness]);
    assert!(prober.took(Kind::Readiness, &bad("x"), at(10)).status);
    assert!(!prober.ready());
}

#[test]
fn n2_an_adopted_container_keeps_its_status_and_is_asked_at_once() {
    let probes = container(json!({"startupProbe": {}, "readinessProbe": {"failureThreshold": 2}}));
    let mut prober = Prober::adopted(&probes, at(0), true, true, at(500));
    assert!(prober.started() && prober.ready());
    assert_eq!(second_of(prober.next_due()), Some(500));
    assert_eq!(prober.take_due(at(500)), [Kind::Readiness]);
    assert!(!prober.took(Kind::Readiness, &bad("x"), at(500)).status);
    let unready = Prober::adopted(&probes, at(0), false, false, at(500));
    assert!(!unready.started() && !unready.ready());
}
