//! What can go wrong, in sentences that name the file and what to do.

use super::{Entry, Key, Revision};
use std::path::PathBuf;
use std::sync::Arc;

/// The store cannot be opened, or a write did not reach the disk.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{} is in use by {holder}; stop it, or choose another folder", path.display())]
    InUse { path: PathBuf, holder: String },
    #[error(
        "{} has format {found}, and this version of usher knows only {known}; use the version that wrote it",
        path.display()
    )]
    NewerFormat { path: PathBuf, found: u64, known: u64 },
    #[error("{} is damaged ({what}); move it away to start anew, or restore a copy of it", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("{} cannot be used: {error}", path.display())]
    Io { path: PathBuf, error: Arc<std::io::Error> },
    #[error("the disk of {} is full: free some space and try again", path.display())]
    DiskFull { path: PathBuf },
    #[error("{} may not grow any more: raise the limit of file sizes (ulimit -f) and try again", path.display())]
    TooLarge { path: PathBuf },
    #[error("the store is closed")]
    Closed,
    #[error("only a store in memory can be restored to a snapshot")]
    NotInMemory,
}

/// A read that cannot be answered from what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("history begins at revision {floor}")]
    Compacted { floor: Revision },
    #[error("the newest revision is {current}")]
    Future { current: Revision },
}

/// A write that was not accepted. Nothing of its batch was stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    #[error("{key} is not as expected: it is {}", described(.current))]
    Conflict { key: Key, current: Option<Entry> },
    #[error("the store is closed")]
    Closed,
}

fn described(current: &Option<Entry>) -> String {
    match current {
        Some(entry) => format!("at revision {}", entry.revision),
        None => "absent".into(),
    }
}

/// A watcher fell behind what is kept: it must list and watch anew (410 to a client).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the watch is at revision {at}, and history begins at {floor}")]
pub struct Lagged {
    pub at: Revision,
    pub floor: Revision,
}
