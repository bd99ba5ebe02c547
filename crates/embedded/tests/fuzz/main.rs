//! Strange requests, by the million: no panic, no stack overflow, always an answer at the first poll (E2), every refusal a
//! `Status` (O23), nothing written by what is refused, and a store whose every object can be read, listed and put back.
//!
//! Everything follows from seeds, without any fuzzer from outside: [`corpus`] plays the conformance cases and keeps what was
//! sent, [`inputs`] changes it, [`custom`] makes definitions and objects for them, [`judge`] looks at each answer and [`sweep`]
//! at the store after each [`batch`]. What was found once is in [`found`], by name.
//!
//! - `USHER_FUZZ_INPUTS=1000000 cargo test --release -p usher-embedded --test fuzz -- --nocapture`: more of it.
//! - `USHER_FUZZ_SEED=N`: only that batch; with `USHER_FUZZ_TRACE=1` each input is shown before it is sent, which is what one
//!   wants when the process is gone (a stack overflow). The seed it was at is in `target/tmp/fuzz-seed`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod batch;
#[path = "../conformance/case.rs"]
#[allow(dead_code)]
mod case;
mod corpus;
mod custom;
mod dice;
mod found;
mod inputs;
mod judge;
mod mutate;
mod request;
#[path = "../conformance/select.rs"]
#[allow(dead_code)]
mod select;
mod sweep;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use batch::{Bench, INPUTS, Tally};

/// As much as fits in some seconds of a debug build.
const INPUTS_BY_DEFAULT: u64 = 2_500;
/// As tokio's workers have: what does not fit here would end `usher up`.
const STACK_BYTES: usize = 2 * 1024 * 1024;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn o23_strange_requests_get_a_status_and_never_end_the_server() {
    world::keep_panics();
    let inputs = variable("USHER_FUZZ_INPUTS").unwrap_or(INPUTS_BY_DEFAULT);
    let only = variable("USHER_FUZZ_SEED");
    let trace = std::env::var_os("USHER_FUZZ_TRACE").is_some();
    let (first, end) = match only {
        Some(seed) => (seed, seed + 1),
        None => {
            let first = variable("USHER_FUZZ_FROM").unwrap_or(1);
            (first, first + inputs.div_ceil(INPUTS))
        }
    };
    let next = AtomicU64::new(first);
    let started = Instant::now();
    let first_bench = Bench::new();
    eprintln!("ready after {:.1?}", started.elapsed());
    let work = &|mut bench: Bench| {
        let mut tally = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end || tally.findings.len() > 30 {
                return tally;
            }
            let _ = std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/fuzz-seed"), seed.to_string());
            tally.add(bench.run(seed, trace));
        }
    };
    let threads = match only {
        Some(_) => 1,
        None => std::thread::available_parallelism().map_or(1, usize::from).min(4),
    };
    let mut benches: Vec<Bench> = (1..threads).map(|_| first_bench.another()).collect();
    benches.push(first_bench);
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        let worker = |bench| {
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            builder.spawn_scoped(scope, move || work(bench)).unwrap()
        };
        let workers: Vec<_> = benches.into_iter().map(worker).collect();
        for worker in workers {
            tally.add(worker.join().unwrap());
        }
    });
    report(&tally, started.elapsed());
}

fn report(tally: &Tally, took: std::time::Duration) {
    let codes: Vec<String> = tally
        .codes
        .iter()
        .map(|(code, count)| format!("{code}: {count}"))
        .collect();
    eprintln!(
        "{} inputs in {took:.1?}, {} objects checked; {}",
        tally.inputs,
        tally.objects_checked,
        codes.join(", ")
    );
    for (took, what) in &tally.slowest {
        eprintln!("slow, {took:.1?}: {what}");
    }
    for (shape, example) in &tally.errors {
        eprintln!("error {shape}: {}", request::cut(example, 900));
    }
    // One of each kind.
    let mut told = std::collections::BTreeMap::new();
    for finding in &tally.findings {
        let kind: String = finding
            .what
            .chars()
            .filter(|letter| !letter.is_ascii_digit())
            .take(90)
            .collect();
        told.entry(kind)
            .or_insert_with(|| format!("{}\n{}\n{}\n", finding.what, finding.replay, finding.input));
    }
    let told: Vec<String> = told.into_values().collect();
    assert!(
        tally.findings.is_empty(),
        "{} findings, of each kind one:\n\n{}",
        tally.findings.len(),
        told.join("\n")
    );
}
