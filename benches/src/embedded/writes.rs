//! Creates and applies in process, in memory and on disk.

use usher_embedded::store::Durability;
use usher_embedded::{Cluster, Storage};

use super::asks::{self, CONFIG_MAPS, PODS, Rate};
use super::{Options, objects, start};
use crate::error::{Error, Result};
use crate::report::Row;

/// Writers of the row on disk.
const WRITERS: usize = 16;

type Make = fn(usize) -> String;

fn config_map(n: usize) -> String {
    objects::config_map(&format!("map-{n:06}")).to_string()
}

fn pod(n: usize) -> String {
    objects::pod(&format!("pod-{n:06}"), &["main", "beside"], 2_048).to_string()
}

pub(crate) fn in_process(options: &Options) -> Result<Vec<Row>> {
    let runtime = asks::runtime()?;
    let count = options.requests;
    let creates = |path: &'static str, make: Make| {
        options.repeat(|| {
            runtime.block_on(async { create(&asks::cluster(Storage::Memory)?, asks::cores(), count, path, make).await })
        })
    };
    let maps = creates(CONFIG_MAPS, config_map)?;
    let pods = creates(PODS, pod)?;
    let applies = |path: &'static str, make: Make, name: &'static str| {
        options.repeat(|| runtime.block_on(apply(count / 2, path, make, name)))
    };
    let map = applies(CONFIG_MAPS, config_map, "map-000000")?;
    let pod = applies(PODS, pod, "pod-000000")?;
    Ok(vec![
        asks::row("create 2 KiB ConfigMap, in process", &maps).best_at_least(20_000.0),
        asks::row("create 2 KiB Pod, in process", &pods),
        asks::row("apply without change, ConfigMap", &map).best_at_least(5_000.0),
        asks::row("apply without change, Pod", &pod),
    ])
}

pub(crate) fn on_disk(options: &Options) -> Result<Vec<Row>> {
    let runtime = asks::runtime()?;
    let mut shares = Vec::new();
    let rates = options.repeat(|| {
        let folder = start::scratch("disk")?;
        let storage = Storage::Disk {
            file: folder.join("store.redb"),
            durability: Durability::Fsync,
        };
        let rate = runtime.block_on(async {
            let cluster = asks::cluster(storage)?;
            let before = cluster.store_stats();
            let rate = create(&cluster, WRITERS, options.requests / 4, CONFIG_MAPS, config_map).await?;
            let after = cluster.store_stats();
            let commits = (after.durable_commits - before.durable_commits) as f64;
            shares.push(commits / (after.writes - before.writes) as f64);
            cluster.stop().await;
            Ok(rate)
        });
        let _ = std::fs::remove_dir_all(&folder);
        rate
    })?;
    Ok(vec![
        asks::row(format!("create 2 KiB, fsync, {WRITERS} writers"), &rates).best_at_least(2_000.0),
        Row::new("commits per write", "", shares).best_at_most(0.25),
    ])
}

/// Creates per second.
async fn create(cluster: &Cluster, workers: usize, count: usize, path: &'static str, make: Make) -> Result<Rate> {
    // Made beforehand: the client's work is not the server's.
    let bodies: std::sync::Arc<[String]> = (0..count).map(make).collect();
    asks::rate(workers, count, |_, numbers| {
        let (cluster, bodies) = (cluster.clone(), bodies.clone());
        async move {
            for body in bodies.get(numbers).into_iter().flatten() {
                let response = asks::send(&cluster, asks::create(path, body.clone())?).await?;
                asks::whole(response).await;
                // On one thread of many, somebody else may want to go on.
                tokio::task::yield_now().await;
            }
            Ok(())
        }
    })
    .await
}

/// Applies per second of what is there as it is.
async fn apply(count: usize, path: &'static str, make: Make, name: &str) -> Result<Rate> {
    let cluster = asks::cluster(Storage::Memory)?;
    let body = make(0);
    let path = format!("{path}/{name}");
    asks::send(&cluster, asks::apply(&path, body.clone())?).await?;
    let before = cluster.store_stats().writes;
    let rate = asks::rate(asks::cores(), count, |_, numbers| {
        let (cluster, path, body) = (cluster.clone(), path.clone(), body.clone());
        async move {
            for _ in numbers {
                let response = asks::send(&cluster, asks::apply(&path, body.clone())?).await?;
                asks::whole(response).await;
            }
            Ok(())
        }
    })
    .await?;
    match cluster.store_stats().writes - before {
        0 => Ok(rate),
        written => Err(Error::Wrong(format!(
            "applies that change nothing wrote {written} revisions"
        ))),
    }
}
