//! What is asked of a log.

use jiff::Timestamp;

/// The options of `pods/NAME/log`, checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Goes on until the container ends.
    pub follow: bool,
    /// Of the instance before this one.
    pub previous: bool,
    /// Each line begins with its time.
    pub timestamps: bool,
    /// Lines from this time on.
    pub since: Option<Timestamp>,
    /// Of what there is at first, this many last lines.
    pub tail_lines: Option<u64>,
    /// Nothing after so many bytes.
    pub limit_bytes: Option<u64>,
    /// One of the two streams only.
    pub source: Option<Source>,
}

/// Which of its two streams a container wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Stdout,
    Stderr,
}

impl Source {
    /// As log files have it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}
