//! How many writes workloads cost.

use crate::stage::{DEPLOYMENTS, PODS, Stage, deployment, name};

/// Writes of everybody, the kubelets' own included, until all pods of a Deployment are ready.
fn writes_until_ready(replicas: i32, settle_each: bool) -> u64 {
    let mut stage = Stage::new();
    let writes = |stage: &Stage| stage.world.manual.cluster().store_stats().writes;
    let before = writes(&stage);
    stage.world.post(DEPLOYMENTS, &deployment(replicas, "a:1"));
    stage.settle();
    for pod in stage.list(PODS) {
        stage.report(name(&pod), "Running", true);
        if settle_each {
            stage.settle();
        }
    }
    stage.settle();
    assert_eq!(stage.get(DEPLOYMENTS, "web")["status"]["availableReplicas"], replicas);
    writes(&stage) - before
}

#[test]
fn a_deployment_of_100_costs_few_writes_beside_those_of_its_pods() {
    // Three per pod are its own: created, bound, ready. Events about one set stop at 25.
    let at_once = writes_until_ready(100, false);
    assert!(at_once <= 300 + 25 + 10, "{at_once} writes");
    // The worst: each pod that becomes ready is counted by its set and by the deployment before the next one is.
    let one_by_one = writes_until_ready(100, true);
    assert!(one_by_one <= 5 * 100 + 25 + 10, "{one_by_one} writes");
}

#[test]
fn e3_nothing_is_written_when_nothing_is_to_be_done() {
    let mut stage = Stage::new();
    stage.world.post(DEPLOYMENTS, &deployment(3, "a:1"));
    stage.settle();
    stage.run();
    let writes = |stage: &Stage| stage.world.manual.cluster().store_stats().writes;
    let before = writes(&stage);
    stage.world.manual.restart_controllers();
    stage.settle();
    assert_eq!(writes(&stage), before);
}
