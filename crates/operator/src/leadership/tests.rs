//! The lease protocol by example.

use std::time::Duration;

use usher_engine::{ErrorClass, Moment};

use super::{Candidate, Decision, Guard, Leadership, LeaseTiming, LeaseView, Renewal, SharedLeadership, TimingError};

fn at(seconds: u64) -> Moment {
    Moment::after_start(Duration::from_secs(seconds))
}

fn timing(duration: u64, renew_every: u64, margin: u64) -> LeaseTiming {
    let seconds = Duration::from_secs;
    LeaseTiming {
        duration: seconds(duration),
        renew_every: seconds(renew_every),
        margin: seconds(margin),
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
            "--lease-seconds is 0ns; set it to whole seconds, from 1s to 3600s",
        ),
        (
            timing(4_000, 1, 100),
            "--lease-seconds is 4000s; set it to whole seconds, from 1s to 3600s",
        ),
        (
            LeaseTiming {
                duration: Duration::from_millis(1_500),
                ..timing(1, 1, 1)
            },
            "--lease-seconds is 1.5s; set it to whole seconds, from 1s to 3600s",
        ),
        (
            timing(15, 2, 15),
            "--lease-margin-ms is 15s; set it to at least 300ms (clocks drift) and less than --lease-seconds (15s)",
        ),
        (
            LeaseTiming {
                margin: Duration::from_millis(299),
                ..timing(15, 2, 5)
            },
            "--lease-margin-ms is 299ms; set it to at least 300ms (clocks drift) and less than --lease-seconds (15s)",
        ),
        (
            timing(15, 10, 5),
            "--lease-renew-ms is 10s; set it above 0 and below 10s, which is --lease-seconds less --lease-margin-ms",
        ),
        (
            timing(15, 0, 5),
            "--lease-renew-ms is 0ns; set it above 0 and below 10s, which is --lease-seconds less --lease-margin-ms",
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
