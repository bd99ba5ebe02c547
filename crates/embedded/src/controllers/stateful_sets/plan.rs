//! One step of a StatefulSet: whom it makes, mends and deletes, and what it says. Pure.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;

use super::claims::{self, Claims, Lacking};
use super::identity::{self, Ordinal, Revision};
use crate::controllers::pods;

/// What a step is decided upon.
pub(super) struct Seen<'a> {
    pub(super) set: &'a StatefulSet,
    /// The pods that it controls.
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) current: &'a Revision,
    pub(super) update: &'a Revision,
    pub(super) claims: Claims<'a>,
    pub(super) now: Timestamp,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// A pod that is not there, after its claims.
    Make(Box<Pod>, Lacking),
    /// Claims of a pod that waits for them.
    Fill(Arc<Pod>, Lacking),
    /// A pod, or the owners of its claims, that are not as the set wants them.
    Mend(Box<Pod>, Lacking),
    /// The owners of claims of a pod that will go.
    Own(Lacking),
    Delete(Arc<Pod>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) status: StatefulSetStatus,
    pub(super) look_again: Option<Timestamp>,
}

pub(super) fn plan(seen: &Seen<'_>) -> Plan {
    let mut steps = Vec::new();
    if !pods::is_deleting(&seen.set.metadata) {
        seen.decide(&mut steps);
    }
    let min_ready = seen.min_ready_seconds();
    Plan {
        steps,
        status: seen.status(),
        look_again: seen
            .pods
            .iter()
            .filter_map(|pod| pods::available_at(pod, min_ready))
            .filter(|when| *when > seen.now)
            .min(),
    }
}

/// Pods are made, and go, one after the other.
pub(super) fn is_ordered(set: &StatefulSet) -> bool {
    set.spec.as_ref().and_then(|spec| spec.pod_management_policy.as_deref()) != Some("Parallel")
}

impl<'a> Seen<'a> {
    fn min_ready_seconds(&self) -> i32 {
        self.set
            .spec
            .as_ref()
            .and_then(|spec| spec.min_ready_seconds)
            .unwrap_or_default()
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pods::is_pod_available(pod, self.min_ready_seconds(), self.now)
    }

    fn is_running_and_ready(pod: &Pod) -> bool {
        pods::phase(pod) == "Running" && pods::is_pod_ready(pod)
    }

    fn is_unavailable(&self, pod: &Pod) -> bool {
        !self.is_available(pod) || pods::is_deleting(&pod.metadata)
    }

    /// Each ordinal that there is to be, with its pod if it is there.
    fn slots(&self) -> Vec<(Ordinal, Option<&'a Arc<Pod>>)> {
        let at = |ordinal: Ordinal| {
            self.pods
                .iter()
                .find(|pod| identity::ordinal(self.set, pod) == Some(ordinal))
        };
        identity::ordinals(self.set)
            .map(|ordinal| (ordinal, at(ordinal)))
            .collect()
    }

    /// Those that there are too many, from the top.
    fn condemned(&self) -> Vec<(Ordinal, &'a Arc<Pod>)> {
        let ordinals = identity::ordinals(self.set);
        let mut condemned: Vec<_> = self
            .pods
            .iter()
            .filter_map(|pod| Some((identity::ordinal(self.set, pod)?, pod)))
            .filter(|(ordinal, _)| !ordinals.contains(ordinal))
            .collect();
        condemned.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
        condemned
    }

    fn decide(&self, steps: &mut Vec<Step>) {
        let is_ordered = is_ordered(self.set);
        let slots = self.slots();
        for (ordinal, pod) in &slots {
            let goes_on = match pod {
                Some(pod) => self.keep(*ordinal, pod, is_ordered, steps),
                None => self.make(*ordinal, steps),
            };
            if !goes_on && is_ordered {
                return;
            }
        }
        let condemned = self.condemned();
        for (ordinal, pod) in &condemned {
            let lacking = claims::lacking(self.set, Some(pod), *ordinal, self.claims);
            if !lacking.owned.is_empty() {
                steps.push(Step::Own(lacking));
            }
        }
        if self.reduce(&slots, &condemned, is_ordered, steps) {
            self.update(&slots, steps);
        }
    }

    /// Makes the pod of an ordinal. False: the next ones wait for it.
    fn make(&self, ordinal: Ordinal, steps: &mut Vec<Step>) -> bool {
        if !claims::is_stale(self.set, ordinal, self.claims) {
            let pod = identity::pod(self.set, self.revision_of(ordinal), ordinal);
            let lacking = claims::lacking(self.set, None, ordinal, self.claims);
            steps.push(Step::Make(Box::new(pod), lacking));
        }
        false
    }

    /// The revision that a new pod gets: below the partition the current one.
    fn revision_of(&self, ordinal: Ordinal) -> &'a Revision {
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
            return self.update;
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let kept = match rolling {
            Some(rolling) => rolling.partition.unwrap_or_default(),
            None => {
                let status = self.set.status.as_ref();
                status.and_then(|status| status.current_replicas).unwrap_or_default()
            }
        };
        if ordinal < identity::ordinals(self.set).start.saturating_add(kept) {
            self.current
        } else {
            self.update
        }
    }

    /// Sees to a pod that is to stay. False: the next ones wait for it.
    fn keep(&self, ordinal: Ordinal, pod: &Arc<Pod>, is_ordered: bool, steps: &mut Vec<Step>) -> bool {
        let is_deleting = pods::is_deleting(&pod.metadata);
        if pods::is_finished(pod) {
            if !is_deleting {
                steps.push(Step::Delete(pod.clone()));
            }
            return false;
        }
        let lacking = claims::lacking(self.set, Some(pod), ordinal, self.claims);
        if pods::phase(pod) == "Pending" && !(lacking.missing.is_empty() && lacking.owned.is_empty()) {
            steps.push(Step::Fill(pod.clone(), lacking.clone()));
            return false;
        }
        if is_ordered && (is_deleting || !Self::is_running_and_ready(pod) || !self.is_available(pod)) {
            return false;
        }
        let mended = identity::mended(self.set, pod, ordinal);
        if mended.is_some() || !lacking.owned.is_empty() {
            let pod = mended.unwrap_or_else(|| (**pod).clone());
            steps.push(Step::Mend(Box::new(pod), lacking));
        }
        true
    }

    /// Takes away what is too much. True: nothing is.
    fn reduce(
        &self,
        slots: &[(Ordinal, Option<&Arc<Pod>>)],
        condemned: &[(Ordinal, &Arc<Pod>)],
        is_ordered: bool,
        steps: &mut Vec<Step>,
    ) -> bool {
        let is_bad = |pod: &Arc<Pod>| self.is_unavailable(pod);
        let is_first_bad = |pod: &Arc<Pod>| {
            // All that stay are good when it comes to this, and of the condemned the lowest counts.
            let mut lowest_first = condemned.iter().rev().map(|(_, pod)| *pod);
            let stays_good = slots.iter().all(|(_, slot)| slot.is_some_and(|pod| !is_bad(pod)));
            stays_good
                && lowest_first
                    .find(|pod| is_bad(pod))
                    .is_some_and(|bad| Arc::ptr_eq(bad, pod))
        };
        for (_, pod) in condemned {
            let is_deleting = pods::is_deleting(&pod.metadata);
            if !is_ordered {
                if !is_deleting {
                    steps.push(Step::Delete((*pod).clone()));
                }
                continue;
            }
            let is_good = Self::is_running_and_ready(pod) && self.is_available(pod);
            if !is_deleting && (is_good || is_first_bad(pod)) {
                steps.push(Step::Delete((*pod).clone()));
            }
            return false;
        }
        true
    }

    /// Takes the highest pod of another revision, unless a higher one is not available: it comes back as it should be.
    fn update(&self, slots: &[(Ordinal, Option<&Arc<Pod>>)], steps: &mut Vec<Step>) {
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
            return;
        }
        let partition = strategy.and_then(|strategy| strategy.rolling_update.as_ref()?.partition);
        let partition = usize::try_from(partition.unwrap_or_default()).unwrap_or_default();
        for (_, slot) in slots.iter().skip(partition).rev() {
            // Made in this very step.
            let Some(pod) = slot else { return };
            if identity::revision(pod) != self.update.name && !pods::is_deleting(&pod.metadata) {
                let is_chosen = |step: &Step| matches!(step, Step::Delete(other) if Arc::ptr_eq(other, pod));
                if !steps.iter().any(is_chosen) {
                    steps.push(Step::Delete((*pod).clone()));
                }
                return;
            }
            if self.is_unavailable(pod) {
                return;
            }
        }
    }

    fn status(&self) -> StatefulSetStatus {
        let number = |holds: &dyn Fn(&Pod) -> bool| -> i32 {
            crate::controllers::count(self.pods.iter().filter(|pod| holds(pod)).count())
        };
        let some = |number: i32| (number > 0).then_some(number);
        let is_of = |pod: &Pod, revision: &Revision| {
            !pods::is_deleting(&pod.metadata) && identity::revision(pod) == revision.name
        };
        let replicas = number(&|pod| !pods::phase(pod).is_empty());
        let ready = number(&Self::is_running_and_ready);
        let updated = number(&|pod| is_of(pod, self.update));
        let mut current = number(&|pod| is_of(pod, self.current));
        let mut current_revision = &self.current.name;
        let spec = self.set.spec.as_ref();
        let wanted = spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let strategy = spec.and_then(|spec| spec.update_strategy.as_ref()?.type_.as_deref());
        // All are what they should be: what was new is current.
        if strategy != Some("OnDelete") && [updated, replicas, ready] == [wanted; 3] {
            current = updated;
            current_revision = &self.update.name;
        }
        let before = self.set.status.as_ref();
        StatefulSetStatus {
            observed_generation: self.set.metadata.generation,
            replicas,
            ready_replicas: some(ready),
            available_replicas: Some(number(&|pod| Self::is_running_and_ready(pod) && self.is_available(pod))),
            current_replicas: some(current),
            updated_replicas: some(updated),
            current_revision: Some(current_revision.clone()),
            update_revision: Some(self.update.name.clone()),
            collision_count: Some(before.and_then(|status| status.collision_count).unwrap_or_default()),
            conditions: None,
        }
    }
}
