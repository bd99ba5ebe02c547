//! Canonical hashes: equal meaning, equal hash, whatever the order of fields.

use std::fmt;
use std::num::NonZeroU64;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Part of every hash, so that a later change of the rules below cannot be mistaken for a change of the hashed thing.
const VERSION: &str = "v1";

/// A canonical hash; as text, `v1-` and 16 hex digits. Two values hash alike if and only if they serialise to the same
/// JSON after object keys are sorted and absent (`null`) fields dropped. Eight bytes, also where there may be none, since a view keeps one per object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CanonicalHash(NonZeroU64);

impl CanonicalHash {
    /// Hashes any serialisable value. Fails only where JSON has no form for it (a map with keys that are no strings).
    pub fn of<T: Serialize>(value: &T) -> Result<Self, serde_json::Error> {
        Ok(Self::of_json(&serde_json::to_value(value)?))
    }

    /// Hashes a value that is JSON already, without a copy of it.
    pub fn of_json(value: &Value) -> Self {
        let mut text = Vec::with_capacity(512);
        write_canonical(value, &mut text);
        let mut head = [0; 8];
        for (to, from) in head.iter_mut().zip(Sha256::digest(&text)) {
            *to = from;
        }
        Self(NonZeroU64::new(u64::from_be_bytes(head)).unwrap_or(NonZeroU64::MIN))
    }
}

/// As text, fit for an annotation or a label value.
impl fmt::Display for CanonicalHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION}-{:016x}", self.0)
    }
}

fn write_canonical(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            out.push(b'{');
            // Sorted by itself, unless some crate of the tree asks serde_json to keep the order of insertion.
            if map.keys().is_sorted() {
                write_fields(map.iter(), out);
            } else {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by_key(|(key, _)| *key);
                write_fields(entries.into_iter(), out);
            }
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            for item in items {
                write_canonical(item, out);
                out.push(b',');
            }
            out.push(b']');
        }
        scalar => write_scalar(scalar, out),
    }
}

fn write_fields<'v>(fields: impl Iterator<Item = (&'v String, &'v Value)>, out: &mut Vec<u8>) {
    for (key, entry) in fields.filter(|(_, entry)| !entry.is_null()) {
        write_scalar(key, out);
        out.push(b':');
        write_canonical(entry, out);
        out.push(b',');
    }
}

/// Strings, numbers and truth values have a JSON form, and memory takes it.
fn write_scalar<T: Serialize + ?Sized>(scalar: &T, out: &mut Vec<u8>) {
    let written = serde_json::to_writer(out, scalar);
    debug_assert!(written.is_ok(), "a scalar without JSON form: {written:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn field_order_and_absent_fields_do_not_matter_but_list_order_does() {
        let one = CanonicalHash::of(&json!({"a": 1, "b": {"x": [1, 2], "gone": null}})).unwrap();
        let two = CanonicalHash::of(&json!({"b": {"x": [1, 2]}, "a": 1})).unwrap();
        let three = CanonicalHash::of(&json!({"b": {"x": [2, 1]}, "a": 1})).unwrap();
        assert_eq!(one, two);
        assert_ne!(one, three);
    }

    #[test]
    fn the_hash_of_a_known_value_never_changes() {
        // A stored hash outlives the binary that wrote it: this value may only change together with VERSION.
        assert_eq!(
            CanonicalHash::of(&json!({"replicas": 3})).unwrap().to_string(),
            "v1-f740fff6b57b3e84"
        );
    }

    #[test]
    fn a_value_hashes_alike_with_and_without_a_copy() {
        let value = json!({"b": [1, -2.5, "x\"\u{7f}\n", null, true], "a": {"é": {}, "": null}});
        assert_eq!(CanonicalHash::of(&value).unwrap(), CanonicalHash::of_json(&value));
        // As it was when hashes were made of the printed value: stored ones stay good.
        assert_eq!(CanonicalHash::of_json(&value).to_string(), "v1-3d9c1574fc3a55c5");
    }

    proptest! {
        #[test]
        fn strings_are_kept_apart_from_what_they_look_like(text in ".*", number in any::<i64>()) {
            let as_text = CanonicalHash::of(&json!({"v": number.to_string()})).unwrap();
            let as_number = CanonicalHash::of(&json!({"v": number})).unwrap();
            prop_assert_ne!(as_text, as_number);
            let wrapped = CanonicalHash::of(&json!([text.clone(), ""])).unwrap();
            let joined = CanonicalHash::of(&json!([format!("{text},")])).unwrap();
            prop_assert_ne!(wrapped, joined);
        }
    }
}
