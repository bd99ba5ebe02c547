//! etcd behind the API server's back, over its socket: many objects at once, and its size.
//!
//! The API server takes a thousand creates a second; a bench that needs 600,000 objects before it begins would take a
//! quarter of an hour. Custom resources are JSON in etcd, so objects are put there as the API server itself stored one of
//! their kind; its watch brings them to the API server, and nobody can tell the difference.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::error::{Error, Result};

/// Objects per transaction; etcd takes at most 128 operations in one.
const AT_ONCE: usize = 100;
/// etcd has one writer; more than a few only queue.
const WRITERS: usize = 3;

#[derive(Debug, Clone)]
pub(crate) struct Etcd {
    socket: PathBuf,
}

impl Etcd {
    pub(crate) fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
        }
    }

    /// Puts objects, made one after the other, by their paths (`subnets/NAMESPACE/NAME`). Returns for each the version it
    /// then has.
    pub(crate) fn put(&self, count: usize, object: impl Fn(usize) -> (String, Value) + Sync) -> Result<Vec<u64>> {
        let starts: Vec<usize> = (0..count).step_by(AT_ONCE).collect();
        let share = starts.len().div_ceil(WRITERS).max(1);
        let object = &object;
        let batches = std::thread::scope(|scope| {
            let writers: Vec<_> = starts
                .chunks(share)
                .map(|starts| {
                    scope.spawn(move || {
                        let revisions = starts.iter().map(|start| {
                            let end = count.min(start + AT_ONCE);
                            self.put_batch((*start..end).map(object))
                                .map(|revision| (end - start, revision))
                        });
                        revisions.collect::<Result<Vec<_>>>()
                    })
                })
                .collect();
            let joined = writers.into_iter().map(|writer| {
                let panicked = |_| Error::Wrong("a writer to etcd panicked; please report this as a bug".to_owned());
                writer.join().map_err(panicked)?
            });
            joined.collect::<Result<Vec<_>>>()
        })?;
        let revisions = batches.into_iter().flatten();
        Ok(revisions
            .flat_map(|(many, revision)| std::iter::repeat_n(revision, many))
            .collect())
    }

    fn put_batch(&self, objects: impl Iterator<Item = (String, Value)>) -> Result<u64> {
        let puts: Vec<Value> = objects
            .map(|(path, object)| {
                json!({"requestPut": {"key": key(&path), "value": base64(object.to_string().as_bytes())}})
            })
            .collect();
        let answer = self.ask("put", "/v3/kv/txn", &json!({"success": puts}))?;
        revision(&answer)
    }

    /// Removes every object whose path begins so. Returns the version from which on they are gone.
    pub(crate) fn clear(&self, path: &str) -> Result<u64> {
        // All keys from the prefix to the next possible one.
        let begin = format!("{ROOT}{path}/");
        let end = format!("{ROOT}{path}0");
        let range = json!({"key": base64(begin.as_bytes()), "range_end": base64(end.as_bytes())});
        revision(&self.ask("deleterange", "/v3/kv/deleterange", &range)?)
    }

    /// Bytes of the database in use, history included.
    pub(crate) fn bytes(&self) -> Result<u64> {
        let answer = self.ask("status", "/v3/maintenance/status", &json!({}))?;
        let bytes = answer.get("dbSizeInUse").and_then(Value::as_str);
        bytes.and_then(|text| text.parse().ok()).ok_or_else(|| Error::Etcd {
            what: "status",
            problem: format!("no size in {answer}"),
        })
    }

    fn ask(&self, what: &'static str, path: &str, body: &Value) -> Result<Value> {
        let body = body.to_string();
        let exchange = || {
            let mut stream = UnixStream::connect(&self.socket)?;
            stream.set_read_timeout(Some(Duration::from_secs(60)))?;
            // HTTP/1.0: the answer ends with the connection and never comes in chunks.
            let head = format!(
                "POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes())?;
            stream.write_all(body.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = exchange().map_err(Error::at("talk to etcd at", &self.socket))?;
        let parsed = answer.split_once("\r\n\r\n").filter(|(head, _)| head.contains(" 200 "));
        parsed
            .and_then(|(_, body)| serde_json::from_str(body).ok())
            .ok_or_else(|| Error::Etcd {
                what,
                problem: answer.chars().take(500).collect(),
            })
    }
}

fn revision(answer: &Value) -> Result<u64> {
    let revision = answer.pointer("/header/revision").and_then(Value::as_str);
    revision.and_then(|text| text.parse().ok()).ok_or_else(|| Error::Etcd {
        what: "revision",
        problem: format!("no revision in {answer}"),
    })
}

/// Where the API server keeps the resources of our group.
const ROOT: &str = "/registry/plexaubnet.io/";

fn key(path: &str) -> String {
    base64(format!("{ROOT}{path}").as_bytes())
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |n: usize| three.get(n).copied().map_or(0, u32::from);
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let six = (bits >> (18 - 6 * digit)) & 63;
            let shown = DIGITS.get(six as usize).filter(|_| digit <= three.len());
            text.push(shown.map_or('=', |digit| char::from(*digit)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let known = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ];
        for (plain, coded) in known {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }
}
