//! A small process beside `cargo xtask test` that outlives it: when the test command is gone, however it went (`kill -9`
//! leaves it no last word), the guard ends the stage it was running and takes the control plane down.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::control_plane;
use super::folder::Folder;
use crate::error::{Error, Result};
use crate::process::ProcessId;
use crate::{paths, progress};

const STAGE: &str = "stage.json";
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Watched by a guard as long as it lives; dropped, it takes the control plane down itself.
#[derive(Debug)]
pub(crate) struct Guarded {
    pub(crate) folder: Folder,
    guard: Child,
}

impl Guarded {
    pub(crate) fn start(xtask: &Path, folder: Folder) -> Result<Self> {
        let me = i32::try_from(std::process::id()).ok().and_then(ProcessId::of);
        let me = me.ok_or_else(|| Error::Machine("cannot read /proc/self/stat; xtask runs on Linux only".into()))?;
        let guard = Command::new(xtask)
            .args([
                "k8s",
                "guard",
                "--pid",
                &me.pid.to_string(),
                "--start-ticks",
                &me.start_ticks.to_string(),
            ])
            .arg("--dir")
            .arg(folder.path())
            // Nothing that would keep a pipe of ours open.
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(Error::io("start the guard"))?;
        Ok(Self { folder, guard })
    }

    /// Tells the guard which process group to end.
    pub(crate) fn entrust(&self, stage: ProcessId) -> Result<()> {
        let text = serde_json::to_string(&stage).map_err(|error| Error::io("write stage.json")(error.into()))?;
        paths::write_private(&self.folder.file(STAGE), &text)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        match control_plane::down(&self.folder) {
            // The folder is gone and the guard with it, at its next look; this only makes it sooner.
            Ok(_) => {
                let _ = self.guard.kill();
                let _ = self.guard.wait();
            }
            Err(error) => progress::note(&format!(
                "cannot take the control plane down: {error}; its guard tries again"
            )),
        }
    }
}

/// The guard's own life.
pub(crate) fn watch(parent: ProcessId, folder: &Folder) -> Result<()> {
    while parent.is_alive() {
        if !folder.is_ours() {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let stage = std::fs::read_to_string(folder.file(STAGE)).ok();
    if let Some(stage) = stage.and_then(|text| serde_json::from_str::<ProcessId>(&text).ok()) {
        stage.kill_group();
    }
    control_plane::down(folder).map(drop)
}
