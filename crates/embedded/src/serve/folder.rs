//! The data folder (X1): 0700, and every file in it 0600.
//!
//! | file | what |
//! |---|---|
//! | `store.redb`, `store.redb.lock` | all objects; who has the folder |
//! | `token` | the admin's token, 256 random bits |
//! | `signing.key` | what signs service accounts' tokens |
//! | `ca.crt`, `server.crt`, `server.key` | see [`super::certificate`] |
//! | `kubeconfig` | how to reach the cluster while it listens |
//! | `audit.log` | see [`super::audit`] |
//!
//! The store is opened first: its lock says whose the folder is, and nothing else is written before it is held.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};

use super::temporary::{Kind, Temporary};
use crate::security::Secrets;

const STORE: &str = "store.redb";
const TOKEN: &str = "token";
const SIGNING_KEY: &str = "signing.key";
/// 256 bits in base64.
const TOKEN_LETTERS: usize = 43;
const KEY_BYTES: usize = 32;

/// A data folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{} cannot be {doing}: {}", path.display(), reason(error))]
    Unusable {
        path: PathBuf,
        /// `made`, `read`, `written`.
        doing: &'static str,
        error: io::Error,
    },
    #[error("{} is a file; a data folder is needed", .0.display())]
    NotAFolder(PathBuf),
    #[error(
        "{} holds files that are not Usher's, and its mode would have to be changed to 0700; name an empty folder, or one \
         that does not exist yet",
        .0.display()
    )]
    Foreign(PathBuf),
    #[error("{} is broken: {what}; delete it, and a new one is made at the next start", path.display())]
    Broken { path: PathBuf, what: String },
    #[error("the operating system gives no random numbers")]
    NoRandom,
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "this user may not; check its owner and mode".to_owned(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk is full; free some space and try again".to_owned()
        }
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only; choose another folder".to_owned(),
        _ => error.to_string(),
    }
}

/// A folder that is kept, or one that goes with its last owner.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Of one that goes: it goes with this.
    _temporary: Option<Temporary>,
}

impl Folder {
    /// The folder of a cluster on disk, made if it is not there.
    pub(crate) fn open(path: &Path) -> Result<Self, FolderError> {
        let failed = |doing: &'static str| move |error| unusable(path, doing, error);
        match fs::metadata(path) {
            Ok(found) if !found.is_dir() => return Err(FolderError::NotAFolder(path.to_owned())),
            Ok(found) if found.permissions().mode() & 0o077 != 0 => {
                // Somebody may have made it beforehand; but nobody's home is closed to others because of a typing error.
                let is_ours = path.join(STORE).exists() || path.join(TOKEN).exists();
                if !is_ours && fs::read_dir(path).map_err(failed("read"))?.next().is_some() {
                    return Err(FolderError::Foreign(path.to_owned()));
                }
                fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed("closed to others"))?;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
                // The umask may have taken more away.
                made.and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o700)))
                    .map_err(failed("made"))?;
            }
            Err(error) => return Err(unusable(path, "read", error)),
        }
        let path = fs::canonicalize(path).map_err(failed("read"))?;
        Ok(Self { path, _temporary: None })
    }

    /// For a cluster in memory, which keeps nothing but must tell people where it is.
    pub(crate) fn temporary() -> Result<Self, FolderError> {
        let made = Temporary::make(Kind::Cluster);
        let made = made.map_err(|error| unusable(&std::env::temp_dir(), "written to", error))?;
        Ok(Self {
            path: made.path().to_owned(),
            _temporary: Some(made),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.file(STORE)
    }

    /// The token and the key, made at the first start. Only for who holds the store.
    pub(crate) fn secrets(&self) -> Result<Secrets, FolderError> {
        // Secrets are in there too.
        let store = self.store();
        fs::set_permissions(&store, Permissions::from_mode(0o600))
            .map_err(|error| unusable(&store, "closed to others", error))?;
        let broken = |name: &str, what: &str| FolderError::Broken {
            path: self.file(name),
            what: what.to_owned(),
        };
        let token = self.kept(TOKEN, || Ok(BASE64_URL_SAFE_NO_PAD.encode(random::<32>()?)))?;
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        if token.len() < TOKEN_LETTERS || !token.chars().all(is_letter) {
            return Err(broken(
                TOKEN,
                "a token is one line of at least 43 letters, digits, - and _",
            ));
        }
        let key = self.kept(
            SIGNING_KEY,
            || Ok(BASE64_URL_SAFE_NO_PAD.encode(random::<KEY_BYTES>()?)),
        )?;
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&key).unwrap_or_default();
        if bytes.len() < KEY_BYTES {
            return Err(broken(SIGNING_KEY, "it must hold 32 bytes in base64"));
        }
        Ok(Secrets::new(&token, &bytes))
    }

    /// One line from a file, which is made if it is not there.
    fn kept(&self, name: &str, make: impl FnOnce() -> Result<String, FolderError>) -> Result<String, FolderError> {
        if let Some(text) = self.read(name)? {
            return Ok(text.trim().to_owned());
        }
        let made = make()?;
        self.write(name, &format!("{made}\n"))?;
        Ok(made)
    }

    /// What a file holds; `None` if there is none. One that others could read is closed to them.
    pub(crate) fn read(&self, name: &str) -> Result<Option<String>, FolderError> {
        let path = self.file(name);
        let failed = |error| unusable(&path, "read", error);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(FolderError::Broken {
                    path,
                    what: "it is no text".to_owned(),
                });
            }
            Err(error) => return Err(failed(error)),
        };
        if fs::metadata(&path).map_err(failed)?.permissions().mode() & 0o077 != 0 {
            tracing::warn!(file = %path.display(), "others could read this file; its mode is 0600 again");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed)?;
        }
        Ok(Some(text))
    }

    /// Writes a file whole or not at all, readable by its owner only.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), FolderError> {
        let path = self.file(name);
        replace(&path, text.as_bytes(), 0o600, None).map_err(|error| unusable(&path, "written", error))
    }
}

/// Puts a file in place of another in one step, so that no reader and no crash meets half of it. `owner`: user and group.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
    by_way_of_another(path, |new| {
        write_new(new, bytes, mode)?.sync_all()?;
        if let Some((user, group)) = owner {
            // Only root may give files away, and only root needs to.
            let _ = std::os::unix::fs::chown(new, Some(user), Some(group));
        }
        Ok(())
    })?;
    // The rename itself is in the folder.
    match path.parent().map(File::open) {
        Some(Ok(parent)) => parent.sync_all(),
        _ => Ok(()),
    }
}

/// The same for readers alone: nothing waits for the disk, and after a power failure the file may be the old one or empty.
pub fn swap_in(path: &Path, bytes: &[u8]) -> io::Result<()> {
    by_way_of_another(path, |new| write_new(new, bytes, 0o600).map(drop))
}

/// `write` makes a file beside it, which then takes its place.
fn by_way_of_another(path: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let written = write(&new).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<File> {
    // Left by a process of the same number that was killed here.
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Twelve letters that nobody else has.
pub(super) fn random_name() -> io::Result<String> {
    let bytes = random::<9>().map_err(io::Error::other)?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

fn random<const COUNT: usize>() -> Result<[u8; COUNT], FolderError> {
    let mut bytes = [0; COUNT];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| FolderError::NoRandom)?;
    Ok(bytes)
}

fn unusable(path: &Path, doing: &'static str, error: io::Error) -> FolderError {
    FolderError::Unusable {
        path: path.to_owned(),
        doing,
        error,
    }
}
