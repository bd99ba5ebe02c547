//! What the servers' logs say of jobs: which are in flight (R22), and what came of the others (R20, R23).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use usher_engine::Text;

use super::{BATCH, LARGEST_BATCH};
use crate::plan::topology::{Standing, Topology};
use crate::seen::{Job, JobState};
use crate::words::NodeId;

/// R22: a job that has not moved for this long is called off.
const STANDING_STILL: SignedDuration = SignedDuration::from_secs(120);
/// R23: the longest wait after failures.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(60);

/// The jobs in flight, each once, whoever tells of it.
pub fn in_flight(topology: &Topology<'_>) -> Vec<Job> {
    let mut jobs: BTreeMap<Text, Job> = BTreeMap::new();
    let said = || {
        let live = topology.standing(Standing::Live);
        live.filter_map(|member| topology.says(&member.id))
            .flat_map(|says| &says.jobs)
    };
    // What its giver calls over is over, whatever a taker that has lost its role still lists.
    let over: Vec<&Text> = said()
        .filter(|job| job.exports && job.is_over())
        .map(|job| &job.name)
        .collect();
    for job in said().filter(|job| !job.is_over() && !over.contains(&&job.name)) {
        // The giving server's own word first: it is the one that can call it off.
        if job.exports || !jobs.contains_key(&job.name) {
            jobs.insert(job.name.clone(), job.clone());
        }
    }
    jobs.into_values().collect()
}

/// Whether a job in flight gives to or takes from one of these members: their shard does not fail over meanwhile (R28).
pub fn touches<'m>(jobs: &[Job], members: impl IntoIterator<Item = &'m NodeId>) -> bool {
    let mut members = members.into_iter();
    members.any(|id| jobs.iter().any(|job| job.source == *id || job.target == *id))
}

/// Why a job in flight is called off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The plan does not want it any more (R6).
    Unwanted,
    /// It has not moved for too long.
    StandsStill,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unwanted => "they are not wanted any more",
            Self::StandsStill => "they have not moved for 120 s",
        })
    }
}

/// R22: whether a job in flight is to be called off.
pub fn trouble(topology: &Topology<'_>, job: &Job, wanted: bool, now: Timestamp) -> Option<Trouble> {
    let still = topology.seen.memory.still_since.get(&job.name);
    match still {
        _ if !wanted => Some(Trouble::Unwanted),
        Some(since) if now.duration_since(*since) >= STANDING_STILL => Some(Trouble::StandsStill),
        _ => None,
    }
}

/// What the log of the giving server says of one pair.
#[derive(Debug, Clone, PartialEq)]
pub struct History<'a> {
    /// How many slots the next job has at most (R20).
    pub batch: u16,
    /// Failures that count, since the last success (R23).
    pub failures: u32,
    /// What the newest failure said, if nothing came after it.
    pub error: Option<&'a str>,
    /// When that was.
    at: Option<Timestamp>,
}

/// Reads the log, newest first as the server gives it. It is in the server's memory: after its restart all begins anew.
pub fn history<'a>(log: &'a [Job], from: &NodeId, to: &NodeId) -> History<'a> {
    let mut history = History {
        batch: BATCH,
        failures: 0,
        error: None,
        at: None,
    };
    let mut successes = 0;
    let pair = |job: &&Job| job.exports && job.source == *from && job.target == *to;
    for job in log.iter().rev().filter(pair) {
        match job.state {
            JobState::InFlight(_) | JobState::Cancelled => {}
            JobState::Success => {
                successes += 1;
                if successes == 2 {
                    successes = 0;
                    history.batch = (history.batch.saturating_mul(2)).min(LARGEST_BATCH);
                }
                history.failures = 0;
                (history.error, history.at) = (None, None);
            }
            JobState::Failed => {
                successes = 0;
                if counts(&job.message) {
                    history.failures += 1;
                    history.batch = (history.batch / 2).max(1);
                }
                (history.error, history.at) = (Some(job.message.as_str()), job.updated);
            }
        }
    }
    history
}

impl History<'_> {
    /// R23: how long to wait yet: 1 s x 2^n after n failures, 60 s at most. The time of a failure is by the server's clock:
    /// one that is far ahead does not make us wait for it.
    pub fn back_off(&self, now: Timestamp) -> Option<Duration> {
        let wait = SignedDuration::from_secs(1_i64 << self.failures.min(6)).min(LONGEST_WAIT);
        let left = wait.saturating_sub(now.duration_since(self.at?));
        (left.is_positive() && left <= LONGEST_WAIT + LONGEST_WAIT)
            .then(|| Duration::try_from(left).ok())
            .flatten()
    }
}

/// Whether a failure counts against its pair. The world moved under those that do not: another owner, another primary, a
/// node that is gone.
fn counts(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let moved = [
        "not served",
        "no longer owned",
        "only on primary",
        "only on master",
        "unknown node",
    ];
    !moved.iter().any(|text| message.contains(text))
}

/// Whether a failure is about what the servers' user may do.
pub fn lacks_rights(message: &str) -> bool {
    let message = message.to_ascii_uppercase();
    ["NOPERM", "AUTH", "WRONGPASS"]
        .iter()
        .any(|text| message.contains(text))
}
