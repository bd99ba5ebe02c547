//! The API server's audit log: who asked what, and when it was answered. The server's word, not the operator's, and it
//! costs the run nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;

use crate::error::{Error, Result};

/// One request that was answered.
#[derive(Debug)]
pub(crate) struct Request {
    agent: String,
    /// `update subnets/status`.
    pub(crate) what: String,
    verb: String,
    code: u64,
    pub(crate) received: Timestamp,
    pub(crate) answered: Timestamp,
}

impl Request {
    /// By one of the operator's connections: `writer`, `watch`, `events`.
    pub(crate) fn by(&self, role: &str) -> bool {
        self.agent.starts_with("usher/") && self.agent.ends_with(&format!("({role})"))
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete")
    }

    pub(crate) fn is_read(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list")
    }

    pub(crate) fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

/// The log, from some moment on.
#[derive(Debug)]
pub(crate) struct Audit {
    file: PathBuf,
    from: u64,
}

impl Audit {
    pub(crate) fn from_now(dir: &Path) -> Self {
        let file = dir.join("audit.log");
        let from = std::fs::metadata(&file).map_or(0, |m| m.len());
        Self { file, from }
    }

    /// What was answered since, in one namespace. A request is in the log a moment after its answer: whoever asks has
    /// seen the operator at rest.
    pub(crate) fn requests(&self, namespace: &str) -> Result<Vec<Request>> {
        let mut file = File::open(&self.file).map_err(Error::at("open", &self.file))?;
        file.seek(SeekFrom::Start(self.from))
            .map_err(Error::at("read", &self.file))?;
        let mut requests = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line.map_err(Error::at("read", &self.file))?;
            // The last line may be under way.
            let Ok(event) = serde_json::from_str::<Event>(&line) else {
                continue;
            };
            requests.extend(event.request(namespace));
        }
        Ok(requests)
    }
}

/// How many of each, for the report.
pub(crate) fn tally<'r>(requests: impl Iterator<Item = &'r Request>) -> BTreeMap<String, usize> {
    let mut tally = BTreeMap::new();
    for request in requests {
        *tally.entry(request.what.clone()).or_default() += 1;
    }
    tally
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(default)]
    user_agent: String,
    verb: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<Status>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Debug, Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
    namespace: Option<String>,
    subresource: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Status {
    code: u64,
}

impl Event {
    fn request(self, namespace: &str) -> Option<Request> {
        let object = self
            .object_ref
            .filter(|object| object.namespace.as_deref() == Some(namespace))?;
        let slash = object.subresource.as_ref().map(|_| "/").unwrap_or_default();
        let subresource = object.subresource.unwrap_or_default();
        Some(Request {
            what: format!("{} {}{slash}{subresource}", self.verb, object.resource),
            agent: self.user_agent,
            verb: self.verb,
            code: self.response_status.map_or(0, |status| status.code),
            received: self.request_received_timestamp,
            answered: self.stage_timestamp,
        })
    }
}
