//! New volumes for claims that no volume is there for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::binding::{class_of, request, selected_node};
use super::claim::patch;
use super::{DRIVER, PROVISIONED_BY, PROVISIONER, SELECTED_NODE, STORAGE, make_folder, tell_claim};
use crate::controllers::Hand;
use crate::controllers::hand::{annotation, made, name_of, reference, uid_of};
use crate::fault::{Fault, quote};

/// Says which provisioner is to act, under both names of the annotation.
const PROVISIONERS: [&str; 2] = [
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/storage-provisioner",
];
const HOSTNAME: &str = "kubernetes.io/hostname";
/// A class may say that its volumes can be mounted on every node: they share this machine's disk.
const SHARED: &str = "shared";

pub(super) async fn provision(
    hand: &Hand,
    namespace: &str,
    claim: &PersistentVolumeClaim,
    class: Option<&StorageClass>,
) -> Result<(), Fault> {
    let Some(class) = class else {
        let message = format!("storageclass.storage.k8s.io {} not found", quote(class_of(claim)));
        tell_claim(hand, claim, "Warning", "ProvisioningFailed", message).await;
        return Ok(());
    };
    let provisioner = &class.provisioner;
    if provisioner.starts_with("kubernetes.io/") {
        let message = format!("no volume plugin matched name: {provisioner}");
        tell_claim(hand, claim, "Warning", "ProvisioningFailed", message).await;
        return Ok(());
    }
    if PROVISIONERS
        .iter()
        .any(|key| annotation(&claim.metadata, key) != Some(provisioner))
    {
        let annotations: BTreeMap<&str, &str> = PROVISIONERS.iter().map(|key| (*key, provisioner.as_str())).collect();
        let change =
            json!({"metadata": {"resourceVersion": claim.metadata.resource_version, "annotations": annotations}});
        // Its own sync goes on from there.
        return patch(hand, namespace, claim, "", change).await;
    }
    if provisioner != PROVISIONER {
        let message = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
             system administrator. If volume creation is delayed, please verify that the provisioner is running and \
             correctly registered."
        );
        tell_claim(hand, claim, "Normal", "ExternalProvisioning", message).await;
        return Ok(());
    }
    make(hand, namespace, claim, class).await
}

async fn make(hand: &Hand, namespace: &str, claim: &PersistentVolumeClaim, class: &StorageClass) -> Result<(), Fault> {
    let is_shared = class
        .parameters
        .as_ref()
        .and_then(|given| given.get(SHARED))
        .map(String::as_str)
        == Some("true");
    let home = match (is_shared, selected_node(claim)) {
        (true, _) => None,
        (false, Some(name)) => match hand.mirror.nodes.get(None, name) {
            Some(node) => Some(hostname(&node)),
            None => {
                // The scheduler is to choose again.
                let message = format!("failed to get target node: nodes {} not found", quote(name));
                tell_claim(hand, claim, "Warning", "ProvisioningFailed", message).await;
                let change = json!({"metadata": {"annotations": {SELECTED_NODE: null}}});
                return patch(hand, namespace, claim, "", change).await;
            }
        },
        (false, None) => match emptiest(hand) {
            Some(home) => Some(home),
            None => {
                let message = format!(
                    "failed to provision volume with StorageClass {}: there is no node that is ready and schedulable; the \
                     volume is made when there is one",
                    quote(name_of(&class.metadata))
                );
                tell_claim(hand, claim, "Warning", "ProvisioningFailed", message).await;
                return Ok(());
            }
        },
    };
    let volume = volume(claim, class, home);
    let name = name_of(&volume.metadata).to_owned();
    if let Err(fault) = make_folder(hand, &name) {
        let class = quote(name_of(&class.metadata));
        let message = format!(
            "failed to provision volume with StorageClass {class}: {}",
            fault.message
        );
        tell_claim(hand, claim, "Warning", "ProvisioningFailed", message).await;
        return Err(fault);
    }
    made(hand.make(None, &volume).await)?;
    let message = format!("Successfully provisioned volume {name} using {PROVISIONER}");
    tell_claim(hand, claim, "Normal", "ProvisioningSucceeded", message).await;
    Ok(())
}

fn hostname(node: &Node) -> String {
    let labels = node.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(HOSTNAME));
    label.cloned().unwrap_or_else(|| name_of(&node.metadata).to_owned())
}

/// Whether a node takes pods, and so volumes that wait for none.
pub(super) fn is_home(node: &Node) -> bool {
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    !is_cordoned && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Where a volume goes that waits for no pod: to the node with the fewest, of those that take pods.
fn emptiest(hand: &Hand) -> Option<String> {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for node in hand.mirror.nodes.list(None).iter().filter(|node| is_home(node)) {
        count.insert(hostname(node), 0);
    }
    for volume in hand.mirror.volumes.list(None) {
        for home in homes(&volume) {
            if let Some(count) = count.get_mut(home) {
                *count += 1;
            }
        }
    }
    count
        .into_iter()
        .min_by_key(|(name, count)| (*count, name.clone()))
        .map(|(name, _)| name)
}

fn homes(volume: &PersistentVolume) -> impl Iterator<Item = &str> {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let terms = affinity
        .and_then(|affinity| affinity.required.as_ref())
        .map(|required| &required.node_selector_terms);
    terms
        .into_iter()
        .flatten()
        .flat_map(|term| term.match_expressions.iter().flatten())
        .filter(|part| part.key == HOSTNAME)
        .flat_map(|part| part.values.iter().flatten().map(String::as_str))
}

/// The object. It is reserved for the claim from the start.
fn volume(claim: &PersistentVolumeClaim, class: &StorageClass, home: Option<String>) -> PersistentVolume {
    let name = format!("pvc-{}", uid_of(&claim.metadata));
    let spec = claim.spec.as_ref();
    let size = request(claim)
        .and_then(|request| request.get(STORAGE))
        .cloned()
        .unwrap_or_default();
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            annotations: Some(BTreeMap::from([(PROVISIONED_BY.to_owned(), PROVISIONER.to_owned())])),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.and_then(|spec| spec.access_modes.clone()),
            capacity: Some(BTreeMap::from([(STORAGE.to_owned(), size)])),
            claim_ref: Some(reference(claim)),
            csi: Some(CSIPersistentVolumeSource {
                driver: DRIVER.to_owned(),
                volume_handle: name,
                ..CSIPersistentVolumeSource::default()
            }),
            mount_options: class.mount_options.clone(),
            node_affinity: home.map(affinity),
            persistent_volume_reclaim_policy: Some(class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned())),
            storage_class_name: class.metadata.name.clone(),
            volume_mode: spec.and_then(|spec| spec.volume_mode.clone()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

fn affinity(home: String) -> VolumeNodeAffinity {
    VolumeNodeAffinity {
        required: Some(NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm {
                match_expressions: Some(vec![NodeSelectorRequirement {
                    key: HOSTNAME.to_owned(),
                    operator: "In".to_owned(),
                    values: Some(vec![home]),
                }]),
                match_fields: None,
            }],
        }),
    }
}
