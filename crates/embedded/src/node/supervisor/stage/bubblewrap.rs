//! Namespaces made by `bwrap`, for systems that let it make a user namespace and not us (spec 11.4).
//!
//! It makes the namespaces and nothing else: files, ids and the rest are the last stage's work as at every level. What
//! differs is that the user namespace has the wanted uid from the start, because we may not make a second one inside;
//! the last stage has its powers by inheritance, and gives all of them up.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{DEFAULT_PATH, Failure, RUN};
use crate::node::supervisor::control::Report;

/// `bwrap` has done its part within milliseconds, or never will.
const LIMIT: Duration = Duration::from_secs(10);

/// Where it is, if it is anywhere. A supervisor has no environment, so the usual places count.
pub(in crate::node::supervisor) fn program() -> Option<PathBuf> {
    DEFAULT_PATH
        .split(':')
        .map(|folder| Path::new(folder).join("bwrap"))
        .find(|path| path.is_file())
}

/// `stage split-bwrap UID GID`
pub(super) fn split(control: &UnixStream, mut args: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let missing = || Failure("split-bwrap needs a uid and a gid".to_owned());
    let (uid, gid) = (args.next().ok_or_else(missing)?, args.next().ok_or_else(missing)?);
    let program = program().ok_or_else(|| Failure(format!("there is no bwrap in {DEFAULT_PATH}")))?;
    let ourselves = std::env::current_exe().map_err(Failure::of("cannot find our own program"))?;
    let line = control
        .as_fd()
        .try_clone_to_owned()
        .map_err(Failure::of("cannot hand on the control line"))?;
    let mut bwrap = Command::new(&program)
        .args([
            "--unshare-user",
            "--unshare-pid",
            "--unshare-uts",
            "--as-pid-1",
            "--cap-add",
            "ALL",
        ])
        .arg("--uid")
        .arg(uid)
        .arg("--gid")
        .arg(gid)
        .args(["--dev-bind", "/", "/", "--info-fd", "1", "--"])
        .arg(&ourselves)
        .args([crate::node::supervisor::SUBCOMMAND, crate::node::supervisor::STAGE, RUN])
        .stdin(Stdio::from(line))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Failure::of(format_args!("cannot execute {}", program.display())))?;
    let pid = read_child(&mut bwrap);
    let outcome = pid.and_then(|pid| wait_for(pid, &ourselves, &mut bwrap).map(|()| pid));
    // It would wait for its child to the end. Without it the child is the subreaper's, as at every level.
    let _ = bwrap.kill();
    let _ = bwrap.wait();
    match outcome {
        Some(pid) => Report::Child { pid }
            .send(control, None)
            .map_err(Failure::of("cannot say the last stage's number")),
        None => {
            let mut said = String::new();
            if let Some(mut stderr) = bwrap.stderr.take() {
                let _ = stderr.read_to_string(&mut said);
            }
            Err(Failure(format!("bwrap cannot make namespaces: {}", said.trim())))
        }
    }
}

/// The number that it says its child has.
fn read_child(bwrap: &mut std::process::Child) -> Option<u32> {
    let mut said = Vec::new();
    let stdout = bwrap.stdout.as_mut()?;
    let mut byte = [0u8];
    // One JSON object, without an end of line that could be waited for.
    while stdout.read(&mut byte).ok()? == 1 {
        said.extend(byte);
        if let Ok(info) = serde_json::from_slice::<serde_json::Value>(&said) {
            return u32::try_from(info.get("child-pid")?.as_u64()?).ok();
        }
    }
    None
}

/// Until the child is our program: before that it still needs its parent.
fn wait_for(pid: u32, ourselves: &Path, bwrap: &mut std::process::Child) -> Option<()> {
    let started = Instant::now();
    while started.elapsed() < LIMIT {
        if std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|program| program == ourselves) {
            return Some(());
        }
        if !matches!(bwrap.try_wait(), Ok(None)) {
            return None;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    None
}
