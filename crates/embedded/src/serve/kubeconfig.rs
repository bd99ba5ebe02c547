//! How kubectl finds the cluster: a kubeconfig of our own, or the context `usher` in somebody's.
//!
//! Somebody's file is changed as text, so that comments and order stay; the result is read again and compared with what
//! it should say. Where the text is of a form that cannot be changed so (JSON, flow style), it is written anew.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

use super::folder::replace;

/// What cluster, user and context are called in a kubeconfig.
pub const CONTEXT: &str = "usher";
const LISTS: [&str; 3] = ["clusters", "users", "contexts"];
const CURRENT: &str = "current-context";

/// A kubeconfig that the context could not be added to. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error("kubeconfig {} is no valid kubeconfig{place}: {what}; correct it, or name another file", file.display())]
    Broken {
        file: PathBuf,
        /// ` at line 3, column 5`, where it is known.
        place: String,
        what: String,
    },
    #[error("kubeconfig {} cannot be {doing}: {error}", file.display())]
    Unusable {
        file: PathBuf,
        doing: &'static str,
        error: io::Error,
    },
    #[error(
        "{} is there: kubectl is changing the kubeconfig, or died doing so; try again, and delete that file if no kubectl runs",
        .0.display()
    )]
    Locked(PathBuf),
}

/// Where the cluster is, whom to believe, and as whom to ask. Never shown: it holds the token.
#[derive(Clone)]
pub struct Access {
    url: String,
    /// PEM.
    authority: String,
    token: String,
}

impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Access")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Access {
    /// Whom to believe, in PEM.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) fn new(address: SocketAddr, authority: &str, token: &str) -> Self {
        Self {
            url: format!("https://{address}"),
            authority: authority.to_owned(),
            token: token.to_owned(),
        }
    }

    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A kubeconfig with nothing but this.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        let [cluster, user, context] = self.entries(0);
        format!(
            "apiVersion: v1\nkind: Config\n{CURRENT}: {CONTEXT}\nclusters:\n{cluster}users:\n{user}contexts:\n{context}"
        )
    }

    /// Adds cluster, user and context to a kubeconfig, or renews them there, and touches nothing else. It becomes the
    /// current context where there was none.
    pub fn add_to(&self, file: &Path) -> Result<(), KubeconfigError> {
        let failed = |doing: &'static str| {
            move |error| KubeconfigError::Unusable {
                file: file.to_owned(),
                doing,
                error,
            }
        };
        if let Some(parent) = file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
            made.map_err(failed("written"))?;
        }
        // What a link points to is the file, not the link.
        let real = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        let _lock = Lock::take(&real).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => KubeconfigError::Locked(Lock::beside(&real)),
            _ => failed("written")(error),
        })?;
        let old = match fs::read_to_string(&real) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(KubeconfigError::Broken {
                    file: file.to_owned(),
                    place: String::new(),
                    what: "it is no text (UTF-8)".to_owned(),
                });
            }
            Err(error) => return Err(failed("read")(error)),
        };
        let new = self.added(&old).map_err(|(place, what)| KubeconfigError::Broken {
            file: file.to_owned(),
            place,
            what,
        })?;
        if new == old {
            return Ok(());
        }
        // It holds a token now: for its owner only, whoever that is.
        replace(
            &real,
            new.as_bytes(),
            0o600,
            fs::metadata(&real).ok().map(|old| (old.uid(), old.gid())),
        )
        .map_err(failed("written"))
    }

    /// The text with the context in it. A failure is a place and what is wrong there.
    fn added(&self, old: &str) -> Result<String, (String, String)> {
        if old.trim().is_empty() {
            return Ok(self.kubeconfig());
        }
        let wanted = self.merged(parsed(old)?)?;
        let says_so = |text: &String| parsed(text).is_ok_and(|value| value == wanted);
        if let Some(text) = self.edited(old, &wanted).filter(says_so) {
            return Ok(text);
        }
        let anew = if old.trim_start().starts_with('{') {
            serde_json::to_string_pretty(&wanted).ok()
        } else {
            serde_saphyr::to_string(&wanted).ok()
        };
        anew.filter(says_so)
            .ok_or_else(|| (String::new(), "it cannot be written again without a change".to_owned()))
    }

    /// What the file is to say.
    fn merged(&self, old: Value) -> Result<Value, (String, String)> {
        let wrong = |what: &str| (String::new(), what.to_owned());
        let mut root = match old {
            Value::Object(root) => root,
            Value::Null => Map::new(),
            _ => return Err(wrong("it is no map")),
        };
        for (key, entry) in LISTS.into_iter().zip(self.entries(0)) {
            let Ok(Value::Array(mut entry)) = parsed(&entry) else {
                return Err(wrong("our own entry cannot be read"));
            };
            let list = root.entry(key).or_insert(Value::Null);
            if list.is_null() {
                *list = Value::Array(Vec::new());
            }
            let Value::Array(items) = list else {
                return Err((String::new(), format!("{key} is no list")));
            };
            match items
                .iter_mut()
                .find(|item| item.get("name").is_some_and(|name| name == CONTEXT))
            {
                Some(item) => *item = entry.remove(0),
                None => items.append(&mut entry),
            }
        }
        let current = root.get(CURRENT).and_then(Value::as_str).unwrap_or_default();
        if current.is_empty() {
            root.insert(CURRENT.to_owned(), CONTEXT.into());
        }
        Ok(Value::Object(root))
    }

    /// The same in the text, line by line. `None` where it has a form that this does not know.
    fn edited(&self, old: &str, wanted: &Value) -> Option<String> {
        let mut lines: Vec<String> = old.lines().map(|line| format!("{line}\n")).collect();
        for (index, key) in LISTS.into_iter().enumerate() {
            let section = Section::find(&mut lines, key)?;
            let entry = self.entries(section.indent).into_iter().nth(index)?;
            lines.splice(section.ours, [entry]);
            // One line each, for the next search.
            lines = lines.concat().lines().map(|line| format!("{line}\n")).collect();
        }
        if wanted.get(CURRENT).is_some_and(|current| current == CONTEXT) {
            let line = format!("{CURRENT}: {CONTEXT}\n");
            match lines.iter_mut().find(|line| line.starts_with("current-context:")) {
                Some(found) => *found = line,
                None => lines.push(line),
            }
        }
        Some(lines.concat())
    }

    /// The items of `clusters`, `users` and `contexts`, indented by so much.
    fn entries(&self, indent: usize) -> [String; 3] {
        let Self { url, token, .. } = self;
        let authority = BASE64_STANDARD.encode(&self.authority);
        let margin = " ".repeat(indent);
        [
            format!(
                "{margin}- name: {CONTEXT}\n{margin}  cluster:\n{margin}    server: {url}\n\
                 {margin}    certificate-authority-data: {authority}\n"
            ),
            format!("{margin}- name: {CONTEXT}\n{margin}  user:\n{margin}    token: \"{token}\"\n"),
            format!(
                "{margin}- name: {CONTEXT}\n{margin}  context:\n{margin}    cluster: {CONTEXT}\n{margin}    user: {CONTEXT}\n"
            ),
        ]
    }
}

/// A list at the top of a kubeconfig in block style.
struct Section {
    /// Of its items' dashes.
    indent: usize,
    /// The lines of the item `usher`, or the place after the last item.
    ours: std::ops::Range<usize>,
}

impl Section {
    /// Finds it, or makes it at the end.
    fn find(lines: &mut Vec<String>, key: &str) -> Option<Self> {
        let head = format!("{key}:");
        let Some(start) = lines.iter().position(|line| line.starts_with(&head)) else {
            lines.push(format!("{head}\n"));
            let end = lines.len();
            return Some(Self {
                indent: 0,
                ours: end..end,
            });
        };
        let line = lines.get_mut(start)?;
        match line.get(head.len()..)?.trim() {
            "" => {}
            "[]" | "null" | "~" => *line = format!("{head}\n"),
            _ => return None,
        }
        let body = lines.get(start + 1..)?;
        let is_inside = |line: &String| line.starts_with([' ', '-', '#', '\n']);
        let length = body.iter().take_while(|line| is_inside(line)).count();
        let body = body.get(..length)?;
        let indent_of = |line: &str| line.len() - line.trim_start().len();
        let is_item = |line: &str| line.trim_start().starts_with("- ");
        let indent = body.iter().find(|line| is_item(line)).map_or(0, |line| indent_of(line));
        let items: Vec<usize> = (0..length)
            .filter(|at| {
                body.get(*at)
                    .is_some_and(|line| is_item(line) && indent_of(line) == indent)
            })
            .collect();
        // Comments and empty lines before the next key belong to that.
        let is_text = |line: &String| !line.trim().is_empty() && !line.starts_with('#');
        let end = body.iter().rposition(is_text).map_or(0, |last| last + 1);
        let first = start + 1;
        for (number, item) in items.iter().enumerate() {
            let next = items.get(number + 1).copied().unwrap_or(end);
            let is_ours = body.get(*item..next)?.iter().any(|line| {
                let field = line.get(indent + 2..).unwrap_or_default().trim_end();
                matches!(field, "name: usher" | "name: \"usher\"" | "name: 'usher'")
            });
            if is_ours {
                return Some(Self {
                    indent,
                    ours: first + item..first + next,
                });
            }
        }
        Some(Self {
            indent,
            ours: first + end..first + end,
        })
    }
}

/// Only the place of a mistake is told: what stands there may be a secret.
fn parsed(text: &str) -> Result<Value, (String, String)> {
    serde_saphyr::from_str(text).map_err(|error| {
        let place = error.without_snippet().location().map_or_else(String::new, |at| {
            format!(" at line {}, column {}", at.line(), at.column())
        });
        (place, "the YAML is broken there".to_owned())
    })
}

/// kubectl's own way to keep others from changing a kubeconfig meanwhile.
struct Lock(PathBuf);

impl Lock {
    fn beside(file: &Path) -> PathBuf {
        let mut name = file.file_name().unwrap_or_default().to_os_string();
        name.push(".lock");
        file.with_file_name(name)
    }

    fn take(file: &Path) -> io::Result<Self> {
        let path = Self::beside(file);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
#[path = "kubeconfig_tests.rs"]
mod tests;
