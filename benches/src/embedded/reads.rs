//! Gets and lists in process.

use std::time::Instant;

use usher_embedded::{Cluster, Storage};

use super::asks::{self, CONFIG_MAPS, Rate};
use super::{Options, objects};
use crate::error::Result;
use crate::report::Row;

/// Objects in the list of the spec.
const LISTED: usize = 500;

pub(crate) fn rows(options: &Options) -> Result<Vec<Row>> {
    let runtime = asks::runtime()?;
    let cluster = runtime.block_on(filled())?;
    let gets = options.repeat(|| runtime.block_on(gets(&cluster, options.requests * 2)))?;
    let lists = options.repeat(|| runtime.block_on(list(&cluster)))?;
    Ok(vec![
        asks::row("get 2 KiB, in process", &gets).best_at_least(50_000.0),
        Row::new(format!("list of {LISTED}, in process"), "ms", lists).best_at_most(5.0),
    ])
}

async fn filled() -> Result<Cluster> {
    let cluster = asks::cluster(Storage::Memory)?;
    for n in 0..LISTED {
        let body = objects::config_map(&format!("map-{n:05}")).to_string();
        asks::send(&cluster, asks::create(CONFIG_MAPS, body)?).await?;
    }
    Ok(cluster)
}

async fn gets(cluster: &Cluster, count: usize) -> Result<Rate> {
    asks::rate(asks::cores(), count, |_, numbers| {
        let cluster = cluster.clone();
        async move {
            for n in numbers {
                let path = format!("{CONFIG_MAPS}/map-{:05}", n % LISTED);
                asks::whole(asks::send(&cluster, asks::get(&path)?).await?).await;
            }
            Ok(())
        }
    })
    .await
}

/// Milliseconds of one.
async fn list(cluster: &Cluster) -> Result<f64> {
    let begun = Instant::now();
    asks::whole(asks::send(cluster, asks::get(CONFIG_MAPS)?).await?).await;
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}
