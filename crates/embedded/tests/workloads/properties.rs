//! What holds whatever happens: limits of rollouts (C4), order of stateful pods (C5).

use std::collections::BTreeSet;

use futures::FutureExt;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::stage::{DEPLOYMENTS, PODS, STATEFUL, Stage, deployment, is_deleting, is_ended, is_ready, name, stateful_set};

#[derive(Debug, Clone)]
enum Move {
    Image(u8),
    Scale(i32),
    /// One of the pods that wait becomes ready.
    Ready(usize),
    /// One of the pods that are ready is not any more.
    Break(usize),
    /// One of the pods ends by itself.
    End(usize),
    /// Pods that go are gone.
    Bury,
    Pause(bool),
    Kill,
}

fn calm_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        1 => (1_u8..4).prop_map(Move::Image),
        6 => (0_usize..8).prop_map(Move::Ready),
        2 => Just(Move::Bury),
        1 => Just(Move::Kill),
    ]
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => calm_move(),
        1 => (0_i32..5).prop_map(Move::Scale),
        1 => (0_usize..8).prop_map(Move::Break),
        1 => (0_usize..8).prop_map(Move::End),
        1 => any::<bool>().prop_map(Move::Pause),
    ]
}

fn image(version: u8) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": format!("a:{version}")}]}}}})
}

/// One of those that it fits, by chance.
fn pick(pods: Vec<Value>, chance: usize, fits: fn(&Value) -> bool) -> Option<String> {
    let fitting: Vec<&Value> = pods.iter().filter(|pod| fits(pod)).collect();
    Some(name(fitting.get(chance % fitting.len().max(1))?).to_owned())
}

/// Makes a move; the controllers have not run yet.
fn make(stage: &mut Stage, kind: &str, workload: &str, step: &Move) {
    let path = format!("{kind}/{workload}");
    let living = |pod: &Value| !is_deleting(pod) && !is_ended(pod);
    match step {
        Move::Image(version) => drop(stage.world.patch(&path, &image(*version))),
        Move::Scale(replicas) => drop(stage.world.patch(&path, &json!({"spec": {"replicas": replicas}}))),
        Move::Pause(paused) if kind == DEPLOYMENTS => {
            drop(stage.world.patch(&path, &json!({"spec": {"paused": paused}})));
        }
        Move::Pause(_) => {}
        Move::Ready(chance) => {
            let waits = |pod: &Value| !is_deleting(pod) && !is_ended(pod) && !is_ready(pod);
            if let Some(pod) = pick(stage.list(PODS), *chance, waits) {
                stage.report(&pod, "Running", true);
            }
        }
        Move::Break(chance) => {
            if let Some(pod) = pick(stage.list(PODS), *chance, living) {
                stage.report(&pod, "Running", false);
            }
        }
        Move::End(chance) => {
            if let Some(pod) = pick(stage.list(PODS), *chance, living) {
                stage.report(&pod, "Failed", false);
            }
        }
        Move::Bury => {
            for pod in stage.list(PODS).iter().filter(|pod| is_deleting(pod)) {
                let now = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
                stage.world.ask("DELETE", &format!("{PODS}/{}", name(pod)), Some(&now));
            }
        }
        Move::Kill => stage.world.manual.restart_controllers(),
    }
}

fn count(stage: &Stage, fits: fn(&Value) -> bool) -> usize {
    stage.list(PODS).iter().filter(|pod| fits(pod)).count()
}

fn rolling(replicas: usize, surge: usize, unavailable: usize) -> Stage {
    let mut stage = Stage::new();
    let mut web = deployment(i32::try_from(replicas).unwrap(), "a:1");
    web["spec"]["strategy"] = json!({"type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
    stage.world.post(DEPLOYMENTS, &web);
    stage.settle();
    stage.run();
    stage
}

/// Of a set, in whichever order: the ordinals that are there, by uid.
fn ordinals(stage: &Stage) -> BTreeSet<(i32, String)> {
    stage
        .list(PODS)
        .iter()
        .map(|pod| {
            let ordinal = name(pod).strip_prefix("db-").unwrap().parse().unwrap();
            (ordinal, pod["metadata"]["uid"].as_str().unwrap().to_owned())
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn c4_a_rollout_never_has_too_few_available_or_too_many_pods(
        replicas in 1_usize..6,
        surge in 0_usize..3,
        unavailable in 0_usize..3,
        moves in prop::collection::vec(calm_move(), 1..25),
    ) {
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
        let mut stage = rolling(replicas, surge, unavailable);
        for step in &moves {
            make(&mut stage, DEPLOYMENTS, "web", step);
            stage.settle();
            let available = count(&stage, |pod| is_ready(pod) && !is_deleting(pod));
            let all = count(&stage, |pod| !is_deleting(pod));
            prop_assert!(available >= replicas.saturating_sub(unavailable), "{available} available after {step:?}\n{}", stage.picture());
            prop_assert!(all <= replicas + surge, "{all} pods after {step:?}\n{}", stage.picture());
        }
        stage.run();
        prop_assert_eq!(count(&stage, is_ready), replicas);
        let images: BTreeSet<String> = stage.list(PODS).iter().map(|pod| pod["spec"]["containers"][0]["image"].to_string()).collect();
        prop_assert_eq!(images.len(), 1);
    }

    #[test]
    fn c4_whatever_happens_a_deployment_comes_to_what_it_says(moves in prop::collection::vec(any_move(), 1..25)) {
        let mut stage = rolling(3, 1, 1);
        for step in &moves {
            make(&mut stage, DEPLOYMENTS, "web", step);
            stage.settle();
        }
        stage.patch(DEPLOYMENTS, "web", json!({"spec": {"paused": false}}));
        stage.run();
        let web = stage.get(DEPLOYMENTS, "web");
        let wanted = web["spec"]["replicas"].as_i64().unwrap();
        let status = &web["status"];
        for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
            prop_assert_eq!(status[field].as_i64().unwrap_or_default(), wanted, "{}: {}", field, web);
        }
        let living = stage.list(PODS).iter().filter(|pod| !is_ended(pod)).count();
        prop_assert_eq!(i64::try_from(living).unwrap(), wanted);
        let reason = status["conditions"].as_array().unwrap().iter()
            .find(|condition| condition["type"] == "Progressing")
            .map(|condition| condition["reason"].clone());
        prop_assert_eq!(reason, Some(json!("NewReplicaSetAvailable")));
    }

    #[test]
    fn c5_an_ordered_set_makes_nobody_before_all_below_are_ready_and_takes_one_at_a_time(
        moves in prop::collection::vec(any_move(), 1..25),
        ends_early in any::<bool>(),
    ) {
        let mut stage = Stage::new();
        stage.world.post(STATEFUL, &stateful_set(3, "a:1"));
        for step in &moves {
            if !(ends_early && matches!(step, Move::Break(_) | Move::End(_))) {
                make(&mut stage, STATEFUL, "db", step);
            }
            // One sync at a time: what each of them did is looked at.
            while let Some(work) = stage.world.manual.ready().into_iter().next() {
                let before = stage.list(PODS);
                let there = ordinals(&stage);
                stage.world.manual.run(&work.id).now_or_never().unwrap();
                let after = ordinals(&stage);
                let numbers: BTreeSet<i32> = after.iter().map(|(ordinal, _)| *ordinal).collect();
                prop_assert_eq!(numbers.len(), after.len(), "two of one ordinal");
                for (ordinal, _) in after.difference(&there) {
                    for below in 0..*ordinal {
                        let pod = before.iter().find(|pod| name(pod) == format!("db-{below}"));
                        prop_assert!(pod.is_some_and(|pod| is_ready(pod) && !is_deleting(pod)), "db-{ordinal} came before db-{below} was ready");
                    }
                }
                let going = |pods: &[Value]| pods.iter().filter(|pod| is_deleting(pod)).count();
                prop_assert!(going(&stage.list(PODS)) <= going(&before) + 1);
            }
        }
        stage.run();
        let wanted = stage.get(STATEFUL, "db")["spec"]["replicas"].as_i64().unwrap();
        let names: Vec<String> = (0..wanted).map(|ordinal| format!("db-{ordinal}")).collect();
        prop_assert_eq!(stage.pod_names(), names);
        prop_assert_eq!(count(&stage, is_ready), usize::try_from(wanted).unwrap());
        let status = stage.get(STATEFUL, "db")["status"].clone();
        prop_assert_eq!(&status["currentRevision"], &status["updateRevision"]);
        prop_assert_eq!(status["availableReplicas"].as_i64().unwrap_or_default(), wanted);
    }
}
