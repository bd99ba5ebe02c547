//! Deployments (C4): one ReplicaSet per template, and a way from the old to the new one.
//!
//! - [`plan`]: one step, as a pure function of the deployment and its sets. [`sets`]: those, with revisions and notes.
//!   [`limits`]: how many there may be and must be. [`status`]: numbers and conditions.
//!
//! A sync writes what the plan says: sets first, the deployment's status last, so that the status never says more than is
//! done.

mod limits;
mod plan;
mod sets;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::hand::reference;
use super::ownership::{self, Controller};
use super::{Census, Control, Hand, Next, Wishes, pods, workloads};
use crate::fault::Fault;
use crate::store::{Entry, Kind, LogEntry};

use plan::{Plan, Seen};
use sets::Set;
use status::Progress;

const COMPONENT: &str = "deployment-controller";

#[derive(Debug, Default)]
pub(super) struct Deployments;

impl Control for Deployments {
    fn begin(&mut self, _: &Hand, state: &[Entry], _: &Census, wishes: &mut Wishes) {
        workloads::wake_all::<Deployment>(state, wishes);
    }

    fn see(&mut self, hand: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        let key = &line.key;
        let namespace = key.namespace();
        if workloads::wake_itself::<Deployment>(line, wishes) {
            return;
        }
        if key.resource() == "replicasets" && key.group() == "apps" {
            workloads::wake_owners(line, &hand.mirror.deployments, selector, wishes);
        } else if key.resource() == "pods" && key.group().is_empty() && line.kind == Kind::Delete {
            // Recreate waits for the last old pod.
            for set in ownership::concerned(line, "ReplicaSet").controllers {
                let set = hand.mirror.replica_sets.get(namespace, &set);
                let owner = set.as_ref().and_then(|set| pods::controller_of(&set.metadata));
                if let Some(owner) = owner.filter(|owner| owner.kind == "Deployment") {
                    wishes.sync(super::work_key(namespace, &owner.name));
                }
            }
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            let (namespace, name) = super::split(key);
            match hand.mirror.deployments.get(Some(namespace), name) {
                Some(deployment) => sync(hand, namespace, &deployment).await,
                None => Ok(Next::Done),
            }
        }
        .boxed()
    }
}

fn selector(deployment: &Deployment) -> Option<crate::registry::select::LabelSelector> {
    pods::selector(&deployment.spec.as_ref()?.selector)
}

async fn sync(hand: &Hand, namespace: &str, deployment: &Deployment) -> Result<Next, Fault> {
    let Some(selector) = selector(deployment) else {
        return Ok(Next::Done);
    };
    if deployment
        .spec
        .as_ref()
        .is_some_and(|spec| spec.selector == LabelSelector::default())
    {
        return selects_all(hand, deployment).await;
    }
    let controller = Controller::new(deployment, selector);
    let all = hand.mirror.replica_sets.list(Some(namespace));
    let sets = controller.claim(hand, all).await?;
    let taken = |name: &str| hand.mirror.replica_sets.get(Some(namespace), name).is_some();
    let busy = busy(hand, namespace, deployment);
    let plan = plan::plan(Seen {
        deployment,
        sets,
        taken: &taken,
        busy: &busy,
        now: hand.now(),
    });
    act(hand, deployment, plan).await
}

/// The sets that still have pods; only who recreates asks.
fn busy(hand: &Hand, namespace: &str, deployment: &Deployment) -> BTreeSet<String> {
    if limits::Limits::of(deployment).is_rolling {
        return BTreeSet::new();
    }
    let pods = hand.mirror.pods.list(Some(namespace));
    pods.iter()
        .filter(|pod| !pods::is_finished(pod))
        .filter_map(|pod| pods::controller_of(&pod.metadata))
        .map(|owner| owner.uid.clone())
        .collect()
}

async fn selects_all(hand: &Hand, deployment: &Deployment) -> Result<Next, Fault> {
    let message = "This deployment is selecting all pods. A non-empty selector is required.";
    tell(hand, deployment, "Warning", "SelectingAll", message.to_owned()).await;
    let mut status = deployment.status.clone().unwrap_or_default();
    if status.observed_generation < deployment.metadata.generation {
        status.observed_generation = deployment.metadata.generation;
        write_status(hand, deployment, None, status).await?;
    }
    Ok(Next::Done)
}

async fn act(hand: &Hand, deployment: &Deployment, plan: Plan) -> Result<Next, Fault> {
    for set in &plan.sets {
        write_set(hand, deployment, set).await?;
    }
    for set in &plan.forgotten {
        let meta = &set.metadata;
        let target =
            hand.target_of::<ReplicaSet>(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())?;
        hand.remove(&target, meta.uid.as_deref().unwrap_or_default(), None)
            .await?;
    }
    write_status(hand, deployment, plan.revision, plan.status).await?;
    Ok(plan.look_again.map_or(Next::Done, Next::At))
}

async fn write_set(hand: &Hand, deployment: &Deployment, set: &Set) -> Result<(), Fault> {
    let namespace = set.object.metadata.namespace.as_deref();
    if !set.is_made {
        hand.put(namespace, set.name(), "", &set.object).await?;
    } else if let Err(fault) = hand.make(namespace, &set.object).await {
        // A name that was taken meanwhile is seen the next time; where everything goes, nothing is missing.
        if fault.reason != "AlreadyExists" && !super::is_namespace_terminating(&fault) {
            not_made(hand, deployment, set, &fault).await?;
        }
        return Err(fault);
    }
    for (from, to) in &set.scaled {
        let way = if from < to { "up" } else { "down" };
        let message = format!("Scaled {way} replica set {} from {from} to {to}", set.name());
        tell(hand, deployment, "Normal", "ScalingReplicaSet", message).await;
    }
    Ok(())
}

async fn not_made(hand: &Hand, deployment: &Deployment, set: &Set, fault: &Fault) -> Result<(), Fault> {
    let message = format!("Failed to create new replica set \"{}\": {}", set.name(), fault.message);
    if status::deadline_seconds(deployment).is_some() {
        let mut status = deployment.status.clone().unwrap_or_default();
        status::put_progress(&mut status, Progress::Failed, message.clone(), hand.now());
        write_status(hand, deployment, None, status).await?;
    }
    tell(hand, deployment, "Warning", "ReplicaSetCreateError", message).await;
    Ok(())
}

/// Writes the status, and the revision with it, if either is new.
async fn write_status(
    hand: &Hand,
    deployment: &Deployment,
    revision: Option<String>,
    status: k8s_openapi::api::apps::v1::DeploymentStatus,
) -> Result<(), Fault> {
    let mut after = Deployment {
        status: Some(status),
        ..deployment.clone()
    };
    if let Some(revision) = revision {
        let annotations = after.metadata.annotations.get_or_insert_default();
        annotations.insert(sets::REVISION.to_owned(), revision);
    }
    if after == *deployment {
        return Ok(());
    }
    let meta = &deployment.metadata;
    hand.put(
        meta.namespace.as_deref(),
        meta.name.as_deref().unwrap_or_default(),
        "status",
        &after,
    )
    .await
    .map(|_| ())
}

async fn tell(hand: &Hand, deployment: &Deployment, kind: &str, reason: &str, message: String) {
    hand.say(COMPONENT, reference(deployment), kind, reason, message).await;
}
