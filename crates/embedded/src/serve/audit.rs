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

#[cfg(test)]
mod tests {
    use super::*;

    fn note(audit: &Audit, method: Method, uri: &str, name: Option<&str>) {
        let request = http::Request::builder()
            .method(method)
            .uri(uri)
            .header(USER_AGENT, "tool/1");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let at: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        audit.note(&Answered {
            id: "id-1",
            path: parts.uri.path(),
            is_watch: false,
            caller: Some(&Caller::admin()),
            acting_as: None,
            name,
            code: 201,
            received: at,
            answered: at,
            parts: &parts,
        });
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn x5_a_line_says_who_did_what_to_which_object_when_and_how_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let audit = Audit::new(path.clone(), AuditOptions::default());
        note(
            &audit,
            Method::POST,
            "/apis/apps/v1/namespaces/a/deployments",
            Some("web"),
        );
        note(&audit, Method::GET, "/apis/apps/v1/namespaces/a/deployments", None);
        note(&audit, Method::POST, "/healthz", None);
        let lines = lines(&path);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let line = &lines[0];
        for (pointer, value) in [
            ("/kind", "Event"),
            ("/stage", "ResponseComplete"),
            ("/user/username", "usher-admin"),
            ("/userAgent", "tool/1"),
            ("/verb", "create"),
            ("/objectRef/resource", "deployments"),
            ("/objectRef/apiGroup", "apps"),
            ("/objectRef/namespace", "a"),
            ("/objectRef/name", "web"),
            ("/requestReceivedTimestamp", "2026-01-02T03:04:05.678000Z"),
        ] {
            assert_eq!(line.pointer(pointer).unwrap(), value, "{pointer}");
        }
        assert_eq!(line["responseStatus"]["code"], 201);
    }

    #[test]
    fn verbs_are_those_of_the_reference_and_reads_are_logged_if_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let options = AuditOptions {
            reads: true,
            ..AuditOptions::default()
        };
        let audit = Audit::new(path.clone(), options);
        let map = "/api/v1/namespaces/a/configmaps/m";
        for method in [Method::GET, Method::PUT, Method::PATCH, Method::DELETE] {
            note(&audit, method.clone(), map, None);
            note(&audit, method, "/api/v1/namespaces/a/configmaps", None);
        }
        let verbs: Vec<_> = lines(&path).iter().map(|line| line["verb"].clone()).collect();
        assert_eq!(
            verbs,
            [
                "get",
                "list",
                "update",
                "update",
                "patch",
                "patch",
                "delete",
                "deletecollection"
            ]
        );
    }

    #[test]
    fn x5_a_full_file_makes_room_and_two_old_ones_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let options = AuditOptions {
            reads: false,
            file_bytes: 2_000,
        };
        for start in 0..2 {
            // A second start goes on with the file of the first.
            let audit = Audit::new(path.clone(), options);
            for number in 0..10 {
                let name = format!("m{start}{number}");
                note(&audit, Method::POST, "/api/v1/namespaces/a/configmaps", Some(&name));
            }
        }
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|file| file.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["audit.log", "audit.log.1", "audit.log.2"]);
        let mut seen = Vec::new();
        for name in ["audit.log.2", "audit.log.1", "audit.log"] {
            let file = folder.path().join(name);
            assert!(fs::metadata(&file).unwrap().len() <= 2_000, "{name}");
            seen.extend(
                lines(&file)
                    .iter()
                    .map(|line| line["objectRef"]["name"].as_str().unwrap().to_owned()),
            );
        }
        assert_eq!(seen.last().unwrap(), "m19");
        assert!(seen.is_sorted() && seen.len() >= 6, "{seen:?}");
    }

    #[test]
    fn a_log_that_cannot_be_written_stops_nobody_and_goes_on_when_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gone/audit.log");
        let audit = Audit::new(path.clone(), AuditOptions::default());
        note(&audit, Method::POST, "/api/v1/namespaces/a/configmaps", Some("lost"));
        fs::create_dir(folder.path().join("gone")).unwrap();
        note(&audit, Method::POST, "/api/v1/namespaces/a/configmaps", Some("kept"));
        assert_eq!(lines(&path).len(), 1);
    }
}
