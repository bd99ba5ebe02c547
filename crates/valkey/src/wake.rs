//! Which events wake which cluster: mappers and indexes (section 7 of the spec).
//!
//! Mappers are pure and total: (old object, new object) to keys. Every look costs a question to each server, so what changes
//! without meaning anything (a heartbeat, labels that we wrote ourselves) wakes nobody. The servers themselves tell nobody of
//! anything: for them there is the plan's timer.

use std::collections::BTreeSet;

use usher_engine::{ObjectKey, Text};
use usher_operator::queue::Why;
use usher_operator::record::Meta;
use usher_operator::view::{Change, View, Wake};

use crate::kinds::CLUSTER;
use crate::observe::PodSeen;
use crate::observe::cluster::BY_CLUSTER;
use crate::records::owned::{Made, OwnedRecord};
use crate::records::{
    BudgetRecord, CLUSTERS, ClusterRecord, PodRecord, SecretRecord, ServiceRecord, SetRecord, VolumeRecord,
};

/// Clusters by the Secrets that their specs name.
pub const BY_SECRET: &str = "secret";

/// What ends the names of what a cluster owns.
const ENDINGS: [&str; 4] = ["", "-config", "-headless", "-read"];

/// Declares what the view keeps, and who is woken by what. What is owned is listed before its owner, so that a cluster's first
/// look finds everything that is there.
pub fn register(view: &mut View) {
    let _ = view
        .watch::<PodRecord>()
        .index(BY_CLUSTER, |pod| {
            pod.member.iter().map(|member| member.cluster.clone()).collect()
        })
        .wake(pod_changed);
    let _ = view
        .watch::<VolumeRecord>()
        .index(BY_CLUSTER, |volume| {
            volume
                .cluster()
                .map(|(cluster, _)| cluster.into())
                .into_iter()
                .collect()
        })
        .wake(volume_changed);
    let _ = view.watch::<SecretRecord>().wake(secret_changed);
    let _ = view.watch::<ServiceRecord>().wake(owned_changed);
    let _ = view.watch::<BudgetRecord>().wake(owned_changed);
    let _ = view.watch::<SetRecord>().wake(owned_changed);
    let _ = view
        .watch::<ClusterRecord>()
        .index(BY_SECRET, |cluster| cluster.named_secrets().map(Into::into).collect())
        .wake(cluster_changed);
}

fn why<R>(change: &Change<R>) -> Why {
    match (&change.old, &change.new) {
        (None, _) => Why::CREATE,
        (_, None) => Why::DELETE,
        _ => Why::UPDATE,
    }
}

/// Wakes those of the named clusters that there are.
fn wake(view: &View, beside: &ObjectKey, names: impl IntoIterator<Item = Text>, why: Why) -> Vec<Wake> {
    let keys: BTreeSet<_> = names.into_iter().filter_map(|name| beside.sibling(&name)).collect();
    keys.into_iter()
        .filter(|key| view.get::<ClusterRecord>(key).is_some())
        .map(|key| Wake::now(CLUSTER, key, why))
        .collect()
}

/// Itself: whatever changed of it, its status too. What a pass wrote down it acts on when it has read it back (R7).
fn cluster_changed(_: &View, change: &Change<ClusterRecord>) -> Vec<Wake> {
    let said = |record: &ClusterRecord| {
        let ClusterRecord {
            meta,
            spec,
            status,
            wishes,
        } = record;
        (
            meta.deleting,
            meta.finalizers.clone(),
            spec.clone(),
            status.clone(),
            wishes.clone(),
        )
    };
    let same = matches!((&change.old, &change.new), (Some(old), Some(new))
        if old.meta.uid == new.meta.uid && said(old) == said(new));
    let latest = change.latest().filter(|_| !same);
    let woken = latest.map(|latest| Wake::now(CLUSTER, latest.meta.key.clone(), why(change)));
    woken.into_iter().collect()
}

fn pod_changed(view: &View, change: &Change<PodRecord>) -> Vec<Wake> {
    let member = |pod: &PodRecord| pod.member.clone();
    let versions = || [&change.old, &change.new].into_iter().flatten();
    let told = |seen: &PodSeen| PodSeen {
        revision: 0,
        labelled: Default::default(),
        ..seen.clone()
    };
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && let (Some(old), Some(new)) = (member(old), member(new))
        && (&old.cluster, told(&old.seen)) == (&new.cluster, told(&new.seen))
    {
        return Vec::new();
    }
    let Some(key) = versions().map(|pod| &pod.meta.key).next() else {
        return Vec::new();
    };
    let names = versions().filter_map(|pod| Some(pod.member.as_ref()?.cluster.clone()));
    wake(view, key, names, why(change))
}

fn volume_changed(view: &View, change: &Change<VolumeRecord>) -> Vec<Wake> {
    let same = matches!((&change.old, &change.new), (Some(old), Some(new)) if old.meta.uid == new.meta.uid);
    let latest = change.latest().filter(|_| !same);
    let woken = latest.and_then(|volume| Some((&volume.meta.key, volume.cluster()?.0.into())));
    woken.map_or_else(Vec::new, |(key, cluster)| wake(view, key, [cluster], why(change)))
}

/// Whose it is, and whose it would be by its name: something of somebody else's that goes makes room.
fn claimed(meta: &Meta, cluster: Option<&Text>) -> Vec<Text> {
    let owners = meta.owners.iter().filter(|owner| owner.kind == *CLUSTERS.kind);
    let owners = owners.map(|owner| owner.name.clone());
    let name = meta.key.name();
    let named = ENDINGS
        .iter()
        .filter_map(|ending| name.strip_suffix(ending))
        .map(Text::from);
    owners.chain(cluster.cloned()).chain(named).collect()
}

fn owned_changed<T: Made>(view: &View, change: &Change<OwnedRecord<T>>) -> Vec<Wake> {
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && (&old.meta.uid, &old.live, &old.meta.deleting, &old.meta.owners)
            == (&new.meta.uid, &new.live, &new.meta.deleting, &new.meta.owners)
    {
        return Vec::new();
    }
    let versions = [&change.old, &change.new].into_iter().flatten();
    let names: Vec<_> = versions
        .flat_map(|object| claimed(&object.meta, object.cluster.as_ref()))
        .collect();
    change
        .latest()
        .map_or_else(Vec::new, |latest| wake(view, &latest.meta.key, names, why(change)))
}

fn secret_changed(view: &View, change: &Change<SecretRecord>) -> Vec<Wake> {
    let Some(latest) = change.latest() else {
        return Vec::new();
    };
    let key = &latest.meta.key;
    let named = view.by::<ClusterRecord>(BY_SECRET, key.namespace(), key.name().into());
    let named = named.map(|cluster| cluster.name().into());
    let names: Vec<_> = named.chain(claimed(&latest.meta, latest.cluster.as_ref())).collect();
    wake(view, key, names, why(change))
}

#[cfg(test)]
mod tests;
