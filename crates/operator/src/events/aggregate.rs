//! Which told thing becomes an Event object: arithmetic on values, no clock, no task.
//!
//! - The same reason and note on the same object within ten minutes is one Event with a count (a *series*).
//! - Writes, new or counted, pass one token bucket. What finds no token is shed; a count that was shed is not lost, the
//!   next bump carries it.
//! - What was shed is summed up: one [`Summary`] per larger object (or kind) and reason in ten seconds.
//!
//! Memory is bounded: series by number and age, the least recently told going first; summaries by number.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use usher_engine::{Moment, TokenBucket, name};

use super::{About, Within};

/// How much is written and remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Writes a second, in the long run.
    pub per_second: u32,
    /// Writes at once after a quiet time.
    pub burst: u32,
    /// Series remembered; about 200 bytes each.
    pub series: usize,
    /// A series nobody told for this long is over: the next is a new Event.
    pub series_age: Duration,
    /// Between two summaries of one object (or kind) and reason.
    pub summary_every: Duration,
}

impl Default for Limits {
    /// 25 a second, 100 in a burst: subnets spec, section 9.
    fn default() -> Self {
        Self {
            per_second: 25,
            burst: 100,
            series: 4_096,
            series_age: Duration::from_secs(600),
            summary_every: Duration::from_secs(10),
        }
    }
}

/// Open summaries; past that, what is shed is only counted.
pub(super) const SUMMARIES: usize = 256;

/// What to do with one told thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Make an Event object of this name.
    Create {
        /// Not used before by this process, nor by another instance.
        name: String,
    },
    /// The Event object of this name has now been told so many times.
    Bump {
        /// Given out by an earlier [`Verdict::Create`].
        name: String,
        /// At least 2.
        count: u32,
    },
    /// Not written.
    Shed,
}

/// What was shed over some seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Where to write it, and under which name; `None`: nowhere but the log.
    pub on: Option<(About, String)>,
    /// Of which kind the objects were.
    pub kind: String,
    /// The reason they were told with.
    pub reason: &'static str,
    /// What happened, to one and to many, where the teller said.
    pub words: Option<[&'static str; 2]>,
    /// How many.
    pub count: u64,
}

impl Summary {
    /// One sentence.
    pub fn note(&self) -> String {
        let Summary { count, reason, .. } = self;
        match (self.words, count) {
            (Some([one, _]), 1) => format!("1 {one}, without an event of its own"),
            (Some([_, many]), _) => format!("{count} {many}, without events of their own"),
            (None, 1) => format!("1 more {reason} event was not written one by one"),
            (None, _) => format!("{count} more {reason} events were not written one by one"),
        }
    }
}

/// Decides, remembers, and forgets in time.
#[derive(Debug)]
pub struct Aggregator {
    limits: Limits,
    salt: String,
    bucket: TokenBucket,
    series: BTreeMap<SeriesKey, Series>,
    /// Series by when they were last told, the oldest first.
    by_age: BTreeMap<u64, SeriesKey>,
    told: u64,
    unwritten: BTreeMap<SummaryKey, Unwritten>,
    summary_due: Option<Moment>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SeriesKey {
    uid: Arc<str>,
    reason: &'static str,
    /// A hash, so that a series costs the same however long its note. Two notes that collide share a count: harmless.
    note: u64,
}

impl SeriesKey {
    fn new(about: &About, reason: &'static str, note: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        note.hash(&mut hasher);
        Self {
            uid: about.uid.as_str().into(),
            reason,
            note: hasher.finish(),
        }
    }
}

#[derive(Debug)]
struct Series {
    name: String,
    count: u32,
    last: Moment,
    age_key: u64,
}

/// By uid of the larger object, or by kind where there is none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SummaryKey {
    within: String,
    kind: String,
    reason: &'static str,
}

#[derive(Debug)]
struct Unwritten {
    on: Option<Within>,
    count: u64,
    since: Moment,
}

impl Aggregator {
    /// `salt` must differ between any two processes: it keeps the names of their Events apart.
    pub fn new(limits: Limits, salt: impl Into<String>) -> Self {
        Self {
            limits,
            salt: salt.into(),
            bucket: TokenBucket::new(limits.burst, limits.per_second),
            series: BTreeMap::new(),
            by_age: BTreeMap::new(),
            told: 0,
            unwritten: BTreeMap::new(),
            summary_due: None,
        }
    }

    /// Judges one told thing. `within` is where a summary may stand for it.
    pub fn offer(
        &mut self,
        about: &About,
        within: Option<&Within>,
        reason: &'static str,
        note: &str,
        now: Moment,
    ) -> Verdict {
        self.expire(now);
        self.told = self.told.saturating_add(1);
        let key = SeriesKey::new(about, reason, note);
        let granted = self.bucket.try_take(now);
        if let Some(series) = self.series.get_mut(&key) {
            self.by_age.remove(&series.age_key);
            self.by_age.insert(self.told, key);
            series.age_key = self.told;
            series.last = now;
            series.count = series.count.saturating_add(1);
            if granted {
                return Verdict::Bump {
                    name: series.name.clone(),
                    count: series.count,
                };
            }
        } else if granted {
            let name = self.name_for(about);
            self.by_age.insert(self.told, key.clone());
            self.series.insert(
                key,
                Series {
                    name: name.clone(),
                    count: 1,
                    last: now,
                    age_key: self.told,
                },
            );
            self.make_room();
            return Verdict::Create { name };
        }
        self.leave_out(&about.kind, within, reason, 1, now);
        Verdict::Shed
    }

    /// So many of a reason, about objects of a kind, are not written: they are to be summed up.
    pub fn leave_out(&mut self, kind: &str, within: Option<&Within>, reason: &'static str, count: u64, now: Moment) {
        let key = SummaryKey {
            within: within.map(|within| within.about.uid.clone()).unwrap_or_default(),
            kind: kind.to_owned(),
            reason,
        };
        if let Some(unwritten) = self.unwritten.get_mut(&key) {
            unwritten.count = unwritten.count.saturating_add(count);
        } else if self.unwritten.len() < SUMMARIES {
            self.unwritten.insert(
                key,
                Unwritten {
                    on: within.cloned(),
                    count,
                    since: now,
                },
            );
            let due = now + self.limits.summary_every;
            self.summary_due = Some(self.summary_due.map_or(due, |earlier| earlier.min(due)));
        }
    }

    /// The Event object was not made, or is gone: the next of its kind is a new one.
    pub fn forget(&mut self, about: &About, reason: &'static str, note: &str) {
        if let Some(series) = self.series.remove(&SeriesKey::new(about, reason, note)) {
            self.by_age.remove(&series.age_key);
        }
    }

    /// A summary that is due, the longest waiting first. Those that are to be written take a token like any other
    /// write; ask before [`Aggregator::offer`], so that a storm cannot take it from them.
    pub fn summary(&mut self, now: Moment) -> Option<Summary> {
        if self.summary_due.is_none_or(|due| now < due) {
            return None;
        }
        let every = self.limits.summary_every;
        let mut ready: Vec<_> = self
            .unwritten
            .iter()
            .filter(|(_, u)| now.since(u.since) >= every)
            .map(|(k, u)| (u.since, k))
            .collect();
        ready.sort();
        let mut chosen = None;
        for (_, key) in ready {
            if self.unwritten.get(key).is_some_and(|u| u.on.is_none()) || self.bucket.try_take(now) {
                chosen = Some(key.clone());
                break;
            }
        }
        let key = chosen?;
        let unwritten = self.unwritten.remove(&key)?;
        self.summary_due = self.unwritten.values().map(|u| u.since + every).min();
        self.told = self.told.saturating_add(1);
        let words = unwritten.on.as_ref().and_then(|within| within.words);
        let on = unwritten.on.map(|within| {
            let name = self.name_for(&within.about);
            (within.about, name)
        });
        Some(Summary {
            on,
            kind: key.kind,
            reason: key.reason,
            words,
            count: unwritten.count,
        })
    }

    /// Series remembered.
    pub fn remembered(&self) -> usize {
        self.series.len()
    }

    fn name_for(&self, about: &About) -> String {
        name::hashed(
            &format!("{}/{}/{}", self.salt, about.uid, self.told),
            about.key.name(),
            name::MAX_NAME_LENGTH,
        )
    }

    fn expire(&mut self, now: Moment) {
        while let Some(entry) = self.by_age.first_entry() {
            let over = self
                .series
                .get(entry.get())
                .is_none_or(|s| now.since(s.last) >= self.limits.series_age);
            if !over {
                break;
            }
            self.series.remove(&entry.remove());
        }
    }

    fn make_room(&mut self) {
        while self.series.len() > self.limits.series.max(1) {
            let Some((_, oldest)) = self.by_age.pop_first() else {
                break;
            };
            self.series.remove(&oldest);
        }
        debug_assert_eq!(self.series.len(), self.by_age.len(), "every series has its age");
    }
}

#[cfg(test)]
#[path = "aggregate_tests.rs"]
mod tests;
