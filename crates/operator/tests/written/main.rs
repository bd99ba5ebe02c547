//! `Written` against a model: several writers, a server that also has other users, and watches that lag.
//!
//! The promise has two halves. *Never too soon* (J13): no pass begins while the view lacks what the writer last wrote.
//! *Never stuck*: whatever happens, once the watches have told everything, every writer may begin, and was woken for it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[allow(dead_code, reason = "shared with the tests of the view")]
#[path = "../support/world.rs"]
mod world;

mod sequences;

use std::collections::BTreeSet;

use proptest::prelude::*;
use usher_engine::{ObjectKey, Uid};
use usher_operator::record::{Meta, Record};
use usher_operator::view::{Outcome, View};
use usher_operator::written::{Expect, Reader, Written};

use world::{Content, Stream, TYPES, Thing, Told, World};

const READERS: usize = 3;

#[derive(Debug, Clone, Copy)]
enum Verb {
    Create,
    Change,
    Delete,
}

/// One write of a pass: what, to which object, and how many watch events of each type overtake its answer.
#[derive(Debug, Clone)]
struct Write {
    verb: Verb,
    of: usize,
    key: usize,
    content: Content,
    overtaken: [usize; 2],
}

#[derive(Debug, Clone)]
enum Op {
    /// Somebody else writes, without looking.
    Other(Verb, usize, usize, Content),
    /// A pass of this reader, if it may begin.
    Pass(usize, Vec<Write>),
    Deliver(usize, usize),
    Bookmark(usize),
    Relist(usize),
    Answer(usize, u64),
    /// Back to an earlier revision.
    Restore(u64),
}

fn content() -> impl Strategy<Value = Content> {
    (0u64..4, prop_oneof![8 => Just(true), 1 => Just(false)]).prop_map(|(value, readable)| Content {
        value,
        groups: Vec::new(),
        readable,
    })
}

fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![3 => Just(Verb::Create), 4 => Just(Verb::Change), 2 => Just(Verb::Delete)]
}

fn write() -> impl Strategy<Value = Write> {
    (verb(), 0usize..2, 0usize..3, content(), [0usize..3, 0usize..3]).prop_map(|(verb, of, key, content, overtaken)| {
        Write {
            verb,
            of,
            key,
            content,
            overtaken,
        }
    })
}

fn ops(restores: bool) -> impl Strategy<Value = Vec<Op>> {
    let of = 0usize..2;
    let one = prop_oneof![
        3 => (verb(), of.clone(), 0usize..3, content()).prop_map(|(v, t, k, c)| Op::Other(v, t, k, c)),
        6 => (0usize..READERS, prop::collection::vec(write(), 1..4)).prop_map(|(r, w)| Op::Pass(r, w)),
        6 => (of.clone(), 1usize..6).prop_map(|(t, n)| Op::Deliver(t, n)),
        1 => of.clone().prop_map(Op::Bookmark),
        1 => of.clone().prop_map(Op::Relist),
        3 => (of, 0u64..5).prop_map(|(t, lag)| Op::Answer(t, lag)),
        u32::from(restores) => (1u64..8).prop_map(Op::Restore),
    ];
    prop::collection::vec(one, 1..80)
}

fn key(n: usize) -> ObjectKey {
    ObjectKey::new("ns", ["x", "y", "z"][n % 3]).unwrap()
}

fn reader(n: usize) -> Reader {
    Reader {
        kind: "Test",
        key: ObjectKey::new("ns", format!("reader-{n}")).unwrap(),
    }
}

/// What a write waits for, as the truth has it.
#[derive(Debug, Clone)]
struct Debt {
    of: usize,
    key: ObjectKey,
    expect: Expect,
    /// Lists asked for before the write was answered.
    lists: u64,
    /// Restores before it; `None` if the view had not been listed since the last one. Then its revisions and the
    /// server's cannot be compared, and only the guards of each write stand between a stale plan and harm.
    restored: Option<u64>,
}

struct Lab {
    world: World,
    streams: [Stream; 2],
    view: View,
    written: Written,
    debts: Vec<Vec<Debt>>,
    /// Per type: lists asked for; and which of them was the last to complete.
    lists: [u64; 2],
    complete: [u64; 2],
    /// Per type: how often the server had been restored when the list was asked for that is in view.
    restored: [u64; 2],
}

impl Lab {
    fn new() -> Self {
        let mut view = View::default();
        let _ = view.watch::<Thing<0>>();
        let _ = view.watch::<Thing<1>>();
        Self {
            world: World::default(),
            streams: [Stream::new(0), Stream::new(1)],
            view,
            written: Written::default(),
            debts: vec![Vec::new(); READERS],
            lists: [0; 2],
            complete: [0; 2],
            restored: [0; 2],
        }
    }

    fn happen(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match op {
            Op::Other(verb, of, k, content) => drop(self.effect(*verb, *of, &key(*k), content)),
            Op::Pass(n, writes) => {
                if self.may_begin(*n)? {
                    for write in writes {
                        if !self.write(*n, write)? {
                            break;
                        }
                    }
                }
            }
            Op::Deliver(of, n) => self.deliver(*of, *n)?,
            Op::Bookmark(of) => {
                if let Some(told) = self.streams[*of].bookmark(&self.world) {
                    self.tell(*of, &told)?;
                }
            }
            Op::Relist(of) => {
                let told = self.streams[*of].relist(&self.world);
                self.tell(*of, &told)?;
            }
            Op::Answer(of, lag) => self.streams[*of].answer(&self.world, *lag),
            Op::Restore(back) => self.world.restore(self.world.revision.saturating_sub(*back)),
        }
        Ok(())
    }

    fn deliver(&mut self, of: usize, n: usize) -> Result<(), TestCaseError> {
        for _ in 0..n {
            if let Some(told) = self.streams[of].next(&self.world) {
                self.tell(of, &told)?;
            }
        }
        Ok(())
    }

    /// One event into the view. Whoever it sets free must be woken by it: nobody else will.
    fn tell(&mut self, of: usize, told: &Told) -> Result<(), TestCaseError> {
        match told {
            Told::Started => self.lists[of] += 1,
            Told::Done(_) => {
                self.complete[of] = self.lists[of];
                self.restored[of] = self.world.restored;
            }
            _ => {}
        }
        let blocked: Vec<usize> = (0..READERS).filter(|n| self.unseen(*n)).collect();
        let outcome = self.view.apply(TYPES[of], told.event());
        let woken = woken(&self.written, of, &outcome);
        for n in blocked {
            if !self.unseen(n) {
                prop_assert!(
                    woken.contains(&reader(n)),
                    "{:?} is free, and nobody says so: {:?}",
                    reader(n),
                    told
                );
            }
        }
        Ok(())
    }

    fn unseen(&mut self, n: usize) -> bool {
        self.written.unseen(&reader(n), &self.view).is_some()
    }

    /// Never too soon: a reader that may begin sees all it wrote.
    fn may_begin(&mut self, n: usize) -> Result<bool, TestCaseError> {
        if self.unseen(n) {
            return Ok(false);
        }
        for debt in std::mem::take(&mut self.debts[n]) {
            let (listed, restored) = (
                self.complete[debt.of] > debt.lists,
                Some(self.world.restored) != debt.restored,
            );
            let current = self.view.identity(TYPES[debt.of], &debt.key);
            let paid = match &debt.expect {
                Expect::Revision(revision) => self.streams[debt.of].cursor >= Some(*revision),
                Expect::Newer(than) => listed || current.as_ref().is_none_or(|(_, now)| now != than),
                Expect::Gone(uid) => current.as_ref().is_none_or(|(now, _)| now != uid),
            };
            prop_assert!(
                paid || restored,
                "begins before it has seen {:?}; in view: {:?}",
                debt,
                current
            );
        }
        Ok(true)
    }

    /// A write of a pass, planned from the view and guarded by it; noted as `Pass::write` notes it. Whether it succeeded.
    fn write(&mut self, n: usize, write: &Write) -> Result<bool, TestCaseError> {
        let (of, at) = (write.of, key(write.key));
        let based_on = self.meta(of, &at);
        let present = self.world.get(of, &at).map(|object| object.revision);
        let fits = match (write.verb, &based_on) {
            (Verb::Create, Some(_)) | (Verb::Change | Verb::Delete, None) => return Ok(true),
            (Verb::Create, None) => present.is_none(),
            (_, Some((_, revision))) => present == Some(*revision),
        };
        let stored = fits.then(|| self.effect(write.verb, of, &at, &write.content)).flatten();
        for (stream, count) in write.overtaken.into_iter().enumerate() {
            self.deliver(stream, count)?;
        }
        let expect = match (stored, write.verb, based_on, present) {
            (Some(_), Verb::Delete, Some((uid, _)), _) | (None, _, Some((uid, _)), None) => Expect::Gone(uid),
            (Some(revision), ..) => Expect::Revision(revision),
            (None, _, Some((_, revision)), Some(_)) => Expect::Newer(revision),
            // The name is taken: nothing to wait for but its own watch event.
            (None, _, None, _) => return Ok(false),
        };
        self.written
            .note(&reader(n), TYPES[of], &at, expect.clone(), &self.view);
        self.debts[n].push(Debt {
            of,
            key: at,
            expect,
            lists: self.lists[of],
            restored: (self.restored[of] == self.world.restored).then_some(self.world.restored),
        });
        Ok(stored.is_some())
    }

    fn meta(&self, of: usize, at: &ObjectKey) -> Option<(Uid, u64)> {
        fn version<R: Record>(view: &View, at: &ObjectKey) -> Option<(Uid, u64)> {
            let meta: &Meta = view.get::<R>(at)?.meta();
            Some((meta.uid.clone(), meta.revision))
        }
        match of {
            0 => version::<Thing<0>>(&self.view, at),
            _ => version::<Thing<1>>(&self.view, at),
        }
    }

    fn effect(&mut self, verb: Verb, of: usize, at: &ObjectKey, content: &Content) -> Option<u64> {
        match verb {
            Verb::Create => self.world.create(of, at, content.clone()),
            Verb::Change => self.world.change(of, at, content.clone()),
            Verb::Delete => self.world.delete(of, at),
        }
    }

    fn settle(&mut self) -> Result<(), TestCaseError> {
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
}

/// As `Shared::waiting_for` has it.
fn woken(written: &Written, of: usize, outcome: &Outcome) -> BTreeSet<Reader> {
    if outcome.advanced {
        return written.waiting_for_any(TYPES[of]);
    }
    let waiting = outcome
        .touched
        .iter()
        .flat_map(|key| written.waiting_for(TYPES[of], key));
    waiting.cloned().collect()
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    }
}

fn run(ops: &[Op]) -> Result<(), TestCaseError> {
    let mut lab = Lab::new();
    for op in ops {
        lab.happen(op)?;
    }
    lab.settle()?;
    for n in 0..READERS {
        prop_assert_eq!(lab.written.unseen(&reader(n), &lab.view), None, "never stuck");
        lab.may_begin(n)?;
    }
    prop_assert_eq!(lab.written.outstanding(), 0, "and nothing is kept");
    Ok(())
}

proptest! {
    #![proptest_config(config(4_000))]

    #[test]
    fn a_writer_begins_neither_before_its_echo_nor_never(ops in ops(false)) {
        run(&ops)?;
    }

    #[test]
    fn not_even_when_etcd_is_restored_from_a_backup(ops in ops(true)) {
        run(&ops)?;
    }
}
