//! The commit protocol, searched exhaustively in small worlds (the spec's section 10).
//!
//! Four worlds. [`race`]: two operators, three Subnets of one pool, so many writes (R21-R23, as the spec asks for it).
//! [`crowd`]: the same with any number of operators, to its end. [`tree`]: a child pool and its holder (R25, R26, R44), also to its
//! end, for pools that were labelled by hand and for those of a pool claim. What is decided in them is decided by the shipped
//! code; each question is put to it once. [`mutant`] has the mistakes that the search must find.
//!
//! `cargo test -p usher-subnets --test exhaustive -- --nocapture` prints how much was searched and, for each mistake, the
//! shortest way to the harm it does. `USHER_SEARCH_WRITES=7` searches the larger worlds; it takes minutes and a gigabyte.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_range_loop
)]

mod crowd;
mod decide;
mod explore;
mod family;
mod here;
mod mutant;
#[path = "../probe/mod.rs"]
mod probe;
mod questions;
mod race;
mod subnet;
mod tree;

use std::collections::HashSet;

use crowd::Crowd;
use explore::{Outcome, explore};
use family::{Child, Family, HOLDER, LEAF, Origin, PoolClaim, RIVAL};
use mutant::{Mutant, TreeMutant};
use questions::Questions;
use race::Race;
use tree::Tree;
use usher_subnets::api::SubnetPhase;

/// Writes in the world of two operators; more than that makes the other worlds larger, too.
const WRITES: usize = 6;
/// A world that has an end has it before this many writes.
const TO_THE_END: usize = 1000;
/// Mistakes show within this many writes.
const MUTANT_WRITES: usize = 12;

fn writes() -> usize {
    let asked = std::env::var("USHER_SEARCH_WRITES").ok();
    asked.map_or(WRITES, |text| {
        text.parse().expect("USHER_SEARCH_WRITES is a number of writes")
    })
}

fn assert_holds(what: &str, outcome: &Outcome) {
    println!("{what}: {outcome}");
    if let Some(story) = &outcome.violation {
        panic!("{what}, after {} writes:\n{story}", story.writes);
    }
}

fn assert_caught(mutant: &impl std::fmt::Debug, outcome: &Outcome) {
    let Some(story) = &outcome.violation else {
        panic!("{mutant:?} was not found out: {outcome}");
    };
    println!("{mutant:?}, after {} writes:\n{story}", story.writes);
}

#[test]
fn r21_to_r23_i1_i6_two_operators_never_overlap() {
    let outcome = explore(&mut Race::new(None), writes());
    assert_holds("two operators", &outcome);
    assert_eq!(outcome.layers.len(), writes() + 1, "it went as far as it should");
}

#[test]
fn r21_to_r23_i1_i6_any_number_of_operators_never_overlap() {
    let mut crowd = Crowd::new(None, writes() > WRITES);
    let outcome = explore(&mut crowd, TO_THE_END);
    assert_holds("any number of operators", &outcome);
    assert!(outcome.complete, "it has an end");
    // That nothing happens is not what was to be shown.
    let phases = |state: &u128| {
        let now = Crowd::now(*state);
        [0, 1, 2].map(|slot| crowd.decisions.catalogue.subnet(slot, now[slot]).and_then(|s| s.phase))
    };
    let reached: HashSet<_> = outcome.states.iter().map(phases).collect();
    let (allocated, failed) = (Some(SubnetPhase::Allocated), Some(SubnetPhase::Failed));
    for wanted in [
        [allocated, allocated, failed],
        [failed, failed, allocated],
        [Some(SubnetPhase::Released), allocated, None],
    ] {
        assert!(reached.contains(&wanted), "{wanted:?} was never reached");
    }
}

#[test]
fn what_two_operators_reach_any_number_of_them_reaches() {
    let (mut race, mut crowd) = (Race::new(None), Crowd::new(None, false));
    let (few, many) = (explore(&mut race, 4), explore(&mut crowd, 4));
    let reached: HashSet<[u8; 3]> = many.states.iter().map(|state| Crowd::now(*state)).collect();
    let missed = few.states.iter().find(|state| !reached.contains(&race.now(**state)));
    assert_eq!(missed, None, "the larger world leaves something out");
}

#[test]
fn the_plans_of_the_small_world_are_those_that_observe_leads_to() {
    let (mut race, mut compared) = (Race::new(None), 0);
    let outcome = explore(&mut race, 3);
    let views: HashSet<[u8; 3]> = outcome.states.iter().map(|state| race.now(*state)).collect();
    for view in &views {
        compared += race.decisions.compare_with_observe(*view);
    }
    // And with what only the larger world has.
    let numbers = race.decisions.catalogue.numbers();
    for (a, b, c) in numbers.map(|n| (n, n.wrapping_mul(7) % 146 + 1, n.wrapping_mul(31) % 146 + 1)) {
        compared += race.decisions.compare_with_observe([a, b, c]);
    }
    println!("{compared} plans on {} views compared", views.len());
    assert!(compared > 1000, "only {compared} were compared");
}

#[test]
fn every_mistake_in_r21_r22_and_r23_is_found() {
    for mutant in Mutant::ALL {
        assert_caught(&mutant, &explore(&mut Race::new(Some(mutant)), MUTANT_WRITES));
    }
}

fn assert_tree_holds(origin: Origin) -> Questions {
    let mut tree = Tree::new(Questions::new(Family::new(origin)), None);
    let outcome = explore(&mut tree, TO_THE_END);
    assert_holds(&format!("a child pool by {origin:?}"), &outcome);
    assert!(outcome.complete && outcome.layers.len() > MUTANT_WRITES, "{outcome}");
    let reached = |what: &str, wanted: &dyn Fn(Child, [Option<family::Member>; 3]) -> bool| {
        let found = outcome.states.iter().map(|state| tree.shown(*state));
        assert!(
            found.into_iter().any(|(child, members)| wanted(child, members)),
            "{what} was never reached"
        );
    };
    let has = |member: Option<family::Member>| member.is_some_and(|m| m.phase == Some(SubnetPhase::Allocated));
    let life = |child: Child| {
        if let Child::Some(pool) = child {
            Some(pool.life)
        } else {
            None
        }
    };
    reached("a Subnet in the second child pool", &|child, members| {
        life(child) == Some(1) && has(members[HOLDER]) && has(members[LEAF])
    });
    reached("a child pool on its way out with a Subnet in it", &|child, members| {
        matches!(child, Child::Some(pool) if pool.marked && pool.held) && has(members[LEAF])
    });
    reached("the range back in the parent after both", &|child, members| {
        child == Child::None { after: 2 } && members[HOLDER].is_none() && has(members[RIVAL])
    });
    reached("a holder on its way out while its pool lives", &|child, members| {
        life(child).is_some() && members[HOLDER].is_some_and(|holder| holder.marked && holder.settled())
    });
    if origin == Origin::PoolClaim {
        let gone = |state: &&u128| Tree::pool_claim(**state) == PoolClaim::Gone;
        let mut after = outcome.states.iter().filter(gone).map(|state| tree.shown(*state));
        let late = after.any(|(child, members)| child == Child::None { after: 2 } && members[HOLDER].is_some());
        assert!(late, "no Subnet ever came too late for its pool claim");
    }
    tree.questions
}

/// The mistakes that show in this kind of tree.
fn caught_in(mut questions: Questions) -> Vec<TreeMutant> {
    let mut caught = Vec::new();
    for mutant in TreeMutant::ALL {
        let mut tree = Tree::new(questions, Some(mutant));
        let outcome = explore(&mut tree, MUTANT_WRITES);
        if outcome.violation.is_some() {
            assert_caught(&mutant, &outcome);
            caught.push(mutant);
        }
        questions = tree.questions;
    }
    caught
}

#[test]
fn r25_r26_r44_i2_i4_i10_a_child_pool_and_its_parent_never_give_the_same_addresses_and_every_mistake_is_found() {
    let labelled = caught_in(assert_tree_holds(Origin::Label));
    let claimed = caught_in(assert_tree_holds(Origin::PoolClaim));
    for mutant in TreeMutant::ALL {
        assert!(
            labelled.contains(&mutant) || claimed.contains(&mutant),
            "{mutant:?} was not found out"
        );
    }
    // A holder that was made for a labelled pool goes only when that very pool is known to be gone: no list is needed for
    // it, nor a second look. It is a pool claim's holder, which serves one pool after the other, that R26 is for.
    let of_r25: Vec<_> = TreeMutant::ALL
        .into_iter()
        .filter(|mutant| mutant.is_of_r25())
        .collect();
    assert_eq!(labelled, of_r25);
}
