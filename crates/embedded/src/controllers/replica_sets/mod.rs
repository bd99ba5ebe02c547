//! As many pods of a template as a ReplicaSet says (C3).
//!
//! - [`plan`]: how many to make or which to take away, and the status: pure.
//! - [`victims`]: whom a smaller set gives up first.
//!
//! A sync that makes or deletes pods leaves the status to the next one, which their changes wake.

mod plan;
mod victims;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;

use super::batches::slow_start;
use super::hand::reference;
use super::ownership::{Controller, controller_reference};
use super::{Census, Control, Hand, Next, Wishes, pods, templates, workloads};
use crate::fault::Fault;
use crate::registry::object;
use crate::store::{Entry, LogEntry};

use plan::Step;

const COMPONENT: &str = "replicaset-controller";

#[derive(Debug, Default)]
pub(super) struct ReplicaSets;

impl Control for ReplicaSets {
    fn begin(&mut self, _: &Hand, state: &[Entry], _: &Census, wishes: &mut Wishes) {
        workloads::wake_all::<ReplicaSet>(state, wishes);
    }

    fn see(&mut self, hand: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        if workloads::wake_itself::<ReplicaSet>(line, wishes) {
            return;
        }
        if line.key.resource() == "pods" && line.key.group().is_empty() {
            workloads::wake_owners(line, &hand.mirror.replica_sets, selector, wishes);
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            let (namespace, name) = super::split(key);
            let Some(set) = hand.mirror.replica_sets.get(Some(namespace), name) else {
                return Ok(Next::Done);
            };
            let Some(selector) = selector(&set) else {
                return Ok(Next::Done);
            };
            let controller = Controller::new(&*set, selector);
            let all = hand.mirror.pods.list(Some(namespace));
            let terminating = all
                .iter()
                .filter(|pod| pods::is_controlled_by(&pod.metadata, controller.uid()))
                .filter(|pod| controller.selects(&pod.metadata) && plan::is_terminating(pod))
                .count();
            let active = all.into_iter().filter(|pod| pods::is_active(pod)).collect();
            let active = controller.claim(hand, active).await?;
            let (has_acted, result) = act(hand, &set, &active).await;
            if has_acted && result.is_ok() {
                return Ok(Next::Done);
            }
            let now = hand.now();
            let status = plan::status(&set, &active, terminating, result.as_ref().err(), now);
            if set.status.as_ref() != Some(&status) {
                let set = ReplicaSet {
                    status: Some(status),
                    ..(*set).clone()
                };
                hand.put(Some(namespace), name, "status", &set).await?;
            }
            result?;
            Ok(plan::next_available(&set, &active, now).map_or(Next::Done, Next::At))
        }
        .boxed()
    }
}

fn selector(set: &ReplicaSet) -> Option<crate::registry::select::LabelSelector> {
    pods::selector(&set.spec.as_ref()?.selector)
}

/// Makes or deletes pods; says whether any were.
async fn act(hand: &Hand, set: &ReplicaSet, active: &[Arc<Pod>]) -> (bool, Result<(), Fault>) {
    if pods::is_deleting(&set.metadata) {
        return (false, Ok(()));
    }
    let related = || related(hand, set);
    match plan::plan(set, active, related, hand.now()) {
        Step::Nothing => (false, Ok(())),
        Step::Make(count) => {
            let (made, result) = slow_start(vec![(); count], |()| make(hand, set)).await;
            (made.contains(&true), result)
        }
        Step::Delete(victims) => {
            let results = join_all(victims.iter().map(|pod| delete(hand, set, pod))).await;
            (true, results.into_iter().collect())
        }
    }
}

/// The pods of all sets that have the same controller.
fn related(hand: &Hand, set: &ReplicaSet) -> Vec<Arc<Pod>> {
    let Some(owner) = pods::controller_of(&set.metadata) else {
        return Vec::new();
    };
    let namespace = set.metadata.namespace.as_deref();
    let selectors: Vec<_> = hand
        .mirror
        .replica_sets
        .list(namespace)
        .iter()
        .filter(|set| pods::is_controlled_by(&set.metadata, &owner.uid))
        .filter_map(|set| selector(set))
        .collect();
    let mut pods = hand.mirror.pods.list(namespace);
    pods.retain(|pod| selectors.iter().any(|selector| pods::selects(selector, &pod.metadata)));
    pods
}

/// Makes one pod and says so. False: none can be made, because the namespace goes.
async fn make(hand: &Hand, set: &ReplicaSet) -> Result<bool, Fault> {
    let Some(template) = set.spec.as_ref().and_then(|spec| spec.template.as_ref()) else {
        return Ok(false);
    };
    let pod = templates::pod(template, controller_reference(set));
    match hand.make(set.metadata.namespace.as_deref(), &pod).await {
        Ok(outcome) => {
            let name = object::name(&outcome.object);
            tell(hand, set, "Normal", "SuccessfulCreate", format!("Created pod: {name}")).await;
            Ok(true)
        }
        Err(fault) if super::is_namespace_terminating(&fault) => Ok(false),
        Err(fault) => {
            let message = format!("Error creating: {}", fault.message);
            tell(hand, set, "Warning", "FailedCreate", message).await;
            Err(fault)
        }
    }
}

async fn delete(hand: &Hand, set: &ReplicaSet, pod: &Pod) -> Result<(), Fault> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let target = hand.target_of::<Pod>(pod.metadata.namespace.as_deref(), name)?;
    match hand
        .remove(&target, pod.metadata.uid.as_deref().unwrap_or_default(), None)
        .await
    {
        Ok(()) => {
            tell(hand, set, "Normal", "SuccessfulDelete", format!("Deleted pod: {name}")).await;
            Ok(())
        }
        Err(fault) => {
            let message = format!("Error deleting: {}", fault.message);
            tell(hand, set, "Warning", "FailedDelete", message).await;
            Err(fault)
        }
    }
}

async fn tell(hand: &Hand, set: &ReplicaSet, kind: &str, reason: &str, message: String) {
    hand.say(COMPONENT, reference(set), kind, reason, message).await;
}
