//! The operator at work: claims that wait when it starts (T2, T3), and claims that go (releases).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::Method;
use jiff::Timestamp;
use serde::Serialize;

use super::ceiling::Cpu;
use super::objects::{Nursery, claim_name, path};
use crate::audit::{Audit, Request, tally};
use crate::error::{Error, Result};
use crate::operator::{Metrics, Operator};
use crate::world::{IN_FLIGHT, World, at_once};

/// The operator is at rest when it has written nothing for so long.
const REST: Duration = Duration::from_millis(1_500);

/// What one drain came to. All requests are as the API server counted them.
#[derive(Debug, Serialize)]
pub(crate) struct Drain {
    /// Claims bound per second, from ready to the last Bound.
    pub(crate) rate: f64,
    pub(crate) seconds: f64,
    /// Writes per bound claim, those of pool status apart.
    pub(crate) writes: f64,
    /// Status writes of the busiest pool, on average over pools.
    pub(crate) pool_status: f64,
    /// Reads after ready.
    pub(crate) reads: usize,
    /// All requests of the writer, by verb and resource.
    pub(crate) requests: BTreeMap<String, usize>,
    /// Bytes of etcd per claim, from before the claims were there.
    pub(crate) bytes: f64,
    /// Processor seconds by process, over the drain.
    pub(crate) cpu: Vec<(String, f64)>,
    /// Memory of the operator after the drain, in megabytes.
    pub(crate) memory: f64,
    /// Passes by result.
    pub(crate) passes: BTreeMap<String, f64>,
}

/// T2, and T3 where Subnets exist already: `count` claims of so many pools wait; then the operator starts.
pub(crate) async fn drain(world: &World, count: usize, pools: usize, existing: usize) -> Result<Drain> {
    let nursery = Nursery::open(world, pools).await?;
    nursery.by_hand(existing).await?;
    let before = world.etcd().bytes()?;
    nursery.waiting(0, count).await?;
    let audit = Audit::from_now(&world.plane().dir);
    let mut operator = world.operator(nursery.namespace())?;
    let (ready, _) = operator.ready().await?;
    let cpu = Cpu::now(world);
    let own = operator.cpu_seconds();
    at_rest(&mut operator, "bind all claims", |m| claim_writes(m) >= count as f64).await?;
    let mut used = cpu.since(world, "bench");
    used.push(("usher".to_owned(), operator.cpu_seconds() - own));
    let metrics = operator.metrics();
    let (memory, _) = operator.memory();
    drop(operator);
    all_bound(world, nursery.namespace(), count).await?;
    let bytes = world.etcd().bytes()?.saturating_sub(before) as f64 / count as f64;
    let requests = audit.requests(nursery.namespace())?;
    nursery.close().await?;

    let binds = requests
        .iter()
        .filter(|r| r.by("writer") && r.what == BIND && r.succeeded());
    let last = binds.map(|r| r.answered).max().unwrap_or(ready);
    let seconds = seconds(ready, last);
    let written: Vec<&Request> = requests.iter().filter(|r| r.by("writer") && r.is_write()).collect();
    let status = written
        .iter()
        .filter(|r| r.what == POOL_STATUS && r.received <= last)
        .count();
    let others = written.iter().filter(|r| r.what != POOL_STATUS).count();
    Ok(Drain {
        rate: count as f64 / seconds,
        seconds,
        writes: others as f64 / count as f64,
        pool_status: status as f64 / pools as f64,
        reads: reads_after(&requests, ready),
        requests: tally(requests.iter().filter(|r| r.by("writer"))),
        bytes,
        cpu: used,
        memory,
        passes: passes(&metrics),
    })
}

const BIND: &str = "update subnetclaims/status";
const POOL_STATUS: &str = "update subnetpools/status";

/// What a release came to.
#[derive(Debug, Serialize)]
pub(crate) struct Released {
    /// Writes of the operator per released Subnet.
    pub(crate) writes: f64,
    pub(crate) requests: BTreeMap<String, usize>,
    pub(crate) reads: usize,
    /// Subnets gone per second, the deletes of the claims included.
    pub(crate) rate: f64,
}

/// `count` served claims are deleted, with nobody else to collect what they leave.
pub(crate) async fn release(world: &World, count: usize) -> Result<Released> {
    let nursery = Nursery::open(world, 1).await?;
    nursery.served(count).await?;
    let mut operator = world.operator(nursery.namespace())?;
    let (ready, _) = operator.ready().await?;
    at_rest(&mut operator, "come to rest", |_| true).await?;
    let audit = Audit::from_now(&world.plane().dir);
    let (client, claims) = (world.client().clone(), path(nursery.namespace(), "subnetclaims"));
    let begun = Timestamp::now();
    at_once(count, IN_FLIGHT, move |n| {
        let (client, at) = (client.clone(), format!("{claims}/{}", claim_name(n)));
        async move { client.send(Method::DELETE, &at, String::new()).await.map(drop) }
    })
    .await?;
    let none_left = |m: &Metrics| m.sum("usher_view_records", &["kind=\"Subnet\""]) == 0.0;
    at_rest(&mut operator, "release all Subnets", none_left).await?;
    drop(operator);
    let requests = audit.requests(nursery.namespace())?;
    nursery.close().await?;
    let writes = requests
        .iter()
        .filter(|r| r.by("writer") && r.is_write() && r.what != POOL_STATUS);
    let of_subnets = |r: &&Request| r.by("writer") && r.is_write() && r.what.ends_with(" subnets");
    let last = requests
        .iter()
        .filter(of_subnets)
        .map(|r| r.answered)
        .max()
        .unwrap_or(begun);
    Ok(Released {
        writes: writes.count() as f64 / count as f64,
        reads: reads_after(&requests, ready),
        requests: tally(requests.iter().filter(|r| r.by("writer"))),
        rate: count as f64 / seconds(begun, last),
    })
}

/// Waits until the metrics are as wanted and the operator has written nothing for a while.
async fn at_rest(operator: &mut Operator, what: &str, wanted: impl Fn(&Metrics) -> bool) -> Result<()> {
    operator.until(what, wanted).await?;
    let mut last = (writes(&operator.metrics()), Instant::now());
    while last.1.elapsed() < REST {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = writes(&operator.metrics());
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    Ok(())
}

fn writes(metrics: &Metrics) -> f64 {
    metrics.sum("usher_api_writes_total", &[])
}

fn claim_writes(metrics: &Metrics) -> f64 {
    metrics.sum(
        "usher_api_writes_total",
        &["verb=\"update\"", "resource=\"subnetclaims\"", "result=\"success\""],
    )
}

fn reads_after(requests: &[Request], ready: Timestamp) -> usize {
    let by_operator = |r: &&Request| ["writer", "watch"].iter().any(|role| r.by(role));
    requests
        .iter()
        .filter(by_operator)
        .filter(|r| r.is_read() && r.received > ready)
        .count()
}

fn passes(metrics: &Metrics) -> BTreeMap<String, f64> {
    let mut passes = BTreeMap::new();
    for kind in ["SubnetPool", "SubnetClaim", "Subnet"] {
        for result in ["success", "stale", "moved", "error", "gone"] {
            let labels = [format!("kind=\"{kind}\""), format!("result=\"{result}\"")];
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            let count = metrics.sum("usher_passes_total", &labels);
            if count > 0.0 {
                passes.insert(format!("{kind} {result}"), count);
            }
        }
    }
    passes
}

/// The server's word that all is done.
async fn all_bound(world: &World, namespace: &str, count: usize) -> Result<()> {
    let at = path(namespace, "subnetclaims");
    let list = world.client().send(Method::GET, &at, String::new()).await?;
    let bound = list.matches("\"phase\":\"Bound\"").count();
    if bound == count {
        return Ok(());
    }
    Err(Error::Wrong(format!(
        "{bound} of {count} claims in {namespace} are Bound; this is a bug of the operator"
    )))
}

pub(crate) fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(1e-3)
}
