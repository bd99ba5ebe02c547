//! The file. It holds one row for each line above the floor, and for each line at or below it whose value is still an
//! object's latest at the floor. So each value is written once, compaction only removes rows, and opening is one pass.

use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, TableError};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::row::{self, Row};
use super::{Disk, Durability};
use crate::store::entry::{Change, RenderingTally};
use crate::store::tree::{Compacted, Tree};
use crate::store::{Entry, Key, Kind, LogEntry, Revision, StoreError};

/// By revision.
const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
/// [`FORMAT`], [`FLOOR`], [`RESERVED`].
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

const FORMAT: &str = "format";
const FLOOR: &str = "floor";
/// Revisions up to this one may have been seen though they are not in the file: see [`RESERVE`].
const RESERVED: &str = "reserved";

/// The format that this code writes, and the newest that it reads. The first did not say which lines are one batch.
const KNOWN_FORMAT: u64 = 2;
/// Everything is read from memory, so redb's cache only has to hold what a commit touches.
const CACHE_BYTES: usize = 8 << 20;
/// How many rows of forgotten lines a commit removes beside its work, so that compaction never holds up writers for long.
const DEAD_PER_COMMIT: usize = 2_000;
/// In relaxed mode, how many revisions may be shown before the file must say so. After a crash the store goes on above
/// them, so that none that anybody saw is ever given to another write (S5). About 100 ms at a million writes a second.
const RESERVE: u64 = 100_000;
/// In relaxed mode, how often the disk is asked (S4).
pub(super) const RELAXED_SYNC_MS: u64 = 100;

#[derive(Debug)]
pub struct Ledger {
    disk: Box<dyn Disk>,
    durability: Durability,
    /// `None` after a failure: redb wants to be opened anew then.
    database: Option<Database>,
    /// The newest line that the file has, durable or not.
    revision: Revision,
    floor: Revision,
    reserved: Revision,
    /// Lines committed since the disk was asked last; they are written again if the file has to be opened anew.
    unsynced: Vec<Arc<LogEntry>>,
    synced_at: Instant,
    /// Rows that nobody needs, yet to be removed.
    dead: VecDeque<Revision>,
    /// Whether floor or dead have changed since they were written.
    compacted: bool,
    row: Vec<u8>,
}

impl Ledger {
    /// Opens or creates the file, and reads all of it.
    pub fn open(
        disk: Box<dyn Disk>,
        durability: Durability,
        tally: &Arc<RenderingTally>,
    ) -> Result<(Ledger, Tree), StoreError> {
        let path = disk.path().to_path_buf();
        // redb checks a file only where it must, and panics over some kinds of damage.
        let opened = catch_unwind(AssertUnwindSafe(|| Ledger::open_checked(disk, durability, tally)));
        opened.unwrap_or_else(|_| Err(StoreError::damaged(&path, "it contradicts itself")))
    }

    fn open_checked(
        disk: Box<dyn Disk>,
        durability: Durability,
        tally: &Arc<RenderingTally>,
    ) -> Result<(Ledger, Tree), StoreError> {
        let database = open_database(&*disk)?;
        let mut ledger = Ledger {
            disk,
            durability,
            database: None,
            revision: 0,
            floor: 0,
            reserved: 0,
            unsynced: Vec::new(),
            synced_at: Instant::now(),
            dead: VecDeque::new(),
            compacted: false,
            row: Vec::new(),
        };
        let mut tree = ledger.load(&database, tally)?;
        ledger.database = Some(database);
        ledger.revision = tree.revision;
        if ledger.reserved > tree.revision {
            // A crash lost what relaxed mode had shown. Its revisions are not used again, and whoever saw them is made
            // to list anew.
            let compacted = tree.skip_to(ledger.reserved);
            ledger.revision = tree.revision;
            ledger.compact(compacted);
        }
        Ok((ledger, tree))
    }

    fn load(&mut self, database: &Database, tally: &Arc<RenderingTally>) -> Result<Tree, StoreError> {
        let disk = &self.disk;
        let failed = |error: redb::Error| StoreError::redb(disk.path(), error);
        let damaged = |what: String| StoreError::damaged(disk.path(), what);
        let reading = database.begin_read().map_err(|error| failed(error.into()))?;
        let meta = match reading.open_table(META) {
            Ok(meta) => meta,
            // A new file: the first commit writes them.
            Err(TableError::TableDoesNotExist(_)) => return Ok(Tree::default()),
            Err(error) => return Err(failed(error.into())),
        };
        let number = |name| match meta.get(name) {
            Ok(found) => Ok(found.map(|found| found.value())),
            Err(error) => Err(failed(error.into())),
        };
        match number(FORMAT)? {
            Some(1..=KNOWN_FORMAT) => {}
            Some(found) => {
                let path = disk.path().into();
                return Err(StoreError::NewerFormat {
                    path,
                    found,
                    known: KNOWN_FORMAT,
                });
            }
            None => return Err(damaged("it does not say which format it has".into())),
        }
        let floor = number(FLOOR)?.unwrap_or(0);
        self.floor = floor;
        self.reserved = number(RESERVED)?.unwrap_or(0);
        let log = reading.open_table(LOG).map_err(|error| failed(error.into()))?;
        let mut rows = log.iter().map_err(|error| failed(error.into()))?;
        let mut old: HashMap<Key, Entry> = HashMap::new();
        let mut tree = None;
        for found in &mut rows {
            let (revision, bytes) = found.map_err(|error| failed(error.into()))?;
            let revision = revision.value();
            let row =
                row::decode(bytes.value()).ok_or_else(|| damaged(format!("revision {revision} is unreadable")))?;
            if revision <= floor {
                self.dead.extend(settle(&mut old, revision, row));
                continue;
            }
            let tree = tree.get_or_insert_with(|| start(floor, &mut old));
            append(tree, revision, row, tally).map_err(damaged)?;
        }
        Ok(tree.unwrap_or_else(|| start(floor, &mut old)))
    }

    pub fn is_failed(&self) -> bool {
        self.database.is_none()
    }

    /// What compaction took from the tree; removed from the file by the next commits.
    pub fn compact(&mut self, compacted: Compacted) {
        self.floor = self.floor.max(compacted.floor);
        self.dead.extend(compacted.dead);
        self.compacted = true;
    }

    /// Whether there is something to remove.
    pub fn has_chores(&self) -> bool {
        self.compacted || !self.dead.is_empty()
    }

    /// When the disk must be asked, if lines were committed without.
    pub fn sync_due(&self) -> Option<Instant> {
        let interval = std::time::Duration::from_millis(RELAXED_SYNC_MS);
        (!self.unsynced.is_empty()).then(|| self.synced_at + interval)
    }

    /// Adds lines, or nothing. Returns whether the disk was asked. After an error the file is as it was after the last
    /// commit, or has these lines although it could not say so; the next commit settles which.
    pub fn commit(&mut self, lines: &[Arc<LogEntry>]) -> Result<bool, StoreError> {
        let newest = lines.last().map_or(self.revision, |line| line.revision);
        let overdue = self.sync_due().is_some_and(|due| Instant::now() >= due);
        let reserve = self.durability == Durability::Relaxed && newest > self.reserved;
        let immediate =
            self.durability == Durability::Fsync || lines.is_empty() || overdue || reserve || self.is_failed();
        let reserved = match self.durability {
            Durability::Fsync => 0,
            Durability::Relaxed if immediate && !lines.is_empty() => newest + RESERVE,
            Durability::Relaxed => self.reserved,
        };
        self.commit_with(lines, immediate, reserved)?;
        Ok(immediate)
    }

    /// The last commit: what is shown and what is stored are the same again.
    pub fn close(&mut self) -> Result<bool, StoreError> {
        let settled = self.unsynced.is_empty() && self.reserved <= self.revision && !self.compacted;
        // After a failure the file may have lines whose writers were told that they failed: they go.
        if settled && !self.is_failed() {
            return Ok(false);
        }
        self.commit_with(&[], true, 0)?;
        Ok(true)
    }

    fn commit_with(&mut self, lines: &[Arc<LogEntry>], immediate: bool, reserved: Revision) -> Result<(), StoreError> {
        let reopened = match self.database {
            Some(_) => false,
            None => {
                self.database = Some(open_database(&*self.disk)?);
                true
            }
        };
        let removed = self.dead.len().min(DEAD_PER_COMMIT);
        if let Err(error) = self.transact(lines, immediate, reserved, reopened, removed) {
            // redb refuses all work after an I/O error; opening it anew finds the last good commit.
            self.database = None;
            return Err(StoreError::redb(self.disk.path(), error));
        }
        self.dead.drain(..removed);
        self.compacted = false;
        self.reserved = reserved;
        self.revision = lines.last().map_or(self.revision, |line| line.revision);
        if immediate {
            self.unsynced.clear();
            self.synced_at = Instant::now();
        } else {
            self.unsynced.extend_from_slice(lines);
        }
        Ok(())
    }

    fn transact(
        &mut self,
        lines: &[Arc<LogEntry>],
        immediate: bool,
        reserved: Revision,
        reopened: bool,
        removed: usize,
    ) -> Result<(), redb::Error> {
        let Some(database) = &self.database else {
            return Err(redb::Error::DatabaseClosed);
        };
        let mut writing = database.begin_write()?;
        writing.set_durability(if immediate {
            redb::Durability::Immediate
        } else {
            redb::Durability::None
        })?;
        // The file can be opened after a crash without walking it (S6).
        writing.set_quick_repair(true);
        {
            let mut meta = writing.open_table(META)?;
            for (name, number) in [(FORMAT, KNOWN_FORMAT), (FLOOR, self.floor), (RESERVED, reserved)] {
                if meta.get(name)?.map(|found| found.value()) != Some(number) {
                    meta.insert(name, number)?;
                }
            }
            let mut log = writing.open_table(LOG)?;
            let mut again = &[][..];
            if reopened {
                // What a failed commit may have left was never shown; what was shown may be missing.
                let first = self.unsynced.first().map_or(self.revision + 1, |line| line.revision);
                log.retain_in(first.., |_, _| false)?;
                again = &self.unsynced;
            }
            for line in again.iter().chain(lines) {
                row::encode(line, &mut self.row);
                log.insert(line.revision, self.row.as_slice())?;
            }
            for revision in self.dead.iter().take(removed) {
                log.remove(revision)?;
            }
        }
        writing.commit()?;
        Ok(())
    }
}

fn open_database(disk: &dyn Disk) -> Result<Database, StoreError> {
    let failed = |error| StoreError::io(disk.path(), error);
    let backend = disk.backend().map_err(failed)?;
    if never_finished(&*backend).map_err(failed)? {
        backend.set_len(0).map_err(failed)?;
    }
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
        .create_with_backend(Boxed(backend))
        .map_err(|error| StoreError::redb(disk.path(), error))
}

/// Whether a crash interrupted redb while it created the file: it sets the length and the header, and only then the
/// magic number, without which it refuses the file. Nothing else was written by then.
fn never_finished(backend: &dyn StorageBackend) -> io::Result<bool> {
    /// redb's header; a new file is about a megabyte.
    const HEADER_BYTES: u64 = 4096;
    const NEW_FILE_BYTES: u64 = 8 << 20;
    let length = backend.len()?;
    if length == 0 || length > NEW_FILE_BYTES {
        return Ok(false);
    }
    let mut magic = vec![0; length.min(9) as usize];
    backend.read(0, &mut magic)?;
    if magic.iter().any(|byte| *byte != 0) {
        return Ok(false);
    }
    let mut rest = vec![0; length.saturating_sub(HEADER_BYTES) as usize];
    backend.read(length.min(HEADER_BYTES), &mut rest)?;
    Ok(rest.iter().all(|byte| *byte == 0))
}

/// Takes a row at or below the floor; gives the revisions that it makes superfluous. A deletion comes after what it
/// deleted: rows are removed in this order, and a deletion that went first would bring the object back.
fn settle(old: &mut HashMap<Key, Entry>, revision: Revision, row: Row) -> impl Iterator<Item = Revision> {
    let Row {
        key, created, value, ..
    } = row;
    let deletion = value.is_none().then_some(revision);
    let replaced = match value {
        Some(value) => old.insert(
            key.clone(),
            Entry {
                key,
                value,
                revision,
                created,
            },
        ),
        None => old.remove(&key),
    };
    replaced.map(|entry| entry.revision).into_iter().chain(deletion)
}

/// The tree at the floor.
fn start(floor: Revision, old: &mut HashMap<Key, Entry>) -> Tree {
    let mut tree = Tree::at(floor);
    for (_, entry) in old.drain() {
        tree.found(entry);
    }
    tree
}

/// Takes a row above the floor; says what is wrong with it.
fn append(tree: &mut Tree, revision: Revision, row: Row, tally: &Arc<RenderingTally>) -> Result<(), String> {
    let expected = tree.revision + 1;
    if revision != expected {
        return Err(format!("revision {expected} is missing"));
    }
    let found = tree.latest(&row.key);
    if found.as_ref().map_or(0, |entry| entry.revision) != row.previous {
        return Err(format!(
            "revision {revision} follows {}, which is missing",
            row.previous
        ));
    }
    let key = found.as_ref().map_or(row.key, |entry| entry.key.clone());
    let change = row.value.map_or(Change::Delete, Change::Put);
    let line = LogEntry::new(revision, key, change, found.as_ref(), row.time, tally.clone());
    let line = line.filter(|line| line.kind == row.kind && (line.created == row.created || row.kind == Kind::Delete));
    let mut line = line.ok_or_else(|| format!("revision {revision} contradicts what is before it"))?;
    line.goes_on = row.goes_on;
    tree.append(Arc::new(line));
    Ok(())
}

/// redb wants a backend of a known type. Locks are not passed on: the lock file has done that.
#[derive(Debug)]
struct Boxed(Box<dyn StorageBackend>);

impl StorageBackend for Boxed {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s7_a_deletion_is_removed_after_what_it_deleted() {
        let object = crate::store::Value::from_json(&serde_json::json!({"metadata": {"name": "a"}})).unwrap();
        let row = |kind, previous, value| Row {
            kind,
            created: 5,
            previous,
            time: jiff::Timestamp::UNIX_EPOCH,
            goes_on: false,
            key: Key::new("", "pods", Some("default"), "a"),
            value,
        };
        let mut old = HashMap::new();
        let mut dead = Vec::new();
        dead.extend(settle(&mut old, 5, row(Kind::Create, 0, Some(object.clone()))));
        dead.extend(settle(&mut old, 6, row(Kind::Update, 5, Some(object))));
        dead.extend(settle(&mut old, 9, row(Kind::Delete, 6, None)));
        assert_eq!(dead, [5, 6, 9]);
        assert!(old.is_empty());
    }
}
