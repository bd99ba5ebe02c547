//! Versions as programs print them, and the oldest ones that fit.

use std::fmt;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::process;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) patch: u32,
}

impl Version {
    pub(crate) const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// The first word that looks like a version: `Kubernetes v1.36.3`, `etcd Version: 3.6.16`, `go version go1.26.8 …`.
    pub(crate) fn find(text: &str) -> Option<Self> {
        text.split_whitespace().find_map(Self::parse)
    }

    /// `1.36.3`, with `v` or `go` before it and anything after it (`-rc.1`, `+dist`, `rc2`).
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let word = word
            .strip_prefix('v')
            .or_else(|| word.strip_prefix("go"))
            .unwrap_or(word);
        let mut parts = word.splitn(3, '.');
        let major = parts.next()?.parse().ok()?;
        let minor = leading_number(parts.next()?)?;
        let patch = parts.next().and_then(leading_number).unwrap_or(0);
        Some(Self { major, minor, patch })
    }

    /// Same major (an etcd 4 or a Kubernetes 2 is another program), and not older.
    pub(crate) fn fits(self, oldest: Self) -> bool {
        self.major == oldest.major && self >= oldest
    }
}

fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Asks a program who it is.
pub(crate) fn of_program(program: &Path, question: &[&str]) -> Option<Version> {
    Version::find(&process::ask(Command::new(program).args(question))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_programs_print() {
        let cases = [
            ("Kubernetes v1.36.3", Version::new(1, 36, 3)),
            ("Kubernetes v1.33.0-rc.1+d34db33f", Version::new(1, 33, 0)),
            (
                "etcd Version: 3.6.16\nGit SHA: Not provided\nGo Version: go1.26.8",
                Version::new(3, 6, 16),
            ),
            (
                "Client Version: v1.32.4\nKustomize Version: v5.5.0",
                Version::new(1, 32, 4),
            ),
            ("go version go1.26.8 linux/amd64", Version::new(1, 26, 8)),
            ("go version go1.27rc1 linux/amd64", Version::new(1, 27, 0)),
            ("go version go1.26 linux/arm64", Version::new(1, 26, 0)),
        ];
        for (text, version) in cases {
            assert_eq!(Version::find(text), Some(version), "{text}");
        }
    }

    #[test]
    fn text_without_a_version_has_none() {
        for text in ["", "unknown command", "v", "go", "etcd Version: unknown", "1", "1.x"] {
            assert_eq!(Version::find(text), None, "{text}");
        }
    }

    #[test]
    fn a_newer_minor_fits_and_another_major_does_not() {
        let oldest = Version::new(1, 33, 0);
        assert!(Version::new(1, 33, 0).fits(oldest));
        assert!(Version::new(1, 40, 1).fits(oldest));
        assert!(!Version::new(1, 32, 9).fits(oldest));
        assert!(!Version::new(2, 0, 0).fits(oldest));
    }
}
