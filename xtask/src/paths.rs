//! Where things are: the repository, the cache folder, and programs on PATH.

use std::fs::{DirBuilder, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

pub(crate) fn repository() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// `$USHER_CACHE`, else `$XDG_CACHE_HOME/usher`, else `~/.cache/usher`. Outside `target/`, so `cargo clean` keeps the
/// minutes spent on building servers.
pub(crate) fn cache() -> Result<PathBuf> {
    let from = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let folder = from("USHER_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|base| base.join("usher")))
        .or_else(|| from("HOME").map(|home| home.join(".cache/usher")))
        .ok_or_else(|| Error::Machine("set HOME or USHER_CACHE: there is no place for the cache folder".into()))?;
    std::path::absolute(&folder).map_err(Error::at("resolve", &folder))
}

pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| is_program(file))
}

pub(crate) fn is_program(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(Error::at("read", path))
}

pub(crate) fn create_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(Error::at("create", path))
}

/// A folder only its owner can look into; narrowed if it is there already.
pub(crate) fn create_private_folder(path: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(Error::at("create", path))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(Error::at("protect", path))
}

pub(crate) fn temporary_folder(name: &str) -> Result<PathBuf> {
    let template = std::env::temp_dir().join(format!("{name}-XXXXXX"));
    nix::unistd::mkdtemp(&template).map_err(|errno| Error::at("create", &template)(errno.into()))
}

/// Whole or not at all, readable by the owner only (0600): readers never see half a file.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    let partial = path.with_extension(format!("partial-{}", std::process::id()));
    let write = || {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&partial)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&partial, path)
    };
    write().map_err(Error::at("write", path))
}

pub(crate) fn remove(path: &Path) -> Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::at("remove", path)(error)),
        _ => Ok(()),
    }
}
