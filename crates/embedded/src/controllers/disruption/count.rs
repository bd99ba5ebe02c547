//! The numbers of a budget: how many pods there should be, how many must be healthy, how many are, and how many may go.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::controllers::hand::name_of;
use crate::controllers::pods;
use crate::fault::quote;

/// How long an eviction may take until the pod counts again.
pub(super) const DELETION: SignedDuration = SignedDuration::from_secs(120);

/// Who owns pods, and how many it wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scale {
    pub(super) uid: String,
    pub(super) replicas: i32,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    pub(super) expected: i32,
    pub(super) desired_healthy: i32,
    pub(super) current_healthy: i32,
    /// Pods that were evicted and are still there, and when that was.
    pub(super) disrupted: BTreeMap<String, Time>,
    /// When the first of these counts again.
    pub(super) look_again: Option<Timestamp>,
    /// Pods that should be gone by now.
    pub(super) late: Vec<Arc<Pod>>,
    /// Pods that nobody owns, where owners decide.
    pub(super) has_unmanaged: bool,
}

impl Counts {
    /// A budget that has no pods lets none go: it may not have seen them yet.
    pub(super) fn allowed(&self) -> i32 {
        if self.expected <= 0 {
            return 0;
        }
        self.current_healthy.saturating_sub(self.desired_healthy).max(0)
    }
}

/// `scale` finds who controls a pod; `Err` says why it cannot be known.
pub(super) fn count(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    scale: impl Fn(&OwnerReference) -> Result<Option<Scale>, String>,
    now: Timestamp,
) -> Result<Counts, String> {
    let mut counts = Counts::default();
    let spec = budget.spec.as_ref();
    let most = spec.and_then(|spec| spec.max_unavailable.as_ref());
    let least = spec.and_then(|spec| spec.min_available.as_ref());
    match (most, least) {
        (Some(most), _) => {
            counts.expected = expected(pods, scale, &mut counts.has_unmanaged)?;
            counts.desired_healthy = counts.expected.saturating_sub(part(most, counts.expected)?).max(0);
        }
        (None, Some(IntOrString::Int(least))) => {
            counts.desired_healthy = *least;
            counts.expected = i32::try_from(pods.len()).unwrap_or(i32::MAX);
        }
        (None, Some(least)) => {
            counts.expected = expected(pods, scale, &mut counts.has_unmanaged)?;
            counts.desired_healthy = part(least, counts.expected)?;
        }
        (None, None) => {}
    }
    let known = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
    for pod in pods.iter().filter(|pod| !pods::is_deleting(&pod.metadata)) {
        let name = name_of(&pod.metadata);
        if let Some(since) = known.and_then(|known| known.get(name)) {
            let until = since.0.saturating_add(DELETION).unwrap_or(Timestamp::MAX);
            if until < now {
                counts.late.push(pod.clone());
            } else {
                counts.look_again = Some(counts.look_again.map_or(until, |other| other.min(until)));
                counts.disrupted.insert(name.to_owned(), since.clone());
                // At that very moment it counts again.
                if until > now {
                    continue;
                }
            }
        }
        counts.current_healthy += i32::from(pods::is_pod_ready(pod));
    }
    // A moment later it is late.
    counts.look_again = counts
        .look_again
        .map(|when| when.saturating_add(SignedDuration::from_millis(1)).unwrap_or(when));
    Ok(counts)
}

/// The sum over all who own one of the pods.
fn expected(
    pods: &[Arc<Pod>],
    scale: impl Fn(&OwnerReference) -> Result<Option<Scale>, String>,
    has_unmanaged: &mut bool,
) -> Result<i32, String> {
    let mut asked: BTreeMap<&str, ()> = BTreeMap::new();
    let mut known: BTreeMap<String, i32> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = pods::controller_of(&pod.metadata) else {
            *has_unmanaged = true;
            continue;
        };
        if asked.insert(&owner.uid, ()).is_some() {
            continue;
        }
        match scale(owner)? {
            Some(scale) => known.insert(scale.uid, scale.replicas),
            None => {
                let name = quote(name_of(&pod.metadata));
                return Err(format!("found no controllers for pod {name}"));
            }
        };
    }
    Ok(known
        .values()
        .fold(0_i32, |sum, replicas| sum.saturating_add(*replicas)))
}

/// A number, or so many of a hundred, rounded up.
fn part(value: &IntOrString, whole: i32) -> Result<i32, String> {
    match value {
        IntOrString::Int(number) => Ok(*number),
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<i64>().ok());
            let percent = percent.ok_or_else(|| {
                format!(
                    "invalid value for IntOrString: invalid type: string is not a percentage: {}",
                    quote(text)
                )
            })?;
            let part = (percent * i64::from(whole)).div_euclid(100)
                + i64::from((percent * i64::from(whole)).rem_euclid(100) != 0);
            Ok(i32::try_from(part).unwrap_or(i32::MAX))
        }
    }
}

/// When a pod that says it is to go, but is not told to, stops saying so; `None` if it does not say so.
pub(super) fn is_stale_after(pod: &Pod) -> Option<Timestamp> {
    let condition = pods::condition(pod, "DisruptionTarget")?;
    let is_kubelets = condition.reason.as_deref() == Some("TerminationByKubelet");
    if pods::is_deleting(&pod.metadata) || pods::is_finished(pod) || condition.status != "True" || is_kubelets {
        return None;
    }
    let since = condition.last_transition_time.as_ref()?.0;
    Some(since.saturating_add(DELETION).unwrap_or(Timestamp::MAX))
}

/// Sets the pod's condition `DisruptionTarget`; its time moves with its status alone.
pub(crate) fn disrupted(
    conditions: &mut Vec<PodCondition>,
    status: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    const KIND: &str = "DisruptionTarget";
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let mut condition = PodCondition {
        type_: KIND.to_owned(),
        status: status.to_owned(),
        reason: some(reason),
        message: some(message),
        observed_generation: generation,
        last_transition_time: Some(Time(now)),
        ..PodCondition::default()
    };
    match conditions.iter_mut().find(|found| found.type_ == KIND) {
        Some(found) => {
            if found.status == condition.status {
                condition.last_transition_time.clone_from(&found.last_transition_time);
            }
            *found = condition;
        }
        None => conditions.push(condition),
    }
}
