//! S9: watchers are woken for what concerns them, and an event is serialised once for all of them.

use bytes::Bytes;
use futures::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use usher_embedded::store::{Durability, Key, Kind, Lagged, Prefix, ReadError, Retention, Store, Watcher};

use crate::disk::SimDisk;
use crate::{Clock, delete, pod, put};

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll(watcher: &mut Watcher, waker: &Waker) -> Poll<Option<Result<u64, Lagged>>> {
    Pin::new(watcher)
        .poll_next(&mut Context::from_waker(waker))
        .map(|event| event.map(|event| event.map(|line| line.revision)))
}

#[test]
fn s9_a_write_wakes_the_watchers_of_its_prefix_and_no_others() {
    let store = Store::memory(Clock::default().options());
    let woken = Arc::new(Counter::default());
    let waker = Waker::from(woken.clone());
    let open = |prefix: Prefix| {
        let mut watcher = store.watch(prefix, 0).unwrap();
        assert_eq!(poll(&mut watcher, &waker), Poll::Pending);
        watcher
    };
    let mut pods: Vec<_> = (0..1_000).map(|_| open(Key::prefix("", "pods", None))).collect();
    let mut others: Vec<_> = (0..1_000)
        .map(|_| open(Key::prefix("", "pods", Some("elsewhere"))))
        .collect();
    others.extend((0..1_000).map(|_| open(Key::prefix("", "nodes", None))));
    let mut all = open(Prefix::everything());
    assert_eq!(store.stats().watchers, 3_001);
    store.write(vec![put(&pod("a"), 1)]).unwrap().wait().unwrap();
    assert_eq!(woken.0.swap(0, Ordering::SeqCst), 1_001);
    // Those who were told already are not told again before they have looked.
    store.write(vec![put(&pod("a"), 2)]).unwrap().wait().unwrap();
    assert_eq!(woken.0.swap(0, Ordering::SeqCst), 0);
    for watcher in pods.iter_mut().chain([&mut all]) {
        assert_eq!(poll(watcher, &waker), Poll::Ready(Some(Ok(1))));
        assert_eq!(watcher.revision(), 1);
        assert_eq!(poll(watcher, &waker), Poll::Ready(Some(Ok(2))));
        assert_eq!(poll(watcher, &waker), Poll::Pending);
    }
    for watcher in &mut others {
        assert_eq!(watcher.revision(), 2, "a bookmark may say that it has missed nothing");
        assert_eq!(poll(watcher, &waker), Poll::Pending);
    }
    drop((pods, others, all));
    assert_eq!(store.stats().watchers, 0);
}

#[test]
fn s9_an_event_is_serialised_once_per_representation() {
    let store = Store::memory(Clock::default().options());
    let mut watchers: Vec<_> = (0..1_000)
        .map(|_| store.watch(Prefix::everything(), 0).unwrap())
        .collect();
    store.write(vec![put(&pod("a"), 1)]).unwrap().wait().unwrap();
    for (index, watcher) in (0_u64..).zip(&mut watchers) {
        let line = watcher.try_next().unwrap().unwrap();
        let form = (index % 2, 0);
        assert_eq!(
            line.rendered(form, || format!("form {form:?}").into()),
            Bytes::from(format!("form {form:?}"))
        );
    }
    assert_eq!(store.stats().renderings, 2);
}

#[test]
fn s9_history_does_not_keep_what_was_serialised() {
    let store = Store::memory(Clock::default().options());
    store.write(vec![put(&pod("a"), 0)]).unwrap().wait().unwrap();
    let line = store
        .watch(Prefix::everything(), 0)
        .unwrap()
        .try_next()
        .unwrap()
        .unwrap();
    let rendered = line.rendered((0, 1), || vec![7; 100].into());
    assert!(!rendered.is_unique(), "the line remembers it while it is new");
    for n in 1..=256 {
        store.write(vec![put(&pod("a"), n)]).unwrap().wait().unwrap();
    }
    assert!(rendered.is_unique(), "the line has forgotten it");
    let late = line.rendered((0, 1), || vec![7; 100].into());
    assert!(late.is_unique());
    assert_eq!(store.stats().renderings, 2);
}

#[test]
fn s9_a_watcher_lags_only_when_something_it_needs_is_forgotten() {
    let clock = Clock::default();
    let retention = Retention {
        min_revisions: 2,
        ..Retention::default()
    };
    let store = Store::memory(clock.keeping(retention));
    let mut slow = store.watch(Key::prefix("", "pods", None), 0).unwrap();
    let mut quiet = store.watch(Key::prefix("", "nodes", None), 0).unwrap();
    for n in 0..10 {
        store.write(vec![put(&pod("a"), n)]).unwrap().wait().unwrap();
    }
    clock.advance(301);
    store.compact(clock.now());
    assert_eq!(store.floor(), 8);
    assert_eq!(slow.try_next().unwrap().unwrap_err(), Lagged { at: 0, floor: 8 });
    assert!(slow.try_next().is_none());
    assert_eq!(poll(&mut slow, Waker::noop()), Poll::Ready(None));
    assert!(quiet.try_next().is_none());
    store
        .write(vec![put(&Key::new("", "nodes", None, "n"), 1)])
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(quiet.try_next().unwrap().unwrap().revision, 11);
    assert_eq!(
        store.watch(Prefix::everything(), 7).unwrap_err(),
        ReadError::Compacted { floor: 8 }
    );
    assert_eq!(
        store.watch(Prefix::everything(), 12).unwrap_err(),
        ReadError::Future { current: 11 }
    );
}

#[test]
fn a_deletion_tells_the_last_value() {
    let store = Store::memory(Clock::default().options());
    store.write(vec![put(&pod("a"), "last")]).unwrap().wait().unwrap();
    store.write(vec![delete(&pod("a"))]).unwrap().wait().unwrap();
    let line = store
        .watch(Prefix::everything(), 1)
        .unwrap()
        .try_next()
        .unwrap()
        .unwrap();
    assert_eq!((line.kind, line.created, line.entry()), (Kind::Delete, 1, None));
    assert_eq!(line.value.parse(line.revision).unwrap()["text"], "last");
    assert_eq!(
        line.value.parse(line.revision).unwrap()["metadata"]["resourceVersion"],
        "2"
    );
}

#[test]
fn a_restored_store_is_what_it_was_and_ends_the_watches_of_before() {
    let store = Store::memory(Clock::default().options());
    store.write(vec![put(&pod("a"), 1)]).unwrap().wait().unwrap();
    let snapshot = store.snapshot();
    let before = store.list(&Prefix::everything(), None, None, 0).unwrap();
    let mut watcher = store.watch(Prefix::everything(), 1).unwrap();
    let woken = Arc::new(Counter::default());
    assert_eq!(poll(&mut watcher, &Waker::from(woken.clone())), Poll::Pending);
    store
        .write(vec![put(&pod("a"), 2), put(&pod("b"), 1)])
        .unwrap()
        .wait()
        .unwrap();
    store.restore(&snapshot).unwrap();
    assert_eq!(store.list(&Prefix::everything(), None, None, 0).unwrap(), before);
    assert!(woken.0.load(Ordering::SeqCst) > 0);
    assert!(watcher.try_next().unwrap().is_err());
    assert_eq!(store.write(vec![put(&pod("c"), 1)]).unwrap().wait().unwrap(), 2);
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Sleeps until it is woken, as a task would: a wake that is lost hangs it.
fn follow(mut watcher: Watcher, until: u64) -> Vec<u64> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut seen = Vec::new();
    while seen.last() != Some(&until) {
        match poll(&mut watcher, &waker) {
            Poll::Ready(event) => seen.push(event.unwrap().unwrap()),
            Poll::Pending => thread::park(),
        }
    }
    seen
}

#[test]
fn s9_watchers_among_many_writers_miss_nothing_and_see_nothing_twice() {
    const WRITES: u64 = 250;
    let on_disk = Store::open_on(SimDisk::default(), Durability::Relaxed, Clock::default().options()).unwrap();
    for store in [Store::memory(Clock::default().options()), on_disk] {
        thread::scope(|scope| {
            let open = || store.watch(Prefix::everything(), 0).unwrap();
            let watchers: Vec<_> = (0..4).map(|_| open()).collect();
            let following: Vec<_> = watchers
                .into_iter()
                .map(|watcher| scope.spawn(move || follow(watcher, 4 * WRITES)))
                .collect();
            for writer in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for n in 0..WRITES {
                        store
                            .write(vec![put(&pod(&format!("pod-{writer}")), n)])
                            .unwrap()
                            .wait()
                            .unwrap();
                    }
                });
            }
            for seen in following {
                assert_eq!(seen.join().unwrap(), Vec::from_iter(1..=4 * WRITES));
            }
        });
    }
}
