//! The text of a table into entries, and an entry into an image.
//!
//! Fields are read one by one rather than by a derived decoder, so that an error can say which entry and which field is
//! wrong, on which line, and what to write instead.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;

use super::{Image, User};

const FIELDS: &str = "match, bin, entrypoint, cmd, env, user, workdir, stopSignal, root";
const TAG: &str = "{tag}";
/// Signals by number, from 1; real-time ones are written as `RTMIN+3`.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

/// What is wrong with a table, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableError {
    pub file: PathBuf,
    pub line: Option<u64>,
    /// The entry's number, from 1, with its `match`.
    pub entry: Option<(usize, Option<String>)>,
    pub field: Option<String>,
    pub problem: String,
    pub fix: String,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "image table {}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        match &self.entry {
            Some((number, Some(pattern))) => write!(f, ", entry {number} (match {pattern:?})")?,
            Some((number, None)) => write!(f, ", entry {number}")?,
            None => {}
        }
        if let Some(field) = &self.field {
            write!(f, ", field {field}")?;
        }
        write!(f, ": {}: {}", self.problem, self.fix)
    }
}

impl std::error::Error for TableError {}

impl TableError {
    pub(super) fn unreadable(file: &Path, why: &io::Error) -> Self {
        Self {
            file: file.to_owned(),
            line: None,
            entry: None,
            field: None,
            problem: format!("cannot be read: {why}"),
            fix: "make the file, or name another one with --images FILE".to_owned(),
        }
    }
}

/// One entry, `{tag}` still open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) line: u64,
    pub(super) pattern: String,
    /// `None`: not said; the machine's programs then.
    bin: Option<Vec<String>>,
    entrypoint: Vec<String>,
    cmd: Vec<String>,
    env: BTreeMap<String, String>,
    user: Option<User>,
    workdir: Option<String>,
    stop_signal: Option<String>,
    root: Option<String>,
}

/// An entry's fields, each with its place in the text.
type Fields = BTreeMap<String, Spanned<Value>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    images: Option<Vec<Spanned<Fields>>>,
}

pub(super) fn read(file: &Path, text: &str) -> Result<Vec<Entry>, Box<TableError>> {
    let written: Option<Written> = serde_saphyr::from_str(text).map_err(|why| {
        let told = why.without_snippet().to_string();
        Box::new(TableError {
            file: file.to_owned(),
            line: why.location().map(|place| place.line()),
            entry: None,
            field: None,
            problem: told.lines().next().unwrap_or_default().trim_end_matches(':').to_owned(),
            fix: format!("write a list `images:` of entries with the fields {FIELDS}, texts with {{tag}} in quotes"),
        })
    })?;
    let entries = written.and_then(|written| written.images).unwrap_or_default();
    entries
        .into_iter()
        .enumerate()
        .map(|(at, entry)| {
            let line = entry.referenced.line();
            let pattern = entry.value.get("match").and_then(|field| field.value.as_str());
            let pattern = pattern.map(str::to_owned);
            read_entry(line, entry.value).map_err(|wrong| {
                Box::new(TableError {
                    file: file.to_owned(),
                    line: Some(wrong.line),
                    entry: Some((at + 1, pattern)),
                    field: Some(wrong.field),
                    problem: wrong.problem,
                    fix: wrong.fix,
                })
            })
        })
        .collect()
}

struct Wrong {
    line: u64,
    field: String,
    problem: String,
    fix: String,
}

fn read_entry(line: u64, fields: Fields) -> Result<Entry, Wrong> {
    let mut entry = Entry {
        line,
        pattern: String::new(),
        bin: None,
        entrypoint: Vec::new(),
        cmd: Vec::new(),
        env: BTreeMap::new(),
        user: None,
        workdir: None,
        stop_signal: None,
        root: None,
    };
    for (name, field) in fields {
        let line = field.referenced.line();
        entry.take(&name, field.value).map_err(|(problem, fix)| Wrong {
            line,
            field: name,
            problem,
            fix: fix.to_owned(),
        })?;
    }
    if entry.pattern.is_empty() {
        return Err(Wrong {
            line,
            field: "match".to_owned(),
            problem: "is missing".to_owned(),
            fix: "say which images the entry is for, as `match: \"name:*\"`".to_owned(),
        });
    }
    Ok(entry)
}

/// What is wrong, and the fix.
type Fault = (String, &'static str);

impl Entry {
    fn take(&mut self, field: &str, value: Value) -> Result<(), Fault> {
        match field {
            "match" => self.pattern = text(value, "write the image's name, `*` for any text")?,
            "bin" => {
                let fix = "write a list of absolute folders, in which {tag} stands for the image's tag";
                let folders = match value {
                    Value::String(folder) => vec![folder],
                    list => words(list, fix)?,
                };
                if folders.is_empty() {
                    return Err(("is an empty list".to_owned(), fix));
                }
                for folder in &folders {
                    check_path(folder, fix)?;
                }
                self.bin = Some(folders);
            }
            "entrypoint" => {
                self.entrypoint = words(value, "write a list of words, as [sh, -c, 'exec server \"$@\"', sh]")?
            }
            "cmd" => self.cmd = words(value, "write a list of words, as [--port, \"80\"]")?,
            "env" => self.env = variables(value)?,
            "user" => self.user = Some(user(value)?),
            "workdir" => {
                let fix = "write an absolute folder";
                let folder = text(value, fix)?;
                check_path(&folder, fix)?;
                self.workdir = Some(folder);
            }
            "stopSignal" => self.stop_signal = Some(signal(value)?),
            "root" => {
                let fix = "write the absolute folder of a root file system, in which {tag} stands for the image's tag";
                let folder = text(value, fix)?;
                check_path(&folder, fix)?;
                self.root = Some(folder);
            }
            _ => {
                return Err((
                    "is not known".to_owned(),
                    "use match, bin, entrypoint, cmd, env, user, workdir, stopSignal or root",
                ));
            }
        }
        Ok(())
    }

    /// The image of that name and tag, or what of it is not there.
    pub(super) fn image(&self, name: &str, tag: &str) -> Result<Image, String> {
        let filled = |text: &String| text.replace(TAG, tag);
        let all = |texts: &[String]| texts.iter().map(filled).collect::<Vec<_>>();
        let root = self.root.as_ref().map(|root| PathBuf::from(filled(root)));
        if let Some(root) = root.as_ref().filter(|root| !root.is_dir()) {
            return Err(format!("its root {} is not there", root.display()));
        }
        let bin = match &self.bin {
            None => None,
            Some(folders) => {
                let folders = all(folders);
                let there = folders.iter().find(|folder| inside(root.as_deref(), folder).is_dir());
                let there =
                    there.ok_or_else(|| format!("none of its bin folders is there ({})", folders.join(", ")))?;
                Some(PathBuf::from(there))
            }
        };
        Ok(Image {
            name: name.to_owned(),
            bin,
            entrypoint: all(&self.entrypoint),
            cmd: all(&self.cmd),
            env: self
                .env
                .iter()
                .map(|(name, value)| (name.clone(), filled(value)))
                .collect(),
            user: self.user.clone(),
            workdir: self.workdir.as_ref().map(filled),
            stop_signal: self.stop_signal.clone(),
            root,
        })
    }

    /// For a reader: the folders that are there, with the tags they are there for.
    pub(super) fn told(&self) -> Result<String, String> {
        let candidates: Vec<String> = match (&self.root, &self.bin) {
            (Some(root), _) => vec![root.clone()],
            (None, Some(folders)) => folders.clone(),
            (None, None) => return Ok("the machine's programs".to_owned()),
        };
        let mut found = Vec::new();
        for candidate in &candidates {
            if candidate.contains(TAG) {
                found.extend(
                    tags(candidate)
                        .into_iter()
                        .map(|tag| format!("{} (tag {tag})", candidate.replace(TAG, &tag))),
                );
            } else if Path::new(candidate).is_dir() {
                found.push(candidate.clone());
                // A folder without a tag is there for every tag: what follows is never reached.
                break;
            }
        }
        if found.is_empty() {
            Err(format!("nothing: none of {} is there", candidates.join(", ")))
        } else {
            Ok(found.join(", "))
        }
    }
}

/// Where a folder of the image is on this machine.
fn inside(root: Option<&Path>, folder: &str) -> PathBuf {
    match root {
        Some(root) => root.join(folder.trim_start_matches('/')),
        None => PathBuf::from(folder),
    }
}

/// The tags for which a folder is there.
fn tags(folder: &str) -> Vec<String> {
    let Some((before, after)) = folder.split_once(TAG) else {
        return Vec::new();
    };
    let (above, prefix) = before.rsplit_once('/').unwrap_or(("", before));
    let suffix = after.split('/').next().unwrap_or_default();
    let Ok(names) = std::fs::read_dir(format!("{above}/")) else {
        return Vec::new();
    };
    let mut tags: Vec<String> = names
        .flatten()
        .filter_map(|name| name.file_name().into_string().ok())
        .filter_map(|name| Some(name.strip_prefix(prefix)?.strip_suffix(suffix)?.to_owned()))
        .filter(|tag| !tag.is_empty() && Path::new(&folder.replace(TAG, tag)).is_dir())
        .collect();
    tags.sort();
    tags
}

fn shown(value: &Value) -> String {
    format!("is {value}")
}

fn text(value: Value, fix: &'static str) -> Result<String, Fault> {
    match value {
        Value::String(text) if !text.is_empty() => Ok(text),
        other => Err((format!("{}, which is no text", shown(&other)), fix)),
    }
}

/// A word as YAML has it: `80` and `true` are meant as they are written.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

fn words(value: Value, fix: &'static str) -> Result<Vec<String>, Fault> {
    let Value::Array(items) = &value else {
        return Err((format!("{}, which is no list", shown(&value)), fix));
    };
    items
        .iter()
        .map(|item| word(item).ok_or_else(|| (format!("has {item}, which is no word"), fix)))
        .collect()
}

fn variables(value: Value) -> Result<BTreeMap<String, String>, Fault> {
    let fix = "write names and values, as {LANG: C.UTF-8}";
    let Value::Object(map) = &value else {
        return Err((format!("{}, which is no map", shown(&value)), fix));
    };
    map.iter()
        .map(|(name, value)| match word(value) {
            Some(text) => Ok((name.clone(), text)),
            None => Err((format!("has {value} for {name}, which is no text"), fix)),
        })
        .collect()
}

/// `999`, `"999:999"`, `postgres`, `"postgres:postgres"`.
fn user(value: Value) -> Result<User, Fault> {
    let fix = "write a number, a name, or either with a group behind a colon";
    let wrong = || (format!("{}, which is no user", shown(&value)), fix);
    let written = word(&value).filter(|_| !value.is_boolean()).ok_or_else(wrong)?;
    let (user, group) = match written.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (written.as_str(), None),
    };
    if user.is_empty() || group == Some("") || user.starts_with('-') {
        return Err(wrong());
    }
    match (user.parse(), group.map(str::parse).transpose()) {
        (Ok(uid), Ok(gid)) => Ok(User::Id { uid, gid }),
        _ if user.starts_with(|sign: char| sign.is_ascii_digit()) => Err(wrong()),
        _ => Ok(User::Name {
            user: user.to_owned(),
            group: group.map(str::to_owned),
        }),
    }
}

fn signal(value: Value) -> Result<String, Fault> {
    let fix = "write a signal's name, as SIGTERM";
    let wrong = || (format!("{}, which is no signal", shown(&value)), fix);
    let written = word(&value).ok_or_else(wrong)?;
    if let Ok(number) = written.parse::<usize>() {
        let name = number.checked_sub(1).and_then(|at| SIGNALS.get(at)).ok_or_else(wrong)?;
        return Ok(format!("SIG{name}"));
    }
    let name = written.strip_prefix("SIG").unwrap_or(&written);
    let real_time = ["RTMIN", "RTMAX"].iter().any(|name_of| {
        name.strip_prefix(name_of)
            .is_some_and(|offset| offset.is_empty() || offset.parse::<i8>().is_ok())
    });
    if SIGNALS.contains(&name) || real_time {
        Ok(format!("SIG{name}"))
    } else {
        Err(wrong())
    }
}

fn check_path(path: &str, fix: &'static str) -> Result<(), Fault> {
    if !path.starts_with('/') {
        return Err((format!("is {path:?}, which does not begin with /"), fix));
    }
    let rest = path.replace(TAG, "");
    if let Some((_, name)) = rest.split_once('{') {
        let name = name.split('}').next().unwrap_or_default();
        return Err((format!("has {{{name}}} in {path:?}, which stands for nothing"), fix));
    }
    Ok(())
}
