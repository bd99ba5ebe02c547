//! R1 to R4: who is who, and what is never concluded from silence.

use std::collections::BTreeMap;

use usher_engine::Uid;

use super::{Difference, Past, Standing, Topology};
use crate::api::ValkeyClusterStatus;
use crate::plan::sketch::{Sketch, node, shard_id};
use crate::seen::{Flags, Peer};
use crate::words::{Epoch, NodeId, Ordinal, Slot, SlotSet};

fn standing(sketch: &Sketch, id: &NodeId) -> Option<Standing> {
    sketch.topology().member(id).map(|member| member.standing)
}

#[test]
fn a_healthy_cluster_agrees_and_is_whole() {
    let sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    let topology = sketch.topology();
    assert!(topology.agrees() && topology.has_majority() && topology.all_served());
    assert_eq!((topology.shards.len(), topology.members.len()), (3, 6));
    assert!(topology.outside.is_empty() && topology.unheard.is_empty() && topology.unowned.is_empty());
    assert_eq!(topology.shards[1].replicas, [node(4)]);
}

#[test]
fn r1_a_silent_pod_is_who_it_was_while_its_volume_is_the_same() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    sketch.silence(3);
    assert_eq!(standing(&sketch, &node(3)), Some(Standing::Silent));
    // The pod is another one, the volume is not.
    sketch.seen.pods.get_mut(&Ordinal(3)).unwrap().uid = Uid::from("another-pod");
    assert_eq!(standing(&sketch, &node(3)), Some(Standing::Silent));
    assert!(!sketch.topology().is_gone(&node(3)));
    // The pod is not there at all.
    sketch.seen.pods.remove(&Ordinal(3));
    assert_eq!(standing(&sketch, &node(3)), Some(Standing::Silent));
    sketch.seen.volumes.insert(Ordinal(3), Uid::from("another-volume"));
    assert_eq!(standing(&sketch, &node(3)), Some(Standing::Orphan));
    assert!(sketch.topology().is_gone(&node(3)));
}

#[test]
fn r1_without_volumes_a_silent_pod_is_who_it_was_while_it_is_the_same_pod() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    for binding in &mut sketch.past.bindings {
        binding.volume = None;
    }
    sketch.seen.volumes.clear();
    sketch.silence(3);
    assert_eq!(standing(&sketch, &node(3)), Some(Standing::Silent));
    sketch.seen.pods.get_mut(&Ordinal(3)).unwrap().uid = Uid::from("another-pod");
    assert_eq!(standing(&sketch, &node(3)), Some(Standing::Orphan));
    // It has not answered as somebody else: nothing is proven.
    assert!(!sketch.topology().is_gone(&node(3)));
    sketch.restart_as(3, node(33));
    assert!(sketch.topology().is_gone(&node(3)));
    assert_eq!(sketch.topology().outside, BTreeMap::from([(Ordinal(3), node(33))]));
}

#[test]
fn r1_what_a_pod_was_is_kept_while_a_view_lists_it() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    sketch.restart_as(3, node(33));
    sketch.remember();
    let bound = |sketch: &Sketch| -> Vec<NodeId> {
        let bindings = sketch.topology().bindings().into_iter();
        bindings
            .filter(|binding| binding.ordinal == Ordinal(3))
            .map(|binding| binding.id)
            .collect()
    };
    assert_eq!(bound(&sketch), [node(3), node(33)]);
    // A restart of ours in between, and the pod is silent: it is the newest of what it was.
    sketch.silence(3);
    assert_eq!(standing(&sketch, &node(3)), Some(Standing::Orphan));
    sketch.restart_as(3, node(33));
    for answer in 0..6 {
        sketch.says(answer).view.remove(&node(3));
    }
    assert_eq!(bound(&sketch), [node(33)]);
}

#[test]
fn r1_bindings_and_owned_slots_outlive_us_in_status() {
    let sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    let topology = sketch.topology();
    let masters = topology.shards.iter().map(|shard| crate::api::MasterTopology {
        node_id: shard.primary.clone(),
        pod_name: String::new(),
        shard_id: Some(shard.id.clone()),
        slot_ranges: shard.slots.ranges().iter().map(ToString::to_string).collect(),
        replicas: Vec::new(),
    });
    let status = ValkeyClusterStatus {
        bindings: topology
            .bindings()
            .iter()
            .map(|binding| binding.written("my-cache"))
            .collect(),
        topology: Some(crate::api::Topology {
            masters: masters.collect(),
        }),
        ..ValkeyClusterStatus::default()
    };
    assert_eq!(status.bindings[3].pod, "my-cache-3");
    assert_eq!(Past::of(&status), sketch.past);
}

#[test]
fn r2_who_does_not_answer_is_waited_for_by_name_and_cause() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    sketch.silence(1);
    let topology = sketch.topology();
    assert_eq!(
        topology.unheard[0].to_string(),
        "waiting for vc-1: connection refused, since 2026-11-16T12:00:00Z"
    );
    assert!(!topology.all_served());
    assert!(topology.agrees(), "the others tell one story");
}

#[test]
fn r3_whoever_differs_is_named_with_what() {
    let differ = |spoil: &dyn Fn(&mut Sketch)| -> Vec<String> {
        let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
        spoil(&mut sketch);
        sketch
            .topology()
            .differences
            .iter()
            .map(Difference::to_string)
            .collect()
    };
    let unknown = differ(&|sketch| {
        sketch.says(1).view.remove(&node(5));
    });
    assert_eq!(unknown, ["pod 1 does not know 00000005"]);
    let primary = differ(&|sketch| sketch.says(1).view.get_mut(&node(5)).unwrap().primary = Some(node(0)));
    assert_eq!(primary, ["pod 1 takes 00000005 for a replica of 00000000"]);
    let role = differ(&|sketch| sketch.says(1).view.get_mut(&node(5)).unwrap().primary = None);
    assert_eq!(role, ["pod 1 takes 00000005 for a primary"]);
    let epoch = differ(&|sketch| sketch.lines(&node(2), |line| line.epoch = Epoch(1)));
    assert_eq!(epoch, ["00000000 and 00000002 both claim config epoch 1"]);
    let owner = differ(&|sketch| {
        // Pod 5 has not heard that slot 0 went to 2.
        for viewer in 0..5 {
            let view = &mut sketch.says(viewer).view;
            let first = &mut view.get_mut(&node(0)).unwrap().slots;
            *first = first.minus(&SlotSet::one(Slot(0)));
            let line = view.get_mut(&node(2)).unwrap();
            line.slots = line.slots.union(&SlotSet::one(Slot(0)));
            line.epoch = Epoch(9);
        }
    });
    assert_eq!(owner, ["pod 5 does not give slots 0 to 00000002"]);
}

#[test]
fn r3_handshakes_are_nobody() {
    let mut sketch = Sketch::of("0* | 1* | 2*", 3, 0);
    let temporary = Peer {
        flags: Flags {
            handshake: true,
            ..Flags::default()
        },
        ..Peer::default()
    };
    sketch.says(0).view.insert(node(99), temporary);
    assert!(sketch.topology().agrees());
    assert_eq!(standing(&sketch, &node(99)), None);
}

#[test]
fn r3_the_highest_epoch_owns_the_slot_whatever_the_majority_says() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    // A failover that only the new primary knows of.
    let slots = sketch.says(0).own_slots();
    let view = &mut sketch.says(3).view;
    let line = view.get_mut(&node(3)).unwrap();
    (line.primary, line.epoch, line.slots) = (None, Epoch(9), slots.clone());
    let topology = sketch.topology();
    assert_eq!(topology.member(&node(3)).unwrap().slots, slots);
    assert!(topology.member(&node(0)).unwrap().slots.is_empty());
    assert!(!topology.agrees());
    // One shard id, two that call themselves primary: one shard, and its primary is the one with the slots.
    let (_, shard) = topology.shard_of(&node(0)).unwrap();
    assert_eq!(
        (&shard.primary, shard.replicas.as_slice()),
        (&node(3), [node(0)].as_slice())
    );
    assert_eq!(topology.shards.len(), 3);
}

#[test]
fn r4_a_majority_of_the_primaries_with_slots_has_to_answer() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5 | 6*-", 3, 1);
    assert!(sketch.topology().has_majority());
    sketch.silence(0);
    assert!(sketch.topology().has_majority());
    sketch.silence(1);
    assert!(!sketch.topology().has_majority());
    for pod in [2, 3, 4, 5, 6] {
        sketch.silence(pod);
    }
    // Nobody answers: that there are no slots anywhere is not concluded.
    assert!(!sketch.topology().has_majority());
    let nothing = Past::default();
    assert!(Topology::of(&sketch.seen, &nothing, sketch.size).has_majority());
}

#[test]
fn a_pod_that_nobody_lists_is_outside_whatever_it_lists() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5 | 6* 7", 3, 1);
    // Pod 7 was struck off while it was away; its list is from before.
    for viewer in 0..7 {
        sketch.says(viewer).view.remove(&node(7));
    }
    let topology = sketch.topology();
    assert_eq!(topology.outside, BTreeMap::from([(Ordinal(7), node(7))]));
    assert!(topology.agrees());
}

#[test]
fn a_pod_that_is_being_met_is_in_and_not_agreed_on_yet() {
    let mut sketch = Sketch::of("0* | 1* | 2* | 3*-", 3, 0).fresh([4]);
    let line = sketch.says(4).view[&node(4)].clone();
    sketch.says(0).view.insert(node(4), line);
    let topology = sketch.topology();
    assert!(topology.outside.is_empty());
    assert_eq!(topology.member(&node(4)).unwrap().standing, Standing::Live);
    assert!(!topology.agrees());
}

#[test]
fn r10_who_answers_from_outside_or_owns_slots_unbound_is_foreign() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    let stranger = Peer {
        flags: Flags {
            primary: true,
            ..Flags::default()
        },
        connected: true,
        epoch: Epoch(50),
        ..Peer::default()
    };
    for viewer in 0..6 {
        sketch.says(viewer).view.insert(node(77), stranger.clone());
    }
    assert_eq!(standing(&sketch, &node(77)), Some(Standing::Foreign));
    sketch.lines(&node(77), |line| {
        line.connected = false;
        line.flags.failed = true;
    });
    assert_eq!(standing(&sketch, &node(77)), Some(Standing::Orphan));
    sketch.lines(&node(77), |line| line.slots = SlotSet::one(Slot(7)));
    assert_eq!(standing(&sketch, &node(77)), Some(Standing::Foreign));
}

#[test]
fn shards_are_numbered_by_their_lowest_slot_and_empty_ones_come_last() {
    let sketch = Sketch::of("4* 3 | 1* 0 | 2* 5 | 7*- | 6*-", 3, 1);
    let primaries: Vec<NodeId> = sketch
        .topology()
        .shards
        .iter()
        .map(|shard| shard.primary.clone())
        .collect();
    assert_eq!(primaries, [node(4), node(1), node(2), node(6), node(7)]);
}

#[test]
fn a_chain_of_replicas_and_a_ring_of_them_belong_somewhere() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    sketch.lines(&node(5), |line| line.primary = Some(node(4)));
    assert_eq!(sketch.topology().shard_of(&node(5)).unwrap().1.primary, node(1));
    sketch.lines(&node(4), |line| line.primary = Some(node(5)));
    let topology = sketch.topology();
    assert!(topology.shard_of(&node(4)).is_some() && topology.shard_of(&node(5)).is_some());
}

#[test]
fn slots_that_nobody_owns_any_more_are_remembered_with_their_shard() {
    let mut sketch = Sketch::of("0* | 1* | 2*", 3, 0);
    sketch.lines(&node(1), |line| line.slots = SlotSet::new());
    let topology = sketch.topology();
    assert_eq!(topology.unowned.to_string(), "5462-10922");
    let remembered = topology.remembered();
    assert_eq!(remembered.len(), 1);
    assert_eq!(remembered[&shard_id(1)], topology.unowned);
}
