//! Random histories: the store and the model agree at every step, in memory and on disk with restarts in between.

use proptest::prelude::*;
use proptest::sample::Index;
use usher_embedded::store::{
    Change, Durability, Expect, Key, Options, Prefix, ReadError, Retention, Revision, Store, Watcher, Write, WriteError,
};

use crate::disk::SimDisk;
use crate::model::{Line, Model};
use crate::{Clock, value};

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<Wanted>),
    Read { at: Index, page: usize },
    Watch { prefix: usize, from: Index },
    Drain(Index),
    Compact { seconds: i64 },
    Reopen,
}

#[derive(Clone, Debug)]
struct Wanted {
    key: usize,
    /// `None`: delete.
    text: Option<u8>,
    expect: Wish,
}

#[derive(Clone, Debug)]
enum Wish {
    Any,
    Absent,
    Current,
    Wrong,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wish =
        prop_oneof![3 => Just(Wish::Any), 1 => Just(Wish::Absent), 3 => Just(Wish::Current), 1 => Just(Wish::Wrong)];
    let text = prop_oneof![4 => (0u8..4).prop_map(Some), 1 => Just(None)];
    let wanted = (0..keys().len(), text, wish).prop_map(|(key, text, expect)| Wanted { key, text, expect });
    let step = prop_oneof![
        12 => prop::collection::vec(wanted, 1..4).prop_map(Step::Write),
        4 => (any::<Index>(), 1..4usize).prop_map(|(at, page)| Step::Read { at, page }),
        2 => (0..prefixes().len(), any::<Index>()).prop_map(|(prefix, from)| Step::Watch { prefix, from }),
        4 => any::<Index>().prop_map(Step::Drain),
        2 => (0..40i64).prop_map(|seconds| Step::Compact { seconds }),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..120)
}

fn keys() -> Vec<Key> {
    vec![
        Key::new("", "pods", Some("a"), "x"),
        Key::new("", "pods", Some("a"), "y"),
        Key::new("", "pods", Some("a-b"), "x"),
        Key::new("", "podsets", Some("a"), "x"),
        Key::new("", "nodes", None, "n"),
        Key::new("apps", "pods", Some("a"), "x"),
    ]
}

fn prefixes() -> Vec<Prefix> {
    vec![
        Prefix::everything(),
        Key::prefix("", "pods", None),
        Key::prefix("", "pods", Some("a")),
        Key::prefix("", "nodes", None),
        Key::prefix("", "secrets", None),
    ]
}

/// A watch, and what it has given.
struct Watching {
    watcher: Watcher,
    prefix: Prefix,
    from: Revision,
    seen: Vec<Line>,
    lagged: bool,
}

impl Watching {
    fn drain(&mut self, model: &Model, floor: Revision) {
        while let Some(event) = self.watcher.try_next() {
            match event {
                Ok(line) => self.seen.push(Line::from(&*line)),
                Err(lagged) => {
                    self.lagged = true;
                    assert_eq!(lagged.floor, floor);
                }
            }
        }
        let expected = model.events(&self.prefix, self.from);
        let (given, missing) = expected.split_at(self.seen.len());
        assert_eq!(self.seen, given, "a gap or a duplicate");
        if !self.lagged {
            assert_eq!(missing, [], "not all was given");
            assert_eq!(self.watcher.revision(), model.revision());
        } else {
            assert!(
                missing[0].revision <= floor,
                "it was told that it lags, but all it needs is there"
            );
        }
    }
}

/// Small numbers, so that all four bounds of S7 are met often.
const RETENTION: Retention = Retention {
    keep_seconds: 60,
    min_revisions: 5,
    max_revisions: 30,
    max_old_bytes: 900,
};

fn run(steps: Vec<Step>, open: impl Fn(Options) -> Store, durable: bool) {
    let clock = Clock::default();
    let options = || clock.keeping(RETENTION);
    let mut store = open(options());
    let mut model = Model::default();
    let mut times = Vec::new();
    let mut watching: Vec<Watching> = Vec::new();
    for step in steps {
        match step {
            Step::Write(wanted) => write(&store, &mut model, wanted),
            Step::Read { at, page } => {
                let at = at.index(model.lines.len() + 3) as u64;
                model.check(&store, at);
                pages(&store, &model, at, page);
            }
            Step::Watch { prefix, from } => {
                let prefix = prefixes()[prefix].clone();
                let from = from.index(model.lines.len() + 2) as u64;
                match store.watch(prefix.clone(), from) {
                    Ok(watcher) => watching.push(Watching {
                        watcher,
                        prefix,
                        from,
                        seen: vec![],
                        lagged: false,
                    }),
                    Err(ReadError::Compacted { floor }) => assert!(from < floor && floor == store.floor()),
                    Err(ReadError::Future { current }) => assert!(from > current && current == model.revision()),
                }
            }
            Step::Drain(which) => {
                if !watching.is_empty() {
                    which.get_mut(&mut watching).drain(&model, store.floor());
                }
            }
            Step::Compact { seconds } => {
                clock.advance(seconds);
                let expected = floor(&model, &times, store.floor(), clock.now().as_second());
                store.compact(clock.now());
                assert_eq!(store.floor(), expected);
            }
            Step::Reopen if durable => {
                for mut one in watching.drain(..) {
                    one.drain(&model, store.floor());
                }
                let floor = store.floor();
                drop(store);
                store = open(options());
                assert_eq!(store.floor(), floor);
                model.check(&store, floor);
            }
            Step::Reopen => {}
        }
        times.resize(model.lines.len(), clock.now().as_second());
        assert_eq!(store.revision(), model.revision());
        // At every moment, not only when it is compacted.
        assert!(store.revision() - store.floor() <= RETENTION.max_revisions as u64);
        assert!(store.stats().old_bytes <= RETENTION.max_old_bytes);
    }
    for mut one in watching {
        one.drain(&model, store.floor());
    }
    for at in store.floor()..=model.revision() {
        model.check(&store, at);
    }
}

fn write(store: &Store, model: &mut Model, wanted: Vec<Wanted>) {
    let batch: Vec<Write> = wanted
        .into_iter()
        .map(|Wanted { key, text, expect }| {
            let key = keys()[key].clone();
            let current = store.head(&key).map_or(0, |entry| entry.revision);
            let expect = match expect {
                Wish::Any => Expect::Any,
                Wish::Absent => Expect::Revision(0),
                Wish::Current => Expect::Revision(current),
                Wish::Wrong => Expect::Revision(current + 1),
            };
            let change = text.map_or(Change::Delete, |text| {
                Change::Put(value(key.name(), "long ".repeat(text.into())))
            });
            Write { key, expect, change }
        })
        .collect();
    let expected = model.write(&batch);
    match store.write(batch) {
        Ok(commit) => {
            assert_eq!(Ok(commit.revisions().to_vec()), expected);
            let newest = commit.revisions().iter().copied().max();
            assert_eq!(commit.wait().ok(), newest);
        }
        Err(WriteError::Conflict { key, .. }) => assert_eq!(Err(key), expected),
        Err(WriteError::Closed) => panic!("the store is open"),
    }
}

/// Reading by pages gives what reading at once gives.
fn pages(store: &Store, model: &Model, at: Revision, size: usize) {
    if at < store.floor() || at > model.revision() {
        return;
    }
    for prefix in prefixes() {
        let expected: Vec<_> = model
            .at(model.whole(at))
            .into_values()
            .filter(|entry| prefix.contains(&entry.key))
            .collect();
        let mut read = Vec::new();
        loop {
            let after = read
                .last()
                .map(|entry: &usher_embedded::store::Entry| entry.key.clone());
            let page = store.list(&prefix, Some(at), after.as_ref(), size).unwrap();
            read.extend(page.entries);
            assert_eq!(page.remaining, expected.len() - read.len());
            assert_eq!(page.more, page.remaining > 0);
            if !page.more {
                break;
            }
        }
        assert_eq!(read, expected);
        for entry in expected {
            assert_eq!(store.get(&entry.key, Some(at)).unwrap(), Some(entry));
        }
    }
}

/// S7 from its words: which floor compaction should choose.
fn floor(model: &Model, times: &[i64], before: Revision, now: i64) -> Revision {
    let newest = model.revision();
    let old_bytes = |floor: Revision| -> usize {
        let kept = model.lines.iter().filter(|line| line.revision > floor);
        kept.filter_map(|line| line.previous)
            .map(|old| model.lines[old as usize - 1].value.len())
            .sum()
    };
    let mut floor = before;
    while floor < newest {
        let next_expired = times[floor as usize] < now - i64::from(RETENTION.keep_seconds);
        let kept = (newest - floor) as usize;
        let may = next_expired && kept > RETENTION.min_revisions;
        let must = kept > RETENTION.max_revisions || old_bytes(floor) > RETENTION.max_old_bytes;
        if !may && !must {
            break;
        }
        floor += 1;
    }
    // A batch goes as a whole.
    model.whole(floor)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s1_s2_s3_s7_s9_the_store_in_memory_does_what_the_model_does(steps in steps()) {
        run(steps, Store::memory, false);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s1_s2_s3_s7_s9_the_store_on_disk_does_what_the_model_does_and_keeps_it_over_restarts(steps in steps()) {
        let disk = SimDisk::default();
        run(steps, |options| Store::open_on(disk.clone(), Durability::Fsync, options).unwrap(), true);
    }

    #[test]
    fn s4_a_relaxed_store_that_is_closed_loses_nothing(steps in steps()) {
        let disk = SimDisk::default();
        run(steps, |options| Store::open_on(disk.clone(), Durability::Relaxed, options).unwrap(), true);
    }
}
