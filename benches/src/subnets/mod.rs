//! The measures of the subnets spec's section 12, in one run on one control plane: what the server can do at all, then
//! what the operator makes of it. Ratios compare runs that stand next to each other, so that a machine that others use
//! as well spoils both alike.

mod ceiling;
mod drain;
mod latency;
pub(crate) mod objects;
mod start;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::error::{Error, Result};
use crate::plane::{Controllers, Plane};
use crate::report::{Report, Row, median};
use crate::world::World;
use crate::{machine, map};
use ceiling::{Ceiling, Watched};
use drain::Drain;

/// etcd's default limit, 2 GiB.
const QUOTA_BYTES: f64 = (2_u64 << 30) as f64;
/// Section 12's budget for writes per bound claim.
const WRITES: f64 = 3.02;

#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Section 12's own numbers: 10,000 claims, 5 runs, 300,000 + 300,000 objects. About an hour on two cores.
    #[arg(long)]
    full: bool,
    /// Claims of T1 and T2 [default: 2000; 10000 with --full]
    #[arg(long)]
    claims: Option<usize>,
    /// Runs that medians are made of [default: 3; 5 with --full]
    #[arg(long)]
    runs: Option<usize>,
    /// Pools of the second T2.
    #[arg(long, default_value_t = 100)]
    pools: usize,
    /// Subnets already in the pool, for T3 [default: 10000,100000]
    #[arg(long, value_delimiter = ',')]
    existing: Option<Vec<usize>>,
    /// Subnets, and as many claims, for start and memory [default: 30000; 300000 with --full]
    #[arg(long)]
    objects: Option<usize>,
    /// Live blocks in the map.
    #[arg(long, default_value_t = 1_000_000)]
    live: usize,
    /// Seconds of each rate of T4 [default: 6; 30 with --full]
    #[arg(long)]
    seconds: Option<u64>,
    /// Only these parts.
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Option<Vec<Part>>,
    /// etcd syncs every write to disk.
    #[arg(long)]
    durable: bool,
    /// The usher binary [default: beside this program]
    #[arg(long)]
    usher: Option<PathBuf>,
    /// The xtask binary, which starts the control plane [default: beside this program]
    #[arg(long, env = "USHER_XTASK")]
    xtask: Option<PathBuf>,
    /// Folder for the control plane and the logs; must not exist [default: a temporary one]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Where the report goes as JSON [default: bench-subnets.json beside this program]
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Creates by 64 connections, and one write alone (T0).
    Raw,
    /// T1 and T2, and counts.
    Drain,
    /// T3.
    Flat,
    /// T4.
    Latency,
    /// Writes per release.
    Release,
    /// Start and memory.
    Start,
    /// The address map.
    Map,
}

/// The options, with what stands for those not given.
#[derive(Debug)]
struct Numbers {
    claims: usize,
    runs: usize,
    existing: Vec<usize>,
    objects: usize,
    time: Duration,
}

impl Options {
    fn numbers(&self) -> Numbers {
        let either = |given: Option<usize>, usual, full| given.unwrap_or(if self.full { full } else { usual });
        Numbers {
            claims: either(self.claims, 2_000, 10_000).max(1),
            runs: either(self.runs, 3, 5).max(1),
            existing: self.existing.clone().unwrap_or_else(|| vec![10_000, 100_000]),
            objects: either(self.objects, 30_000, 300_000),
            time: Duration::from_secs(self.seconds.unwrap_or(if self.full { 30 } else { 6 }).max(1)),
        }
    }

    fn wants(&self, part: Part) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&part))
    }

    fn beside(&self, given: &Option<PathBuf>, name: &str) -> Result<PathBuf> {
        let myself = std::env::current_exe().map_err(Error::io("find this program"))?;
        let path = given.clone().unwrap_or_else(|| myself.with_file_name(name));
        if path.exists() {
            return Ok(path);
        }
        Err(Error::Wrong(format!(
            "{} does not exist: build it, or say where it is with --{name}",
            path.display()
        )))
    }
}

/// Runs what is asked for and returns the report.
pub(crate) async fn run(options: &Options) -> Result<Report> {
    let numbers = options.numbers();
    let usher = options.beside(&options.usher, "usher")?;
    let load = machine::load_average();
    let mut rows = Vec::new();
    let mut details = serde_json::Map::new();
    let mut versions = String::new();
    if options
        .only
        .as_ref()
        .is_none_or(|only| only.iter().any(|part| *part != Part::Map))
    {
        let xtask = options.beside(&options.xtask, "xtask")?;
        let dir = options
            .dir
            .clone()
            .unwrap_or_else(|| std::env::temp_dir().join(format!("usher-bench-{}", std::process::id())));
        std::fs::create_dir(&dir).map_err(Error::at("create", &dir))?;
        let plane = Plane::start(&xtask, &dir.join("plane"), options.durable, Controllers::Killed)?;
        let shown = plane.components().iter().map(|c| format!("{} {}", c.name, c.version));
        versions = shown.collect::<Vec<_>>().join(", ");
        let world = World::connect(plane, &usher).await?;
        let mut bench = Bench {
            world,
            options,
            numbers,
            rows: Vec::new(),
            details: serde_json::Map::new(),
        };
        bench.run().await?;
        let Bench {
            world,
            rows: measured,
            details: found,
            ..
        } = bench;
        (rows, details) = (measured, found);
        // The servers are stopped by what their folder says of them: it goes last.
        drop(world);
        if options.dir.is_none() {
            let _ = std::fs::remove_dir_all(&dir);
        }
    }
    if options.wants(Part::Map) {
        say("map");
        let figures = map::all(options.live)?;
        rows.extend(map::rows(&figures));
        details.insert("map".to_owned(), json!(figures));
    }
    let mut setting = machine::setting(Some(&usher), load);
    let numbers = options.numbers();
    setting.insert("servers", versions);
    setting.insert(
        "flags",
        format!(
            "claims {}, runs {}, pools 1 and {}, existing {:?}, objects {} + {}, etcd {}, 64 in flight, HTTP/1.1, no controller manager",
            numbers.claims,
            numbers.runs,
            options.pools,
            numbers.existing,
            numbers.objects,
            numbers.objects,
            if options.durable { "durable" } else { "without fsync" },
        ),
    );
    Ok(Report {
        setting,
        rows,
        details: details.into(),
    })
}

/// What is under way, for whoever waits.
fn say(what: impl std::fmt::Display) {
    eprintln!("[{}] {what}", jiff::Timestamp::now().strftime("%H:%M:%S"));
}

struct Bench<'o> {
    world: World,
    options: &'o Options,
    numbers: Numbers,
    rows: Vec<Row>,
    details: serde_json::Map<String, serde_json::Value>,
}

impl Bench<'_> {
    async fn run(&mut self) -> Result<()> {
        let mut idle = 0.0;
        if self.options.wants(Part::Raw) || self.options.wants(Part::Latency) {
            idle = self.raw().await?;
        }
        let mut rate = 0.0;
        if self.options.wants(Part::Drain) || self.options.wants(Part::Flat) || self.options.wants(Part::Latency) {
            rate = self.drains().await?;
        }
        if self.options.wants(Part::Latency) {
            self.latency(rate, idle).await?;
        }
        if self.options.wants(Part::Release) {
            self.release().await?;
        }
        if self.options.wants(Part::Start) {
            self.start().await?;
        }
        Ok(())
    }

    fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    async fn raw(&mut self) -> Result<f64> {
        say("T0: raw creates");
        let mut rates = Vec::new();
        for _ in 0..self.numbers.runs {
            rates.push(ceiling::raw(&self.world, self.numbers.claims).await?);
        }
        self.row(Row::new("T0 raw creates", "/s", rates));
        let idle = ceiling::idle_write(&self.world, 200).await?;
        self.row(Row::new("one write, idle", "ms", vec![idle]).note("median of 200"));
        Ok(idle)
    }

    /// T1, T2 and T3, each run beside the others. Returns T2's rate.
    async fn drains(&mut self) -> Result<f64> {
        let Numbers { claims, runs, .. } = self.numbers;
        let many = self.options.pools;
        let (mut t1, mut watched) = (Vec::<Ceiling>::new(), Vec::<Ceiling>::new());
        let (mut t2, mut spread) = (Vec::<Drain>::new(), Vec::<Drain>::new());
        let flat = self.options.wants(Part::Flat);
        let existing = if flat {
            self.numbers.existing.clone()
        } else {
            Vec::new()
        };
        let mut fuller: Vec<Vec<Drain>> = existing.iter().map(|_| Vec::new()).collect();
        for run in 1..=runs {
            say(format!("run {run} of {runs}: T1"));
            t1.push(ceiling::ceiling(&self.world, claims, Watched::No).await?);
            say("T1, and somebody watches");
            watched.push(ceiling::ceiling(&self.world, claims, Watched::Yes).await?);
            say("T2, one pool");
            t2.push(drain::drain(&self.world, claims, 1, 0).await?);
            say(format!("T2, {many} pools"));
            spread.push(drain::drain(&self.world, claims, many, 0).await?);
            for (existing, drains) in existing.iter().zip(&mut fuller) {
                say(format!("T3, {existing} Subnets in the pool"));
                drains.push(drain::drain(&self.world, claims, 1, *existing).await?);
            }
        }
        let rates = |drains: &[Drain]| drains.iter().map(|d| d.rate).collect::<Vec<_>>();
        let ceilings: Vec<f64> = t1.iter().map(|c| c.rate).collect();
        let beside = |drains: &[Drain], ceilings: &[Ceiling]| -> Vec<f64> {
            drains.iter().zip(ceilings).map(|(d, c)| d.rate / c.rate).collect()
        };
        let over = |drains: &[Drain]| beside(drains, &t1);
        self.row(Row::new("T1 ceiling", "claims/s", ceilings));
        let seen: Vec<f64> = watched.iter().map(|c| c.rate).collect();
        self.row(Row::new("T1, and somebody watches", "claims/s", seen));
        let note = "what an operator, which must watch, could reach at most";
        self.row(Row::new("T2 / T1 watched, 1 pool", "", beside(&t2, &watched)).note(note));
        self.row(Row::new(format!("T2 / T1 watched, {many} pools"), "", beside(&spread, &watched)).note(note));
        self.row(Row::new("T2 drain, 1 pool", "claims/s", rates(&t2)));
        self.row(Row::new("T2 / T1, 1 pool", "", over(&t2)).at_least(0.85));
        self.row(Row::new(format!("T2 drain, {many} pools"), "claims/s", rates(&spread)));
        self.row(Row::new(format!("T2 / T1, {many} pools"), "", over(&spread)).at_least(0.90));
        for (existing, drains) in existing.iter().zip(&fuller) {
            let flatness = drains.iter().zip(&t2).map(|(d, empty)| d.rate / empty.rate).collect();
            self.row(Row::new(format!("T3 / T2, {existing} Subnets there"), "", flatness).at_least(0.90));
        }
        self.counts(&t1, &watched, &t2, &spread);
        self.details.insert(
            "t1".to_owned(),
            json!(
                t1.iter()
                    .map(|c| json!({"rate": c.rate, "cpu": c.cpu}))
                    .collect::<Vec<_>>()
            ),
        );
        self.details.insert("t2".to_owned(), json!(t2));
        self.details.insert("t2Pools".to_owned(), json!(spread));
        self.details.insert("t3".to_owned(), json!(fuller));
        Ok(median(&rates(&t2)))
    }

    /// What the drains cost: requests, processor time, bytes.
    fn counts(&mut self, t1: &[Ceiling], watched: &[Ceiling], t2: &[Drain], spread: &[Drain]) {
        let claims = self.numbers.claims as f64;
        let of = |drains: &[Drain], what: fn(&Drain) -> f64| drains.iter().map(what).collect::<Vec<_>>();
        self.row(Row::new("writes per bound claim, 1 pool", "", of(t2, |d| d.writes)).at_most(WRITES));
        let name = format!("writes per bound claim, {} pools", self.options.pools);
        self.row(Row::new(name, "", of(spread, |d| d.writes)).at_most(WRITES));
        // At most one per second, two to begin and end with.
        let excess = |drains: &[Drain]| of(drains, |d| d.pool_status - d.seconds);
        self.row(Row::new("pool status writes beyond 1/s, 1 pool", "", excess(t2)).at_most(2.0));
        let name = format!("pool status writes beyond 1/s, {} pools", self.options.pools);
        self.row(Row::new(name, "", excess(spread)).at_most(2.0));
        let all: Vec<f64> = t2.iter().chain(spread).map(|d| d.reads as f64).collect();
        self.row(Row::new("reads after start", "", all).at_most(0.0));
        let cpu = |all: &[(String, f64)], name: &str| {
            let used = all
                .iter()
                .find(|(used, _)| used == name)
                .map_or(0.0, |(_, seconds)| *seconds);
            used / claims * 1e3
        };
        for server in ["kube-apiserver", "etcd"] {
            let name = format!("CPU of {server} per claim, T1");
            self.row(Row::new(name, "ms", t1.iter().map(|c| cpu(&c.cpu, server)).collect()));
            let name = format!("CPU of {server} per claim, T1 watched");
            self.row(Row::new(
                name,
                "ms",
                watched.iter().map(|c| cpu(&c.cpu, server)).collect(),
            ));
            let name = format!("CPU of {server} per claim, T2");
            self.row(Row::new(name, "ms", t2.iter().map(|d| cpu(&d.cpu, server)).collect()));
        }
        self.row(Row::new(
            "CPU of the dumb writer per claim, T1",
            "ms",
            t1.iter().map(|c| cpu(&c.cpu, "bench")).collect(),
        ));
        self.row(Row::new(
            "CPU of usher per claim, T2",
            "ms",
            t2.iter().map(|d| cpu(&d.cpu, "usher")).collect(),
        ));
        // The API server compacts every five minutes, which only makes it less: the most is the truth.
        let most = t2.iter().map(|d| d.bytes).fold(0.0, f64::max);
        let without = t1.iter().map(|c| c.bytes).fold(0.0, f64::max);
        let note = format!("history included; T1's: {without:.0}");
        self.row(Row::new("etcd per claim", "bytes", vec![most]).note(note));
        self.row(Row::new("claims that fit 2 GiB", "", vec![QUOTA_BYTES / most.max(1.0)]));
    }

    async fn latency(&mut self, rate: f64, idle: f64) -> Result<()> {
        let mut all = Vec::new();
        for percent in [25_u32, 50, 75] {
            say(format!("T4 at {percent} %"));
            let latency = latency::latency(&self.world, rate * f64::from(percent) / 100.0, self.numbers.time).await?;
            let name = |p: &str| format!("T4 {p} at {percent} %");
            let times = |value: f64| format!("{:.1} x one idle write", value / idle);
            let p50 = Row::new(name("p50"), "ms", vec![latency.p50]).note(times(latency.p50));
            let p99 = Row::new(name("p99"), "ms", vec![latency.p99]).note(times(latency.p99));
            let p95 = Row::new(name("p95"), "ms", vec![latency.p95]).at_most(500.0);
            self.row(if percent == 50 { p50.at_most(8.0 * idle) } else { p50 });
            self.row(p95);
            self.row(if percent == 50 { p99.at_most(40.0 * idle) } else { p99 });
            all.push(latency);
        }
        self.details.insert("t4".to_owned(), json!(all));
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        say("releases");
        let released = drain::release(&self.world, self.numbers.claims).await?;
        self.row(Row::new("writes per release", "", vec![released.writes]).at_most(2.0));
        self.row(Row::new("reads during releases", "", vec![released.reads as f64]).at_most(0.0));
        self.row(Row::new("releases", "/s", vec![released.rate]));
        self.details.insert("release".to_owned(), json!(released));
        Ok(())
    }

    async fn start(&mut self) -> Result<()> {
        let objects = self.numbers.objects;
        say(format!("start with {objects} + {objects} objects"));
        let crowd = start::Crowd::gather(&self.world, objects).await?;
        let mut starts = Vec::new();
        // Three are enough: a start has hardly any luck in it.
        for _ in 0..self.numbers.runs.min(3) {
            starts.push(crowd.start().await?);
        }
        crowd.leave().await?;
        let of = |what: fn(&start::Start) -> f64| starts.iter().map(what).collect::<Vec<_>>();
        let rows = [
            Row::new("bare lists, pages of 500", "s", of(|s| s.pages)),
            Row::new("bare lists, streaming", "s", of(|s| s.streams)),
            Row::new("start until ready", "s", of(|s| s.ready)),
            Row::new("start / bare lists", "", of(|s| s.ready / s.pages.min(s.streams)))
                .at_most(1.2)
                .note("the faster way of listing"),
            Row::new("memory", "MB", of(|s| s.memory))
                .at_most(400.0)
                .note(format!("at {objects} + {objects} objects")),
            Row::new("memory, peak", "MB", of(|s| s.peak)),
            Row::new(
                "memory per Subnet and claim",
                "bytes",
                of(|s| s.memory).iter().map(|mb| mb * 1e6 / objects as f64).collect(),
            ),
        ];
        self.rows.extend(rows);
        self.details.insert("start".to_owned(), json!(starts));
        Ok(())
    }
}
