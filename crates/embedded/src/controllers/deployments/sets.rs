//! The ReplicaSets of a deployment as it works on them: one per template, each with its revision.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::limits::Limits;
use crate::controllers::ownership::controller_reference;
use crate::controllers::templates;

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
/// Annotations that are each one's own; the others of a deployment are its new set's too.
const NOT_COPIED: [&str; 6] = [
    LAST_APPLIED,
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    ROLLBACK_TO,
];
pub(super) const TEMPLATE_HASH: &str = "pod-template-hash";
/// The reference's limit: older revisions are forgotten.
const REVISION_HISTORY_CHARS: usize = 2_000;

/// One set, as it is or as it is to be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Set {
    pub(super) object: ReplicaSet,
    /// It is not there yet.
    pub(super) is_made: bool,
    pub(super) is_changed: bool,
    /// From how many to how many, in turn.
    pub(super) scaled: Vec<(i32, i32)>,
}

impl Set {
    pub(super) fn found(object: &ReplicaSet) -> Self {
        Self {
            object: object.clone(),
            is_made: false,
            is_changed: false,
            scaled: Vec::new(),
        }
    }

    /// A set for the deployment's template, with no pods yet.
    pub(super) fn made(deployment: &Deployment, limits: Limits, collisions: Option<i32>, revision: i64) -> Self {
        let Some(spec) = &deployment.spec else {
            return Self::found(&ReplicaSet::default());
        };
        let hash = templates::template_hash(&spec.template, collisions);
        let mut template = spec.template.clone();
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(TEMPLATE_HASH.to_owned(), hash.clone());
        let mut selector = spec.selector.clone();
        selector
            .match_labels
            .get_or_insert_default()
            .insert(TEMPLATE_HASH.to_owned(), hash.clone());
        let object = ReplicaSet {
            metadata: ObjectMeta {
                name: Some(format!(
                    "{}-{hash}",
                    deployment.metadata.name.as_deref().unwrap_or_default()
                )),
                namespace: deployment.metadata.namespace.clone(),
                labels: Some(labels.clone()),
                owner_references: Some(vec![controller_reference(deployment)]),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(0),
                min_ready_seconds: spec.min_ready_seconds,
                selector,
                template: Some(template),
            }),
            status: None,
        };
        let mut set = Self {
            object,
            is_made: true,
            is_changed: false,
            scaled: Vec::new(),
        };
        set.follow(deployment, revision);
        set.annotate(limits);
        set
    }

    pub(super) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(super) fn replicas(&self) -> i32 {
        self.object.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    pub(super) fn is_active(&self) -> bool {
        self.replicas() > 0
    }

    /// How many there are.
    pub(super) fn actual(&self) -> i32 {
        self.object.status.as_ref().map_or(0, |status| status.replicas)
    }

    pub(super) fn ready(&self) -> i32 {
        self.object
            .status
            .as_ref()
            .and_then(|status| status.ready_replicas)
            .unwrap_or_default()
    }

    pub(super) fn available(&self) -> i32 {
        self.object
            .status
            .as_ref()
            .and_then(|status| status.available_replicas)
            .unwrap_or_default()
    }

    /// Of those that are wanted. The status may be older than the number wanted: whoever is about to be deleted is not
    /// counted on.
    pub(super) fn dependable(&self) -> i32 {
        self.available().min(self.replicas())
    }

    pub(super) fn revision(&self) -> i64 {
        self.annotation(REVISION)
            .and_then(|text| text.parse().ok())
            .unwrap_or_default()
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        self.object.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// The number that the deployment wanted when it last scaled this set.
    pub(super) fn desired(&self) -> Option<i32> {
        number(self.annotation(DESIRED_REPLICAS)?)
    }

    /// The most that the deployment could have then.
    pub(super) fn most(&self) -> Option<i32> {
        number(self.annotation(MAX_REPLICAS)?)
    }

    fn set_annotation(&mut self, name: &str, value: String) {
        let annotations = self.object.metadata.annotations.get_or_insert_default();
        if annotations.get(name) != Some(&value) {
            annotations.insert(name.to_owned(), value);
            self.is_changed = true;
        }
    }

    /// Takes over the deployment's annotations and this revision, if it is newer than its own, and what else a set of the
    /// deployment's template has of it.
    pub(super) fn follow(&mut self, deployment: &Deployment, revision: i64) {
        for (name, value) in deployment.metadata.annotations.iter().flatten() {
            if !NOT_COPIED.contains(&name.as_str()) {
                self.set_annotation(name, value.clone());
            }
        }
        let before = self.annotation(REVISION).map(str::to_owned);
        if self.revision() < revision {
            self.set_annotation(REVISION, revision.to_string());
            // It is used again: the revisions that it was are remembered.
            if let Some(before) = before {
                self.remember(&before);
            }
        }
        let min_ready = deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        if let Some(spec) = &mut self.object.spec
            && spec.min_ready_seconds.unwrap_or_default() != min_ready.unwrap_or_default()
        {
            spec.min_ready_seconds = min_ready;
            self.is_changed = true;
        }
    }

    fn remember(&mut self, revision: &str) {
        let mut all: Vec<&str> = self
            .annotation(REVISION_HISTORY)
            .into_iter()
            .flat_map(|text| text.split(','))
            .filter(|text| !text.is_empty())
            .collect();
        all.push(revision);
        while all.len() > 1 && all.join(",").len() > REVISION_HISTORY_CHARS {
            all.remove(0);
        }
        let all = all.join(",");
        self.set_annotation(REVISION_HISTORY, all);
    }

    /// Notes for which size of the deployment this set has its own.
    fn annotate(&mut self, limits: Limits) {
        self.set_annotation(DESIRED_REPLICAS, limits.replicas.to_string());
        self.set_annotation(MAX_REPLICAS, limits.most().to_string());
    }

    /// Scales, and notes for which size of the deployment. Says whether the number changed.
    pub(super) fn scale(&mut self, to: i32, limits: Limits) -> bool {
        let from = self.replicas();
        self.annotate(limits);
        if from == to {
            return false;
        }
        if let Some(spec) = &mut self.object.spec {
            spec.replicas = Some(to);
        }
        self.scaled.push((from, to));
        self.is_changed = true;
        true
    }

    pub(super) fn age(&self) -> (Option<Timestamp>, &str) {
        age(&self.object)
    }
}

fn number(text: &str) -> Option<i32> {
    text.parse().ok().filter(|number| *number >= 0)
}

fn age(set: &ReplicaSet) -> (Option<Timestamp>, &str) {
    let meta = &set.metadata;
    (
        meta.creation_timestamp.as_ref().map(|time| time.0),
        meta.name.as_deref().unwrap_or_default(),
    )
}

/// By size, larger ones first; then by age.
pub(super) fn larger_then(by_age: Ordering, one: &Set, other: &Set) -> Ordering {
    other.replicas().cmp(&one.replicas()).then(by_age)
}

/// The set of the deployment's template, and the others; oldest first.
pub(super) fn sort_out(deployment: &Deployment, mut sets: Vec<Arc<ReplicaSet>>) -> (Option<Set>, Vec<Set>) {
    sets.sort_by(|one, other| age(one).cmp(&age(other)));
    let wanted = deployment.spec.as_ref().map(|spec| without_hash(&spec.template));
    let is_new = |set: &ReplicaSet| {
        let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
        template.map(without_hash) == wanted
    };
    let new = sets
        .iter()
        .position(|set| is_new(set))
        .map(|position| Set::found(&sets.remove(position)));
    (new, sets.iter().map(|set| Set::found(set)).collect())
}

/// A template without what a deployment adds to it, and without maps that are empty.
fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    let filled = |map: Option<BTreeMap<String, String>>| map.filter(|map| !map.is_empty());
    let mut meta = template.metadata.take().unwrap_or_default();
    if let Some(labels) = &mut meta.labels {
        labels.remove(TEMPLATE_HASH);
    }
    meta.labels = filled(meta.labels);
    meta.annotations = filled(meta.annotations);
    template.metadata = Some(meta);
    template
}
