//! T4: claims that arrive one by one. From the answer to the create to Bound, as a user's watch sees it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
use serde::Serialize;
use serde_json::json;
use tokio::sync::Mutex;

use super::objects::{self, LENGTH, Nursery, claim_name, path, pool_name};
use crate::error::{Error, Result};
use crate::report::quantile;
use crate::world::World;

/// Latencies of one rate, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Latency {
    /// Claims per second that were really created.
    pub(crate) rate: f64,
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
}

type Times = Arc<Mutex<BTreeMap<String, Instant>>>;

/// Claims at `rate` per second for so long.
pub(crate) async fn latency(world: &World, rate: f64, time: Duration) -> Result<Latency> {
    let nursery = Nursery::open(world, 1).await?;
    let mut operator = world.operator(nursery.namespace())?;
    operator.ready().await?;
    let count = ((rate * time.as_secs_f64()) as usize).max(1);
    let seen = Times::default();
    let watching = tokio::spawn(watch(
        world.another_client().await?.kube(),
        nursery.namespace().to_owned(),
        seen.clone(),
    ));
    let (answered, took) = create(world, nursery.namespace(), count, rate).await?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while seen.lock().await.len() < count && Instant::now() < deadline && !watching.is_finished() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    watching.abort();
    drop(operator);
    nursery.close().await?;
    let seen = seen.lock().await;
    let milliseconds: Vec<f64> = answered
        .iter()
        .filter_map(|(name, answered)| Some(seen.get(name)?.saturating_duration_since(*answered).as_secs_f64() * 1e3))
        .collect();
    if milliseconds.len() < count {
        let missing = count - milliseconds.len();
        return Err(Error::Wrong(format!(
            "{missing} of {count} claims were not seen Bound within 60 s"
        )));
    }
    Ok(Latency {
        rate: count as f64 / took.as_secs_f64(),
        p50: quantile(&milliseconds, 0.5),
        p95: quantile(&milliseconds, 0.95),
        p99: quantile(&milliseconds, 0.99),
    })
}

/// Creates claims at their times, whether or not earlier ones are answered. When each was answered, and how long all took.
async fn create(world: &World, namespace: &str, count: usize, rate: f64) -> Result<(Vec<(String, Instant)>, Duration)> {
    let mut creating = tokio::task::JoinSet::new();
    let begun = Instant::now();
    let at = path(namespace, "subnetclaims");
    for n in 0..count {
        let due = begun + Duration::from_secs_f64(n as f64 / rate);
        tokio::time::sleep_until(due.into()).await;
        let object = json!({
            "apiVersion": "plexaubnet.io/v1alpha1",
            "kind": "SubnetClaim",
            "metadata": {"namespace": namespace, "name": claim_name(n)},
            "spec": {"poolRef": pool_name(0, 1), "clusterID": objects::claim_name(n), "blockSize": LENGTH},
        });
        let (client, at) = (world.client().clone(), at.clone());
        creating.spawn(async move {
            client.send(http::Method::POST, &at, object.to_string()).await?;
            Ok((claim_name(n), Instant::now()))
        });
    }
    let mut answered = Vec::with_capacity(count);
    while let Some(created) = creating.join_next().await {
        let created: Result<_> = created.map_err(|e| Error::Wrong(format!("a create ended badly: {e}")))?;
        answered.push(created?);
    }
    Ok((answered, begun.elapsed()))
}

/// Notes when each claim was first seen Bound.
async fn watch(client: kube::Client, namespace: String, seen: Times) -> Result<()> {
    let claims = kube::discovery::ApiResource {
        group: "plexaubnet.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "plexaubnet.io/v1alpha1".to_owned(),
        kind: "SubnetClaim".to_owned(),
        plural: "subnetclaims".to_owned(),
    };
    let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &claims);
    let failed = |e: kube::Error| Error::api("watch subnetclaims", e);
    let stream = api
        .watch(&WatchParams::default().timeout(290), "0")
        .await
        .map_err(failed)?;
    let mut stream = std::pin::pin!(stream);
    while let Some(event) = stream.try_next().await.map_err(failed)? {
        let (WatchEvent::Added(claim) | WatchEvent::Modified(claim)) = event else {
            continue;
        };
        let phase = claim.data.pointer("/status/phase").and_then(|phase| phase.as_str());
        if let (Some("Bound"), Some(name)) = (phase, claim.metadata.name) {
            seen.lock().await.entry(name).or_insert_with(Instant::now);
        }
    }
    Ok(())
}
