//! R18 to R27 on whole clusters: drawings that are scaled, spoilt and healed.

mod healing;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use usher_engine::Step;

use super::{Leg, Moves, is_out_of_balance, next, open_slots, unserved};
use crate::api::{Method, SlotMigration};
use crate::plan::places::Places;
use crate::plan::sketch::{Sketch, node, shard_id, start};
use crate::plan::step::ClusterStep;
use crate::plan::terms::Terms;
use crate::plan::topology::Standing;
use crate::seen::{JobState, OpenSlot, RoleSaid};
use crate::words::{Epoch, NodeId, ServerVersion, Slot, SlotRange, SlotSet};

fn moves(sketch: &Sketch, leg: Leg, before: Option<&SlotMigration>, now: Timestamp) -> Moves {
    let topology = sketch.topology();
    let places = Places::of(&topology, &[]);
    next(&topology, &places, &Terms::default(), leg, before, now)
}

fn later(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

fn told(moves: &Moves) -> Vec<String> {
    moves.work.steps.iter().map(Step::describe).collect()
}

fn slots(first: u16, last: u16) -> SlotSet {
    SlotSet::of([SlotRange {
        first: Slot(first),
        last: Slot(last),
    }])
}

fn flight() -> JobState {
    JobState::InFlight("streaming".into())
}

/// Gives slots from one to the other, as a job that succeeds does.
fn hand(sketch: &mut Sketch, from: &NodeId, to: &NodeId, slots: &SlotSet) {
    sketch.lines(from, |line| line.slots = line.slots.minus(slots));
    sketch.lines(to, |line| {
        line.slots = line.slots.union(slots);
        line.epoch = Epoch(line.epoch.0 + 100);
    });
}

/// Runs a leg to its end on servers that do what they are told. Returns how many slots moved in all.
fn run(sketch: &mut Sketch, leg: Leg) -> u32 {
    let mut migration = None;
    let mut moved = 0;
    let recorded = Places::of(&sketch.topology(), &[]).drain;
    for _ in 0..1000 {
        let (steps, now) = {
            let topology = sketch.topology();
            let places = Places::of(&topology, &recorded);
            let now = next(&topology, &places, &Terms::default(), leg, migration.as_ref(), start());
            (now.work.steps.clone(), now)
        };
        if now.is_done() {
            return moved;
        }
        migration = now.migration;
        assert!(!steps.is_empty(), "{:?}", now.work.findings);
        for step in steps {
            let ClusterStep::MigrateSlots { from, to, slots, .. } = step else {
                panic!("{}", step.describe());
            };
            moved += u32::from(slots.count());
            hand(sketch, &from.id, &to.id, &slots);
        }
    }
    panic!("no end");
}

#[test]
fn i6_a_scale_moves_as_many_slots_as_the_numbers_demand() {
    let grown = [
        ("0* | 1* | 2* | 3*-", 4, 4096),
        ("0* | 1* | 2* | 3* | 4*-", 5, 3276),
        ("0* | 1* | 2* | 3* | 4* | 5*-", 6, 2730),
        ("0* | 1* | 2* | 3*- | 4*- | 5*-", 6, 8191),
    ];
    for (drawing, masters, count) in grown {
        let mut sketch = Sketch::of(drawing, masters, 0);
        assert_eq!(run(&mut sketch, Leg::Grow), count, "{drawing}");
        assert!(sketch.topology().unowned.is_empty());
    }
    let shrunk = [
        ("0* | 1* | 2* | 3* | 4* | 5*", 3, 8191),
        ("0* | 1* | 2* | 3*", 3, 4096),
        ("0* | 1* | 2* | 3* | 4*", 3, 6553),
    ];
    for (drawing, masters, count) in shrunk {
        let mut sketch = Sketch::of(drawing, masters, 0);
        assert_eq!(run(&mut sketch, Leg::Shrink), count, "{drawing}");
        assert_eq!(sketch.topology().owning().count(), usize::from(masters));
    }
}

#[test]
fn r18_nothing_moves_on_the_way_up_while_there_are_more_shards_than_wanted() {
    let moves = moves(
        &Sketch::of("0* | 1* | 2* | 3* | 4*- | 5*-", 3, 1),
        Leg::Grow,
        None,
        start(),
    );
    assert!(moves.is_done() && moves.migration.is_none() && moves.work.is_done());
}

#[test]
fn a3_more_replicas_move_no_slot() {
    let moves = moves(
        &Sketch::of("0* | 1* | 2* | 3*- | 4*- | 5*-", 3, 1),
        Leg::Grow,
        None,
        start(),
    );
    assert!(moves.is_done() && moves.migration.is_none());
}

#[test]
fn r20_one_job_per_giver_and_taker_and_so_many_in_all() {
    let mut sketch = Sketch::of("0* | 1* | 2* | 3* | 4*- | 5*- | 6*- | 7*-", 8, 0);
    let begun = moves(&sketch, Leg::Grow, None, start());
    assert_eq!(
        told(&begun),
        [
            "move 512 slots (3584-4095) from pod 0 (00000000) to pod 4 (00000004)",
            "move 512 slots (7680-8191) from pod 1 (00000001) to pod 5 (00000005)",
            "move 512 slots (11776-12287) from pod 2 (00000002) to pod 6 (00000006)",
        ]
    );
    let migration = begun.migration.unwrap();
    assert_eq!(
        (migration.total, migration.moved, migration.batch_slots),
        (8192, 0, 512)
    );
    // Two of them run: there is room for one more, by somebody who is not busy.
    sketch.job(0, 4, slots(3584, 4095), flight(), "");
    sketch.job(1, 5, slots(7680, 8191), flight(), "");
    let further = moves(&sketch, Leg::Grow, Some(&migration), start());
    assert_eq!(further.in_flight, 2);
    assert_eq!(
        told(&further),
        ["move 512 slots (11776-12287) from pod 2 (00000002) to pod 6 (00000006)"]
    );
    assert_eq!(further.work.again, Some(Duration::from_millis(250)));
}

#[test]
fn r20_batches_double_after_two_successes_and_halve_by_failure() {
    let batch = |log: &[(JobState, &str)]| {
        let mut sketch = Sketch::of("0* | 1* | 2* | 3*-", 4, 0);
        for (state, message) in log {
            sketch.job(0, 3, SlotSet::one(Slot(0)), state.clone(), message);
        }
        moves(&sketch, Leg::Grow, None, later(3600))
            .migration
            .unwrap()
            .batch_slots
    };
    let (good, bad) = ((JobState::Success, ""), (JobState::Failed, "Connection lost"));
    assert_eq!(batch(std::slice::from_ref(&good)), 512);
    assert_eq!(
        batch(&vec![good.clone(); 2]),
        512,
        "the least of all pairs is what status shows"
    );
    assert_eq!(batch(std::slice::from_ref(&bad)), 256);
    assert_eq!(batch(&[bad.clone(), good.clone(), good.clone()]), 512);
    assert_eq!(batch(&vec![bad; 4]), 32);
    let history = |log: &[(JobState, &str)]| {
        let mut sketch = Sketch::of("0* | 1* | 2* | 3*-", 4, 0);
        for (state, message) in log {
            sketch.job(0, 3, SlotSet::one(Slot(0)), state.clone(), message);
        }
        super::jobs::history(&sketch.says(0).jobs, &node(0), &node(3)).batch
    };
    assert_eq!(history(&vec![good.clone(); 2]), 1024);
    assert_eq!(history(&vec![good; 9]), 2048);
    assert_eq!(history(&vec![(JobState::Failed, "x"); 20]), 1);
}

#[test]
fn r21_a_destination_takes_slots_when_it_says_that_it_can() {
    type Spoil = fn(&mut Sketch);
    let cases: [(Spoil, &str); 5] = [
        (
            |sketch| sketch.says(6).state_ok = false,
            "pod 6 (00000006) does not say cluster_state:ok yet",
        ),
        (
            |sketch| {
                sketch.says(7).role = RoleSaid::Replica {
                    link: crate::seen::Link::Syncing,
                    offset: 0,
                };
            },
            "pod 7 (00000007), a replica of pod 6 (00000006), is not in sync",
        ),
        (
            |sketch| {
                sketch.silence(7);
            },
            "pod 7 (00000007), a replica of pod 6 (00000006), is not in sync",
        ),
        (
            |sketch| sketch.says(6).version = ServerVersion::parse("8.1.0").unwrap(),
            "pod 6 (00000006) cannot read the data of pod 0 (00000000), which runs a newer version",
        ),
        (
            |sketch| sketch.silence(0),
            "waiting for pod 0 (00000000) and pod 6 (00000006) to answer",
        ),
    ];
    for (spoil, why) in cases {
        let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5 | 6* 7-", 4, 1);
        spoil(&mut sketch);
        let moves = moves(&sketch, Leg::Grow, None, start());
        let first = moves.work.findings.first().map(|finding| finding.message.as_str());
        assert_eq!(first, Some(why));
        let steps = moves.work.steps.iter();
        assert!(
            steps.clone().all(|step| !step.describe().contains("from pod 0")),
            "{:?}",
            told(&moves)
        );
    }
    // A new shard without its replica gets nothing.
    let alone = moves(&Sketch::of("0* 3 | 1* 4 | 2* 5 | 6*-", 4, 1), Leg::Grow, None, start());
    assert!(alone.work.steps.is_empty());
    assert_eq!(
        alone.work.findings[0].message,
        "pod 6 (00000006) has not got its replicas yet"
    );
}

#[test]
fn r3_no_job_begins_while_the_views_differ() {
    let mut sketch = Sketch::of("0* | 1* | 2* | 3*-", 4, 0);
    sketch.lines(&node(1), |line| line.epoch = Epoch(1));
    let moves = moves(&sketch, Leg::Grow, None, start());
    assert!(moves.work.steps.is_empty());
    assert_eq!((moves.left, moves.work.findings[0].reason), (4096, "ViewsDisagree"));
}

#[test]
fn r6_r22_a_job_goes_on_while_it_is_wanted_and_is_called_off_otherwise() {
    // 3 to 6 was under way; now 4 are wanted, and pod 4 is to get nothing.
    let mut sketch = Sketch::of("0* | 1* | 2* | 3*- | 4*- | 5*-", 4, 0);
    sketch.job(0, 3, slots(4950, 5461), flight(), "");
    sketch.job(1, 4, slots(10411, 10922), flight(), "");
    let now = moves(&sketch, Leg::Grow, None, start());
    assert_eq!(
        told(&now)[0],
        "call off the slot moves of pod 1 (00000001): they are not wanted any more"
    );
    assert_eq!(now.work.steps.len(), 1, "3 is busy: {:?}", told(&now));
    // One that stands still for two minutes.
    let mut sketch = Sketch::of("0* | 1* | 2* | 3*-", 4, 0);
    sketch.job(0, 3, slots(4950, 5461), flight(), "");
    sketch.seen.memory.still_since.insert("job-0-3-0".into(), start());
    assert!(told(&moves(&sketch, Leg::Grow, None, later(119))).is_empty());
    assert_eq!(
        told(&moves(&sketch, Leg::Grow, None, later(120)))[0],
        "call off the slot moves of pod 0 (00000000): they have not moved for 120 s"
    );
}

#[test]
fn r22_a_job_that_would_take_too_much_is_not_wanted() {
    let mut sketch = Sketch::of("0* | 1* | 2* | 3*-", 4, 0);
    sketch.job(0, 3, slots(0, 5461), flight(), "");
    assert!(told(&moves(&sketch, Leg::Grow, None, start()))[0].starts_with("call off"));
}

#[test]
fn r23_failures_back_off_and_the_fifth_goes_key_by_key() {
    let mut sketch = Sketch::of("0* | 1* | 2* | 3*-", 4, 0);
    // Nothing of the others is left: only this pair moves.
    hand(&mut sketch, &node(1), &node(3), &slots(9558, 10922));
    hand(&mut sketch, &node(2), &node(3), &slots(15019, 16383));
    sketch.job(0, 3, slots(4950, 5461), JobState::Failed, "Connection lost to target");
    let waiting = moves(&sketch, Leg::Grow, None, later(1));
    assert!(waiting.work.steps.is_empty());
    assert_eq!(
        waiting.work.findings[0].message,
        "slots from pod 0 (00000000) to pod 3 (00000003) are tried again in 1 s, after 1 failures: Connection lost to target"
    );
    assert_eq!(waiting.work.again, Some(Duration::from_secs(1)));
    let again = moves(&sketch, Leg::Grow, None, later(2));
    assert_eq!(
        told(&again),
        ["move 256 slots (5206-5461) from pod 0 (00000000) to pod 3 (00000003)"]
    );
    for _ in 0..4 {
        sketch.job(0, 3, slots(4950, 5461), JobState::Failed, "Connection lost to target");
    }
    // The intent first, the act after it was read back.
    let decided = moves(&sketch, Leg::Grow, None, later(5));
    let migration = decided.migration.clone().unwrap();
    assert!(decided.work.steps.is_empty());
    assert_eq!(decided.work.findings[0].reason, "FallbackKeyByKey");
    assert_eq!((migration.method, migration.failures), (Method::KeyByKey, 5));
    assert_eq!(migration.by_keys.as_ref().unwrap().slots, ["5430-5461"]);
    let begun = moves(&sketch, Leg::Grow, Some(&migration), later(5));
    assert_eq!(
        told(&begun),
        ["move slot 5461 key by key from pod 0 (00000000) to pod 3 (00000003)"]
    );
    // The batch is through: the servers' own way again, after its back-off.
    hand(&mut sketch, &node(0), &node(3), &slots(5430, 5461));
    let migration = begun.migration.unwrap();
    let after = moves(&sketch, Leg::Grow, Some(&migration), later(100));
    assert_eq!(
        told(&after),
        ["move 16 slots (5414-5429) from pod 0 (00000000) to pod 3 (00000003)"]
    );
    assert_eq!(after.migration.as_ref().unwrap().method, Method::Atomic);
    sketch.job(0, 3, slots(5414, 5429), JobState::Failed, "Connection lost to target");
    let next = moves(&sketch, Leg::Grow, after.migration.as_ref(), later(200));
    assert_eq!(next.migration.unwrap().by_keys.unwrap().slots, ["5398-5429"]);
}

#[test]
fn r23_a_world_that_moved_is_not_counted_and_missing_rights_are_named() {
    let mut sketch = Sketch::of("0* | 1* | 2* | 3*-", 4, 0);
    for message in [
        "Slot is no longer owned by myself",
        "slots are not served",
        "Unknown node",
        "only on primary",
    ] {
        sketch.job(0, 3, slots(4950, 5461), JobState::Failed, message);
    }
    let moved = moves(&sketch, Leg::Grow, None, later(60));
    assert_eq!(moved.migration.unwrap().failures, 0);
    sketch.job(
        0,
        3,
        slots(4950, 5461),
        JobState::Failed,
        "-NOPERM this user has no permissions",
    );
    let refused = moves(&sketch, Leg::Grow, None, later(60));
    assert_eq!(refused.work.findings[0].reason, "ReplicationUserLacksRights");
    assert_eq!(
        refused.migration.unwrap().last_error.unwrap(),
        "-NOPERM this user has no permissions"
    );
}

#[test]
fn r23_a_clock_that_is_far_ahead_holds_nothing_up() {
    let mut sketch = Sketch::of("0* | 1* | 2* | 3*-", 4, 0);
    sketch.job(0, 3, slots(4950, 5461), JobState::Failed, "Connection lost");
    sketch.says(0).jobs[0].updated = Some(later(86_400));
    let steps = told(&moves(&sketch, Leg::Grow, None, start()));
    assert!(steps[0].starts_with("move 256 slots"), "{steps:?}");
}

#[test]
fn r23_servers_before_9_move_slots_key_by_key() {
    let mut sketch = Sketch::of("0* | 1* | 2* | 3*-", 4, 0);
    for pod in 0..4 {
        sketch.says(pod).version = ServerVersion::parse("8.1.3").unwrap();
    }
    let begun = moves(&sketch, Leg::Grow, None, start());
    assert_eq!(
        told(&begun),
        ["move slot 5461 key by key from pod 0 (00000000) to pod 3 (00000003)"]
    );
    assert_eq!(begun.migration.unwrap().method, Method::KeyByKey);
}

#[test]
fn r27_at_rest_only_what_is_off_by_more_than_two_percent_is_balanced() {
    let balanced = |sketch: &Sketch| {
        let topology = sketch.topology();
        !is_out_of_balance(&topology, &Places::of(&topology, &[]))
    };
    let mut sketch = Sketch::of("0* | 1* | 2*", 3, 0);
    hand(&mut sketch, &node(0), &node(1), &slots(0, 107));
    assert!(balanced(&sketch), "108 of 5461 are under 2 %");
    assert!(moves(&sketch, Leg::Grow, None, start()).is_done());
    hand(&mut sketch, &node(0), &node(1), &slots(108, 111));
    assert!(!balanced(&sketch));
    assert_eq!(moves(&sketch, Leg::Grow, None, start()).left, 111);
    let manual = Terms {
        balances: false,
        ..Terms::default()
    };
    let topology = sketch.topology();
    let places = Places::of(&topology, &[]);
    assert!(next(&topology, &places, &manual, Leg::Grow, None, start()).is_done());
    // An owning shard is missing.
    assert!(!balanced(&Sketch::of("0* | 1* | 2* | 3*-", 4, 0)));
}

#[test]
fn no_job_begins_in_a_shard_that_hands_over() {
    let mut sketch = Sketch::of("0* | 1* | 2* | 3*-", 4, 0);
    sketch.seen.memory.failovers.insert(shard_id(3), (start(), 1));
    assert!(moves(&sketch, Leg::Grow, None, later(9)).work.steps.is_empty());
    assert!(!moves(&sketch, Leg::Grow, None, later(10)).work.steps.is_empty());
}

#[test]
fn small_worlds_have_eight_slots() {
    let mut sketch = Sketch::with_slots("0* | 1*-", 2, 0, 8);
    assert_eq!(run(&mut sketch, Leg::Grow), 4);
    let topology = sketch.topology();
    let counts: Vec<u16> = topology
        .standing(Standing::Live)
        .map(|member| member.slots.count())
        .collect();
    assert_eq!(counts, [4, 4]);
}
