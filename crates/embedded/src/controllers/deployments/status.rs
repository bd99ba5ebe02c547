//! What a deployment says of itself: numbers and conditions, with the reference's reasons and messages.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::limits::Limits;
use super::sets::Set;
use crate::controllers::this_second;

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Why a deployment is or is not progressing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Created,
    Found,
    Failed,
    Updated,
    Complete,
    TimedOut,
    Paused,
    Resumed,
}

impl Progress {
    fn reason(self) -> &'static str {
        match self {
            Self::Created => "NewReplicaSetCreated",
            Self::Found => "FoundNewReplicaSet",
            Self::Failed => "ReplicaSetCreateError",
            Self::Updated => "ReplicaSetUpdated",
            Self::Complete => "NewReplicaSetAvailable",
            Self::TimedOut => "ProgressDeadlineExceeded",
            Self::Paused => "DeploymentPaused",
            Self::Resumed => "DeploymentResumed",
        }
    }

    fn status(self) -> &'static str {
        match self {
            Self::Created | Self::Found | Self::Updated | Self::Complete => "True",
            Self::Failed | Self::TimedOut => "False",
            Self::Paused | Self::Resumed => "Unknown",
        }
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: String, now: Timestamp) -> DeploymentCondition {
    let now = Time(this_second(now));
    DeploymentCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(now.clone()),
        last_transition_time: Some(now),
    }
}

fn get<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    let mut all = status.conditions.iter().flatten();
    all.find(|condition| condition.type_ == kind)
}

fn remove(status: &mut DeploymentStatus, kind: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != kind);
        if conditions.is_empty() {
            status.conditions = None;
        }
    }
}

/// Puts a condition last, unless it says what was said before.
fn put(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    if let Some(before) = get(status, &condition.type_)
        && before.status == condition.status
    {
        if before.reason == condition.reason {
            return;
        }
        condition.last_transition_time = before.last_transition_time.clone();
    }
    remove(status, &condition.type_);
    status.conditions.get_or_insert_default().push(condition);
}

/// Says how it progresses.
pub(super) fn put_progress(status: &mut DeploymentStatus, progress: Progress, message: String, now: Timestamp) {
    put(
        status,
        condition(PROGRESSING, progress.status(), progress.reason(), message, now),
    );
}

pub(super) fn has_progress(status: &DeploymentStatus, progress: Progress) -> bool {
    get(status, PROGRESSING).is_some_and(|condition| condition.reason.as_deref() == Some(progress.reason()))
}

pub(super) fn has_any_progress(status: &DeploymentStatus) -> bool {
    get(status, PROGRESSING).is_some()
}

/// The deadline, unless there is none.
pub(super) fn deadline_seconds(deployment: &Deployment) -> Option<i32> {
    let seconds = deployment.spec.as_ref()?.progress_deadline_seconds?;
    (seconds != i32::MAX).then_some(seconds)
}

/// The numbers, and whether enough are available. `before` has the conditions so far.
pub(super) fn counted(
    deployment: &Deployment,
    before: &DeploymentStatus,
    limits: Limits,
    new: Option<&Set>,
    old: &[Set],
    now: Timestamp,
) -> DeploymentStatus {
    let sum = |number: fn(&Set) -> i32| -> i32 { old.iter().chain(new).map(number).sum() };
    let some = |number: i32| (number > 0).then_some(number);
    let available = sum(Set::available);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(sum(Set::actual)),
        updated_replicas: some(new.map_or(0, Set::actual)),
        ready_replicas: some(sum(Set::ready)),
        available_replicas: some(available),
        unavailable_replicas: some(sum(Set::replicas) - available),
        terminating_replicas: terminating(old.iter().chain(new)),
        collision_count: before.collision_count,
        conditions: before.conditions.clone(),
    };
    let (is_available, reason, message) = if available >= limits.least_available() {
        (
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    put(
        &mut status,
        condition(AVAILABLE, is_available, reason, message.to_owned(), now),
    );
    status
}

/// The sum of those that say it; unknown if one was seen to and does not.
fn terminating<'a>(sets: impl Iterator<Item = &'a Set>) -> Option<i32> {
    let mut sum = 0;
    for set in sets {
        let status = set.object.status.as_ref();
        match status.and_then(|status| status.terminating_replicas) {
            Some(count) => sum += count,
            None if status.and_then(|status| status.observed_generation).unwrap_or_default() == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}

/// All pods are new ones, and available.
pub(super) fn is_complete(deployment: &Deployment, limits: Limits, status: &DeploymentStatus) -> bool {
    let is_all = |number: Option<i32>| number.unwrap_or_default() == limits.replicas;
    is_all(status.updated_replicas)
        && is_all(status.replicas)
        && is_all(status.available_replicas)
        && status.observed_generation.unwrap_or_default() >= deployment.metadata.generation.unwrap_or_default()
}

/// More new ones, fewer old ones, more that are ready or available than before.
fn is_progressing(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let number = |number: Option<i32>| number.unwrap_or_default();
    let old = |status: &DeploymentStatus| number(status.replicas) - number(status.updated_replicas);
    number(after.updated_replicas) > number(before.updated_replicas)
        || old(after) < old(before)
        || number(after.ready_replicas) > number(before.ready_replicas)
        || number(after.available_replicas) > number(before.available_replicas)
}

/// When the deployment will have made no progress for too long; `None` if that is no question.
fn deadline(deployment: &Deployment, status: &DeploymentStatus) -> Option<Timestamp> {
    let seconds = SignedDuration::from_secs(i64::from(deadline_seconds(deployment)?));
    let last = get(status, PROGRESSING)?.last_update_time.as_ref()?.0;
    last.checked_add(seconds).ok()
}

/// The status while it rolls out, and when to look again whether it still progresses.
pub(super) fn rolling(
    deployment: &Deployment,
    before: &DeploymentStatus,
    limits: Limits,
    new: Option<&Set>,
    old: &[Set],
    now: Timestamp,
) -> (DeploymentStatus, Option<Timestamp>) {
    let mut status = counted(deployment, before, limits, new, old, now);
    let subject = match new {
        Some(set) => format!("ReplicaSet \"{}\"", set.name()),
        None => format!(
            "Deployment \"{}\"",
            deployment.metadata.name.as_deref().unwrap_or_default()
        ),
    };
    let was_complete = status.replicas.unwrap_or_default() == status.updated_replicas.unwrap_or_default()
        && has_progress(before, Progress::Complete);
    let is_complete = is_complete(deployment, limits, &status);
    if deadline_seconds(deployment).is_none() {
        remove(&mut status, PROGRESSING);
    } else if was_complete {
        // Nothing rolls out: this is about something else.
    } else if is_complete {
        let message = format!("{subject} has successfully progressed.");
        put_progress(&mut status, Progress::Complete, message, now);
    } else if is_progressing(before, &status) {
        // Each step of progress is dated.
        let since = get(&status, PROGRESSING)
            .filter(|condition| condition.status == "True")
            .and_then(|condition| condition.last_transition_time.clone());
        remove(&mut status, PROGRESSING);
        let progress = Progress::Updated;
        let message = format!("{subject} is progressing.");
        let mut step = condition(PROGRESSING, progress.status(), progress.reason(), message, now);
        step.last_transition_time = since.or(step.last_transition_time);
        put(&mut status, step);
    } else if has_timed_out(deployment, &status, now) {
        let message = format!("{subject} has timed out progressing.");
        put_progress(&mut status, Progress::TimedOut, message, now);
    }
    match failure(new, old) {
        Some(failure) => put(&mut status, failure),
        None => remove(&mut status, REPLICA_FAILURE),
    }
    let is_over = is_complete || has_progress(&status, Progress::TimedOut) || has_progress(&status, Progress::Complete);
    // A second later: the deadline must have passed, and statuses know no smaller unit.
    let look_again = deadline(deployment, &status)
        .filter(|_| !is_over)
        .and_then(|when| when.checked_add(SignedDuration::from_secs(1)).ok())
        .map(|when| when.max(now));
    (status, look_again)
}

fn has_timed_out(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> bool {
    if has_progress(status, Progress::Complete) {
        return false;
    }
    has_progress(status, Progress::TimedOut) || deadline(deployment, status).is_some_and(|when| when < now)
}

/// The failure of the new set, or else of an old one.
fn failure(new: Option<&Set>, old: &[Set]) -> Option<DeploymentCondition> {
    new.into_iter().chain(old).find_map(|set| {
        let conditions = set.object.status.as_ref()?.conditions.as_ref()?;
        let failure = conditions.iter().find(|condition| condition.type_ == REPLICA_FAILURE)?;
        Some(DeploymentCondition {
            type_: failure.type_.clone(),
            status: failure.status.clone(),
            reason: failure.reason.clone(),
            message: failure.message.clone(),
            last_update_time: failure.last_transition_time.clone(),
            last_transition_time: failure.last_transition_time.clone(),
        })
    })
}
