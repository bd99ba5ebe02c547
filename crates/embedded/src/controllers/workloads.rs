//! What wakes a workload: something about itself, about what it controls, and about what is nobody's and fits its selector.
//! Deployments, ReplicaSets and StatefulSets do this alike.

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;

use super::hand::name_of;
use super::mirror::Shelf;
use super::{Wishes, ownership, work_key};
use crate::registry::select::LabelSelector;
use crate::store::{Entry, Key, Kind, LogEntry};

fn is<K: k8s_openapi::Resource>(key: &Key) -> bool {
    key.resource() == K::URL_PATH_SEGMENT && key.group() == K::GROUP
}

/// All of a kind that there are.
pub(super) fn wake_all<K: k8s_openapi::Resource>(state: &[Entry], wishes: &mut Wishes) {
    for entry in state.iter().filter(|entry| is::<K>(&entry.key)) {
        wishes.sync(work_key(entry.key.namespace(), entry.key.name()));
    }
}

/// The one that a line is about. Whether it is about one.
pub(super) fn wake_itself<K: k8s_openapi::Resource>(line: &LogEntry, wishes: &mut Wishes) -> bool {
    if !is::<K>(&line.key) {
        return false;
    }
    let key = work_key(line.key.namespace(), line.key.name());
    match line.kind {
        Kind::Delete => wishes.no_more(key),
        Kind::Create | Kind::Update => wishes.sync(key),
    }
    true
}

/// Those that control what a line is about, or did; of what nobody controls, those that might want it.
pub(super) fn wake_owners<K>(
    line: &LogEntry,
    workloads: &Shelf<K>,
    selector: impl Fn(&K) -> Option<LabelSelector>,
    wishes: &mut Wishes,
) where
    K: k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + DeserializeOwned,
{
    let namespace = line.key.namespace();
    let concerned = ownership::concerned(line, K::KIND);
    for name in &concerned.controllers {
        wishes.sync(work_key(namespace, name));
    }
    let Some(labels) = concerned.orphan else {
        return;
    };
    for workload in workloads.list(namespace) {
        if selector(&workload).is_some_and(|selector| selector.matches(&labels)) {
            wishes.sync(work_key(namespace, name_of(workload.metadata())));
        }
    }
}
