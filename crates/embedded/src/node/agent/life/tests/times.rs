//! N9, N10: when things happen, by a clock that is told.

use serde_json::json;

use super::*;

/// Programs that end at once: when each attempt is started, in seconds.
fn starts(world: &mut World, most: usize) -> Vec<i64> {
    let mut starts = Vec::new();
    while starts.len() < most {
        let decision = world.decide();
        match decision.steps.first() {
            Some(Step::Start { container, attempt }) => {
                starts.push(world.now.as_second() - at(0).as_second());
                world.exits(container, *attempt, 1);
            }
            Some(step) => panic!("{step:?} at {}", world.now),
            None => world.now = decision.wake.unwrap(),
        }
    }
    starts
}

#[test]
fn n10_a_crash_loop_is_started_at_once_and_then_after_ten_seconds_twice_as_long_each_time_up_to_300() {
    let mut world = World::new(json!({"containers": [{"name": "c"}]}));
    assert_eq!(starts(&mut world, 9), [0, 0, 10, 30, 70, 150, 310, 610, 910]);
}

#[test]
fn n9_who_says_nothing_of_grace_has_thirty_seconds_between_signal_and_end() {
    let mut world = World::new(json!({"containers": [{"name": "c"}]}));
    world.runs("c", 0);
    world.decide();
    world.pass(5);
    world.deleted(30);
    assert_eq!(world.steps(), [stop("c", 0, 30)]);
    // The supervisor kills at the end of the grace, whoever is there to ask it then.
    world.is_asked_to_stop("c", 0, 30);
    world.pass(29);
    let decision = world.decide();
    assert!(decision.steps.is_empty());
    assert_eq!(decision.status.phase.as_deref(), Some("Running"));
    world.pass(1);
    world.exits("c", 0, 137);
    assert_eq!(world.steps(), [Step::End]);
    world.supervisor = Supervisor::Over;
    let decision = world.decide();
    assert_eq!(decision.steps, [Step::Remove], "and only now the object goes");
    let end = &status(&decision, "c")["state"]["terminated"];
    assert_eq!((&end["exitCode"], &end["reason"]), (&json!(137), &json!("Error")));
    let seconds = |value: &Value| value.as_str().unwrap().parse::<Timestamp>().unwrap();
    assert_eq!(seconds(&end["finishedAt"]), at(35));
}
