//! Pods that have a number, a name and claims of their own (C5).
//!
//! - [`plan`]: one step, as a pure function of the set, its pods and claims. [`identity`]: who the pods are. [`claims`]:
//!   what they keep, and who owns that. Their templates are kept in [`super::revisions`].
//!
//! A sync that makes or deletes pods leaves the status to the next one, which their changes wake.

mod claims;
mod identity;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::batches::slow_start;
use super::hand::reference;
use super::ownership::{Claim, Controller};
use super::revisions::{self, Choice};
use super::{Census, Control, Hand, Next, Wishes, pods, workloads};
use crate::fault::Fault;
use crate::store::{Entry, Kind, LogEntry};

use claims::Lacking;
use identity::{Revision, name};
use plan::{Plan, Seen, Step};

const COMPONENT: &str = "statefulset-controller";

#[derive(Debug, Default)]
pub(super) struct StatefulSets;

impl Control for StatefulSets {
    fn begin(&mut self, _: &Hand, state: &[Entry], _: &Census, wishes: &mut Wishes) {
        workloads::wake_all::<StatefulSet>(state, wishes);
    }

    fn see(&mut self, hand: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        let key = &line.key;
        if workloads::wake_itself::<StatefulSet>(line, wishes) || !key.group().is_empty() {
            return;
        }
        if key.resource() == "pods" {
            workloads::wake_owners(line, &hand.mirror.stateful_sets, selector, wishes);
        } else if key.resource() == "persistentvolumeclaims" && line.kind == Kind::Delete {
            // A pod may wait for it to be gone.
            for set in hand.mirror.stateful_sets.list(key.namespace()) {
                let has_claims = set
                    .spec
                    .as_ref()
                    .is_some_and(|spec| spec.volume_claim_templates.is_some());
                if has_claims && key.name().contains(name(&set.metadata)) {
                    wishes.sync(super::work_key(key.namespace(), name(&set.metadata)));
                }
            }
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            let (namespace, name) = super::split(key);
            match hand.mirror.stateful_sets.get(Some(namespace), name) {
                Some(set) => sync(hand, namespace, &set).await,
                None => Ok(Next::Done),
            }
        }
        .boxed()
    }
}

fn selector(set: &StatefulSet) -> Option<crate::registry::select::LabelSelector> {
    pods::selector(&set.spec.as_ref()?.selector)
}

async fn sync(hand: &Hand, namespace: &str, set: &StatefulSet) -> Result<Next, Fault> {
    let Some(selector) = selector(set) else {
        return Ok(Next::Done);
    };
    let controller = Controller::new(set, selector);
    let mut history = hand.mirror.revisions.list(Some(namespace));
    // Nobody releases a revision.
    history.retain(|revision| matches!(controller.judge(&revision.metadata), Claim::Ours | Claim::Adopt));
    let mut history = controller.claim(hand, history).await?;
    revisions::sort(&mut history);
    let mut pods = hand.mirror.pods.list(Some(namespace));
    pods.retain(|pod| identity::ordinal(set, pod).is_some());
    let pods = controller.claim(hand, pods).await?;

    let Some(update) = newest(hand, set, &mut history).await? else {
        // The name is another's: the next sync finds one that nobody has.
        return Ok(Next::Done);
    };
    let before = set
        .status
        .as_ref()
        .and_then(|status| status.current_revision.as_deref());
    let current = history
        .iter()
        .find(|revision| revision.metadata.name.as_deref() == before)
        .unwrap_or(&update);
    let (Some(current), Some(update)) = (revision(current), revision(&update)) else {
        return Err(Fault::internal(format!(
            "a ControllerRevision of the StatefulSet {namespace}/{} holds no template: delete it",
            name(&set.metadata)
        )));
    };
    let plan = plan::plan(&Seen {
        set,
        pods: &pods,
        current: &current,
        update: &update,
        claims: &|claim: &str| hand.mirror.claims.get(Some(namespace), claim),
        now: hand.now(),
    });
    let next = act(hand, set, plan).await?;
    let is_used = |name: &str| {
        name == current.name || name == update.name || pods.iter().any(|pod| identity::revision(pod) == name)
    };
    let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit);
    for old in revisions::surplus(&history, is_used, limit) {
        let target = hand.target_of::<ControllerRevision>(Some(namespace), name(&old.metadata))?;
        hand.remove(&target, old.metadata.uid.as_deref().unwrap_or_default(), None)
            .await?;
    }
    Ok(next)
}

fn revision(revision: &ControllerRevision) -> Option<Revision> {
    Some(Revision {
        name: name(&revision.metadata).to_owned(),
        template: revisions::template(revision)?,
    })
}

/// The revision of the set's template, which is in its history then. `None`: its name was taken, and the set has noted so.
async fn newest(
    hand: &Hand,
    set: &StatefulSet,
    history: &mut Vec<Arc<ControllerRevision>>,
) -> Result<Option<Arc<ControllerRevision>>, Fault> {
    let namespace = set.metadata.namespace.as_deref();
    let before = set.status.clone().unwrap_or_default();
    let collisions = before.collision_count.unwrap_or_default();
    let written = match revisions::choose(set, history, collisions) {
        Choice::Newest(found) => return Ok(Some(found)),
        Choice::Again(revision) => {
            hand.put(namespace, name(&revision.metadata), "", &revision).await?;
            history.retain(|other| other.metadata.uid != revision.metadata.uid);
            revision
        }
        Choice::Make(revision) => {
            if hand.mirror.revisions.get(namespace, name(&revision.metadata)).is_some() {
                let mut after = set.clone();
                after.status.get_or_insert_default().collision_count = Some(collisions + 1);
                hand.put(namespace, name(&set.metadata), "status", &after).await?;
                return Ok(None);
            }
            hand.make(namespace, &revision).await?;
            revision
        }
    };
    let written = Arc::new(written);
    history.push(written.clone());
    Ok(Some(written))
}

async fn act(hand: &Hand, set: &StatefulSet, plan: Plan) -> Result<Next, Fault> {
    let Plan {
        steps,
        status,
        look_again,
    } = plan;
    let (done, result) = if plan::is_ordered(set) {
        let mut done = Vec::new();
        let mut result = Ok(());
        for step in steps {
            match take(hand, set, step).await {
                Ok(has_moved) => done.push(has_moved),
                Err(fault) => {
                    result = Err(fault);
                    break;
                }
            }
        }
        (done, result)
    } else {
        slow_start(steps, |step| take(hand, set, step)).await
    };
    let has_moved = done.contains(&true);
    if !(has_moved && result.is_ok()) && set.status.as_ref() != Some(&status) {
        let after = StatefulSet {
            status: Some(status),
            ..set.clone()
        };
        let namespace = set.metadata.namespace.as_deref();
        hand.put(namespace, name(&set.metadata), "status", &after).await?;
    }
    result?;
    Ok(look_again.map_or(Next::Done, Next::At))
}

/// Takes one step. True: a pod came or goes, which wakes the set again.
async fn take(hand: &Hand, set: &StatefulSet, step: Step) -> Result<bool, Fault> {
    match step {
        Step::Make(pod, lacking) => {
            let pod_name = name(&pod.metadata).to_owned();
            let made = match fill(hand, set, &pod_name, &lacking).await {
                Ok(()) => hand.make(set.metadata.namespace.as_deref(), &*pod).await.map(|_| ()),
                Err(fault) => Err(fault),
            };
            match made {
                // Somebody else's pod of that name, or one that was seen too late.
                Err(fault) if fault.reason == "AlreadyExists" => Err(fault),
                made => {
                    tell_of_pod(hand, set, "Create", &pod_name, made.as_ref().err()).await;
                    made?;
                    own(hand, set, &lacking).await?;
                    Ok(true)
                }
            }
        }
        Step::Fill(pod, lacking) => {
            fill(hand, set, name(&pod.metadata), &lacking).await?;
            own(hand, set, &lacking).await?;
            Ok(false)
        }
        Step::Mend(pod, lacking) => {
            let pod_name = name(&pod.metadata).to_owned();
            let mended = async {
                fill(hand, set, &pod_name, &lacking).await?;
                own(hand, set, &lacking).await?;
                let namespace = set.metadata.namespace.as_deref();
                hand.put(namespace, &pod_name, "", &*pod).await.map(|_| ())
            }
            .await;
            tell_of_pod(hand, set, "Update", &pod_name, mended.as_ref().err()).await;
            mended?;
            Ok(false)
        }
        Step::Own(lacking) => {
            own(hand, set, &lacking).await?;
            Ok(false)
        }
        Step::Delete(pod) => {
            let pod_name = name(&pod.metadata);
            let target = hand.target_of::<Pod>(pod.metadata.namespace.as_deref(), pod_name)?;
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            let deleted = hand.remove(&target, uid, None).await;
            tell_of_pod(hand, set, "Delete", pod_name, deleted.as_ref().err()).await;
            deleted?;
            Ok(true)
        }
    }
}

/// Makes the claims that are missing.
async fn fill(hand: &Hand, set: &StatefulSet, pod: &str, lacking: &Lacking) -> Result<(), Fault> {
    let set_name = name(&set.metadata);
    for claim in &lacking.missing {
        let claim_name = name(&claim.metadata);
        let made = hand.make(set.metadata.namespace.as_deref(), claim).await;
        match made {
            Ok(_) => {
                let message = format!("Create Claim {claim_name} Pod {pod} in StatefulSet {set_name} success");
                tell(hand, set, "Normal", "SuccessfulCreate", message).await;
            }
            Err(mut fault) => {
                if fault.reason != "AlreadyExists" {
                    let message = format!(
                        "Create Claim {claim_name} for Pod {pod} in StatefulSet {set_name} failed error: {}",
                        fault.message
                    );
                    tell(hand, set, "Warning", "FailedCreate", message).await;
                }
                fault.message = format!("failed to create PVC {claim_name}: {}", fault.message);
                // Not the pod's own.
                fault.reason = "InternalError".into();
                return Err(fault);
            }
        }
    }
    match lacking.leaving.first() {
        Some(claim) => Err(Fault::new(409, "Conflict", format!("pvc {claim} is being deleted"))),
        None => Ok(()),
    }
}

/// Writes the owners of claims.
async fn own(hand: &Hand, set: &StatefulSet, lacking: &Lacking) -> Result<(), Fault> {
    for claim in &lacking.foreign {
        let message = format!(
            "PersistentVolumeClaim {claim} has a conflicting OwnerReference that acts as a manging controller, the \
             retention policy is ignored for this claim"
        );
        tell(hand, set, "Warning", "ConflictingController", message).await;
    }
    for claim in &lacking.owned {
        let (namespace, name) = (claim.metadata.namespace.as_deref(), name(&claim.metadata));
        hand.put::<PersistentVolumeClaim>(namespace, name, "", claim).await?;
    }
    Ok(())
}

async fn tell_of_pod(hand: &Hand, set: &StatefulSet, verb: &str, pod: &str, fault: Option<&Fault>) {
    let set_name = name(&set.metadata);
    match fault {
        None => {
            let message = format!("{verb} Pod {pod} in StatefulSet {set_name} successful");
            tell(hand, set, "Normal", &format!("Successful{verb}"), message).await;
        }
        Some(fault) => {
            let message = format!(
                "{verb} Pod {pod} in StatefulSet {set_name} failed error: {}",
                fault.message
            );
            tell(hand, set, "Warning", &format!("Failed{verb}"), message).await;
        }
    }
}

async fn tell(hand: &Hand, set: &StatefulSet, kind: &str, reason: &str, message: String) {
    hand.say(COMPONENT, reference(set), kind, reason, message).await;
}
