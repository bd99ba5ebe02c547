//! etcd's JSON gateway over its socket: enough HTTP/1.0 for a health check and a compaction.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::folder::Folder;
use crate::error::{Error, Result};

pub(crate) fn is_healthy(socket: &Path) -> bool {
    request(socket, "GET", "/health", "").is_ok_and(|answer| answer.get("health") == Some(&json!("true")))
}

/// Forgets all history up to now; a watch or a paged list from before is answered with 410. Returns the revision.
pub(crate) fn compact(folder: &Folder) -> Result<u64> {
    let socket = folder.file("etcd.sock");
    // Any read tells the current revision; this one asks for the key "\0", which nobody has.
    let answer = request(&socket, "POST", "/v3/kv/range", r#"{"key":"AA=="}"#)?;
    let revision = answer
        .pointer("/header/revision")
        .and_then(Value::as_str)
        .and_then(|text| text.parse::<u64>().ok())
        .ok_or_else(|| Error::Machine(format!("etcd tells no revision: {answer}")))?;
    let body = json!({"revision": revision.to_string(), "physical": true}).to_string();
    request(&socket, "POST", "/v3/kv/compaction", &body)?;
    Ok(revision)
}

fn request(socket: &Path, method: &str, path: &str, body: &str) -> Result<Value> {
    let exchange = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        // HTTP/1.0: the answer ends with the connection and never comes in chunks.
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: etcd\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = exchange().map_err(Error::at("talk to etcd at", socket))?;
    parse_answer(&answer).ok_or_else(|| Error::Machine(format!("etcd refused {path}: {}", answer.trim())))
}

/// The JSON of a successful answer.
fn parse_answer(answer: &str) -> Option<Value> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?;
    (status == "200").then(|| serde_json::from_str(body).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_successful_answer_counts() {
        let ok = "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n{\"health\":\"true\",\"reason\":\"\"}";
        assert_eq!(parse_answer(ok), Some(json!({"health": "true", "reason": ""})));
        assert_eq!(
            parse_answer("HTTP/1.0 503 Service Unavailable\r\n\r\n{\"health\":\"true\"}"),
            None
        );
        assert_eq!(parse_answer("HTTP/1.0 200 OK\r\n\r\nnot json"), None);
        assert_eq!(parse_answer(""), None);
    }
}
