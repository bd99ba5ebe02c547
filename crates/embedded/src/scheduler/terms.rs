//! What pods and volumes say about nodes and about other pods: selectors, tolerations, terms of affinity. Pure questions
//! on values, answered as the reference answers them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodAffinityTerm, Taint, Toleration,
    TopologySelectorTerm,
};

use crate::controllers::pods::selector;
use crate::registry::select::LabelSelector;

pub(crate) type Labels = BTreeMap<String, String>;

/// Whether a node's name and labels satisfy any of the terms. No terms select nothing.
pub(crate) fn selects_node(wanted: &NodeSelector, name: &str, labels: &Labels) -> bool {
    wanted
        .node_selector_terms
        .iter()
        .any(|term| term_selects(term, name, labels))
}

/// An empty term selects nothing.
pub(crate) fn term_selects(term: &NodeSelectorTerm, name: &str, labels: &Labels) -> bool {
    let (expressions, fields) = (
        term.match_expressions.as_deref().unwrap_or_default(),
        term.match_fields.as_deref().unwrap_or_default(),
    );
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    expressions
        .iter()
        .all(|wanted| holds(wanted, labels.get(&wanted.key).map(String::as_str)))
        && fields
            .iter()
            .all(|wanted| holds(wanted, (wanted.key == "metadata.name").then_some(name)))
}

fn holds(wanted: &NodeSelectorRequirement, found: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let among = || found.is_some_and(|found| values.iter().any(|value| value == found));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let compared = || Some((number(found)?, number(values.first().map(String::as_str))?));
    match wanted.operator.as_str() {
        "In" => among(),
        "NotIn" => !among(),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compared().is_some_and(|(found, bound)| found > bound),
        "Lt" => compared().is_some_and(|(found, bound)| found < bound),
        _ => false,
    }
}

/// Where a storage class lets volumes be made. No terms: anywhere.
pub(crate) fn topology_allows(terms: &[TopologySelectorTerm], labels: &Labels) -> bool {
    terms.is_empty()
        || terms.iter().any(|term| {
            let wanted = term.match_label_expressions.as_deref().unwrap_or_default();
            !wanted.is_empty()
                && wanted.iter().all(|wanted| {
                    labels
                        .get(&wanted.key)
                        .is_some_and(|value| wanted.values.contains(value))
                })
        })
}

pub(crate) fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| {
        let effect = toleration.effect.as_deref().unwrap_or_default();
        let key = toleration.key.as_deref().unwrap_or_default();
        let is_about_it = (effect.is_empty() || effect == taint.effect) && (key.is_empty() || key == taint.key);
        is_about_it
            && match toleration.operator.as_deref().unwrap_or_default() {
                "" | "Equal" => {
                    toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
                }
                "Exists" => true,
                _ => false,
            }
    })
}

/// A term of pod affinity, as it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodTerm {
    pub(crate) topology_key: String,
    /// `None` selects nothing.
    pods: Option<LabelSelector>,
    namespaces: Vec<String>,
    of_namespaces: Option<LabelSelector>,
}

/// A pod as terms see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) labels: &'a Labels,
    /// Of its namespace.
    pub(crate) namespace_labels: &'a Labels,
}

impl PodTerm {
    pub(crate) fn of(term: &PodAffinityTerm, own_namespace: &str) -> Self {
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(own_namespace.to_owned());
        }
        Self {
            topology_key: term.topology_key.clone(),
            pods: term.label_selector.as_ref().and_then(selector),
            namespaces,
            of_namespaces: term.namespace_selector.as_ref().and_then(selector),
        }
    }

    pub(crate) fn selects(&self, pod: Seen<'_>) -> bool {
        let is_there = self.namespaces.iter().any(|name| name == pod.namespace)
            || self
                .of_namespaces
                .as_ref()
                .is_some_and(|selector| selector.matches(pod.namespace_labels));
        is_there && self.pods.as_ref().is_some_and(|selector| selector.matches(pod.labels))
    }
}

/// A pod's terms of affinity: required, required against, and preferred by weight (against: below zero).
#[derive(Debug, Clone, Default)]
pub(crate) struct PodTerms {
    pub(crate) with: Vec<PodTerm>,
    pub(crate) against: Vec<PodTerm>,
    pub(crate) liked: Vec<(PodTerm, i64)>,
}

impl PodTerms {
    pub(crate) fn of(pod: &Pod) -> Self {
        let own = pod.metadata.namespace.as_deref().unwrap_or_default();
        let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
        let Some(affinity) = affinity else {
            return Self::default();
        };
        let mut terms = Self::default();
        if let Some(with) = &affinity.pod_affinity {
            let required = with
                .required_during_scheduling_ignored_during_execution
                .iter()
                .flatten();
            terms.with = required.map(|term| PodTerm::of(term, own)).collect();
            for term in with
                .preferred_during_scheduling_ignored_during_execution
                .iter()
                .flatten()
            {
                let weight = i64::from(term.weight);
                terms.liked.push((PodTerm::of(&term.pod_affinity_term, own), weight));
            }
        }
        if let Some(against) = &affinity.pod_anti_affinity {
            let required = against
                .required_during_scheduling_ignored_during_execution
                .iter()
                .flatten();
            terms.against = required.map(|term| PodTerm::of(term, own)).collect();
            for term in against
                .preferred_during_scheduling_ignored_during_execution
                .iter()
                .flatten()
            {
                let weight = -i64::from(term.weight);
                terms.liked.push((PodTerm::of(&term.pod_affinity_term, own), weight));
            }
        }
        terms
    }
}

/// A node's labels.
pub(crate) fn labels_of(node: &Node) -> Labels {
    node.metadata.labels.clone().unwrap_or_default()
}
