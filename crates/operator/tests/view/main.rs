//! `View` against a model: any history of a server, told by watches that lag, break and list again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[allow(dead_code, reason = "shared with the tests of what was written")]
#[path = "../support/world.rs"]
mod world;

mod absence;
mod lists;
mod shadow;

use proptest::prelude::*;
use usher_engine::ObjectKey;

use shadow::Shadow;
use world::{Content, Stream, Told, World};

/// What can happen next. Small numbers, so that a failing sequence shrinks to something readable.
#[derive(Debug, Clone)]
enum Op {
    Create(usize, usize, Content),
    Change(usize, usize, Content),
    Delete(usize, usize),
    Recreate(usize, usize, Content),
    /// Deliver so many things of a type's stream.
    Deliver(usize, usize),
    Bookmark(usize),
    Relist(usize),
    /// Answer the list under way; its cache lags by this much.
    Answer(usize, u64),
    Interrupt(usize),
    Resume(usize),
}

fn content(readable: bool) -> impl Strategy<Value = Content> {
    let groups = prop::sample::subsequence(vec!["red", "green", "blue"], 0..=3);
    let nonsense = if readable { 0 } else { 1 };
    (0u64..4, groups, prop_oneof![6 => Just(true), nonsense => Just(false)]).prop_map(|(value, groups, readable)| {
        Content {
            value,
            groups,
            readable,
        }
    })
}

fn ops(readable: bool) -> impl Strategy<Value = Vec<Op>> {
    let (of, key) = (0usize..2, 0usize..6);
    let one = prop_oneof![
        4 => (of.clone(), key.clone(), content(readable)).prop_map(|(t, k, c)| Op::Create(t, k, c)),
        4 => (of.clone(), key.clone(), content(readable)).prop_map(|(t, k, c)| Op::Change(t, k, c)),
        3 => (of.clone(), key.clone()).prop_map(|(t, k)| Op::Delete(t, k)),
        2 => (of.clone(), key, content(readable)).prop_map(|(t, k, c)| Op::Recreate(t, k, c)),
        8 => (of.clone(), 1usize..8).prop_map(|(t, n)| Op::Deliver(t, n)),
        1 => of.clone().prop_map(Op::Bookmark),
        1 => of.clone().prop_map(Op::Relist),
        3 => (of.clone(), 0u64..6).prop_map(|(t, lag)| Op::Answer(t, lag)),
        1 => of.clone().prop_map(Op::Interrupt),
        1 => of.prop_map(Op::Resume),
    ];
    prop::collection::vec(one, 1..80)
}

/// Seeds are printed, not stored beside the tests: every case is small enough to become a test of its own.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    }
}

/// Two namespaces, three names each.
fn key(n: usize) -> ObjectKey {
    ObjectKey::new(["ns-a", "ns-b"][n / 3 % 2], ["x", "y", "z"][n % 3]).unwrap()
}

type Verdict = Result<(), TestCaseError>;

/// The world, its watches, and whoever listens: told of each event with the world as it is and how far that type is.
struct Telling<F> {
    world: World,
    streams: [Stream; 2],
    listener: F,
}

impl<F: FnMut(&World, Option<u64>, usize, &Told) -> Verdict> Telling<F> {
    fn new(listener: F) -> Self {
        Self {
            world: World::default(),
            streams: [Stream::new(0), Stream::new(1)],
            listener,
        }
    }

    fn happen(&mut self, op: &Op) -> Verdict {
        let (world, streams) = (&mut self.world, &mut self.streams);
        match op {
            Op::Create(of, k, content) => drop(world.create(*of, &key(*k), content.clone())),
            Op::Change(of, k, content) => drop(world.change(*of, &key(*k), content.clone())),
            Op::Delete(of, k) => drop(world.delete(*of, &key(*k))),
            Op::Recreate(of, k, content) => {
                if world.delete(*of, &key(*k)).is_some() {
                    world.create(*of, &key(*k), content.clone());
                }
            }
            Op::Deliver(of, n) => {
                for _ in 0..*n {
                    if let Some(told) = self.streams[*of].next(&self.world) {
                        self.tell(*of, &told)?;
                    }
                }
            }
            Op::Bookmark(of) => {
                if let Some(told) = streams[*of].bookmark(world) {
                    self.tell(*of, &told)?;
                }
            }
            Op::Relist(of) => {
                let told = streams[*of].relist(world);
                self.tell(*of, &told)?;
            }
            Op::Answer(of, lag) => streams[*of].answer(world, *lag),
            Op::Interrupt(of) => self.tell(*of, &Told::Interrupted)?,
            Op::Resume(of) => self.tell(*of, &Told::Resumed)?,
        }
        Ok(())
    }

    fn tell(&mut self, of: usize, told: &Told) -> Verdict {
        (self.listener)(&self.world, self.streams[of].cursor, of, told)
    }

    /// Lets everything arrive.
    fn settle(&mut self) -> Verdict {
        for of in 0..2 {
            while !self.streams[of].up_to_date(&self.world) {
                match self.streams[of].next(&self.world) {
                    Some(told) => self.tell(of, &told)?,
                    None => self.streams[of].answer(&self.world, 0),
                }
            }
        }
        Ok(())
    }

    fn run(&mut self, ops: &[Op]) -> Verdict {
        ops.iter().try_for_each(|op| self.happen(op))?;
        self.settle()
    }
}

proptest! {
    #![proptest_config(config(1_000))]

    /// Records, indexes, order, derived values, changes and progress after every single event; objects that cannot be
    /// read included.
    #[test]
    fn the_view_is_what_its_events_say(ops in ops(false)) {
        let mut shadow = Shadow::new();
        Telling::new(|_, _, of, told| shadow.tell(of, told)).run(&ops)?;
    }

    /// The module's promise: each type is its whole state at some revision, never anything later, never anything mixed.
    #[test]
    fn each_type_is_the_whole_state_at_one_revision(ops in ops(true)) {
        let mut shadow = Shadow::new();
        Telling::new(|world, cursor, of, told| {
            shadow.tell(of, told)?;
            shadow.shows(world, of, cursor)
        })
        .run(&ops)?;
    }
}
