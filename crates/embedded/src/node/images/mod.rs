//! The image table (11.3): what an image's name means on this machine.
//!
//! A pod's image is not pulled; an entry of `images.yaml` says which programs of the machine stand for it. The node's
//! agent asks [`Images::resolve`] for every container it starts; `usher images` prints [`Images::listing`]. The files
//! are read again when they changed, and while one of them is malformed its last good text stays in use.
//!
//! - `table`: the file's text into entries, or an error that says where and what to do. `names`: image names, patterns,
//!   tags.

mod names;
mod table;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub use table::TableError;

use names::Name;
use table::Entry;

/// How to run an image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Image {
    /// As the pod wrote it.
    pub name: String,
    /// The folder of programs that goes first on `PATH`.
    pub bin: Option<PathBuf>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub user: Option<User>,
    pub workdir: Option<String>,
    /// A signal's name, `SIGTERM`; what it is where the entry says nothing is the agent's to know.
    pub stop_signal: Option<String>,
    /// A root file system; without one the machine's own.
    pub root: Option<PathBuf>,
}

/// Whom an image's programs run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    Id {
        uid: u32,
        gid: Option<u32>,
    },
    /// To be found in the image's passwd file.
    Name {
        user: String,
        group: Option<String>,
    },
}

/// Why an image cannot be run here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    #[error(
        "Container image {image:?} is not in the image table ({files}): add an entry that says how to run it{trouble}"
    )]
    NoEntry {
        image: String,
        files: String,
        /// Begins with `; ` if the table has an entry for it, perhaps, and cannot be read.
        trouble: String,
    },
    #[error(
        "Container image {image:?} is not there: line {line} of {file} matches it, but {what}: install the programs or \
         correct that entry"
    )]
    NotThere {
        image: String,
        file: PathBuf,
        line: u64,
        what: String,
    },
    #[error("Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: {why}")]
    BadName { image: String, why: String },
}

impl Missing {
    /// The reason of the waiting container and of the event.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoEntry { .. } | Self::NotThere { .. } => "ErrImageNeverPull",
            Self::BadName { .. } => "InvalidImageName",
        }
    }
}

/// A line of `usher images`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub file: PathBuf,
    pub line: u64,
    pub pattern: String,
    /// What the entry's programs or root are, `{tag}` left open; or why nothing of it is there.
    pub resolves_to: Result<String, String>,
}

/// The tables in use. Asking re-reads what changed.
#[derive(Debug)]
pub struct Images {
    files: Mutex<Tables>,
}

#[derive(Debug)]
struct Tables {
    files: Vec<Source>,
    version: u64,
}

#[derive(Debug)]
struct Source {
    path: PathBuf,
    seen: Option<Stamp>,
    entries: Vec<Entry>,
    error: Option<TableError>,
}

/// What tells one text of a file from the next without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    seconds: i64,
    nanoseconds: i64,
    size: u64,
    inode: u64,
}

impl Images {
    /// Tables in order: the first file's entries come first.
    #[must_use]
    pub fn new(files: Vec<PathBuf>) -> Self {
        let files = files
            .into_iter()
            .map(|path| Source {
                path,
                seen: None,
                entries: Vec::new(),
                error: None,
            })
            .collect();
        Self {
            files: Mutex::new(Tables { files, version: 0 }),
        }
    }

    /// How to run an image.
    ///
    /// # Errors
    /// Why it cannot be run here, and what to do about it.
    pub fn resolve(&self, image: &str) -> Result<Image, Missing> {
        let name = Name::read(image).map_err(|why| Missing::BadName {
            image: image.to_owned(),
            why,
        })?;
        self.with(|tables| {
            for source in &tables.files {
                if let Some(entry) = source.entries.iter().find(|entry| name.matches(&entry.pattern)) {
                    return entry.image(image, name.tag()).map_err(|what| Missing::NotThere {
                        image: image.to_owned(),
                        file: source.path.clone(),
                        line: entry.line,
                        what,
                    });
                }
            }
            Err(Missing::NoEntry {
                image: image.to_owned(),
                files: tables.names(),
                trouble: tables
                    .files
                    .iter()
                    .filter_map(|source| source.error.as_ref())
                    .map(|error| format!("; as it is now it cannot be read: {error}"))
                    .collect(),
            })
        })
    }

    /// Grows whenever a table's text changed: the sign to try images again that were not there.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.with(|tables| tables.version)
    }

    /// What is wrong with the files as they are now. Their last good text is in use meanwhile.
    #[must_use]
    pub fn errors(&self) -> Vec<TableError> {
        self.with(|tables| tables.files.iter().filter_map(|source| source.error.clone()).collect())
    }

    /// Every entry in the order in which they are tried.
    #[must_use]
    pub fn listing(&self) -> Vec<Listed> {
        self.with(|tables| {
            tables
                .files
                .iter()
                .flat_map(|source| {
                    source.entries.iter().map(|entry| Listed {
                        file: source.path.clone(),
                        line: entry.line,
                        pattern: entry.pattern.clone(),
                        resolves_to: entry.told(),
                    })
                })
                .collect()
        })
    }

    fn with<T>(&self, ask: impl FnOnce(&Tables) -> T) -> T {
        let mut tables = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        tables.catch_up();
        ask(&tables)
    }
}

impl Tables {
    fn names(&self) -> String {
        if self.files.is_empty() {
            return "no file: name one with --images FILE".to_owned();
        }
        let names: Vec<String> = self
            .files
            .iter()
            .map(|source| source.path.display().to_string())
            .collect();
        names.join(", ")
    }

    fn catch_up(&mut self) {
        let changed = self.files.iter_mut().map(Source::catch_up).filter(|changed| *changed);
        self.version += changed.count() as u64;
    }
}

impl Source {
    /// Reads the file if it is not the one read last. Whether it was read.
    fn catch_up(&mut self) -> bool {
        let stamp = Stamp::of(&self.path);
        // A file that is not there is told once, and looked for at every ask.
        if stamp == self.seen && (stamp.is_some() || self.error.is_some()) {
            return false;
        }
        self.seen = stamp;
        match std::fs::read_to_string(&self.path) {
            Ok(text) => match table::read(&self.path, &text) {
                Ok(entries) => {
                    self.entries = entries;
                    self.error = None;
                }
                Err(error) => self.error = Some(*error),
            },
            Err(why) => self.error = Some(TableError::unreadable(&self.path, &why)),
        }
        true
    }
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let file = std::fs::metadata(path).ok()?;
        Some(Self {
            seconds: file.mtime(),
            nanoseconds: file.mtime_nsec(),
            size: file.size(),
            inode: file.ino(),
        })
    }
}

#[cfg(test)]
mod tests;
