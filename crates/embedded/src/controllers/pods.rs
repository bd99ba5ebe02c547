//! What controllers ask of pods and of whoever owns them: ready, available, active, selected, controlled by whom.
//!
//! Pure questions on typed values, as the reference answers them. Used by everything that counts pods: workloads,
//! endpoints, disruption budgets.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};

use crate::registry::select;

/// The pod's condition of that type.
pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == kind)
}

/// Condition `Ready` is `True`.
pub(crate) fn is_pod_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Since when the pod is ready; `None` if it is not, or if nobody said since when.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|ready| ready.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Ready for at least that long.
pub(crate) fn is_pod_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    is_pod_ready(pod) && (min_ready_seconds <= 0 || available_at(pod, min_ready_seconds).is_some_and(|when| when <= now))
}

/// When a ready pod becomes, or became, available; `None` if it is not ready.
pub(crate) fn available_at(pod: &Pod, min_ready_seconds: i32) -> Option<Timestamp> {
    ready_since(pod)?
        .checked_add(SignedDuration::from_secs(i64::from(min_ready_seconds)))
        .ok()
}

/// `Pending`, `Running`, … ; empty before the API server has seen it.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// `Succeeded` or `Failed`: none of its containers runs again.
pub(crate) fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Neither finished nor told to go.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && !is_deleting(&pod.metadata)
}

pub(crate) fn is_deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// A selector as objects carry it, ready to be asked. `None` if it has a wrong shape, which selects nothing; an empty one
/// selects all.
pub(crate) fn selector(selector: &LabelSelector) -> Option<select::LabelSelector> {
    select::LabelSelector::from_object(&serde_json::to_value(selector).ok()?)
}

/// Whether the selector selects an object by its labels.
pub(crate) fn selects(selector: &select::LabelSelector, meta: &ObjectMeta) -> bool {
    match &meta.labels {
        Some(labels) => selector.matches(labels),
        None => selector.matches(&BTreeMap::new()),
    }
}

/// Whose the object is: the one owner that controls it.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .as_ref()?
        .iter()
        .find(|owner| owner.controller == Some(true))
}

/// Whether the object is controlled by the one with this uid.
pub(crate) fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller_of(meta).is_some_and(|owner| owner.uid == uid)
}
