//! A line of the log as bytes: a fixed head, the key, the JSON.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | 1 Create, 2 Update, 3 Delete; 128 more if the next line belongs to the same batch |
//! | 8 | create revision |
//! | 8 | previous revision, 0 for none |
//! | 8 | microseconds since 1970, signed |
//! | 4 | where the resourceVersion goes in the JSON |
//! | 2 | length of the key |
//! | … | key, then JSON; a Delete has none: its value is that of the line it refers to |
//!
//! Numbers are little-endian. The revision is the row's key in the table.

use bytes::Bytes;
use jiff::Timestamp;

use crate::store::{Key, Kind, LogEntry, Revision, Value};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub kind: Kind,
    pub created: Revision,
    pub previous: Revision,
    pub time: Timestamp,
    pub goes_on: bool,
    pub key: Key,
    /// `None` for a Delete.
    pub value: Option<Value>,
}

const GOES_ON: u8 = 128;

/// Writes a line over whatever `out` held.
pub(super) fn encode(line: &LogEntry, out: &mut Vec<u8>) {
    out.clear();
    let (kind, value) = match line.kind {
        Kind::Create => (1, Some(&line.value)),
        Kind::Update => (2, Some(&line.value)),
        Kind::Delete => (3, None),
    };
    let key = line.key.as_str().as_bytes();
    out.push(kind | if line.goes_on { GOES_ON } else { 0 });
    out.extend_from_slice(&line.created.to_le_bytes());
    out.extend_from_slice(
        &line
            .previous
            .as_ref()
            .map_or(0, |(revision, _)| *revision)
            .to_le_bytes(),
    );
    out.extend_from_slice(&line.time.as_microsecond().to_le_bytes());
    out.extend_from_slice(&value.map_or(0, Value::splice).to_le_bytes());
    // The registry refuses names above 253 bytes (S8), so a key is far below 64 KiB.
    out.extend_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value.map_or(&[], |value| value.json()));
}

/// `None` when the bytes are not a row.
pub(super) fn decode(mut bytes: &[u8]) -> Option<Row> {
    let [kind] = take(&mut bytes)?;
    let created = u64::from_le_bytes(take(&mut bytes)?);
    let previous = u64::from_le_bytes(take(&mut bytes)?);
    let time = Timestamp::from_microsecond(i64::from_le_bytes(take(&mut bytes)?)).ok()?;
    let splice = u32::from_le_bytes(take(&mut bytes)?);
    let length = u16::from_le_bytes(take(&mut bytes)?);
    let (key, json) = bytes.split_at_checked(length.into())?;
    let key = Key::parse(std::str::from_utf8(key).ok()?)?;
    let goes_on = kind & GOES_ON != 0;
    let kind = match kind & !GOES_ON {
        1 => Kind::Create,
        2 => Kind::Update,
        3 => Kind::Delete,
        _ => return None,
    };
    let value = match kind {
        Kind::Delete => None,
        _ => Some(Value::new(Bytes::copy_from_slice(json), usize::try_from(splice).ok()?).ok()?),
    };
    Some(Row {
        kind,
        created,
        previous,
        time,
        goes_on,
        key,
        value,
    })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}
