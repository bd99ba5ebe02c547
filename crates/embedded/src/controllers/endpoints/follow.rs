//! Which Services a change is about: the Service's own, and those that select a pod which came, went, or changed in a way
//! that endpoints show.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::members;
use crate::controllers::hand::place;
use crate::controllers::{Hand, Wishes, pods};
use crate::store::LogEntry;

/// How long a Service waits for more of its pods to change before its endpoints are written. Names in pods follow within
/// 200 ms (W6), and of that this is a quarter.
pub(super) const BATCH: SignedDuration = SignedDuration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct Follow {
    /// Pods as they were seen last, by `namespace/name`.
    pods: BTreeMap<String, Arc<Pod>>,
}

impl Follow {
    pub(super) fn begin(&mut self, hand: &Hand, wishes: &mut Wishes) {
        let pods = hand.mirror.pods.list(None);
        self.pods = pods.into_iter().map(|pod| (place(&pod.metadata), pod)).collect();
        for service in hand.mirror.services.list(None) {
            wishes.sync(place(&service.metadata));
        }
    }

    pub(super) fn see(&mut self, hand: &Hand, line: &LogEntry, wishes: &mut Wishes) {
        let namespace = line.key.namespace();
        match (line.key.group(), line.key.resource()) {
            ("", "services") => wishes.sync(format!("{}/{}", namespace.unwrap_or_default(), line.key.name())),
            ("", "pods") => {
                let key = format!("{}/{}", namespace.unwrap_or_default(), line.key.name());
                let new = hand.mirror.pods.get(namespace, line.key.name());
                let old = match &new {
                    Some(new) => self.pods.insert(key, new.clone()),
                    None => self.pods.remove(&key),
                };
                self.moved(hand, namespace, old.as_deref(), new.as_deref(), wishes);
            }
            ("", "nodes") if line.previous.is_none() || line.entry().is_none() => {
                // A pod's endpoint waits for its node, which tells the zone.
                let here = |pod: &&Arc<Pod>| members::node_of(pod) == line.key.name();
                let here: Vec<Arc<Pod>> = self.pods.values().filter(here).cloned().collect();
                for pod in here {
                    self.moved(hand, pod.metadata.namespace.as_deref(), None, Some(&pod), wishes);
                }
            }
            _ => {}
        }
    }

    fn moved(&self, hand: &Hand, namespace: Option<&str>, old: Option<&Pod>, new: Option<&Pod>, wishes: &mut Wishes) {
        // Most changes of pods are nobody's business here: asked first, before any Service is.
        let shown = old.map(seen) != new.map(seen);
        let labelled = |pod: Option<&Pod>| pod.and_then(|pod| pod.metadata.labels.clone());
        if !shown && labelled(old) == labelled(new) {
            return;
        }
        for service in hand.mirror.services.list(namespace) {
            let Some(selector) = members::selector(&service) else {
                continue;
            };
            let had = old.is_some_and(|pod| members::selects(selector, pod));
            let has = new.is_some_and(|pod| members::selects(selector, pod));
            if (shown && (had || has)) || had != has {
                let when = hand.now().saturating_add(BATCH).unwrap_or(Timestamp::MAX);
                wishes.sync_by(place(&service.metadata), when);
            }
        }
    }
}

/// What endpoints show of a pod.
fn seen(pod: &Pod) -> (bool, bool, bool, Vec<&str>, &str, Option<&str>, Option<&str>) {
    let spec = pod.spec.as_ref();
    (
        pods::is_pod_ready(pod),
        pods::is_finished(pod),
        pods::is_deleting(&pod.metadata),
        members::addresses(pod).collect(),
        members::node_of(pod),
        spec.and_then(|spec| spec.hostname.as_deref()),
        spec.and_then(|spec| spec.subdomain.as_deref()),
    )
}
