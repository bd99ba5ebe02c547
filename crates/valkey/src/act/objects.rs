//! Steps on Kubernetes objects.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use serde::Deserialize as _;
use serde_json::{Value, json};
use usher_engine::{ErrorClass, Text, Uid};
use usher_operator::api::Pass;
use usher_operator::error::Failure;

use super::reach::Reach;
use crate::api::{FINALIZER, MANAGER};
use crate::objects::{self, secret};
use crate::observe::cluster::{self, live};
use crate::observe::fetch::value;
use crate::records::{ApiType, CLUSTERS, ClusterRecord, Meta, PODS, PodRecord, SECRETS, SETS, SetRecord};
use crate::words::Ordinal;

/// T1. Whatever is rendered now: the plan says which, not what.
pub async fn apply(pass: &Pass, cluster: &ClusterRecord, kind: &str, name: &str) -> Result<(), Failure> {
    let found = |kind: ApiType| pass.view(|view| live(view, cluster, kind, name).map(|(meta, _)| meta.clone()));
    let (kind, object) = if kind == SETS.kind {
        (SETS, set(pass, cluster))
    } else if kind == SECRETS.kind {
        (SECRETS, config(pass, cluster).await?)
    } else {
        let mut plain = objects::plain(cluster).into_iter();
        let Some(wanted) = plain.find(|(of, object)| of.kind == kind && objects::name(object) == name) else {
            return Err(Failure::Gone {
                object: format!("{kind} {name} in the spec of {}", cluster.meta.key),
            });
        };
        wanted
    };
    let found = found(kind);
    let Some(key) = cluster.meta.key.sibling(name) else {
        return Ok(());
    };
    own(cluster, kind, found.as_ref())?;
    pass.apply(kind, &key, found.as_ref(), object, MANAGER).await.map(drop)
}

/// What is somebody else's is left alone.
fn own(cluster: &ClusterRecord, kind: ApiType, found: Option<&Meta>) -> Result<(), Failure> {
    match found {
        Some(meta) if !meta.owned_by(&cluster.meta.uid) => Err(Failure::Kind {
            class: ErrorClass::Permanent,
            message: format!(
                "{} {} belongs to somebody else: delete it, or give the ValkeyCluster another name",
                kind.kind, meta.key
            ),
        }),
        _ => Ok(()),
    }
}

/// The set with the size it has; a new one with the size to begin with (R9).
fn set(pass: &Pass, cluster: &ClusterRecord) -> Value {
    let replicas = pass.view(|view| {
        let has = view.get::<SetRecord>(&cluster.meta.key).map(|set| set.replicas());
        has.unwrap_or_else(|| objects::set::first_size(cluster, &cluster::observe(view, cluster).volumes))
    });
    objects::set::set(cluster, replicas)
}

/// The Secret, with what must stay in it: the password in force, and the configurations of pods that run.
async fn config(pass: &Pass, cluster: &ClusterRecord) -> Result<Value, Failure> {
    let sibling = |name: &str| cluster.meta.key.sibling(name);
    let found = match sibling(&cluster.config_secret()) {
        Some(key) => pass.get(SECRETS, &key).await?,
        None => None,
    };
    let data: secret::Data = found
        .as_ref()
        .and_then(|found| BTreeMap::<String, ByteString>::deserialize(found.data.get("data")?).ok())
        .unwrap_or_default();
    let in_use: BTreeSet<Text> = pass.view(|view| {
        let pods = cluster::pods(view, cluster);
        pods.into_values().filter_map(|pod| pod.template).collect()
    });
    let mut password = data.get(secret::PASSWORD).map(|password| password.0.clone());
    if let (None, Some(auth)) = (&password, &cluster.spec.auth) {
        let named = match sibling(&auth.secret_ref.name) {
            Some(key) => pass.get(SECRETS, &key).await?,
            None => None,
        };
        password = named.and_then(|named| value(&named, &auth.secret_ref.key));
        if password.is_none() {
            return Err(Failure::Kind {
                class: ErrorClass::Transient,
                message: format!(
                    "Secret {} has no key {}: create it, and the cluster continues by itself",
                    auth.secret_ref.name, auth.secret_ref.key
                ),
            });
        }
    }
    let password = password.filter(|_| cluster.spec.auth.is_some());
    Ok(secret::secret(cluster, &data, &in_use, password.as_deref()))
}

/// T1: what the spec does not want any more.
pub async fn delete(pass: &Pass, cluster: &ClusterRecord, kind: &str, name: &str) -> Result<(), Failure> {
    let kinds = [crate::records::SERVICES, crate::records::BUDGETS, SECRETS];
    let Some(kind) = kinds.into_iter().find(|of| of.kind == kind) else {
        return Ok(());
    };
    let found = pass.view(|view| live(view, cluster, kind, name).map(|(meta, _)| meta.clone()));
    match found {
        Some(meta) if meta.owned_by(&cluster.meta.uid) => pass.delete(kind, &meta).await.map(drop),
        _ => Ok(()),
    }
}

/// Our finalizer, on or off.
pub async fn finalizer(pass: &Pass, cluster: &ClusterRecord, on: bool) -> Result<(), Failure> {
    let others = cluster.meta.finalizers.iter().map(Text::as_str);
    let mut all: Vec<&str> = others.filter(|other| *other != FINALIZER).collect();
    if on {
        all.push(FINALIZER);
    }
    if cluster.meta.has_finalizer(FINALIZER) == on {
        return Ok(());
    }
    pass.set_finalizers(CLUSTERS, &cluster.meta, &all).await.map(drop)
}

/// T2. Before it shrinks, every server that would go is asked once more.
pub async fn resize(
    pass: &Pass,
    reach: &Reach<'_>,
    cluster: &ClusterRecord,
    (from, to): (u16, u16),
    (set, revision): (&Uid, u64),
) -> Result<(), Failure> {
    let object = || format!("StatefulSet {}", cluster.meta.key);
    let moved = || Failure::Conflict { object: object() };
    let found = pass.view(|view| {
        let found = view.get::<SetRecord>(&cluster.meta.key)?;
        Some((found.meta.clone(), found.replicas()))
    });
    let (meta, size) = found.ok_or_else(|| Failure::Gone { object: object() })?;
    if meta.uid != *set || !meta.owned_by(&cluster.meta.uid) {
        return Err(moved());
    }
    if size == to {
        return Ok(());
    }
    if meta.revision != revision || size != from {
        return Err(moved());
    }
    if to < from {
        let leaving = pass.view(|view| cluster::pods(view, cluster)).split_off(&Ordinal(to));
        for pod in leaving.values() {
            let Some(held) = reach.whoever(&pod.uid, &pod.name).await else {
                continue;
            };
            held.require(held.says().own_slots().is_empty(), "it is to go and owns slots")?;
            held.require(held.says().is_alone(), "it is to go and still knows others")?;
        }
    }
    let fields = json!({"spec": {"replicas": to}});
    pass.patch(SETS, &meta, fields).await.map(drop)
}

/// T17. A server that owns slots is not restarted, whatever was planned a moment ago.
pub async fn delete_pod(
    pass: &Pass,
    reach: &Reach<'_>,
    cluster: &ClusterRecord,
    (name, uid, revision): (&str, &Uid, u64),
) -> Result<(), Failure> {
    let Some(mut meta) = pod(pass, cluster, name, uid) else {
        return Ok(());
    };
    if meta.deleting.is_some() {
        return Ok(());
    }
    if let Some(held) = reach.whoever(uid, name).await {
        held.require(
            !held.is_primary() || held.says().own_slots().is_empty(),
            "it is to be restarted and owns slots",
        )?;
    }
    // The version that was planned for, not the one that is in view by now.
    meta.revision = revision;
    pass.delete(PODS, &meta).await.map(drop)
}

/// T18.
pub async fn label_pod(
    pass: &Pass,
    cluster: &ClusterRecord,
    (name, uid): (&str, &Uid),
    labels: &[(Text, Text)],
    annotations: &[(Text, Text)],
) -> Result<(), Failure> {
    let Some(meta) = pod(pass, cluster, name, uid) else {
        return Ok(());
    };
    let map = |pairs: &[(Text, Text)]| -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    };
    let fields = json!({"metadata": {"labels": map(labels), "annotations": map(annotations)}});
    pass.patch(PODS, &meta, fields).await.map(drop)
}

/// One incarnation of a pod; `None` where it is gone.
fn pod(pass: &Pass, cluster: &ClusterRecord, name: &str, uid: &Uid) -> Option<Meta> {
    let key = cluster.meta.key.sibling(name)?;
    pass.view(|view| {
        let pod = view.get::<PodRecord>(&key)?;
        (pod.meta.uid == *uid).then(|| pod.meta.clone())
    })
}

/// Sets an annotation of the cluster, or removes it.
pub async fn annotate(
    pass: &Pass,
    cluster: &ClusterRecord,
    annotation: &str,
    value: Option<&str>,
) -> Result<(), Failure> {
    let fields = json!({"metadata": {"annotations": {annotation: value}}});
    pass.patch(CLUSTERS, &cluster.meta, fields).await.map(drop)
}
