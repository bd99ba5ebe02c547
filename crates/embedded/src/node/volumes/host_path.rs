//! hostPath volumes: which paths of the machine a pod may see, and what has to be there.

use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

use super::{cannot, make_folder};

/// Where the contents of PersistentVolumes are in the data folder: the one place of it that is for pods.
const VOLUMES: &str = "volumes";

/// Which paths of the machine pods may name (X4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPaths {
    /// Only the named ones, and what is below them. Root's pods could read everybody's files.
    is_confined: bool,
    named: Vec<PathBuf>,
    /// The cluster's own folder, where its token is. A name above it does not open it.
    data: PathBuf,
}

impl HostPaths {
    pub fn new(is_confined: bool, named: Vec<PathBuf>, data: &Path) -> Self {
        Self {
            is_confined,
            named,
            data: data.to_owned(),
        }
    }

    /// The path with its symbolic links followed, if it is one a pod may see.
    pub(super) fn allowed(&self, path: &str) -> Result<PathBuf, String> {
        let wanted = Path::new(path);
        let steps_back = wanted.components().any(|part| part == Component::ParentDir);
        if !wanted.is_absolute() || steps_back {
            return Err(format!(
                "hostPath {path:?} must be an absolute path without \"..\": correct the volume's path"
            ));
        }
        let real = real(wanted);
        let data = self::real(&self.data);
        let mut named = self.named.iter().map(|prefix| self::real(prefix));
        if real.starts_with(&data) {
            let is_open = real.starts_with(data.join(VOLUMES))
                || named.any(|prefix| prefix.starts_with(&data) && real.starts_with(prefix));
            return if is_open {
                Ok(real)
            } else {
                Err(format!(
                    "hostPath {path:?} is in the cluster's own folder, where its token is: only {} is for pods",
                    data.join(VOLUMES).display()
                ))
            };
        }
        if !self.is_confined || named.any(|prefix| real.starts_with(prefix)) {
            Ok(real)
        } else {
            Err(format!(
                "hostPath {path:?} is outside of the folders that pods may see: start usher with --host-path PREFIX, \
                 where PREFIX is that path or a folder above it"
            ))
        }
    }
}

/// The path without symbolic links; what is not there yet is taken as written.
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(above), Some(name)) => real(above).join(name),
        _ => path.to_owned(),
    }
}

/// Checks a hostPath's `type`, making what it says may be made.
pub(super) fn check(path: &Path, wanted: &str) -> Result<(), String> {
    let found = std::fs::metadata(path).ok().map(|found| found.file_type());
    let is = |test: fn(&FileType) -> bool, what: &str| {
        if found.as_ref().is_some_and(test) {
            Ok(())
        } else {
            Err(format!("hostPath type check failed: {} is not {what}", path.display()))
        }
    };
    match wanted {
        // Container runtimes make the folder of an unchecked path that is not there.
        "" | "DirectoryOrCreate" if found.is_none() => {
            make_folder(path, 0o755).map_err(|why| cannot("make", path, &why))
        }
        "" => Ok(()),
        "DirectoryOrCreate" | "Directory" => is(FileType::is_dir, "a directory"),
        "FileOrCreate" if found.is_none() => std::fs::File::create(path)
            .map(drop)
            .map_err(|why| cannot("make", path, &why)),
        "FileOrCreate" | "File" => is(FileType::is_file, "a file"),
        "Socket" => is(FileTypeExt::is_socket, "a socket file"),
        "CharDevice" => is(FileTypeExt::is_char_device, "a character device"),
        "BlockDevice" => is(FileTypeExt::is_block_device, "a block device"),
        other => Err(format!("{other} is an invalid volume type")),
    }
}
