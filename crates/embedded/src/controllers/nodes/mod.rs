//! Nodes that are lost, and what becomes of their pods (C9).
//!
//! - [`health`]: whether a node that says nothing counts as lost. [`taints`]: what it is marked with. [`eviction`]: when a
//!   pod has to leave a marked node. All pure.
//!
//! A node is alive while its Lease is renewed or its status is posted. Since when it was silent is in one timer and nowhere
//! else: a renewal writes nothing and runs nothing, it only moves the timer; when it rings, the node is lost. After a
//! restart every node has a whole grace again, as in the reference.

mod eviction;
mod health;
mod taints;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use serde_json::json;

use super::disruption::disrupted;
use super::glimpse;
use super::hand::{changed, name_of, reference, uid_of};
use super::{Census, Control, Hand, Next, Wishes, pods};
use crate::fault::Fault;
use crate::registry::object;
use crate::store::{Entry, Kind, LogEntry};

const COMPONENT: &str = "node-controller";
const EVICTOR: &str = "taint-eviction-controller";
const LEASES: &str = "kube-node-lease";
/// Keys.
const NODE: &str = "node/";
const SILENT: &str = "silent/";
const POD: &str = "pod/";
const CAME: &str = "came/";
const WENT: &str = "went/";

#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// Nodes as they were seen last.
    seen: BTreeMap<String, Arc<Node>>,
    ready: BTreeSet<String>,
    /// The uids of nodes that were taken away, for the event that says so.
    gone: BTreeMap<String, String>,
    /// Which pods are on which node.
    on: BTreeMap<String, BTreeSet<String>>,
    placed: BTreeMap<String, String>,
    /// Since when a taint is there that does not say so itself.
    tainted: BTreeMap<String, BTreeMap<String, Timestamp>>,
    /// Pods that are to leave, but not yet.
    leaving: BTreeSet<String>,
}

impl Nodes {
    /// Whether it was not known to be there.
    fn place_pod(&mut self, key: &str, node: &str) -> bool {
        if node.is_empty() || self.placed.get(key).is_some_and(|known| known == node) {
            return false;
        }
        self.on.entry(node.to_owned()).or_default().insert(key.to_owned());
        self.placed.insert(key.to_owned(), node.to_owned());
        true
    }

    fn unplace_pod(&mut self, key: &str) {
        self.leaving.remove(key);
        if let Some(node) = self.placed.remove(key)
            && let Some(on) = self.on.get_mut(&node)
        {
            on.remove(key);
            if on.is_empty() {
                self.on.remove(&node);
            }
        }
    }

    /// The node lives: its grace begins anew.
    fn hear(hand: &Hand, name: &str, wishes: &mut Wishes) {
        // Not at the end of the grace, but past it.
        let grace = hand.settings.node_grace.saturating_add(SignedDuration::from_millis(1));
        let end = hand.now().saturating_add(grace).unwrap_or(Timestamp::MAX);
        wishes.sync_at(format!("{SILENT}{name}"), end);
    }

    fn see_node(&mut self, hand: &Hand, line: &LogEntry, wishes: &mut Wishes) {
        let name = line.key.name();
        let was_any_ready = !self.ready.is_empty();
        let Some(new) = hand.mirror.nodes.get(None, name) else {
            self.ready.remove(name);
            self.tainted.remove(name);
            if let Some(old) = self.seen.remove(name) {
                self.gone.insert(name.to_owned(), uid_of(&old.metadata).to_owned());
            }
            wishes.no_more(format!("{SILENT}{name}"));
            wishes.sync(format!("{WENT}{name}"));
            return self.all_if(was_any_ready, wishes);
        };
        let old = self.seen.insert(name.to_owned(), new.clone());
        if line.kind == Kind::Create {
            wishes.sync(format!("{CAME}{name}"));
        }
        let is_ready = health::is_ready(&new);
        if is_ready {
            self.ready.insert(name.to_owned());
        } else {
            self.ready.remove(name);
        }
        let beat = |node: &Node| health::ready(node).and_then(|ready| ready.last_heartbeat_time.clone());
        let word = |node: &Node| health::ready(node).map(|ready| ready.status.clone());
        let is_ours = word(&new).as_deref() == Some("Unknown");
        if old
            .as_deref()
            .is_none_or(|old| beat(old) != beat(&new) || (word(old) != word(&new) && !is_ours))
        {
            Self::hear(hand, name, wishes);
        }
        if old
            .as_deref()
            .is_none_or(|old| health::concerns(old) != health::concerns(&new))
        {
            wishes.sync(format!("{NODE}{name}"));
        }
        let fleeing = |node: &Node| taints::fleeing(node).cloned().collect::<Vec<_>>();
        if old.as_deref().map(fleeing).unwrap_or_default() != fleeing(&new) {
            self.note_taints(hand, &new);
            for key in self.on.get(name).into_iter().flatten() {
                wishes.sync(format!("{POD}{key}"));
            }
        }
        self.all_if(was_any_ready, wishes);
    }

    /// Whether there is any node that is ready decides about all of them.
    fn all_if(&self, was_any_ready: bool, wishes: &mut Wishes) {
        if was_any_ready == self.ready.is_empty() {
            for name in self.seen.keys() {
                wishes.sync(format!("{NODE}{name}"));
            }
        }
    }

    fn note_taints(&mut self, hand: &Hand, node: &Node) {
        let known = self.tainted.remove(name_of(&node.metadata)).unwrap_or_default();
        let since: BTreeMap<String, Timestamp> = taints::fleeing(node)
            .map(|taint| {
                let said = taint.time_added.as_ref().map(|time| time.0);
                let key = taints::spelt(taint);
                let since = said.or_else(|| known.get(&key).copied()).unwrap_or_else(|| hand.now());
                (key, since)
            })
            .collect();
        if !since.is_empty() {
            self.tainted.insert(name_of(&node.metadata).to_owned(), since);
        }
    }
}

impl Control for Nodes {
    fn begin(&mut self, hand: &Hand, state: &[Entry], _: &Census, wishes: &mut Wishes) {
        *self = Self::default();
        for (key, pod) in glimpse::of_state(state) {
            self.place_pod(&key, &pod.spec.node_name);
        }
        for node in hand.mirror.nodes.list(None) {
            let name = name_of(&node.metadata).to_owned();
            if health::is_ready(&node) {
                self.ready.insert(name.clone());
            }
            Self::hear(hand, &name, wishes);
            self.note_taints(hand, &node);
            if self.tainted.contains_key(&name) {
                for key in self.on.get(&name).into_iter().flatten() {
                    wishes.sync(format!("{POD}{key}"));
                }
            }
            wishes.sync(format!("{NODE}{name}"));
            self.seen.insert(name, node);
        }
    }

    fn see(&mut self, hand: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        match (line.key.group(), line.key.resource()) {
            ("", "nodes") => self.see_node(hand, line, wishes),
            ("coordination.k8s.io", "leases")
                if line.key.namespace() == Some(LEASES)
                    && line.kind != Kind::Delete
                    && self.seen.contains_key(line.key.name()) =>
            {
                Self::hear(hand, line.key.name(), wishes);
            }
            ("", "pods") => {
                let key = glimpse::place(&line.key);
                match glimpse::of_line(line).1 {
                    None => {
                        self.unplace_pod(&key);
                        wishes.no_more(format!("{POD}{key}"));
                    }
                    Some(pod) => {
                        let is_new = self.place_pod(&key, &pod.spec.node_name);
                        let node = self.placed.get(&key);
                        if node.is_some_and(|node| self.tainted.contains_key(node)) {
                            wishes.sync(format!("{POD}{key}"));
                        }
                        if let Some(node) = node
                            && is_new
                            && !self.ready.contains(node)
                        {
                            wishes.sync(format!("{NODE}{node}"));
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            if let Some(name) = key.strip_prefix(NODE) {
                return self.sync_node(hand, name).await;
            }
            if let Some(name) = key.strip_prefix(SILENT) {
                lose(hand, name).await?;
                return Ok(Next::Done);
            }
            if let Some(key) = key.strip_prefix(POD) {
                return self.sync_pod(hand, key).await;
            }
            if let Some(name) = key.strip_prefix(CAME)
                && let Some(node) = hand.mirror.nodes.get(None, name)
            {
                let message = format!("Node {name} event: Registered Node {name} in Controller");
                tell(
                    hand,
                    node_reference(name, uid_of(&node.metadata)),
                    "Normal",
                    "RegisteredNode",
                    message,
                )
                .await;
            }
            if let Some(name) = key.strip_prefix(WENT)
                && let Some(uid) = self.gone.remove(name)
            {
                let message = format!("Node {name} event: Removing Node {name} from Controller");
                tell(hand, node_reference(name, &uid), "Normal", "RemovingNode", message).await;
            }
            Ok(Next::Done)
        }
        .boxed()
    }
}

impl Nodes {
    async fn sync_node(&mut self, hand: &Hand, name: &str) -> Result<Next, Fault> {
        let Some(node) = hand.mirror.nodes.get(None, name) else {
            return Ok(Next::Done);
        };
        if health::ready(&node).is_some_and(|ready| ready.status != "True") {
            self.pods_not_ready(hand, &node).await?;
        }
        let wanted = taints::wanted(&node, !self.ready.is_empty(), hand.now());
        let labels = taints::labels(&node);
        if wanted.is_some() || !labels.is_empty() {
            let mut change = json!({"metadata": {"resourceVersion": node.metadata.resource_version}});
            if let Some(wanted) = wanted {
                let taints = if wanted.is_empty() { None } else { Some(wanted) };
                object::set_at(&mut change, "spec.taints", json!(taints));
            }
            if !labels.is_empty() {
                object::set_at(&mut change, "metadata.labels", json!(labels));
            }
            changed(hand.patch(&hand.target_of::<Node>(None, name)?, "", change).await)?;
        }
        Ok(Next::Done)
    }

    /// Whoever leads clients to these pods leads them elsewhere.
    async fn pods_not_ready(&self, hand: &Hand, node: &Node) -> Result<(), Fault> {
        for key in self.on.get(name_of(&node.metadata)).into_iter().flatten() {
            let Some((namespace, name)) = key.split_once('/') else {
                continue;
            };
            let Some(pod) = hand.mirror.pods.get(Some(namespace), name) else {
                continue;
            };
            if !health::is_doubtful(&pod, node) {
                continue;
            }
            let conditions = health::pod_not_ready(&pod, hand.now());
            let change = json!({
                "metadata": {"resourceVersion": pod.metadata.resource_version}, "status": {"conditions": conditions},
            });
            let target = hand.target_of::<Pod>(Some(namespace), name)?;
            changed(hand.patch(&target, "status", change).await)?;
            let message = "Node is not ready".to_owned();
            tell(hand, reference(&*pod), "Warning", "NodeNotReady", message).await;
        }
        Ok(())
    }

    /// A pod on a node that it does not tolerate leaves, at once or when its patience ends.
    async fn sync_pod(&mut self, hand: &Hand, key: &str) -> Result<Next, Fault> {
        let Some((namespace, name)) = key.split_once('/') else {
            return Ok(Next::Done);
        };
        let Some(pod) = hand.mirror.pods.get(Some(namespace), name) else {
            return Ok(Next::Done);
        };
        let node = self.placed.get(key).and_then(|node| hand.mirror.nodes.get(None, node));
        let since = self.placed.get(key).and_then(|node| self.tainted.get(node));
        let when = node
            .as_deref()
            .zip(since)
            .and_then(|(node, since)| eviction::leaves_at(&pod, node, since));
        if pods::is_deleting(&pod.metadata) {
            self.leaving.remove(key);
            return Ok(Next::Done);
        }
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        let Some(when) = when else {
            if self.leaving.remove(key) {
                say(hand, about, format!("Cancelling deletion of Pod {key}")).await;
            }
            return Ok(Next::Done);
        };
        if when > hand.now() {
            self.leaving.insert(key.to_owned());
            return Ok(Next::At(when));
        }
        self.leaving.remove(key);
        say(hand, about, format!("Marking for deletion Pod {key}")).await;
        let mut conditions = pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone())
            .unwrap_or_default();
        let before = conditions.clone();
        let message = "Taint manager: deleting due to NoExecute taint";
        let generation = pod.metadata.generation;
        disrupted(
            &mut conditions,
            "True",
            "DeletionByTaintManager",
            message,
            generation,
            hand.now(),
        );
        let target = hand.target_of::<Pod>(Some(namespace), name)?;
        if conditions != before {
            let change = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": conditions}});
            changed(hand.patch(&target, "status", change).await)?;
        }
        hand.remove(&target, uid_of(&pod.metadata), None).await?;
        Ok(Next::Done)
    }
}

/// Says that nothing is known of a node any more. What was written is seen by a sync of the node, which does the rest.
async fn lose(hand: &Hand, name: &str) -> Result<(), Fault> {
    let Some(node) = hand.mirror.nodes.get(None, name) else {
        return Ok(());
    };
    let Some(conditions) = health::lost(&node, hand.now()) else {
        return Ok(());
    };
    let change = json!({
        "metadata": {"resourceVersion": node.metadata.resource_version}, "status": {"conditions": conditions},
    });
    changed(hand.patch(&hand.target_of::<Node>(None, name)?, "status", change).await)?;
    if health::is_ready(&node) {
        let message = format!("Node {name} status is now: NodeNotReady");
        tell(
            hand,
            node_reference(name, uid_of(&node.metadata)),
            "Normal",
            "NodeNotReady",
            message,
        )
        .await;
    }
    Ok(())
}

fn node_reference(name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

async fn tell(hand: &Hand, about: ObjectReference, kind: &str, reason: &str, message: String) {
    hand.say(COMPONENT, about, kind, reason, message).await;
}

async fn say(hand: &Hand, about: ObjectReference, message: String) {
    hand.say(EVICTOR, about, "Normal", "TaintManagerEviction", message)
        .await;
}
