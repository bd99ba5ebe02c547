//! Volumes in memory: each a file system of its own size, so that what does not fit is refused to the program that writes
//! it, and to nobody else.
//!
//! They are mounted where the supervisor is alone: it has a mount namespace of its own then, which its containers begin
//! from, and which goes with the last of them. So nothing of it is left on the machine, whatever dies when.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// To be called while there is one thread.
pub(super) fn mount_all(folders: &BTreeMap<PathBuf, u64>) -> io::Result<()> {
    if folders.is_empty() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWNS)?;
    let (nothing, all) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE);
    mount(nothing, "/", nothing, all, nothing)?;
    for (folder, bytes) in folders {
        mount_one(folder, *bytes)
            .map_err(|why| io::Error::other(format!("cannot mount a tmpfs at {}: {why}", folder.display())))?;
    }
    Ok(())
}

/// With the owner and the mode that the folder has: fsGroup was seen to.
fn mount_one(folder: &Path, bytes: u64) -> io::Result<()> {
    let folder_itself = fs::metadata(folder)?;
    let options = format!(
        "size={bytes},mode={:o},uid={},gid={}",
        folder_itself.mode() & 0o7777,
        folder_itself.uid(),
        folder_itself.gid()
    );
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(
        Some("tmpfs"),
        folder,
        Some("tmpfs"),
        flags,
        Some(options.as_str()),
    )?)
}
