//! R24 to R26: open slots, and slots that nobody serves.

use super::*;

fn open(sketch: &mut Sketch, on: u16, marker: OpenSlot) {
    let id = node(on);
    sketch.says(on).view.get_mut(&id).unwrap().open.push(marker);
}

fn closing(sketch: &Sketch) -> Vec<String> {
    let topology = sketch.topology();
    let work = open_slots(&topology, &Places::of(&topology, &[]));
    work.steps.iter().map(Step::describe).collect()
}

#[test]
fn r24_r25_both_markers_of_a_wanted_move_are_carried_to_the_end() {
    let mut sketch = Sketch::of("0* | 1* | 2* | 3*-", 4, 0);
    let (slot, to, from) = (Slot(100), node(3), node(0));
    open(&mut sketch, 0, OpenSlot::Migrating { slot, to });
    open(&mut sketch, 3, OpenSlot::Importing { slot, from });
    assert_eq!(
        closing(&sketch),
        ["move slot 100 key by key from pod 0 (00000000) to pod 3 (00000003)"]
    );
    // No other slot is begun while this one is open.
    for pod in 0..4 {
        sketch.says(pod).version = ServerVersion::parse("8.1.3").unwrap();
    }
    assert!(told(&moves(&sketch, Leg::Grow, None, start())).is_empty());
}

#[test]
fn r25_what_nobody_wants_to_move_goes_back_to_its_owner() {
    let mut sketch = Sketch::of("0* | 1* | 2*", 3, 0);
    let (slot, to, from) = (Slot(100), node(1), node(0));
    open(&mut sketch, 0, OpenSlot::Migrating { slot, to });
    open(&mut sketch, 1, OpenSlot::Importing { slot, from });
    assert_eq!(
        closing(&sketch),
        [
            "close slot 100 on pod 1 (00000001)",
            "close slot 100 on pod 0 (00000000)"
        ]
    );
    let topology = sketch.topology();
    let steps = open_slots(&topology, &Places::of(&topology, &[])).steps;
    let owners: Vec<Option<NodeId>> = steps
        .iter()
        .map(|step| match step {
            ClusterStep::StabilizeSlot { owner, .. } => owner.as_ref().map(|owner| owner.id.clone()),
            other => panic!("{}", other.describe()),
        })
        .collect();
    assert_eq!(owners, [Some(node(0)), None]);
}

#[test]
fn r25_a_marker_alone_is_taken_off() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    open(
        &mut sketch,
        1,
        OpenSlot::Importing {
            slot: Slot(1),
            from: node(2),
        },
    );
    open(
        &mut sketch,
        2,
        OpenSlot::Migrating {
            slot: Slot(16_000),
            to: node(0),
        },
    );
    // A replica repeats what its primary says.
    open(
        &mut sketch,
        5,
        OpenSlot::Migrating {
            slot: Slot(16_000),
            to: node(0),
        },
    );
    assert_eq!(
        closing(&sketch),
        [
            "close slot 1 on pod 1 (00000001)",
            "close slot 16000 on pod 2 (00000002)"
        ]
    );
    assert!(super::super::has_open_slots(&sketch.topology()));
    sketch.silence(0);
    assert_eq!(
        closing(&sketch),
        ["close slot 16000 on pod 2 (00000002)"],
        "slot 1 waits for its owner"
    );
}

fn unserved_of(sketch: &Sketch, terms: &Terms) -> (Vec<String>, Vec<String>) {
    let topology = sketch.topology();
    let result = unserved(&topology, &Places::of(&topology, &[]), terms);
    let lost = result
        .lost
        .iter()
        .map(|lost| format!("{} {}", lost.shard.short(), lost.slots));
    (result.work.steps.iter().map(Step::describe).collect(), lost.collect())
}

fn without_volumes() -> Terms {
    Terms {
        persistent: false,
        ..Terms::default()
    }
}

#[test]
fn r26_a_new_cluster_gets_its_slots_in_even_ranges() {
    let mut sketch = Sketch::of("0*- | 1*- | 2*- | 3*- | 4*- | 5*-", 3, 1);
    let (steps, lost) = unserved_of(&sketch, &Terms::default());
    let wanted = [
        "give slots 0-5461 to pod 0 (00000000)",
        "give slots 5462-10922 to pod 1 (00000001)",
        "give slots 10923-16383 to pod 2 (00000002)",
    ];
    assert_eq!((steps, lost), (wanted.map(String::from).to_vec(), vec![]));
    // One of them was given before we died: the others get theirs.
    sketch.lines(&node(1), |line| line.slots = slots(5462, 10922));
    let (steps, _) = unserved_of(&sketch, &Terms::default());
    let wanted = [
        "give slots 0 to pod 1 (00000001)",
        "give slots 1-5461 to pod 0 (00000000)",
        "give slots 10923-16383 to pod 2 (00000002)",
    ];
    assert_eq!(steps, wanted);
    // Somebody has not spoken: perhaps it has slots.
    sketch.silence(5);
    assert!(unserved_of(&sketch, &Terms::default()).0.is_empty());
}

#[test]
fn r26_slots_of_a_silent_owner_are_waited_for() {
    let mut sketch = Sketch::of("0* | 1* | 2*", 3, 0);
    sketch.silence(1);
    let topology = sketch.topology();
    let result = unserved(&topology, &Places::of(&topology, &[]), &without_volumes());
    assert!(result.work.steps.is_empty() && result.lost.is_empty());
    assert_eq!(
        result.work.findings[0].message,
        "slots 5462-10922 have no live owner: waiting for vc-1: connection refused, since 2026-11-16T12:00:00Z"
    );
}

/// Pod 1 is back with another volume and another id, and has joined.
fn replaced() -> Sketch {
    let mut sketch = Sketch::of("0* | 1* | 2*", 3, 0);
    sketch.restart_as(1, node(11));
    let mut joined = sketch.says(1).view[&node(11)].clone();
    joined.epoch = Epoch(40);
    let before = sketch.says(0).view.clone();
    sketch.says(1).view = before;
    for pod in 0..3 {
        sketch.says(pod).view.insert(node(11), joined.clone());
    }
    sketch.lines(&node(1), |line| {
        line.flags.failed = true;
        line.connected = false;
    });
    sketch
}

#[test]
fn r26_without_volumes_lost_slots_are_made_anew() {
    let mut sketch = replaced();
    let forgotten = [(0, "00000000"), (1, "00000011"), (2, "00000002")]
        .map(|(by, id)| {
            format!("strike 00000001 off the list of pod {by} ({id}), and give up slots 5462-10922, whose data is gone")
        })
        .to_vec();
    let (steps, lost) = unserved_of(&sketch, &without_volumes());
    assert_eq!((steps, lost), (forgotten, vec![]));
    // Half of it was done when we died.
    sketch.says(0).view.remove(&node(1));
    assert_eq!(unserved_of(&sketch, &without_volumes()).0.len(), 2);
    sketch.says(1).view.remove(&node(1));
    sketch.says(2).view.remove(&node(1));
    let (steps, _) = unserved_of(&sketch, &without_volumes());
    assert_eq!(steps, ["give slots 5462-10922 to pod 1 (00000011)"]);
}

#[test]
fn r26_with_volumes_lost_slots_wait_for_a_person() {
    let sketch = replaced();
    let (steps, lost) = unserved_of(&sketch, &Terms::default());
    assert_eq!((steps.len(), lost), (0, vec!["s0000001 5462-10922".to_owned()]));
    let other = Terms {
        accepted_loss: Some(shard_id(2)),
        ..Terms::default()
    };
    assert!(unserved_of(&sketch, &other).0.is_empty());
    let accepted = Terms {
        accepted_loss: Some(shard_id(1)),
        ..Terms::default()
    };
    assert_eq!(unserved_of(&sketch, &accepted).0.len(), 3);
    // All volumes are gone at once: nobody knows of any slot, and status does.
    let mut all = Sketch::of("0*- | 1*- | 2*-", 3, 0);
    let before = sketch.past.owned.values().cloned();
    all.past.owned = before.zip(50..).map(|(slots, at)| (shard_id(at), slots)).collect();
    let (steps, lost) = unserved_of(&all, &Terms::default());
    assert_eq!((steps.len(), lost.len()), (0, 3));
    let (steps, _) = unserved_of(&all, &without_volumes());
    assert_eq!(steps.len(), 3);
    all.past.owned.clear();
    assert_eq!(unserved_of(&all, &Terms::default()).0.len(), 3);
}

#[test]
fn r26_a_live_replica_is_left_to_the_servers() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    sketch.silence(1);
    assert_eq!(unserved_of(&sketch, &without_volumes()), (vec![], vec![]));
}
