//! The wire format of protobuf: tags, numbers, lengths. What is wrong is told in the words of Go's decoders.

use std::fmt::Display;

const NUMBER: u64 = 0;
const EIGHT_BYTES: u64 = 1;
pub(super) const BYTES: u64 = 2;
const GROUP: u64 = 3;
const END_OF_GROUP: u64 = 4;
const FOUR_BYTES: u64 = 5;

const TOO_SHORT: &str = "unexpected EOF";

/// What stands before a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag {
    pub(super) field: u32,
    pub(super) wire: u64,
}

/// A message's bytes that are not read yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next field's tag, if the message goes on. `message` is what it is called.
    pub(super) fn tag(&mut self, message: &str) -> Result<Option<Tag>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let whole = self.varint()?;
        let wire = whole & 7;
        if wire == END_OF_GROUP {
            return Err(format!("proto: {message}: wiretype end group for non-group"));
        }
        // Go keeps 32 bits of the field's number, with a sign.
        let kept = low_half(whole >> 3);
        match u32::try_from(kept) {
            Ok(field) if field > 0 => Ok(Some(Tag { field, wire })),
            _ => Err(format!("proto: {message}: illegal tag {kept} (wire type {whole})")),
        }
    }

    /// A number that a field holds.
    pub(super) fn number(&mut self, tag: Tag, field: &dyn Display) -> Result<u64, String> {
        expect(tag, NUMBER, field)?;
        self.varint()
    }

    pub(super) fn double(&mut self, tag: Tag, field: &dyn Display) -> Result<f64, String> {
        expect(tag, EIGHT_BYTES, field)?;
        let (bytes, rest) = self.0.split_first_chunk().ok_or(TOO_SHORT)?;
        self.0 = rest;
        Ok(f64::from_le_bytes(*bytes))
    }

    /// Bytes, a text or a message that a field holds.
    pub(super) fn bytes(&mut self, tag: Tag, field: &dyn Display) -> Result<&'a [u8], String> {
        expect(tag, BYTES, field)?;
        let length = self.length()?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(TOO_SHORT)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Past the value of a field that nobody knows.
    pub(super) fn skip(&mut self, tag: Tag) -> Result<(), String> {
        let mut wire = tag.wire;
        let mut open_groups = 0_usize;
        loop {
            let passed = match wire {
                NUMBER => self.varint().map(|_| 0)?,
                EIGHT_BYTES => 8,
                BYTES => self.length()?,
                GROUP => {
                    open_groups += 1;
                    0
                }
                END_OF_GROUP => {
                    open_groups = open_groups.checked_sub(1).ok_or("proto: unexpected end of group")?;
                    0
                }
                FOUR_BYTES => 4,
                wire => return Err(format!("proto: illegal wireType {wire}")),
            };
            self.0 = self.0.get(passed..).ok_or(TOO_SHORT)?;
            if open_groups == 0 {
                return Ok(());
            }
            wire = self.varint()? & 7;
        }
    }

    fn length(&mut self) -> Result<usize, String> {
        let length = self.varint()?;
        // Go reads lengths with a sign.
        match i64::try_from(length) {
            Ok(_) => usize::try_from(length).map_err(|_| TOO_SHORT.to_owned()),
            Err(_) => Err("proto: negative length found during unmarshaling".to_owned()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(TOO_SHORT)?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("proto: integer overflow".to_owned())
    }
}

fn expect(tag: Tag, wire: u64, field: &dyn Display) -> Result<(), String> {
    if tag.wire == wire {
        return Ok(());
    }
    Err(format!("proto: wrong wireType = {} for field {field}", tag.wire))
}

/// The lower 32 bits with their sign, as Go takes an `int32` from a number.
pub(super) fn low_half(number: u64) -> i32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_unknown_fields_are_passed_with_all_that_is_in_them() {
        // A group with a number, a text, and another group in it; then field 1.
        let bytes = [0x1b, 0x08, 0x80, 0x01, 0x12, 0x01, b'x', 0x2b, 0x2c, 0x1c, 0x0a, 0x00];
        let mut reader = Reader::new(&bytes);
        let tag = reader.tag("A").unwrap().unwrap();
        assert_eq!((tag.field, tag.wire), (3, GROUP));
        reader.skip(tag).unwrap();
        let tag = reader.tag("A").unwrap().unwrap();
        assert_eq!(tag.field, 1);
        assert_eq!(reader.bytes(tag, &"B"), Ok(&[][..]));
        assert!(reader.tag("A").unwrap().is_none());
    }

    #[test]
    fn a5_what_is_wrong_is_said_as_go_says_it() {
        for (bytes, why) in [
            (&[0x0c][..], "proto: A: wiretype end group for non-group"),
            (&[0x00], "proto: A: illegal tag 0 (wire type 0)"),
            (&[0xff; 12], "proto: integer overflow"),
            (&[0x0a, 0x05, b'x'], "unexpected EOF"),
            (&[0x08, 0x01], "proto: wrong wireType = 0 for field B"),
            (
                &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                "proto: negative length found during unmarshaling",
            ),
        ] {
            let mut reader = Reader::new(bytes);
            let read = reader.tag("A").and_then(|tag| reader.bytes(tag.unwrap(), &"B"));
            assert_eq!(read.unwrap_err(), why, "{bytes:?}");
        }
        for (bytes, why) in [
            (&[0x0f][..], "proto: illegal wireType 7"),
            (&[0x09, 1, 2], "unexpected EOF"),
            (&[0x0b, 0x08, 0x01], "unexpected EOF"),
        ] {
            let mut reader = Reader::new(bytes);
            let tag = reader.tag("A").unwrap().unwrap();
            assert_eq!(reader.skip(tag).unwrap_err(), why, "{bytes:?}");
        }
    }
}
