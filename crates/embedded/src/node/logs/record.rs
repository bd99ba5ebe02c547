//! One line of a log file: `2026-11-16T10:00:00.123456789Z stdout F text`.

use jiff::Timestamp;

use crate::node::logs::Source;

/// The longest line of a file: a part of 16 KiB and what stands before it, with room to spare.
pub const MOST_BYTES: usize = 64 * 1024;

/// A line that a container wrote, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    pub time: Timestamp,
    pub source: Source,
    /// The line goes on in the next record of the same source.
    pub is_part: bool,
    pub text: &'a [u8],
}

impl<'a> Record<'a> {
    /// From a line without its end. `None`: a writer that was killed has left it so.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = line.splitn(4, |byte| *byte == b' ');
        let time = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        let source = match words.next()? {
            b"stdout" => Source::Stdout,
            b"stderr" => Source::Stderr,
            _ => return None,
        };
        // More marks may follow, with colons between.
        let is_part = match words.next()?.split(|byte| *byte == b':').next()? {
            b"P" => true,
            b"F" => false,
            _ => return None,
        };
        let text = words.next()?;
        Some(Self {
            time,
            source,
            is_part,
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_time_stream_mark_and_text() {
        let record = Record::parse(b"2026-11-16T10:00:00.000000007Z stderr P  two  words ").unwrap();
        assert_eq!(record.source, Source::Stderr);
        assert!(record.is_part);
        assert_eq!(record.text, b" two  words ");
        assert_eq!(record.time.subsec_nanosecond(), 7);
        let empty = Record::parse(b"2026-11-16T10:00:00+01:00 stdout F:x ").unwrap();
        assert_eq!((empty.is_part, empty.text), (false, &b""[..]));
    }

    #[test]
    fn what_a_killed_writer_left_is_no_record() {
        for line in [
            "",
            "2026-11-16T10:00:00Z",
            "2026-11-16T10:00:00Z stdout F",
            "x stdout F a",
            "2026-11-16T10:00:00Z stdin F a",
        ] {
            assert_eq!(Record::parse(line.as_bytes()), None, "{line}");
        }
    }
}
