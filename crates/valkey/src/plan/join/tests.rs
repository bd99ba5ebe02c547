//! R8, R9, R10 on drawings.

use jiff::{SignedDuration, Timestamp};
use usher_engine::Step;

use super::{addresses, foreign, forget_orphans, join};
use crate::plan::sketch::{Sketch, node, start};
use crate::plan::terms::Terms;
use crate::plan::work::Work;
use crate::seen::{Flags, Peer};
use crate::words::{Epoch, Ordinal, Slot, SlotSet};

fn told(work: &Work) -> Vec<String> {
    work.steps.iter().map(Step::describe).collect()
}

fn later(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

fn meet(from: u16, to: u16) -> String {
    format!(
        "make pod {from} ({}) and pod {to} ({}) known to each other",
        node(from).short(),
        node(to).short()
    )
}

fn broken(line: &mut Peer) {
    line.connected = false;
    line.flags.suspected = true;
}

#[test]
fn r8_one_changed_address_is_told_by_one_primary_at_most_every_five_seconds() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    assert!(addresses(&sketch.topology(), start()).is_done());
    sketch.lines(&node(4), broken);
    assert_eq!(told(&addresses(&sketch.topology(), start())), [meet(0, 4)]);
    sketch.seen.memory.met.insert(node(4), start());
    assert!(told(&addresses(&sketch.topology(), later(4))).is_empty());
    assert_eq!(told(&addresses(&sketch.topology(), later(5))), [meet(0, 4)]);
    // Nobody answers for it: there is no address to tell.
    sketch.silence(4);
    assert!(told(&addresses(&sketch.topology(), later(5))).is_empty());
}

#[test]
fn r8_the_one_who_cannot_reach_it_is_told() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    broken(sketch.says(2).view.get_mut(&node(4)).unwrap());
    assert_eq!(told(&addresses(&sketch.topology(), start())), [meet(2, 4)]);
}

#[test]
fn r8_all_addresses_new_everybody_is_told_of_every_primary() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    for pod in 0..6 {
        for (id, line) in &mut sketch.says(pod).view {
            if *id != node(pod) {
                broken(line);
            }
        }
    }
    let steps = told(&addresses(&sketch.topology(), start()));
    assert_eq!(steps.len(), 6 * 3 - 3);
    assert!(steps.contains(&meet(5, 0)) && !steps.contains(&meet(0, 5)));
}

#[test]
fn r9_new_pods_get_epochs_of_their_own_and_are_met_all_at_once() {
    let sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 4, 1).fresh([6, 7]);
    assert_eq!(
        told(&join(&sketch.topology(), start())),
        [
            "give pod 6 (00000006) the config epoch 4".to_owned(),
            "give pod 7 (00000007) the config epoch 5".to_owned(),
            meet(0, 6),
            meet(0, 7),
        ]
    );
}

#[test]
fn r9_a_new_cluster_begins_with_its_first_pod() {
    let sketch = Sketch::of("", 3, 0).fresh([0, 1, 2]);
    assert_eq!(
        told(&join(&sketch.topology(), start())),
        [
            "give pod 0 (00000000) the config epoch 1".to_owned(),
            "give pod 1 (00000001) the config epoch 2".to_owned(),
            "give pod 2 (00000002) the config epoch 3".to_owned(),
            meet(0, 1),
            meet(0, 2),
        ]
    );
}

#[test]
fn r9_who_is_being_met_is_neither_cleaned_nor_met_again_at_once() {
    let mut sketch = Sketch::of("0* | 1* | 2*", 4, 0).fresh([3]);
    // It knows us; we have it as a handshake of a temporary name.
    let ours = sketch.says(0).view.clone();
    sketch.says(3).view.extend(ours);
    sketch.seen.memory.met.insert(node(3), start());
    assert!(join(&sketch.topology(), later(1)).steps.is_empty());
    assert_eq!(told(&join(&sketch.topology(), later(5))), [meet(0, 3)]);
}

#[test]
fn r9_a_pod_with_another_lifes_data_is_emptied_before_it_joins() {
    let clean = ["empty pod 3 (00000003), whose data no member knows, so that it can join"];
    let mut sketch = Sketch::of("0* | 1* | 2*", 4, 0).fresh([3]);
    sketch.says(3).keys = 12;
    assert_eq!(told(&join(&sketch.topology(), start())), clean);
    sketch.says(3).keys = 0;
    sketch.says(3).view.get_mut(&node(3)).unwrap().slots = SlotSet::one(Slot(9));
    assert_eq!(told(&join(&sketch.topology(), start())), clean);
    sketch.says(3).view.get_mut(&node(3)).unwrap().slots = SlotSet::new();
    sketch.says(3).view.insert(node(99), Peer::default());
    assert_eq!(told(&join(&sketch.topology(), start())), clean);
    // While some slots have no live owner, it might be what is missing.
    sketch.silence(1);
    let held = join(&sketch.topology(), start());
    assert!(held.steps.is_empty());
    assert_eq!(held.findings[0].reason, "ForeignData");
}

#[test]
fn r9_pods_beyond_the_wanted_size_and_on_their_way_out_do_not_join() {
    let mut sketch = Sketch::of("0* | 1* | 2*", 4, 0).fresh([3, 4]);
    sketch.seen.pods.get_mut(&Ordinal(3)).unwrap().deleting = Some(start());
    assert!(join(&sketch.topology(), start()).steps.is_empty());
}

/// Pod 3 answers as another member; its entry of before is still in every list.
fn replaced() -> Sketch {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    sketch.restart_as(3, node(33));
    sketch.lines(&node(3), |line| {
        line.flags.failed = true;
        line.connected = false;
    });
    sketch.seen.memory.failed_since.insert(node(3), start());
    sketch
}

#[test]
fn r10_an_orphan_is_struck_off_everywhere_after_twice_the_node_timeout() {
    let sketch = replaced();
    let terms = Terms::default();
    assert!(forget_orphans(&sketch.topology(), &terms, later(9)).steps.is_empty());
    let steps = told(&forget_orphans(&sketch.topology(), &terms, later(10)));
    assert_eq!(steps.len(), 5);
    assert_eq!(steps[0], "strike 00000003 off the list of pod 0 (00000000)");
}

#[test]
fn r10_a_forget_that_was_cut_short_is_finished() {
    let mut sketch = replaced();
    sketch.says(0).view.remove(&node(3));
    let steps = told(&forget_orphans(&sketch.topology(), &Terms::default(), later(60)));
    assert_eq!(steps.len(), 4);
}

#[test]
fn r10_what_may_still_matter_is_not_struck_off() {
    type Spoil = fn(&mut Sketch);
    let cases: [(&str, Spoil); 5] = [
        ("it owns a slot", |sketch| {
            sketch.lines(&node(3), |line| {
                line.slots = SlotSet::one(Slot(0));
                line.epoch = Epoch(99);
            })
        }),
        ("its pod has not answered as somebody else", |sketch| {
            sketch.silence(3);
            sketch
                .seen
                .volumes
                .insert(Ordinal(3), usher_engine::Uid::from("another"));
        }),
        ("a member follows it", |sketch| {
            sketch.lines(&node(4), |line| line.primary = Some(node(3)))
        }),
        ("the others do not agree", |sketch| {
            sketch.says(0).view.remove(&node(5));
        }),
        ("its shard waits for a primary", |sketch| {
            // The primary died too, and its other replica lives.
            sketch.lines(&node(4), |line| line.primary = Some(node(0)));
            sketch.silence(0);
        }),
    ];
    for (why, spoil) in cases {
        let mut sketch = replaced();
        spoil(&mut sketch);
        let work = forget_orphans(&sketch.topology(), &Terms::default(), later(60));
        assert!(work.steps.is_empty(), "{why}: {:?}", told(&work));
    }
}

#[test]
fn r10_an_orphan_of_an_unknown_pod_waits_for_everybody_to_speak() {
    let mut sketch = replaced();
    sketch.past.bindings.retain(|binding| binding.id != node(3));
    assert_eq!(
        forget_orphans(&sketch.topology(), &Terms::default(), later(60))
            .steps
            .len(),
        5
    );
    sketch.silence(5);
    let work = forget_orphans(&sketch.topology(), &Terms::default(), later(60));
    assert!(work.steps.is_empty());
    assert!(work.findings[0].message.contains("waiting for vc-5"));
}

#[test]
fn r10_a_stranger_is_named_and_never_forgotten() {
    let mut sketch = Sketch::of("0* | 1* | 2*", 3, 0);
    let stranger = Peer {
        address: Some("10.0.0.9".parse().unwrap()),
        flags: Flags {
            primary: true,
            ..Flags::default()
        },
        connected: true,
        epoch: Epoch(50),
        ..Peer::default()
    };
    for pod in 0..3 {
        sketch.says(pod).view.insert(node(77), stranger.clone());
    }
    assert!(
        forget_orphans(&sketch.topology(), &Terms::default(), later(600))
            .steps
            .is_empty()
    );
    let told = foreign(&sketch.topology());
    assert!(
        told.findings[0]
            .message
            .starts_with("00000077 at 10.0.0.9 answers from outside our pods")
    );
    sketch.lines(&node(77), |line| line.slots = SlotSet::one(Slot(3)));
    let told = foreign(&sketch.topology());
    assert!(
        told.findings[0]
            .message
            .starts_with("00000077 at 10.0.0.9 owns slots 3")
    );
}
