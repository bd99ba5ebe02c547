//! Claims and volumes that are in use do not go (C7): their finalizers leave when nobody uses them any more.

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::hand::{changed, name_of, place};
use super::{Census, Control, Hand, Next, Wishes};
use crate::fault::Fault;
use crate::store::{Entry, LogEntry};

const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// Keys.
const CLAIM: &str = "claim/";
const VOLUME: &str = "volume/";

/// Keys are `claim/namespace/name` and `volume/name`.
#[derive(Debug, Default)]
pub(super) struct Protection;

/// The claims that a pod uses by name.
pub(super) fn claims_of(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    volumes
        .unwrap_or_default()
        .iter()
        .filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
}

/// A pod uses its claims from when it has a node until it is gone.
pub(super) fn is_used(claim: &PersistentVolumeClaim, pods: &[std::sync::Arc<Pod>]) -> bool {
    pods.iter().any(|pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.is_some_and(|node| !node.is_empty()) && claims_of(pod).any(|name| name == name_of(&claim.metadata))
    })
}

/// What is to become of a finalizer.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Added,
    Removed,
    AsIs,
}

fn wanted(meta: &ObjectMeta, finalizer: &str, is_used: bool) -> Wanted {
    let has = meta.finalizers.iter().flatten().any(|found| found == finalizer);
    match (meta.deletion_timestamp.is_some(), has) {
        (true, true) if !is_used => Wanted::Removed,
        (false, false) => Wanted::Added,
        _ => Wanted::AsIs,
    }
}

fn change(meta: &ObjectMeta, finalizer: &str, is_used: bool) -> Option<Value> {
    let mut finalizers = meta.finalizers.clone().unwrap_or_default();
    match wanted(meta, finalizer, is_used) {
        Wanted::AsIs => return None,
        Wanted::Added => finalizers.push(finalizer.to_owned()),
        Wanted::Removed => finalizers.retain(|found| found != finalizer),
    }
    Some(json!({"metadata": {"resourceVersion": meta.resource_version, "finalizers": finalizers}}))
}

impl Control for Protection {
    fn begin(&mut self, hand: &Hand, _: &[Entry], _: &Census, wishes: &mut Wishes) {
        for claim in hand.mirror.claims.list(None) {
            wishes.sync(format!("{CLAIM}{}", place(&claim.metadata)));
        }
        for volume in hand.mirror.volumes.list(None) {
            wishes.sync(format!("{VOLUME}{}", name_of(&volume.metadata)));
        }
    }

    fn see(&mut self, hand: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        let namespace = line.key.namespace();
        let name = line.key.name();
        match (line.key.group(), line.key.resource()) {
            ("", "persistentvolumeclaims") => {
                wishes.sync(format!("{CLAIM}{}/{name}", namespace.unwrap_or_default()));
            }
            ("", "persistentvolumes") => wishes.sync(format!("{VOLUME}{name}")),
            // Who has gone may have been the last to use a claim.
            ("", "pods") if line.entry().is_none() => {
                for claim in hand.mirror.claims.list(namespace) {
                    if claim.metadata.deletion_timestamp.is_some() {
                        wishes.sync(format!("{CLAIM}{}", place(&claim.metadata)));
                    }
                }
            }
            _ => {}
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            if let Some((namespace, name)) = key.strip_prefix(CLAIM).and_then(|key| key.split_once('/')) {
                let Some(claim) = hand.mirror.claims.get(Some(namespace), name) else {
                    return Ok(Next::Done);
                };
                let pods = match claim.metadata.deletion_timestamp {
                    Some(_) => hand.mirror.pods.list(Some(namespace)),
                    None => Vec::new(),
                };
                if let Some(change) = change(&claim.metadata, CLAIM_PROTECTION, is_used(&claim, &pods)) {
                    let target = hand.target_of::<PersistentVolumeClaim>(Some(namespace), name)?;
                    changed(hand.patch(&target, "", change).await)?;
                }
            } else if let Some(name) = key.strip_prefix(VOLUME)
                && let Some(volume) = hand.mirror.volumes.get(None, name)
            {
                let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
                if let Some(change) = change(&volume.metadata, VOLUME_PROTECTION, phase == Some("Bound")) {
                    let target = hand.target_of::<PersistentVolume>(None, name)?;
                    changed(hand.patch(&target, "", change).await)?;
                }
            }
            Ok(Next::Done)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c7_a_finalizer_stays_while_somebody_uses_the_object() {
        let meta = |is_deleting: bool, has: bool| -> ObjectMeta {
            let mut meta = json!({"name": "c", "finalizers": if has { vec!["f"] } else { vec![] }});
            if is_deleting {
                meta["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            serde_json::from_value(meta).unwrap()
        };
        for (is_deleting, has, is_used, expected) in [
            (false, true, false, Wanted::AsIs),
            (false, false, false, Wanted::Added),
            (false, false, true, Wanted::Added),
            (true, true, true, Wanted::AsIs),
            (true, true, false, Wanted::Removed),
            (true, false, false, Wanted::AsIs),
        ] {
            let found = wanted(&meta(is_deleting, has), "f", is_used);
            assert_eq!(found, expected, "deleting {is_deleting}, has {has}, used {is_used}");
        }
    }
}
