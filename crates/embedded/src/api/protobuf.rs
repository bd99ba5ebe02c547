//! The protobuf bodies that kubectl's typed clients send where the first half of the server needs them: reviews of the
//! caller itself (`auth whoami`, `auth can-i`) and delete options without fields. Others are refused by name.

use serde_json::{Map, Value, json};

use crate::fault::{Fault, quote};

/// What a body in this format begins with.
const MAGIC: &[u8] = b"k8s\0";

/// What stands in a message, as far as it is read.
enum Shape {
    Text,
    /// By number: the name in JSON, and what stands there.
    Message(&'static [(u64, &'static str, Shape)]),
}

const ACCESS_REVIEW: Shape = Shape::Message(&[(
    2,
    "spec",
    Shape::Message(&[
        (
            1,
            "resourceAttributes",
            Shape::Message(&[
                (1, "namespace", Shape::Text),
                (2, "verb", Shape::Text),
                (3, "group", Shape::Text),
                (4, "version", Shape::Text),
                (5, "resource", Shape::Text),
                (6, "subresource", Shape::Text),
                (7, "name", Shape::Text),
            ]),
        ),
        (
            2,
            "nonResourceAttributes",
            Shape::Message(&[(1, "path", Shape::Text), (2, "verb", Shape::Text)]),
        ),
    ]),
)]);
const RULES_REVIEW: Shape = Shape::Message(&[(2, "spec", Shape::Message(&[(1, "namespace", Shape::Text)]))]);

impl Shape {
    fn read(&self, bytes: &[u8]) -> Result<Value, ()> {
        let known = match self {
            Self::Text => return String::from_utf8(bytes.to_vec()).map(Value::from).map_err(drop),
            Self::Message(known) => known,
        };
        let mut object = Map::new();
        let mut fields = Fields(bytes);
        while let Some((number, value)) = fields.next()? {
            if let Some((_, name, shape)) = known.iter().find(|(known, _, _)| *known == number) {
                let value = shape.read(value)?;
                // Go writes empty texts, too; in JSON they are left out.
                if value != "" {
                    object.insert((*name).to_owned(), value);
                }
            }
        }
        Ok(Value::Object(object))
    }
}

/// The object of a body whose message is known.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, Fault> {
    let wrong = || Fault::bad_request("the body is not a Kubernetes protobuf message");
    let envelope = bytes.strip_prefix(MAGIC).ok_or_else(wrong)?;
    let mut fields = Fields(envelope);
    let (mut api_version, mut kind) = (String::new(), String::new());
    let mut raw: &[u8] = &[];
    while let Some((number, value)) = fields.next().map_err(|()| wrong())? {
        match number {
            1 => {
                let mut meta = Fields(value);
                while let Some((number, value)) = meta.next().map_err(|()| wrong())? {
                    let text = String::from_utf8_lossy(value).into_owned();
                    match number {
                        1 => api_version = text,
                        2 => kind = text,
                        _ => {}
                    }
                }
            }
            2 => raw = value,
            _ => {}
        }
    }
    let read = |shape: Shape| {
        let mut object = shape.read(raw).map_err(|()| wrong())?;
        if let Value::Object(map) = &mut object {
            map.insert("apiVersion".to_owned(), api_version.clone().into());
            map.insert("kind".to_owned(), kind.clone().into());
        }
        Ok(object)
    };
    match kind.as_str() {
        "SelfSubjectAccessReview" => read(ACCESS_REVIEW),
        "SelfSubjectRulesReview" => read(RULES_REVIEW),
        // It says nothing but its type.
        "SelfSubjectReview" => Ok(json!({"apiVersion": api_version, "kind": kind})),
        "DeleteOptions" if raw.is_empty() => Ok(json!({"apiVersion": api_version, "kind": kind})),
        _ => Err(Fault::new(
            415,
            "UnsupportedMediaType",
            format!("a {} in protobuf is not read by this server: send JSON", quote(&kind)),
        )),
    }
}

/// Length-delimited fields of a message; numbers are skipped.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<Option<(u64, &'a [u8])>, ()> {
        loop {
            if self.0.is_empty() {
                return Ok(None);
            }
            let tag = self.varint()?;
            match tag & 7 {
                0 => {
                    self.varint()?;
                }
                1 => self.skip(8)?,
                2 => {
                    let length = usize::try_from(self.varint()?).map_err(|_| ())?;
                    let value = self.0.get(..length).ok_or(())?;
                    self.skip(length)?;
                    return Ok(Some((tag >> 3, value)));
                }
                5 => self.skip(4)?,
                _ => return Err(()),
            }
        }
    }

    fn skip(&mut self, count: usize) -> Result<(), ()> {
        self.0 = self.0.get(count..).ok_or(())?;
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, ()> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(())?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, raw: &[u8]) -> Vec<u8> {
        let version = "authentication.k8s.io/v1";
        let mut meta = vec![0x0a, version.len() as u8];
        meta.extend(version.bytes());
        meta.extend([0x12, kind.len() as u8]);
        meta.extend(kind.bytes());
        let mut bytes = b"k8s\0".to_vec();
        bytes.extend([0x0a, meta.len() as u8]);
        bytes.extend(meta);
        bytes.extend([0x12, raw.len() as u8]);
        bytes.extend(raw);
        bytes
    }

    #[test]
    fn a5_a_review_of_oneself_is_read_and_others_are_refused_by_name() {
        let review = parse(&message("SelfSubjectReview", &[0x0a, 0])).unwrap();
        assert_eq!(review["kind"], "SelfSubjectReview");
        let fault = parse(&message("Pod", &[0x0a, 0])).unwrap_err();
        assert_eq!(fault.code, 415);
        assert!(fault.message.contains("Pod"), "{}", fault.message);
    }

    #[test]
    fn a5_reviews_of_the_caller_are_read_with_what_they_ask() {
        // As kubectl writes them: metadata first, and empty texts too.
        let attributes = [&[0x0a, 1][..], b"n", &[0x12, 3], b"get", &[0x1a, 0, 0x2a, 4], b"pods"].concat();
        let spec = [&[0x0a, u8::try_from(attributes.len()).unwrap()][..], &attributes].concat();
        let raw = [&[0x0a, 0, 0x12, u8::try_from(spec.len()).unwrap()][..], &spec].concat();
        let review = parse(&message("SelfSubjectAccessReview", &raw)).unwrap();
        assert_eq!(review["kind"], "SelfSubjectAccessReview");
        let asked = json!({"resourceAttributes": {"namespace": "n", "verb": "get", "resource": "pods"}});
        assert_eq!(review["spec"], asked);
    }

    #[test]
    fn a5_any_bytes_are_an_answer() {
        for length in 0..60 {
            let mut bytes = message("SelfSubjectReview", &[1, 2, 3]);
            bytes.truncate(length);
            let _ = parse(&bytes);
        }
    }
}
