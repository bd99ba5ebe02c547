//! How many pods may go (C8): the status of PodDisruptionBudgets, which evictions spend
//! ([`crate::registry`], `eviction`).
//!
//! [`count`] decides, from values; here the counts are written, and pods that were to go but did not are forgotten after
//! two minutes.

mod count;

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, OwnerReference, Time};
use serde_json::{Value, json};

use super::glimpse::{self, Glimpse};
use super::hand::{changed, name_of, place, reference, target, uid_of};
use super::{Census, Control, Hand, Next, Wishes, pods};
use crate::fault::{Fault, quote};
use crate::registry::{object, select};
use crate::store::{Entry, LogEntry};

pub(super) use count::disrupted;
use count::{Counts, Scale, count};

const COMPONENT: &str = "controllermanager";
/// Keys of budgets and of pods.
const BUDGET: &str = "budget/";
const POD: &str = "pod/";

/// Keys are `budget/namespace/name`, and `pod/namespace/name` for pods that were to go.
#[derive(Debug, Default)]
pub(super) struct Disruption;

/// A budget without a selector selects nothing.
fn selector(budget: &PodDisruptionBudget) -> Option<select::LabelSelector> {
    pods::selector(budget.spec.as_ref()?.selector.as_ref()?)
}

/// What a budget's status shows of a pod.
fn shown(pod: &Glimpse) -> (bool, bool, Option<&str>, &BTreeMap<String, String>) {
    (
        pod.is_ready(),
        pod.is_deleting(),
        pod.controller(),
        &pod.metadata.labels,
    )
}

fn see_pod(hand: &Hand, line: &LogEntry, wishes: &mut Wishes) {
    let (old, new) = glimpse::of_line(line);
    if new.as_ref().is_some_and(|pod| pod.doubtful_since().is_some()) {
        wishes.sync(format!("{POD}{}", glimpse::place(&line.key)));
    }
    if old.as_ref().map(shown) == new.as_ref().map(shown) {
        return;
    }
    for budget in hand.mirror.budgets.list(line.key.namespace()) {
        let Some(selector) = selector(&budget) else {
            continue;
        };
        if [&old, &new]
            .into_iter()
            .flatten()
            .any(|pod| selector.matches(&pod.metadata.labels))
        {
            wishes.sync(format!("{BUDGET}{}", place(&budget.metadata)));
        }
    }
}

impl Control for Disruption {
    fn begin(&mut self, hand: &Hand, state: &[Entry], _: &Census, wishes: &mut Wishes) {
        for (key, pod) in glimpse::of_state(state) {
            if pod.doubtful_since().is_some() {
                wishes.sync(format!("{POD}{key}"));
            }
        }
        for budget in hand.mirror.budgets.list(None) {
            wishes.sync(format!("{BUDGET}{}", place(&budget.metadata)));
        }
    }

    fn see(&mut self, hand: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        match (line.key.group(), line.key.resource()) {
            ("policy", "poddisruptionbudgets") => wishes.sync(format!("{BUDGET}{}", glimpse::place(&line.key))),
            ("", "pods") => see_pod(hand, line, wishes),
            _ => {}
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            if let Some((namespace, name)) = key.strip_prefix(BUDGET).and_then(|key| key.split_once('/')) {
                return sync_budget(hand, namespace, name).await;
            }
            if let Some((namespace, name)) = key.strip_prefix(POD).and_then(|key| key.split_once('/')) {
                return sync_pod(hand, namespace, name).await;
            }
            Ok(Next::Done)
        }
        .boxed()
    }
}

async fn sync_budget(hand: &Hand, namespace: &str, name: &str) -> Result<Next, Fault> {
    let Some(budget) = hand.mirror.budgets.get(Some(namespace), name) else {
        return Ok(Next::Done);
    };
    let mut pods = hand.mirror.pods.list(Some(namespace));
    let selector = selector(&budget);
    pods.retain(|pod| {
        selector
            .as_ref()
            .is_some_and(|selector| pods::selects(selector, &pod.metadata))
    });
    if pods.is_empty() {
        tell(hand, &budget, "Normal", "NoPods", "No matching pods found".to_owned()).await;
    }
    let now = hand.now();
    let counts = match count(&budget, &pods, |owner| scale_of(hand, namespace, owner), now) {
        Ok(counts) => counts,
        Err(why) => {
            let message = format!("Failed to calculate the number of expected pods: {why}");
            tell(hand, &budget, "Warning", "CalculateExpectedPodCountFailed", message).await;
            fail(hand, namespace, &budget, &why, now).await?;
            return Ok(Next::Done);
        }
    };
    if counts.has_unmanaged {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let message = format!(
            "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of \
             the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods \
             please set \".spec.minAvailable\" field of the PDB to an integer value.",
            spelt(selector)
        );
        tell(hand, &budget, "Warning", "UnmanagedPods", message).await;
    }
    for pod in &counts.late {
        // The reference names the namespace twice.
        let message = format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
        let about = reference(&**pod);
        hand.say(COMPONENT, about, "Warning", "NotDeleted", message).await;
    }
    write(hand, namespace, &budget, &counts, now).await?;
    Ok(counts.look_again.map_or(Next::Done, Next::At))
}

/// Writes the counts where they differ from what the status says.
async fn write(
    hand: &Hand,
    namespace: &str,
    budget: &PodDisruptionBudget,
    counts: &Counts,
    now: Timestamp,
) -> Result<(), Fault> {
    let generation = budget.metadata.generation.unwrap_or_default();
    let mut wanted = budget.clone();
    let status = wanted.status.get_or_insert_default();
    status.current_healthy = Some(counts.current_healthy);
    status.desired_healthy = Some(counts.desired_healthy);
    status.expected_pods = Some(counts.expected);
    status.disruptions_allowed = Some(counts.allowed());
    status.observed_generation = Some(generation);
    status.disrupted_pods = (!counts.disrupted.is_empty()).then(|| counts.disrupted.clone());
    let (word, reason) = match counts.allowed() {
        0 => ("False", "InsufficientPods"),
        _ => ("True", "SufficientPods"),
    };
    put(
        status.conditions.get_or_insert_default(),
        word,
        reason,
        "",
        generation,
        now,
    );
    if wanted.status == budget.status {
        return Ok(());
    }
    changed(
        hand.put(Some(namespace), name_of(&budget.metadata), "status", &wanted)
            .await,
    )
}

/// Nobody may go while it is not known how many may.
async fn fail(
    hand: &Hand,
    namespace: &str,
    budget: &PodDisruptionBudget,
    why: &str,
    now: Timestamp,
) -> Result<(), Fault> {
    let mut wanted = budget.clone();
    let status = wanted.status.get_or_insert_default();
    let generation = status.observed_generation.unwrap_or_default();
    status.disruptions_allowed = Some(0);
    for count in [
        &mut status.current_healthy,
        &mut status.desired_healthy,
        &mut status.expected_pods,
    ] {
        count.get_or_insert(0);
    }
    let conditions = status.conditions.get_or_insert_default();
    put(conditions, "False", "SyncFailed", why, generation, now);
    if wanted.status == budget.status {
        return Ok(());
    }
    changed(
        hand.put(Some(namespace), name_of(&budget.metadata), "status", &wanted)
            .await,
    )
}

/// Sets the condition; its time moves with its status alone.
fn put(conditions: &mut Vec<Condition>, word: &str, reason: &str, message: &str, generation: i64, now: Timestamp) {
    const KIND: &str = "DisruptionAllowed";
    let at = conditions.iter().position(|found| found.type_ == KIND);
    let before = at.and_then(|at| conditions.get(at));
    let time = match before {
        Some(found) if found.status == word => found.last_transition_time.clone(),
        _ => Time(now),
    };
    let condition = Condition {
        type_: KIND.to_owned(),
        status: word.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: (generation != 0).then_some(generation),
        last_transition_time: time,
    };
    match at.and_then(|at| conditions.get_mut(at)) {
        Some(found) => *found = condition,
        None => conditions.push(condition),
    }
}

/// Who controls a pod, and how many pods they want in all.
fn scale_of(hand: &Hand, namespace: &str, owner: &OwnerReference) -> Result<Option<Scale>, String> {
    let (group, _) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let scale = |uid: &str, replicas: Option<i32>| {
        Ok(Some(Scale {
            uid: uid.to_owned(),
            replicas: replicas.unwrap_or(1),
        }))
    };
    match (group, owner.kind.as_str()) {
        ("apps", "ReplicaSet") => {
            let Some(set) = hand.mirror.replica_sets.get(Some(namespace), &owner.name) else {
                return Ok(None);
            };
            if uid_of(&set.metadata) != owner.uid {
                return Ok(None);
            }
            let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
            match pods::controller_of(&set.metadata).filter(|above| above.kind == "Deployment") {
                None => scale(&owner.uid, replicas),
                Some(above) => {
                    let found = hand.mirror.deployments.get(Some(namespace), &above.name);
                    let found = found.filter(|found| uid_of(&found.metadata) == above.uid);
                    match found {
                        Some(found) => scale(&above.uid, found.spec.as_ref().and_then(|spec| spec.replicas)),
                        None => Ok(None),
                    }
                }
            }
        }
        ("apps", "StatefulSet") => {
            let found = hand.mirror.stateful_sets.get(Some(namespace), &owner.name);
            match found.filter(|found| uid_of(&found.metadata) == owner.uid) {
                Some(found) => scale(&owner.uid, found.spec.as_ref().and_then(|spec| spec.replicas)),
                None => Ok(None),
            }
        }
        _ => custom_scale(hand, namespace, group, owner),
    }
}

/// Of any other kind, by its subresource `scale`.
fn custom_scale(hand: &Hand, namespace: &str, group: &str, owner: &OwnerReference) -> Result<Option<Scale>, String> {
    let catalog = hand.catalog();
    let resource = catalog
        .iter()
        .find(|resource| &*resource.row.group == group && &*resource.row.kind == owner.kind.as_str());
    let found = resource.and_then(|resource| target(resource, Some(namespace), &owner.name));
    let Some(found) = found else {
        return Err(format!(
            "no matches for kind {} in version {}",
            quote(&owner.kind),
            quote(&owner.api_version)
        ));
    };
    if found.version.scale.is_none() {
        return Err(format!("{} does not implement the scale subresource", found.plural()));
    }
    match hand.registry.get_scale(&found) {
        Err(fault) if fault.code == 404 => Ok(None),
        Err(fault) => Err(fault.message),
        Ok(scale) if object::text(&scale, "uid") != owner.uid => Ok(None),
        Ok(scale) => {
            let replicas = object::at(&scale, "spec.replicas").and_then(Value::as_i64).unwrap_or(0);
            Ok(Some(Scale {
                uid: owner.uid.clone(),
                replicas: i32::try_from(replicas).unwrap_or(i32::MAX),
            }))
        }
    }
}

/// A pod that was to go two minutes ago and still is there does not go any more.
async fn sync_pod(hand: &Hand, namespace: &str, name: &str) -> Result<Next, Fault> {
    let Some(pod) = hand.mirror.pods.get(Some(namespace), name) else {
        return Ok(Next::Done);
    };
    let Some(when) = count::is_stale_after(&pod) else {
        return Ok(Next::Done);
    };
    let now = hand.now();
    if when > now {
        return Ok(Next::At(when));
    }
    let mut conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    disrupted(&mut conditions, "False", "", "", pod.metadata.generation, now);
    let target = hand.target_of::<Pod>(Some(namespace), name)?;
    let change = json!({
        "metadata": {"resourceVersion": pod.metadata.resource_version}, "status": {"conditions": conditions},
    });
    changed(hand.patch(&target, "status", change).await)?;
    Ok(Next::Done)
}

/// A selector as Go prints it.
fn spelt(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else {
        return "nil".to_owned();
    };
    let labels: String = selector
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| format!("{key}: {value},"))
        .collect();
    let expressions: String = selector
        .match_expressions
        .iter()
        .flatten()
        .map(|part| {
            let values = part.values.clone().unwrap_or_default().join(" ");
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
                part.key, part.operator
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

async fn tell(hand: &Hand, budget: &PodDisruptionBudget, kind: &str, reason: &str, message: String) {
    hand.say(COMPONENT, reference(budget), kind, reason, message).await;
}
