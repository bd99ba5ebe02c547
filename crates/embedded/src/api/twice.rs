//! Keys that a JSON text gives twice: strict validation names them, and the last one counts.

use std::collections::HashSet;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Findings such as `duplicate field "spec.replicas"`, in the order met. Empty if the text is not JSON.
pub(crate) fn keys(json: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(json);
    let walk = Walk {
        path: String::new(),
        found: &mut found,
    };
    if walk.deserialize(&mut reader).is_err() {
        found.clear();
    }
    found
}

/// Whether the text, from which the value was read, gives any key twice: then it has more colons than the value has
/// fields.
pub(crate) fn there_are_some(json: &[u8], value: &Value) -> bool {
    colons(json) != fields(value)
}

/// The colons outside of strings.
fn colons(json: &[u8]) -> usize {
    let mut count = 0;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b':' => count += 1,
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => {
                            bytes.next();
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    count
}

fn fields(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.len() + map.values().map(fields).sum::<usize>(),
        Value::Array(list) => list.iter().map(fields).sum(),
        _ => 0,
    }
}

struct Walk<'a> {
    path: String,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen: HashSet<std::borrow::Cow<'de, str>> = HashSet::new();
        while let Some(Key(key)) = map.next_key()? {
            let path = if self.path.is_empty() {
                key.to_string()
            } else {
                format!("{}.{key}", self.path)
            };
            if !seen.insert(key) {
                self.found
                    .push(format!("duplicate field {}", crate::fault::quote(&path)));
            }
            map.next_value_seed(Walk {
                path,
                found: &mut *self.found,
            })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut index = 0;
        while list
            .next_element_seed(Walk {
                path: format!("{}[{index}]", self.path),
                found: &mut *self.found,
            })?
            .is_some()
        {
            index += 1;
        }
        Ok(())
    }

    crate::scalars::pass_over_scalars!();
}

/// A key, borrowed where the text allows.
struct Key<'de>(std::borrow::Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;
        impl<'de> Visitor<'de> for Word {
            type Value = Key<'de>;
            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(text.into()))
            }
            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(text.to_owned().into()))
            }
        }
        deserializer.deserialize_str(Word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o20_a_key_given_twice_is_named_with_its_path() {
        assert_eq!(
            keys(br#"{"a":1,"b":{"c":[{"d":1,"d":2}]},"a":2}"#),
            [r#"duplicate field "b.c[0].d""#, r#"duplicate field "a""#]
        );
        assert!(keys(br#"{"a":1,"b":1}"#).is_empty());
        assert!(keys(b"{").is_empty());
    }

    #[test]
    fn o20_whether_a_key_is_given_twice_is_seen_without_a_walk() {
        let some = |json: &str| there_are_some(json.as_bytes(), &serde_json::from_str(json).unwrap());
        for json in [
            r#"{"a":1,"b":{"c":[{"d":1,"d":2}]}}"#,
            r#"{"a":{"x":1},"a":{"y":1}}"#,
            r#"{"a\":":1,"a\":":2}"#,
            r#"[{"":0,"":0}]"#,
            r#"{"a":1,"\u0061":1}"#,
        ] {
            assert!(some(json), "{json}");
        }
        for json in [
            r#"{"a":":","b:":{"c":["\"",":\\",{"d":null}]},"e":{}}"#,
            r#"[]"#,
            r#"":""#,
            r#"{ "a" : [ 1 , 2 ] }"#,
        ] {
            assert!(!some(json), "{json}");
        }
    }
}
