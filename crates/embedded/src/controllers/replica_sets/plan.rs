//! What a ReplicaSet needs, and what it says of itself.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::victims;
use crate::controllers::{count, pods, some_count, this_second};
use crate::fault::Fault;

/// The most pods that one sync makes or deletes: the reference's number.
const BURST: usize = 500;
const REPLICA_FAILURE: &str = "ReplicaFailure";

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Nothing,
    Make(usize),
    Delete(Vec<Arc<Pod>>),
}

/// Told to go, and still running.
pub(super) fn is_terminating(pod: &Pod) -> bool {
    pods::is_deleting(&pod.metadata) && !pods::is_finished(pod)
}

fn wanted(set: &ReplicaSet) -> usize {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    usize::try_from(replicas).unwrap_or_default()
}

/// What brings the set's active pods to the number wanted. `related`: those that victims are spread against.
pub(super) fn plan(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    related: impl FnOnce() -> Vec<Arc<Pod>>,
    now: Timestamp,
) -> Step {
    let wanted = wanted(set);
    match active.len() {
        count if count < wanted => Step::Make((wanted - count).min(BURST)),
        count if count > wanted => {
            let surplus = (count - wanted).min(BURST);
            Step::Delete(victims::choose(active, &related(), surplus, now))
        }
        _ => Step::Nothing,
    }
}

/// The status after a sync that found these pods and, if so, failed.
pub(super) fn status(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    terminating: usize,
    failure: Option<&Fault>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let before = set.status.clone().unwrap_or_default();
    let spec = set.spec.as_ref();
    let labels = spec
        .and_then(|spec| spec.template.as_ref()?.metadata.as_ref()?.labels.clone())
        .unwrap_or_default();
    let has_labels = |pod: &Pod| {
        labels
            .iter()
            .all(|(key, value)| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)) == Some(value))
    };
    let min_ready = min_ready_seconds(set);
    let number = |holds: &dyn Fn(&Pod) -> bool| active.iter().filter(|pod| holds(pod)).count();
    let mut conditions = before.conditions.unwrap_or_default();
    let has_failed = conditions.iter().any(|condition| condition.type_ == REPLICA_FAILURE);
    match failure {
        Some(fault) if !has_failed => conditions.push(ReplicaSetCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: match active.len().cmp(&wanted(set)) {
                std::cmp::Ordering::Less => Some("FailedCreate".to_owned()),
                std::cmp::Ordering::Greater => Some("FailedDelete".to_owned()),
                std::cmp::Ordering::Equal => None,
            },
            message: Some(fault.message.clone()),
            last_transition_time: Some(Time(this_second(now))),
        }),
        Some(_) => {}
        None => conditions.retain(|condition| condition.type_ != REPLICA_FAILURE),
    }
    ReplicaSetStatus {
        replicas: count(active.len()),
        fully_labeled_replicas: some_count(number(&has_labels)),
        ready_replicas: some_count(number(&pods::is_pod_ready)),
        available_replicas: some_count(number(&|pod| pods::is_pod_available(pod, min_ready, now))),
        terminating_replicas: Some(count(terminating)),
        observed_generation: set.metadata.generation,
        conditions: (!conditions.is_empty()).then_some(conditions),
    }
}

/// When the next pod that is ready becomes available.
pub(super) fn next_available(set: &ReplicaSet, active: &[Arc<Pod>], now: Timestamp) -> Option<Timestamp> {
    let min_ready = min_ready_seconds(set);
    active
        .iter()
        .filter_map(|pod| pods::available_at(pod, min_ready))
        .filter(|when| *when > now)
        .min()
}

fn min_ready_seconds(set: &ReplicaSet) -> i32 {
    set.spec
        .as_ref()
        .and_then(|spec| spec.min_ready_seconds)
        .unwrap_or_default()
}
