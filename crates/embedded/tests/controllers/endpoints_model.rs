//! Endpoints and slices against a naive model: whatever happened before, in the end they list the pods that the Service
//! selects, each once and in its state (C6).

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::{PODS, World};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

#[derive(Debug, Clone)]
enum Step {
    /// Pod, label, node.
    Make(usize, usize),
    Says(usize, bool),
    Label(usize, usize),
    Finish(usize),
    /// With the pod's grace, so that it stays for a while; or at once.
    Delete(usize, bool),
    /// Which Service selects which label.
    Select(usize, usize),
    Rest,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6_usize, 0..2_usize).prop_map(|(pod, label)| Step::Make(pod, label)),
        6 => (0..6_usize, any::<bool>()).prop_map(|(pod, ready)| Step::Says(pod, ready)),
        2 => (0..6_usize, 0..2_usize).prop_map(|(pod, label)| Step::Label(pod, label)),
        1 => (0..6_usize).prop_map(Step::Finish),
        2 => (0..6_usize, any::<bool>()).prop_map(|(pod, now)| Step::Delete(pod, now)),
        1 => (0..2_usize, 0..2_usize).prop_map(|(service, label)| Step::Select(service, label)),
        2 => Just(Step::Rest),
        1 => Just(Step::Restart),
    ]
}

#[derive(Debug, Clone)]
struct Pod {
    label: usize,
    ready: Option<bool>,
    is_finished: bool,
    is_going: bool,
}

fn path(pod: usize) -> String {
    format!("{PODS}/p{pod}")
}

fn play(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut world = World::new();
    world.node("n1", &json!({}));
    let mut selects = [0_usize, 1];
    for (service, label) in selects.iter().enumerate() {
        world.service(
            &format!("s{service}"),
            &json!({"selector": {"l": label.to_string()}, "ports": [{"port": 80}]}),
        );
    }
    let mut pods: BTreeMap<usize, Pod> = BTreeMap::new();
    for step in steps {
        match *step {
            Step::Make(pod, label) => {
                if let std::collections::btree_map::Entry::Vacant(place) = pods.entry(pod) {
                    world.pod(
                        &format!("p{pod}"),
                        &json!({"l": label.to_string()}),
                        &json!({"nodeName": "n1"}),
                    );
                    place.insert(Pod {
                        label,
                        ready: None,
                        is_finished: false,
                        is_going: false,
                    });
                }
            }
            Step::Says(pod, ready) => {
                if let Some(known) = pods.get_mut(&pod).filter(|known| !known.is_finished) {
                    world.pod_says(&format!("p{pod}"), &format!("10.0.0.{}", pod + 1), ready);
                    known.ready = Some(ready);
                }
            }
            Step::Label(pod, label) => {
                if let Some(known) = pods.get_mut(&pod) {
                    world.patch(&path(pod), &json!({"metadata": {"labels": {"l": label.to_string()}}}));
                    known.label = label;
                }
            }
            Step::Finish(pod) => {
                if let Some(known) = pods.get_mut(&pod) {
                    world.patch(
                        &format!("{}/status", path(pod)),
                        &json!({"status": {"phase": "Succeeded"}}),
                    );
                    known.is_finished = true;
                }
            }
            Step::Delete(pod, at_once) => {
                if let Some(known) = pods.get_mut(&pod) {
                    let seconds = if at_once { 0 } else { 30 };
                    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": seconds});
                    world.ok("DELETE", &path(pod), Some(&options));
                    known.is_going = true;
                    if world.get(&path(pod)).is_none() {
                        pods.remove(&pod);
                    }
                }
            }
            Step::Select(service, label) => {
                let change = json!({"spec": {"selector": {"l": label.to_string()}}});
                world.patch(&format!("/api/v1/namespaces/default/services/s{service}"), &change);
                selects[service] = label;
            }
            Step::Rest => world.rest(),
            Step::Restart => world.manual.restart_controllers(),
        }
        world.settle();
    }
    world.rest();
    for (service, label) in selects.iter().enumerate() {
        let mine: Vec<(usize, &Pod)> = pods
            .iter()
            .filter(|(_, pod)| pod.label == *label && pod.ready.is_some() && !pod.is_finished)
            .map(|(number, pod)| (*number, pod))
            .collect();
        check_endpoints(&world, service, &mine)?;
        check_slices(&world, service, &mine)?;
    }
    Ok(())
}

fn ip(pod: usize) -> String {
    format!("10.0.0.{}", pod + 1)
}

fn check_endpoints(world: &World, service: usize, pods: &[(usize, &Pod)]) -> Result<(), TestCaseError> {
    let endpoints = world.find(&format!("/api/v1/namespaces/default/endpoints/s{service}"));
    let listed = |field: &str| -> BTreeSet<String> {
        let subsets = endpoints["subsets"].as_array().cloned().unwrap_or_default();
        let all = subsets
            .iter()
            .flat_map(|subset| subset[field].as_array().cloned().unwrap_or_default());
        all.map(|address| address["ip"].as_str().unwrap().to_owned()).collect()
    };
    let wanted = |is_ready: bool| -> BTreeSet<String> {
        let all = pods
            .iter()
            .filter(|(_, pod)| !pod.is_going && pod.ready == Some(is_ready));
        all.map(|(number, _)| ip(*number)).collect()
    };
    prop_assert_eq!(listed("addresses"), wanted(true));
    prop_assert_eq!(listed("notReadyAddresses"), wanted(false));
    Ok(())
}

fn check_slices(world: &World, service: usize, pods: &[(usize, &Pod)]) -> Result<(), TestCaseError> {
    let slices = world.list(&format!("{SLICES}?labelSelector=kubernetes.io/service-name=s{service}"));
    prop_assert_eq!(slices.len(), 1);
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    for end in slices[0]["endpoints"].as_array().into_iter().flatten() {
        let before = found.insert(
            end["addresses"][0].as_str().unwrap().to_owned(),
            end["conditions"].clone(),
        );
        prop_assert_eq!(before, None, "listed twice");
    }
    let wanted: BTreeMap<String, Value> = pods
        .iter()
        .map(|(number, pod)| {
            let serving = pod.ready == Some(true);
            let conditions =
                json!({"ready": serving && !pod.is_going, "serving": serving, "terminating": pod.is_going});
            (ip(*number), conditions)
        })
        .collect();
    prop_assert_eq!(found, wanted);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn c6_endpoints_are_the_pods_that_the_service_selects(steps in prop::collection::vec(step(), 1..40)) {
        play(&steps)?;
    }
}
