//! Pods as the scheduler sees them: [`PodFacts`], what it remembers of each pod that has a node; [`Wanted`], all that one
//! pod asks for that is to be given one.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelector, Pod, PodSpec, PreferredSchedulingTerm, Toleration};
use std::collections::{BTreeMap, BTreeSet};

use super::amounts::Amounts;
use super::spread::Spread;
use super::terms::{Labels, PodTerm, PodTerms};
use super::volumes::Volumes;
use crate::controllers::mirror::Mirror;
use crate::controllers::pods::is_deleting;

/// Namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl PodName {
    pub(crate) fn of(pod: &Pod) -> Self {
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPort {
    port: i32,
    protocol: String,
    address: String,
}

const ANY: &str = "0.0.0.0";

impl HostPort {
    fn of(spec: &PodSpec) -> Vec<Self> {
        let sidecars = spec
            .init_containers
            .iter()
            .flatten()
            .filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let ports = spec
            .containers
            .iter()
            .chain(sidecars)
            .flat_map(|container| container.ports.iter().flatten());
        ports
            .filter_map(|port| {
                let number = port.host_port.filter(|number| *number > 0)?;
                let or = |text: &Option<String>, other: &str| match text.as_deref() {
                    None | Some("") => other.to_owned(),
                    Some(text) => text.to_owned(),
                };
                Some(Self {
                    port: number,
                    protocol: or(&port.protocol, "TCP"),
                    address: or(&port.host_ip, ANY),
                })
            })
            .collect()
    }

    pub(crate) fn is_in_the_way_of(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || self.address == ANY || other.address == ANY)
    }
}

/// What is remembered of a pod: no more than the placing of others needs.
#[derive(Debug, Clone)]
pub(crate) struct PodFacts {
    pub(crate) name: PodName,
    pub(crate) labels: Labels,
    pub(crate) is_deleting: bool,
    pub(crate) requests: Amounts,
    /// What nodes are compared by.
    pub(crate) compared: Amounts,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) claims: Vec<String>,
    pub(crate) terms: PodTerms,
}

impl PodFacts {
    pub(crate) fn of(pod: &Pod) -> Self {
        let nothing = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&nothing);
        Self {
            name: PodName::of(pod),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            is_deleting: is_deleting(&pod.metadata),
            requests: Amounts::of_pod(spec),
            compared: Amounts::compared(spec),
            ports: HostPort::of(spec),
            claims: claims(pod).into_iter().map(|(claim, _)| claim).collect(),
            terms: PodTerms::of(pod),
        }
    }
}

/// The names of the claims that a pod mounts, and whether each is of its own (`ephemeral`).
pub(crate) fn claims(pod: &Pod) -> Vec<(String, bool)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| {
            if let Some(source) = &volume.persistent_volume_claim {
                return Some((source.claim_name.clone(), false));
            }
            let own = format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name);
            volume.ephemeral.as_ref().map(|_| (own, true))
        })
        .collect()
}

fn volumes_of(pod: &Pod, spec: &PodSpec, mirror: &Mirror) -> Volumes {
    let mut volumes = Volumes::of(pod, mirror);
    if volumes.trouble.is_none() && spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        let why = "the pod asks for devices by spec.resourceClaims, and this cluster has none: remove it";
        volumes.trouble = Some(why.to_owned());
    }
    volumes
}

/// A pod that wants a node.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) facts: Arc<PodFacts>,
    pub(crate) node_selector: BTreeMap<String, String>,
    pub(crate) node_affinity: Option<NodeSelector>,
    pub(crate) node_liked: Vec<PreferredSchedulingTerm>,
    pub(crate) tolerations: Vec<Toleration>,
    /// What must be spread, and what should be.
    pub(crate) spread: Vec<Spread>,
    pub(crate) spread_liked: Vec<Spread>,
    /// The user gave the constraints: nodes without such a label do not count.
    pub(crate) spread_is_own: bool,
    pub(crate) volumes: Volumes,
    pub(crate) never_preempts: bool,
}

impl Wanted {
    /// Reads what claims, volumes, Services and owners say of the pod as well.
    pub(crate) fn of(pod: &Pod, mirror: &Mirror) -> Self {
        let nothing = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&nothing);
        let affinity = spec
            .affinity
            .as_ref()
            .and_then(|affinity| affinity.node_affinity.as_ref());
        let (spread, spread_liked, spread_is_own) = super::spread::of(pod, mirror);
        Self {
            facts: Arc::new(PodFacts::of(pod)),
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            node_affinity: affinity
                .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.clone()),
            node_liked: affinity
                .and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.clone())
                .unwrap_or_default(),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            spread,
            spread_liked,
            spread_is_own,
            volumes: volumes_of(pod, spec, mirror),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
        }
    }

    pub(crate) fn name(&self) -> &PodName {
        &self.facts.name
    }

    /// The only nodes that its required affinity names, if it names them; `Err`: its terms contradict each other.
    pub(crate) fn named_nodes(&self) -> Result<Option<BTreeSet<String>>, ()> {
        let Some(affinity) = &self.node_affinity else {
            return Ok(None);
        };
        if affinity.node_selector_terms.is_empty() {
            return Ok(None);
        }
        let mut all = BTreeSet::new();
        for term in &affinity.node_selector_terms {
            let mut named: Option<BTreeSet<String>> = None;
            for field in term.match_fields.iter().flatten() {
                if field.key == "metadata.name" && field.operator == "In" {
                    let values: BTreeSet<String> = field.values.iter().flatten().cloned().collect();
                    named = Some(match named {
                        None => values,
                        Some(named) => named.intersection(&values).cloned().collect(),
                    });
                }
            }
            // One term without a name opens all nodes: terms are alternatives.
            let Some(named) = named else { return Ok(None) };
            all.extend(named);
        }
        if all.is_empty() { Err(()) } else { Ok(Some(all)) }
    }

    pub(crate) fn required_terms(&self) -> (&[PodTerm], &[PodTerm]) {
        (&self.facts.terms.with, &self.facts.terms.against)
    }

    /// Whether where it goes depends on nothing but each node by itself: such pods are alike if their requests are.
    pub(crate) fn is_plain(&self) -> bool {
        let terms = &self.facts.terms;
        self.facts.ports.is_empty()
            && self.facts.claims.is_empty()
            && self.spread.is_empty()
            && terms.with.is_empty()
            && terms.against.is_empty()
    }

    /// Whether it fits exactly where the other fits.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.is_plain()
            && other.is_plain()
            && self.facts.requests == other.facts.requests
            && self.node_selector == other.node_selector
            && self.node_affinity == other.node_affinity
            && self.tolerations == other.tolerations
            && self.facts.labels == other.facts.labels
    }
}
