//! S6: a crash after any call to the disk. The script runs once on a disk that notes its calls; then, for every n, the
//! disk is rebuilt as a crash at the n-th call would have left it, and opened.

use usher_embedded::store::{Durability, Key, Prefix, Retention, Revision, Store};

use crate::disk::{Call, SimDisk, apply};
use crate::model::{Model, replay};
use crate::{Clock, delete, pod, put};

/// What a crash does to calls that no sync has followed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Crash {
    /// The process stops; the system still writes what it was given.
    Stops,
    /// The power fails, and all of them are lost.
    Drops,
    /// The power fails, and some of them are lost, in no order.
    DropsSome,
    /// Half of the last one is written.
    Tears,
}

const WRITES: u64 = 200;
const RETENTION: Retention = Retention {
    keep_seconds: 60,
    min_revisions: 40,
    max_revisions: 90,
    max_old_bytes: 1 << 20,
};

struct Recorded {
    calls: Vec<Call>,
    model: Model,
    /// Revisions at which a batch ended.
    ends: Vec<Revision>,
    /// After how many calls which revision was acknowledged.
    acknowledged: Vec<(usize, Revision)>,
    clock: Clock,
}

/// 200 writes by groups of 1 to 14 that share commits, with batches, deletions, large values and two compactions.
fn record(durability: Durability) -> Recorded {
    let disk = SimDisk::default();
    disk.medium().calls = Some(Vec::new());
    let clock = Clock::default();
    let store = Store::open_on(disk.clone(), durability, clock.keeping(RETENTION)).unwrap();
    let mut model = Model::default();
    let (mut ends, mut acknowledged) = (vec![0], vec![(0, 0)]);
    let mut round = 0;
    while model.revision() < WRITES {
        round += 1;
        let mut commits = Vec::new();
        for turn in 0..1 + round % 7 {
            let key = |n: u64| pod(&format!("pod-{}", (round * 7 + n * 3) % 23));
            let text = format!(
                "{round} {turn} {}",
                "x".repeat(if round % 9 == 0 { 20_000 } else { 100 })
            );
            let mut batch = vec![put(&key(turn), text)];
            match round % 5 {
                3 => batch.push(put(&key(turn + 5), round)),
                4 => batch.push(delete(&key(turn + 9))),
                _ => {}
            }
            let revisions = model.write(&batch).unwrap();
            let commit = store.write(batch).unwrap();
            assert_eq!(commit.revisions(), revisions);
            ends.push(model.revision());
            commits.push(commit);
        }
        for commit in commits {
            commit.wait().unwrap();
        }
        acknowledged.push((disk.medium().calls.as_ref().unwrap().len(), model.revision()));
        if round % 12 == 0 {
            clock.advance(100);
            store.compact(clock.now());
        }
    }
    assert!(store.floor() > 0, "the script should compact");
    drop(store);
    let calls = disk.medium().calls.take().unwrap();
    Recorded {
        calls,
        model,
        ends,
        acknowledged,
        clock,
    }
}

/// The disk after a crash at the n-th call; `settled` is what it held when it was synced last, `since` what came after.
fn crashed(crash: Crash, settled: &[u8], since: &[Call], last: &Call) -> Vec<u8> {
    let mut image = settled.to_vec();
    // Any choice will do that differs from call to call; these are the digits of a multiplication.
    let survives = |index: usize| (since.len() + 3).wrapping_mul(index + 1).wrapping_mul(2_654_435_761) >> 13 & 1 == 1;
    for (index, call) in since.iter().enumerate() {
        if match crash {
            Crash::Stops | Crash::Tears => true,
            Crash::Drops => false,
            Crash::DropsSome => survives(index),
        } {
            apply(&mut image, call);
        }
    }
    if let (Crash::Tears, Call::Write { offset, bytes }) = (crash, last) {
        let half = bytes[..bytes.len() / 2].to_vec();
        apply(
            &mut image,
            &Call::Write {
                offset: *offset,
                bytes: half,
            },
        );
    }
    image
}

fn after_every_call(crash: Crash, durability: Durability, check: impl Fn(&Recorded, Revision, Store)) {
    let recorded = record(durability);
    let mut settled = Vec::new();
    let mut since: Vec<Call> = Vec::new();
    let mut tried = 0;
    for (n, call) in recorded.calls.iter().enumerate() {
        // A crash before a sync or a change of length tears nothing.
        if crash != Crash::Tears || matches!(call, Call::Write { .. }) {
            let image = crashed(crash, &settled, &since, call);
            let known = recorded
                .acknowledged
                .iter()
                .filter(|(calls, _)| *calls <= n)
                .map(|(_, revision)| *revision);
            let known = known.max().unwrap();
            let opened = Store::open_on(SimDisk::holding(image), durability, recorded.clock.keeping(RETENTION));
            let store = opened.unwrap_or_else(|error| panic!("{crash:?} at call {n}: {error}"));
            check(&recorded, known, store);
            tried += 1;
        }
        since.push(call.clone());
        if matches!(call, Call::Sync) {
            since.drain(..).for_each(|call| apply(&mut settled, &call));
        }
    }
    assert!(tried > 50, "only {tried} crashes");
}

/// The acknowledged writes, perhaps some of the rest, whole batches only; and it goes on from there.
fn keeps_what_was_acknowledged(crash: Crash) {
    after_every_call(crash, Durability::Fsync, |recorded, known, store| {
        let revision = store.revision();
        assert!(
            revision >= known,
            "{known} was acknowledged, but only {revision} is there"
        );
        assert!(recorded.ends.contains(&revision), "a batch was torn at {revision}");
        let mut model = Model {
            lines: recorded.model.lines[..revision as usize].to_vec(),
            ends: recorded.ends.iter().copied().filter(|end| *end <= revision).collect(),
        };
        model.check(&store, store.floor());
        // Also in the middle of what were batches before the crash.
        for at in store.floor().max(revision.saturating_sub(12))..revision {
            model.check(&store, at);
        }
        let everything = Prefix::everything();
        assert_eq!(
            replay(&store, &everything, store.floor()),
            model.events(&everything, store.floor())
        );
        let more = vec![put(&Key::new("", "nodes", None, "n"), "after the crash")];
        assert_eq!(model.write(&more).unwrap(), [revision + 1]);
        assert_eq!(store.write(more).unwrap().wait().unwrap(), revision + 1);
        model.check(&store, revision + 1);
    });
}

#[test]
fn s6_a_process_that_stops_at_any_call_loses_no_acknowledged_write() {
    keeps_what_was_acknowledged(Crash::Stops);
}

#[test]
fn s6_power_that_fails_at_any_call_loses_no_acknowledged_write() {
    keeps_what_was_acknowledged(Crash::Drops);
}

#[test]
fn s6_writes_that_arrive_in_no_order_lose_no_acknowledged_write() {
    keeps_what_was_acknowledged(Crash::DropsSome);
}

#[test]
fn s6_a_write_torn_at_any_call_loses_no_acknowledged_write() {
    keeps_what_was_acknowledged(Crash::Tears);
}

#[test]
fn s5_after_a_crash_a_relaxed_store_never_gives_a_revision_again_that_was_seen() {
    for crash in [Crash::Stops, Crash::Drops, Crash::Tears] {
        after_every_call(crash, Durability::Relaxed, |recorded, known, store| {
            assert!(store.revision() >= known);
            let found = store.list(&Prefix::everything(), None, None, 0).unwrap().entries;
            let then = recorded
                .ends
                .iter()
                .find(|end| Vec::from_iter(recorded.model.at(**end).into_values()) == found);
            assert!(then.is_some(), "no batch ended in this state");
            if *then.unwrap() < known {
                // Whoever saw what is lost is made to list anew.
                assert_eq!(store.floor(), store.revision());
                assert!(store.watch(Prefix::everything(), known).is_err() || store.revision() == known);
            }
        });
    }
}
