//! S4, S5: who sees what before a commit, and how many writes share one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use usher_embedded::store::{Change, Durability, Expect, Key, Prefix, Store, Write, WriteError};

use crate::disk::SimDisk;
use crate::{Clock, delete, pod, put};

#[test]
fn s5_a_write_that_is_not_yet_durable_is_seen_by_writers_only() {
    let disk = SimDisk::default();
    let store = Store::open_on(disk.clone(), Durability::Fsync, Clock::default().options()).unwrap();
    let (a, b) = (pod("a"), pod("b"));
    store.write(vec![put(&a, 1)]).unwrap().wait().unwrap();
    let mut watcher = store.watch(Prefix::everything(), 1).unwrap();
    disk.medium().syncs_held = true;
    let update = store.write(vec![put(&a, 2)]).unwrap();
    let create = store.write(vec![put(&b, 1)]).unwrap();
    assert_eq!(store.head(&a).unwrap().revision, 2);
    assert_eq!(store.head(&b).unwrap().revision, 3);
    // Writers build upon it, and their conflicts are found, before it is durable.
    let stale = Write {
        expect: Expect::Revision(1),
        ..put(&a, 3)
    };
    assert!(
        matches!(store.write(vec![stale]), Err(WriteError::Conflict { current: Some(entry), .. }) if entry.revision == 2)
    );
    let on_top = store
        .write(vec![Write {
            expect: Expect::Revision(2),
            ..delete(&a)
        }])
        .unwrap();
    assert_eq!(on_top.revisions(), [4]);
    // A write that changes nothing waits for the one it found.
    let same = store.write(vec![put(&b, 1)]).unwrap();
    assert_eq!(same.revisions(), [3]);
    assert_eq!(store.revision(), 1);
    assert_eq!(store.get(&a, None).unwrap().unwrap().revision, 1);
    assert_eq!(store.get(&b, None).unwrap(), None);
    assert_eq!(
        store.list(&Prefix::everything(), None, None, 0).unwrap().entries.len(),
        1
    );
    assert!(watcher.try_next().is_none());
    assert_eq!(watcher.revision(), 1);
    disk.release_syncs();
    assert_eq!((update.wait().unwrap(), create.wait().unwrap()), (2, 3));
    assert_eq!((on_top.wait().unwrap(), same.wait().unwrap()), (4, 3));
    assert_eq!(store.get(&a, None).unwrap(), None);
    assert_eq!(store.get(&b, None).unwrap().unwrap().revision, 3);
    let seen: Vec<_> = std::iter::from_fn(|| watcher.try_next())
        .map(|event| event.unwrap().revision)
        .collect();
    assert_eq!(seen, [2, 3, 4]);
}

#[test]
fn s4_sixteen_writers_share_commits() {
    const WRITERS: u64 = 16;
    const WRITES: u64 = 50;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    let store = Store::open(&path, Durability::Fsync, Clock::default().options()).unwrap();
    let mut revisions: Vec<u64> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let store = store.clone();
                    move || {
                        let key = pod(&format!("pod-{writer}"));
                        (0..WRITES)
                            .map(|write| {
                                let revision = store.write(vec![put(&key, write)]).unwrap().wait().unwrap();
                                assert_eq!(store.get(&key, None).unwrap().unwrap().revision, revision);
                                revision
                            })
                            .collect::<Vec<_>>()
                    }
                })
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    revisions.sort();
    assert_eq!(revisions, Vec::from_iter(1..=WRITERS * WRITES));
    let stats = store.stats();
    assert_eq!(stats.writes, WRITERS * WRITES);
    assert!(
        stats.commits * 4 <= stats.writes,
        "{} commits for {} writes",
        stats.commits,
        stats.writes
    );
    assert_eq!(stats.durable_commits, stats.commits);
    drop(store);
    let again = Store::open(&path, Durability::Fsync, Clock::default().options()).unwrap();
    assert_eq!(again.revision(), WRITERS * WRITES);
}

#[test]
fn s4_a_relaxed_store_does_not_wait_for_the_disk() {
    let store = Store::open_on(SimDisk::default(), Durability::Relaxed, Clock::default().options()).unwrap();
    for write in 0..200 {
        store.write(vec![put(&pod("a"), write)]).unwrap().wait().unwrap();
    }
    let stats = store.stats();
    assert!(stats.durable_commits * 4 <= stats.commits, "{stats:?}");
}

#[test]
fn a_closed_store_serves_reads_and_refuses_writes() {
    let disk = SimDisk::default();
    let store = Store::open_on(disk.clone(), Durability::Relaxed, Clock::default().options()).unwrap();
    let commit = store.write(vec![put(&pod("a"), 1)]).unwrap();
    store.close();
    assert_eq!(commit.wait().unwrap(), 1);
    assert!(matches!(store.write(vec![put(&pod("a"), 2)]), Err(WriteError::Closed)));
    assert_eq!(store.get(&pod("a"), None).unwrap().unwrap().revision, 1);
    let again = Store::open_on(disk, Durability::Fsync, Clock::default().options()).unwrap();
    assert_eq!(again.revision(), 1);
    assert_eq!(
        again.get(&Key::new("", "pods", Some("default"), "a"), None).unwrap(),
        store.get(&pod("a"), None).unwrap()
    );
}

#[test]
fn e2_a_write_in_memory_is_done_at_its_first_poll() {
    let store = Store::memory(Clock::default().options());
    let mut commit = store.write(vec![put(&pod("a"), 1)]).unwrap();
    let polled = Pin::new(&mut commit).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Ok(1))));
}

#[test]
fn s3_a_batch_is_stored_only_if_what_it_stands_on_is_as_expected() {
    let disk = SimDisk::default();
    let store = Store::open_on(disk.clone(), Durability::Fsync, Clock::default().options()).unwrap();
    let (ground, other) = (pod("ground"), pod("other"));
    store.write(vec![put(&ground, 1)]).unwrap().wait().unwrap();
    let upon = |revision: u64| {
        let keep = Write {
            key: ground.clone(),
            expect: Expect::Revision(revision),
            change: Change::Keep,
        };
        vec![keep, put(&other, revision)]
    };
    let commit = store.write(upon(1)).unwrap();
    assert_eq!(commit.revisions(), [1, 2]);
    assert_eq!(commit.wait().unwrap(), 2);
    assert_eq!(store.head(&ground).unwrap().revision, 1);
    assert!(matches!(store.write(upon(2)), Err(WriteError::Conflict { key, .. }) if key == ground));
    // Also what is not yet durable counts.
    disk.medium().syncs_held = true;
    let moved = store.write(vec![delete(&ground)]).unwrap();
    assert!(matches!(
        store.write(upon(1)),
        Err(WriteError::Conflict { current: None, .. })
    ));
    disk.release_syncs();
    moved.wait().unwrap();
    assert_eq!(store.head(&other).unwrap().revision, 2);
}
