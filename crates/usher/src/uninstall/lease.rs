//! Whether an operator still acts, by its Lease.
//!
//! Clocks of two machines cannot be compared, so a holder is called dead when its Lease has not changed for as long as
//! it says that it holds, watched from here; or when its last renewal is too long ago for any clock.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::time::Instant;

use super::pods;
use crate::Failed;
use crate::cluster::Cluster;
use crate::install::apply::LOOK;
use crate::install::objects::LEASE;
use crate::output::Progress;

/// No two clocks in a working cluster are further apart: certificates and tokens would fail before.
const CLOCKS_APART: Duration = Duration::from_secs(300);
/// What a Lease that does not say it holds for; the operator's default.
const USUAL: Duration = Duration::from_secs(15);

struct Held {
    by: String,
    version: String,
    lasts: Duration,
    renewed: Option<Timestamp>,
}

impl Held {
    fn is_long_over(&self) -> bool {
        let Some(renewed) = self.renewed else { return false };
        let age = Timestamp::now().duration_since(renewed);
        Duration::try_from(age).is_ok_and(|age| age > self.lasts + CLOCKS_APART)
    }
}

fn api(cluster: &Cluster, namespace: &str) -> Api<Lease> {
    Api::namespaced(cluster.client.clone(), namespace)
}

/// Who holds the Lease, if anybody does.
async fn held(cluster: &Cluster, namespace: &str) -> Result<Option<Held>, Failed> {
    let doing = format!("read Lease {namespace}/{LEASE}");
    let lease = cluster.find(&doing, api(cluster, namespace).get(LEASE)).await?;
    let Some((spec, meta)) = lease.and_then(|lease| Some((lease.spec?, lease.metadata))) else {
        return Ok(None);
    };
    let Some(by) = spec.holder_identity.filter(|holder| !holder.is_empty()) else {
        return Ok(None);
    };
    let lasts = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    Ok(Some(Held {
        by,
        version: meta.resource_version.unwrap_or_default(),
        lasts: lasts.map_or(USUAL, Duration::from_secs),
        renewed: spec.renew_time.map(|time| time.0),
    }))
}

/// An operator that this installation did not start (`usher operator` on somebody's machine, say) and that is alive:
/// nothing can be removed safely under it.
pub(super) async fn refuse_stranger(cluster: &Cluster, namespace: &str, progress: &Progress) -> Result<(), Failed> {
    let Some(lease) = held(cluster, namespace).await? else {
        return Ok(());
    };
    if pods(cluster, namespace).await?.contains(&lease.by) {
        return Ok(());
    }
    match outlived(cluster, namespace, lease, progress).await? {
        None => Ok(()),
        Some(holder) => Err(format!(
            "nothing was removed: operator {holder} still renews Lease {namespace}/{LEASE}, and is no pod of this \
             installation; stop it and run this again"
        )
        .into()),
    }
}

/// Waits until nobody acts any more; the operator's pods are gone.
pub(super) async fn wait_until_free(cluster: &Cluster, namespace: &str, progress: &Progress) -> Result<(), Failed> {
    let Some(lease) = held(cluster, namespace).await? else {
        return Ok(());
    };
    match outlived(cluster, namespace, lease, progress).await? {
        None => Ok(()),
        Some(holder) => Err(format!(
            "operator {holder} has taken over Lease {namespace}/{LEASE} and renews it: finalizers and rights were not \
             touched; stop it and run this again"
        )
        .into()),
    }
}

/// Watches a held Lease: `None` when it is free or its holder dead, the holder's name when it renews.
async fn outlived(
    cluster: &Cluster,
    namespace: &str,
    first: Held,
    progress: &Progress,
) -> Result<Option<String>, Failed> {
    if first.is_long_over() {
        return Ok(None);
    }
    progress.say(&format!(
        "Lease {namespace}/{LEASE} is held by {}: watching for {} s whether it still renews it",
        first.by,
        first.lasts.as_secs()
    ))?;
    let until = Instant::now() + first.lasts;
    while Instant::now() < until {
        tokio::time::sleep(LOOK).await;
        match held(cluster, namespace).await? {
            None => return Ok(None),
            Some(now) if now.version != first.version => return Ok(Some(now.by)),
            Some(_) => {}
        }
    }
    Ok(None)
}
