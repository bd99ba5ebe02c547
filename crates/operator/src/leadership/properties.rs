//! What the lease protocol promises, on random histories of [`super::model`].

use std::time::Duration;

use proptest::prelude::*;

use super::LeaseTiming;
use super::model::{Fault, Lost, Micros, Setup, Way, World};

const SECOND: Micros = 1_000_000;

fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap()
}

/// Any allowed timing. Often with the least margin there may be, and with looks so dense that one comes right after a
/// renewal: that is where drifting clocks show.
fn any_timing() -> impl Strategy<Value = LeaseTiming> {
    let margin_permille = prop_oneof![Just(20u32), 20u32..700];
    let renew_percent = prop_oneof![Just(1u32), 1u32..90];
    (1u64..15, margin_permille, renew_percent).prop_map(|(seconds, permille, percent)| {
        let duration = Duration::from_secs(seconds);
        let margin = duration * permille / 1_000;
        LeaseTiming {
            duration,
            margin,
            renew_every: ((duration - margin) * percent / 100).max(duration / 40),
        }
    })
}

fn any_setup() -> impl Strategy<Value = Setup> {
    let rate = prop_oneof![2 => Just(990_000), 2 => Just(1_010_000), 1 => 990_000u64..=1_010_000];
    (any_timing(), 0..100 * SECOND, rate).prop_map(|(timing, offset, rate)| Setup { timing, offset, rate })
}

fn any_way() -> impl Strategy<Value = Way> {
    let leg = || prop_oneof![6 => 0..SECOND / 20, 2 => 0..SECOND, 1 => 0..20 * SECOND];
    let lost = prop_oneof![8 => Just(Lost::Nothing), 1 => Just(Lost::Request), 1 => Just(Lost::Answer)];
    (leg(), leg(), lost).prop_map(|(there, back, lost)| Way { there, back, lost })
}

fn restarting() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => (0..30 * SECOND).prop_map(Fault::Pause),
        2 => (0..30 * SECOND).prop_map(Fault::Crash),
        1 => (0..30 * SECOND).prop_map(Fault::Release),
    ]
}

fn deleting() -> impl Strategy<Value = Fault> {
    prop_oneof![(0..30 * SECOND).prop_map(Fault::Pause), Just(Fault::Delete)]
}

/// How long faults go on.
const FAULTS_UNTIL: Micros = 80 * SECOND;

fn faults(fault: impl Strategy<Value = Fault>) -> impl Strategy<Value = Vec<(Micros, usize, Fault)>> {
    prop::collection::vec((0..FAULTS_UNTIL, 0usize..3, fault), 0..25)
}

fn world(setups: &[Setup], ways: Vec<Way>, faults: &[(Micros, usize, Fault)]) -> World {
    let mut world = World::new(setups, ways);
    for (at, who, fault) in faults {
        world.fault(*at, *who, *fault);
    }
    world
}

// More of each: PROPTEST_CASES=30000.
proptest! {
    #[test]
    fn two_never_act_at_once(
        setups in prop::collection::vec(any_setup(), 2..=3),
        ways in prop::collection::vec(any_way(), 1..60),
        faults in faults(restarting()),
    ) {
        let mut world = world(&setups, ways, &faults);
        world.run(2 * FAULTS_UNTIL, |_| false).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn two_never_act_at_once_when_the_lease_is_deleted_under_those_who_know_it(
        setups in prop::collection::vec(any_setup(), 2..=3),
        timing in any_timing(),
        ways in prop::collection::vec(any_way(), 1..60),
        faults in faults(deleting()),
    ) {
        // How long the deleted one was held is known only if all hold it equally long.
        let setups: Vec<Setup> = setups.into_iter().map(|setup| Setup { timing, ..setup }).collect();
        let mut world = world(&setups, ways, &faults);
        world.run(2 * FAULTS_UNTIL, |_| false).map_err(TestCaseError::fail)?;
    }

    /// The worst for drift: the holder's clock is slow, the other's fast, looks are dense, and the margin is the least.
    #[test]
    fn the_least_margin_is_enough_for_clocks_1_percent_off(
        seconds in 1u64..60, stops_at in SECOND / 10..100 * SECOND, leg in 0..SECOND / 1_000,
    ) {
        let duration = Duration::from_secs(seconds);
        let timing = LeaseTiming { duration, margin: duration / LeaseTiming::MARGIN_PART, renew_every: duration / 100 };
        let setups = [990_000, 1_010_000].map(|rate| Setup { timing, offset: 0, rate });
        let ways = vec![Way { there: leg, back: leg, lost: Lost::Nothing }];
        let mut world = world(&setups, ways, &[(stops_at, 0, Fault::Pause(200 * SECOND))]);
        world.run(stops_at, |_| false).map_err(TestCaseError::fail)?;
        prop_assert_eq!(world.acting(), [0]);
        prop_assert!(world.run(stops_at + 70 * SECOND, |w| w.acting() == [1]).map_err(TestCaseError::fail)?);
    }

    /// From whatever state the faults leave: somebody acts soon, and when that one dies, another does.
    #[test]
    fn when_the_holder_dies_another_acts_within_a_duration_and_two_looks(
        setups in prop::collection::vec(any_setup(), 2..=3),
        ways in prop::collection::vec(any_way(), 1..60),
        faults in faults(restarting()),
        quiet in 0..10 * SECOND,
        leg in 0u64..=100,
    ) {
        let mut world = world(&setups, ways, &faults);
        world.run(FAULTS_UNTIL, |_| false).map_err(TestCaseError::fail)?;
        // Requests now take at most a quarter of the shortest time limit, and of what a renewal has until the hold ends.
        let has = |t: LeaseTiming| t.request_timeout().min(t.valid_for() - t.renew_every);
        let limit = setups.iter().map(|s| micros(has(s.timing))).min().unwrap_or(0);
        let leg = limit * leg / 800;
        world.calm(vec![Way { there: leg, back: leg, lost: Lost::Nothing }]);
        prop_assert!(world.run(FAULTS_UNTIL + 200 * SECOND, World::settled).map_err(TestCaseError::fail)?);

        let longest = |of: fn(&LeaseTiming) -> Duration| setups.iter().map(|s| micros(of(&s.timing))).max().unwrap_or(0);
        // In true time, by the slowest clock; at most 6 requests one after the other.
        let slack = 12 * leg + SECOND / 100;
        let bound = (longest(|t| t.duration) + 2 * longest(|t| t.renew_every)) * 102 / 100 + slack;
        let somebody = |world: &World| !world.acting().is_empty();
        // What faults left under way may still cost one time limit.
        let first = world.now + bound + longest(|t| t.request_timeout()) * 2;
        prop_assert!(world.run(first, somebody).map_err(TestCaseError::fail)?, "nobody acts at all");

        // The last renewal of the bad times may yet run out before the first of the good ones.
        let settling = 2 * longest(|t| t.renew_every) + slack;
        world.run(world.now + settling + quiet, |_| false).map_err(TestCaseError::fail)?;
        let holders = world.acting();
        prop_assert_eq!(holders.len(), 1, "a healthy holder keeps the lease");
        world.kill_for_good(holders[0]);
        let end = world.now + bound;
        prop_assert!(world.run(end, somebody).map_err(TestCaseError::fail)?, "nobody acts {bound} us after the holder died");
        prop_assert_ne!(world.acting(), holders);
    }
}

/// The model is worth something only if leases change hands in it, in all the ways they can.
#[test]
fn in_the_model_leases_do_change_hands() {
    let second = Duration::from_secs(1);
    let timing = LeaseTiming {
        duration: 5 * second,
        renew_every: second,
        margin: second,
    };
    let setups = [990_000, 1_010_000].map(|rate| Setup {
        timing,
        offset: 0,
        rate,
    });
    let way = Way {
        there: 10_000,
        back: 10_000,
        lost: Lost::Nothing,
    };
    for fault in [Fault::Pause(20 * SECOND), Fault::Crash(SECOND), Fault::Release(SECOND)] {
        // Whoever holds it is struck every 30 s.
        let faults: Vec<_> = (1..6)
            .flat_map(|n| [0, 1].map(|who| (n * 30 * SECOND + who as u64 * 8 * SECOND, who, fault)))
            .collect();
        let mut world = world(&setups, vec![way], &faults);
        world.run(200 * SECOND, |_| false).unwrap();
        assert!(world.takeovers >= 5, "{fault:?}: {} takeovers", world.takeovers);
    }
}
