//! What a kubelet runs containers with, as Debian packages it: containerd, runc, CNI plugins and a static busybox.
//! Unpacked below the cache folder by apt-get and dpkg; nothing of it is installed into the system.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::version::{self, Version};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::{paths, process};

const PACKAGES: [&str; 4] = ["busybox-static", "containerd", "containernetworking-plugins", "runc"];

/// Where the packages are unpacked.
#[derive(Debug, Clone)]
pub(crate) struct Packages {
    root: PathBuf,
}

impl Packages {
    pub(crate) fn containerd(&self) -> Result<(PathBuf, Version)> {
        let program = self.root.join("usr/bin/containerd");
        let version = version::of_program(&program, &["--version"]);
        version.map(|version| (program, version)).ok_or_else(|| {
            Error::Machine("Debian's containerd does not run on this machine; is it another Debian release?".into())
        })
    }

    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// For PATH: containerd looks there for its shim, which looks there for runc.
    pub(crate) fn program_folders(&self) -> [PathBuf; 2] {
        ["usr/bin", "usr/sbin"].map(|folder| self.root.join(folder))
    }
}

/// Gets them where they are not there yet.
pub(crate) fn ensure() -> Result<Packages> {
    let tools = paths::cache()?.join("tools");
    let root = tools.join(format!("debian-{}", PACKAGES.join("-")));
    if !root.is_dir() {
        paths::create_folder(&tools)?;
        let _lock = super::lock(&tools.join("lock"))?;
        // Whoever held the lock may have got them.
        if !root.is_dir() {
            fetch(&tools, &root)?;
        }
    }
    Ok(Packages { root })
}

fn fetch(tools: &Path, root: &Path) -> Result<()> {
    let mut progress = Progress::start("fetching containerd, runc, CNI plugins and busybox from Debian");
    let partial = tools.join("debian.partial");
    paths::remove(&partial)?;
    let unpacked = partial.join("root");
    paths::create_folder(&unpacked)?;
    run(Command::new("apt-get")
        .args(["download", "--quiet"])
        .args(PACKAGES)
        .current_dir(&partial))?;
    progress.tick();
    for entry in partial.read_dir().map_err(Error::at("read", &partial))?.flatten() {
        let file = entry.path();
        if file.extension().is_some_and(|ending| ending == "deb") {
            run(Command::new("dpkg").arg("-x").arg(&file).arg(&unpacked))?;
        }
    }
    std::fs::rename(&unpacked, root).map_err(Error::at("complete", root))?;
    progress.finish("done");
    paths::remove(&partial)
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    if paths::on_path(&program).is_none() {
        return Err(Error::Machine(format!(
            "pods run by Debian's containerd and runc, and there is no {program} here to get them with"
        )));
    }
    match process::ask(command) {
        Some(_) => Ok(()),
        None => Err(Error::Machine(format!(
            "`{program}` could not get {}; does `apt-get download runc` work on this machine?",
            PACKAGES.join(", ")
        ))),
    }
}
