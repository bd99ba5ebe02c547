//! `cargo xtask setup`: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and promtool, ready to run;
//! with `--kubelet` also kubelet and, from Debian, what it runs containers with ([`debian`]). And the servers of Valkey
//! clusters ([`valkey`]).
//!
//! A fitting program on PATH is taken as it is; the others are built from the Go modules pinned in `xtask/k8s` and
//! `xtask/promtool`. Results live in `CACHE/tools/KEY/NAME`, where KEY covers versions, checksums and flags ([`pins`]). One
//! build at a time, under a lock; a program appears in its folder by a rename, whole or not at all. `CACHE/tools/KEY/bin` of
//! the servers links to each program wherever it is, for people and tests that want one folder for all of them.

mod build;
pub(crate) mod debian;
mod go;
mod pins;
pub(crate) mod valkey;
mod version;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pins::Pins;
pub(crate) use pins::{Program, Set};
pub(crate) use version::Version;

use crate::error::{Error, Result};
use crate::progress::{self, Progress};
use crate::{interrupt, paths};

/// The programs, each with where it comes from.
#[derive(Debug)]
pub(crate) struct Tools {
    /// A folder that has all of them by name.
    pub(crate) bin: PathBuf,
    found: Vec<Tool>,
}

#[derive(Debug, Clone)]
pub(crate) struct Tool {
    pub(crate) program: Program,
    pub(crate) path: PathBuf,
    pub(crate) version: Version,
    origin: Origin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Path,
    Built,
}

impl Tools {
    pub(crate) fn get(&self, program: Program) -> Result<&Tool> {
        let tool = self.found.iter().find(|tool| tool.program == program);
        tool.ok_or_else(|| Error::Machine(format!("{} is missing; run `cargo xtask setup`", program.name())))
    }

    pub(crate) fn describe(&self) {
        for tool in &self.found {
            let origin = match tool.origin {
                Origin::Path => "installed",
                Origin::Built => "built",
            };
            progress::say(&format!(
                "{:<24} {:<8} {origin:<10} {}",
                tool.program.name(),
                tool.version,
                tool.path.display()
            ));
        }
        progress::say(&format!("all in {}", self.bin.display()));
    }
}

/// Gets what is missing of these sets; a fraction of a second when nothing is. Whoever only wants servers need not wait for
/// the rest.
pub(crate) fn ensure(sets: &[Set]) -> Result<Tools> {
    let tools = paths::cache()?.join("tools");
    let bin = tools.join(Pins::read(Set::Kubernetes)?.key).join("bin");
    paths::create_folder(&bin)?;
    let mut found = Vec::new();
    for set in sets {
        found.extend(ensure_set(*set, &tools)?);
    }
    for tool in &found {
        link(&tool.path, &bin.join(tool.program.name()))?;
    }
    Ok(Tools { bin, found })
}

fn ensure_set(set: Set, tools: &Path) -> Result<Vec<Tool>> {
    let pins = Pins::read(set)?;
    let home = tools.join(&pins.key);
    paths::create_folder(&home)?;
    let programs = set.programs().iter().copied();
    let installed: Vec<Tool> = programs
        .clone()
        .filter_map(|program| installed(program, tools))
        .collect();
    let wanted: Vec<Program> = programs
        .filter(|&program| !installed.iter().any(|tool| tool.program == program))
        .collect();
    let missing = || {
        wanted
            .iter()
            .copied()
            .filter(|program| !paths::is_program(&home.join(program.name())))
    };
    if missing().next().is_some() {
        let _lock = lock(&tools.join("lock"))?;
        // Whoever held the lock may have built them.
        let missing: Vec<Program> = missing().collect();
        if !missing.is_empty() {
            build::build(&pins, &missing, tools, &home)?;
        }
    }
    let built = wanted.into_iter().map(|program| Tool {
        program,
        path: home.join(program.name()),
        version: pins.of(program),
        origin: Origin::Built,
    });
    Ok(installed.into_iter().chain(built).collect())
}

/// The program on PATH, if it is new enough. One of ours (tests put our `bin` on PATH) is not an installed one.
fn installed(program: Program, tools: &Path) -> Option<Tool> {
    let path = paths::on_path(program.name()).filter(|path| !path.starts_with(tools))?;
    let version = version::of_program(&path, program.version_question())?;
    version.fits(program.oldest()).then_some(Tool {
        program,
        path,
        version,
        origin: Origin::Path,
    })
}

fn lock(path: &Path) -> Result<File> {
    let file = File::create(path).map_err(Error::at("open", path))?;
    if file.try_lock().is_ok() {
        return Ok(file);
    }
    let mut progress = Progress::start("another run is building; waiting for it");
    loop {
        interrupt::pause(Duration::from_millis(200))?;
        match file.try_lock() {
            Ok(()) => {
                progress.finish("done");
                return Ok(file);
            }
            Err(std::fs::TryLockError::WouldBlock) => progress.tick(),
            Err(std::fs::TryLockError::Error(error)) => return Err(Error::at("lock", path)(error)),
        }
    }
}

/// Points `link` to `target`, replacing what was there in one step.
fn link(target: &Path, link: &Path) -> Result<()> {
    if std::fs::read_link(link).is_ok_and(|now| now == target) {
        return Ok(());
    }
    let partial = link.with_extension(format!("partial-{}", std::process::id()));
    paths::remove(&partial)?;
    std::os::unix::fs::symlink(target, &partial).map_err(Error::at("create", &partial))?;
    std::fs::rename(&partial, link).map_err(Error::at("create", link))
}

pub(crate) fn command(kubelet: bool) -> Result<()> {
    let mut sets = Set::TESTS.to_vec();
    if kubelet {
        sets.push(Set::Node);
        debian::ensure()?;
    }
    valkey::ensure()?;
    let tools = ensure(&sets)?;
    progress::line("the programs for the tests are ready");
    tools.describe();
    Ok(())
}
