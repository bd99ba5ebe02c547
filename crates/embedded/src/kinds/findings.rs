//! Unknown and duplicate fields of a text, in its order, as strict decoding lists them.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::schema::{Additional, Schema};

/// Never fails: what is not JSON at all was refused before.
pub(super) fn of_text(schema: &Schema, json: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let _ = Look {
        schema: Some(schema),
        path: String::new(),
        found: &mut found,
    }
    .deserialize(&mut deserializer);
    found
}

struct Look<'a> {
    /// `None` where anything may stand.
    schema: Option<&'a Schema>,
    path: String,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.schema {
            None => deserializer.deserialize_ignored_any(IgnoredAny).map(drop),
            Some(_) => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen: HashSet<String> = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = if self.path.is_empty() {
                key.clone()
            } else {
                format!("{}.{key}", self.path)
            };
            let (known, schema) = match self.schema {
                None => (true, None),
                Some(schema) if schema.preserve_unknown => (true, None),
                Some(schema) => match &schema.additional {
                    Additional::Schema(values) => (true, Some(values.as_ref())),
                    _ => {
                        let property = schema.properties.get(key.as_str());
                        (property.is_some(), property.map(AsRef::as_ref))
                    }
                },
            };
            if !known {
                // A second sight of an unknown field is the same finding.
                if seen.insert(key) {
                    self.found.push(format!("unknown field {path:?}"));
                }
            } else if !seen.insert(key) {
                self.found.push(format!("duplicate field {path:?}"));
            }
            map.next_value_seed(Look {
                schema,
                path,
                found: self.found,
            })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let items = self.schema.and_then(|schema| schema.items.as_deref());
        let mut index = 0usize;
        while list
            .next_element_seed(Look {
                schema: items,
                path: format!("{}[{index}]", self.path),
                found: self.found,
            })?
            .is_some()
        {
            index += 1;
        }
        Ok(())
    }

    crate::scalars::pass_over_scalars!();
}

#[cfg(test)]
mod tests {
    use crate::kinds::definition;

    #[test]
    fn o20_unknown_and_duplicate_fields_are_listed_in_the_text_s_order() {
        let schema = definition("io.k8s.api.apps.v1.Deployment").unwrap();
        let text =
            br#"{"metadata":{"zz":1,"labels":{"a":"b","a":"c"}},"spec":{"foo":1,"foo":2,"replicas":1,"replicas":2,
            "template":{"spec":{"containers":[{"name":"5","xx":{"deep":1}}]}}}}"#;
        assert_eq!(
            super::of_text(&schema, text),
            [
                r#"unknown field "metadata.zz""#,
                r#"duplicate field "metadata.labels.a""#,
                r#"unknown field "spec.foo""#,
                r#"duplicate field "spec.replicas""#,
                r#"unknown field "spec.template.spec.containers[0].xx""#,
            ]
        );
    }
}
