//! One sync of a volume: free, reserved, bound, or left behind by its claim.

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::binding::{names, reserved, wants};
use super::{BOUND_BY_CONTROLLER, DRIVER, PROVISIONED_BY, PROVISIONER, folders, tell, unusable};
use crate::controllers::Hand;
use crate::controllers::hand::{annotation, changed, name_of, reference, uid_of};
use crate::fault::Fault;

fn phase(volume: &PersistentVolume) -> &str {
    let status = volume.status.as_ref();
    status.and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether we made it, and its folder.
fn is_ours(volume: &PersistentVolume) -> bool {
    let source = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    annotation(&volume.metadata, PROVISIONED_BY) == Some(PROVISIONER) && source.is_some_and(|csi| csi.driver == DRIVER)
}

pub(super) async fn sync(hand: &Hand, volume: &PersistentVolume) -> Result<(), Fault> {
    let name = name_of(&volume.metadata);
    let Some(to) = reserved(volume) else {
        return say(hand, volume, "Available").await;
    };
    let uid = to.uid.as_deref().unwrap_or_default();
    if uid.is_empty() {
        // By name alone: whoever comes with that name is bound by its own sync.
        return say(hand, volume, "Available").await;
    }
    let (namespace, of) = (to.namespace.as_deref(), to.name.as_deref().unwrap_or_default());
    let claim = hand
        .mirror
        .claims
        .get(namespace, of)
        .filter(|claim| uid_of(&claim.metadata) == uid);
    let Some(claim) = claim else {
        if phase(volume) != "Failed" {
            say(hand, volume, "Released").await?;
        }
        return reclaim(hand, volume).await;
    };
    debug_assert!(names(volume, namespace.unwrap_or_default(), of));
    let named = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_name.as_deref())
        .unwrap_or_default();
    if named.is_empty() {
        // The claim's own sync goes on.
        return Ok(());
    }
    if wants(&claim, name) {
        return say(hand, volume, "Bound").await;
    }
    // The claim has found another.
    if is_ours(volume) {
        say(hand, volume, "Released").await?;
        return reclaim(hand, volume).await;
    }
    unbind(hand, volume).await
}

/// Says in which phase a volume is.
pub(super) async fn say(hand: &Hand, volume: &PersistentVolume, wanted: &str) -> Result<(), Fault> {
    if phase(volume) == wanted {
        return Ok(());
    }
    let target = hand.target_of::<PersistentVolume>(None, name_of(&volume.metadata))?;
    let status = json!({"phase": wanted, "message": null, "reason": null, "lastPhaseTransitionTime": Time(hand.now())});
    changed(hand.patch(&target, "status", json!({"status": status})).await)
}

/// A volume that a controller reserved is free again; what a user reserved stays reserved for the name.
async fn unbind(hand: &Hand, volume: &PersistentVolume) -> Result<(), Fault> {
    let target = hand.target_of::<PersistentVolume>(None, name_of(&volume.metadata))?;
    let version = &volume.metadata.resource_version;
    let change = if annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_some() {
        json!({"metadata": {"resourceVersion": version, "annotations": {BOUND_BY_CONTROLLER: null}},
            "spec": {"claimRef": null}})
    } else {
        json!({"metadata": {"resourceVersion": version}, "spec": {"claimRef": {"uid": null}}})
    };
    changed(hand.patch(&target, "", change).await)?;
    say(hand, volume, "Available").await
}

/// What becomes of a volume that its claim has left: kept for whoever wants its data, or gone with it.
async fn reclaim(hand: &Hand, volume: &PersistentVolume) -> Result<(), Fault> {
    let policy = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    if policy != Some("Delete") || volume.metadata.deletion_timestamp.is_some() || !is_ours(volume) {
        return Ok(());
    }
    let name = name_of(&volume.metadata);
    if let Some(data) = hand.settings.data.get()
        && let Err(error) = folders::doom(data, name)
    {
        let fault = unusable(&folders::folder(data, name), &error);
        tell(
            hand,
            reference(volume),
            "Warning",
            "VolumeFailedDelete",
            fault.message.clone(),
        )
        .await;
        return Err(fault);
    }
    let target = hand.target_of::<PersistentVolume>(None, name)?;
    hand.remove(&target, uid_of(&volume.metadata), None).await
}
