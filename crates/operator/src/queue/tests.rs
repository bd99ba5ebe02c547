//! The queue's rules by example; those of the specification by their numbers.

use std::sync::Mutex;
use std::time::Duration;

use usher_engine::{Moment, ObjectKey};

use super::{Finish, Queue, QueueConfig, Why};

const MS: fn(u64) -> Duration = Duration::from_millis;

fn at(millis: u64) -> Moment {
    Moment::after_start(MS(millis))
}

fn config(passes_at_once: usize) -> QueueConfig {
    QueueConfig {
        passes_at_once,
        ..QueueConfig::default()
    }
}

#[test]
fn m5_create_and_delete_at_once_from_many_threads_is_one_entry() {
    let queue = Mutex::new(Queue::new(QueueConfig::default()));
    let key = ObjectKey::new("ns", "pool").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (queue, key) = (&queue, &key);
            scope.spawn(move || {
                for i in 0..500 {
                    let why = if (thread + i) % 2 == 0 {
                        Why::CREATE
                    } else {
                        Why::DELETE
                    };
                    queue.lock().unwrap().push(key.clone(), at(i), why);
                }
            });
        }
    });
    let mut queue = queue.into_inner().unwrap();
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.counters().adds, 4_000);
    assert_eq!(queue.counters().coalesced, 3_999);
    assert_eq!(
        queue.pop(at(500)).unwrap().whys,
        [(Why::CREATE, 2_000), (Why::DELETE, 2_000)]
    );
    assert_eq!(queue.pop(at(500)), None);
}

#[test]
fn m6_duplicates_are_one_entry_also_while_rate_limited_and_forgotten_after_success() {
    let mut queue = Queue::new(QueueConfig {
        retry_burst: 1,
        retry_per_second: 1,
        ..config(1)
    });
    for key in ["a", "b"] {
        queue.push(key, at(0), Why::CREATE);
        queue.pop(at(0)).unwrap();
        queue.finish(&key, at(0), Finish::Failed);
    }
    assert_eq!(queue.next_due(), Some(at(50)), "a has the only token");
    queue.pop(at(50)).unwrap();
    queue.finish(&"a", at(50), Finish::Done);
    assert_eq!(
        queue.next_due(),
        Some(at(1_050)),
        "b waits a second for its token, and its back-off"
    );
    for _ in 0..10 {
        queue.push("b", at(2_000), Why::UPDATE);
    }
    assert_eq!(
        (queue.len(), queue.next_due()),
        (1, Some(at(1_050))),
        "later wakes join it where it stands"
    );
    let job = queue.pop(at(1_050)).unwrap();
    assert_eq!((job.attempt, job.whys), (1, vec![(Why::RETRY, 1), (Why::UPDATE, 10)]));
    queue.finish(&"b", at(1_060), Finish::Done);
    assert_eq!((queue.len(), queue.failures(&"b")), (0, 0));
    queue.push("b", at(1_070), Why::CREATE);
    assert_eq!(queue.pop(at(1_070)).unwrap().attempt, 0);
}

#[test]
fn m10_back_off_is_50_75_112_ms_to_30_s_and_starts_over_after_success() {
    let mut queue = Queue::new(config(1));
    queue.push("a", at(0), Why::CREATE);
    let mut now = Moment::START;
    let mut waits = Vec::new();
    for attempt in 0..25 {
        let job = queue.pop(now).unwrap();
        assert_eq!(job.attempt, attempt);
        assert_eq!(job.whys, [(if attempt == 0 { Why::CREATE } else { Why::RETRY }, 1)]);
        queue.finish(&"a", now, Finish::Failed);
        let due = queue.next_due().unwrap();
        waits.push(due.since(now));
        now = due;
    }
    let micros: Vec<u128> = waits.iter().take(3).map(Duration::as_micros).collect();
    assert_eq!(micros, [50_000, 75_000, 112_500]);
    assert!(waits.is_sorted());
    assert_eq!(waits.last(), Some(&Duration::from_secs(30)));
    queue.pop(now).unwrap();
    queue.finish(&"a", now, Finish::Done);
    queue.push("a", now, Why::UPDATE);
    assert_eq!(queue.pop(now).unwrap().attempt, 0);
    queue.finish(&"a", now, Finish::Failed);
    assert_eq!(queue.next_due(), Some(now + MS(50)));
}

#[test]
fn news_runs_at_once_while_the_key_backs_off_and_keeps_its_failures() {
    let mut queue = Queue::new(config(1));
    queue.push("a", at(0), Why::CREATE);
    for _ in 0..10 {
        let now = queue.next_due().unwrap();
        queue.pop(now).unwrap();
        queue.finish(&"a", now, Finish::Failed);
    }
    let news = queue.next_due().unwrap() - MS(1_000);
    queue.push("a", news, Why::UPDATE);
    let job = queue.pop(news).unwrap();
    assert_eq!(
        (job.attempt, job.whys, job.waited),
        (10, vec![(Why::RETRY, 1), (Why::UPDATE, 1)], Duration::ZERO)
    );
}

#[test]
fn a_first_wake_never_waits_for_a_token() {
    let mut queue = Queue::new(QueueConfig {
        retry_burst: 1,
        retry_per_second: 1,
        ..config(1)
    });
    for key in 0..100 {
        queue.push(key, at(0), Why::CREATE);
        assert_eq!(queue.pop(at(0)).unwrap().key, key);
        queue.finish(&key, at(0), Finish::Failed);
    }
    queue.push(1_000, at(1), Why::CREATE);
    assert_eq!(queue.pop(at(1)).unwrap().key, 1_000);
}

#[test]
fn a_busy_failing_key_does_not_spend_the_tokens_of_others() {
    let mut queue = Queue::new(QueueConfig {
        retry_burst: 10,
        retry_per_second: 10,
        ..config(1)
    });
    for now in 0..1_000 {
        queue.push("busy", at(now), Why::UPDATE);
        assert_eq!(queue.pop(at(now)).unwrap().key, "busy");
        queue.finish(&"busy", at(now), Finish::Failed);
    }
    queue.push("other", at(1_000), Why::UPDATE);
    let other = queue.pop(at(1_000)).unwrap();
    queue.finish(&other.key, at(1_000), Finish::Failed);
    assert_eq!(
        queue.next_due(),
        Some(at(1_050)),
        "its back-off, and no wait for a token"
    );
}

#[test]
fn retry_after_waits_at_least_as_asked_and_counts_as_a_failure() {
    for (key, asked, due) in [("long", 7_000, 7_000), ("short", 1, 50)] {
        let mut queue = Queue::new(config(1));
        queue.push(key, at(0), Why::CREATE);
        queue.pop(at(0)).unwrap();
        queue.finish(&key, at(0), Finish::RetryAfter(MS(asked)));
        assert_eq!(queue.failures(&key), 1);
        assert!(queue.pop_key(&key, at(due - 1)).is_none());
        assert_eq!(queue.pop_key(&key, at(due)).unwrap().whys, [(Why::RETRY, 1)]);
    }
}

#[test]
fn again_looks_later_without_failures_and_news_comes_first() {
    let mut queue = Queue::new(config(1));
    queue.push("a", at(0), Why::CREATE);
    queue.pop(at(0)).unwrap();
    queue.finish(&"a", at(0), Finish::Failed);
    queue.pop(at(50)).unwrap();
    queue.finish(&"a", at(60), Finish::Again(MS(5_000)));
    assert_eq!((queue.failures(&"a"), queue.next_due()), (0, Some(at(5_060))));
    queue.push("a", at(100), Why::UPDATE);
    assert_eq!(queue.pop(at(100)).unwrap().whys, [(Why::TIMER, 1), (Why::UPDATE, 1)]);
}

#[test]
fn yield_goes_behind_all_that_are_due_and_keeps_reasons_and_failures() {
    let mut queue = Queue::new(config(1));
    queue.push("a", at(0), Why::EXTERNAL);
    queue.pop(at(0)).unwrap();
    queue.finish(&"a", at(0), Finish::Failed);
    queue.pop(at(50)).unwrap();
    queue.push("b", at(51), Why::CREATE);
    queue.push("a", at(40), Why::UPDATE);
    queue.finish(&"a", at(60), Finish::Yield);
    assert_eq!(queue.pop(at(60)).unwrap().key, "b");
    queue.finish(&"b", at(61), Finish::Done);
    let a = queue.pop(at(61)).unwrap();
    assert_eq!((a.whys, a.attempt), (vec![(Why::RETRY, 1), (Why::UPDATE, 1)], 1));
}

#[test]
fn a_full_queue_has_nothing_due() {
    let mut queue = Queue::new(QueueConfig {
        passes_at_once: 0,
        ..config(1)
    });
    queue.push(1, at(0), Why::CREATE);
    queue.push(2, at(0), Why::CREATE);
    assert_eq!(
        queue.due_keys(at(0)).collect::<Vec<_>>(),
        [&1, &2],
        "no limit at all would be a limit of none: at least 1"
    );
    queue.pop(at(0)).unwrap();
    assert_eq!(
        (queue.next_due(), queue.due_keys(at(0)).count(), queue.len()),
        (None, 0, 1)
    );
    assert_eq!(queue.pop(at(0)), None);
    assert_eq!(queue.pop_key(&2, at(0)), None);
    queue.finish(&1, at(3), Finish::Done);
    assert_eq!(queue.pop_key(&2, at(3)).unwrap().waited, MS(3));
}

#[test]
fn forget_drops_the_failures_of_a_name_and_not_its_wake() {
    let mut queue = Queue::new(config(1));
    queue.push("a", at(0), Why::CREATE);
    queue.pop(at(0)).unwrap();
    queue.finish(&"a", at(0), Finish::Failed);
    queue.forget(&"a");
    assert_eq!((queue.failures(&"a"), queue.len()), (0, 1));
    assert_eq!(queue.pop(at(50)).unwrap().attempt, 0);
}

#[test]
fn reasons_are_bounded() {
    let mut queue = Queue::new(config(1));
    let words: Vec<&'static str> = (0..100)
        .map(|n| &*Box::leak(format!("word {n}").into_boxed_str()))
        .collect();
    for word in words {
        queue.push("a", at(0), Why(word));
    }
    assert_eq!(queue.pop(at(0)).unwrap().whys.len(), super::MOST_WHYS);
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "does not run"))]
fn finishing_what_does_not_run_changes_nothing() {
    let mut queue = Queue::new(config(1));
    queue.push("a", at(0), Why::CREATE);
    queue.finish(&"a", at(0), Finish::Failed);
    assert_eq!((queue.len(), queue.failures(&"a"), queue.running()), (1, 0, 0));
}

#[test]
fn a_now_that_arrives_late_counts_as_the_latest_one() {
    let mut queue = Queue::new(config(2));
    queue.push("a", at(0), Why::CREATE);
    queue.pop(at(100)).unwrap();
    queue.push("b", at(90), Why::CREATE);
    let b = queue.pop(at(95)).unwrap();
    assert_eq!((b.key, b.waited), ("b", MS(10)));
    queue.finish(&"a", at(95), Finish::Failed);
    assert_eq!(queue.next_due(), Some(at(150)));
}
