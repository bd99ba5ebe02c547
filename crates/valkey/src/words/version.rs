//! Versions of servers, and which data they can read.

use std::fmt;

use serde::Serialize;

/// A server's version, as it says itself or as a tag begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ServerVersion {
    /// First number.
    pub major: u16,
    /// Second number.
    pub minor: u16,
    /// Third number.
    pub patch: u16,
}

/// What versions write to disk and to replicas (R46). A server reads its own format and older ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum DataFormat {
    /// RDB 11: 7.2 and 8.x.
    Rdb11,
    /// RDB 80: 9.0 and 9.1.
    Rdb80,
}

impl ServerVersion {
    /// Atomic slot migration, `shutdown-on-sigterm failover`, `REPLICATE NO ONE` came with this.
    pub const V9: ServerVersion = ServerVersion {
        major: 9,
        minor: 0,
        patch: 0,
    };

    /// Reads `9.1.2`, and the beginning of tags such as `9.1.0-alpine` or `v9.1`; missing numbers are 0. `None` where a
    /// text tells no version (`latest`, a digest).
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (numbers, rest) = text.split_at(end);
        if !(rest.is_empty() || rest.starts_with('-')) {
            return None;
        }
        let mut parts = numbers.split('.').map(|part| part.parse::<u16>().ok());
        let major = parts.next().flatten()?;
        let mut next = || parts.next().map_or(Some(0), |part| part);
        let (minor, patch) = (next()?, next()?);
        parts.next().is_none().then_some(Self { major, minor, patch })
    }

    /// Whether it moves slots atomically.
    pub fn moves_slots_atomically(self) -> bool {
        self >= Self::V9
    }

    /// The format it writes, where known.
    pub fn data_format(self) -> Option<DataFormat> {
        match (self.major, self.minor) {
            (7, 2..) | (8, _) => Some(DataFormat::Rdb11),
            (9, 0..=1) => Some(DataFormat::Rdb80),
            _ => None,
        }
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_tags_and_nothing_else_is() {
        let cases = [
            ("9.1.2", Some("9.1.2")),
            ("9.1.0-alpine", Some("9.1.0")),
            ("v8.0", Some("8.0.0")),
            ("7", Some("7.0.0")),
            ("latest", None),
            ("", None),
            ("9.x", None),
            ("9.1.2.3", None),
            ("9..1", None),
            ("9.1rc1", None),
            ("sha256:abc", None),
        ];
        for (text, version) in cases {
            let read = ServerVersion::parse(text).map(|version| version.to_string());
            assert_eq!(read.as_deref(), version, "{text:?}");
        }
    }

    #[test]
    fn r46_formats_are_shared_within_seven_eight_and_within_nine() {
        let format = |text| ServerVersion::parse(text).and_then(ServerVersion::data_format);
        assert_eq!(format("7.2.5"), format("8.1.3"));
        assert_eq!(format("9.0.0"), format("9.1.2"));
        assert!(format("8.1.3") < format("9.0.0"));
        assert_eq!((format("7.0.1"), format("9.2.0")), (None, None));
    }
}
