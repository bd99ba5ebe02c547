//! The scheduler: which pod goes where (K1), and which go together (K2).
//!
//! - [`snapshot`]: the nodes with what is free on them, kept change by change. [`facts`]: what a pod asks for.
//! - [`place`]: one pod's node, a pure function: [`filter`] says why not, [`score`] which is best. Beside them [`terms`],
//!   [`amounts`], [`spread`], [`neighbours`] and [`volumes`].
//! - [`gangs`]: PodGangs as they are read; [`pack`]: a gang's minimum on one snapshot, a pure function too.
//! - [`queue`]: who waits, in which order, and what wakes whom. [`tell`]: events and conditions.
//!
//! It is one of the controllers: the driver's queue is the scheduling queue, whose keys sort by priority, age and name.
//! A pod that finds no node is tried again when something changed that could help: once at once, then after rests of 1 to
//! 10 s. Bindings of a gang are one write of the store, so that nobody ever sees a part of one. What is kept in memory
//! comes from the log.

mod amounts;
mod facts;
mod filter;
mod gangs;
mod neighbours;
mod pack;
mod place;
mod queue;
mod score;
mod snapshot;
mod spread;
mod tell;
mod terms;
#[cfg(test)]
mod tests;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use serde_json::json;

use crate::controllers::{Census, Control, Hand, Next, Wishes};
use crate::fault::Fault;
use crate::registry::ask::Target;
use crate::store::{Entry, LogEntry};

pub(crate) use amounts::Amounts;
use facts::{PodName, Wanted};
use gangs::Gang;
use pack::{Member, Order, pack};
use place::{Unfit, place};
use queue::{Queue, Ticket};
use snapshot::Snapshot;
use tell::{Reason, event, unschedulable};
use volumes::{Preparation, SELECTED_NODE};

/// Pods that name no other are placed by it, one by one, as in the reference.
pub(crate) const DEFAULT: &str = "default-scheduler";
/// Who owns what the scheduler writes.
const MANAGER: &str = "kube-scheduler";

#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    snapshot: Snapshot,
    queue: Queue,
}

impl Control for Scheduler {
    fn begin(&mut self, hand: &Hand, state: &[Entry], _: &Census, wishes: &mut Wishes) {
        self.snapshot = Snapshot::default();
        self.queue = Queue::default();
        for entry in state {
            self.queue.put(hand, entry, &mut self.snapshot, wishes);
        }
    }

    fn see(&mut self, hand: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        match line.entry() {
            Some(entry) => self.queue.put(hand, &entry, &mut self.snapshot, wishes),
            None => self.queue.drop(&line.key, &mut self.snapshot, wishes),
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
            match Ticket::read(key) {
                Some(Ticket::Pod(name)) => self.schedule(&hand, key, &name, wishes).await?,
                Some(Ticket::Gang(name)) => self.schedule_gang(&hand, key, &name, wishes).await?,
                None => {}
            }
            Ok(Next::Done)
        }
        .boxed()
    }
}

impl Scheduler {
    /// One pod by itself.
    async fn schedule(&mut self, hand: &Hand, key: &str, name: &PodName, wishes: &mut Wishes) -> Result<(), Fault> {
        let Some(pod) = self.queue.waiting(hand, name) else {
            wishes.no_more(key);
            return Ok(());
        };
        let gang = self.queue.gang_of(name);
        if let Some(gang) = &gang {
            let Some(found) = self.queue.gang(gang) else {
                let message = format!("waiting for PodGang {:?}", gang.name);
                return unschedulable(hand, &pod, &message).await;
            };
            if found.group_of(name).is_none() {
                let message = format!("waiting to be in a pod group of PodGang {:?}", gang.name);
                return unschedulable(hand, &pod, &message).await;
            }
            if !self.is_complete(found) {
                // It goes with the others.
                return Ok(());
            }
        }
        let wanted = Wanted::of(&pod, &hand.mirror);
        self.queue.unreserve(name, &mut self.snapshot);
        let packs = gang.and_then(|gang| self.queue.gang(&gang).cloned());
        let limit = |node: &snapshot::NodeState| {
            let gang = packs.as_ref()?;
            self.outside_of_pack(gang, name, node)
        };
        match place(&wanted, &self.snapshot, Some(&limit)) {
            Ok(node) => {
                let Some(preparation) = self.snapshot.node(&node).map(|node| wanted.volumes.prepare(node)) else {
                    return Ok(());
                };
                if preparation.is_nothing() {
                    return self.bind(hand, &[(pod, node)], wishes).await;
                }
                self.queue.reserve(&wanted.facts, &node, &mut self.snapshot);
                prepare(hand, &name.namespace, &node, &preparation).await
            }
            Err(why) => {
                wishes.rest(key);
                let message = why.to_string();
                event(hand, &pod, Reason::FailedScheduling, &message).await;
                unschedulable(hand, &pod, &message).await
            }
        }
    }

    /// Whether each group of a gang has its minimum of pods that have a node.
    fn is_complete(&self, gang: &Gang) -> bool {
        self.lacking(gang).iter().all(|lacking| *lacking == 0)
    }

    /// How many pods each group of a gang lacks.
    fn lacking(&self, gang: &Gang) -> Vec<usize> {
        let groups = gang.groups.iter();
        groups
            .map(|group| {
                let bound = group.pods.iter().filter(|pod| self.queue.is_bound(pod, &self.snapshot));
                group.least.saturating_sub(bound.count())
            })
            .collect()
    }

    /// The nodes where pods of some groups already are.
    fn nodes_of(&self, gang: &Gang, pack: &gangs::Pack) -> Vec<String> {
        let groups = pack.groups.iter().filter_map(|index| gang.groups.get(*index));
        let pods = groups.flat_map(|group| &group.pods);
        pods.filter(|pod| self.queue.is_bound(pod, &self.snapshot))
            .filter_map(|pod| self.snapshot.place_of(pod))
            .map(str::to_owned)
            .collect()
    }

    /// Why a node is out of the question for one more pod of a gang whose minimum has its place.
    fn outside_of_pack(&self, gang: &Gang, name: &PodName, node: &snapshot::NodeState) -> Option<String> {
        let group = gang.group_of(name)?;
        let packs = gang
            .packs
            .iter()
            .filter(|pack| pack.is_required && pack.groups.contains(&group));
        for pack in packs {
            let value = node.labels.get(&pack.key);
            let there = self.nodes_of(gang, pack);
            let agree = |other: &String| {
                self.snapshot
                    .node(other)
                    .is_none_or(|other| other.labels.get(&pack.key) == value)
            };
            if value.is_none() || !there.iter().all(agree) {
                return Some(format!(
                    "node(s) didn't match the PodGang's pack constraint {:?}",
                    pack.key
                ));
            }
        }
        None
    }

    /// A gang's minimum, at once; what is beyond it follows singly.
    async fn schedule_gang(
        &mut self,
        hand: &Hand,
        key: &str,
        name: &PodName,
        wishes: &mut Wishes,
    ) -> Result<(), Fault> {
        let Some(gang) = self.queue.gang(name).cloned() else {
            wishes.no_more(key);
            return Ok(());
        };
        let needs = self.lacking(&gang);
        let members = self.queue.members(hand, name, &gang);
        if needs.iter().all(|needed| *needed == 0) {
            wishes.no_more(key);
            for (_, pod) in &members {
                self.queue.wish(&PodName::of(pod), wishes);
            }
            return Ok(());
        }
        let of = |group: usize| members.iter().filter(|(own, _)| *own == group).count();
        if needs.iter().enumerate().any(|(group, needed)| of(group) < *needed) {
            let message = format!(
                "waiting for the pods of PodGang {:?}: not every pod group has its minReplicas",
                name.name
            );
            for (_, pod) in &members {
                unschedulable(hand, pod, &message).await?;
            }
            return Ok(());
        }
        for (_, pod) in &members {
            self.queue.unreserve(&PodName::of(pod), &mut self.snapshot);
        }
        let (pods, members): (Vec<Arc<Pod>>, Vec<Member>) = members
            .into_iter()
            .map(|(group, pod)| {
                let wanted = Wanted::of(&pod, &hand.mirror);
                (pod, Member { group, wanted })
            })
            .unzip();
        let order = Order {
            members: &members,
            there: gang.packs.iter().map(|pack| self.nodes_of(&gang, pack)).collect(),
            packs: &gang.packs,
            needs,
        };
        // What no node can change is told before nodes are looked at.
        let is_troubled = members.iter().any(|member| member.wanted.volumes.trouble.is_some());
        let places = if is_troubled {
            None
        } else {
            pack(&order, &mut self.snapshot)
        };
        let Some(places) = places else {
            wishes.rest(key);
            let message = self.why_not(name, &order);
            for pod in &pods {
                event(hand, pod, Reason::Unschedulable, &message).await;
                unschedulable(hand, pod, &message).await?;
            }
            return Ok(());
        };
        let mut is_prepared = true;
        let mut bindings = Vec::with_capacity(places.len());
        let mut held = Vec::with_capacity(places.len());
        for (index, node) in places {
            let (Some(pod), Some(member)) = (pods.get(index), members.get(index)) else {
                continue;
            };
            let preparation = self
                .snapshot
                .node(&node)
                .map(|node| member.wanted.volumes.prepare(node));
            let preparation = preparation.unwrap_or_default();
            if !preparation.is_nothing() {
                is_prepared = false;
                prepare(hand, &member.wanted.name().namespace, &node, &preparation).await?;
            }
            held.push((member.wanted.facts.clone(), node.clone()));
            bindings.push((pod.clone(), node));
        }
        if !is_prepared {
            // All of them wait until the volumes of the last are there.
            for (facts, node) in &held {
                self.queue.reserve(facts, node, &mut self.snapshot);
            }
            return Ok(());
        }
        self.bind(hand, &bindings, wishes).await?;
        wishes.no_more(key);
        Ok(())
    }

    /// Why a gang does not fit: what keeps the first of its pods that fits nowhere, if there is one.
    fn why_not(&self, name: &PodName, order: &Order<'_>) -> String {
        let count: usize = order.needs.iter().sum();
        let alone = order
            .members
            .iter()
            .find_map(|member| place(&member.wanted, &self.snapshot, None).err());
        let why = match alone {
            Some(Unfit::Nodes { nodes, reasons, .. }) => {
                let reasons: Vec<String> = reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
                format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
            }
            Some(Unfit::Early { nodes, why }) => format!("0/{nodes} nodes are available: {why}."),
            Some(Unfit::NoNodes) => Unfit::NoNodes.to_string(),
            None => "each of them fits by itself.".to_owned(),
        };
        format!(
            "gang {}/{} needs {count} pods placed at once, and they do not fit together: {why}",
            name.namespace, name.name
        )
    }

    /// Binds all of them or none, and tells it.
    async fn bind(&mut self, hand: &Hand, pods: &[(Arc<Pod>, String)], wishes: &mut Wishes) -> Result<(), Fault> {
        let mut bindings: Vec<(Target, String, String)> = Vec::with_capacity(pods.len());
        for (pod, node) in pods {
            let name = PodName::of(pod);
            let target = hand.target_of::<Pod>(Some(&name.namespace), &name.name)?;
            bindings.push((target, pod.metadata.uid.clone().unwrap_or_default(), node.clone()));
        }
        match hand.bind(&bindings).await {
            Ok(()) => {}
            // One of them was bound, deleted or gated meanwhile: what was written will be seen, and wakes the rest.
            Err(fault) if matches!(fault.code, 404 | 409) => return Ok(()),
            Err(fault) => return Err(fault),
        }
        for (pod, node) in pods {
            let name = PodName::of(pod);
            let note = format!("Successfully assigned {}/{} to {node}", name.namespace, name.name);
            event(hand, pod, Reason::Scheduled, &note).await;
            wishes.no_more(self.queue.key(&name).unwrap_or_default());
        }
        Ok(())
    }
}

/// Has volumes made or bound for claims that waited for their first consumer. The binder does the rest.
async fn prepare(hand: &Hand, namespace: &str, node: &str, preparation: &Preparation) -> Result<(), Fault> {
    for claim in &preparation.select {
        let target = hand.target_of::<PersistentVolumeClaim>(Some(namespace), claim)?;
        let change = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
        hand.patch(&target, "", change).await?;
    }
    for (claim, volume) in &preparation.bind {
        let Some(claim) = hand.mirror.claims.get(Some(namespace), claim) else {
            continue;
        };
        let reference = crate::controllers::hand::reference(&*claim);
        let target = hand.target_of::<PersistentVolume>(None, volume)?;
        let change = json!({"metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
            "spec": {"claimRef": serde_json::to_value(&reference).map_err(Fault::internal)?}});
        hand.patch(&target, "", change).await?;
    }
    Ok(())
}

/// Pods by what they are called.
type Named<T> = BTreeMap<PodName, T>;
