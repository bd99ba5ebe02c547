//! One write, seen by many watchers.

use std::time::Instant;

use http_body_util::BodyExt;
use usher_embedded::Storage;

use super::asks::{self, CONFIG_MAPS};
use super::{Options, objects};
use crate::error::{Error, Result};
use crate::report::Row;

const WATCHERS: usize = 1_000;

pub(crate) fn rows(options: &Options) -> Result<Vec<Row>> {
    let runtime = asks::runtime()?;
    let (times, renderings): (Vec<f64>, Vec<f64>) = runtime.block_on(fan_out(options.runs * 5))?.into_iter().unzip();
    Ok(vec![
        Row::new(format!("one write to {WATCHERS} watchers"), "ms", times).best_at_most(10.0),
        Row::new("serialisations per event", "", renderings)
            .best_at_most(1.0)
            .note("one representation in use"),
    ])
}

/// From the write's beginning until the last watcher has its line, in milliseconds; and how often it was serialised.
async fn fan_out(writes: usize) -> Result<Vec<(f64, f64)>> {
    let cluster = asks::cluster(Storage::Memory)?;
    let (seen, mut sightings) = tokio::sync::mpsc::channel::<()>(WATCHERS);
    let mut watchers = tokio::task::JoinSet::new();
    for _ in 0..WATCHERS {
        let watch = asks::get(&format!("{CONFIG_MAPS}?watch=true"))?;
        let mut lines = asks::send(&cluster, watch).await?.into_body();
        let seen = seen.clone();
        watchers.spawn(async move {
            while let Some(Ok(_)) = lines.frame().await {
                if seen.send(()).await.is_err() {
                    return;
                }
            }
        });
    }
    let mut results = Vec::new();
    for n in 0..writes {
        let body = objects::config_map(&format!("map-{n}")).to_string();
        let before = cluster.store_stats().renderings;
        let begun = Instant::now();
        asks::send(&cluster, asks::create(CONFIG_MAPS, body)?).await?;
        for _ in 0..WATCHERS {
            let ended = || Error::Wrong("a watch ended by itself".to_owned());
            sightings.recv().await.ok_or_else(ended)?;
        }
        let took = begun.elapsed().as_secs_f64() * 1e3;
        results.push((took, (cluster.store_stats().renderings - before) as f64));
    }
    Ok(results)
}
