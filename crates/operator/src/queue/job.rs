//! The queue's words: why a pass runs, what it is given, how it ended.

use std::fmt;
use std::time::Duration;

/// Why a key was woken: the `event_type` of metrics, and the word in logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Why(pub &'static str);

impl Why {
    /// Something was created.
    pub const CREATE: Why = Why("create");
    /// Something changed.
    pub const UPDATE: Why = Why("update");
    /// Something is gone or going.
    pub const DELETE: Why = Why("delete");
    /// Somebody asked from outside.
    pub const EXTERNAL: Why = Why("external");
    /// The last pass failed.
    pub const RETRY: Why = Why("retry");
    /// The last pass asked to look again.
    pub const TIMER: Why = Why("timer");
    /// The cache has seen what the last pass wrote.
    pub const ECHO: Why = Why("echo");
    /// The operator started, or began to lead.
    pub const START: Why = Why("start");
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// One pass to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job<K> {
    /// What to look at.
    pub key: K,
    /// Everything that asked for this pass, in the order of the words, each with how often it did; never empty.
    pub whys: Vec<(Why, u32)>,
    /// How long past its due moment it starts.
    pub waited: Duration,
    /// Consecutive failures so far.
    pub attempt: u32,
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// Nothing to wait for but news. Failures are forgotten.
    Done,
    /// It went well; look again after this long at the latest. Failures are forgotten.
    Again(Duration),
    /// It failed: back off.
    Failed,
    /// It failed, and there is no point in trying sooner than this (429 with Retry-After): back off at least that long.
    /// The caller caps what a server may ask for.
    RetryAfter(Duration),
    /// Neither done nor failed: to the back of the queue at once, for the same reasons. Failures are kept.
    Yield,
}
