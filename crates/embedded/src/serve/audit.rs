//! `audit.log` (X5): one line for each write, and for each read if asked, in the words of the reference's audit log
//! (`audit.k8s.io/v1`, level Metadata). Who, what, when, and how it ended; never a body, a header or a token.
//!
//! A line is written before the request is answered, so whoever has the answer finds the line. A log that cannot be
//! written is told once and stops nobody.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use http::Method;
use http::header::USER_AGENT;
use http::request::Parts;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::api::route::{Place, Route};
use crate::caller::Caller;

/// Files are this large (X5).
const FILE_BYTES: u64 = 10 * 1024 * 1024;
/// `audit.log`, `audit.log.1`, `audit.log.2` (X5).
const FILES: u32 = 3;

/// What is logged.
#[derive(Debug, Clone, Copy)]
pub struct AuditOptions {
    /// Reads too: get, list and watch.
    pub reads: bool,
    /// How large a file may grow before the next is begun. Two old ones are kept.
    pub file_bytes: u64,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self {
            reads: false,
            file_bytes: FILE_BYTES,
        }
    }
}

/// A request that was answered.
#[derive(Debug)]
pub(crate) struct Answered<'a> {
    pub(crate) id: &'a str,
    pub(crate) parts: &'a Parts,
    /// Without its escapes.
    pub(crate) path: &'a str,
    pub(crate) is_watch: bool,
    /// Who asked; `None` where that was never known.
    pub(crate) caller: Option<&'a Caller>,
    /// In whose name.
    pub(crate) acting_as: Option<&'a Caller>,
    /// The object's name where the path does not have it.
    pub(crate) name: Option<&'a str>,
    pub(crate) code: u16,
    pub(crate) received: Timestamp,
    pub(crate) answered: Timestamp,
}

#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    options: AuditOptions,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    /// The file and its length; `None` before the first line and after a failure.
    file: Option<(File, u64)>,
    has_failed: bool,
}

impl Audit {
    pub(crate) fn new(path: PathBuf, options: AuditOptions) -> Self {
        Self {
            path,
            options,
            log: Mutex::default(),
        }
    }

    pub(crate) fn note(&self, answered: &Answered<'_>) {
        let Route::Resource(place) = Route::parse(answered.path) else {
            return;
        };
        let verb = verb(&answered.parts.method, &place, answered.is_watch);
        let is_read = matches!(verb, "get" | "list" | "watch");
        if is_read && !self.options.reads {
            return;
        }
        let mut line = event(answered, verb, &place).to_string();
        line.push('\n');
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        match self.append(&mut log, line.as_bytes()) {
            Ok(()) => log.has_failed = false,
            Err(error) => {
                log.file = None;
                if !std::mem::replace(&mut log.has_failed, true) {
                    tracing::warn!(file = %self.path.display(), %error, "the audit log cannot be written");
                }
            }
        }
    }

    fn append(&self, log: &mut Log, line: &[u8]) -> io::Result<()> {
        let bytes = line.len() as u64;
        let is_full = |length: u64| length > 0 && length + bytes > self.options.file_bytes;
        let (file, length) = match log.file.take() {
            Some(open) => open,
            None => open(&self.path)?,
        };
        let (mut file, length) = if is_full(length) {
            drop(file);
            rotate(&self.path)?;
            open(&self.path)?
        } else {
            (file, length)
        };
        file.write_all(line)?;
        log.file = Some((file, length + bytes));
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

/// The newest of the old ones is number 1.
fn rotate(path: &Path) -> io::Result<()> {
    let numbered = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        if number > 0 {
            name.push(format!(".{number}"));
        }
        PathBuf::from(name)
    };
    for number in (0..FILES - 1).rev() {
        match fs::rename(numbered(number), numbered(number + 1)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
    }
    Ok(())
}

fn verb(method: &Method, place: &Place<'_>, is_watch: bool) -> &'static str {
    let is_collection = place.name.is_empty();
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if is_collection => "deletecollection",
        Method::DELETE => "delete",
        _ if is_watch => "watch",
        _ if is_collection => "list",
        _ => "get",
    }
}

fn event(answered: &Answered<'_>, verb: &str, place: &Place<'_>) -> Value {
    let name = Some(place.name).filter(|name| !name.is_empty()).or(answered.name);
    let mut object = Map::new();
    let named = [
        ("resource", Some(place.resource)),
        ("namespace", place.namespace),
        ("name", name),
        ("apiGroup", Some(place.group)),
        ("apiVersion", Some(place.version)),
        ("subresource", Some(place.subresource)),
    ];
    for (field, value) in named {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            object.insert(field.to_owned(), value.into());
        }
    }
    // A namespace is inside itself, to the reference.
    if place.group.is_empty() && place.resource == "namespaces" && !place.name.is_empty() {
        object.insert("namespace".to_owned(), place.name.into());
    }
    let agent = answered.parts.headers.get(USER_AGENT);
    let anonymous = Caller::anonymous();
    let mut event = json!({
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": answered.id,
        // A watch is answered when it begins.
        "stage": if verb == "watch" { "ResponseStarted" } else { "ResponseComplete" },
        "requestURI": answered.parts.uri.path_and_query().map_or("/", |uri| uri.as_str()),
        "verb": verb,
        "user": answered.caller.unwrap_or(&anonymous).info(),
        "userAgent": agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default(),
        "objectRef": object,
        "responseStatus": {"metadata": {}, "code": answered.code},
        "requestReceivedTimestamp": format!("{:.6}", answered.received),
        "stageTimestamp": format!("{:.6}", answered.answered),
    });
    if let (Some(other), Value::Object(event)) = (answered.acting_as, &mut event) {
        event.insert("impersonatedUser".to_owned(), other.info());
    }
    event
}
