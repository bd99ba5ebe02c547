//! Whom a pod must be with, whom it must not be with, and who must not be with it: required terms of pod affinity. And
//! whom it would like to be with, for scores.

use std::collections::BTreeMap;

use super::facts::{PodFacts, Wanted};
use super::snapshot::{NodeState, Snapshot};
use super::terms::Seen;

/// Pods by domain: a label and its value.
type Domains = BTreeMap<(String, String), usize>;

#[derive(Debug, Default)]
pub(super) struct Neighbours {
    /// Pods that all of the pod's terms select.
    with: Domains,
    /// Pods that it must not be with.
    against: Domains,
    /// Pods that must not be with it.
    keeping_away: Domains,
    /// It selects itself, so that it can be the first of its like.
    is_of_its_own_kind: bool,
}

fn seen<'a>(facts: &'a PodFacts, snapshot: &'a Snapshot) -> Seen<'a> {
    Seen {
        namespace: &facts.name.namespace,
        labels: &facts.labels,
        namespace_labels: snapshot.namespace_labels(&facts.name.namespace),
    }
}

fn count(domains: &mut Domains, node: &NodeState, key: &str) {
    if let Some(value) = node.labels.get(key) {
        *domains.entry((key.to_owned(), value.clone())).or_default() += 1;
    }
}

fn has(domains: &Domains, node: &NodeState, key: &str) -> bool {
    let value = node.labels.get(key);
    value.is_some_and(|value| domains.contains_key(&(key.to_owned(), value.clone())))
}

impl Neighbours {
    pub(super) fn of(wanted: &Wanted, snapshot: &Snapshot) -> Self {
        let (with, against) = wanted.required_terms();
        let mut found = Self::default();
        if with.is_empty() && against.is_empty() && !snapshot.has_pods_that_keep_away() {
            return found;
        }
        let own = seen(&wanted.facts, snapshot);
        found.is_of_its_own_kind = with.iter().all(|term| term.selects(own));
        for node in snapshot.nodes() {
            for facts in node.pods.values().filter(|facts| facts.name != *wanted.name()) {
                let other = seen(facts, snapshot);
                if !with.is_empty() && with.iter().all(|term| term.selects(other)) {
                    for term in with {
                        count(&mut found.with, node, &term.topology_key);
                    }
                }
                for term in against.iter().filter(|term| term.selects(other)) {
                    count(&mut found.against, node, &term.topology_key);
                }
                for term in facts.terms.against.iter().filter(|term| term.selects(own)) {
                    count(&mut found.keeping_away, node, &term.topology_key);
                }
            }
        }
        found
    }

    /// Why the pod cannot be with those on a node, and whether one that goes could help.
    pub(super) fn against(&self, wanted: &Wanted, node: &NodeState) -> Option<(&'static str, bool)> {
        let (with, against) = wanted.required_terms();
        if !with.iter().all(|term| node.labels.contains_key(&term.topology_key)) {
            return Some(("node(s) didn't match pod affinity rules", false));
        }
        let is_first = self.with.is_empty() && self.is_of_its_own_kind;
        if !is_first && !with.iter().all(|term| has(&self.with, node, &term.topology_key)) {
            return Some(("node(s) didn't match pod affinity rules", false));
        }
        if against.iter().any(|term| has(&self.against, node, &term.topology_key)) {
            return Some(("node(s) didn't match pod anti-affinity rules", true));
        }
        let is_kept_away = !self.keeping_away.is_empty()
            && node
                .labels
                .iter()
                .any(|(key, value)| self.keeping_away.contains_key(&(key.clone(), value.clone())));
        is_kept_away.then_some(("node(s) didn't satisfy existing pods anti-affinity rules", true))
    }
}

/// How well the pod likes those on each of these nodes, and they it, 0 to 100; `None`: nobody cares.
pub(super) fn scores(wanted: &Wanted, snapshot: &Snapshot, nodes: &[&NodeState]) -> Option<Vec<i64>> {
    let own = seen(&wanted.facts, snapshot);
    let liked = &wanted.facts.terms.liked;
    let mut weights: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for node in snapshot.nodes() {
        for facts in node.pods.values() {
            if liked.is_empty() && facts.terms.liked.is_empty() && facts.terms.with.is_empty() {
                continue;
            }
            let other = seen(facts, snapshot);
            let mine = liked
                .iter()
                .filter(|(term, _)| term.selects(other))
                .map(|(term, weight)| (term, *weight));
            let its = facts
                .terms
                .liked
                .iter()
                .filter(|(term, _)| term.selects(own))
                .map(|(term, weight)| (term, *weight));
            // Those who must be with such a pod count a little.
            let must = facts
                .terms
                .with
                .iter()
                .filter(|term| term.selects(own))
                .map(|term| (term, 1));
            for (term, weight) in mine.chain(its).chain(must) {
                if let Some(value) = node.labels.get(&term.topology_key) {
                    *weights.entry((&term.topology_key, value)).or_default() += weight;
                }
            }
        }
    }
    if weights.is_empty() {
        return None;
    }
    let raw: Vec<i64> = nodes
        .iter()
        .map(|node| {
            let labels = node.labels.iter();
            labels
                .filter_map(|(key, value)| weights.get(&(key.as_str(), value.as_str())))
                .sum()
        })
        .collect();
    let (least, most) = (
        raw.iter().min().copied().unwrap_or_default(),
        raw.iter().max().copied().unwrap_or_default(),
    );
    let normal = raw.iter().map(|raw| match most - least {
        0 => 0,
        range => 100 * (raw - least) / range,
    });
    Some(normal.collect())
}
