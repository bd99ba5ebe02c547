//! The store's file: one redb database that holds the lines of the log which still matter, and beside it a lock file.
//!
//! - [`row`]: how a line is written in the file. [`ledger`]: the file: opening it, adding to it, compacting it.
//! - [`writer`]: the thread that commits, for many callers at once, and shows what is committed.

mod ledger;
mod row;
mod writer;

pub(super) use ledger::Ledger;
pub(super) use writer::{Batch, Queue, Writer};

use std::fmt::Debug;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::StoreError;

/// When a write counts as stored (S4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the disk says so.
    Fsync,
    /// At once; the disk is asked each 100 ms. A crash loses that much, and says so by moving the floor.
    Relaxed,
}

/// Where the file is: a place in the file system, or a simulated disk.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Names it in messages.
    fn path(&self) -> &Path;

    /// Opens it. Asked when the store opens, and again after a commit failed.
    fn backend(&self) -> io::Result<Box<dyn redb::StorageBackend>>;
}

/// A file, held by a lock beside it for as long as this lives.
#[derive(Debug)]
pub(super) struct LockedFile {
    path: PathBuf,
    /// Locked; closing it unlocks.
    _lock: File,
}

impl LockedFile {
    /// Fails when another store has the file, and names the process.
    pub fn hold(path: &Path) -> Result<LockedFile, StoreError> {
        let failed = |error| StoreError::io(path, error);
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".lock");
        let lock_path = path.with_file_name(name);
        let mut lock = open_private(&lock_path).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Empty for the moment between its locking and its writing.
                let named = lock.read_to_string(&mut holder).is_ok_and(|read| read > 0);
                let holder = if named {
                    format!("process {}", holder.trim())
                } else {
                    "another process".into()
                };
                return Err(StoreError::InUse {
                    path: path.into(),
                    holder,
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        lock.set_len(0).map_err(failed)?;
        lock.seek(SeekFrom::Start(0)).map_err(failed)?;
        writeln!(lock, "{}", std::process::id()).map_err(failed)?;
        Ok(LockedFile {
            path: path.into(),
            _lock: lock,
        })
    }
}

/// Opens a file, made if it is not there, for its owner only: Secrets are in it. The umask is not asked, and a file of
/// before is closed to others too, if it is ours.
fn open_private(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    if file.metadata()?.permissions().mode() & 0o777 != 0o600 {
        match file.set_permissions(Permissions::from_mode(0o600)) {
            // Somebody else's file, which this user may write: theirs to close.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            done => done?,
        }
    }
    Ok(file)
}

impl Disk for LockedFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn backend(&self) -> io::Result<Box<dyn redb::StorageBackend>> {
        let file = open_private(&self.path)?;
        match redb::backends::FileBackend::new(file) {
            Ok(backend) => Ok(Box::new(backend)),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

impl StoreError {
    pub(super) fn io(path: &Path, error: io::Error) -> StoreError {
        let path = path.to_path_buf();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::DiskFull { path },
            io::ErrorKind::FileTooLarge => StoreError::TooLarge { path },
            // redb says so of a file that is not one of its own, and of one that ends too early.
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => StoreError::Damaged {
                path,
                what: error.to_string(),
            },
            _ => StoreError::Io {
                path,
                error: Arc::new(error),
            },
        }
    }

    fn damaged(path: &Path, what: impl Into<String>) -> StoreError {
        StoreError::Damaged {
            path: path.to_path_buf(),
            what: what.into(),
        }
    }

    fn redb(path: &Path, error: impl Into<redb::Error>) -> StoreError {
        match error.into() {
            redb::Error::Io(error) => StoreError::io(path, error),
            redb::Error::Corrupted(what) => StoreError::damaged(path, what),
            redb::Error::DatabaseAlreadyOpen => StoreError::InUse {
                path: path.into(),
                holder: "another process".into(),
            },
            error => StoreError::Io {
                path: path.into(),
                error: Arc::new(io::Error::other(error)),
            },
        }
    }
}
