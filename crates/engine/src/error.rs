//! What an error means for what happens next. The class is part of an error's type, never guessed from its text.

use serde::Serialize;

/// The three answers to "and now?".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorClass {
    /// It may work next time: back off, keep the state, try again.
    Transient,
    /// The object asks for something impossible: wait until its spec changes. Never retried by time alone.
    Validation,
    /// A person must act; the message says how.
    Permanent,
}

impl ErrorClass {
    /// Whether trying the same thing again, unchanged, can help.
    pub fn retries(self) -> bool {
        matches!(self, ErrorClass::Transient)
    }

    /// As it appears in metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            ErrorClass::Transient => "transient",
            ErrorClass::Validation => "validation",
            ErrorClass::Permanent => "permanent",
        }
    }
}
