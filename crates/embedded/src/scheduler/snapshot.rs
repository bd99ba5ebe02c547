//! The nodes with what is free on them, kept up to date change by change: no placing counts pods anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};

use super::amounts::Amounts;
use super::facts::{PodFacts, PodName};
use super::terms::{Labels, labels_of};
use crate::kinds::quantity::Quantity;

/// A node and the pods that count on it.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeState {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) taints: Vec<Taint>,
    pub(crate) is_unschedulable: bool,
    pub(crate) has: Amounts,
    pub(crate) most_pods: usize,
    pub(crate) used: Amounts,
    /// With what pods are taken to use that ask for nothing.
    pub(crate) compared: Amounts,
    pub(crate) pods: BTreeMap<PodName, Arc<PodFacts>>,
}

impl NodeState {
    fn of(node: &Node) -> Self {
        let name = node.metadata.name.clone().unwrap_or_default();
        let spec = node.spec.clone().unwrap_or_default();
        let has = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let most_pods = has
            .and_then(|has| has.get("pods"))
            .and_then(|text| Quantity::parse(&text.0).ok())
            .map_or(0, |amount| usize::try_from(amount.units()).unwrap_or(usize::MAX));
        Self {
            name,
            labels: labels_of(node),
            taints: spec.taints.unwrap_or_default(),
            is_unschedulable: spec.unschedulable == Some(true),
            has: Amounts::of(has),
            most_pods,
            ..Self::default()
        }
    }

    fn add(&mut self, facts: Arc<PodFacts>) {
        self.used.add(&facts.requests);
        self.compared.add(&facts.compared);
        self.pods.insert(facts.name.clone(), facts);
    }

    fn take(&mut self, name: &PodName) -> Option<Arc<PodFacts>> {
        let facts = self.pods.remove(name)?;
        self.used.take(&facts.requests);
        self.compared.take(&facts.compared);
        Some(facts)
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    nodes: BTreeMap<String, NodeState>,
    /// Where each pod counts.
    places: BTreeMap<PodName, String>,
    /// Pods on nodes of which there is no object.
    elsewhere: BTreeMap<String, BTreeMap<PodName, Arc<PodFacts>>>,
    namespaces: BTreeMap<String, Labels>,
    /// How many pods keep others away.
    keeping_away: usize,
}

impl Snapshot {
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeState> {
        self.nodes.values()
    }

    pub(crate) fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes.get(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Where a pod counts.
    pub(crate) fn place_of(&self, name: &PodName) -> Option<&str> {
        self.places.get(name).map(String::as_str)
    }

    /// Whether a pod has a node and is not told to go.
    pub(crate) fn is_staying(&self, name: &PodName) -> bool {
        let Some(place) = self.places.get(name) else {
            return false;
        };
        let facts = match self.nodes.get(place) {
            Some(node) => node.pods.get(name),
            None => self.elsewhere.get(place).and_then(|there| there.get(name)),
        };
        facts.is_some_and(|facts| !facts.is_deleting)
    }

    pub(crate) fn namespace_labels(&self, name: &str) -> &Labels {
        static NONE: Labels = Labels::new();
        self.namespaces.get(name).unwrap_or(&NONE)
    }

    pub(crate) fn has_pods_that_keep_away(&self) -> bool {
        self.keeping_away > 0
    }

    pub(crate) fn put_namespace(&mut self, name: &str, labels: Labels) {
        self.namespaces.insert(name.to_owned(), labels);
    }

    pub(crate) fn drop_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    /// A node that came or changed. True: pods may fit now that did not before.
    pub(crate) fn put_node(&mut self, node: &Node) -> bool {
        let mut state = NodeState::of(node);
        let before = self.nodes.remove(&state.name);
        let pods = match &before {
            Some(before) => before.pods.clone(),
            None => self.elsewhere.remove(&state.name).unwrap_or_default(),
        };
        for facts in pods.into_values() {
            state.add(facts);
        }
        let is_new = before.is_none_or(|before| {
            before.labels != state.labels
                || before.taints != state.taints
                || before.is_unschedulable != state.is_unschedulable
                || before.has != state.has
                || before.most_pods != state.most_pods
        });
        self.nodes.insert(state.name.clone(), state);
        is_new
    }

    pub(crate) fn drop_node(&mut self, name: &str) {
        if let Some(state) = self.nodes.remove(name).filter(|state| !state.pods.is_empty()) {
            self.elsewhere.insert(name.to_owned(), state.pods);
        }
    }

    /// A pod counts on a node from now on, and nowhere else.
    pub(crate) fn put_pod(&mut self, facts: Arc<PodFacts>, node: &str) {
        self.drop_pod(&facts.name);
        self.keeping_away += usize::from(!facts.terms.against.is_empty());
        self.places.insert(facts.name.clone(), node.to_owned());
        match self.nodes.get_mut(node) {
            Some(state) => state.add(facts),
            None => {
                let there = self.elsewhere.entry(node.to_owned()).or_default();
                there.insert(facts.name.clone(), facts);
            }
        }
    }

    /// False: it did not count anywhere.
    pub(crate) fn drop_pod(&mut self, name: &PodName) -> bool {
        let Some(node) = self.places.remove(name) else {
            return false;
        };
        let gone = match self.nodes.get_mut(&node) {
            Some(state) => state.take(name),
            None => {
                let there = self.elsewhere.get_mut(&node);
                let gone = there.and_then(|there| there.remove(name));
                self.elsewhere.retain(|_, there| !there.is_empty());
                gone
            }
        };
        let kept_away = gone.is_some_and(|facts| !facts.terms.against.is_empty());
        self.keeping_away = self.keeping_away.saturating_sub(usize::from(kept_away));
        true
    }
}
