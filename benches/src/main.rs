//! What Usher does, beside what the API server can do at all. `benches/README.md` tells how to read it.

mod audit;
mod embedded;
mod error;
mod etcd;
mod machine;
mod map;
mod operator;
mod plane;
mod process;
mod report;
mod subnets;
mod view;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use error::{Error, Result};
use report::Report;

#[derive(Debug, Parser)]
#[command(
    name = "usher-benches",
    about = "What Usher does, beside what the API server can do at all"
)]
enum Command {
    /// The subnets spec's section 12, on a control plane of its own.
    Subnets(Box<subnets::Options>),
    /// The embedded spec's section 13: starts, writes, reads, fan-out, memory; beside a real kube-apiserver.
    Embedded(Box<embedded::Options>),
    /// The view without a cluster: bytes and microseconds per Subnet and claim.
    View {
        /// Subnets, and as many claims.
        #[arg(long, default_value_t = 100_000)]
        objects: usize,
    },
    /// The address map alone.
    Map {
        /// Live blocks.
        #[arg(long, default_value_t = 1_000_000)]
        live: usize,
        /// One case, in this process, as JSON.
        #[arg(long, hide = true)]
        case: Option<String>,
    },
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Subnets(options) => {
            let runtime = tokio::runtime::Runtime::new().map_err(Error::io("start the runtime"))?;
            let report = runtime.block_on(async {
                tokio::select! {
                    report = subnets::run(&options) => report,
                    _ = tokio::signal::ctrl_c() => Err(Error::Wrong("interrupted".to_owned())),
                }
            })?;
            finish(&report, options.json.clone(), "bench-subnets.json")
        }
        Command::Embedded(options) if options.memory_case => embedded::memory_case(),
        Command::Embedded(options) => {
            let report = embedded::run(&options)?;
            finish(&report, options.json.clone(), "bench-embedded.json")
        }
        Command::View { objects } => view::weigh(objects),
        Command::Map { live, case: Some(case) } => {
            let figures = map::one(&case, live)?;
            println!("{}", serde_json::to_string(&figures).unwrap_or_default());
            Ok(())
        }
        Command::Map { live, case: None } => {
            for row in map::rows(&map::all(live)?) {
                println!("{:<28} {:>8.3} {:<3} {}", row.measure, row.median, row.unit, row.note);
            }
            Ok(())
        }
    }
}

/// Prints a report, and writes it beside this program unless told where.
fn finish(report: &Report, path: Option<PathBuf>, name: &str) -> Result<()> {
    let myself = std::env::current_exe().map_err(Error::io("find this program"))?;
    let path = path.unwrap_or_else(|| myself.with_file_name(name));
    println!("{}", report.table());
    let text = serde_json::to_string_pretty(report).unwrap_or_default();
    std::fs::write(&path, text + "\n").map_err(Error::at("write", &path))?;
    println!("also in {}", path.display());
    Ok(())
}
