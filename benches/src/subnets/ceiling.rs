//! What the server can do at all: bare creates (T0), and R19's three writes by a writer that knows everything beforehand
//! and watches nothing (T1). No operator runs.

use std::sync::Arc;
use std::time::Instant;

use futures::AsyncBufReadExt;
use http::Method;
use serde_json::Value;
use tokio::task::JoinSet;

use super::objects::{self, Nursery, Waiting, path, pool_name};
use crate::error::{Error, Result};
use crate::report::median;
use crate::world::{Client, IN_FLIGHT, World, at_once};

/// T0: creates of Subnets per second.
pub(crate) async fn raw(world: &World, count: usize) -> Result<f64> {
    let nursery = Nursery::open(world, 1).await?;
    let at = path(nursery.namespace(), "subnets");
    let pool = pool_name(0, 1);
    let bodies = (0..count).map(|n| objects::subnet(nursery.namespace(), n, &pool, "a-uid").to_string());
    let bodies: Arc<Vec<String>> = Arc::new(bodies.collect());
    let client = world.client().clone();
    let begun = Instant::now();
    at_once(count, IN_FLIGHT, move |n| {
        let (client, at, body) = (client.clone(), at.clone(), bodies.get(n).cloned().unwrap_or_default());
        async move { client.send(Method::POST, &at, body).await.map(drop) }
    })
    .await?;
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    nursery.close().await?;
    Ok(rate)
}

/// One write with nothing else going on: the median in milliseconds.
pub(crate) async fn idle_write(world: &World, count: usize) -> Result<f64> {
    let nursery = Nursery::open(world, 1).await?;
    let at = path(nursery.namespace(), "subnets");
    let pool = pool_name(0, 1);
    let mut times = Vec::with_capacity(count);
    for n in 0..count {
        let body = objects::subnet(nursery.namespace(), n, &pool, "a-uid").to_string();
        let begun = Instant::now();
        world.client().send(Method::POST, &at, body).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    nursery.close().await?;
    Ok(median(&times))
}

/// What T1 came to.
#[derive(Debug)]
pub(crate) struct Ceiling {
    /// Claims bound per second.
    pub(crate) rate: f64,
    /// Bytes of etcd per claim, from before the claims were there.
    pub(crate) bytes: f64,
    /// Processor seconds by process.
    pub(crate) cpu: Vec<(String, f64)>,
}

/// Whether somebody watches what the dumb writer writes, as whoever decides must.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watched {
    Yes,
    No,
}

/// T1: `count` prepared claims, three writes each.
pub(crate) async fn ceiling(world: &World, count: usize, watched: Watched) -> Result<Ceiling> {
    let nursery = Nursery::open(world, 1).await?;
    // They end with this set.
    let mut watchers = JoinSet::new();
    if watched == Watched::Yes {
        for plural in ["subnets", "subnetclaims"] {
            watchers.spawn(watch(world.client().clone(), path(nursery.namespace(), plural)));
        }
    }
    let before = world.etcd().bytes()?;
    let waiting = nursery.waiting(0, count).await?;
    let jobs: Vec<Job> = waiting
        .iter()
        .enumerate()
        .map(|(n, claim)| Job::new(nursery.namespace(), n, claim))
        .collect();
    let (jobs, client) = (Arc::new(jobs), world.client().clone());
    let cpu = Cpu::now(world);
    let begun = Instant::now();
    at_once(count, IN_FLIGHT, move |n| {
        let (client, jobs) = (client.clone(), jobs.clone());
        async move {
            let job = jobs.get(n).ok_or_else(|| Error::Wrong(format!("no claim {n}")))?;
            let created = client.send(Method::POST, &job.subnets, job.create.clone()).await?;
            let (uid, version) = (field(&created, "uid")?, field(&created, "resourceVersion")?);
            let commit = job.commit.replace(UID, uid).replace(VERSION, version);
            client.send(Method::PUT, &job.subnet_status, commit).await?;
            client
                .send(Method::PUT, &job.claim_status, job.bind.clone())
                .await
                .map(drop)
        }
    })
    .await?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = cpu.since(world, "bench");
    let bytes = world.etcd().bytes()?.saturating_sub(before) as f64 / count as f64;
    nursery.close().await?;
    Ok(Ceiling {
        rate: count as f64 / seconds,
        bytes,
        cpu,
    })
}

/// Reads what a watch brings, and makes nothing of it.
async fn watch(client: Client, path: String) -> Result<()> {
    let at = format!("{path}?watch=true&timeoutSeconds=280");
    let mut lines = std::pin::pin!(client.lines(&at).await?);
    let mut line = String::new();
    while lines
        .read_line(&mut line)
        .await
        .map_err(Error::io(format!("read {at}")))?
        > 0
    {
        line.clear();
    }
    Ok(())
}

/// Processor time of the servers and of whoever drives them.
#[derive(Debug)]
pub(crate) struct Cpu(Vec<(String, f64)>);

impl Cpu {
    pub(crate) fn now(world: &World) -> Self {
        let mut all = world.plane().cpu();
        all.push(("bench".to_owned(), crate::process::cpu_seconds(std::process::id())));
        Self(all)
    }

    /// What each used since; the last one is called `driver`.
    pub(crate) fn since(&self, world: &World, driver: &str) -> Vec<(String, f64)> {
        let Self(now) = Self::now(world);
        let used = now.into_iter().zip(&self.0).map(|((name, now), (_, before))| {
            let name = if name == "bench" { driver.to_owned() } else { name };
            (name, now - before)
        });
        used.collect()
    }
}

/// Stand for what only the server's answer tells.
const UID: &str = "%uid%";
const VERSION: &str = "%version%";

/// The three writes of one claim.
#[derive(Debug)]
struct Job {
    subnets: String,
    create: String,
    subnet_status: String,
    commit: String,
    claim_status: String,
    bind: String,
}

impl Job {
    fn new(namespace: &str, n: usize, claim: &Waiting) -> Self {
        let pool = pool_name(0, 1);
        let subnet = objects::subnet(namespace, n, &pool, &claim.uid);
        let name = subnet
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let (subnets, claims) = (path(namespace, "subnets"), path(namespace, "subnetclaims"));
        let (claim_name, version) = (objects::claim_name(n), claim.version.to_string());
        let bound = objects::bound(n, &pool);
        Self {
            create: subnet.to_string(),
            subnet_status: format!("{subnets}/{name}/status"),
            commit: objects::status_write("Subnet", namespace, name, UID, VERSION, &objects::allocated()),
            claim_status: format!("{claims}/{claim_name}/status"),
            bind: objects::status_write("SubnetClaim", namespace, &claim_name, &claim.uid, &version, &bound),
            subnets,
        }
    }
}

/// The object's own field of that name, without reading the object: its last occurrence, since owners come before it.
fn field<'t>(object: &'t str, name: &str) -> Result<&'t str> {
    let metadata = object
        .find("\"metadata\"")
        .and_then(|at| object.get(at..))
        .unwrap_or(object);
    let spec = metadata.find("\"spec\":{\"c").unwrap_or(metadata.len());
    let metadata = metadata.get(..spec).unwrap_or(metadata);
    let mark = format!("\"{name}\":\"");
    let value = metadata
        .rfind(&mark)
        .and_then(|at| metadata.get(at + mark.len()..)?.split('"').next());
    value.ok_or_else(|| Error::api("POST subnets", format!("no {name} in {object}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objects_own_uid_is_found_beside_its_owners() {
        let object = r#"{"apiVersion":"v","kind":"Subnet","metadata":{"name":"n","ownerReferences":[{"kind":"SubnetClaim","uid":"owner"}],"resourceVersion":"7","uid":"own"},"spec":{"cidr":"10.0.0.0/28","claimRef":{"name":"c","uid":"owner"}}}"#;
        assert_eq!(field(object, "uid").unwrap(), "own");
        assert_eq!(field(object, "resourceVersion").unwrap(), "7");
        assert!(field(object, "generation").is_err());
    }
}
