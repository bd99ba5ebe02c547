//! From records to what is shown: parts are joined, lines are chosen, marked with their time, and cut at the limit. Pure.

use std::io::Write as _;

use jiff::Timestamp;

use crate::node::logs::record::Record;
use crate::node::logs::{LogQuery, Source};

/// What is kept of a line that goes on. A longer one is shown in the pieces in which it comes.
const MOST_KEPT: usize = 1024 * 1024;

/// Turns records into bytes, one after the other.
#[derive(Debug)]
pub struct Lines {
    query: LogQuery,
    /// The beginnings of lines, one for each source.
    begun: [Option<Begun>; 2],
    /// Lines that have come to their end.
    count: u64,
    /// As many of the first lines are not shown.
    skip: u64,
    /// Bytes that may still be shown.
    left: u64,
}

#[derive(Debug)]
struct Begun {
    /// Of its first part.
    time: Timestamp,
    /// Which came first, where two have begun.
    order: u64,
    text: Vec<u8>,
    /// Something of it has been shown already.
    is_shown: bool,
}

impl Lines {
    pub fn new(query: &LogQuery, skip: u64) -> Self {
        Self {
            query: query.clone(),
            begun: [None, None],
            count: 0,
            skip,
            left: query.limit_bytes.unwrap_or(u64::MAX),
        }
    }

    /// Lines that have come to their end so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Nothing more can be shown.
    pub fn is_full(&self) -> bool {
        self.left == 0
    }

    /// A line of the file, without its end. One that is no record is passed over.
    pub fn push(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let Some(record) = Record::parse(line) else {
            return;
        };
        let [stdout, stderr] = &mut self.begun;
        let (place, other) = match record.source {
            Source::Stdout => (stdout, stderr),
            Source::Stderr => (stderr, stdout),
        };
        let order = other.as_ref().map_or(0, |other| other.order + 1);
        let begun = place.get_or_insert_with(|| Begun {
            time: record.time,
            order,
            text: Vec::new(),
            is_shown: false,
        });
        begun.text.extend_from_slice(record.text);
        if !record.is_part {
            if let Some(mut begun) = place.take() {
                begun.text.push(b'\n');
                self.show(&mut begun, record.source, out);
            }
            self.count += 1;
        } else if begun.text.len() >= MOST_KEPT
            && let Some(mut begun) = place.take()
        {
            self.show(&mut begun, record.source, out);
            let [stdout, stderr] = &mut self.begun;
            let place = if record.source == Source::Stdout {
                stdout
            } else {
                stderr
            };
            *place = Some(begun);
        }
    }

    /// Nothing more comes: lines without an end are shown without one.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let [stdout, stderr] = std::mem::take(&mut self.begun);
        let mut rest: Vec<(Begun, Source)> = stdout.map(|begun| (begun, Source::Stdout)).into_iter().collect();
        rest.extend(stderr.map(|begun| (begun, Source::Stderr)));
        rest.sort_by_key(|(begun, _)| begun.order);
        for (mut begun, source) in rest {
            self.show(&mut begun, source, out);
            self.count += 1;
        }
    }

    fn show(&mut self, begun: &mut Begun, source: Source, out: &mut Vec<u8>) {
        let text = std::mem::take(&mut begun.text);
        let is_wanted = self.count >= self.skip
            && self.query.source.is_none_or(|wanted| wanted == source)
            && self.query.since.is_none_or(|since| begun.time >= since);
        if !is_wanted || self.left == 0 {
            return;
        }
        let start = out.len();
        if self.query.timestamps && !begun.is_shown {
            // Nine digits always, as in the reference. Writing to a Vec cannot fail.
            let _ = write!(out, "{:.9} ", begun.time);
        }
        begun.is_shown = true;
        out.extend_from_slice(&text);
        let added = u64::try_from(out.len() - start).unwrap_or(u64::MAX);
        if added > self.left {
            out.truncate(start + usize::try_from(self.left).unwrap_or(0));
        }
        self.left = self.left.saturating_sub(added);
    }
}
