//! The namespace that `install` made: removed only when nothing of anybody is in it.

use kube::api::ListParams;
use kube::discovery::{Discovery, Scope, verbs};

use super::left::Metadata;
use super::{is_the_operators, wait_gone};
use crate::Failed;
use crate::cluster::Cluster;
use crate::install::apply::Applier;
use crate::install::inventory::Inventory;
use crate::install::objects::{AUTHORITIES, CERTIFICATES, INSTANCE, LEASE, NAME, Object};
use crate::output::Progress;

/// Things named in a sentence.
const EXAMPLES: usize = 3;
/// More of one kind than this need not be read to know that it is not empty.
const PAGE: u32 = 20;

/// Deletes it, or says what keeps it.
pub(super) async fn remove_if_empty(
    applier: &Applier<'_>,
    object: &Object,
    inventory: &Inventory,
    progress: &mut Progress,
) -> Result<(), Failed> {
    let cluster = applier.cluster;
    // In a dry run our own objects are still there.
    let ours = |kind: &str, name: &str| {
        let is = |o: &Object| o.kind.kind == kind && o.name == name && o.namespace.as_deref() == Some(&object.name);
        inventory.objects.iter().any(is)
    };
    let strangers = strangers(cluster, &object.name, ours).await?;
    if strangers.is_empty() {
        applier.delete(object, progress).await?;
        if !applier.dry_run {
            progress.say(&format!("waiting until {object} is gone"))?;
            wait_gone(cluster, object).await?;
        }
        return Ok(());
    }
    let more = if strangers.len() > EXAMPLES { ", …" } else { "" };
    let named: Vec<&str> = strangers.iter().take(EXAMPLES).map(String::as_str).collect();
    let note = format!(
        "it also holds {}{more}; kubectl delete namespace {}",
        named.join(", "),
        object.name
    );
    progress.noted("kept", object, Some(note))
}

/// What is in a namespace that is neither ours nor there by itself.
async fn strangers(
    cluster: &Cluster,
    namespace: &str,
    ours: impl Fn(&str, &str) -> bool,
) -> Result<Vec<String>, Failed> {
    let discovery = cluster
        .ask(
            "ask which types the API server has",
            Discovery::new(cluster.client.clone()).run(),
        )
        .await?;
    let mut strangers = Vec::new();
    for group in discovery.groups_alphabetical() {
        for (kind, capabilities) in group.recommended_resources() {
            let listable = capabilities.scope == Scope::Namespaced && capabilities.supports_operation(verbs::LIST);
            // Metrics are no objects, and events tell of objects that are counted themselves.
            if !listable || kind.kind == "Event" || kind.group == "metrics.k8s.io" {
                continue;
            }
            let api = cluster.api(&kind, Some(namespace));
            let (doing, params) = (format!("list {}", kind.plural), ListParams::default().limit(PAGE));
            match cluster.ask(&doing, api.list_metadata(&params)).await {
                Ok(page) => {
                    let there = page.items.iter().filter(|o| !is_by_itself(&kind.kind, namespace, o));
                    let names = there.filter_map(|o| o.metadata.name.as_deref());
                    let foreign = names.filter(|name| !ours(&kind.kind, name));
                    strangers.extend(foreign.map(|name| format!("{} {name}", kind.kind)));
                }
                // Not to know is no reason to delete.
                Err(refusal) if refusal.is(403) => strangers.push(format!("{} that we may not list", kind.plural)),
                // Listed by discovery, and then not to be had: an aggregated API that is on its way.
                Err(refusal) if refusal.is(404) || refusal.is(405) => {}
                Err(other) => return Err(other.into()),
            }
        }
    }
    Ok(strangers)
}

/// Made by the control plane in every namespace, made for the operator (its pods, in a dry run; its Service's endpoints) or
/// by it, or on its way out.
fn is_by_itself(kind: &str, namespace: &str, object: &Metadata) -> bool {
    let meta = &object.metadata;
    let label = |name: &str| {
        meta.labels
            .as_ref()
            .and_then(|labels| labels.get(name))
            .map(String::as_str)
    };
    let is_operators = label(NAME) == Some("usher") && label(INSTANCE) == Some(namespace);
    is_operators && matches!(kind, "Pod" | "ReplicaSet" | "Endpoints" | "EndpointSlice")
        || meta.deletion_timestamp.is_some()
        || matches!(
            (kind, meta.name.as_deref().unwrap_or_default()),
            ("ConfigMap", "kube-root-ca.crt") | ("ServiceAccount", "default") | ("Lease", LEASE)
        )
        || is_the_operators(object)
            && matches!(
                (kind, meta.name.as_deref().unwrap_or_default()),
                ("Secret", CERTIFICATES) | ("ConfigMap", AUTHORITIES)
            )
}
