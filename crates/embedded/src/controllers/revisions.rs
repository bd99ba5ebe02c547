//! ControllerRevisions: the templates that a set had, each under a name that says which.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};

use super::ownership::controller_reference;
use super::templates;

const HASH: &str = "controller.kubernetes.io/hash";
/// A name must leave room for the hash.
const LONGEST_NAME: usize = 223;

/// What the history of a set lacks.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Choice {
    /// The newest one is the set's template.
    Newest(Arc<ControllerRevision>),
    /// An earlier one is: it becomes the newest, with this number.
    Again(ControllerRevision),
    /// None is.
    Make(ControllerRevision),
}

/// Oldest first.
pub(super) fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by(|one, other| {
        let key = |revision: &ControllerRevision| {
            let meta = &revision.metadata;
            (
                revision.revision,
                meta.creation_timestamp.clone(),
                meta.name.clone().unwrap_or_default(),
            )
        };
        key(one).cmp(&key(other))
    });
}

/// The template as a revision keeps it: a patch that puts it back.
fn data(set: &StatefulSet) -> Value {
    let mut template = set
        .spec
        .as_ref()
        .and_then(|spec| serde_json::to_value(&spec.template).ok())
        .unwrap_or_else(|| json!({}));
    if let Some(map) = template.as_object_mut() {
        map.insert("$patch".to_owned(), json!("replace"));
    }
    json!({"spec": {"template": template}})
}

/// The template that a revision keeps.
pub(super) fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// Finds the set's template in its history, which is sorted.
pub(super) fn choose(set: &StatefulSet, history: &[Arc<ControllerRevision>], collisions: i32) -> Choice {
    let data = data(set);
    let next = history.last().map_or(0, |newest| newest.revision) + 1;
    let is_equal = |revision: &ControllerRevision| revision.data.as_ref().is_some_and(|kept| kept.0 == data);
    match history.iter().rev().find(|revision| is_equal(revision)) {
        Some(found) if history.last().is_some_and(is_equal_to(found)) => Choice::Newest(found.clone()),
        Some(found) => Choice::Again(ControllerRevision {
            revision: next,
            ..(**found).clone()
        }),
        None => Choice::Make(made(set, data, next, collisions)),
    }
}

fn is_equal_to(found: &ControllerRevision) -> impl Fn(&Arc<ControllerRevision>) -> bool {
    |newest| newest.metadata.uid == found.metadata.uid
}

fn made(set: &StatefulSet, data: Value, revision: i64, collisions: i32) -> ControllerRevision {
    let hash = templates::revision_hash(&data, collisions);
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let name = set_name.get(..LONGEST_NAME).unwrap_or(set_name);
    let mut labels = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.metadata.as_ref()?.labels.clone())
        .unwrap_or_default();
    labels.insert(HASH.to_owned(), hash.clone());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: set.metadata.annotations.clone(),
            owner_references: Some(vec![controller_reference(set)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision,
    }
}

/// Those beyond the limit that nothing uses, oldest first; the history is sorted.
pub(super) fn surplus(
    history: &[Arc<ControllerRevision>],
    is_used: impl Fn(&str) -> bool,
    limit: Option<i32>,
) -> Vec<Arc<ControllerRevision>> {
    let unused: Vec<_> = history
        .iter()
        .filter(|revision| !is_used(revision.metadata.name.as_deref().unwrap_or_default()))
        .collect();
    let Ok(limit) = usize::try_from(limit.unwrap_or(10)) else {
        return Vec::new();
    };
    let surplus = unused.len().saturating_sub(limit);
    unused.into_iter().take(surplus).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(image: &str) -> StatefulSet {
        serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "web", "uid": "1"}, "spec": {"selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}}}}))
        .unwrap()
    }

    #[test]
    fn c5_a_template_is_found_in_the_history_or_made_and_one_that_comes_back_is_the_newest_again() {
        let mut history: Vec<Arc<ControllerRevision>> = Vec::new();
        for image in ["a", "b"] {
            let Choice::Make(mut made) = choose(&set(image), &history, 0) else {
                panic!("{image} is new");
            };
            made.metadata.uid = Some(image.to_owned());
            history.push(Arc::new(made));
        }
        assert_eq!(choose(&set("b"), &history, 0), Choice::Newest(history[1].clone()));
        let Choice::Again(again) = choose(&set("a"), &history, 0) else {
            panic!("a was there before");
        };
        assert_eq!((again.revision, &again.metadata), (3, &history[0].metadata));
        assert_eq!(template(&again), set("a").spec.map(|spec| spec.template));
        let name = |choice: Choice| match choice {
            Choice::Make(made) => made.metadata.name.unwrap(),
            other => panic!("{other:?}"),
        };
        assert_ne!(
            name(choose(&set("c"), &history, 0)),
            name(choose(&set("c"), &history, 1))
        );
    }

    #[test]
    fn c5_history_beyond_the_limit_goes_unless_it_is_used() {
        let history: Vec<Arc<ControllerRevision>> = (1..=6)
            .map(|number| {
                Arc::new(ControllerRevision {
                    metadata: ObjectMeta {
                        name: Some(number.to_string()),
                        ..ObjectMeta::default()
                    },
                    data: None,
                    revision: number,
                })
            })
            .collect();
        let gone = |limit: i32| -> Vec<i64> {
            surplus(&history, |name| name == "1" || name == "6", Some(limit))
                .iter()
                .map(|revision| revision.revision)
                .collect()
        };
        assert_eq!(gone(2), [2, 3]);
        assert_eq!(gone(4), [0_i64; 0]);
        assert_eq!(gone(0), [2, 3, 4, 5]);
    }
}
