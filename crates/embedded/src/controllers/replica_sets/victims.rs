//! Which pods a set that has too many gives up: those that are missed least. The order is the reference's.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use crate::controllers::pods;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The first `count` of them.
pub(super) fn choose(pods: &[Arc<Pod>], related: &[Arc<Pod>], count: usize, now: Timestamp) -> Vec<Arc<Pod>> {
    let mut on_node: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in related.iter().filter(|pod| pods::is_active(pod)) {
        *on_node.entry(node(pod)).or_default() += 1;
    }
    let ready = Ages::of(pods, now, pods::ready_since);
    let created = Ages::of(pods, now, created);
    let mut ranked: Vec<(Rank<'_>, &Arc<Pod>)> = pods
        .iter()
        .map(|pod| {
            let peers = on_node.get(node(pod)).copied().unwrap_or_default();
            (Rank::of(pod, peers, &ready, &created), pod)
        })
        .collect();
    ranked.sort_by(|(one, _), (other, _)| one.compare(other));
    ranked.into_iter().take(count).map(|(_, pod)| pod.clone()).collect()
}

fn node(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

/// What decides about a pod, in this order: who is less goes first.
#[derive(Debug)]
struct Rank<'a> {
    is_assigned: bool,
    phase: u8,
    is_ready: bool,
    cost: i32,
    /// Pods of the same owner on its node.
    peers: usize,
    ready: Option<Age<'a>>,
    restarts: i32,
    sidecar_restarts: i32,
    created: Option<Age<'a>>,
}

impl<'a> Rank<'a> {
    fn of(pod: &'a Pod, peers: usize, ready: &Ages<'a>, created: &Ages<'a>) -> Self {
        let (restarts, sidecar_restarts) = restarts(pod);
        Self {
            is_assigned: !node(pod).is_empty(),
            phase: match pods::phase(pod) {
                "Running" => 2,
                "Unknown" => 1,
                _ => 0,
            },
            is_ready: pods::is_pod_ready(pod),
            cost: pod
                .metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(DELETION_COST)?.parse().ok())
                .unwrap_or_default(),
            peers,
            ready: ready.get(pod),
            restarts,
            sidecar_restarts,
            created: created.get(pod),
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.is_assigned
            .cmp(&other.is_assigned)
            .then(self.phase.cmp(&other.phase))
            .then(self.is_ready.cmp(&other.is_ready))
            .then(self.cost.cmp(&other.cost))
            .then(other.peers.cmp(&self.peers))
            .then_with(|| match (self.is_ready, other.is_ready) {
                (true, true) => self.ready.cmp(&other.ready),
                _ => Ordering::Equal,
            })
            .then(other.restarts.cmp(&self.restarts))
            .then(other.sidecar_restarts.cmp(&self.sidecar_restarts))
            .then(self.created.cmp(&other.created))
    }
}

/// How old something is. Whose time is not known is least, then who is younger by a factor of two; chance decides among
/// those of about one age, and chance is the least uid of those with the very same time. So times that are the same are
/// equal, and the order is total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Age<'a> {
    /// The power of two that it reaches in nanoseconds.
    power: i64,
    chance: &'a str,
}

struct Ages<'a> {
    now: Timestamp,
    since: fn(&Pod) -> Option<Timestamp>,
    chances: BTreeMap<Timestamp, &'a str>,
}

impl<'a> Ages<'a> {
    fn of(pods: &'a [Arc<Pod>], now: Timestamp, since: fn(&Pod) -> Option<Timestamp>) -> Self {
        let mut chances = BTreeMap::new();
        for pod in pods {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            if let Some(time) = since(pod) {
                let least = chances.entry(time).or_insert(uid);
                *least = uid.min(least);
            }
        }
        Self { now, since, chances }
    }

    fn get(&self, pod: &Pod) -> Option<Age<'a>> {
        let time = (self.since)(pod)?;
        let nanoseconds = u128::try_from(self.now.duration_since(time).as_nanos()).ok();
        Some(Age {
            power: nanoseconds.and_then(u128::checked_ilog2).map_or(-1, i64::from),
            chance: self.chances.get(&time).copied().unwrap_or_default(),
        })
    }
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// The most restarts of a container, and of a sidecar.
fn restarts(pod: &Pod) -> (i32, i32) {
    let most = |statuses: &mut dyn Iterator<Item = &ContainerStatus>| {
        statuses.map(|status| status.restart_count).max().unwrap_or_default()
    };
    let sidecars: Vec<&str> = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten())
        .filter(|container| container.restart_policy.as_deref() == Some("Always"))
        .map(|container| container.name.as_str())
        .collect();
    let Some(status) = &pod.status else { return (0, 0) };
    (
        most(&mut status.container_statuses.iter().flatten()),
        most(
            &mut status
                .init_container_statuses
                .iter()
                .flatten()
                .filter(|status| sidecars.contains(&status.name.as_str())),
        ),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-01T12:00:00Z";

    /// A ready pod on node `a` that is an hour old; `change` says what is different.
    fn pod(name: &str, change: Value) -> Arc<Pod> {
        let mut pod = json!({"metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T11:00:00Z"},
            "spec": {"nodeName": "a", "containers": [], "initContainers": [{"name": "side", "restartPolicy": "Always"}]},
            "status": {"phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"}],
                "containerStatuses": [{"name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 0}]}});
        json_patch::merge(&mut pod, &change);
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn ready_since(time: &str) -> Value {
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": time}]}})
    }

    fn order(pods: &[Arc<Pod>], related: &[Arc<Pod>]) -> Vec<String> {
        choose(pods, related, pods.len(), NOW.parse().unwrap())
            .iter()
            .map(|pod| pod.metadata.name.clone().unwrap())
            .collect()
    }

    #[test]
    fn c3_victims_are_unassigned_then_young_then_not_ready_then_cheap_then_crowded_then_fresh_then_often_restarted() {
        let restarts = |name: &str, count: u32| {
            json!([{"name": name, "image": "", "imageID": "", "ready": true,
            "restartCount": count}])
        };
        let pods = [
            pod("steady", json!({})),
            pod(
                "newer",
                json!({"metadata": {"creationTimestamp": "2026-01-01T11:59:00Z"}}),
            ),
            pod(
                "sidecar-restarted",
                json!({"status": {"initContainerStatuses": restarts("side", 3)}}),
            ),
            pod(
                "restarted",
                json!({"status": {"containerStatuses": restarts("main", 3)}}),
            ),
            pod("fresh", ready_since("2026-01-01T11:59:00Z")),
            pod("crowded", json!({"spec": {"nodeName": "b"}})),
            pod("cheap", json!({"metadata": {"annotations": {DELETION_COST: "-5"}}})),
            pod("not-ready", json!({"status": {"conditions": []}})),
            pod("unknown", json!({"status": {"phase": "Unknown"}})),
            pod("pending", json!({"status": {"phase": "Pending"}})),
            pod("unassigned", json!({"spec": {"nodeName": null}})),
        ];
        let related: Vec<_> = (0..3).map(|_| pod("x", json!({"spec": {"nodeName": "b"}}))).collect();
        assert_eq!(
            order(&pods, &related),
            [
                "unassigned",
                "pending",
                "unknown",
                "not-ready",
                "cheap",
                "crowded",
                "fresh",
                "restarted",
                "sidecar-restarted",
                "newer",
                "steady"
            ]
        );
    }

    #[test]
    fn c3_pods_of_about_one_age_are_chosen_by_uid_and_those_that_end_are_no_peers() {
        // 40 and 60 minutes are within one power of two; 20 minutes are not.
        let pods = [
            pod("b", ready_since("2026-01-01T11:00:00Z")),
            pod("a", ready_since("2026-01-01T11:20:00Z")),
            pod("c", ready_since("2026-01-01T11:40:00Z")),
        ];
        let ended = pod("x", json!({"status": {"phase": "Failed"}}));
        assert_eq!(order(&pods, &[ended]), ["c", "a", "b"]);
    }
}
