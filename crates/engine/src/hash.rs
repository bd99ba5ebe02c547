//! Canonical hashes: equal meaning, equal hash, whatever the order of fields.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Part of every hash, so that a later change of the rules below cannot be mistaken for a change of the hashed thing.
const VERSION: &str = "v1";

/// A canonical hash: `v1-` and 16 hex digits. Two values hash alike if and only if they serialise to the same JSON
/// after object keys are sorted and absent (`null`) fields dropped.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CanonicalHash(String);

impl CanonicalHash {
    /// Hashes any serialisable value. Fails only where JSON has no form for it (a map with keys that are no strings).
    pub fn of<T: Serialize>(value: &T) -> Result<Self, serde_json::Error> {
        let mut text = String::new();
        write_canonical(&serde_json::to_value(value)?, &mut text);
        let digest = Sha256::digest(text.as_bytes());
        let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(format!("{VERSION}-{hex}")))
    }

    /// The hash as text, fit for an annotation or a label value.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().filter(|(_, v)| !v.is_null()).collect();
            entries.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (key, entry) in entries {
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                write_canonical(entry, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
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
            CanonicalHash::of(&json!({"replicas": 3})).unwrap().as_str(),
            "v1-f740fff6b57b3e84"
        );
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
