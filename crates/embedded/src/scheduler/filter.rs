//! Why a pod cannot go to a node, in the reference's order and words. The first reason that holds is told, as there.

use super::facts::Wanted;
use super::neighbours::Neighbours;
use super::snapshot::{NodeState, Snapshot};
use super::spread::Domains;
use super::terms::{selects_node, tolerates};
use k8s_openapi::api::core::v1::Taint;

const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Why not here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) reasons: Vec<String>,
    /// Pods that go could make room.
    pub(crate) may_change: bool,
}

impl Verdict {
    fn never(reason: &str) -> Self {
        Self {
            reasons: vec![reason.to_owned()],
            may_change: false,
        }
    }

    fn not_now(reason: &str) -> Self {
        Self {
            reasons: vec![reason.to_owned()],
            may_change: true,
        }
    }
}

/// What is counted once over all nodes before each is looked at.
#[derive(Debug)]
pub(crate) struct Filter<'a> {
    wanted: &'a Wanted,
    domains: Domains,
    neighbours: Neighbours,
    /// A pod that is somewhere uses a claim that this one wants alone.
    is_claim_in_use: bool,
}

/// Whether the pod's own wishes about the node itself hold.
pub(super) fn is_selected(wanted: &Wanted, node: &NodeState) -> bool {
    wanted
        .node_selector
        .iter()
        .all(|(key, value)| node.labels.get(key) == Some(value))
        && wanted
            .node_affinity
            .as_ref()
            .is_none_or(|wanted| selects_node(wanted, &node.name, &node.labels))
}

/// A taint that keeps the pod away.
pub(super) fn untolerated<'a>(wanted: &Wanted, node: &'a NodeState) -> Option<&'a Taint> {
    node.taints
        .iter()
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
        .find(|taint| !tolerates(&wanted.tolerations, taint))
}

impl<'a> Filter<'a> {
    pub(crate) fn new(wanted: &'a Wanted, snapshot: &Snapshot) -> Self {
        let exclusive = &wanted.volumes.exclusive;
        let is_claim_in_use = !exclusive.is_empty()
            && snapshot.nodes().flat_map(|node| node.pods.values()).any(|facts| {
                facts.name.namespace == wanted.name().namespace
                    && facts.name != *wanted.name()
                    && facts.claims.iter().any(|claim| exclusive.contains(claim))
            });
        Self {
            wanted,
            domains: Domains::of(wanted, snapshot),
            neighbours: Neighbours::of(wanted, snapshot),
            is_claim_in_use,
        }
    }

    /// What does not change while pods are placed: the node itself, and the pod's volumes.
    pub(crate) fn node_itself(wanted: &Wanted, node: &NodeState) -> Option<Verdict> {
        if node.is_unschedulable {
            let taint = Taint {
                key: UNSCHEDULABLE.to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            };
            if !tolerates(&wanted.tolerations, &taint) {
                return Some(Verdict::never("node(s) were unschedulable"));
            }
        }
        if untolerated(wanted, node).is_some() {
            return Some(Verdict::never("node(s) had untolerated taint(s)"));
        }
        if !is_selected(wanted, node) {
            return Some(Verdict::never("node(s) didn't match Pod's node affinity/selector"));
        }
        None
    }

    pub(crate) fn against(&self, node: &NodeState) -> Option<Verdict> {
        Self::node_itself(self.wanted, node).or_else(|| self.against_now(node))
    }

    /// The rest of the reasons.
    fn against_now(&self, node: &NodeState) -> Option<Verdict> {
        let facts = &self.wanted.facts;
        let in_the_way = || {
            let taken = node.pods.values().flat_map(|facts| &facts.ports);
            taken
                .into_iter()
                .any(|taken| facts.ports.iter().any(|port| port.is_in_the_way_of(taken)))
        };
        if !facts.ports.is_empty() && in_the_way() {
            return Some(Verdict::not_now(
                "node(s) didn't have free ports for the requested pod ports",
            ));
        }
        if let Some(verdict) = lacking(self.wanted, node) {
            return Some(verdict);
        }
        if self.is_claim_in_use {
            return Some(Verdict::not_now(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
            ));
        }
        let reasons = self.wanted.volumes.against(node);
        if !reasons.is_empty() {
            return Some(Verdict {
                reasons,
                may_change: false,
            });
        }
        if let Some((reason, may_change)) = self.domains.against(self.wanted, node) {
            return Some(Verdict {
                reasons: vec![reason.to_owned()],
                may_change,
            });
        }
        let (reason, may_change) = self.neighbours.against(self.wanted, node)?;
        Some(Verdict {
            reasons: vec![reason.to_owned()],
            may_change,
        })
    }
}

fn lacking(wanted: &Wanted, node: &NodeState) -> Option<Verdict> {
    let mut verdict = Verdict {
        reasons: Vec::new(),
        may_change: true,
    };
    if node.pods.len() >= node.most_pods {
        verdict.reasons.push("Too many pods".to_owned());
    }
    for short in wanted.facts.requests.lacking(&node.has, &node.used) {
        verdict.reasons.push(format!("Insufficient {}", short.resource));
        verdict.may_change &= !short.for_ever;
    }
    (!verdict.reasons.is_empty()).then_some(verdict)
}
