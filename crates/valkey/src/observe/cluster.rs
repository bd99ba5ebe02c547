//! What the view shows of one cluster: its set, pods, volumes, and whether what it owns is as it should be.

use std::collections::BTreeMap;

use serde_json::Value;
use usher_engine::{Text, Uid};
use usher_operator::record::ApiType;
use usher_operator::view::View;

use super::client::Target;
use super::seen::{Objects, Observation, PasswordSeen, PodSeen, SetSeen};
use crate::objects::{self, secret};
use crate::records::secret::Digest;
use crate::records::{
    BUDGETS, BudgetRecord, CLUSTERS, ClusterRecord, Meta, Owner, PodRecord, SECRETS, SERVICES, SETS, SecretRecord,
    ServiceRecord, SetRecord, VolumeRecord,
};
use crate::words::Ordinal;

/// Pods and volumes by the cluster whose they are.
pub const BY_CLUSTER: &str = "cluster";

/// All that Kubernetes tells; the servers' own words are for [`super::fetch`] to add.
pub fn observe(view: &View, cluster: &ClusterRecord) -> Observation {
    Observation {
        set: set(view, cluster),
        pods: pods(view, cluster),
        volumes: volumes(view, cluster),
        objects: owned(view, cluster),
        ..Observation::default()
    }
}

/// The cluster's pods.
pub fn pods(view: &View, cluster: &ClusterRecord) -> BTreeMap<Ordinal, PodSeen> {
    let (namespace, name) = (cluster.meta.key.namespace(), cluster.name());
    let pods = view.by::<PodRecord>(BY_CLUSTER, namespace, name.into());
    pods.filter_map(|pod| pod.member.as_deref())
        .map(|member| (member.ordinal, member.seen.clone()))
        .collect()
}

/// Whom to ask: pods that have an address.
pub fn targets(pods: &BTreeMap<Ordinal, PodSeen>) -> Vec<Target> {
    let answering = pods.values().filter_map(|pod| {
        Some(Target {
            pod: pod.uid.clone(),
            address: pod.address?,
        })
    });
    answering.collect()
}

fn volumes(view: &View, cluster: &ClusterRecord) -> BTreeMap<Ordinal, Uid> {
    let (namespace, name) = (cluster.meta.key.namespace(), cluster.name());
    let volumes = view.by::<VolumeRecord>(BY_CLUSTER, namespace, name.into());
    volumes
        .filter_map(|volume| Some((volume.cluster()?.1, volume.meta.uid.clone())))
        .collect()
}

/// The set of the cluster's name, whoever's it is.
fn set(view: &View, cluster: &ClusterRecord) -> Option<SetSeen> {
    let set = view.get::<SetRecord>(&cluster.meta.key)?;
    Some(SetSeen {
        uid: set.meta.uid.clone(),
        revision: set.meta.revision,
        ours: set.meta.owned_by(&cluster.meta.uid),
        replicas: set.replicas(),
        template: set.revision().map(Into::into),
        deleting: set.meta.deleting.is_some(),
    })
}

/// An object of ours as it is: its metadata, and what is compared.
pub fn live<'v>(
    view: &'v View,
    cluster: &ClusterRecord,
    kind: ApiType,
    name: &str,
) -> Option<(&'v Meta, Option<&'v Value>)> {
    let key = cluster.meta.key.sibling(name)?;
    if kind == SERVICES {
        let found = view.get::<ServiceRecord>(&key)?;
        Some((&found.meta, found.live.as_deref()))
    } else if kind == BUDGETS {
        let found = view.get::<BudgetRecord>(&key)?;
        Some((&found.meta, found.live.as_deref()))
    } else if kind == SECRETS {
        Some((&view.get::<SecretRecord>(&key)?.meta, None))
    } else {
        let found = view.get::<SetRecord>(&key)?;
        Some((&found.meta, found.live.as_deref()))
    }
}

/// What the cluster owns beside pods, held against what it should be.
fn owned(view: &View, cluster: &ClusterRecord) -> Objects {
    let mut seen = Objects {
        password: password(view, cluster),
        ..Objects::default()
    };
    let ours = |meta: &Meta| meta.owned_by(&cluster.meta.uid);
    // Of an earlier cluster of this name: it is on its way out, and is made again when it is gone.
    let left_over = |meta: &Meta| {
        let earlier = |owner: &Owner| owner.kind == *CLUSTERS.kind && owner.name == *cluster.name();
        !ours(meta) && meta.owners.iter().any(earlier)
    };
    let config = cluster.config_secret();
    match cluster
        .meta
        .key
        .sibling(&config)
        .and_then(|key| view.get::<SecretRecord>(&key))
    {
        Some(found) if left_over(&found.meta) => {}
        Some(found) if !ours(&found.meta) => seen.foreign.push((SECRETS.kind, config.into())),
        Some(found) if secret::is_settled(cluster, found) => {}
        _ => seen.unsettled.push((SECRETS.kind, config.into())),
    }
    for (kind, rendered) in objects::plain(cluster) {
        let name = objects::name(&rendered);
        match live(view, cluster, kind, name) {
            Some((meta, _)) if left_over(meta) => {}
            Some((meta, _)) if !ours(meta) => seen.foreign.push((kind.kind, name.into())),
            Some((_, Some(live))) if objects::settled(&rendered, live) => {}
            _ => seen.unsettled.push((kind.kind, name.into())),
        }
    }
    let read: Text = cluster.read_service().into();
    let has_read = live(view, cluster, SERVICES, &read).is_some_and(|(meta, _)| ours(meta));
    if has_read && !cluster.spec.read_service.enabled {
        seen.unwanted.push((SERVICES.kind, read));
    }
    let set = view.get::<SetRecord>(&cluster.meta.key);
    if set.is_some_and(|set| !ours(&set.meta) && !left_over(&set.meta)) {
        seen.foreign.push((SETS.kind, cluster.name().into()));
    }
    if let Some(set) = set.filter(|set| ours(&set.meta)) {
        let rendered = objects::set::set(cluster, set.replicas());
        seen.set_differs = !set
            .live
            .as_deref()
            .is_some_and(|live| objects::settled(&rendered, live));
    }
    seen
}

/// How the password that the spec names stands to the one in force. What they say, nobody keeps: they are compared by digest.
fn password(view: &View, cluster: &ClusterRecord) -> PasswordSeen {
    let Some(auth) = &cluster.spec.auth else {
        return PasswordSeen::Settled;
    };
    let found = |name: &str| view.get::<SecretRecord>(&cluster.meta.key.sibling(name)?);
    let own = found(&cluster.config_secret()).filter(|own| own.meta.owned_by(&cluster.meta.uid));
    let in_force = own.and_then(|own| own.digest(secret::PASSWORD));
    let (name, key) = (&auth.secret_ref.name, &auth.secret_ref.key);
    let named = found(name);
    let said = named.and_then(|named| named.digest(key));
    // An empty password is none: servers would let everybody in.
    let said = said.filter(|said| !said.same(Digest::of(b"")));
    match (in_force, said) {
        (None, Some(_)) => PasswordSeen::Settled,
        (None, None) => PasswordSeen::Missing {
            secret: name.as_str().into(),
            problem: match named {
                Some(_) => format!("it has no password under the key {key:?}: add one"),
                None => "it does not exist: create it".to_owned(),
            },
        },
        (Some(in_force), Some(said)) if in_force.same(said) => PasswordSeen::Settled,
        (Some(_), _) => PasswordSeen::Differs {
            secret: name.as_str().into(),
        },
    }
}

#[cfg(test)]
mod tests;
