//! Folders in the system's temporary one that go with the process that made them. Its maker holds a lock on each for as long
//! as it lives. So whoever makes the next one can tell what a killed process left, by the lock that nobody holds, and takes
//! it away; what somebody lives in is never touched.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Once;

use super::folder::random_name;

/// What such folders are called, each with something random after it. Nobody else's begin so.
const KINDS: [Kind; 2] = [Kind::Cluster, Kind::Trial];
/// A name that is taken, or a folder that is swept before it is locked, is bad luck; so often it is something else.
const TRIES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Of a cluster in memory.
    Cluster,
    /// In which a private root is tried.
    Trial,
}

impl Kind {
    const fn beginning(self) -> &'static str {
        match self {
            Self::Cluster => "usher-memory-",
            Self::Trial => "usher-trial-",
        }
    }

    fn remove(self, path: &Path) {
        let _ = match self {
            Self::Cluster => fs::remove_dir_all(path),
            // All was mounted and nothing written: what is not empty is not as it should be.
            Self::Trial => fs::remove_dir(path),
        };
    }
}

/// A folder that goes when this is dropped, or, if that never comes, when another process makes one of its own.
#[derive(Debug)]
pub(crate) struct Temporary {
    kind: Kind,
    path: PathBuf,
    /// None where the file system knows no locks: then nobody can tell, and nobody sweeps.
    _lock: Option<File>,
}

impl Temporary {
    /// A new one, for its owner alone. The first of a process takes away what dead ones left.
    pub(crate) fn make(kind: Kind) -> io::Result<Self> {
        static SWEPT: Once = Once::new();
        let folder = fs::canonicalize(std::env::temp_dir())?;
        SWEPT.call_once(|| sweep(&folder));
        Self::make_in(&folder, kind)
    }

    fn make_in(folder: &Path, kind: Kind) -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
        for _ in 0..TRIES {
            let path = folder.join(format!("{}{}", kind.beginning(), random_name()?));
            // Not recursive: it must not be there yet, or somebody else made it.
            DirBuilder::new().mode(0o700).create(&path)?;
            match lock(&path) {
                Ok(lock) => {
                    return Ok(Self {
                        kind,
                        path,
                        _lock: lock,
                    });
                }
                // Somebody swept it in the moment before.
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        self.kind.remove(&self.path);
    }
}

/// Holds a folder that was just made, if it is still there.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
        Err(TryLockError::Error(_)) => return Ok(None),
    }
    if fs::symlink_metadata(path)?.ino() == file.metadata()?.ino() {
        Ok(Some(file))
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NOFOLLOW;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Takes away what dead processes of this user left. What cannot be taken away is left to the next.
fn sweep(folder: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_of = |kind: &&Kind| name.to_str().is_some_and(|name| name.starts_with(kind.beginning()));
        let Some(kind) = KINDS.iter().find(is_of) else {
            continue;
        };
        let Ok(file) = open(&entry.path()) else {
            continue;
        };
        if file.metadata().is_ok_and(|found| found.uid() == own) && file.try_lock().is_ok() {
            tracing::debug!(folder = %entry.path().display(), "what a killed process left is taken away");
            kind.remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_is_swept_and_what_a_living_one_has_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in [
            "usher-memory-dead/pods/x",
            "usher-trial-dead",
            "usher-other",
            "usher-memoryless",
        ] {
            fs::create_dir_all(path(name)).unwrap();
        }
        fs::write(path("usher-memory-dead/token"), "secret").unwrap();
        fs::write(path("usher-memory-file"), "not a folder").unwrap();
        std::os::unix::fs::symlink(path("usher-other"), path("usher-memory-link")).unwrap();
        let living = Temporary::make_in(folder.path(), Kind::Cluster).unwrap();
        fs::write(living.path().join("token"), "secret").unwrap();
        let trial = Temporary::make_in(folder.path(), Kind::Trial).unwrap();
        sweep(folder.path());
        assert!(!path("usher-memory-dead").exists() && !path("usher-trial-dead").exists());
        assert!(living.path().join("token").exists() && trial.path().exists());
        for name in [
            "usher-other",
            "usher-memoryless",
            "usher-memory-file",
            "usher-memory-link",
        ] {
            assert!(path(name).exists(), "{name}");
        }
        let gone = living.path().to_owned();
        drop(living);
        assert!(!gone.exists());
    }

    #[test]
    fn a_folder_that_is_swept_before_it_is_locked_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usher-memory-x");
        fs::create_dir(&path).unwrap();
        let sweeper = open(&path).unwrap();
        sweeper.try_lock().unwrap();
        assert_eq!(lock(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        fs::remove_dir(&path).unwrap();
        assert_eq!(lock(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
