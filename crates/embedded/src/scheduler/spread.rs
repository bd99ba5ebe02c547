//! Spreading a pod's like over domains: what must be (`DoNotSchedule`), and what should be (`ScheduleAnyway`, and for pods
//! that say nothing the reference's own: over hosts and zones, together with those of the same Service or owner).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as Selector;

use super::facts::{PodFacts, Wanted};
use super::filter::{is_selected, untolerated};
use super::snapshot::{NodeState, Snapshot};
use crate::controllers::mirror::Mirror;
use crate::controllers::pods::{controller_of, selector};
use crate::node::entry::{HOSTNAME, ZONE};
use crate::registry::select::LabelSelector;

#[derive(Debug, Clone)]
pub(crate) struct Spread {
    key: String,
    most_skew: i64,
    least_domains: usize,
    honours_affinity: bool,
    honours_taints: bool,
    /// All of them select its like; none: it has none.
    like: Vec<LabelSelector>,
}

/// A pod's constraints: hard, soft, and whether they are its own.
pub(super) fn of(pod: &Pod, mirror: &Mirror) -> (Vec<Spread>, Vec<Spread>, bool) {
    let all = pod
        .spec
        .iter()
        .flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
    let (mut hard, mut soft) = (Vec::new(), Vec::new());
    for constraint in all {
        let list = if constraint.when_unsatisfiable == "DoNotSchedule" {
            &mut hard
        } else {
            &mut soft
        };
        list.push(Spread::of(constraint, pod));
    }
    if hard.is_empty() && soft.is_empty() {
        return (hard, usual(pod, mirror), false);
    }
    (hard, soft, true)
}

/// What the reference does for pods that say nothing.
fn usual(pod: &Pod, mirror: &Mirror) -> Vec<Spread> {
    let like = family(pod, mirror);
    if like.is_empty() {
        return Vec::new();
    }
    let over = |key: &str, most_skew: i64| Spread {
        key: key.to_owned(),
        most_skew,
        least_domains: 1,
        honours_affinity: true,
        honours_taints: false,
        like: like.clone(),
    };
    vec![over(HOSTNAME, 3), over(ZONE, 5)]
}

/// Selectors of the Services and of the owner that a pod belongs to.
fn family(pod: &Pod, mirror: &Mirror) -> Vec<LabelSelector> {
    let namespace = pod.metadata.namespace.as_deref();
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    let of_labels = |labels: &BTreeMap<String, String>| {
        selector(&Selector {
            match_labels: Some(labels.clone()),
            match_expressions: None,
        })
    };
    let mut family: Vec<LabelSelector> = mirror
        .services
        .list(namespace)
        .iter()
        .filter_map(|service| {
            service
                .spec
                .as_ref()?
                .selector
                .as_ref()
                .filter(|selector| !selector.is_empty())
        })
        .filter_map(of_labels)
        .filter(|selector| selector.matches(&labels))
        .collect();
    if let Some(owner) = controller_of(&pod.metadata) {
        let owned = match owner.kind.as_str() {
            "ReplicaSet" => mirror
                .replica_sets
                .get(namespace, &owner.name)
                .and_then(|set| set.spec.as_ref().map(|spec| spec.selector.clone())),
            "StatefulSet" => mirror
                .stateful_sets
                .get(namespace, &owner.name)
                .and_then(|set| set.spec.as_ref().map(|spec| spec.selector.clone())),
            _ => None,
        };
        family.extend(owned.as_ref().and_then(selector));
    }
    family
}

impl Spread {
    fn of(constraint: &TopologySpreadConstraint, pod: &Pod) -> Self {
        let mut wanted = constraint.label_selector.clone();
        let labels = pod.metadata.labels.as_ref();
        for key in constraint.match_label_keys.iter().flatten() {
            if let (Some(wanted), Some(value)) = (&mut wanted, labels.and_then(|labels| labels.get(key))) {
                let more = wanted.match_labels.get_or_insert_default();
                more.insert(key.clone(), value.clone());
            }
        }
        let honours =
            |policy: &Option<String>, usual: bool| policy.as_deref().map_or(usual, |policy| policy == "Honor");
        Self {
            key: constraint.topology_key.clone(),
            most_skew: i64::from(constraint.max_skew),
            least_domains: usize::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(1),
            honours_affinity: honours(&constraint.node_affinity_policy, true),
            honours_taints: honours(&constraint.node_taints_policy, false),
            like: wanted.as_ref().and_then(selector).into_iter().collect(),
        }
    }

    fn is_like(&self, facts: &PodFacts) -> bool {
        !self.like.is_empty() && self.like.iter().all(|selector| selector.matches(&facts.labels))
    }

    /// How many of the pod's like are on a node. An empty selector counts nobody, as in the reference.
    fn count(&self, node: &NodeState, namespace: &str) -> i64 {
        if self.like.iter().all(LabelSelector::is_empty) {
            return 0;
        }
        let like = node
            .pods
            .values()
            .filter(|facts| !facts.is_deleting && facts.name.namespace == namespace && self.is_like(facts));
        i64::try_from(like.count()).unwrap_or(i64::MAX)
    }

    fn counts_in(&self, wanted: &Wanted, node: &NodeState) -> bool {
        (!self.honours_affinity || is_selected(wanted, node))
            && (!self.honours_taints || untolerated(wanted, node).is_none())
    }
}

/// How many of a pod's like each domain of each hard constraint has.
#[derive(Debug, Default)]
pub(super) struct Domains(Vec<BTreeMap<String, i64>>);

impl Domains {
    pub(super) fn of(wanted: &Wanted, snapshot: &Snapshot) -> Self {
        let mut domains = vec![BTreeMap::new(); wanted.spread.len()];
        if wanted.spread.is_empty() {
            return Self(domains);
        }
        for node in snapshot.nodes() {
            if !wanted.spread.iter().all(|spread| node.labels.contains_key(&spread.key)) {
                continue;
            }
            for (spread, domains) in wanted.spread.iter().zip(&mut domains) {
                let Some(value) = node.labels.get(&spread.key).filter(|_| spread.counts_in(wanted, node)) else {
                    continue;
                };
                *domains.entry(value.clone()).or_default() += spread.count(node, &wanted.name().namespace);
            }
        }
        Self(domains)
    }

    /// Why a node would spread the pod's like too unevenly, and whether a pod that goes could help.
    pub(super) fn against(&self, wanted: &Wanted, node: &NodeState) -> Option<(&'static str, bool)> {
        for (spread, domains) in wanted.spread.iter().zip(&self.0) {
            let Some(value) = node.labels.get(&spread.key) else {
                return Some((
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                    false,
                ));
            };
            let least = match domains.values().min() {
                Some(least) if domains.len() >= spread.least_domains => *least,
                _ => 0,
            };
            let own = i64::from(spread.is_like(&wanted.facts));
            let there = domains.get(value).copied().unwrap_or_default();
            if there + own - least > spread.most_skew {
                return Some(("node(s) didn't match pod topology spread constraints", true));
            }
        }
        None
    }
}

/// How well each of these nodes spreads the pod's like, 0 to 100; `None` if it does not care.
pub(super) fn scores(wanted: &Wanted, snapshot: &Snapshot, nodes: &[&NodeState]) -> Option<Vec<i64>> {
    let constraints = &wanted.spread_liked;
    if constraints.is_empty() {
        return None;
    }
    let namespace = &wanted.name().namespace;
    let has_all = |node: &NodeState| constraints.iter().all(|spread| node.labels.contains_key(&spread.key));
    let is_ignored = |node: &NodeState| wanted.spread_is_own && !has_all(node);
    let mut raw: Vec<f64> = vec![0.0; nodes.len()];
    for spread in constraints {
        let mut domains: BTreeMap<&str, i64> = BTreeMap::new();
        for node in nodes.iter().filter(|node| !is_ignored(node)) {
            if let Some(value) = node.labels.get(&spread.key) {
                domains.entry(value).or_default();
            }
        }
        // Every domain of few counts as much as one of many.
        let size = if spread.key == HOSTNAME {
            nodes.iter().filter(|node| !is_ignored(node)).count()
        } else {
            domains.len()
        };
        #[expect(clippy::cast_precision_loss, reason = "counts of nodes and pods are small")]
        let weight = ((size + 2) as f64).ln();
        for node in snapshot
            .nodes()
            .filter(|node| !is_ignored(node) && spread.counts_in(wanted, node))
        {
            if let Some(count) = node
                .labels
                .get(&spread.key)
                .and_then(|value| domains.get_mut(value.as_str()))
            {
                *count += spread.count(node, namespace);
            }
        }
        for (node, raw) in nodes.iter().zip(&mut raw) {
            if is_ignored(node) {
                continue;
            }
            let Some(value) = node.labels.get(&spread.key) else {
                continue;
            };
            let count = if spread.key == HOSTNAME {
                spread.count(node, namespace)
            } else {
                domains.get(value.as_str()).copied().unwrap_or_default()
            };
            #[expect(clippy::cast_precision_loss, reason = "counts of nodes and pods are small")]
            {
                *raw += count as f64 * weight + (spread.most_skew - 1) as f64;
            }
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "counts of nodes and pods are small")]
    let raw: Vec<i64> = raw.into_iter().map(|raw| raw.round() as i64).collect();
    let counted = || {
        raw.iter()
            .zip(nodes)
            .filter(|(_, node)| !is_ignored(node))
            .map(|(raw, _)| *raw)
    };
    let (least, most) = (counted().min().unwrap_or_default(), counted().max().unwrap_or_default());
    let normal = raw.iter().zip(nodes).map(|(raw, node)| match most {
        _ if is_ignored(node) => 0,
        0 => 100,
        most => 100 * (most + least - raw) / most,
    });
    Some(normal.collect())
}
