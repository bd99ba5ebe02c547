//! Which incarnation of an object: its uid.
//!
//! The API server makes uids in the form of UUIDs, 36 characters for 16 bytes. A view keeps several per object, so they
//! are kept as those 16 bytes; whatever else calls itself a uid is kept as it is.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::Text;

/// A uid.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(Form);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Form {
    Uuid([u8; 16]),
    Other(Arc<str>),
}

impl Uid {
    /// The nil UUID, which orders before every other uid and belongs to nobody.
    pub const NIL: Uid = Uid(Form::Uuid([0; 16]));

    /// Whether this is the uid that reads so.
    pub fn is(&self, text: &str) -> bool {
        match &self.0 {
            Form::Uuid(bytes) => bytes_of(text) == Some(*bytes),
            Form::Other(own) => **own == *text,
        }
    }
}

impl From<&Uid> for Text {
    fn from(uid: &Uid) -> Self {
        uid.to_string().into()
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self(bytes_of(text).map_or_else(|| Form::Other(text.into()), Form::Uuid))
    }
}

/// The bytes of a UUID in the one form that it prints in again: lower case, with dashes.
fn bytes_of(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    if text.len() != 36 {
        return None;
    }
    let mut bytes = [0; 16];
    let mut digits = 0;
    for (at, byte) in text.iter().enumerate() {
        let digit = match (at, byte) {
            (8 | 13 | 18 | 23, b'-') => continue,
            (8 | 13 | 18 | 23, _) => return None,
            (_, b'0'..=b'9') => byte - b'0',
            (_, b'a'..=b'f') => byte - b'a' + 10,
            _ => return None,
        };
        let place: &mut u8 = bytes.get_mut(digits / 2)?;
        *place = *place << 4 | digit;
        digits += 1;
    }
    Some(bytes)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Uuid(bytes) => {
                let number = u128::from_be_bytes(*bytes);
                let part = |from: u32, digits: u32| number >> (4 * (32 - from - digits)) & ((1 << (4 * digits)) - 1);
                write!(
                    f,
                    "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
                    part(0, 8),
                    part(8, 4),
                    part(12, 4),
                    part(16, 4),
                    part(20, 12)
                )
            }
            Form::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_uuid_is_kept_as_its_bytes() {
        assert_eq!(size_of::<Uid>(), 24);
        let uid = Uid::from("2a80dc3b-d2c3-4e4a-b1f5-0ba93fb1a2df");
        assert!(matches!(uid.0, Form::Uuid(_)));
        assert!(uid.is("2a80dc3b-d2c3-4e4a-b1f5-0ba93fb1a2df") && !uid.is("2a80dc3b-d2c3-4e4a-b1f5-0ba93fb1a2d0"));
        // Prints as it was written, so only one spelling is taken for a UUID.
        for other in [
            "2A80DC3B-d2c3-4e4a-b1f5-0ba93fb1a2df",
            "2a80dc3bd2c34e4ab1f50ba93fb1a2df0000",
            "",
            "u-1",
        ] {
            let uid = Uid::from(other);
            assert!(matches!(uid.0, Form::Other(_)) && uid.is(other), "{other}");
        }
    }

    proptest! {
        #[test]
        fn a_uid_prints_as_it_was_written_and_tells_apart_what_differs(
            a in "([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|.{0,40})",
            b in "([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|.{0,2})",
        ) {
            let (one, two) = (Uid::from(a.as_str()), Uid::from(b.as_str()));
            prop_assert_eq!(one.to_string(), &*a);
            prop_assert!(one.is(&a));
            prop_assert_eq!(one == two, a == b);
            prop_assert_eq!(one.is(&b), a == b);
        }
    }
}
