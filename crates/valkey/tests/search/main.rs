//! Small worlds, looked at from every side: eight slots, three to six shards (a spec wants three at the least), none or one
//! replica. Wherever a change stands, something happens to it (the operator dies, a server dies, a primary becomes another, a pass is made on what was seen a
//! moment ago, twice over, a command lies, somebody edits again), and from there it must come to rest. The invariants of
//! the spec are looked at at every point (`driver/audit.rs`).
//!
//! `USHER_SEED=7` begins elsewhere; `USHER_SEARCH=10` looks at ten times as many points. A failure prints its path.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../driver/mod.rs"]
mod driver;
mod mutants;
mod paths;

use paths::{Change, Event, Path};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

fn seed() -> u64 {
    number("USHER_SEED", 1)
}

/// Walks a change with nothing else happening, then again with each event at points spread over it.
fn search(change: Change, points: u64) {
    let calm = Path {
        change,
        seed: seed(),
        event: None,
        mutant: None,
    };
    let worlds = calm.walk().unwrap_or_else(|story| panic!("{story}"));
    let length = worlds.len();
    let points = usize::try_from(points * number("USHER_SEARCH", 1)).unwrap().min(length);
    let (mut walked, mut stories) = (0, Vec::new());
    for (turn, event) in Event::ALL.into_iter().enumerate() {
        for point in 0..points {
            // Each event has points of its own.
            let at = (point * length / points + turn * 7) % length;
            let path = Path {
                event: Some((event, at)),
                ..calm
            };
            if let Err(story) = path.walk_on(worlds[at].clone(), at) {
                stories.push(story.to_string());
            }
            walked += 1;
        }
    }
    println!("{change:?}: {length} passes, {walked} paths with something in between");
    assert!(
        stories.is_empty(),
        "{} paths go wrong:\n{}",
        stories.len(),
        stories.join("\n\n")
    );
}

macro_rules! searches {
    ($($name:ident: $change:expr, $points:expr;)*) => {$(
        #[test]
        fn $name() {
            search($change, $points);
        }
    )*};
}

searches! {
    i1_to_i12_hold_when_a_cluster_is_created: Change::Create { masters: 3, replicas: 1 }, 3;
    i1_to_i12_hold_when_a_cluster_grows: Change::Scale { from: (3, 0), to: (4, 0) }, 3;
    i1_to_i12_hold_when_a_cluster_with_replicas_grows: Change::Scale { from: (3, 1), to: (4, 1) }, 3;
    i1_to_i12_hold_when_a_cluster_shrinks: Change::Scale { from: (4, 1), to: (3, 1) }, 3;
    i1_to_i12_hold_when_a_cluster_without_replicas_shrinks: Change::Scale { from: (4, 0), to: (3, 0) }, 3;
    i1_to_i12_hold_when_replicas_come: Change::Scale { from: (3, 0), to: (3, 1) }, 3;
    i1_to_i12_hold_when_replicas_go: Change::Scale { from: (3, 1), to: (3, 0) }, 3;
    i1_to_i12_hold_when_both_change: Change::Scale { from: (4, 0), to: (3, 1) }, 3;
    i1_to_i12_hold_in_a_roll: Change::Roll { masters: 3, replicas: 1 }, 3;
    i1_to_i12_hold_in_a_roll_without_replicas: Change::Roll { masters: 3, replicas: 0 }, 3;
    i1_to_i12_hold_when_a_dirty_volume_comes_back: Change::DirtyReturn, 3;
}

/// I6: without faults the slots that move are the least there can be, each at most once.
#[test]
fn i6_slots_move_as_little_as_arithmetic_demands() {
    let sizes = [
        ((3, 0), (4, 0)),
        ((4, 0), (3, 0)),
        ((3, 1), (6, 1)),
        ((6, 1), (3, 1)),
        ((5, 0), (3, 0)),
        ((4, 0), (3, 1)),
    ];
    for (from, to) in sizes {
        let mut driver = driver::Driver::running(driver::small(seed()), from.0, from.1);
        driver.resize(to.0, to.1);
        driver
            .settle(600)
            .unwrap_or_else(|why| panic!("{from:?} to {to:?}: {why}"));
        assert_eq!(driver.audit.moves(), driver.audit.least, "{from:?} to {to:?}");
        assert!(
            driver.audit.moved_again.is_empty(),
            "moved twice: {}",
            driver.audit.moved_again
        );
        assert_eq!(driver.world.clients.troubles, []);
    }
}

/// I13: other ids, other hashes, and the same steps on the same pods.
#[test]
fn i13_roles_come_from_what_servers_say_and_never_from_ids() {
    let run = |salt: u64| {
        let mut setup = driver::small(seed());
        setup.salt = salt;
        let mut driver = driver::Driver::running(setup, 3, 1);
        driver.resize(4, 1);
        driver.settle(600).unwrap_or_else(|why| panic!("{why}"));
        driver::picture(&driver.world)
    };
    let first = run(1);
    for salt in 2..6 {
        assert_eq!(run(salt), first, "salt {salt}");
    }
}
