//! R11 and I5 on drawings.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use usher_engine::Step;

use super::{grow, leave, shrink};
use crate::plan::places::Places;
use crate::plan::sketch::{Sketch, node, start};
use crate::plan::terms::Terms;
use crate::plan::work::Work;
use crate::seen::{Link, RoleSaid};
use crate::words::SlotSet;

fn later(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

/// Everybody who owns nothing has done so since the start.
fn at_rest(drawing: &str, masters: u16, replicas: u16) -> Sketch {
    let mut sketch = Sketch::of(drawing, masters, replicas);
    let slotless: Vec<_> = sketch
        .topology()
        .members
        .values()
        .filter(|member| member.slots.is_empty())
        .map(|member| (member.id.clone(), start()))
        .collect();
    sketch.seen.memory.slotless_since.extend(slotless);
    sketch
}

fn leaves(sketch: &Sketch, now: Timestamp) -> Work {
    let topology = sketch.topology();
    leave(&topology, &Places::of(&topology, &[]), &Terms::default(), now)
}

fn resets(work: &Work) -> Vec<String> {
    let told = work.steps.iter().map(Step::describe);
    told.filter(|step| step.starts_with("take")).collect()
}

#[test]
fn r11_surplus_replicas_are_reset_and_struck_off_by_everybody() {
    let sketch = at_rest("0* 3 | 1* 4 | 2* 5", 3, 0);
    let work = leaves(&sketch, later(5));
    let told: Vec<String> = work.steps.iter().map(Step::describe).collect();
    // Pods 3, 4 and 5 go in this pass and strike nobody off.
    assert_eq!(told.len(), 3 * (1 + 3));
    assert_eq!(
        told[..4],
        [
            "take pod 3 (00000003) out of the cluster",
            "strike 00000003 off the list of pod 0 (00000000)",
            "strike 00000003 off the list of pod 1 (00000001)",
            "strike 00000003 off the list of pod 2 (00000002)",
        ]
    );
}

#[test]
fn r11_a_member_redirects_clients_for_a_while_before_it_leaves() {
    let mut sketch = at_rest("0* | 1* | 2* | 3*-", 3, 0);
    let early = leaves(&sketch, later(2));
    assert!(early.steps.is_empty());
    assert_eq!(early.again, Some(Duration::from_secs(3)));
    assert_eq!(
        resets(&leaves(&sketch, later(5))),
        ["take pod 3 (00000003) out of the cluster"]
    );
    // We have only just begun to watch.
    sketch.seen.memory.slotless_since.clear();
    assert!(leaves(&sketch, later(500)).steps.is_empty());
}

#[test]
fn r11_nobody_with_slots_leaves() {
    let work = leaves(&at_rest("0* | 1* | 2* | 3*", 3, 0), later(60));
    assert!(work.steps.is_empty());
    assert!(work.findings[0].message.ends_with("it owns 4096 slots"));
}

#[test]
fn r11_a_shard_has_its_replicas_that_stay_before_the_others_leave() {
    // Drained shards are empty; 3, 4, 5 have not been re-homed yet.
    let before = at_rest("0* 6 | 1* 7 | 2* 8 | 3* 9- | 4* 10- | 5* 11-", 3, 1);
    let told = resets(&leaves(&before, later(60)));
    let outs = [9, 10, 11].map(|pod| format!("take pod {pod} (000000{pod:02}) out of the cluster"));
    assert_eq!(told, outs, "those of empty shards may go at once");
    let mut after = at_rest("0* 3 6 | 1* 4 7 | 2* 5 8", 3, 1);
    assert_eq!(resets(&leaves(&after, later(60))).len(), 3);
    after.says(4).role = RoleSaid::Replica {
        link: Link::Syncing,
        offset: 0,
    };
    let work = leaves(&after, later(60));
    assert_eq!(resets(&work).len(), 2);
    assert_eq!(
        work.findings[0].message,
        "pod 7 (00000007) cannot leave yet: 0 of 1 replicas of pod 1 (00000001) that stay are in sync"
    );
}

#[test]
fn r11_replicas_leave_before_the_primary_that_they_follow() {
    let sketch = at_rest("0* 3 | 1* 4 | 2* 5 | 6* 7-", 3, 1);
    assert_eq!(
        resets(&leaves(&sketch, later(60))),
        ["take pod 7 (00000007) out of the cluster"]
    );
    let sketch = at_rest("0* 3 | 1* 4 | 2* 5 | 6*-", 3, 1);
    assert_eq!(
        resets(&leaves(&sketch, later(60))),
        ["take pod 6 (00000006) out of the cluster"]
    );
}

#[test]
fn r17_a_replica_waits_until_its_primary_has_handed_over() {
    // Pod 3 is to hand over to 0; nobody of this shard leaves before that.
    let work = leaves(&at_rest("3* 0 4 | 1* | 2*", 3, 0), later(60));
    assert!(work.steps.is_empty());
    assert!(
        work.findings[0]
            .message
            .ends_with("has not handed over to one that stays"),
        "{:?}",
        work.findings
    );
}

#[test]
fn r11_a_silent_member_is_struck_off_without_reset_when_its_peers_gave_it_up() {
    let mut sketch = at_rest("0* | 1* | 2* | 3*-", 3, 0);
    sketch.silence(3);
    let work = leaves(&sketch, later(60));
    assert_eq!((resets(&work).len(), work.steps.len()), (0, 3));
    sketch.lines(&node(3), |line| line.flags.failed = false);
    assert!(leaves(&sketch, later(60)).steps.is_empty());
}

#[test]
fn r11_what_was_reset_is_struck_off_even_when_we_died_between() {
    let mut sketch = at_rest("0* | 1* | 2* | 3*-", 3, 0);
    sketch.restart_as(3, node(33));
    sketch.says(0).view.remove(&node(3));
    let work = leaves(&sketch, later(60));
    let told: Vec<String> = work.steps.iter().map(Step::describe).collect();
    assert_eq!(
        told,
        [
            "strike 00000003 off the list of pod 1 (00000001)",
            "strike 00000003 off the list of pod 2 (00000002)"
        ]
    );
}

#[test]
fn i5_the_set_shrinks_when_no_view_knows_anybody_beyond_it() {
    let mut sketch = at_rest("0* | 1* | 2* | 3*-", 3, 0);
    let held = shrink(&sketch.topology());
    assert!(held.steps.is_empty());
    assert_eq!(
        held.findings[0].message,
        "the StatefulSet keeps its 4 pods: pod 3 (00000003) is still in a view"
    );
    sketch.restart_as(3, node(33));
    assert!(shrink(&sketch.topology()).steps.is_empty(), "its entry is still there");
    for pod in 0..3 {
        sketch.says(pod).view.remove(&node(3));
    }
    let told: Vec<String> = shrink(&sketch.topology()).steps.iter().map(Step::describe).collect();
    assert_eq!(told, ["resize the StatefulSet from 4 to 3 pods"]);
    // Not while a slot has no live owner.
    sketch.lines(&node(1), |line| line.slots = SlotSet::new());
    assert!(shrink(&sketch.topology()).steps.is_empty());
}

#[test]
fn the_set_grows_to_the_wanted_size_and_a_surge_is_one_more() {
    let mut sketch = at_rest("0* | 1* | 2*", 3, 0);
    assert!(grow(&sketch.topology()).is_none());
    sketch.size.surge = true;
    let told = grow(&sketch.topology()).map(|step| step.describe());
    assert_eq!(told.as_deref(), Some("resize the StatefulSet from 3 to 4 pods"));
}
