//! What a pod's claims say about where it can go: bound volumes have their nodes, claims that wait for their first
//! consumer get theirs by the choice that is made here, and claims that are to be bound at once must be bound before.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, TopologySelectorTerm};

use super::facts::claims;
use super::snapshot::NodeState;
use super::terms::{selects_node, topology_allows};
use crate::controllers::mirror::Mirror;
use crate::controllers::pods::{is_deleting, selector};
use crate::kinds::quantity::Quantity;

/// On a claim: the node whose pod is its first consumer. The binder makes the volume there.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

#[derive(Debug, Default)]
pub(crate) struct Volumes {
    /// Why no node can do, whichever it is.
    pub(crate) trouble: Option<String>,
    bound: Vec<Arc<PersistentVolume>>,
    /// A claim is bound to a volume that is not there.
    is_lost: bool,
    delayed: Vec<Delayed>,
    /// Claims that one pod alone may use.
    pub(crate) exclusive: Vec<String>,
}

/// A claim that waits for its first consumer.
#[derive(Debug)]
struct Delayed {
    claim: String,
    selected: Option<String>,
    /// Whether a volume can be made for it.
    can_be_made: bool,
    topologies: Vec<TopologySelectorTerm>,
    /// Volumes that are there and would do, smallest first.
    candidates: Vec<Arc<PersistentVolume>>,
}

/// What is to be done for a pod's claims before it can be bound to a node.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Preparation {
    /// Claims that are to have a volume made on the node.
    pub(crate) select: Vec<String>,
    /// Claims that get a volume that is there: claim and volume.
    pub(crate) bind: Vec<(String, String)>,
    /// Claims that are on their way.
    pub(crate) waiting: bool,
}

impl Preparation {
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Volumes {
    pub(crate) fn of(pod: &Pod, mirror: &Mirror) -> Self {
        let namespace = pod.metadata.namespace.as_deref();
        let mut volumes = Self::default();
        let mut is_unbound = false;
        for (name, is_own) in claims(pod) {
            let Some(claim) = mirror.claims.get(namespace, &name) else {
                volumes.trouble = Some(if is_own {
                    format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}")
                } else {
                    format!("persistentvolumeclaim {name:?} not found")
                });
                return volumes;
            };
            let bound_to = claim
                .spec
                .as_ref()
                .and_then(|spec| spec.volume_name.clone())
                .unwrap_or_default();
            let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
            if phase == Some("Lost") {
                volumes.trouble = Some(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {bound_to:?}"
                ));
                return volumes;
            }
            if is_deleting(&claim.metadata) {
                volumes.trouble = Some(format!("persistentvolumeclaim {name:?} is being deleted"));
                return volumes;
            }
            if has_mode(&claim, "ReadWriteOncePod") {
                volumes.exclusive.push(name.clone());
            }
            let is_bound = phase == Some("Bound") || annotation(&claim, BIND_COMPLETED).is_some();
            if is_bound && !bound_to.is_empty() {
                match mirror.volumes.get(None, &bound_to) {
                    Some(volume) => volumes.bound.push(volume),
                    None => volumes.is_lost = true,
                }
            } else if let Some(delayed) = Delayed::of(&claim, mirror).filter(|_| bound_to.is_empty()) {
                volumes.delayed.push(delayed);
            } else {
                is_unbound = true;
            }
        }
        if is_unbound {
            volumes.trouble = Some("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        volumes
    }

    /// Why the pod's claims keep it from a node.
    pub(crate) fn against(&self, node: &NodeState) -> Vec<String> {
        let mut reasons = Vec::new();
        if !self.bound.iter().all(|volume| reaches(volume, node)) {
            reasons.push("node(s) didn't match PersistentVolume's node affinity".to_owned());
        }
        let mut taken = Vec::new();
        if !self.delayed.iter().all(|delayed| delayed.works_on(node, &mut taken)) {
            reasons.push("node(s) didn't find available persistent volumes to bind".to_owned());
        }
        if self.is_lost {
            reasons.push("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)".to_owned());
        }
        reasons
    }

    /// What is to be done before the pod can be bound to this node.
    pub(crate) fn prepare(&self, node: &NodeState) -> Preparation {
        let mut preparation = Preparation::default();
        let mut taken = Vec::new();
        for delayed in &self.delayed {
            if delayed.selected.is_some() {
                preparation.waiting = true;
            } else if let Some(volume) = delayed.find(node, &mut taken) {
                preparation.bind.push((delayed.claim.clone(), volume));
            } else {
                preparation.select.push(delayed.claim.clone());
            }
        }
        preparation
    }
}

impl Delayed {
    /// `None`: the claim does not wait for a consumer.
    fn of(claim: &PersistentVolumeClaim, mirror: &Mirror) -> Option<Self> {
        let spec = claim.spec.as_ref()?;
        let class_name = spec.storage_class_name.clone()?;
        let class = mirror.classes.get(None, &class_name)?;
        if class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer") {
            return None;
        }
        let mut candidates: Vec<_> = mirror
            .volumes
            .list(None)
            .into_iter()
            .filter(|volume| would_do(volume, claim, &class_name))
            .collect();
        candidates.sort_by_key(|volume| (capacity(volume), volume.metadata.name.clone()));
        Some(Self {
            claim: claim.metadata.name.clone().unwrap_or_default(),
            selected: annotation(claim, SELECTED_NODE).map(str::to_owned),
            can_be_made: !class.provisioner.is_empty() && class.provisioner != NO_PROVISIONER,
            topologies: class.allowed_topologies.clone().unwrap_or_default(),
            candidates,
        })
    }

    /// A volume that is there, reaches the node and is not yet taken for another claim.
    fn find(&self, node: &NodeState, taken: &mut Vec<String>) -> Option<String> {
        let found = self.candidates.iter().find(|volume| {
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            reaches(volume, node) && !taken.iter().any(|taken| taken == name)
        })?;
        let name = found.metadata.name.clone()?;
        taken.push(name.clone());
        Some(name)
    }

    fn works_on(&self, node: &NodeState, taken: &mut Vec<String>) -> bool {
        if let Some(selected) = &self.selected {
            return *selected == node.name;
        }
        self.find(node, taken).is_some() || (self.can_be_made && topology_allows(&self.topologies, &node.labels))
    }
}

fn annotation<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn has_mode(claim: &PersistentVolumeClaim, mode: &str) -> bool {
    let modes = claim.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten());
    modes.into_iter().any(|have| have == mode)
}

fn reaches(volume: &PersistentVolume, node: &NodeState) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    match affinity.and_then(|affinity| affinity.required.as_ref()) {
        None => true,
        Some(required) => selects_node(required, &node.name, &node.labels),
    }
}

fn capacity(volume: &PersistentVolume) -> i128 {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    capacity
        .and_then(|capacity| capacity.get("storage"))
        .and_then(|text| Quantity::parse(&text.0).ok())
        .map_or(0, Quantity::units)
}

/// Whether a volume that is there fits a claim, wherever it is.
fn would_do(volume: &PersistentVolume, claim: &PersistentVolumeClaim, class: &str) -> bool {
    let (Some(own), Some(wanted)) = (&volume.spec, &claim.spec) else {
        return false;
    };
    let is_free = match &own.claim_ref {
        None => volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available"),
        Some(reference) => {
            reference.name == claim.metadata.name
                && reference.namespace == claim.metadata.namespace
                && (reference.uid.is_none() || reference.uid == claim.metadata.uid)
        }
    };
    let requests = wanted
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    let asked = requests
        .and_then(|requests| requests.get("storage"))
        .and_then(|text| Quantity::parse(&text.0).ok())
        .map_or(0, Quantity::units);
    let modes = own.access_modes.as_deref().unwrap_or_default();
    let mode_of = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    is_free
        && !is_deleting(&volume.metadata)
        && own.storage_class_name.as_deref() == Some(class)
        && capacity(volume) >= asked
        && mode_of(&own.volume_mode) == mode_of(&wanted.volume_mode)
        && wanted.access_modes.iter().flatten().all(|mode| modes.contains(mode))
        && wanted.selector.as_ref().is_none_or(|wanted| {
            let labels = volume.metadata.labels.clone().unwrap_or_default();
            selector(wanted).is_some_and(|selector| selector.matches(&labels))
        })
}
