//! One sync of a claim: find or make its volume, reserve the volume, name it in the claim, say that both are bound.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use super::binding::{best, class_of, is_for, mismatch, names_no_class, reserved, selected_node, waits};
use super::{BIND_COMPLETED, BOUND_BY_CONTROLLER, growth, is_bound, provision, tell_claim, volume};
use crate::controllers::Hand;
use crate::controllers::hand::{annotation, changed, name_of, reference, uid_of};
use crate::controllers::protection::claims_of;
use crate::fault::{Fault, quote};
use crate::registry::object;

const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

pub(super) async fn sync(hand: &Hand, namespace: &str, claim: &PersistentVolumeClaim) -> Result<(), Fault> {
    if is_bound(claim) {
        return bound(hand, namespace, claim).await;
    }
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
    match named.filter(|name| !name.is_empty()) {
        None => unbound(hand, namespace, claim).await,
        Some(name) => match hand.mirror.volumes.get(None, &name) {
            None => say_pending(hand, namespace, claim).await,
            Some(volume) => asked(hand, namespace, claim, &volume).await,
        },
    }
}

/// A claim that takes what it gets.
async fn unbound(hand: &Hand, namespace: &str, claim: &PersistentVolumeClaim) -> Result<(), Fault> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let class = hand.mirror.classes.get(None, class_of(claim));
    let waits = waits(class.as_deref());
    let volumes = hand.mirror.volumes.list(None);
    if let Some(volume) = best(claim, &volumes, waits) {
        return bind(hand, namespace, claim, volume).await;
    }
    if names_no_class(claim)
        && let Some(default) = default_class(hand)
    {
        let change = json!({"metadata": {"resourceVersion": claim.metadata.resource_version},
            "spec": {"storageClassName": default}});
        return patch(hand, namespace, claim, "", change).await;
    }
    if waits && selected_node(claim).is_none() {
        let (reason, message) = what_it_waits_for(hand, namespace, claim);
        tell_claim(hand, claim, "Normal", reason, message).await;
    } else if !class_of(claim).is_empty() {
        return provision::provision(hand, namespace, claim, class.as_deref()).await;
    } else {
        let message = "no persistent volumes available for this claim and no storage class is set";
        tell_claim(hand, claim, "Normal", "FailedBinding", message).await;
    }
    say_pending(hand, namespace, claim).await
}

fn what_it_waits_for(hand: &Hand, namespace: &str, claim: &PersistentVolumeClaim) -> (&'static str, String) {
    let pods: Vec<String> = hand
        .mirror
        .pods
        .list(Some(namespace))
        .iter()
        .filter(|pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            node.unwrap_or_default().is_empty() && claims_of(pod).any(|name| name == name_of(&claim.metadata))
        })
        .map(|pod| name_of(&pod.metadata).to_owned())
        .collect();
    match pods.as_slice() {
        [] => (
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding".to_owned(),
        ),
        [pod] => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
        pods => (
            "WaitForPodScheduled",
            format!("waiting for pods {} to be scheduled", pods.join(",")),
        ),
    }
}

/// The newest of the default classes; of those of one second, the first by name.
fn default_class(hand: &Hand) -> Option<String> {
    let mut classes = hand.mirror.classes.list(None);
    classes.retain(|class| {
        let says = |key: &&str| annotation(&class.metadata, key) == Some("true");
        DEFAULT_CLASS.iter().any(says)
    });
    classes
        .into_iter()
        .max_by_key(|class| {
            let created = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (created, std::cmp::Reverse(name_of(&class.metadata).to_owned()))
        })
        .map(|class| name_of(&class.metadata).to_owned())
}

/// A claim that names its volume.
async fn asked(
    hand: &Hand,
    namespace: &str,
    claim: &PersistentVolumeClaim,
    volume: &Arc<PersistentVolume>,
) -> Result<(), Fault> {
    let name = quote(name_of(&volume.metadata));
    match reserved(volume) {
        None => match mismatch(volume, claim) {
            None => bind(hand, namespace, claim, volume).await,
            Some(why) => {
                let message = format!("Cannot bind to requested volume {name}: {why}");
                tell_claim(hand, claim, "Warning", "VolumeMismatch", message).await;
                say_pending(hand, namespace, claim).await
            }
        },
        Some(_) if is_for(volume, claim) => bind(hand, namespace, claim, volume).await,
        Some(_) => {
            let message = format!("volume {name} already bound to a different claim.");
            tell_claim(hand, claim, "Warning", "FailedBinding", message).await;
            say_pending(hand, namespace, claim).await
        }
    }
}

/// A claim that has been bound stays so, or has lost its volume.
async fn bound(hand: &Hand, namespace: &str, claim: &PersistentVolumeClaim) -> Result<(), Fault> {
    let name = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_name.clone())
        .unwrap_or_default();
    if name.is_empty() {
        let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
        return lose(hand, namespace, claim, "ClaimLost", message).await;
    }
    let Some(volume) = hand.mirror.volumes.get(None, &name) else {
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return lose(hand, namespace, claim, "ClaimLost", message).await;
    };
    match reserved(&volume) {
        Some(to) if to.uid.as_deref() != Some(uid_of(&claim.metadata)) => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            lose(hand, namespace, claim, "ClaimMisbound", message).await
        }
        _ => {
            bind(hand, namespace, claim, &volume).await?;
            growth::grow(hand, namespace, claim, &volume).await
        }
    }
}

/// Every step that is still to be done; what was written is seen in the next sync, which does the next one.
async fn bind(
    hand: &Hand,
    namespace: &str,
    claim: &PersistentVolumeClaim,
    volume: &Arc<PersistentVolume>,
) -> Result<(), Fault> {
    let was_for_it = is_for(volume, claim);
    if reserved(volume).and_then(|to| to.uid.as_deref()) != Some(uid_of(&claim.metadata)) {
        let mut change = json!({"metadata": {"resourceVersion": volume.metadata.resource_version},
            "spec": {"claimRef": reference(claim)}});
        if !was_for_it {
            object::set_at(&mut change, "metadata.annotations", json!({BOUND_BY_CONTROLLER: "yes"}));
        }
        let target = hand.target_of::<PersistentVolume>(None, name_of(&volume.metadata))?;
        return changed(hand.patch(&target, "", change).await);
    }
    volume::say(hand, volume, "Bound").await?;
    let named = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_name.as_deref())
        .unwrap_or_default();
    if named != name_of(&volume.metadata) || !is_bound(claim) {
        let mut annotations = serde_json::Map::new();
        annotations.insert(BIND_COMPLETED.to_owned(), "yes".into());
        if named.is_empty() {
            annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".into());
        }
        let change = json!({
            "metadata": {"resourceVersion": claim.metadata.resource_version, "annotations": annotations},
            "spec": {"volumeName": volume.metadata.name},
        });
        return patch(hand, namespace, claim, "", change).await;
    }
    if phase(claim) != "Bound" {
        let spec = volume.spec.as_ref();
        let status = json!({
            "phase": "Bound",
            "accessModes": spec.and_then(|spec| spec.access_modes.clone()),
            "capacity": spec.and_then(|spec| spec.capacity.clone()),
        });
        return patch(hand, namespace, claim, "status", json!({"status": status})).await;
    }
    Ok(())
}

fn phase(claim: &PersistentVolumeClaim) -> &str {
    let status = claim.status.as_ref();
    status.and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

async fn say_pending(hand: &Hand, namespace: &str, claim: &PersistentVolumeClaim) -> Result<(), Fault> {
    match phase(claim) {
        "Pending" => Ok(()),
        _ => {
            patch(
                hand,
                namespace,
                claim,
                "status",
                json!({"status": {"phase": "Pending"}}),
            )
            .await
        }
    }
}

async fn lose(
    hand: &Hand,
    namespace: &str,
    claim: &PersistentVolumeClaim,
    reason: &str,
    message: &str,
) -> Result<(), Fault> {
    if phase(claim) == "Lost" {
        return Ok(());
    }
    let change = json!({"status": {"phase": "Lost", "accessModes": null, "capacity": null}});
    patch(hand, namespace, claim, "status", change).await?;
    tell_claim(hand, claim, "Warning", reason, message).await;
    Ok(())
}

pub(super) async fn patch(
    hand: &Hand,
    namespace: &str,
    claim: &PersistentVolumeClaim,
    subresource: &str,
    change: Value,
) -> Result<(), Fault> {
    let target = hand.target_of::<PersistentVolumeClaim>(Some(namespace), name_of(&claim.metadata))?;
    changed(hand.patch(&target, subresource, change).await)
}
