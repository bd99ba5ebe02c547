//! The protobuf bodies that kubectl's typed clients send where the first half of the server needs them: reviews without a
//! spec and delete options without fields. Others are refused by name.

use serde_json::{Value, json};

use crate::fault::{Fault, quote};

/// What a body in this format begins with.
const MAGIC: &[u8] = b"k8s\0";

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
    match kind.as_str() {
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
    fn a5_any_bytes_are_an_answer() {
        for length in 0..60 {
            let mut bytes = message("SelfSubjectReview", &[1, 2, 3]);
            bytes.truncate(length);
            let _ = parse(&bytes);
        }
    }
}
