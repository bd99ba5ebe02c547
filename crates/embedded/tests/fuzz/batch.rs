//! A batch: some hundred inputs from one seed on a cluster that always begins in the same state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use usher_embedded::Snapshot;

use crate::corpus::{self, Corpus};
use crate::dice::Dice;
use crate::inputs::{self, Seen};
use crate::request::Sent;
use crate::world::World;
use crate::{judge, sweep};

pub const INPUTS: u64 = 250;

/// Ready for any number of batches.
pub struct Bench {
    world: World,
    full: Snapshot,
    corpus: Arc<Corpus>,
    /// Lines of the store when it was full.
    since: u64,
}

/// What may not happen, and how to see it again.
#[derive(Debug)]
pub struct Finding {
    pub what: String,
    pub replay: String,
    pub input: String,
}

#[derive(Debug, Default)]
pub struct Tally {
    pub inputs: u64,
    pub codes: BTreeMap<u16, u64>,
    pub objects_checked: usize,
    pub slowest: Vec<(Duration, String)>,
    /// One example of each message of a 5xx, by its shape.
    pub errors: BTreeMap<String, String>,
    pub findings: Vec<Finding>,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.inputs += other.inputs;
        for (code, count) in other.codes {
            *self.codes.entry(code).or_default() += count;
        }
        self.objects_checked += other.objects_checked;
        self.slowest.extend(other.slowest);
        self.slowest.sort_by_key(|slow| std::cmp::Reverse(slow.0));
        self.slowest.truncate(8);
        self.errors.extend(other.errors);
        self.findings.extend(other.findings);
    }
}

impl Bench {
    pub fn new() -> Self {
        let mut world = World::new();
        let corpus = Arc::new(corpus::record(&world));
        world.let_live(10_000, 1).unwrap();
        let full = world.manual.snapshot();
        let since = revision(&world);
        Self {
            world,
            full,
            corpus,
            since,
        }
    }

    /// For another thread: the cases are played once.
    pub fn another(&self) -> Self {
        Self {
            world: World::new(),
            full: self.full.clone(),
            corpus: self.corpus.clone(),
            since: self.since,
        }
    }

    pub fn run(&mut self, seed: u64, trace: bool) -> Tally {
        let mut tally = Tally::default();
        self.world.manual.restore(&self.full).unwrap();
        let mut dice = Dice::new(seed);
        let mut seen = Seen::default();
        for number in 0..INPUTS {
            let sent = inputs::next(&self.corpus, &seen, &mut dice);
            if trace {
                eprintln!("{number}: {}", sent.told());
            }
            let started = Instant::now();
            let outcome = self.step(&sent, &mut seen, &mut tally);
            let took = started.elapsed();
            if took > Duration::from_millis(20) {
                tally.slowest.push((
                    took,
                    format!("seed {seed} input {number}: {}", crate::request::cut(&sent.told(), 600)),
                ));
            }
            let outcome = outcome.and_then(|()| match dice.below(12) {
                0 => self.world.let_live(dice.below(30), dice.below(40_000) as i64),
                _ => Ok(()),
            });
            if let Err(what) = outcome {
                tally.findings.push(Finding {
                    what,
                    replay: format!("USHER_FUZZ_SEED={seed} (input {number})"),
                    input: sent.told(),
                });
                return tally;
            }
        }
        match sweep::check(&self.world, self.since) {
            Ok(count) => tally.objects_checked += count,
            Err(what) => tally.findings.push(Finding {
                what: format!("after the batch: {what}"),
                replay: format!("USHER_FUZZ_SEED={seed}"),
                input: String::new(),
            }),
        }
        tally
    }

    fn step(&self, sent: &Sent, seen: &mut Seen, tally: &mut Tally) -> Result<(), String> {
        let before = self.world.writes();
        let Some(got) = self.world.send(sent)? else {
            return Ok(());
        };
        tally.inputs += 1;
        *tally.codes.entry(got.code).or_default() += 1;
        let value = judge::answer(sent, &got, self.world.writes() - before)?;
        if got.code >= 500 {
            let message = value["message"].as_str().unwrap_or_default();
            let shape: String = message
                .chars()
                .filter(|letter| letter.is_ascii_alphabetic() || *letter == ' ')
                .take(50)
                .collect();
            tally
                .errors
                .entry(format!("{} {shape}", got.code))
                .or_insert_with(|| format!("{message}\n{}", sent.told()));
        }
        seen.note(sent, got.code, &value);
        // A webhook that nobody answers would make every write wait.
        if corpus::changes_others(sent) && got.code < 300 && sent.method != "GET" {
            for kind in ["validating", "mutating"] {
                let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
                self.world.send(&Sent::new("DELETE", &path))?;
            }
        }
        Ok(())
    }
}

fn revision(world: &World) -> u64 {
    let got = world
        .send(&Sent::new("GET", "/api/v1/namespaces?limit=1"))
        .unwrap()
        .unwrap();
    let list: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
    list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
