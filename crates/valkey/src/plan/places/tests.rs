//! The table of examples of the spec's 5.3, row by row, and the rules behind it.

use super::{Places, Which, settle};
use crate::plan::sketch::{Sketch, draw, node, shard_id};
use crate::words::{NodeId, SlotSet};
use usher_engine::Step;

struct Told {
    places: String,
    drain: Vec<u16>,
    steps: Vec<String>,
}

fn told(sketch: &Sketch, recorded: &[u16]) -> Told {
    let recorded: Vec<_> = recorded.iter().map(|primary| shard_id(*primary)).collect();
    let topology = sketch.topology();
    let places = Places::of(&topology, &recorded);
    let drain = places.drain.iter().map(|id| {
        let (_, shard) = topology.shard(id).unwrap();
        topology.member(&shard.primary).unwrap().ordinal.unwrap().0
    });
    Told {
        places: draw(&topology, &places),
        drain: drain.collect(),
        steps: settle(&topology, &places, Which::All)
            .steps
            .iter()
            .map(Step::describe)
            .collect(),
    }
}

fn short(ordinal: u16) -> NodeId {
    node(ordinal)
}

fn replicate(on: u16, primary: u16) -> String {
    format!(
        "make pod {on} ({}) a replica of {}",
        short(on).short(),
        short(primary).short()
    )
}

fn detach(on: u16) -> String {
    format!(
        "make the surplus replica pod {on} ({}) an empty primary",
        short(on).short()
    )
}

#[test]
fn r16_creation_gives_the_first_ordinals_to_primaries_and_the_next_to_their_replicas() {
    let told = told(
        &Sketch::of("0*- | 1*- | 2*- | 3*- | 4*- | 5*- | 6*- | 7*- | 8*-", 3, 2),
        &[],
    );
    assert_eq!(told.places, "0* +3 +4 | 1* +5 +6 | 2* +7 +8");
    assert_eq!(told.steps.len(), 6);
    assert_eq!(told.steps[0], replicate(3, 0));
}

#[test]
fn example_3x1_to_6x1() {
    let before = "0* 3 | 1* 4 | 2* 5";
    let told_at = |drawing: &str| told(&Sketch::of(drawing, 6, 1), &[]);
    let begun = told_at(&format!("{before} | 6*- | 7*- | 8*- | 9*- | 10*- | 11*-"));
    let places = "0* 3 | 1* 4 | 2* 5 | 6* +9 | 7* +10 | 8* +11";
    assert_eq!(begun.places, places);
    assert_eq!(begun.steps, [replicate(9, 6), replicate(10, 7), replicate(11, 8)]);
    assert!(begun.drain.is_empty());
    // Whatever was done first, the rest stays as it was.
    let partly = told_at(&format!("{before} | 7* 10- | 6*- | 8*- | 9*- | 11*-"));
    assert_eq!(partly.places, "0* 3 | 1* 4 | 2* 5 | 6* +9 | 7* 10 | 8* +11");
    let done = told_at(&format!("{before} | 6* 9- | 7* 10- | 8* 11-"));
    assert_eq!(done.places, "0* 3 | 1* 4 | 2* 5 | 6* 9 | 7* 10 | 8* 11");
    assert!(done.steps.is_empty());
}

#[test]
fn example_back_to_3x1() {
    let told = told(&Sketch::of("0* 3 | 1* 4 | 2* 5 | 6* 9 | 7* 10 | 8* 11", 3, 1), &[]);
    assert_eq!(told.drain, [8, 7, 6]);
    assert_eq!(told.places, "0* 3 | 1* 4 | 2* 5");
    assert!(told.steps.is_empty());
}

#[test]
fn example_6x1_to_3x1_created_so() {
    let created = "0* 6 | 1* 7 | 2* 8 | 3* 9 | 4* 10 | 5* 11";
    let begun = told(&Sketch::of(created, 3, 1), &[]);
    let mut drain = begun.drain;
    drain.sort_unstable();
    assert_eq!(drain, [3, 4, 5]);
    assert_eq!(begun.places, "0* | 1* | 2*");
    assert!(begun.steps.is_empty(), "nobody is free before a shard is empty");
    let drained = "0* 6 | 1* 7 | 2* 8 | 3* 9- | 4* 10- | 5* 11-";
    let places = "0* +3 | 1* +4 | 2* +5";
    let waits = told(&Sketch::of(drained, 3, 1), &[3, 4, 5]);
    assert_eq!(
        (waits.places.as_str(), waits.steps),
        (places, vec![detach(9), detach(10), detach(11)])
    );
    let alone = told(&Sketch::of("0* 6 | 1* 7 | 2* 8 | 3*- | 4*- | 5*-", 3, 1), &[3, 4, 5]);
    assert_eq!(alone.places, places);
    assert_eq!(alone.steps, [replicate(3, 0), replicate(4, 1), replicate(5, 2)]);
}

#[test]
fn example_3x1_to_3x0_after_a_failover() {
    let sketch = Sketch::of("3* 0 | 1* 4 | 2* 5", 3, 0);
    let told = told(&sketch, &[]);
    assert_eq!((told.places.as_str(), told.drain.len()), ("0 (3*) | 1* | 2*", 0));
    let topology = sketch.topology();
    let places = Places::of(&topology, &[]);
    let handing: Vec<_> = places.hand_overs(&topology).map(|home| home.primary.clone()).collect();
    assert_eq!(handing, [node(3)]);
}

#[test]
fn r17_example_3x1_to_3x0_odd_history() {
    let told = told(&Sketch::of("0* 1 | 2* 5 | 3* 4", 3, 0), &[]);
    assert_eq!(told.places, "0* | 2* | (3*) +1");
    assert_eq!(told.steps, [replicate(1, 3)]);
}

#[test]
fn example_3x2_to_4x1() {
    let begun = told(&Sketch::of("0* 3 4 | 1* 5 6 | 2* 7 8", 4, 1), &[]);
    assert_eq!(begun.places, "0* 3 | 1* 5 | 2* 7 | 4* +6");
    assert_eq!(begun.steps, [detach(4)]);
    let detached = told(&Sketch::of("0* 3 | 1* 5 6 | 2* 7 8 | 4*-", 4, 1), &[]);
    assert_eq!(detached.places, "0* 3 | 1* 5 | 2* 7 | 4* +6");
    assert_eq!(detached.steps, [replicate(6, 4)]);
}

#[test]
fn r13_example_4x0_to_3x1() {
    let grown = told(&Sketch::of("0* | 1* | 2* | 3* | 4*- | 5*-", 3, 1), &[]);
    assert_eq!((grown.places.as_str(), grown.drain), ("0* +4 | 1* +5 | 2*", vec![3]));
    let drained = told(&Sketch::of("0* 4 | 1* 5 | 2* | 3*-", 3, 1), &[3]);
    assert_eq!(drained.places, "0* 4 | 1* 5 | 2* +3");
    assert_eq!(drained.steps, [replicate(3, 2)]);
}

#[test]
fn a7_3x1_to_6x0_makes_every_replica_a_primary_one_at_a_time() {
    let told = told(&Sketch::of("0* 3 | 1* 4 | 2* 5", 6, 0), &[]);
    assert_eq!(told.places, "0* | 1* | 2* | 3* | 4* | 5*");
    assert_eq!(told.steps, [detach(3)]);
}

#[test]
fn a_drained_shards_replicas_find_their_places_before_its_primary_does() {
    // One pod more than places, for a roll: the replica takes it, or its primary could never follow anybody.
    let mut sketch = Sketch::of("0* 5 | 1* 6 | 2* | 3* 4-", 3, 1);
    sketch.size.surge = true;
    let told = told(&sketch, &[3]);
    assert_eq!(told.places, "0* 5 | 1* 6 | 2* +4");
    assert_eq!(told.steps, [replicate(4, 2)]);
}

#[test]
fn r14_what_was_chosen_to_drain_stays_chosen() {
    let sketch = Sketch::of("0* 6 | 1* 7 | 2* 8 | 3* 9 | 4* 10 | 5* 11", 3, 1);
    assert_eq!(told(&sketch, &[0, 1, 2]).drain, [0, 1, 2]);
    assert_eq!(told(&sketch, &[0]).drain, [0, 5, 4]);
    // One of them is empty: two are left.
    let sketch = Sketch::of("0* 6- | 1* 7 | 2* 8 | 3* 9 | 4* 10 | 5* 11", 3, 1);
    assert_eq!(told(&sketch, &[0, 1, 2]).drain, [1, 2]);
}

#[test]
fn r14_a_shard_whose_primary_leaves_goes_before_one_whose_primary_stays() {
    let told = told(&Sketch::of("6* 0 | 1* 7 | 2* 8 | 3* 9 | 4* 10 | 5* 11", 3, 1), &[]);
    assert_eq!(told.drain[0], 6);
}

#[test]
fn r15_link_up_stays_before_link_down_and_the_primary_always() {
    let mut sketch = Sketch::of("4* 0 1 2 3", 1, 1);
    sketch.size.masters = 3;
    sketch.says(0).role = crate::seen::RoleSaid::Replica {
        link: crate::seen::Link::Down,
        offset: 1,
    };
    let topology = sketch.topology();
    let places = Places::of(&topology, &[]);
    let stays = &places.homes[0].stays;
    assert_eq!(stays, &[node(4), node(1)]);
}

#[test]
fn r16_the_only_replica_in_sync_is_not_taken_away() {
    let mut sketch = Sketch::of("0* 3 4 | 1* 5 6 | 2* 7 8", 4, 1);
    sketch.silence(3);
    // Pod 4 has the link now and stays; pod 3 is silent and is nobody's surplus to use.
    let told = told(&sketch, &[]);
    assert_eq!(told.places, "0* 4 | 1* 5 | 2* 7 | 6*");
    assert_eq!(told.steps, [detach(6)]);
}

#[test]
fn i12_a_surplus_replica_stays_until_those_who_stay_are_in_sync() {
    let mut sketch = Sketch::of("0* 3 4 | 1* 5 6 | 2* 7 8", 4, 1);
    for replica in [3, 4] {
        sketch.says(replica).role = crate::seen::RoleSaid::Replica {
            link: crate::seen::Link::Syncing,
            offset: 0,
        };
    }
    let topology = sketch.topology();
    let work = settle(&topology, &Places::of(&topology, &[]), Which::All);
    assert!(work.steps.is_empty(), "{:?}", work.steps);
    assert_eq!(
        work.findings[0].message,
        "waiting for the replicas of pod 0 (00000000) that stay: 0 of 1 are in sync"
    );
}

#[test]
fn r10_a_pod_that_came_back_as_another_member_returns_to_its_shard() {
    let mut sketch = Sketch::of("0* 3 | 1* 4 | 2* 5", 3, 1);
    let bound = sketch.past.bindings.clone();
    // Pods 3 and 4 lost their volumes and have joined anew, under other names.
    let mut again = Sketch::of("0* | 1* | 2* 5 | 3*- | 4*-", 3, 1);
    again.past.bindings = bound
        .into_iter()
        .map(|mut binding| {
            if binding.ordinal.0 == 3 || binding.ordinal.0 == 4 {
                binding.id = node(100 + binding.ordinal.0);
                binding.shard = shard_id(4 - binding.ordinal.0);
            }
            binding
        })
        .collect();
    sketch = again;
    assert_eq!(told(&sketch, &[]).places, "0* +4 | 1* +3 | 2* 5");
}

#[test]
fn r16_replicas_share_no_node_with_their_primary_where_that_can_be_avoided() {
    let mut sketch = Sketch::of("0*- | 1*- | 2*- | 3*- | 4*- | 5*-", 3, 1);
    for pod in sketch.seen.pods.iter_mut() {
        pod.1.node = Some(format!("node-{}", pod.0.0 % 3).as_str().into());
    }
    let topology = sketch.topology();
    let places = Places::of(&topology, &[]);
    for home in &places.homes {
        let at = |id: &NodeId| topology.place_of(topology.member(id).unwrap().ordinal.unwrap());
        assert_ne!(at(&home.primary), at(&home.attach[0]), "{}", draw(&topology, &places));
    }
}

#[test]
fn a_member_of_a_shard_that_still_drains_is_not_free() {
    let sketch = Sketch::of("0* | 1* | 2* | 3* 4 5", 3, 1);
    let told_of = |recorded: &[u16]| told(&sketch, recorded).places;
    assert_eq!(told_of(&[3]), "0* | 1* | 2*");
    assert_eq!(
        told_of(&[]),
        "0* +5 | 1* | 3* 4",
        "2 is the one to drain: fewest members that stay"
    );
}

#[test]
fn nobody_is_placed_while_the_views_differ() {
    let mut sketch = Sketch::of("0* | 1* | 2* | 3*- | 4*- | 5*-", 3, 1);
    sketch.says(0).view.remove(&node(5));
    let topology = sketch.topology();
    let work = settle(&topology, &Places::of(&topology, &[]), Which::All);
    assert!(work.steps.is_empty());
    assert_eq!(
        work.findings[0].message,
        "the servers' views do not agree yet: pod 0 does not know 00000005"
    );
}

#[test]
fn i10_a_replica_reads_what_its_primary_writes() {
    let mut sketch = Sketch::of("0* | 1* | 2* | 3*-", 3, 1);
    sketch.says(3).version = crate::words::ServerVersion::parse("8.1.3").unwrap();
    let told = told(&sketch, &[]);
    assert_eq!((told.places.as_str(), told.steps.len()), ("0* +3 | 1* | 2*", 0));
}

#[test]
fn i13_other_ids_on_the_same_pods_change_nothing_but_the_ids() {
    // The drawing gives ids by ordinal; here the ids of two pods change places, and roles go with the pods.
    let one = Sketch::of("0*- | 1*- | 2*- | 3*- | 4*- | 5*-", 3, 1);
    let mut other = one.clone();
    let swap = |id: &NodeId| match () {
        () if *id == node(0) => node(5),
        () if *id == node(5) => node(0),
        () => id.clone(),
    };
    for ordinal in 0..6 {
        let says = other.says(ordinal);
        says.id = swap(&says.id);
        says.view = says.view.iter().map(|(id, peer)| (swap(id), peer.clone())).collect();
    }
    other.past.bindings.clear();
    other.remember();
    assert_eq!(told(&one, &[]).places, told(&other, &[]).places);
}

#[test]
fn pods_on_their_way_out_get_no_place() {
    let mut sketch = Sketch::of("0* | 1* | 2* | 3*-", 3, 1);
    let pod = sketch.seen.pods.get_mut(&crate::words::Ordinal(3)).unwrap();
    pod.deleting = Some(crate::plan::sketch::start());
    assert_eq!(told(&sketch, &[]).places, "0* | 1* | 2*");
}

#[test]
fn slots_of_a_home_are_what_its_shard_owns() {
    let sketch = Sketch::of("0* | 1* | 2*", 3, 0);
    let topology = sketch.topology();
    let places = Places::of(&topology, &[]);
    let all = places
        .homes
        .iter()
        .fold(SlotSet::new(), |all, home| all.union(&home.slots));
    assert_eq!(all, SlotSet::first(16_384));
    assert!(settle(&topology, &places, Which::All).steps.is_empty());
}
