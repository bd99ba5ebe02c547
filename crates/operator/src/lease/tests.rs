//! The lease task against [`super::server`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use usher_engine::ErrorClass;

use super::server::{Api, Mood};
use super::{LeaseConfig, LeaseError, run};
use crate::clock::{Clock, SystemClock};
use crate::leadership::{LeaseTiming, SharedLeadership};

/// A candidate as a process has it.
struct Operator {
    shared: SharedLeadership,
    bell: watch::Receiver<bool>,
    clock: Arc<SystemClock>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), LeaseError>>,
}

/// Long enough that it never runs out in these tests, whatever else the machine does.
const STEADY: LeaseTiming = LeaseTiming {
    duration: Duration::from_secs(30),
    renew_every: Duration::from_millis(500),
    margin: Duration::from_secs(2),
};

/// For those that wait for it to run out.
const BRIEF: LeaseTiming = LeaseTiming {
    duration: Duration::from_secs(1),
    renew_every: Duration::from_millis(100),
    margin: Duration::from_millis(300),
};

fn config(identity: &str, timing: LeaseTiming) -> LeaseConfig {
    LeaseConfig {
        namespace: "home".to_owned(),
        name: "usher".to_owned(),
        identity: identity.to_owned(),
        timing,
    }
}

/// The longest any wait of these tests may take.
const PATIENCE: Duration = Duration::from_secs(20);

impl Operator {
    fn start(api: &Api, identity: &str, timing: LeaseTiming) -> Self {
        let (shared, clock) = (SharedLeadership::never_held(), Arc::new(SystemClock::new()));
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(run(
            api.client(),
            config(identity, timing),
            shared.clone(),
            clock.clone(),
            stopped,
        ));
        Self {
            bell: shared.subscribe(),
            shared,
            clock,
            stop,
            task,
        }
    }

    async fn leading(api: &Api, identity: &str, timing: LeaseTiming) -> Self {
        let mut operator = Self::start(api, identity, timing);
        operator.until(true).await;
        operator
    }

    async fn until(&mut self, leads: bool) {
        tokio::select! {
            now = self.bell.wait_for(|now| *now == leads) => drop(now.unwrap()),
            ended = &mut self.task => panic!("it ended: {ended:?}"),
            () = tokio::time::sleep(PATIENCE) => panic!("leads does not become {leads}"),
        }
    }

    fn may_act(&self) -> bool {
        self.shared.may_act(self.clock.monotonic())
    }

    async fn end(self) -> Result<(), LeaseError> {
        tokio::time::timeout(PATIENCE, self.task)
            .await
            .expect("the task does not end")
            .unwrap()
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let poll = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, poll)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn it_makes_the_lease_and_renews_it_and_nothing_else_in_it() {
    let api = Api::new();
    let operator = Operator::leading(&api, "one", STEADY).await;
    assert!(operator.may_act());
    let made = api.lease();
    let spec = &made["spec"];
    assert_eq!(
        (
            &spec["holderIdentity"],
            &spec["leaseDurationSeconds"],
            &spec["leaseTransitions"]
        ),
        (&json!("one"), &json!(30), &json!(0))
    );
    api.edit(|lease| lease["metadata"]["labels"] = json!({"kept": "yes"}));
    until("a renewal", || api.lease()["spec"]["renewTime"] != spec["renewTime"]).await;
    let renewed = api.lease();
    assert_eq!(renewed["metadata"]["labels"], json!({"kept": "yes"}));
    assert_eq!(renewed["spec"]["acquireTime"], spec["acquireTime"]);
    assert_eq!(renewed["spec"]["leaseTransitions"], json!(0));
    assert!(
        operator.may_act(),
        "a version that another made with our name in it is still ours"
    );
    operator.task.abort();
}

#[tokio::test]
async fn when_the_first_is_gone_without_a_word_the_second_waits_it_out() {
    let api = Api::new();
    let first = Operator::leading(&api, "one", BRIEF).await;
    let mut second = Operator::start(&api, "two", BRIEF);
    first.task.abort();
    // What the first may still believe: it may act until then, by its clock.
    let ended = first.shared.held_until().unwrap();
    second.until(true).await;
    assert!(
        first.clock.monotonic() > ended,
        "the second began before the first had to end"
    );
    assert_eq!(api.lease()["spec"]["leaseTransitions"], json!(1));
    assert_eq!(api.lease()["spec"]["holderIdentity"], json!("two"));
}

#[tokio::test]
async fn the_hold_counts_from_before_the_request_and_not_from_the_answer() {
    let api = Api::new();
    let patient = LeaseTiming {
        renew_every: Duration::from_secs(10),
        margin: Duration::from_secs(10),
        ..STEADY
    };
    api.with(|server| server.next = VecDeque::from([Mood::Fine, Mood::Late(Duration::from_millis(500))]));
    let mut operator = Operator::start(&api, "one", patient);
    until("the server has it", || api.with(|server| server.lease.is_some())).await;
    let stored_by = operator.clock.monotonic();
    operator.until(true).await;
    assert!(operator.shared.held_until().unwrap() <= stored_by + patient.valid_for());
}

#[tokio::test]
async fn a_polite_stop_hands_over_at_once() {
    let api = Api::new();
    let first = Operator::leading(&api, "one", STEADY).await;
    api.with(|server| server.bell = Some(first.bell.clone()));
    first.stop.send_replace(true);
    let (clock, held_until) = (first.clock.clone(), first.shared.held_until());
    let shared = first.shared.clone();
    first.end().await.unwrap();
    assert!(!shared.may_act(clock.monotonic()));
    let spec = api.lease()["spec"].clone();
    assert_eq!(
        (&spec["holderIdentity"], &spec["leaseDurationSeconds"]),
        (&Value::Null, &json!(1))
    );
    let mut second = Operator::start(&api, "two", STEADY);
    second.until(true).await;
    assert!(
        clock.monotonic() < held_until.unwrap(),
        "the second waited for the first's hold to run out"
    );
}

#[tokio::test]
async fn a_release_is_tried_again_and_then_left() {
    // Whether the first try failed, or was done and not said: in the end nobody holds it.
    for first_try in [Mood::Refuse(503, "ServiceUnavailable"), Mood::Hang, Mood::ActAndHang] {
        let api = Api::new();
        let operator = Operator::leading(&api, "one", STEADY).await;
        api.with(|server| server.next = VecDeque::from([first_try]));
        operator.stop.send_replace(true);
        operator.end().await.unwrap();
        assert_eq!(api.lease()["spec"]["holderIdentity"], Value::Null, "{first_try:?}");
    }
    let api = Api::new();
    let operator = Operator::leading(&api, "one", STEADY).await;
    api.with(|server| server.mood = Mood::Refuse(503, "ServiceUnavailable"));
    operator.stop.send_replace(true);
    operator.end().await.unwrap();
    assert_eq!(
        api.lease()["spec"]["holderIdentity"],
        json!("one"),
        "it runs out by itself"
    );
}

#[tokio::test]
async fn a_caller_that_vanishes_releases_nothing() {
    let api = Api::new();
    let Operator {
        stop,
        task,
        shared,
        clock,
        ..
    } = Operator::leading(&api, "one", STEADY).await;
    drop(stop);
    tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap().unwrap();
    assert_eq!(api.lease()["spec"]["holderIdentity"], json!("one"));
    assert!(!shared.may_act(clock.monotonic()));
}

#[tokio::test]
async fn another_holder_in_the_lease_ends_it_at_once() {
    let api = Api::new();
    let mut operator = Operator::leading(&api, "one", STEADY).await;
    api.edit(|lease| lease["spec"]["holderIdentity"] = json!("thief"));
    operator.until(false).await;
    assert!(!operator.may_act());
    assert_eq!(operator.shared.held_until(), None, "not because time ran out");
    operator.stop.send_replace(true);
    operator.end().await.unwrap();
    assert_eq!(
        api.lease()["spec"]["holderIdentity"],
        json!("thief"),
        "what is not ours is not released"
    );
}

#[tokio::test]
async fn when_the_server_hangs_the_hold_runs_out_and_comes_back() {
    let api = Api::new();
    let mut operator = Operator::leading(&api, "one", BRIEF).await;
    api.with(|server| server.mood = Mood::Hang);
    operator.until(false).await;
    assert!(!operator.may_act());
    assert!(operator.shared.held_until().is_some(), "nobody took it: time ran out");
    api.with(|server| server.mood = Mood::Fine);
    operator.until(true).await;
    assert_eq!(
        api.lease()["spec"]["leaseTransitions"],
        json!(0),
        "it was ours all the time"
    );
}

#[tokio::test]
async fn a_renewal_that_took_effect_unanswered_does_not_cost_the_lease() {
    let api = Api::new();
    let operator = Operator::leading(&api, "one", STEADY).await;
    let before = api.with(|server| {
        server.next = VecDeque::from([Mood::ActAndHang]);
        server.version
    });
    until("two more renewals", || {
        api.with(|server| server.next.is_empty() && server.version >= before + 3)
    })
    .await;
    assert!(operator.may_act());
    assert!(
        !operator.bell.has_changed().unwrap() || *operator.bell.borrow(),
        "it never ceased to lead"
    );
}

#[tokio::test]
async fn a_claim_that_took_effect_unanswered_is_used() {
    let api = Api::new();
    api.with(|server| server.next = VecDeque::from([Mood::Fine, Mood::ActAndHang]));
    let operator = Operator::leading(&api, "one", STEADY).await;
    assert_eq!(
        operator.shared.held_until().is_some(),
        api.lease()["spec"]["holderIdentity"] == json!("one")
    );
    let puts = api.with(|server| server.requests.iter().filter(|r| r.starts_with("POST")).count());
    assert_eq!(puts, 1, "found by looking, kept by renewing");
}

#[tokio::test]
async fn of_two_who_start_at_once_one_leads() {
    let api = Api::new();
    let (one, two) = (
        Operator::start(&api, "one", STEADY),
        Operator::start(&api, "two", STEADY),
    );
    until("somebody leads", || one.may_act() || two.may_act()).await;
    let renewals = api.with(|server| server.version) + 5;
    until("a few renewals", || {
        assert!(!(one.may_act() && two.may_act()));
        api.with(|server| server.version) >= renewals
    })
    .await;
    assert!(one.may_act() != two.may_act());
}

#[tokio::test]
async fn a_missing_right_is_told_with_verb_resource_place_and_fix() {
    let api = Api::new();
    api.with(|server| server.mood = Mood::Refuse(403, "Forbidden"));
    let error = Operator::start(&api, "one", STEADY).end().await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Permanent);
    assert_eq!(
        error.to_string(),
        "may not get leases.coordination.k8s.io in namespace home (lease usher): the server says Forbidden. The \
         operator's role must allow get, create and update there; `usher install` creates it"
    );
    api.with(|server| server.next = VecDeque::from([Mood::Fine]));
    let error = Operator::start(&api, "one", STEADY).end().await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("may not create leases.coordination.k8s.io in namespace home"),
        "{error}"
    );
}

#[tokio::test]
async fn a_right_taken_away_from_the_leader_costs_the_lease_only_when_it_ends() {
    let api = Api::new();
    let operator = Operator::leading(&api, "one", BRIEF).await;
    api.with(|server| server.mood = Mood::Refuse(403, "Forbidden"));
    let refused = api.with(|server| server.requests.len()) + 3;
    until("a few refusals", || api.with(|server| server.requests.len()) >= refused).await;
    let (shared, clock, until) = (
        operator.shared.clone(),
        operator.clock.clone(),
        operator.shared.held_until(),
    );
    let error = operator.end().await.unwrap_err();
    assert!(matches!(error, LeaseError::Forbidden { .. }), "{error}");
    assert!(clock.monotonic() >= until.unwrap() && !shared.may_act(clock.monotonic()));
}

#[tokio::test]
async fn a_missing_namespace_is_told() {
    let api = Api::new();
    api.with(|server| server.next = VecDeque::from([Mood::Fine, Mood::Refuse(404, "NotFound")]));
    let error = Operator::start(&api, "one", STEADY).end().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot create lease usher: namespace home does not exist; `usher install` creates it, or set \
         --lease-namespace to one that exists"
    );
    assert_eq!(error.class(), ErrorClass::Permanent);
}

#[tokio::test]
async fn an_overloaded_or_restarting_server_is_asked_again() {
    let api = Api::new();
    let moods = [
        Mood::Refuse(503, "ServiceUnavailable"),
        Mood::Refuse(429, "TooManyRequests"),
        Mood::Hang,
    ];
    api.with(|server| server.next = VecDeque::from(moods));
    let operator = Operator::leading(&api, "one", STEADY).await;
    assert!(operator.may_act());
}

#[tokio::test]
async fn what_cannot_work_is_refused_before_anything_is_asked() {
    let api = Api::new();
    let (_stop, stopped) = watch::channel(false);
    let start = |config| {
        let clock = Arc::new(SystemClock::new());
        run(
            api.client(),
            config,
            SharedLeadership::never_held(),
            clock,
            stopped.clone(),
        )
    };
    let mut bad = config("one", STEADY);
    bad.timing.renew_every = bad.timing.duration;
    let error = start(bad).await.unwrap_err();
    assert!(error.to_string().contains("--lease-renew-ms"), "{error}");
    let error = start(config("", STEADY)).await.unwrap_err();
    assert!(error.to_string().contains("--identity"), "{error}");
    assert_eq!(error.class(), ErrorClass::Validation);
    assert!(api.with(|server| server.requests.is_empty()));
}

#[test]
fn an_empty_holder_is_none_and_a_duration_that_is_none_is_not_said() {
    let read = |spec: Value| {
        let lease = json!({"metadata": {"resourceVersion": "7"}, "spec": spec});
        super::view(&serde_json::from_value(lease).unwrap())
    };
    let seen = read(json!({"holderIdentity": "", "leaseDurationSeconds": 0}));
    assert_eq!((seen.holder, seen.duration_seconds, seen.transitions), (None, None, 0));
    let seen = read(json!({"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 3}));
    assert_eq!(
        (seen.holder.as_deref(), seen.duration_seconds, seen.transitions),
        (Some("a"), Some(15), 3)
    );
    assert_eq!(seen.rv, "7");
}
