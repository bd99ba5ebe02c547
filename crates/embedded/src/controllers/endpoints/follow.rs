//! Which Services a change is about: the Service's own, and those that select a pod which came, went, or changed in a way
//! that endpoints show.

use jiff::{SignedDuration, Timestamp};

use super::members;
use crate::controllers::glimpse::{self, Address, Glimpse};
use crate::controllers::hand::place;
use crate::controllers::{Hand, Wishes};
use crate::store::LogEntry;

/// How long a Service waits for more of its pods to change before its endpoints are written. Names in pods follow within
/// 200 ms (W6), and of that this is a quarter.
pub(super) const BATCH: SignedDuration = SignedDuration::from_millis(50);

pub(super) fn begin(hand: &Hand, wishes: &mut Wishes) {
    for service in hand.mirror.services.list(None) {
        wishes.sync(place(&service.metadata));
    }
}

pub(super) fn see(hand: &Hand, line: &LogEntry, wishes: &mut Wishes) {
    match (line.key.group(), line.key.resource()) {
        ("", "services") => wishes.sync(glimpse::place(&line.key)),
        ("", "pods") => see_pod(hand, line, wishes),
        // A pod's endpoint waits for its node, which tells the zone.
        ("", "nodes") if line.previous.is_none() || line.entry().is_none() => see_node(hand, line.key.name(), wishes),
        _ => {}
    }
}

fn see_pod(hand: &Hand, line: &LogEntry, wishes: &mut Wishes) {
    let services = hand.mirror.services.list(line.key.namespace());
    if services.is_empty() {
        return;
    }
    let (old, new) = glimpse::of_line(line);
    // Most changes of pods are nobody's business here.
    let is_shown = old.as_ref().map(seen) != new.as_ref().map(seen);
    let labels = |pod: &Option<Glimpse>| pod.as_ref().map(|pod| pod.metadata.labels.clone());
    if !is_shown && labels(&old) == labels(&new) {
        return;
    }
    for service in services {
        let Some(selector) = members::selector(&service) else {
            continue;
        };
        let is_of = |pod: &Option<Glimpse>| {
            pod.as_ref()
                .is_some_and(|pod| members::holds(selector, Some(&pod.metadata.labels)))
        };
        let (had, has) = (is_of(&old), is_of(&new));
        if had != has || (is_shown && has) {
            later(hand, place(&service.metadata), wishes);
        }
    }
}

fn see_node(hand: &Hand, node: &str, wishes: &mut Wishes) {
    for service in hand.mirror.services.list(None) {
        let Some(selector) = members::selector(&service) else {
            continue;
        };
        let pods = hand.mirror.pods.list(service.metadata.namespace.as_deref());
        if pods
            .iter()
            .any(|pod| members::node_of(pod) == node && members::selects(selector, pod))
        {
            later(hand, place(&service.metadata), wishes);
        }
    }
}

fn later(hand: &Hand, service: String, wishes: &mut Wishes) {
    let when = hand.now().saturating_add(BATCH).unwrap_or(Timestamp::MAX);
    wishes.sync_by(service, when);
}

/// What endpoints show of a pod.
fn seen(pod: &Glimpse) -> (bool, bool, bool, &[Address], &crate::controllers::glimpse::Spec) {
    (
        pod.is_ready(),
        pod.is_finished(),
        pod.is_deleting(),
        &pod.status.pod_ips,
        &pod.spec,
    )
}
