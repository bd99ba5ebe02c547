//! Pods that nobody ends any more (C9): those of a node that has vanished, those that are told to go on a node that is out
//! of service or on none at all, and finished ones beyond [`MOST_FINISHED`].

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

use super::disruption::disrupted;
use super::glimpse::{self, Glimpse};
use super::hand::{changed, name_of, uid_of};
use super::{Census, Control, Hand, Next, Wishes, pods};
use crate::fault::Fault;
use crate::registry::object;
use crate::store::{Entry, LogEntry};

/// How long a node may be gone before its pods are given up: it may be made again under its name.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);
const MOST_FINISHED: usize = 12_500;
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Keys.
const NODE: &str = "node/";
const POD: &str = "pod/";
const FINISHED: &str = "finished";

/// Keys are `node/name`, `pod/namespace/name` and `finished`.
#[derive(Debug, Default)]
pub(super) struct PodGarbage {
    on: BTreeMap<String, BTreeSet<String>>,
    placed: BTreeMap<String, String>,
    finished: BTreeSet<String>,
}

fn node_of(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// Told to go, but the node that would end it is not there, or will never say so.
fn is_stuck(is_deleting: bool, home: &str, node: Option<&Node>) -> bool {
    if !is_deleting {
        return false;
    }
    match node {
        None => home.is_empty(),
        Some(node) => {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
            let is_ready = |condition: &k8s_openapi::api::core::v1::NodeCondition| {
                condition.type_ == "Ready" && condition.status == "True"
            };
            taints
                .unwrap_or_default()
                .iter()
                .any(|taint| taint.key == OUT_OF_SERVICE)
                && !conditions.unwrap_or_default().iter().any(is_ready)
        }
    }
}

impl PodGarbage {
    fn note(&mut self, hand: &Hand, key: &str, pod: &Glimpse, wishes: &mut Wishes) {
        let node = pod.spec.node_name.as_str();
        let home = hand.mirror.nodes.get(None, node);
        if !node.is_empty() {
            self.on.entry(node.to_owned()).or_default().insert(key.to_owned());
            self.placed.insert(key.to_owned(), node.to_owned());
            if home.is_none() {
                Self::miss(hand, node, wishes);
            }
        }
        if pod.is_finished() {
            self.finished.insert(key.to_owned());
        } else {
            self.finished.remove(key);
        }
        if self.finished.len() > MOST_FINISHED {
            wishes.sync(FINISHED);
        }
        if is_stuck(pod.is_deleting(), node, home.as_deref()) {
            wishes.sync(format!("{POD}{key}"));
        }
    }

    fn forget(&mut self, key: &str) {
        self.finished.remove(key);
        if let Some(node) = self.placed.remove(key)
            && let Some(on) = self.on.get_mut(&node)
        {
            on.remove(key);
            if on.is_empty() {
                self.on.remove(&node);
            }
        }
    }

    /// The quarantine of a node that is not there begins, unless it has begun.
    fn miss(hand: &Hand, node: &str, wishes: &mut Wishes) {
        let end = hand.now().saturating_add(QUARANTINE).unwrap_or(Timestamp::MAX);
        wishes.sync_by(format!("{NODE}{node}"), end);
    }
}

impl Control for PodGarbage {
    fn begin(&mut self, hand: &Hand, state: &[Entry], _: &Census, wishes: &mut Wishes) {
        *self = Self::default();
        for (key, pod) in glimpse::of_state(state) {
            self.note(hand, &key, &pod, wishes);
        }
    }

    fn see(&mut self, hand: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        let name = line.key.name();
        match (line.key.group(), line.key.resource()) {
            ("", "pods") => {
                let key = glimpse::place(&line.key);
                match glimpse::of_line(line).1 {
                    Some(pod) => self.note(hand, &key, &pod, wishes),
                    None => self.forget(&key),
                }
            }
            ("", "nodes") => match hand.mirror.nodes.get(None, name) {
                None if self.on.contains_key(name) => Self::miss(hand, name, wishes),
                None => {}
                Some(node) => {
                    wishes.no_more(format!("{NODE}{name}"));
                    for key in self.on.get(name).into_iter().flatten() {
                        let found = key.split_once('/');
                        let pod = found.and_then(|(namespace, name)| hand.mirror.pods.get(Some(namespace), name));
                        if pod.is_some_and(|pod| is_stuck(pods::is_deleting(&pod.metadata), name, Some(&node))) {
                            wishes.sync(format!("{POD}{key}"));
                        }
                    }
                }
            },
            _ => {}
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            let pod = |key: &str| {
                let (namespace, name) = key.split_once('/')?;
                hand.mirror.pods.get(Some(namespace), name)
            };
            if key == FINISHED {
                let finished: Vec<_> = self.finished.iter().filter_map(|key| pod(key)).collect();
                for pod in oldest(finished) {
                    end(hand, &pod, None).await?;
                }
            } else if let Some(name) = key.strip_prefix(NODE) {
                if hand.mirror.nodes.get(None, name).is_some() {
                    return Ok(Next::Done);
                }
                for key in self.on.get(name).cloned().unwrap_or_default() {
                    if let Some(pod) = pod(&key) {
                        end(hand, &pod, Some("PodGC: node no longer exists")).await?;
                    }
                }
            } else if let Some(pod) = key.strip_prefix(POD).and_then(pod) {
                let home = hand.mirror.nodes.get(None, node_of(&pod));
                if is_stuck(pods::is_deleting(&pod.metadata), node_of(&pod), home.as_deref()) {
                    end(hand, &pod, None).await?;
                }
            }
            Ok(Next::Done)
        }
        .boxed()
    }
}

/// Those to go: evicted ones first, then the oldest.
fn oldest(mut finished: Vec<std::sync::Arc<Pod>>) -> Vec<std::sync::Arc<Pod>> {
    let count = finished.len().saturating_sub(MOST_FINISHED);
    finished.sort_by_cached_key(|pod| {
        let status = pod.status.as_ref();
        let is_evicted =
            pods::phase(pod) == "Failed" && status.and_then(|status| status.reason.as_deref()) == Some("Evicted");
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (!is_evicted, created, name_of(&pod.metadata).to_owned())
    });
    finished.truncate(count);
    finished
}

/// Nobody will say how the pod ended: it failed, and it goes by force.
async fn end(hand: &Hand, pod: &Pod, why: Option<&str>) -> Result<(), Fault> {
    let target = hand.target_of::<Pod>(pod.metadata.namespace.as_deref(), name_of(&pod.metadata))?;
    if !pods::is_finished(pod) {
        let status = pod.status.as_ref();
        let generation = pod.metadata.generation;
        let mut change = json!({"phase": "Failed", "observedGeneration": generation});
        if let Some(why) = why {
            let mut conditions = status.and_then(|status| status.conditions.clone()).unwrap_or_default();
            disrupted(&mut conditions, "True", "DeletionByPodGC", why, generation, hand.now());
            object::set_at(&mut change, "conditions", json!(conditions));
        }
        let change = json!({"metadata": {"uid": pod.metadata.uid}, "status": change});
        changed(hand.patch(&target, "status", change).await)?;
    }
    hand.remove(&target, uid_of(&pod.metadata), Some(0)).await
}
