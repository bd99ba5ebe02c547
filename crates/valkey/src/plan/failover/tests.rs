use super::*;
use crate::plan::sketch::{Sketch, node, shard_id, start};
use crate::seen::JobState;
use crate::words::{Slot, SlotSet};
use jiff::SignedDuration;

fn later(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

fn described(answer: Result<ClusterStep, String>) -> String {
    match answer {
        Ok(ClusterStep::Failover { from, to, .. }) => format!("{} to {}", from.ordinal, to.ordinal),
        Ok(step) => format!("{step:?}"),
        Err(why) => why,
    }
}

/// A hand-over of the first shard.
fn first(sketch: &Sketch, urgency: Urgency) -> String {
    let topology = sketch.topology();
    let shard = &topology.shards[0];
    described(hand_over(&topology, shard, urgency, None, later(100), |_| true))
}

fn planned(sketch: &Sketch) -> String {
    first(sketch, Urgency::Planned)
}

fn whole() -> Sketch {
    Sketch::of("0* 3 6 | 1* 4 | 2* 5", 3, 1)
}

fn lag(sketch: &mut Sketch, ordinal: u16, bytes: u64) {
    if let RoleSaid::Primary { offset, .. } = &mut sketch.says(0).role {
        *offset = 10_000_000;
    }
    if let RoleSaid::Replica { offset, .. } = &mut sketch.says(ordinal).role {
        *offset = 10_000_000 - bytes;
    }
}

#[test]
fn r28_a_hand_over_is_asked_for_when_all_is_well() {
    assert_eq!(planned(&whole()), "0 to 3");
}

#[test]
fn r28_nothing_is_asked_for_while_something_stands_in_the_way() {
    type Spoil = fn(&mut Sketch);
    let cases: &[(Spoil, &str)] = &[
        (
            |s| s.says(1).view.get_mut(&node(3)).unwrap().primary = Some(node(2)),
            "views do not agree",
        ),
        (|s| s.silence(0), "no majority"),
        (
            |s| {
                for at in [3, 6] {
                    s.says(at).role = RoleSaid::Replica {
                        link: Link::Syncing,
                        offset: 1,
                    };
                }
            },
            "being synced",
        ),
        (
            |s| {
                for at in [3, 6] {
                    s.says(at).role = RoleSaid::Replica {
                        link: Link::Down,
                        offset: 1,
                    };
                }
            },
            "is down",
        ),
        (
            |s| {
                for at in [3, 6] {
                    s.says(at).state_ok = false;
                }
            },
            "cluster_state:ok",
        ),
        (
            |s| {
                lag(s, 3, LAG_MAX_BYTES + 1);
                lag(s, 6, LAG_MAX_BYTES + 1);
            },
            "bytes behind",
        ),
        (
            |s| {
                let slots = SlotSet::one(Slot(0));
                s.job(0, 1, slots, JobState::InFlight("snapshotting".into()), "");
            },
            "on their way",
        ),
        (
            |s| {
                let open = OpenSlot::Importing {
                    slot: Slot(1),
                    from: node(0),
                };
                s.says(1).view.get_mut(&node(1)).unwrap().open.push(open);
            },
            "open slot",
        ),
        (
            |s| {
                s.seen.memory.failovers.insert(shard_id(1), (later(95), 1));
            },
            "under way",
        ),
        (
            |s| {
                s.seen.memory.failovers.insert(shard_id(0), (later(80), 3));
            },
            "did not",
        ),
    ];
    for (spoil, why) in cases {
        let mut sketch = whole();
        if *why == "no majority" {
            sketch.silence(1);
        }
        spoil(&mut sketch);
        let answer = planned(&sketch);
        assert!(answer.contains(why), "{why}: {answer}");
    }
}

#[test]
fn r28_a_primary_that_does_not_know_its_replica_is_not_asked() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    // The primary's own view alone is behind; agreement would say so, and so would this.
    sketch.says(0).view.get_mut(&node(3)).unwrap().primary = None;
    let topology = sketch.topology();
    let member = topology.member(&node(3)).unwrap();
    let answer = may_take_over(&topology, &topology.shards[0], member, Urgency::Planned);
    assert!(answer.unwrap_err().contains("does not list vc-3"));
}

#[test]
fn r28_after_three_tries_a_minute_passes() {
    let mut sketch = whole();
    let failovers = &mut sketch.seen.memory.failovers;
    failovers.insert(shard_id(0), (later(89), 2));
    assert_eq!(planned(&sketch), "0 to 3", "the second try is over");
    sketch.seen.memory.failovers.insert(shard_id(0), (later(40), 3));
    assert_eq!(planned(&sketch), "0 to 3", "the minute is over");
}

#[test]
fn r29_the_one_that_lags_least_takes_over() {
    let mut sketch = whole();
    lag(&mut sketch, 3, 5000);
    lag(&mut sketch, 6, 10);
    assert_eq!(planned(&sketch), "0 to 6");
}

#[test]
fn r29_then_the_updated_one_then_the_emptier_node_then_the_lower_ordinal() {
    let mut sketch = whole();
    sketch.seen.pods.get_mut(&Ordinal(6)).unwrap().node = Some("other".into());
    assert_eq!(planned(&sketch), "0 to 6", "the node of 3 has three primaries");
    sketch.seen.pods.get_mut(&Ordinal(3)).unwrap().template = Some("new".into());
    let topology = sketch.topology();
    let wanted: Text = "new".into();
    let shard = &topology.shards[0];
    let answer = hand_over(&topology, shard, Urgency::Planned, Some(&wanted), later(100), |_| true);
    assert_eq!(described(answer), "0 to 3", "it runs what is wanted");
}

fn going(sketch: &mut Sketch, ordinal: u16) {
    sketch.seen.pods.get_mut(&Ordinal(ordinal)).unwrap().deleting = Some(start());
}

#[test]
fn r30_a_primary_that_goes_hands_over_whatever_moves() {
    let mut sketch = whole();
    let slots = SlotSet::one(Slot(0));
    sketch.job(0, 1, slots, JobState::InFlight("snapshotting".into()), "");
    going(&mut sketch, 0);
    let work = terminating(&sketch.topology(), later(100));
    assert!(matches!(work.steps.as_slice(), [ClusterStep::Failover { to, .. }] if to.ordinal == Ordinal(3)));
    going(&mut sketch, 3);
    let work = terminating(&sketch.topology(), later(100));
    assert!(
        matches!(work.steps.as_slice(), [ClusterStep::Failover { to, .. }] if to.ordinal == Ordinal(6)),
        "not to one that goes as well"
    );
    let quiet = terminating(&whole().topology(), later(100));
    assert!(quiet.is_done());
}

#[test]
fn i4_two_primaries_that_go_hand_over_one_after_the_other() {
    let mut sketch = whole();
    going(&mut sketch, 0);
    going(&mut sketch, 1);
    assert_eq!(terminating(&sketch.topology(), later(100)).steps.len(), 1);
    sketch.seen.memory.failovers.insert(shard_id(0), (later(99), 1));
    assert_eq!(terminating(&sketch.topology(), later(100)).steps, []);
}

/// The primary of the first shard is dead, and its pod is back as somebody else.
fn gone() -> Sketch {
    let mut sketch = whole();
    sketch.silence(0);
    let stranger = NodeId::parse(&"f".repeat(40)).unwrap();
    sketch.restart_as(0, stranger);
    sketch.seen.memory.failed_since.insert(node(0), start());
    sketch
}

#[test]
fn r31_the_servers_own_election_comes_first() {
    let sketch = gone();
    assert_eq!(forced(&sketch.topology(), later(19)).steps, []);
    let work = forced(&sketch.topology(), later(20));
    assert!(matches!(
        work.steps.as_slice(),
        [ClusterStep::ForceFailover { to, takeover: false, .. }] if to.ordinal == Ordinal(3)
    ));
}

#[test]
fn r32_i4_nobody_is_forced_while_the_primary_may_live() {
    let mut sketch = whole();
    sketch.silence(0);
    sketch.seen.memory.failed_since.insert(node(0), start());
    assert_eq!(forced(&sketch.topology(), later(600)).steps, [], "its pod is there");
    sketch.seen.pods.remove(&Ordinal(0));
    assert_eq!(forced(&sketch.topology(), later(59)).steps, []);
    assert_eq!(
        forced(&sketch.topology(), later(60)).steps.len(),
        1,
        "silent, failed and without a pod for a minute"
    );
}

#[test]
fn r32_the_one_that_read_most_is_promoted_and_all_are_heard_first() {
    let mut sketch = gone();
    sketch.says(6).role = RoleSaid::Replica {
        link: Link::Down,
        offset: 2000,
    };
    let work = forced(&sketch.topology(), later(100));
    assert!(matches!(work.steps.as_slice(), [ClusterStep::ForceFailover { to, .. }] if to.ordinal == Ordinal(6)));
    sketch.silence(3);
    let work = forced(&sketch.topology(), later(100));
    assert_eq!(work.steps, [], "3 may have read more");
    assert!(work.findings[0].message.contains("does not answer"));
}

#[test]
fn r32_a_takeover_only_where_a_majority_is_provably_gone() {
    let mut sketch = whole();
    for at in [0, 1] {
        sketch.silence(at);
        sketch.seen.memory.failed_since.insert(node(at), start());
    }
    let work = forced(&sketch.topology(), later(600));
    assert_eq!(work.steps, [], "their pods are there: they come back");
    for (at, id) in [(0, "e"), (1, "f")] {
        sketch.restart_as(at, NodeId::parse(&id.repeat(40)).unwrap());
    }
    let work = forced(&sketch.topology(), later(600));
    assert!(matches!(
        work.steps.as_slice(),
        [ClusterStep::ForceFailover { takeover: true, .. }]
    ));
}

fn on_node(sketch: &mut Sketch, ordinals: &[u16], node: &str) {
    for at in ordinals {
        sketch.seen.pods.get_mut(&Ordinal(*at)).unwrap().node = Some(node.into());
    }
}

#[test]
fn r33_primaries_are_spread_one_a_minute() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    on_node(&mut sketch, &[0, 1, 2], "a");
    on_node(&mut sketch, &[3, 4], "b");
    on_node(&mut sketch, &[5], "c");
    sketch.seen.memory.began = Some(start());
    assert_eq!(spread(&sketch.topology(), later(59)), None);
    assert!(matches!(
        spread(&sketch.topology(), later(60)),
        Some(ClusterStep::Failover { .. })
    ));
    sketch.seen.memory.primaries_changed = Some(later(30));
    assert_eq!(spread(&sketch.topology(), later(89)), None);
    on_node(&mut sketch, &[0], "b");
    on_node(&mut sketch, &[1], "c");
    assert_eq!(spread(&sketch.topology(), later(200)), None, "one each");
}

#[test]
fn a_switchover_promotes_the_pod_and_then_the_wish_is_cleared() {
    let sketch = whole();
    let topology = sketch.topology();
    assert_eq!(described(switchover(&topology, "vc-6", later(100))), "0 to 6");
    assert!(matches!(
        switchover(&topology, "vc-0", later(100)),
        Ok(ClusterStep::ClearAnnotation { .. })
    ));
    let nobody = switchover(&topology, "vc-9", later(100)).unwrap_err();
    assert!(nobody.contains("no pod vc-9"), "{nobody}");
}
