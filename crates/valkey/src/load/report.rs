//! What a load came to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Moments;
use crate::words::{SLOTS, Slot};

/// Slots are watched in this many parts for the longest gap: a shard is at least a part of one.
pub(super) const PARTS: usize = 128;

/// Latencies are counted in steps of a sixteenth of a power of two, from a microsecond to minutes.
const STEPS: usize = 16 * 40;

/// What a load came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// How long it ran, without the check at its end.
    pub seconds: f64,
    /// Commands that were answered as they should.
    pub commands: u64,
    /// Redirections that were followed.
    pub moved: u64,
    /// Redirections for one command that were followed.
    pub asked: u64,
    /// Connections that a server closed while nothing was asked, and that were opened again.
    pub reopened: u64,
    /// The slowest answer.
    pub slowest_ms: f64,
    /// Of a thousand answers, 999 were faster.
    pub p999_ms: f64,
    /// The longest time in which no command to some part of the slots succeeded.
    pub longest_gap_ms: f64,
    /// Errors by kind.
    pub errors: BTreeMap<String, Errors>,
}

/// Errors of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Errors {
    /// How many.
    pub count: u64,
    /// Seconds from the start to the first.
    pub first_seconds: f64,
    /// Seconds from the start to the last.
    pub last_seconds: f64,
    /// Words of the first.
    pub example: String,
    /// The lowest and the highest slot concerned.
    pub slots: (u16, u16),
}

impl Report {
    /// How many errors of all kinds.
    pub fn error_count(&self) -> u64 {
        self.errors.values().map(|errors| errors.count).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seconds,
            commands,
            moved,
            asked,
            reopened,
            ..
        } = self;
        writeln!(
            f,
            "{commands} commands in {seconds:.1} s; {moved} moved, {asked} asked, {reopened} reopened"
        )?;
        writeln!(
            f,
            "slowest {:.1} ms, 99.9 % within {:.1} ms, longest gap {:.1} ms",
            self.slowest_ms, self.p999_ms, self.longest_gap_ms
        )?;
        for (kind, errors) in &self.errors {
            writeln!(
                f,
                "{kind}: {} errors from {:.1} s to {:.1} s, slots {} to {}; the first: {}",
                errors.count, errors.first_seconds, errors.last_seconds, errors.slots.0, errors.slots.1, errors.example
            )?;
        }
        match self.error_count() {
            0 => writeln!(f, "no errors"),
            1 => writeln!(f, "1 error"),
            count => writeln!(f, "{count} errors"),
        }
    }
}

/// What one worker counts; all of them are put together in the end.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    pub(super) commands: u64,
    pub(super) moved: u64,
    pub(super) asked: u64,
    pub(super) reopened: u64,
    latencies: Vec<u64>,
    slowest: Duration,
    errors: BTreeMap<String, Errors>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            commands: 0,
            moved: 0,
            asked: 0,
            reopened: 0,
            latencies: vec![0; STEPS],
            slowest: Duration::ZERO,
            errors: BTreeMap::new(),
        }
    }
}

impl Tally {
    pub(super) fn answered(&mut self, took: Duration) {
        self.commands += 1;
        self.slowest = self.slowest.max(took);
        if let Some(count) = self.latencies.get_mut(step(took)) {
            *count += 1;
        }
    }

    pub(super) fn failed(&mut self, kind: &str, words: &str, slot: Slot, at: Duration) {
        let at = at.as_secs_f64();
        let errors = self.errors.entry(kind.to_owned()).or_insert_with(|| Errors {
            count: 0,
            first_seconds: at,
            last_seconds: at,
            example: words.to_owned(),
            slots: (slot.0, slot.0),
        });
        errors.count += 1;
        errors.last_seconds = at;
        errors.slots = (errors.slots.0.min(slot.0), errors.slots.1.max(slot.0));
    }

    pub(super) fn with(mut self, other: Tally) -> Self {
        self.commands += other.commands;
        self.moved += other.moved;
        self.asked += other.asked;
        self.reopened += other.reopened;
        self.slowest = self.slowest.max(other.slowest);
        for (own, others) in self.latencies.iter_mut().zip(other.latencies) {
            *own += others;
        }
        for (kind, theirs) in other.errors {
            match self.errors.get_mut(&kind) {
                None => {
                    self.errors.insert(kind, theirs);
                }
                Some(own) => {
                    own.count += theirs.count;
                    if theirs.first_seconds < own.first_seconds {
                        own.example = theirs.example;
                    }
                    own.first_seconds = own.first_seconds.min(theirs.first_seconds);
                    own.last_seconds = own.last_seconds.max(theirs.last_seconds);
                    own.slots = (own.slots.0.min(theirs.slots.0), own.slots.1.max(theirs.slots.1));
                }
            }
        }
        self
    }

    pub(super) fn report(self, ran: Duration, moments: &Moments) -> Report {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let wanted = self.commands - self.commands / 1000;
        let mut counted = 0;
        let at = self.latencies.iter().position(|count| {
            counted += count;
            counted >= wanted
        });
        Report {
            seconds: ran.as_secs_f64(),
            commands: self.commands,
            moved: self.moved,
            asked: self.asked,
            reopened: self.reopened,
            slowest_ms: milliseconds(self.slowest),
            p999_ms: milliseconds(at.map_or(Duration::ZERO, upper).min(self.slowest)),
            longest_gap_ms: milliseconds(moments.longest_gap(ran)),
            errors: self.errors,
        }
    }
}

/// Which part of the slots.
pub(super) fn part(slot: Slot) -> usize {
    usize::from(slot.0) * PARTS / usize::from(SLOTS)
}

/// Where a latency is counted: sixteen steps to each power of two of microseconds.
fn step(took: Duration) -> usize {
    let micros = took.as_micros().max(1);
    let power = micros.ilog2();
    // The four bits below the highest one.
    let rest = (micros << 4 >> power) & 15;
    (power as usize * 16 + usize::try_from(rest).unwrap_or(15)).min(STEPS - 1)
}

/// The longest latency that is counted there.
fn upper(step: usize) -> Duration {
    let (power, rest) = (step / 16, step % 16);
    let micros = (16 + rest as u64 + 1) << power >> 4;
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_counted_within_a_sixteenth_of_itself() {
        for micros in [1, 7, 100, 1_234, 50_000, 4_999_999] {
            let took = Duration::from_micros(micros);
            let (low, high) = (took, took + took / 8 + Duration::from_micros(1));
            assert!(
                (low..=high).contains(&upper(step(took))),
                "{micros}: {:?}",
                upper(step(took))
            );
        }
    }

    #[test]
    fn errors_of_all_workers_are_put_together() {
        let (mut one, mut other) = (Tally::default(), Tally::default());
        one.failed("closed", "late", Slot(7), Duration::from_secs(3));
        other.failed("closed", "early", Slot(900), Duration::from_secs(1));
        other.failed("stale", "old", Slot(1), Duration::from_secs(2));
        (0..999).for_each(|_| one.answered(Duration::from_millis(1)));
        one.answered(Duration::from_millis(80));
        let report = one.with(other).report(Duration::from_secs(5), &Moments::new());
        let closed = &report.errors["closed"];
        assert_eq!(
            (closed.count, closed.example.as_str(), closed.slots),
            (2, "early", (7, 900))
        );
        assert_eq!((report.error_count(), report.commands), (3, 1000));
        assert!((1.0..1.2).contains(&report.p999_ms), "{}", report.p999_ms);
        assert!((80.0..81.0).contains(&report.slowest_ms), "{}", report.slowest_ms);
        let told = report.to_string();
        assert!(
            told.ends_with("3 errors\n") && told.contains("the first: early"),
            "{told}"
        );
    }
}
