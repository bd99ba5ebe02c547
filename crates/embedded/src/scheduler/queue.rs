//! Who waits for a node, and what wakes whom. The driver keeps the order: a key begins with the pod's priority (highest
//! first) and its age.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::facts::{PodFacts, PodName, claims};
use super::gangs::{self, Gang};
use super::snapshot::Snapshot;
use super::tell::scheduler_name;
use super::volumes::SELECTED_NODE;
use super::{DEFAULT, Named};
use crate::controllers::pods::{is_deleting, is_finished};
use crate::controllers::{Hand, Wishes};
use crate::registry::object;
use crate::store::{Entry, Key};

/// What a key of work stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ticket {
    Pod(PodName),
    Gang(PodName),
}

impl Ticket {
    pub(super) fn read(key: &str) -> Option<Self> {
        let mut parts = key.splitn(5, '/').skip(2);
        let name = PodName {
            namespace: parts.next()?.to_owned(),
            name: parts.next()?.to_owned(),
        };
        Some(match parts.next() {
            None => Self::Pod(name),
            Some(_) => Self::Gang(name),
        })
    }
}

/// The highest priority first, then the oldest.
fn key_of(priority: i32, created: &str, name: &PodName, end: &str) -> String {
    let order = i64::from(i32::MAX) - i64::from(priority);
    format!("{order:010}/{created}/{}/{}{end}", name.namespace, name.name)
}

/// A pod without a node that may have one.
#[derive(Debug, PartialEq, Eq)]
struct Waiting {
    key: String,
    priority: i32,
    gang: Option<String>,
    has_claims: bool,
    /// Other pods may make it fit.
    looks_for_pods: bool,
    /// What a change of wakes it.
    generation: Option<i64>,
    labels: u64,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Named<Waiting>,
    gangs: Named<Gang>,
    /// Pods that wait for their volumes, and hold their place meanwhile.
    reserved: BTreeSet<PodName>,
}

impl Waiting {
    fn of(pod: &Pod, name: &PodName) -> Self {
        let spec = pod.spec.as_ref();
        let created = pod
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let priority = spec.and_then(|spec| spec.priority).unwrap_or_default();
        let labels = pod.metadata.labels.iter().flatten();
        let words: Vec<&str> = labels.flat_map(|(key, value)| [key.as_str(), value.as_str()]).collect();
        let gang = pod.metadata.labels.as_ref().and_then(|labels| labels.get(gangs::LABEL));
        let affinity = spec.and_then(|spec| spec.affinity.as_ref());
        Self {
            key: key_of(priority, &object::seconds(created), name, ""),
            priority,
            gang: gang.filter(|_| scheduler_name(pod) != DEFAULT).cloned(),
            has_claims: !claims(pod).is_empty(),
            looks_for_pods: affinity.is_some_and(|affinity| affinity.pod_affinity.is_some())
                || spec.is_some_and(|spec| spec.topology_spread_constraints.is_some()),
            generation: pod.metadata.generation,
            labels: crate::node::hollow::hash(&words),
        }
    }
}

impl Queue {
    /// The pod, if it still waits.
    pub(super) fn waiting(&self, hand: &Hand, name: &PodName) -> Option<Arc<Pod>> {
        self.waiting.get(name)?;
        hand.mirror.pods.get(Some(&name.namespace), &name.name)
    }

    pub(super) fn key(&self, name: &PodName) -> Option<&str> {
        self.waiting.get(name).map(|waiting| waiting.key.as_str())
    }

    pub(super) fn gang_of(&self, name: &PodName) -> Option<PodName> {
        Some(PodName {
            namespace: name.namespace.clone(),
            name: self.waiting.get(name)?.gang.clone()?,
        })
    }

    pub(super) fn gang(&self, name: &PodName) -> Option<&Gang> {
        self.gangs.get(name)
    }

    /// The pods of a gang that wait, with their groups, in the order in which they are taken.
    pub(super) fn members(&self, hand: &Hand, name: &PodName, gang: &Gang) -> Vec<(usize, Arc<Pod>)> {
        let mut found: Vec<(&str, usize, Arc<Pod>)> = Vec::new();
        for (index, group) in gang.groups.iter().enumerate() {
            for pod in &group.pods {
                let Some(waiting) = self.waiting.get(pod) else { continue };
                if waiting.gang.as_ref() != Some(&name.name) || pod.namespace != name.namespace {
                    continue;
                }
                if let Some(pod) = hand.mirror.pods.get(Some(&pod.namespace), &pod.name) {
                    found.push((&waiting.key, index, pod));
                }
            }
        }
        found.sort_by(|one, other| one.0.cmp(other.0));
        found.into_iter().map(|(_, group, pod)| (group, pod)).collect()
    }

    /// Whether a pod has a node, and is not about to leave it.
    pub(super) fn is_bound(&self, name: &PodName, snapshot: &Snapshot) -> bool {
        !self.waiting.contains_key(name) && snapshot.is_staying(name)
    }

    /// A pod holds its place until its volumes are there.
    pub(super) fn reserve(&mut self, facts: &Arc<PodFacts>, node: &str, snapshot: &mut Snapshot) {
        self.reserved.insert(facts.name.clone());
        snapshot.put_pod(facts.clone(), node);
    }

    pub(super) fn unreserve(&mut self, name: &PodName, snapshot: &mut Snapshot) {
        if self.reserved.remove(name) {
            snapshot.drop_pod(name);
        }
    }

    /// Has a pod looked at: by itself, or with its gang.
    pub(super) fn wish(&self, name: &PodName, wishes: &mut Wishes) {
        if let Some(waiting) = self.waiting.get(name) {
            wishes.sync(waiting.key.clone());
        }
    }

    fn wish_gang(&self, name: &PodName, wishes: &mut Wishes) {
        let Some(gang) = self.gangs.get(name) else { return };
        let pods = gang.groups.iter().flat_map(|group| &group.pods);
        let waiting = pods
            .filter_map(|pod| self.waiting.get(pod))
            .map(|waiting| waiting.priority);
        if let Some(priority) = waiting.max() {
            wishes.sync(key_of(priority, &gang.created, name, "/gang"));
        }
    }

    fn wake_one(&self, name: &PodName, wishes: &mut Wishes) {
        match self.gang_of(name) {
            // Alone it does nothing but say what it waits for, or follow its gang.
            Some(gang) => {
                self.wish(name, wishes);
                self.wish_gang(&gang, wishes);
            }
            None => self.wish(name, wishes),
        }
    }

    fn wake(&self, wishes: &mut Wishes, is_meant: impl Fn(&PodName, &Waiting) -> bool) {
        for (name, waiting) in &self.waiting {
            if is_meant(name, waiting) {
                self.wake_one(name, wishes);
            }
        }
    }

    /// An object as it is now.
    pub(super) fn put(&mut self, hand: &Hand, entry: &Entry, snapshot: &mut Snapshot, wishes: &mut Wishes) {
        let key = &entry.key;
        match (key.group(), key.resource()) {
            ("", "pods") => {
                if let Some(pod) = hand.mirror.pods.get(key.namespace(), key.name()) {
                    self.put_pod(hand, &pod, snapshot, wishes);
                }
            }
            ("", "nodes") => {
                if let Some(node) = hand.mirror.nodes.get(None, key.name())
                    && snapshot.put_node(&node)
                {
                    self.wake(wishes, |_, _| true);
                }
            }
            ("", "namespaces") => {
                if let Some(namespace) = hand.mirror.namespaces.get(None, key.name()) {
                    snapshot.put_namespace(key.name(), namespace.metadata.labels.clone().unwrap_or_default());
                }
            }
            ("", "persistentvolumeclaims") => {
                let namespace = key.namespace().unwrap_or_default();
                self.wake(wishes, |name, waiting| {
                    waiting.has_claims && name.namespace == namespace
                });
            }
            ("", "persistentvolumes") | ("storage.k8s.io", "storageclasses") => {
                self.wake(wishes, |_, waiting| waiting.has_claims);
            }
            (gangs::GROUP, gangs::PLURAL) => self.put_gang(entry, wishes),
            _ => {}
        }
    }

    fn put_gang(&mut self, entry: &Entry, wishes: &mut Wishes) {
        let Ok(value) = object::decode(entry) else { return };
        let name = PodName {
            namespace: entry.key.namespace().unwrap_or_default().to_owned(),
            name: entry.key.name().to_owned(),
        };
        let gang = Gang::read(&value);
        // Its status is written often, and is nothing to us.
        if self.gangs.get(&name) == Some(&gang) {
            return;
        }
        self.gangs.insert(name.clone(), gang);
        self.wake(wishes, |pod, waiting| {
            pod.namespace == name.namespace && waiting.gang.as_ref() == Some(&name.name)
        });
    }

    fn put_pod(&mut self, hand: &Hand, pod: &Pod, snapshot: &mut Snapshot, wishes: &mut Wishes) {
        let name = PodName::of(pod);
        let spec = pod.spec.as_ref();
        let node = spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        if !node.is_empty() || is_finished(pod) || is_deleting(&pod.metadata) {
            self.stop_waiting(&name, snapshot, wishes);
        }
        if is_finished(pod) || (node.is_empty() && is_deleting(&pod.metadata)) {
            self.freed(&name, snapshot, wishes);
            return;
        }
        if !node.is_empty() {
            let was_there = snapshot.place_of(&name).is_some();
            snapshot.put_pod(Arc::new(PodFacts::of(pod)), node);
            if !was_there {
                self.wake(wishes, |_, waiting| waiting.looks_for_pods);
                if let Some(gang) = pod.metadata.labels.as_ref().and_then(|labels| labels.get(gangs::LABEL)) {
                    // What is beyond its minimum may follow now.
                    let gang = PodName {
                        namespace: name.namespace,
                        name: gang.clone(),
                    };
                    self.wish_gang(&gang, wishes);
                }
            }
            return;
        }
        let gates = spec.and_then(|spec| spec.scheduling_gates.as_ref());
        if gates.is_some_and(|gates| !gates.is_empty()) {
            self.stop_waiting(&name, snapshot, wishes);
            return;
        }
        let waiting = Waiting::of(pod, &name);
        if self.waiting.get(&name) == Some(&waiting) {
            return;
        }
        self.waiting.insert(name.clone(), waiting);
        self.hold_place(hand, pod, &name, snapshot);
        self.wake_one(&name, wishes);
    }

    /// After a restart: a pod whose claims already know its node holds its place there.
    fn hold_place(&mut self, hand: &Hand, pod: &Pod, name: &PodName, snapshot: &mut Snapshot) {
        let node = claims(pod).into_iter().find_map(|(claim, _)| {
            let claim = hand.mirror.claims.get(Some(&name.namespace), &claim)?;
            claim.metadata.annotations.as_ref()?.get(SELECTED_NODE).cloned()
        });
        if let Some(node) = node {
            self.reserve(&Arc::new(PodFacts::of(pod)), &node, snapshot);
        }
    }

    fn stop_waiting(&mut self, name: &PodName, snapshot: &mut Snapshot, wishes: &mut Wishes) {
        self.unreserve(name, snapshot);
        if let Some(waiting) = self.waiting.remove(name) {
            wishes.no_more(waiting.key);
        }
    }

    /// A pod counts nowhere any more: others may fit now.
    fn freed(&mut self, name: &PodName, snapshot: &mut Snapshot, wishes: &mut Wishes) {
        if snapshot.drop_pod(name) {
            self.wake(wishes, |_, _| true);
        }
    }

    /// An object that is gone.
    pub(super) fn drop(&mut self, key: &Key, snapshot: &mut Snapshot, wishes: &mut Wishes) {
        let name = PodName {
            namespace: key.namespace().unwrap_or_default().to_owned(),
            name: key.name().to_owned(),
        };
        match (key.group(), key.resource()) {
            ("", "pods") => {
                self.stop_waiting(&name, snapshot, wishes);
                self.freed(&name, snapshot, wishes);
            }
            ("", "nodes") => {
                snapshot.drop_node(key.name());
                // Domains that went may free a pod that had to be spread.
                self.wake(wishes, |_, waiting| waiting.looks_for_pods);
            }
            ("", "namespaces") => snapshot.drop_namespace(key.name()),
            (gangs::GROUP, gangs::PLURAL) => {
                self.gangs.remove(&name);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k1_the_highest_priority_comes_first_then_the_oldest_then_the_name() {
        let name = |name: &str| PodName {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        };
        let keys = [
            key_of(2_000_001_000, "2026-01-01T00:00:09Z", &name("z"), ""),
            key_of(5, "2026-01-01T00:00:01Z", &name("b"), ""),
            key_of(5, "2026-01-01T00:00:02Z", &name("a"), ""),
            key_of(5, "2026-01-01T00:00:02Z", &name("b"), ""),
            key_of(0, "2026-01-01T00:00:00Z", &name("a"), ""),
            key_of(-5, "2026-01-01T00:00:00Z", &name("a"), ""),
        ];
        assert!(keys.is_sorted(), "{keys:#?}");
        assert_eq!(Ticket::read(&keys[1]), Some(Ticket::Pod(name("b"))));
        let gang = key_of(5, "2026-01-01T00:00:01Z", &name("g"), "/gang");
        assert_eq!(Ticket::read(&gang), Some(Ticket::Gang(name("g"))));
    }
}
