//! The measures of the embedded spec's section 13: starts, writes, reads, fan-out, memory, apply, pods; and creates over
//! HTTP and a thousand pods beside the real control plane's, in the same run.
//!
//! Every measure is repeated. The table shows the median, and the target is held against the best run: on a machine that
//! others use, too, the best is nearest to what the code costs.

mod asks;
mod fan_out;
mod http;
mod memory;
mod objects;
mod pods;
mod reads;
mod start;
mod writes;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::error::{Error, Result};
use crate::machine;
use crate::plane::{Controllers, Plane};
use crate::report::{Report, Row};

#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Runs of each measure.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Requests of each run.
    #[arg(long, default_value_t = 20_000)]
    requests: usize,
    /// Only these parts.
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Option<Vec<Part>>,
    /// The xtask binary, which starts the real control plane [default: beside this program]
    #[arg(long, env = "USHER_XTASK")]
    xtask: Option<PathBuf>,
    /// Where the report goes as JSON [default: bench-embedded.json beside this program]
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Measures memory, in this process, as JSON.
    #[arg(long, hide = true)]
    pub(crate) memory_case: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// To ready: in memory, on disk, with objects there.
    Start,
    /// Creates and applies in process.
    Write,
    /// Creates over HTTP.
    Http,
    /// Creates on disk, each one synced.
    Disk,
    /// Gets and lists.
    Read,
    /// One write, many watchers.
    Watch,
    /// Resident, beside what is stored.
    Memory,
    /// Pods as processes.
    Pods,
    /// Creates over HTTP, beside a real kube-apiserver.
    Beside,
    /// A Deployment of a thousand pods, beside the real control plane.
    Rollout,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&part))
    }

    /// A program that is built beside this one; xtask may be elsewhere.
    fn beside(&self, name: &str) -> Result<PathBuf> {
        let myself = std::env::current_exe().map_err(Error::io("find this program"))?;
        let said = self.xtask.clone().filter(|_| name == "xtask");
        let path = said.unwrap_or_else(|| myself.with_file_name(name));
        if path.exists() {
            return Ok(path);
        }
        Err(Error::Wrong(format!(
            "{} does not exist: build it (`cargo xtask bench` does), or say where xtask is with --xtask",
            path.display()
        )))
    }

    /// Every run of a measure.
    fn repeat<T>(&self, measure: impl FnMut() -> Result<T>) -> Result<Vec<T>> {
        std::iter::repeat_with(measure).take(self.runs.max(1)).collect()
    }
}

/// What goes into memory for the row of that name; see [`memory`].
pub(crate) fn memory_case() -> Result<()> {
    println!("{}", json!(memory::weigh()?));
    Ok(())
}

/// Runs what is asked for and returns the report.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let load = machine::load_average();
    let mut rows = Vec::new();
    let mut servers = String::new();
    if options.wants(Part::Start) {
        say("start to ready");
        rows.extend(start::rows(options)?);
    }
    if options.wants(Part::Write) {
        say("writes in process");
        rows.extend(writes::in_process(options)?);
    }
    if options.wants(Part::Http) {
        say("creates over HTTP");
        let rates = options.repeat(|| http::embedded(options.requests))?;
        let name = format!("create 2 KiB, HTTP, {} connections", http::CONNECTIONS);
        rows.push(asks::row(name, &rates).best_at_least(5_000.0));
    }
    if options.wants(Part::Disk) {
        say("creates on disk");
        rows.extend(writes::on_disk(options)?);
    }
    if options.wants(Part::Read) {
        say("reads in process");
        rows.extend(reads::rows(options)?);
    }
    if options.wants(Part::Watch) {
        say("one write to 1,000 watchers");
        rows.extend(fan_out::rows(options)?);
    }
    if options.wants(Part::Memory) {
        say("memory");
        rows.extend(memory::rows(options)?);
    }
    if options.wants(Part::Pods) {
        say("pods as processes");
        let program = options.beside("usher")?;
        rows.extend(pods::processes(options, &program)?);
    }
    if options.wants(Part::Beside) {
        say("creates beside the real kube-apiserver");
        rows.extend(with_plane(options, Controllers::Killed, &mut servers, |plane| {
            http::beside(options, plane)
        })?);
    }
    if options.wants(Part::Rollout) {
        say("a Deployment of 1,000 pods beside the real control plane");
        rows.extend(with_plane(options, Controllers::Run, &mut servers, |plane| {
            pods::beside(options, plane)
        })?);
    }
    let mut setting = machine::setting(None, load);
    setting.insert("servers", servers);
    setting.insert(
        "flags",
        format!(
            "runs {}, requests {}; targets are held against the best run",
            options.runs, options.requests
        ),
    );
    Ok(Report {
        setting,
        rows,
        details: serde_json::Value::Null,
    })
}

/// Measures beside a real control plane of this run's own.
fn with_plane(
    options: &Options,
    controllers: Controllers,
    servers: &mut String,
    measure: impl FnOnce(&Plane) -> Result<Vec<Row>>,
) -> Result<Vec<Row>> {
    let dir = std::env::temp_dir().join(format!("usher-bench-{}", std::process::id()));
    std::fs::create_dir(&dir).map_err(Error::at("create", &dir))?;
    let plane = Plane::start(&options.beside("xtask")?, &dir.join("plane"), false, controllers)?;
    let shown = plane.components().iter().map(|c| format!("{} {}", c.name, c.version));
    *servers = shown.collect::<Vec<_>>().join(", ");
    let rows = measure(&plane);
    // The servers are stopped by what their folder says of them: it goes last.
    drop(plane);
    let _ = std::fs::remove_dir_all(&dir);
    rows
}

/// What is under way, for whoever waits.
fn say(what: impl std::fmt::Display) {
    eprintln!("[{}] {what}", jiff::Timestamp::now().strftime("%H:%M:%S"));
}
