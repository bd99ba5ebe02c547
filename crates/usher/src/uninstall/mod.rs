//! `usher uninstall`: removes what `install` made, and nothing that is somebody's.
//!
//! The order is what makes it safe. First everything that could forbid it is looked at, so that a refusal leaves the
//! installation as it was. Then the operator goes; only when its lease is free are finalizers touched ([`finalizers`]),
//! for an operator that still runs would put them back, or release a range that nobody guards any more. Then CRDs if
//! asked for, then the operator's rights, the namespace last. Killed at any point, the same command carries on.

mod finalizers;
mod lease;
mod left;
mod namespace;

use std::time::Duration;

use clap::Args as ClapArgs;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;
use kube::api::ListParams;
use kube::discovery::ApiResource;
use tokio::time::Instant;

use crate::Failed;
use crate::cluster::{Cluster, ClusterArgs, dns_label};
use crate::install::NAMESPACE;
use crate::install::apply::{Applier, LOOK};
use crate::install::inventory::{self, Inventory};
use crate::install::objects::{self, INSTANCE, NAME, Object};
use crate::output::{Format, Progress};
use left::{Left, Metadata};

/// The operator ends within its 30 s of grace; a node that does not answer needs a person.
const PODS_GONE: Duration = Duration::from_secs(60);
/// Deleting a CRD deletes its objects one by one.
const GONE: Duration = Duration::from_secs(120);

/// What to remove.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Pools, claims and Subnets stay, and `usher install` takes them up again. Without the operator they change no more:
claims stay unserved, and what carries the finalizer cannot be deleted; --remove-finalizers is for that.")]
pub(crate) struct Args {
    /// Namespace of the operator.
    #[arg(long, short, value_name = "NAMESPACE", default_value = NAMESPACE, value_parser = dns_label)]
    namespace: String,
    /// Take Usher's finalizer off all objects. No object and no range is deleted by that, but nothing then keeps a pool
    /// that is in use from being deleted.
    #[arg(long)]
    remove_finalizers: bool,
    /// Delete the CRDs, too. Refused while any object of theirs exists.
    #[arg(long)]
    crds: bool,
    /// With --crds: delete every pool, claim and Subnet in the cluster with them. There is no way back.
    #[arg(long, requires = "crds")]
    delete_all_data: bool,
    /// Only say what would be removed.
    #[arg(long)]
    dry_run: bool,
    /// Format.
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

pub(crate) async fn run(cluster: &ClusterArgs, args: &Args) -> Result<(), Failed> {
    let cluster = &cluster.connect("uninstall").await?;
    let namespace = args.namespace.as_str();
    let mut progress = Progress::new(args.output);
    let inventory = Inventory::take(cluster, namespace).await?;
    // Whoever deletes the CRDs concerns everybody; else only what this installation looks after.
    let scope = if args.crds { None } else { inventory.scope() };
    let left = Left::count(cluster, scope).await?;
    refuse(cluster, args, &left).await?;
    lease::refuse_stranger(cluster, namespace, &progress).await?;

    let applier = Applier {
        cluster,
        dry_run: args.dry_run,
    };
    if let Some(deployment) = inventory.deployment() {
        applier.delete(deployment, &mut progress).await?;
    }
    if !args.dry_run {
        wait_for_pods(cluster, namespace, &progress).await?;
        lease::wait_until_free(cluster, namespace, &progress).await?;
    }
    // Counted anew: until it stopped, the operator may have put its finalizer on more.
    let left = if args.dry_run {
        left
    } else {
        Left::count(cluster, scope).await?
    };
    if left.finalized() > 0 {
        finalizers::remove(cluster, scope, &left, args.dry_run, &mut progress).await?;
    }
    if args.crds {
        remove_crds(cluster, args, &applier, &mut progress).await?;
    }
    for object in inventory
        .objects
        .iter()
        .filter(|o| o.kind.kind != "Deployment" && !o.is_namespace())
    {
        applier.delete(object, &mut progress).await?;
    }
    delete_what_the_operator_made(&applier, namespace, &mut progress).await?;
    for object in inventory.objects.iter().filter(|object| object.is_namespace()) {
        namespace::remove_if_empty(&applier, object, &inventory, &mut progress).await?;
    }
    progress.say(&farewell(args, &inventory, &left))?;
    progress.finish()
}

/// Everything that forbids it, before anything is touched.
async fn refuse(cluster: &Cluster, args: &Args, left: &Left) -> Result<(), Failed> {
    if args.crds {
        let others = inventory::other_installations(cluster, &args.namespace).await?;
        if !others.is_empty() {
            return Err(format!(
                "nothing was removed: Usher is also installed in {}, which needs the CRDs; leave out --crds, or uninstall \
                 there first",
                others.join(", ")
            )
            .into());
        }
        if left.total() > 0 && !args.delete_all_data {
            return Err(format!(
                "nothing was removed: deleting the CRDs would delete {}; delete them first, leave out --crds to keep \
                 them, or give --delete-all-data to lose them all",
                left.everything()
            )
            .into());
        }
    }
    if left.finalized() > 0 && !args.remove_finalizers && !args.delete_all_data {
        return Err(format!(
            "nothing was removed: {} carry Usher's finalizer {}. Without the operator nobody takes it off, and deleting \
             them would hang. Delete them while the operator runs, or give --remove-finalizers: objects and ranges stay \
             as they are, but nothing then keeps a pool that is in use from being deleted",
            left.finalized_ones(),
            usher_subnets::api::FINALIZER,
        )
        .into());
    }
    Ok(())
}

/// Until no pod of the operator is left.
async fn wait_for_pods(cluster: &Cluster, namespace: &str, progress: &Progress) -> Result<(), Failed> {
    let deadline = Instant::now() + PODS_GONE;
    let mut told = false;
    loop {
        let pods = pods(cluster, namespace).await?;
        if pods.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(format!(
                "the operator's pods in namespace {namespace} are still there after {} s: {}; its finalizers and rights \
                 were not touched. See `kubectl -n {namespace} describe pod`, then run this again",
                PODS_GONE.as_secs(),
                pods.join(", ")
            )
            .into());
        }
        if !std::mem::replace(&mut told, true) {
            progress.say(&format!("waiting until the operator has ended: {}", pods.join(", ")))?;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Names of the operator's pods.
async fn pods(cluster: &Cluster, namespace: &str) -> Result<Vec<String>, Failed> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let labels = format!("{NAME}=usher,{INSTANCE}={namespace}");
    let listed = cluster
        .ask(
            &format!("list pods in namespace {namespace}"),
            api.list(&ListParams::default().labels(&labels)),
        )
        .await?;
    Ok(listed.items.into_iter().filter_map(|pod| pod.metadata.name).collect())
}

async fn remove_crds(
    cluster: &Cluster,
    args: &Args,
    applier: &Applier<'_>,
    progress: &mut Progress,
) -> Result<(), Failed> {
    // Somebody may have made one while the operator was going.
    let left = Left::count(cluster, None).await?;
    if left.total() > 0 && !args.delete_all_data {
        return Err(format!(
            "the CRDs were not deleted: {} appeared meanwhile; delete them and run this again",
            left.everything()
        )
        .into());
    }
    let crds = objects::crds()?;
    for crd in &crds {
        applier.delete(crd, progress).await?;
    }
    if !args.dry_run {
        for crd in &crds {
            wait_gone(cluster, crd).await?;
        }
    }
    Ok(())
}

/// What no installation makes, but the operator itself: its Lease, its certificates.
async fn delete_what_the_operator_made(
    applier: &Applier<'_>,
    namespace: &str,
    progress: &mut Progress,
) -> Result<(), Failed> {
    for (kind, name) in [
        (ApiResource::erase::<Lease>(&()), objects::LEASE),
        (ApiResource::erase::<Secret>(&()), objects::CERTIFICATES),
        (ApiResource::erase::<ConfigMap>(&()), objects::AUTHORITIES),
    ] {
        let api = applier.cluster.api(&kind, Some(namespace));
        let doing = format!("read {} {namespace}/{name}", kind.kind);
        // The metadata is enough, and has no key in it.
        let found = applier.cluster.find(&doing, api.get_metadata(name)).await?;
        let Some(found) = found.filter(|found| kind.kind == "Lease" || is_the_operators(found)) else {
            continue;
        };
        let object = Object {
            kind,
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
            value: serde_json::to_value(found)?,
        };
        applier.delete(&object, progress).await?;
    }
    Ok(())
}

/// Whether the operator made it, and not somebody who likes the same names.
fn is_the_operators(object: &Metadata) -> bool {
    let labels = object.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(objects::MANAGED_BY))
        .is_some_and(|by| by == "usher")
}

/// Until the object is no longer there.
async fn wait_gone(cluster: &Cluster, object: &Object) -> Result<(), Failed> {
    let deadline = Instant::now() + GONE;
    loop {
        let api = cluster.api(&object.kind, object.namespace.as_deref());
        let there = cluster
            .find(&format!("read {object}"), api.get_metadata(&object.name))
            .await?;
        if there.is_none() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(format!(
                "{object} is still being deleted after {} s: something of it carries another finalizer; `kubectl describe \
                 {} {}` says more",
                GONE.as_secs(),
                object.kind.kind.to_lowercase(),
                object.name
            )
            .into());
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn farewell(args: &Args, inventory: &Inventory, left: &Left) -> String {
    let namespace = &args.namespace;
    if args.dry_run {
        return "Nothing was removed (--dry-run).".to_owned();
    }
    let begin = if inventory.objects.is_empty() {
        format!("Nothing of `usher install` was in namespace {namespace}.")
    } else {
        format!("Usher is removed from namespace {namespace}.")
    };
    let rest = if args.crds {
        "The CRDs and all their objects are gone.".to_owned()
    } else if left.total() == 0 {
        "The CRDs stay; --crds deletes them.".to_owned()
    } else {
        format!(
            "{} stay as they are, with the CRDs; `usher install` takes them up again.",
            left.everything()
        )
    };
    format!("{begin} {rest}")
}
