//! Every forgotten guard does harm that the search sees.

use crate::driver::mutant::Mutant;
use crate::paths::{Change, Event, Path};

/// Where a mutant's harm is looked for first.
fn changes(mutant: Mutant) -> Vec<Change> {
    let grow = Change::Scale {
        from: (3, 0),
        to: (4, 0),
    };
    let shrink = Change::Scale {
        from: (4, 1),
        to: (3, 1),
    };
    let roll = Change::Roll {
        masters: 3,
        replicas: 1,
    };
    let shrink_alone = Change::Scale {
        from: (4, 0),
        to: (3, 0),
    };
    match mutant {
        Mutant::NotReadyIsReady => vec![grow],
        Mutant::NoLinger | Mutant::ResetsBeforeMoving => vec![shrink_alone],
        Mutant::NoReset | Mutant::ShrinksEarly | Mutant::TailIsReplica => vec![shrink],
        Mutant::NoHandOver | Mutant::RestartsAll | Mutant::TakesOver | Mutant::HandOversPileUp => vec![roll],
        Mutant::DirtyIsClean => vec![Change::DirtyReturn],
    }
}

/// The first harm that a mutant does, as a story: on a path that does no harm without it.
fn harm(mutant: Mutant) -> Option<String> {
    let events = [None, Some(Event::Unseen), Some(Event::PrimaryKilled)];
    for event in events {
        for change in changes(mutant) {
            for at in [4, 12] {
                let shipped = Path {
                    change,
                    seed: crate::seed(),
                    event: event.map(|event| (event, at)),
                    mutant: None,
                };
                let broken = Path {
                    mutant: Some(mutant),
                    ..shipped
                };
                if let (Err(story), Ok(_)) = (broken.walk(), shipped.walk()) {
                    return Some(story.to_string());
                }
                if event.is_none() {
                    break;
                }
            }
        }
    }
    None
}

#[test]
fn every_forgotten_guard_is_caught() {
    let mut survivors = Vec::new();
    for mutant in Mutant::ALL {
        match harm(mutant) {
            Some(story) => {
                let end: Vec<&str> = story.lines().rev().take(4).collect();
                println!("{mutant:?}:");
                for line in end.into_iter().rev() {
                    println!("{}", line.chars().take(300).collect::<String>());
                }
            }
            None => survivors.push(mutant),
        }
    }
    assert!(survivors.is_empty(), "not caught: {survivors:?}");
}
