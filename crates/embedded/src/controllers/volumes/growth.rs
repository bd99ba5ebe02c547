//! Claims that want more than they have (C7): given at once, or, where the class says `offlineResize: "true"`, when the next
//! pod starts that uses the claim.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::binding::{class_of, request, storage};
use super::claim::patch;
use super::{DRIVER, STORAGE, tell};
use crate::controllers::Hand;
use crate::controllers::hand::{changed, name_of, reference};
use crate::controllers::protection::claims_of;
use crate::fault::Fault;

const PENDING: &str = "FileSystemResizePending";
const OFFLINE: &str = "offlineResize";

fn pending(claim: &PersistentVolumeClaim) -> Option<&PersistentVolumeClaimCondition> {
    let conditions = claim.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == PENDING && condition.status == "True")
}

/// Whether it waits for a pod to start.
pub(super) fn is_pending(claim: &PersistentVolumeClaim) -> bool {
    pending(claim).is_some()
}

pub(super) async fn grow(
    hand: &Hand,
    namespace: &str,
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
) -> Result<(), Fault> {
    let status = claim.status.as_ref();
    let is_bound = status.and_then(|status| status.phase.as_deref()) == Some("Bound");
    let is_ours = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.csi.as_ref())
        .is_some_and(|csi| csi.driver == DRIVER);
    let wanted = storage(request(claim));
    if !is_bound || !is_ours || wanted <= storage(status.and_then(|status| status.capacity.as_ref())) {
        return Ok(());
    }
    let text = request(claim)
        .and_then(|request| request.get(STORAGE))
        .cloned()
        .unwrap_or_default();
    if storage(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref())) < wanted {
        let target = hand.target_of::<PersistentVolume>(None, name_of(&volume.metadata))?;
        let change = json!({"metadata": {"resourceVersion": volume.metadata.resource_version},
            "spec": {"capacity": {STORAGE: text}}});
        // The claim's turn comes when that is seen.
        return changed(hand.patch(&target, "", change).await);
    }
    let class = hand.mirror.classes.get(None, class_of(claim));
    let parameters = class.as_ref().and_then(|class| class.parameters.as_ref());
    let is_offline = parameters.and_then(|given| given.get(OFFLINE)).map(String::as_str) == Some("true");
    let mut conditions = status.and_then(|status| status.conditions.clone()).unwrap_or_default();
    if is_offline && !has_started(hand, namespace, claim) {
        if is_pending(claim) {
            return Ok(());
        }
        conditions.retain(|condition| condition.type_ != PENDING);
        conditions.push(PersistentVolumeClaimCondition {
            type_: PENDING.to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(Time(hand.now())),
            message: Some(
                "Waiting for user to (re-)start a pod to finish file system resize of volume on node.".to_owned(),
            ),
            ..PersistentVolumeClaimCondition::default()
        });
        let change = json!({"status": {"conditions": conditions}});
        patch(hand, namespace, claim, "status", change).await?;
        let message = "Require file system resize of volume on node".to_owned();
        tell(hand, reference(claim), "Normal", "FileSystemResizeRequired", message).await;
        return Ok(());
    }
    conditions.retain(|condition| condition.type_ != PENDING);
    let conditions = if conditions.is_empty() { None } else { Some(conditions) };
    let change = json!({"status": {"capacity": {STORAGE: text}, "conditions": conditions}});
    patch(hand, namespace, claim, "status", change).await?;
    let message = format!(
        "ExpandVolume succeeded for volume {namespace}/{}",
        name_of(&claim.metadata)
    );
    tell(hand, reference(claim), "Normal", "VolumeResizeSuccessful", message).await;
    Ok(())
}

/// Whether a pod that uses the claim has started since the claim began to wait for one.
fn has_started(hand: &Hand, namespace: &str, claim: &PersistentVolumeClaim) -> bool {
    let Some(since) = pending(claim).and_then(|condition| condition.last_transition_time.as_ref()) else {
        return false;
    };
    hand.mirror.pods.list(Some(namespace)).iter().any(|pod| {
        let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        claims_of(pod).any(|name| name == name_of(&claim.metadata))
            && started.is_some_and(|started| started.0 > since.0)
    })
}
