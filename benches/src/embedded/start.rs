//! From nothing to a cluster that answers.

use std::path::Path;
use std::time::Instant;

use usher_embedded::store::Durability;
use usher_embedded::{ListenOptions, Storage};

use super::asks::{self, CONFIG_MAPS};
use super::{Options, objects};
use crate::error::{Error, Result};
use crate::report::Row;

/// Objects on disk in the last row.
const OBJECTS: usize = 10_000;

pub(crate) fn rows(options: &Options) -> Result<Vec<Row>> {
    let runtime = asks::runtime()?;
    let memory = options.repeat(|| runtime.block_on(ready(Storage::Memory, false)))?;
    let first = memory.first().copied().unwrap_or_default();
    let empty = options.repeat(|| {
        let folder = scratch("empty")?;
        let took = runtime.block_on(ready(at(&folder), true));
        let _ = std::fs::remove_dir_all(&folder);
        took
    })?;
    let folder = scratch("full")?;
    let full = runtime.block_on(fill(&folder)).and_then(|()| {
        let full = options.repeat(|| runtime.block_on(ready(at(&folder), true)))?;
        Ok(full)
    });
    let _ = std::fs::remove_dir_all(&folder);
    Ok(vec![
        Row::new("start to ready, memory", "ms", memory)
            .best_at_most(5.0)
            .note(format!(
                "the first of this process, which reads the built-in kinds: {first:.1} ms"
            )),
        Row::new("start to ready, empty folder, listening", "ms", empty).best_at_most(300.0),
        Row::new(
            format!("start to ready, {OBJECTS} objects on disk, listening"),
            "ms",
            full?,
        )
        .best_at_most(1_000.0),
    ])
}

/// Milliseconds until `/readyz` says so.
async fn ready(storage: Storage, listens: bool) -> Result<f64> {
    let begun = Instant::now();
    let cluster = asks::whole_cluster(storage)?;
    if listens {
        let listening = cluster.listen(ListenOptions::default()).await;
        listening.map_err(|why| Error::api("listen", why))?;
    }
    asks::send(&cluster, asks::get("/readyz")?).await?;
    let took = begun.elapsed().as_secs_f64() * 1e3;
    cluster.stop().await;
    Ok(took)
}

async fn fill(folder: &Path) -> Result<()> {
    let cluster = asks::cluster(at(folder))?;
    asks::rate(64, OBJECTS, |_, numbers| {
        let cluster = cluster.clone();
        async move {
            for n in numbers {
                let body = objects::config_map(&format!("map-{n:05}")).to_string();
                asks::send(&cluster, asks::create(CONFIG_MAPS, body)?).await?;
            }
            Ok(())
        }
    })
    .await?;
    cluster.stop().await;
    Ok(())
}

fn at(folder: &Path) -> Storage {
    Storage::Folder {
        path: folder.to_owned(),
        durability: Durability::Fsync,
    }
}

/// A folder of this run's own.
pub(super) fn scratch(name: &str) -> Result<std::path::PathBuf> {
    let folder = std::env::temp_dir().join(format!("usher-bench-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).map_err(Error::at("create", &folder))?;
    Ok(folder)
}
