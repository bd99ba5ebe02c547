//! An object as it is stored: compact JSON without its resourceVersion, which every reader fills in (S2).

use bytes::Bytes;
use serde_json::Value as Json;
use std::fmt;

use super::Revision;

/// Why something cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("an object to be stored must be a JSON object with a metadata object in it")]
    NoMetadata,
    #[error("the object is larger than 4 GiB")]
    TooLarge,
}

/// Compact JSON of an object without `metadata.resourceVersion`. Cloning shares the buffer.
#[derive(Clone, PartialEq, Eq)]
pub struct Value {
    json: Bytes,
    /// Just after the `{` of metadata, where the resourceVersion goes.
    splice: u32,
}

impl Value {
    /// `splice` is the place just after the `{` of metadata. The buffer is kept as it is: one with spare capacity
    /// holds on to it, see [`Value::from_vec`].
    pub fn new(json: Bytes, splice: usize) -> Result<Value, ValueError> {
        if splice.checked_sub(1).and_then(|brace| json.get(brace)) != Some(&b'{') || json.len() <= splice {
            return Err(ValueError::NoMetadata);
        }
        let splice = u32::try_from(splice).map_err(|_| ValueError::TooLarge)?;
        Ok(Value { json, splice })
    }

    /// The same from a buffer that was just written; gives its spare capacity back.
    pub fn from_vec(json: Vec<u8>, splice: usize) -> Result<Value, ValueError> {
        Value::new(Bytes::from(json.into_boxed_slice()), splice)
    }

    /// Writes the object once, leaving its resourceVersion out.
    pub fn from_json(object: &Json) -> Result<Value, ValueError> {
        let (json, splice) = compact(object).ok_or(ValueError::NoMetadata)?;
        Value::from_vec(json, splice)
    }

    /// The JSON without resourceVersion.
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    pub(super) fn splice(&self) -> u32 {
        self.splice
    }

    /// How many bytes are stored.
    #[allow(clippy::len_without_is_empty)] // A value is never empty: it has metadata.
    pub fn len(&self) -> usize {
        self.json.len()
    }

    /// Appends the object with its resourceVersion: the one copy that a read makes.
    pub fn write_to(&self, out: &mut Vec<u8>, revision: Revision) {
        self.write_from(0, out, revision);
    }

    /// The same without the first bytes but for the opening brace: a list of a built-in kind leaves out each object's
    /// type. `skip` ends before the metadata.
    pub fn write_from(&self, skip: usize, out: &mut Vec<u8>, revision: Revision) {
        let (before, after) = self
            .json
            .split_at_checked(self.splice as usize)
            .unwrap_or((&self.json, &[]));
        // 42: the longest field, with a u64 of 20 digits.
        out.reserve(self.json.len() + 42);
        if skip > 0 {
            out.push(b'{');
        }
        out.extend_from_slice(before.get(skip..).unwrap_or(before));
        out.extend_from_slice(b"\"resourceVersion\":\"");
        out.extend_from_slice(revision.to_string().as_bytes());
        out.extend_from_slice(if after.first() == Some(&b'}') { b"\"" } else { b"\"," });
        out.extend_from_slice(after);
    }

    /// The object with its resourceVersion, as bytes.
    pub fn to_bytes(&self, revision: Revision) -> Bytes {
        let mut out = Vec::new();
        self.write_to(&mut out, revision);
        out.into()
    }

    /// The object with its resourceVersion, parsed.
    pub fn parse(&self, revision: Revision) -> Result<Json, serde_json::Error> {
        let mut object: Json = serde_json::from_slice(&self.json)?;
        if let Some(metadata) = object.get_mut("metadata").and_then(Json::as_object_mut) {
            metadata.insert("resourceVersion".into(), Json::String(revision.to_string()));
        }
        Ok(object)
    }
}

/// The object's text, and where its metadata begins; `None` when it has none.
fn compact(object: &Json) -> Option<(Vec<u8>, usize)> {
    let mut out = Vec::with_capacity(1024);
    let mut splice = None;
    out.push(b'{');
    for (index, (name, field)) in object.as_object()?.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        // Writing JSON to memory cannot fail: keys are strings.
        serde_json::to_writer(&mut out, name).ok()?;
        out.push(b':');
        match (name.as_str(), field) {
            ("metadata", Json::Object(metadata)) => {
                out.push(b'{');
                splice = Some(out.len());
                let kept = metadata.iter().filter(|(name, _)| *name != "resourceVersion");
                for (index, (name, field)) in kept.enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    serde_json::to_writer(&mut out, name).ok()?;
                    out.push(b':');
                    serde_json::to_writer(&mut out, field).ok()?;
                }
                out.push(b'}');
            }
            _ => serde_json::to_writer(&mut out, field).ok()?,
        }
    }
    out.push(b'}');
    splice.map(|splice| (out, splice))
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.json))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn s2_the_revision_is_left_out_and_filled_in_again() {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "resourceVersion": "7"},
            "spec": {"metadata": {}}});
        let value = Value::from_json(&object).unwrap();
        assert!(!String::from_utf8_lossy(value.json()).contains("resourceVersion"));
        let written: Json = serde_json::from_slice(&value.to_bytes(41)).unwrap();
        let mut expected = object;
        expected["metadata"]["resourceVersion"] = json!("41");
        assert_eq!(written, expected);
        assert_eq!(value.parse(41).unwrap(), expected);
    }

    #[test]
    fn metadata_without_fields_gets_no_stray_comma() {
        let value = Value::from_json(&json!({"metadata": {}})).unwrap();
        assert_eq!(value.to_bytes(1), r#"{"metadata":{"resourceVersion":"1"}}"#);
    }

    #[test]
    fn what_has_no_metadata_is_refused() {
        for object in [
            json!([]),
            json!({}),
            json!({"metadata": 1}),
            json!({"spec": {"metadata": {}}}),
        ] {
            assert_eq!(Value::from_json(&object), Err(ValueError::NoMetadata), "{object}");
        }
        assert_eq!(Value::new(Bytes::from_static(b"{}"), 0), Err(ValueError::NoMetadata));
        assert_eq!(Value::new(Bytes::from_static(b"{}"), 9), Err(ValueError::NoMetadata));
    }
}
