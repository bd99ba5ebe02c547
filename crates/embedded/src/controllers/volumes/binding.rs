//! Which volume a claim gets: one that was made or reserved for it, else the smallest that does.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

use super::{SELECTED_NODE, STORAGE};
use crate::controllers::hand::{annotation, name_of, uid_of};
use crate::controllers::pods;
use crate::kinds::quantity::Quantity;

const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

type Capacity = std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

pub(super) fn storage(amounts: Option<&Capacity>) -> Quantity {
    let text = amounts.and_then(|amounts| amounts.get(STORAGE));
    text.and_then(|text| Quantity::parse(&text.0).ok())
        .unwrap_or(Quantity::ZERO)
}

/// What a claim asks for.
pub(super) fn request(claim: &PersistentVolumeClaim) -> Option<&Capacity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()
}

pub(super) fn class_of(claim: &PersistentVolumeClaim) -> &str {
    annotation(&claim.metadata, OLD_CLASS)
        .or_else(|| claim.spec.as_ref()?.storage_class_name.as_deref())
        .unwrap_or_default()
}

/// Whether a claim left it open which class it gets.
pub(super) fn names_no_class(claim: &PersistentVolumeClaim) -> bool {
    annotation(&claim.metadata, OLD_CLASS).is_none()
        && claim.spec.as_ref().is_none_or(|spec| spec.storage_class_name.is_none())
}

fn class_of_volume(volume: &PersistentVolume) -> &str {
    annotation(&volume.metadata, OLD_CLASS)
        .or_else(|| volume.spec.as_ref()?.storage_class_name.as_deref())
        .unwrap_or_default()
}

/// Whether a claim waits until a pod that uses it has a node.
pub(super) fn waits(class: Option<&StorageClass>) -> bool {
    class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"))
}

pub(super) fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(&claim.metadata, SELECTED_NODE).filter(|node| !node.is_empty())
}

/// Whom a volume is reserved for.
pub(super) fn reserved(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// Whether a volume is reserved for a claim of this name.
pub(super) fn names(volume: &PersistentVolume, namespace: &str, name: &str) -> bool {
    reserved(volume).is_some_and(|to| to.namespace.as_deref() == Some(namespace) && to.name.as_deref() == Some(name))
}

/// Whether a claim is bound to, or asks for, a volume of this name.
pub(super) fn wants(claim: &PersistentVolumeClaim, volume: &str) -> bool {
    claim
        .spec
        .as_ref()
        .is_some_and(|spec| spec.volume_name.as_deref() == Some(volume))
}

/// Whether a volume is reserved for this very claim. A reservation by name alone is for whoever has the name.
pub(super) fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    names(volume, namespace, name_of(&claim.metadata))
        && match reserved(volume).and_then(|to| to.uid.as_deref()) {
            None | Some("") => true,
            Some(uid) => uid == uid_of(&claim.metadata),
        }
}

fn mode(mode: Option<&str>) -> &str {
    mode.unwrap_or("Filesystem")
}

/// Why a volume that a claim asks for by name cannot be its.
pub(super) fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    let (spec, wanted) = (volume.spec.as_ref()?, claim.spec.as_ref()?);
    if storage(spec.capacity.as_ref()) < storage(request(claim)) {
        return Some("requested PV is too small".to_owned());
    }
    if class_of_volume(volume) != class_of(claim) {
        return Some("storageClassName does not match".to_owned());
    }
    if mode(spec.volume_mode.as_deref()) != mode(wanted.volume_mode.as_deref()) {
        return Some("incompatible volumeMode".to_owned());
    }
    if !offers(volume, claim) {
        return Some("incompatible accessMode".to_owned());
    }
    None
}

fn offers(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let offered = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref());
    let wanted = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref());
    let offered = offered.unwrap_or_default();
    wanted.unwrap_or_default().iter().all(|mode| offered.contains(mode))
}

/// The volume for a claim that names none. One that `waits` takes only what is reserved for it: who places its pod chooses.
pub(super) fn best<'a>(
    claim: &PersistentVolumeClaim,
    volumes: &'a [Arc<PersistentVolume>],
    waits: bool,
) -> Option<&'a Arc<PersistentVolume>> {
    let wanted = claim.spec.as_ref()?;
    let attributes = |name: Option<&String>| name.cloned().unwrap_or_default();
    let selector = match &wanted.selector {
        Some(selector) => Some(pods::selector(selector)?),
        None => None,
    };
    let can_hold = |volume: &&Arc<PersistentVolume>| {
        let Some(spec) = &volume.spec else { return false };
        volume.metadata.deletion_timestamp.is_none()
            && (reserved(volume).is_none() || is_for(volume, claim))
            && storage(spec.capacity.as_ref()) >= storage(request(claim))
            && mode(spec.volume_mode.as_deref()) == mode(wanted.volume_mode.as_deref())
            && attributes(spec.volume_attributes_class_name.as_ref())
                == attributes(wanted.volume_attributes_class_name.as_ref())
            && offers(volume, claim)
    };
    let candidates: Vec<&Arc<PersistentVolume>> = volumes.iter().filter(can_hold).collect();
    if let Some(own) = candidates.iter().find(|volume| is_for(volume, claim)) {
        return Some(own);
    }
    if waits {
        return None;
    }
    candidates
        .into_iter()
        .filter(|volume| {
            let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Available")
                && class_of_volume(volume) == class_of(claim)
                && selector
                    .as_ref()
                    .is_none_or(|selector| pods::selects(selector, &volume.metadata))
        })
        // Fewest modes beyond the wanted ones, then the smallest, then by name.
        .min_by_key(|volume| {
            let spec = volume.spec.as_ref();
            let modes = spec.and_then(|spec| spec.access_modes.as_ref()).map_or(0, Vec::len);
            (
                modes,
                storage(spec.and_then(|spec| spec.capacity.as_ref())),
                name_of(&volume.metadata).to_owned(),
            )
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(name: &str, size: &str, more: &Value) -> Arc<PersistentVolume> {
        let mut body = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "c"},
            "status": {"phase": "Available"}});
        for (field, value) in more.as_object().unwrap() {
            body["spec"][field] = value.clone();
        }
        Arc::new(serde_json::from_value(body).unwrap())
    }

    fn claim(size: &str) -> PersistentVolumeClaim {
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c", "namespace": "n", "uid": "u"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "c",
                "resources": {"requests": {"storage": size}}}}))
        .unwrap()
    }

    #[test]
    fn c7_a_claim_gets_the_smallest_volume_that_does_unless_one_is_reserved_for_it() {
        let none = json!({});
        let plain = |name: &str, size: &str| volume(name, size, &none);
        let other = json!({"claimRef": {"namespace": "n", "name": "other"}});
        let own = json!({"claimRef": {"namespace": "n", "name": "c"}});
        let earlier = json!({"claimRef": {"namespace": "n", "name": "c", "uid": "before"}});
        for (what, volumes, waits, expected) in [
            ("nothing there", vec![], false, None),
            ("too small", vec![plain("a", "1Gi")], false, None),
            (
                "the smallest",
                vec![plain("a", "5Gi"), plain("b", "2Gi"), plain("d", "3Gi")],
                false,
                Some("b"),
            ),
            (
                "another's",
                vec![volume("a", "2Gi", &other), plain("b", "9Gi")],
                false,
                Some("b"),
            ),
            (
                "its own first",
                vec![plain("a", "2Gi"), volume("b", "9Gi", &own)],
                false,
                Some("b"),
            ),
            ("an earlier claim's", vec![volume("a", "2Gi", &earlier)], false, None),
            (
                "another class",
                vec![volume("a", "2Gi", &json!({"storageClassName": "d"}))],
                false,
                None,
            ),
            (
                "another mode",
                vec![volume("a", "2Gi", &json!({"volumeMode": "Block"}))],
                false,
                None,
            ),
            (
                "less access",
                vec![volume("a", "2Gi", &json!({"accessModes": ["ReadOnlyMany"]}))],
                false,
                None,
            ),
            (
                "no more access than needed",
                vec![
                    volume("a", "2Gi", &json!({"accessModes": ["ReadWriteOnce", "ReadWriteMany"]})),
                    plain("b", "3Gi"),
                ],
                false,
                Some("b"),
            ),
            ("it waits", vec![plain("a", "2Gi")], true, None),
            ("but not for its own", vec![volume("a", "2Gi", &own)], true, Some("a")),
        ] {
            let found = best(&claim("2Gi"), &volumes, waits).map(|volume| name_of(&volume.metadata).to_owned());
            assert_eq!(found.as_deref(), expected, "{what}");
        }
    }
}
