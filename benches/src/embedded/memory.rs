//! How much memory a cluster takes, in a process of its own: memory that was freed stays with a process.

use std::process::Command;

use serde::{Deserialize, Serialize};
use usher_embedded::Storage;

use super::asks::{self, PODS};
use super::{Options, objects};
use crate::error::{Error, Result};
use crate::process;
use crate::report::Row;

const PODS_COUNT: usize = 10_000;
const POD_BYTES: usize = 4_096;
const MIB: f64 = 1_048_576.0;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Weight {
    resident_bytes: f64,
    /// Beyond what the process took before the first Pod.
    added_bytes: f64,
    stored_bytes: f64,
}

pub(crate) fn rows(options: &Options) -> Result<Vec<Row>> {
    let myself = std::env::current_exe().map_err(Error::io("find this program"))?;
    let mut weights = Vec::new();
    for _ in 0..options.runs.min(2) {
        let output = Command::new(&myself)
            .args(["embedded", "--memory-case"])
            .output()
            .map_err(Error::at("start", &myself))?;
        let said = String::from_utf8_lossy(&output.stdout);
        weights.push(serde_json::from_str::<Weight>(&said).map_err(|_| Error::Program {
            program: "the memory's process".to_owned(),
            said: String::from_utf8_lossy(&output.stderr).into_owned(),
        })?);
    }
    let all = |of: fn(&Weight) -> f64| weights.iter().map(of).collect::<Vec<_>>();
    let stored = weights.first().map_or(0.0, |weight| weight.stored_bytes / MIB);
    Ok(vec![
        Row::new(
            format!("resident, {PODS_COUNT} Pods of {} KiB", POD_BYTES / 1024),
            "MiB",
            all(|weight| weight.resident_bytes / MIB),
        )
        .best_at_most(100.0)
        .note(format!("with history; {stored:.1} MiB are stored")),
        Row::new(
            "heap / stored bytes",
            "",
            all(|weight| weight.added_bytes / weight.stored_bytes),
        )
        .best_at_most(2.5),
    ])
}

/// In this process.
pub(crate) fn weigh() -> Result<Weight> {
    asks::runtime()?.block_on(async {
        let cluster = asks::unscheduled(Storage::Memory)?;
        let create = async |n: usize| {
            // A Pod's defaults and managedFields make it larger than it was sent.
            let body = objects::pod(&format!("pod-{n:05}"), &["main"], POD_BYTES - OWN_BYTES).to_string();
            asks::send(&cluster, asks::create(PODS, body)?).await.map(drop)
        };
        create(PODS_COUNT).await?;
        let resident = || process::megabytes(std::process::id(), "RssAnon") * 1e6;
        let before = resident();
        for n in 0..PODS_COUNT {
            create(n).await?;
        }
        let stats = cluster.store_stats();
        Ok(Weight {
            resident_bytes: process::megabytes(std::process::id(), "VmRSS") * 1e6,
            added_bytes: resident() - before,
            stored_bytes: (stats.live_bytes + stats.old_bytes) as f64,
        })
    })
}

/// What the server adds to the Pods of the bench.
const OWN_BYTES: usize = 2_600;
