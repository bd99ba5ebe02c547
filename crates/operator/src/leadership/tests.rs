use std::time::Duration;

use proptest::prelude::*;
use usher_engine::{ErrorClass, Moment};

use super::model::{Fault, Lost, Micros, Setup, Way, World};
use super::{Candidate, Decision, Guard, Leadership, LeaseTiming, LeaseView, Renewal, SharedLeadership, TimingError};

const SECOND: Micros = 1_000_000;

fn at(seconds: u64) -> Moment {
    Moment::after_start(Duration::from_secs(seconds))
}

fn timing(duration: u64, renew_every: u64, margin: u64) -> LeaseTiming {
    LeaseTiming {
        duration: Duration::from_secs(duration),
        renew_every: Duration::from_secs(renew_every),
        margin: Duration::from_secs(margin),
    }
}

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
            renew_every: ((duration - margin) * percent / 100).max(duration / 100),
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

const FAULTS_UNTIL: Micros = 120 * SECOND;

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

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
        // Requests now take at most a quarter of the shortest time limit.
        let limit = setups.iter().map(|s| micros(s.timing.request_timeout())).min().unwrap_or(0);
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
    let setups = [990_000, 1_010_000].map(|rate| Setup {
        timing: timing(5, 1, 1),
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

#[test]
fn leadership_counts_from_before_the_renewal_was_sent() {
    let mut leadership = Leadership::never_held();
    assert!(!leadership.may_act(at(0)));
    leadership.renewed(at(100), Duration::from_secs(10));
    assert!(leadership.may_act(at(109)));
    assert!(!leadership.may_act(at(110)), "the last moment is not ours");
    leadership.renewed(at(90), Duration::from_secs(10));
    assert_eq!(
        leadership.held_until(),
        Some(at(110)),
        "an older renewal does not shorten a newer one"
    );
    leadership.lost();
    assert!(!leadership.may_act(at(100)));
    assert_eq!(leadership.held_until(), None);
}

#[test]
fn without_a_lease_one_always_may() {
    let mut leadership = Leadership::without_lease();
    leadership.lost();
    leadership.renewed(at(0), Duration::ZERO);
    assert!(leadership.may_act(at(1_000_000)));
    assert_eq!(leadership.held_until(), None);
}

#[test]
fn timings_that_cannot_work_are_refused_with_flag_and_fix() {
    let half = Duration::from_millis(500);
    let cases = [
        (
            timing(0, 1, 1),
            "--lease-duration is 0ns; set it to whole seconds, from 1s to 3600s",
        ),
        (
            timing(4_000, 1, 100),
            "--lease-duration is 4000s; set it to whole seconds, from 1s to 3600s",
        ),
        (
            LeaseTiming {
                duration: Duration::from_millis(1_500),
                ..timing(1, 1, 1)
            },
            "--lease-duration is 1.5s; set it to whole seconds, from 1s to 3600s",
        ),
        (
            timing(15, 2, 15),
            "--lease-margin is 15s; set it to at least 300ms (clocks drift) and less than --lease-duration (15s)",
        ),
        (
            LeaseTiming {
                margin: Duration::from_millis(299),
                ..timing(15, 2, 5)
            },
            "--lease-margin is 299ms; set it to at least 300ms (clocks drift) and less than --lease-duration (15s)",
        ),
        (
            timing(15, 10, 5),
            "--lease-renew-every is 10s; set it above 0 and below 10s, which is --lease-duration less --lease-margin",
        ),
        (
            timing(15, 0, 5),
            "--lease-renew-every is 0ns; set it above 0 and below 10s, which is --lease-duration less --lease-margin",
        ),
    ];
    for (timing, message) in cases {
        let error = Candidate::new("me", timing).err().unwrap();
        assert_eq!(error.to_string(), message);
        assert_eq!(error.class(), ErrorClass::Validation);
    }
    assert_eq!(LeaseTiming::default().validate(), Ok(()));
    assert_eq!(
        LeaseTiming {
            renew_every: half,
            margin: half / 2,
            ..timing(1, 0, 0)
        }
        .validate(),
        Ok(())
    );
    assert!(matches!(timing(1, 1, 1).validate(), Err(TimingError::Margin { .. })));
}

fn lease(holder: &str, rv: &str, transitions: i32) -> LeaseView {
    let holder = (!holder.is_empty()).then(|| holder.to_owned());
    LeaseView {
        holder,
        rv: rv.to_owned(),
        duration_seconds: Some(15),
        transitions,
    }
}

fn me() -> Candidate {
    Candidate::new("me", LeaseTiming::default()).unwrap()
}

fn acquire(guard: Guard, transitions: i32) -> Decision {
    Decision::Acquire { guard, transitions }
}

fn version(rv: &str) -> Guard {
    Guard::Version(rv.to_owned())
}

#[test]
fn a_new_cluster_is_led_at_once() {
    let mut me = me();
    assert_eq!(me.decide(at(0)), Decision::Look);
    me.observe(None, at(0));
    assert_eq!(me.decide(at(0)), acquire(Guard::Absent, 0));
}

#[test]
fn anothers_lease_is_taken_only_after_its_own_duration_unchanged_before_my_eyes() {
    let mut me = me();
    let other = |rv: &str| LeaseView {
        duration_seconds: Some(40),
        ..lease("other", rv, 3)
    };
    me.observe(Some(&other("7")), at(100));
    for second in (101..140).step_by(2) {
        me.observe(Some(&other("7")), at(second));
        assert!(matches!(me.decide(at(second)), Decision::Wait(_)), "{second}");
    }
    assert_eq!(
        me.decide(at(139)),
        Decision::Wait(Duration::from_secs(1)),
        "until it is ripe, not until the next look"
    );
    assert_eq!(me.decide(at(140)), acquire(version("7"), 4));
    me.observe(Some(&other("8")), at(139));
    assert!(
        matches!(me.decide(at(140)), Decision::Wait(_)),
        "it was renewed: from the start"
    );
    assert_eq!(me.decide(at(141)), Decision::Look);
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let mut me = me();
    me.observe(Some(&lease("", "7", 3)), at(0));
    assert_eq!(me.decide(at(0)), acquire(version("7"), 4));
}

#[test]
fn a_deleted_lease_is_waited_out_by_who_knew_it() {
    let mut me = me();
    me.observe(
        Some(&LeaseView {
            duration_seconds: Some(30),
            ..lease("other", "7", 3)
        }),
        at(0),
    );
    me.observe(None, at(1));
    me.observe(None, at(30));
    assert!(matches!(me.decide(at(30)), Decision::Wait(_)));
    assert_eq!(me.decide(at(31)), acquire(Guard::Absent, 0));
}

#[test]
fn the_holder_renews_from_when_it_sent_the_last_one() {
    let mut me = me();
    me.observe(None, at(0));
    let write = me.decide(at(0));
    me.sending(&write, at(10));
    assert!(!me.is_holder());
    let renewal = me.stored(&lease("me", "1", 0), at(11));
    assert_eq!(
        renewal,
        Renewal {
            sent_at: at(10),
            valid_for: Duration::from_secs(10),
            acquired: true
        }
    );
    assert_eq!(me.decide(at(11)), Decision::Wait(Duration::from_secs(1)));
    let renew = Decision::Renew {
        guard: version("1"),
        transitions: 0,
    };
    assert_eq!(me.decide(at(12)), renew);
    me.sending(&renew, at(12));
    me.unanswered(at(13));
    assert_eq!(me.decide(at(13)), Decision::Wait(Duration::from_millis(500)));
    assert_eq!(
        me.decide(at(14)),
        renew,
        "the same once more: if the first took effect, it is refused"
    );
    me.sending(&renew, at(14));
    me.refused();
    assert_eq!(me.decide(at(14)), Decision::Look);
    me.observe(Some(&lease("me", "2", 0)), at(14));
    assert!(me.is_holder());
    assert_eq!(
        me.decide(at(14)),
        Decision::Renew {
            guard: version("2"),
            transitions: 0
        }
    );
    assert!(!me.stored(&lease("me", "3", 0), at(15)).acquired);
}

#[test]
fn another_holder_in_the_lease_ends_it_at_once() {
    let mut me = me();
    let write = acquire(version("0"), 1);
    me.sending(&write, at(0));
    let _ = me.stored(&lease("me", "1", 1), at(0));
    assert_eq!((me.is_holder(), me.other_holder()), (true, None));
    me.observe(Some(&lease("other", "2", 2)), at(1));
    assert_eq!((me.is_holder(), me.other_holder()), (false, Some("other")));
    assert_eq!(me.releasable(), None);
}

#[test]
fn a_claim_that_took_effect_unanswered_is_recognised() {
    let mut me = me();
    me.observe(Some(&lease("", "7", 3)), at(0));
    let write = me.decide(at(0));
    me.sending(&write, at(0));
    me.unanswered(at(2));
    assert_eq!(me.decide(at(2)), Decision::Wait(Duration::from_secs(2)));
    assert_eq!(me.decide(at(4)), Decision::Look);
    me.observe(Some(&lease("", "7", 3)), at(4));
    assert!(!me.is_holder(), "not yet");
    me.observe(Some(&lease("me", "8", 4)), at(5));
    assert!(me.is_holder());
    assert_eq!(
        me.decide(at(5)),
        Decision::Renew {
            guard: version("8"),
            transitions: 4
        },
        "before acting, a renewal"
    );
}

#[test]
fn what_my_predecessor_or_twin_of_the_same_name_holds_is_not_mine() {
    let mut me = me();
    me.observe(Some(&lease("me", "7", 3)), at(0));
    assert!(!me.is_holder());
    assert!(matches!(me.decide(at(0)), Decision::Wait(_)));
    assert_eq!(me.decide(at(15)), acquire(version("7"), 4));
    // The twin was faster: the same name and number, but the server refused mine.
    me.sending(&acquire(version("7"), 4), at(15));
    me.refused();
    me.observe(Some(&lease("me", "8", 4)), at(16));
    assert!(!me.is_holder());
    // And when it takes over what I held.
    me.sending(&acquire(version("8"), 5), at(40));
    let _ = me.stored(&lease("me", "9", 5), at(40));
    me.observe(Some(&lease("me", "10", 6)), at(80));
    assert!(!me.is_holder());
}

#[test]
fn a_lease_without_or_with_an_absurd_duration_locks_nobody_out() {
    for (said, ripe) in [(None, 15), (Some(0), 15), (Some(u32::MAX), 3_600)] {
        let mut me = me();
        me.observe(
            Some(&LeaseView {
                duration_seconds: said,
                ..lease("other", "7", 3)
            }),
            at(0),
        );
        me.observe(
            Some(&LeaseView {
                duration_seconds: said,
                ..lease("other", "7", 3)
            }),
            at(ripe - 1),
        );
        assert_eq!(me.decide(at(ripe - 1)), Decision::Wait(Duration::from_secs(1)));
        assert_eq!(me.decide(at(ripe)), acquire(version("7"), 4));
    }
}

#[test]
fn whoever_was_refused_hears_of_the_next_yes() {
    let shared = SharedLeadership::never_held();
    let mut bell = shared.subscribe();
    let renewal = |sent| Renewal {
        sent_at: at(sent),
        valid_for: Duration::from_secs(10),
        acquired: false,
    };
    shared.renewed(renewal(0));
    assert!(bell.has_changed().unwrap() && *bell.borrow_and_update());
    shared.renewed(renewal(2));
    assert!(!bell.has_changed().unwrap(), "renewals are no news");
    // The whole process stood still past its hold; nobody noted the end, but a pass was refused.
    assert!(!shared.may_act(at(12)));
    shared.renewed(renewal(12));
    assert!(bell.has_changed().unwrap() && *bell.borrow_and_update());
    assert!(!shared.note_end(at(21)), "it still holds");
    assert!(shared.note_end(at(22)) && !*bell.borrow_and_update());
    assert!(!shared.note_end(at(23)), "said once");
    shared.renewed(renewal(24));
    assert!(shared.lost() && !shared.lost());
    assert!(!*bell.borrow());
    assert!(!SharedLeadership::without_lease().lost());
    assert!(*SharedLeadership::without_lease().subscribe().borrow());
}
