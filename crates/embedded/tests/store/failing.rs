//! Disks that say no: the caller is told, readers notice nothing, and the next write tries again.

use usher_embedded::store::{Durability, Expect, Prefix, Retention, Store, StoreError, Write, WriteError};

use crate::disk::SimDisk;
use crate::model::{Model, replay};
use crate::{Clock, pod, put};

#[test]
fn a_full_disk_fails_writes_with_a_sentence_and_heals_when_there_is_room() {
    let disk = SimDisk::default();
    let open = || Store::open_on(disk.clone(), Durability::Fsync, Clock::default().options());
    let store = open().unwrap();
    store.write(vec![put(&pod("a"), 1)]).unwrap().wait().unwrap();
    let mut watcher = store.watch(Prefix::everything(), 1).unwrap();
    let full = disk.medium().image.len();
    disk.medium().capacity = Some(full);
    let mut written = 1;
    let error = loop {
        let commit = store
            .write(vec![put(&pod("a"), "x".repeat(100_000 + written as usize))])
            .unwrap();
        match commit.wait() {
            Ok(revision) => written = revision,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "the disk of /sim/store.redb is full: free some space and try again"
    );
    // All is as it was: also for writers, who must not build upon what failed.
    assert_eq!(store.revision(), written);
    assert_eq!(store.head(&pod("a")), store.get(&pod("a"), None).unwrap());
    assert!(
        store
            .write(vec![put(&pod("a"), "y".repeat(1_000_000))])
            .unwrap()
            .wait()
            .is_err()
    );
    disk.medium().capacity = None;
    assert_eq!(
        store.write(vec![put(&pod("b"), 1)]).unwrap().wait().unwrap(),
        written + 1
    );
    let seen: Vec<_> = std::iter::from_fn(|| watcher.try_next())
        .map(|event| event.unwrap().revision)
        .collect();
    assert_eq!(seen, Vec::from_iter(2..=written + 1));
    drop(store);
    assert_eq!(open().unwrap().revision(), written + 1);
}

#[test]
fn writes_that_wait_behind_a_failed_one_fail_too() {
    let disk = SimDisk::default();
    let store = Store::open_on(disk.clone(), Durability::Fsync, Clock::default().options()).unwrap();
    store.write(vec![put(&pod("a"), 1)]).unwrap().wait().unwrap();
    disk.medium().syncs_held = true;
    let commits: Vec<_> = (2..6).map(|n| store.write(vec![put(&pod("a"), n)]).unwrap()).collect();
    disk.medium().capacity = Some(0);
    disk.release_syncs();
    let failed = commits
        .into_iter()
        .map(|commit| commit.wait())
        .filter(|result| result.is_err())
        .count();
    assert!(
        failed >= 3,
        "only the first commit may have had its writes behind it: {failed}"
    );
    disk.medium().capacity = None;
    let revision = store.revision();
    assert_eq!(
        store.write(vec![put(&pod("b"), 9)]).unwrap().wait().unwrap(),
        revision + 1
    );
}

/// A writer reads what is on its way to the disk. If that never gets there, nothing else may pass for it.
#[test]
fn s3_a_writer_that_built_upon_a_failed_write_is_refused() {
    let disk = SimDisk::default();
    let open = || Store::open_on(disk.clone(), Durability::Fsync, Clock::default().options());
    let store = open().unwrap();
    store.write(vec![put(&pod("a"), 1)]).unwrap().wait().unwrap();
    let mut watcher = store.watch(Prefix::everything(), 1).unwrap();
    disk.medium().syncs_held = true;
    let commits: Vec<_> = (2..5).map(|n| store.write(vec![put(&pod("a"), n)]).unwrap()).collect();
    let built_upon: Vec<_> = commits.iter().map(|commit| commit.revisions()[0]).collect();
    let full = disk.medium().image.len();
    disk.medium().capacity = Some(full.min(1));
    disk.release_syncs();
    let failed = commits
        .into_iter()
        .map(|commit| commit.wait().is_err())
        .collect::<Vec<_>>();
    assert!(failed.contains(&true), "{failed:?}");
    disk.medium().capacity = None;
    // Somebody else writes it, as often as there were failures.
    for n in 0..failed.len() {
        let revision = store.write(vec![put(&pod("a"), 100 + n)]).unwrap().wait().unwrap();
        assert_eq!(store.head(&pod("a")).unwrap().revision, revision);
        for (revision, failed) in built_upon.iter().zip(&failed) {
            let late = Write {
                expect: Expect::Revision(*revision),
                ..put(&pod("a"), 200)
            };
            assert!(!*failed || matches!(store.write(vec![late]), Err(WriteError::Conflict { .. })));
        }
    }
    // All the same, revisions have no gaps.
    let seen: Vec<_> = std::iter::from_fn(|| watcher.try_next())
        .map(|event| event.unwrap().revision)
        .collect();
    assert_eq!(seen, Vec::from_iter(2..=store.revision()));
    let revision = store.revision();
    drop(store);
    assert_eq!(open().unwrap().revision(), revision);
}

/// A single error at any call. What failed is not there, what was shown is, and the store goes on; also for the next
/// store on the file. False when the error kept the store from opening.
fn heals(disk: &SimDisk, durability: Durability) -> bool {
    let clock = Clock::default();
    let open = || {
        let retention = Retention {
            min_revisions: 5,
            ..Retention::default()
        };
        Store::open_on(disk.clone(), durability, clock.keeping(retention))
    };
    let Ok(store) = open() else { return false };
    let mut model = Model::default();
    let mut failed = false;
    for n in 0..12 {
        // Smaller than what failed, so that nothing of that is written over by chance.
        let (size, name) = if failed { (1, "later") } else { (10, "pod") };
        let batch: Vec<_> = (0..size)
            .map(|pod_n| put(&pod(&format!("{name}-{pod_n}")), n))
            .collect();
        match store.write(batch.clone()).unwrap().wait() {
            Ok(_) => assert!(model.write(&batch).is_ok()),
            Err(error) => {
                assert!(error.to_string().contains("strange noise"), "{error}");
                assert!(!failed, "it does not heal");
                failed = true;
            }
        }
        model.check(&store, model.revision());
        if n == 6 && !failed {
            // Makes a relaxed store ask the disk, too.
            clock.advance(301);
            let before = store.stats();
            store.compact(clock.now());
            while store.stats().commits + store.stats().failed_commits == before.commits + before.failed_commits {
                std::thread::yield_now();
            }
        }
    }
    drop(store);
    disk.medium().fails_in = None;
    let again = open().unwrap();
    if again.revision() == model.revision() {
        model.check(&again, again.floor());
        let everything = Prefix::everything();
        assert_eq!(
            replay(&again, &everything, again.floor()),
            model.events(&everything, again.floor())
        );
    } else {
        // The last sync of a relaxed store failed as it closed: what was shown is not given again.
        assert!(durability == Durability::Relaxed && again.floor() > model.revision());
    }
    true
}

fn heals_after_an_error_at_any_call(durability: Durability) {
    let whole = SimDisk::default();
    assert!(heals(&whole, durability));
    let calls = whole.medium().count;
    let mut opened = 0;
    for n in 0..calls {
        let disk = SimDisk::default();
        disk.medium().fails_in = Some(n);
        opened += usize::from(heals(&disk, durability));
    }
    assert!(opened > calls / 2, "{opened} of {calls}");
}

#[test]
fn a_store_heals_after_an_error_at_any_call() {
    heals_after_an_error_at_any_call(Durability::Fsync);
}

#[test]
fn a_relaxed_store_heals_after_an_error_at_any_call_and_keeps_what_it_has_shown() {
    heals_after_an_error_at_any_call(Durability::Relaxed);
}

#[test]
fn a_store_says_that_its_last_commit_failed_and_heals_though_nobody_writes() {
    let disk = SimDisk::default();
    let store = Store::open_on(disk.clone(), Durability::Fsync, Clock::default().options()).unwrap();
    store.write(vec![put(&pod("a"), 1)]).unwrap().wait().unwrap();
    store.health().unwrap();
    let full = disk.medium().image.len();
    disk.medium().capacity = Some(full);
    let large = || vec![put(&pod("a"), "x".repeat(3_000_000))];
    store.write(large()).unwrap().wait().unwrap_err();
    assert_eq!(
        store.health().unwrap_err().to_string(),
        "the disk of /sim/store.redb is full: free some space and try again"
    );
    disk.medium().capacity = None;
    while store.health().is_err() {
        std::thread::yield_now();
    }
    assert_eq!(store.revision(), 1);
    store.close();
    assert!(matches!(store.health(), Err(StoreError::Closed)));
}
