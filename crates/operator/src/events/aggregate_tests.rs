use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use usher_engine::ObjectKey;

use super::*;

const REASONS: [&str; 3] = ["SubnetAllocated", "SubnetReleased", "RangeLost"];

fn about(n: usize) -> About {
    About {
        api_version: "plexaubnet.io/v1alpha1".into(),
        kind: "SubnetClaim".into(),
        key: ObjectKey::new("default", format!("claim-{n}")).unwrap(),
        uid: format!("uid-{n}"),
        resource_version: "7".into(),
    }
}

fn pool() -> Within {
    Within {
        about: About {
            kind: "SubnetPool".into(),
            uid: "pool-uid".into(),
            ..about(9_999)
        },
        words: Some(["claim bound", "claims bound"]),
    }
}

fn at(millis: u64) -> Moment {
    Moment::after_start(Duration::from_millis(millis))
}

#[test]
fn the_same_event_told_n_times_is_one_create_and_bumps() {
    let mut judge = Aggregator::new(Limits::default(), "test");
    let Verdict::Create { name } = judge.offer(&about(1), None, "RangeLost", "10.0.0.0/24", at(0)) else {
        panic!("the first is new")
    };
    for count in 2..=60 {
        let verdict = judge.offer(&about(1), None, "RangeLost", "10.0.0.0/24", at(u64::from(count)));
        assert_eq!(
            verdict,
            Verdict::Bump {
                name: name.clone(),
                count
            }
        );
    }
    // Another note, reason or object is another event.
    for (n, reason, note) in [
        (1, "RangeLost", "10.0.1.0/24"),
        (1, "OutOfRange", "10.0.0.0/24"),
        (2, "RangeLost", "10.0.0.0/24"),
    ] {
        assert!(matches!(
            judge.offer(&about(n), None, reason, note, at(61)),
            Verdict::Create { .. }
        ));
    }
    assert_eq!(judge.remembered(), 4);
}

#[test]
fn a_series_ends_after_ten_quiet_minutes() {
    let mut judge = Aggregator::new(Limits::default(), "test");
    judge.offer(&about(1), None, "RangeLost", "x", at(0));
    assert!(matches!(
        judge.offer(&about(1), None, "RangeLost", "x", at(599_999)),
        Verdict::Bump { count: 2, .. }
    ));
    assert!(matches!(
        judge.offer(&about(1), None, "RangeLost", "x", at(1_199_999)),
        Verdict::Create { .. }
    ));
    assert_eq!(judge.remembered(), 1);
}

#[test]
fn what_was_not_made_is_made_the_next_time() {
    let mut judge = Aggregator::new(Limits::default(), "test");
    judge.offer(&about(1), None, "RangeLost", "x", at(0));
    judge.forget(&about(1), "RangeLost", "x");
    assert!(matches!(
        judge.offer(&about(1), None, "RangeLost", "x", at(1)),
        Verdict::Create { .. }
    ));
}

#[test]
fn counts_that_were_shed_are_carried_by_the_next_bump() {
    let limits = Limits {
        burst: 2,
        per_second: 1,
        ..Limits::default()
    };
    let mut judge = Aggregator::new(limits, "test");
    let verdicts: Vec<Verdict> = (0..5)
        .map(|_| judge.offer(&about(1), None, "RangeLost", "x", at(0)))
        .collect();
    assert!(matches!(verdicts[1], Verdict::Bump { count: 2, .. }));
    assert_eq!(verdicts[2..], [Verdict::Shed, Verdict::Shed, Verdict::Shed]);
    assert!(matches!(
        judge.offer(&about(1), None, "RangeLost", "x", at(1_000)),
        Verdict::Bump { count: 6, .. }
    ));
}

#[test]
fn a_storm_is_summed_up_on_the_larger_object_once_in_ten_seconds() {
    let mut judge = Aggregator::new(
        Limits {
            burst: 3,
            per_second: 1,
            ..Limits::default()
        },
        "test",
    );
    for n in 0..20 {
        judge.offer(&about(n), Some(&pool()), "SubnetAllocated", "x", at(0));
    }
    judge.offer(&about(1), None, "RangeLost", "x", at(1));
    assert_eq!(judge.summary(at(9_999)), None);
    let summary = judge.summary(at(10_000)).unwrap();
    assert_eq!(summary.note(), "17 claims bound, without events of their own");
    assert_eq!(summary.on.as_ref().unwrap().0, pool().about);
    assert_eq!(judge.summary(at(10_000)), None, "the other has not waited long enough");
    let other = judge.summary(at(10_001)).unwrap();
    assert_eq!(
        (other.on.clone(), other.note().as_str()),
        (None, "1 more RangeLost event was not written one by one")
    );
    assert_eq!(judge.summary(at(60_000)), None);
}

/// A told thing: milliseconds since the one before, object, reason, note, and whether it is within the pool.
fn tellings() -> impl Strategy<Value = Vec<(u64, usize, usize, usize, bool)>> {
    let gap = prop_oneof![8 => 0u64..30, 2 => 100u64..1_500, 1 => 300_000u64..700_000];
    prop::collection::vec(
        (gap, 0usize..6, 0usize..REASONS.len(), 0usize..2, any::<bool>()),
        1..400,
    )
}

proptest! {
    #[test]
    fn writes_keep_within_rate_and_burst_and_memory_within_its_bound(
        tellings in tellings(), per_second in 1u32..30, burst in 1u32..30, series in 1usize..50,
    ) {
        let limits = Limits { per_second, burst, series, ..Limits::default() };
        let mut judge = Aggregator::new(limits, "test");
        let (mut now, mut writes, mut names) = (0, Vec::new(), BTreeSet::new());
        let (mut offered, mut passed, mut summed) = (0u64, 0u64, 0u64);
        let mut last_summary: BTreeMap<_, u64> = BTreeMap::new();
        for (gap, object, reason, note, inside) in tellings {
            now += gap;
            while let Some(summary) = judge.summary(at(now)) {
                summed += summary.count;
                let on = summary.on.as_ref().map(|(on, _)| on.uid.clone());
                if let Some(before) = last_summary.insert((on, summary.kind, summary.reason), now) {
                    prop_assert!(now - before >= 10_000, "two summaries within ten seconds");
                }
                if let Some((_, name)) = summary.on {
                    prop_assert!(names.insert(name), "a name given twice");
                    writes.push(now);
                }
            }
            offered += 1;
            let within = inside.then(pool);
            match judge.offer(&about(object), within.as_ref(), REASONS[reason], &note.to_string(), at(now)) {
                Verdict::Shed => continue,
                Verdict::Create { name } => prop_assert!(names.insert(name), "a name given twice"),
                Verdict::Bump { name, count } => prop_assert!(names.contains(&name) && count >= 2),
            }
            passed += 1;
            writes.push(now);
            prop_assert!(judge.remembered() <= series);
        }
        for (i, start) in writes.iter().enumerate() {
            let within = writes[i..].iter().take_while(|w| *w - start < 1_000).count();
            prop_assert!(within as u32 <= burst + per_second + 1, "{within} writes in one second");
        }
        // Nothing is lost in silence: what was offered was written, summed up, or waits to be.
        for _ in 0..10 {
            now += 60_000;
            summed += std::iter::from_fn(|| judge.summary(at(now))).map(|summary| summary.count).sum::<u64>();
        }
        prop_assert!(offered == passed + summed, "{offered} offered, {passed} passed, {summed} summed up");
    }

    #[test]
    fn within_one_series_the_counts_only_grow_and_there_is_one_create(times in prop::collection::vec(0u64..500_000, 1..50)) {
        let mut judge = Aggregator::new(Limits::default(), "test");
        let (mut now, mut creates, mut last) = (0, 0, 1);
        for gap in times {
            now += gap;
            match judge.offer(&about(1), None, "RangeLost", "x", at(now)) {
                Verdict::Create { .. } => creates += 1,
                Verdict::Bump { count, .. } => {
                    prop_assert_eq!(count, last + 1);
                    last = count;
                }
                Verdict::Shed => prop_assert!(false, "fifty fit the burst"),
            }
        }
        prop_assert_eq!(creates, 1);
    }
}
