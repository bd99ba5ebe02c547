//! Short texts, kept by the hundred thousand: names, references, identities.
//!
//! An `Arc<str>` of a name costs 64 bytes or more: a wide pointer, two counters and what the allocator adds. Most names
//! fit into the pointer's own place and a little more, so that is where a [`Text`] keeps them. It compares, orders and
//! hashes as the `str` it stands for, which makes it fit for keys that are looked up by `&str`.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The longest text that needs no allocation. With its length and the mark of its form it fills three words.
const INLINE: usize = 22;

/// A text that is never changed: cheap to clone, and small where it is short.
#[derive(Clone)]
pub struct Text(Form);

#[derive(Clone)]
enum Form {
    Inline { length: u8, bytes: [u8; INLINE] },
    Shared(Arc<str>),
}

impl Text {
    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            // Whole characters went in: this never fails, and costs a few nanoseconds.
            Form::Inline { .. } => str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Form::Shared(text) => text,
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Inline { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Form::Shared(text) => text.as_bytes(),
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        let mut bytes = [0; INLINE];
        let form = match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(text.as_bytes());
                Form::Inline { length, bytes }
            }
            _ => Form::Shared(text.into()),
        };
        Self(form)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.as_str().to_owned()
    }
}

impl Default for Text {
    fn default() -> Self {
        "".into()
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

// By bytes, which is the order of `str`.

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Text {}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::hash::DefaultHasher;

    fn hash(value: &(impl Hash + ?Sized)) -> u64 {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn a_text_is_three_words() {
        assert_eq!(size_of::<Text>(), 24);
        assert_eq!(size_of::<Option<Text>>(), 24);
    }

    proptest! {
        #[test]
        fn a_text_is_in_every_way_the_str_it_was_made_of(a in ".{0,30}", b in "\\PC{0,26}") {
            let (one, two) = (Text::from(a.as_str()), Text::from(b.clone()));
            prop_assert_eq!(one.as_str(), &a);
            prop_assert_eq!(&*two, &b);
            prop_assert_eq!(one.cmp(&two), a.cmp(&b));
            prop_assert_eq!(one == two, a == b);
            prop_assert_eq!(one == *b.as_str(), a == b);
            prop_assert_eq!(hash(&one), hash(a.as_str()));
            prop_assert_eq!(format!("{one:>9}|{one:?}"), format!("{a:>9}|{a:?}"));
            prop_assert_eq!(String::from(one.clone()), a);
        }

        #[test]
        fn length_makes_no_difference(length in 0usize..60) {
            let text = "x".repeat(length);
            let kept = Text::from(text.as_str());
            prop_assert_eq!(kept.as_str(), &text);
        }
    }
}
