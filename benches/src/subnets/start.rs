//! Start and memory with much in the cluster: how long until ready, beside how long the bare lists take; and what the
//! operator weighs then.

use std::time::{Duration, Instant};

use futures::AsyncBufReadExt;
use http::Method;
use serde::Serialize;

use super::objects::{Nursery, path};
use crate::error::{Error, Result};
use crate::world::{Client, World};

const PAGE: usize = 500;

/// What a start came to.
#[derive(Debug, Serialize)]
pub(crate) struct Start {
    /// Seconds of lists in pages of 500, one type after the other, nothing done with them.
    pub(crate) pages: f64,
    /// Seconds of streaming lists, likewise: what the operator asks for.
    pub(crate) streams: f64,
    /// Seconds until `/readyz`.
    pub(crate) ready: f64,
    /// Megabytes: at rest, and at most.
    pub(crate) memory: f64,
    pub(crate) peak: f64,
    /// Processor seconds of the operator until ready, and until at rest.
    pub(crate) cpu_ready: f64,
    pub(crate) cpu_rest: f64,
}

/// A cluster with so many Bound claims and their Subnets.
#[derive(Debug)]
pub(crate) struct Crowd<'w> {
    world: &'w World,
    nursery: Nursery<'w>,
    objects: usize,
}

impl<'w> Crowd<'w> {
    pub(crate) async fn gather(world: &'w World, objects: usize) -> Result<Self> {
        let nursery = Nursery::open(world, 1).await?;
        nursery.served(objects).await?;
        Ok(Self {
            world,
            nursery,
            objects,
        })
    }

    /// One start of the operator, beside the bare lists.
    pub(crate) async fn start(&self) -> Result<Start> {
        let namespace = self.nursery.namespace();
        let pages = self.lists(namespace, false).await?;
        let streams = self.lists(namespace, true).await?;
        let mut operator = self.world.operator(namespace)?;
        let (_, ready) = operator.ready().await?;
        let cpu_ready = operator.cpu_seconds();
        let expected = self.objects as f64;
        operator
            .until("know all objects", |m| {
                ["Subnet", "SubnetClaim"]
                    .iter()
                    .all(|kind| m.sum("usher_view_records", &[&format!("kind=\"{kind}\"")]) == expected)
            })
            .await?;
        // At rest: everything has been looked at, so that no queue is in the figure.
        let mut idle = (operator.cpu_seconds(), Instant::now());
        while idle.1.elapsed() < Duration::from_secs(3) {
            tokio::time::sleep(Duration::from_millis(250)).await;
            let now = operator.cpu_seconds();
            if now - idle.0 > 0.03 {
                idle = (now, Instant::now());
            }
        }
        let (memory, peak) = operator.memory();
        Ok(Start {
            pages,
            streams,
            ready: ready.as_secs_f64(),
            memory,
            peak,
            cpu_ready,
            cpu_rest: operator.cpu_seconds(),
        })
    }

    pub(crate) async fn leave(self) -> Result<()> {
        self.nursery.close().await
    }

    async fn lists(&self, namespace: &str, streaming: bool) -> Result<f64> {
        let client = self.world.another_client().await?;
        let begun = Instant::now();
        for plural in ["subnets", "subnetpools", "subnetclaims", "subnetpoolclaims"] {
            let at = path(namespace, plural);
            if streaming {
                stream(&client, &at).await?;
            } else {
                pages(&client, &at).await?;
            }
        }
        Ok(begun.elapsed().as_secs_f64())
    }
}

async fn pages(client: &Client, path: &str) -> Result<()> {
    let mut more = String::new();
    loop {
        let at = format!("{path}?limit={PAGE}{more}");
        let page = client.send(Method::GET, &at, String::new()).await?;
        // In the list's own metadata, which comes before or after its items.
        let mark = "\"continue\":\"";
        let token = page.find("\"items\"").and_then(|items| {
            let (head, tail) = page.split_at_checked(items)?;
            let at = head.find(mark).or_else(|| tail.rfind(mark).map(|at| at + items))?;
            page.get(at + mark.len()..)?.split('"').next()
        });
        match token.filter(|token| !token.is_empty()) {
            Some(token) => more = format!("&continue={token}"),
            None => return Ok(()),
        }
    }
}

async fn stream(client: &Client, path: &str) -> Result<()> {
    let at = format!(
        "{path}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=280"
    );
    let mut lines = std::pin::pin!(client.lines(&at).await?);
    let (mut line, mut events) = (String::new(), 0);
    loop {
        let last: String = line.chars().take(300).collect();
        line.clear();
        let read = lines
            .read_line(&mut line)
            .await
            .map_err(Error::io(format!("read {at}")))?;
        if read == 0 {
            return Err(Error::api(
                at,
                format!("the stream ended after {events} events, the last one {last:?}"),
            ));
        }
        events += 1;
        if line.starts_with("{\"type\":\"BOOKMARK\"") && line.contains("initial-events-end") {
            return Ok(());
        }
    }
}
