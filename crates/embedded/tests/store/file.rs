//! The file itself: who may open it, which it refuses and in which words, how it is read, and what compaction leaves.

use redb::{Database, ReadableTable, TableDefinition};
use std::path::Path;
use usher_embedded::store::{Durability, Key, Retention, Store, StoreError};

use crate::disk::SimDisk;
use crate::{Clock, delete, pod, put};

const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

type Log<'a> = redb::Table<'a, u64, &'static [u8]>;

fn open(path: &Path) -> Result<Store, StoreError> {
    Store::open(path, Durability::Fsync, Clock::default().options())
}

/// A file with three revisions of one pod.
fn three(path: &Path) {
    let store = open(path).unwrap();
    for n in 0..3 {
        store.write(vec![put(&pod("a"), n)]).unwrap().wait().unwrap();
    }
}

#[test]
fn e5_a_second_store_on_the_file_is_refused_naming_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    let store = open(&path).unwrap();
    let error = open(&path).unwrap_err();
    let expected = format!(
        "{} is in use by process {}; stop it, or choose another folder",
        path.display(),
        std::process::id()
    );
    assert_eq!(error.to_string(), expected);
    drop(store);
    open(&path).unwrap();
}

#[test]
fn s7_a_newer_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    three(&path);
    let database = Database::open(&path).unwrap();
    let writing = database.begin_write().unwrap();
    writing.open_table(META).unwrap().insert("format", 3).unwrap();
    writing.commit().unwrap();
    drop(database);
    let expected = format!(
        "{} has format 3, and this version of usher knows only 2; use the version that wrote it",
        path.display()
    );
    assert_eq!(open(&path).unwrap_err().to_string(), expected);
}

#[test]
fn the_first_format_is_read_and_written_as_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    three(&path);
    let format = |number: Option<u64>| {
        let database = Database::open(&path).unwrap();
        let writing = database.begin_write().unwrap();
        let mut meta = writing.open_table(META).unwrap();
        if let Some(number) = number {
            meta.insert("format", number).unwrap();
        }
        let found = meta.get("format").unwrap().unwrap().value();
        drop(meta);
        writing.commit().unwrap();
        found
    };
    assert_eq!(format(Some(1)), 1);
    let store = open(&path).unwrap();
    assert_eq!(store.revision(), 3);
    store.write(vec![put(&pod("a"), 3)]).unwrap().wait().unwrap();
    drop(store);
    assert_eq!(format(None), 2);
    assert_eq!(open(&path).unwrap().revision(), 4);
}

#[test]
fn a_damaged_file_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    for text in [
        "not a database".repeat(1000),
        "x".into(),
        "\0\0\0\0\0\0\0\0\0".repeat(500) + "precious",
    ] {
        std::fs::write(&path, &text).unwrap();
        let error = open(&path).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("move it away to start anew"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), text.as_bytes());
        std::fs::remove_file(&path).unwrap();
    }
    three(&path);
    let damage = |change: &dyn Fn(&mut Log)| {
        let copy = folder.path().join("copy.redb");
        std::fs::copy(&path, &copy).unwrap();
        let database = Database::open(&copy).unwrap();
        let writing = database.begin_write().unwrap();
        change(&mut writing.open_table(LOG).unwrap());
        writing.commit().unwrap();
        drop(database);
        open(&copy).unwrap_err().to_string()
    };
    let missing = damage(&|log| drop(log.remove(2).unwrap()));
    assert!(missing.contains("is damaged (revision 2 is missing)"), "{missing}");
    let unreadable = damage(&|log| drop(log.insert(3, &b"\x02nonsense"[..]).unwrap()));
    assert!(
        unreadable.contains("is damaged (revision 3 is unreadable)"),
        "{unreadable}"
    );
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let error = open(Path::new("/nonexistent/store.redb")).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("/nonexistent/store.redb cannot be used: "),
        "{error}"
    );
}

#[test]
fn s6_opening_reads_the_file_once_also_after_a_crash() {
    let disk = SimDisk::default();
    let store = Store::open_on(disk.clone(), Durability::Fsync, Clock::default().options()).unwrap();
    let commits: Vec<_> = (0..2_000)
        .map(|n| {
            store
                .write(vec![put(&pod(&format!("pod-{n}")), "x".repeat(2_000))])
                .unwrap()
        })
        .collect();
    commits.into_iter().for_each(|commit| assert!(commit.wait().is_ok()));
    let crashed = SimDisk::holding(disk.medium().image.clone());
    drop(store);
    let read = |disk: &SimDisk| {
        disk.medium().bytes_read = 0;
        let store = Store::open_on(disk.clone(), Durability::Fsync, Clock::default().options()).unwrap();
        assert_eq!(store.revision(), 2_000);
        disk.medium().bytes_read
    };
    let (read, after_a_crash) = (read(&disk), read(&crashed));
    let length = disk.medium().image.len();
    // With debug assertions redb walks the whole file once more to check itself.
    let times = if cfg!(debug_assertions) { 2 } else { 1 };
    assert!(read <= times * length + length / 10, "read {read} bytes of {length}");
    assert!(
        after_a_crash <= read + length / 10,
        "read {after_a_crash} bytes after a crash, else {read}"
    );
}

#[test]
fn s7_compaction_takes_rows_from_the_file_and_a_restart_keeps_floor_and_revision() {
    let disk = SimDisk::default();
    let clock = Clock::default();
    let retention = Retention {
        keep_seconds: 300,
        min_revisions: 10,
        ..Retention::default()
    };
    let open = || Store::open_on(disk.clone(), Durability::Fsync, clock.keeping(retention)).unwrap();
    let store = open();
    let other = store.write(vec![put(&pod("other"), 0)]).unwrap();
    let gone = store.write(vec![put(&pod("gone"), 0), delete(&pod("gone"))]).unwrap();
    let commits: Vec<_> = (0..5_000)
        .map(|n| store.write(vec![put(&pod("busy"), n)]).unwrap())
        .collect();
    commits
        .into_iter()
        .chain([other, gone])
        .for_each(|commit| assert!(commit.wait().is_ok()));
    clock.advance(301);
    store.compact(clock.now());
    assert_eq!(store.floor(), 4_993);
    // Closing does not wait for all the rows to go; the next store removes the rest.
    drop(store);
    let store = open();
    assert_eq!((store.floor(), store.revision()), (4_993, 5_003));
    assert_eq!(store.get(&pod("other"), None).unwrap().unwrap().revision, 1);
    assert_eq!(store.get(&pod("busy"), Some(4_993)).unwrap().unwrap().revision, 4_993);
    // Each commit removes some of the rows beside its own work.
    for n in 0..3 {
        store.write(vec![put(&pod("other"), n + 1)]).unwrap().wait().unwrap();
    }
    drop(store);
    let database = Database::builder().create_with_backend(disk.clone()).unwrap();
    let reading = redb::ReadableDatabase::begin_read(&database).unwrap();
    let rows = redb::ReadableTableMetadata::len(&reading.open_table(LOG).unwrap()).unwrap();
    assert_eq!(rows, 15, "ten of history, one at the floor, and the other four times");
}

#[test]
fn a_file_with_any_wrong_byte_opens_or_is_refused_with_a_sentence() {
    let disk = SimDisk::default();
    let open = |disk: SimDisk| Store::open_on(disk, Durability::Fsync, Clock::default().options());
    let store = open(disk.clone()).unwrap();
    for n in 0..20 {
        store
            .write(vec![put(&pod(&format!("pod-{}", n % 7)), "x".repeat(300))])
            .unwrap()
            .wait()
            .unwrap();
    }
    let crashed = disk.medium().image.clone();
    drop(store);
    let closed = disk.medium().image.clone();
    for image in [crashed, closed] {
        // Every byte of the header, and every 41st of the pages that are in use.
        let used = (0..image.len()).filter(|at| *at < 320 || (at % 41 == 0 && image[*at] != 0));
        for at in used {
            let mut wrong = image.clone();
            wrong[at] ^= 0x41;
            if let Err(error) = open(SimDisk::holding(wrong)) {
                assert!(error.to_string().starts_with("/sim/store.redb "), "byte {at}: {error}");
            }
        }
    }
}

#[test]
fn the_file_and_its_lock_are_their_owners_only_whatever_the_umask_and_whatever_was_before() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let paths = ["store.redb", "store.redb.lock"].map(|name| folder.path().join(name));
    let modes = || {
        paths
            .each_ref()
            .map(|path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777)
    };
    three(&paths[0]);
    assert_eq!(modes(), [0o600; 2]);
    for path in &paths {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    three(&paths[0]);
    assert_eq!(modes(), [0o600; 2]);
}

#[test]
fn s7_the_upper_bounds_of_history_hold_between_compactions() {
    let disk = SimDisk::default();
    let retention = Retention {
        max_revisions: 200,
        max_old_bytes: 4_000,
        ..Retention::default()
    };
    let clock = Clock::default();
    for store in [
        Store::memory(clock.keeping(retention)),
        Store::open_on(disk, Durability::Relaxed, clock.keeping(retention)).unwrap(),
    ] {
        let mut moves = 0;
        for n in 0..1_000 {
            let before = store.floor();
            // At first many objects, then one that is large.
            let batch = if n < 500 {
                put(&pod(&format!("pod-{n}")), n)
            } else {
                put(&pod("a"), format!("{n} {}", "x".repeat(200)))
            };
            store.write(vec![batch]).unwrap().wait().unwrap();
            assert!(store.revision() - store.floor() <= 200);
            assert!(store.stats().old_bytes <= 4_000);
            moves += usize::from(store.floor() > before);
        }
        assert!(
            moves < 500,
            "history is shortened by steps, not for each write: {moves}"
        );
        assert_eq!(
            store
                .list(&Key::prefix("", "pods", None), None, None, 0)
                .unwrap()
                .entries
                .len(),
            501
        );
    }
}
