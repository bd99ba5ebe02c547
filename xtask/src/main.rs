//! Developer commands of Usher: `cargo xtask setup`, `test`, `bench`, `conformance`, `generate`, `definitions`, `k8s`.
//!
//! Linux only: processes are told apart by /proc. No async, no Kubernetes client; this compiles in seconds, since every
//! other command waits for it.

mod bench;
mod conformance;
mod definitions;
mod error;
mod failures;
mod generate;
mod interrupt;
mod k8s;
mod paths;
mod process;
mod progress;
mod setup;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use error::{Error, Result};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Developer commands of Usher", version)]
enum Xtask {
    /// Get the servers that the tests run against: installed ones that fit, else built from source.
    Setup {
        /// Also what runs pods: kubelet, and from Debian containerd, runc, CNI plugins and busybox.
        #[arg(long)]
        kubelet: bool,
    },
    /// Check, build and test everything, as CI does.
    Test(test::Test),
    /// Measure Usher beside what the API server can do at all.
    Bench(bench::Bench),
    /// Hold the embedded server against what a real one answers.
    Conformance(conformance::Conformance),
    /// Write the files that come from code: CRDs, RBAC, reference pages.
    Generate {
        /// Only tell whether they are up to date.
        #[arg(long)]
        check: bool,
    },
    /// Write the facts about built-in kinds that the embedded cluster decodes by, from the pinned Kubernetes release.
    Definitions,
    /// A real Kubernetes control plane on this machine.
    #[command(subcommand)]
    K8s(k8s::K8s),
}

fn main() -> ExitCode {
    match run(Xtask::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress::note(&format!("error: {error}"));
            // 130: what shells give a command that Ctrl-C ended.
            ExitCode::from(if error.is_interrupt() { 130 } else { 1 })
        }
    }
}

fn run(command: Xtask) -> Result<()> {
    interrupt::install()?;
    // Asked for at once: a build may replace the file while we run, and the kernel then calls it deleted.
    let xtask: PathBuf = std::env::current_exe().map_err(Error::io("find this program"))?;
    match command {
        Xtask::Setup { kubelet } => setup::command(kubelet),
        Xtask::Test(test) => test.run(&xtask),
        Xtask::Bench(bench) => bench.run(),
        Xtask::Conformance(conformance) => conformance.run(&xtask),
        Xtask::Generate { check } => {
            let mode = if check {
                generate::Mode::Check
            } else {
                generate::Mode::Write
            };
            generate::command(&xtask, mode)
        }
        Xtask::Definitions => definitions::command(),
        Xtask::K8s(k8s) => k8s.run(),
    }
}
