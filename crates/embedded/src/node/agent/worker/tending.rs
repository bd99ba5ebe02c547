//! What is looked after while a pod runs: probes, config volumes, names, images that were missing, its share of the disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::{Report, Worker, find};
use crate::node::agent::life::{Doomed, Measured, Step};
use crate::node::agent::surroundings::Surroundings;
use crate::node::probes::{self, Prober};

impl Worker {
    /// A prober for each attempt that runs, and the questions that are due. Whether there are others than before.
    pub(super) fn tend_probers(&mut self, up: &BTreeMap<String, (u32, Timestamp)>) -> bool {
        let pod = self.pod();
        let now = self.now();
        self.probers
            .retain(|name, (attempt, _)| up.get(name).is_some_and(|(current, _)| current == attempt));
        let mut is_new = false;
        let mut questions = Vec::new();
        for (name, (attempt, since)) in up {
            let Some(container) = find(&pod, name) else {
                continue;
            };
            let adopted = self.is_adopted.then(|| said_before(&pod, name, *attempt)).flatten();
            let (_, prober) = self.probers.entry(name.clone()).or_insert_with(|| {
                is_new = true;
                let prober = match adopted {
                    Some((started, ready)) => Prober::adopted(container, *since, started, ready, now),
                    None => Prober::new(container, *since),
                };
                (*attempt, prober)
            });
            if self.kept.ended.is_some() {
                prober.stop();
            }
            let due = prober.take_due(now);
            questions.extend(due.into_iter().map(|kind| (name.clone(), *attempt, kind)));
        }
        for (name, attempt, kind) in questions {
            let Some(subject) = self.subject(&name, attempt) else {
                continue;
            };
            let context = self.context.clone();
            self.chores.spawn(async move {
                let answer = context.probe(subject, kind).await;
                (None, Report::Probed(name, attempt, kind, answer))
            });
        }
        is_new
    }

    pub(super) fn probed(&mut self, container: &str, attempt: u32, kind: probes::Kind, answer: Option<probes::Answer>) {
        let now = self.now();
        let Some((_, prober)) = self
            .probers
            .get_mut(container)
            .filter(|(current, _)| *current == attempt)
        else {
            return;
        };
        let Some(answer) = answer else {
            return;
        };
        let change = prober.took(kind, &answer, now);
        let pod = self.pod();
        if let Some(event) = change.event {
            self.context.tell(&pod, container, true, event.reason, event.message);
        }
        if let Some(killing) = change.killing {
            self.kept.container(container).doomed = Some(Doomed {
                attempt,
                since: now,
                grace_seconds: killing.grace_seconds,
                message: killing.message,
                waiting: None,
            });
            self.save();
        }
    }

    /// What the pod names has perhaps changed: config volumes follow, and what was missing may be there.
    pub(super) fn config_changed(&mut self) {
        let pod = self.pod();
        let versions = Surroundings::new(&self.agent().machine, &pod).versions(&pod);
        if versions == self.versions {
            return;
        }
        self.versions = versions;
        let now = self.now();
        if let Some((until, _)) = self.pauses.get_mut(&Step::Prepare) {
            *until = now;
        }
        for trouble in self.troubles.values_mut() {
            if trouble.reason == "CreateContainerConfigError" {
                trouble.retry_at = now;
            }
        }
        self.refresh();
    }

    pub(super) fn refresh(&mut self) {
        let Some(address) = self.kept.address.filter(|_| self.is_prepared && !self.is_refreshing) else {
            return;
        };
        self.is_refreshing = true;
        let (context, pod) = (self.context.clone(), self.pod());
        self.chores.spawn(async move {
            let errors = context.refresh(pod, address.to_string()).await;
            (
                None,
                Report::Refreshed(errors.iter().map(ToString::to_string).collect()),
            )
        });
    }

    /// Has a pod with a limit looked at, if it is time. Gives back when that is next.
    pub(super) fn measure(&mut self, pod: &Arc<Pod>, now: Timestamp) -> Option<Timestamp> {
        let wanted = Measured::of(pod);
        if wanted.is_empty() || self.kept.ended.is_some() {
            return None;
        }
        if self.next_measuring > now {
            return Some(self.next_measuring);
        }
        // Until this look is over.
        self.next_measuring = Timestamp::MAX;
        let context = self.context.clone();
        self.chores.spawn(async move {
            let (usage, took) = context.measure(wanted).await;
            (None, Report::Measured(usage, took))
        });
        None
    }

    pub(super) fn names_changed(&mut self) {
        if let Some(address) = self.kept.address.filter(|_| self.is_prepared)
            && let Err(why) = self.context.write_names(&self.pod(), address)
        {
            tracing::warn!(pod = self.context.uid, %why, "a pod's /etc/hosts cannot be written");
        }
    }

    pub(super) fn images_changed(&mut self) {
        let now = self.now();
        for trouble in self.troubles.values_mut() {
            if matches!(trouble.reason.as_str(), "ErrImageNeverPull" | "InvalidImageName") {
                trouble.retry_at = now;
            }
        }
    }
}

/// What the pod's status said of an attempt before we came.
fn said_before(pod: &Pod, name: &str, attempt: u32) -> Option<(bool, bool)> {
    let status = pod.status.as_ref()?;
    let all = status.init_container_statuses.iter().flatten();
    let mut all = all.chain(status.container_statuses.iter().flatten());
    let found = all.find(|status| status.name == name && u32::try_from(status.restart_count) == Ok(attempt))?;
    Some((found.started == Some(true), found.ready))
}
