//! Hollow nodes: they run nothing, and say of their pods what stages tell (11.1). For tests of scale, for the simulator.
//!
//! - [`stages`]: what becomes of a pod, as data. [`status`]: how a kubelet would say it.
//! - [`HollowNodes`]: one of the controllers. It registers the hollow nodes of `Options.nodes`, renews their Leases every
//!   10 s, all in one go, and moves each pod on when its stage ends: one write for each stage.
//!
//! Where a pod is, is read off its status; how long it has been there is not remembered over a restart, which starts the
//! stage anew. Jitter comes from the pod's uid, and so from the cluster's seed.

mod addresses;
pub mod stages;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

use super::entry::object::{LEASES, Report, lease, node, renewal, status as node_status};
use super::entry::{NodeEntry, NodeKind};
use crate::controllers::pods::{condition, is_deleting, is_finished, is_pod_ready};
use crate::controllers::{Census, Control, Hand, Next, Wishes};
use crate::fault::Fault;
use crate::store::{Entry, Key, LogEntry};

use addresses::{Addresses, node_address};
use stages::{Delay, Moment, Stage, Step};
use status::{Told, restarts};

/// Who owns what nodes write.
const MANAGER: &str = "kubelet";
/// The key of all Leases.
const RENEW: &str = "leases";
/// How long a kubelet waits before it starts a container for the third time, and at most (N10).
const FIRST_BACK_OFF: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_BACK_OFF: SignedDuration = SignedDuration::from_secs(300);

/// A number that depends on nothing but these words (FNV-1a): the same at every start, on every machine.
pub(crate) fn hash(words: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in words.iter().flat_map(|word| word.bytes().chain([0xff])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

/// Where a pod has come to: its uid, the moment, and how often it was started.
type Point = (String, Moment, i32);

#[derive(Debug, Default)]
pub(crate) struct HollowNodes {
    /// Those of `Options.nodes`, by name, with their number.
    nodes: BTreeMap<String, (usize, NodeEntry)>,
    /// By key: the point for whose stage a pod waits.
    points: BTreeMap<String, Point>,
    addresses: Addresses,
}

impl Control for HollowNodes {
    fn begin(&mut self, hand: &Hand, state: &[Entry], _: &Census, wishes: &mut Wishes) {
        let hollow = hand.settings.nodes.iter().filter(|entry| entry.is_hollow()).cloned();
        self.nodes = hollow
            .enumerate()
            .map(|(number, entry)| (entry.name.clone(), (number, entry)))
            .collect();
        self.points.clear();
        self.addresses = Addresses::default();
        if self.nodes.is_empty() {
            return;
        }
        for name in self.nodes.keys() {
            wishes.sync(format!("node/{name}"));
        }
        wishes.sync_by(RENEW, soon(hand.now(), renewal(hand.settings.node_grace)));
        for entry in state.iter().filter(|entry| is_pod(&entry.key)) {
            self.look(hand, &entry.key, wishes);
        }
    }

    fn see(&mut self, hand: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        if self.nodes.is_empty() {
            return;
        }
        if is_pod(&line.key) {
            match line.entry() {
                Some(_) => self.look(hand, &line.key, wishes),
                None => self.forget(&line.key, wishes),
            }
        } else if line.key.resource() == "nodes" && line.key.group().is_empty() {
            let is_doubted = self.nodes.contains_key(line.key.name())
                && hand
                    .mirror
                    .nodes
                    .get(None, line.key.name())
                    .is_some_and(|node| !is_ready(&node));
            if is_doubted {
                wishes.sync(format!("node/{}", line.key.name()));
            }
        }
    }

    fn sync<'a>(
        &'a mut self,
        hand: &'a Hand,
        key: &'a str,
        wishes: &'a mut Wishes,
    ) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            let hand = hand.named(MANAGER);
            if key == RENEW {
                for name in self.nodes.keys() {
                    renew(&hand, name).await?;
                }
                return Ok(Next::At(soon(hand.now(), renewal(hand.settings.node_grace))));
            }
            match key.split_once('/') {
                Some(("node", name)) => self.register(&hand, name).await?,
                Some(("pod", place)) => self.move_on(&hand, key, place, wishes).await?,
                _ => {}
            }
            Ok(Next::Done)
        }
        .boxed()
    }
}

fn is_pod(key: &Key) -> bool {
    key.resource() == "pods" && key.group().is_empty()
}

fn work_key(key: &Key) -> String {
    format!("pod/{}/{}", key.namespace().unwrap_or_default(), key.name())
}

fn soon(now: Timestamp, wait: SignedDuration) -> Timestamp {
    now.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Gone, or changed by somebody else meanwhile: that change will be seen.
fn overtaken(fault: &Fault) -> bool {
    matches!(fault.code, 404 | 409)
}

async fn renew(hand: &Hand, name: &str) -> Result<(), Fault> {
    let Some(node) = hand.mirror.nodes.get(None, name) else {
        return Ok(());
    };
    let before = hand.mirror.leases.get(Some(LEASES), name);
    let new = lease(&node, before.as_deref(), hand.now());
    let written = match before {
        Some(_) => hand.put(Some(LEASES), name, "", &new).await,
        None => hand.make(Some(LEASES), &new).await,
    };
    match written {
        Err(fault) if !overtaken(&fault) => Err(fault),
        _ => Ok(()),
    }
}

/// Where a pod on a hollow node is. `None`: nothing happens to it any more.
fn moment(pod: &Pod) -> Option<Moment> {
    if is_deleting(&pod.metadata) {
        return Some(Moment::Deleting);
    }
    if is_finished(pod) {
        return None;
    }
    if pod.status.as_ref().is_none_or(|status| status.start_time.is_none()) {
        return Some(Moment::Bound);
    }
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    let is_waiting = statuses
        .into_iter()
        .any(|container| container.state.as_ref().is_some_and(|state| state.waiting.is_some()));
    Some(match is_waiting {
        true => Moment::BackOff,
        false if is_pod_ready(pod) => Moment::Ready,
        false => Moment::Unready,
    })
}

/// The restart after so many comes after this: the first at once, the second after 10 s, then ever later.
fn back_off(restarts: i32) -> SignedDuration {
    let Ok(doublings) = u32::try_from(restarts - 1) else {
        return SignedDuration::ZERO;
    };
    FIRST_BACK_OFF
        .saturating_mul(1 << doublings.min(10))
        .min(LONGEST_BACK_OFF)
}

impl HollowNodes {
    fn node_of(&self, pod: &Pod) -> Option<&(usize, NodeEntry)> {
        self.nodes.get(pod.spec.as_ref()?.node_name.as_deref()?)
    }

    fn stage(&self, pod: &Pod) -> Option<(&Stage, Point)> {
        let (_, entry) = self.node_of(pod)?;
        let NodeKind::Hollow(stages) = &entry.kind else {
            return None;
        };
        let at = moment(pod)?;
        let stage = stages.of(at, pod.metadata.labels.as_ref())?;
        Some((stage, (pod.metadata.uid.clone().unwrap_or_default(), at, restarts(pod))))
    }

    /// A pod came or changed: if it has come to another point, its stage begins.
    fn look(&mut self, hand: &Hand, key: &Key, wishes: &mut Wishes) {
        let Some(pod) = hand.mirror.pods.get(key.namespace(), key.name()) else {
            return;
        };
        let Some(number) = self.node_of(&pod).map(|(number, _)| *number) else {
            return;
        };
        let work = work_key(key);
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        self.addresses.note(number, &work, address);
        let Some((stage, point)) = self.stage(&pod) else {
            self.points.remove(&work);
            wishes.no_more(work);
            return;
        };
        if self.points.get(&work) == Some(&point) {
            return;
        }
        let now = hand.now();
        let due = match stage.delay {
            Delay::Of(wait) => soon(now, wait),
            Delay::BackOff => soon(now, back_off(point.2)),
            // It says until when it may stay.
            Delay::Grace => pod.metadata.deletion_timestamp.as_ref().map_or(now, |until| until.0),
        };
        let most = u64::try_from(stage.jitter.as_nanos()).unwrap_or(u64::MAX);
        let late = match most {
            0 => SignedDuration::ZERO,
            most => {
                let chance = hash(&[&point.0, &format!("{:?}", point.1), &point.2.to_string()]) % most;
                SignedDuration::from_nanos(i64::try_from(chance).unwrap_or(i64::MAX))
            }
        };
        self.points.insert(work.clone(), point);
        wishes.sync_at(work, soon(due, late));
    }

    fn forget(&mut self, key: &Key, wishes: &mut Wishes) {
        let work = work_key(key);
        self.addresses.free(&work);
        if self.points.remove(&work).is_some() {
            wishes.no_more(work);
        }
    }

    /// The node's own objects: made, or made good if somebody doubts it.
    async fn register(&self, hand: &Hand, name: &str) -> Result<(), Fault> {
        let Some((number, entry)) = self.nodes.get(name) else {
            return Ok(());
        };
        let address = node_address(*number);
        let report = Report {
            address: &address,
            runtime: "hollow://1",
            kernel: "hollow",
            os_image: "hollow",
            trouble: "",
            now: hand.now(),
        };
        match hand.mirror.nodes.get(None, name) {
            None => {
                let made = hand.make(None, &node(entry, &report)).await?;
                let node: Node = serde_json::from_value(made.object).map_err(Fault::internal)?;
                match hand.make(Some(LEASES), &lease(&node, None, hand.now())).await {
                    Err(fault) if !overtaken(&fault) => Err(fault),
                    _ => Ok(()),
                }
            }
            Some(node) if !is_ready(&node) => {
                let status = node_status(entry, &report, node.status.as_ref());
                let target = hand.target_of::<Node>(None, name)?;
                let change = json!({"status": serde_json::to_value(status).map_err(Fault::internal)?});
                match hand.patch(&target, "status", change).await {
                    Err(fault) if !overtaken(&fault) => return Err(fault),
                    _ => {}
                }
                renew(hand, name).await
            }
            Some(_) => renew(hand, name).await,
        }
    }

    /// A pod's stage is over.
    async fn move_on(&mut self, hand: &Hand, key: &str, place: &str, wishes: &mut Wishes) -> Result<(), Fault> {
        let Some((namespace, name)) = place.split_once('/') else {
            return Ok(());
        };
        let Some(pod) = hand.mirror.pods.get(Some(namespace), name) else {
            return Ok(());
        };
        let (Some((stage, point)), Some((number, _))) = (self.stage(&pod), self.node_of(&pod)) else {
            return Ok(());
        };
        let (next, number) = (stage.next, *number);
        let target = hand.target_of::<Pod>(Some(namespace), name)?;
        if next == Step::Gone {
            return hand.remove(&target, &point.0, Some(0)).await;
        }
        let host = node_address(number);
        let address = match pod.spec.as_ref().and_then(|spec| spec.host_network) {
            Some(true) => host.clone(),
            _ => match self.addresses.take(number, key) {
                Some(address) => address,
                // All are taken: it waits for one that goes.
                None => {
                    wishes.sync_at(key, soon(hand.now(), renewal(hand.settings.node_grace)));
                    return Ok(());
                }
            },
        };
        let told = Told {
            pod: &pod,
            host: &host,
            address: &address,
            back_off: back_off(restarts(&pod)),
            scheduled: condition(&pod, "PodScheduled"),
            now: hand.now(),
        };
        let change = json!({"metadata": {"uid": point.0}, "status": told.status(next)});
        match hand.patch(&target, "status", change).await {
            Err(fault) if !overtaken(&fault) => Err(fault),
            _ => Ok(()),
        }
    }
}
