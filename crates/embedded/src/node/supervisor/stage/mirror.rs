//! Folders of the image in which something must be made, although the image is read-only.
//!
//! A volume may be mounted where the image has nothing (`/var/lib/app`). Then the deepest folder that does exist is
//! *mirrored*: an empty folder in memory is mounted over it and everything that was in it is bound into that again. What
//! is missing can then be made there. The root is always mirrored; others only if they must.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::mount::MsFlags;

use super::Failure;
use super::mounting::{bind, find, make_folder, mount_new, open_source, path_of, touch};

/// What a mirrored folder does not take over from the image.
pub(super) type Replaced = BTreeSet<OsString>;

/// The folders to mirror, each as a path without a leading slash, parents before children.
pub(super) type Mirrored = BTreeMap<PathBuf, Replaced>;

/// Where a place that the pod wants is to be made, if the image does not have it: the folder to mirror.
///
/// `given` are the places that are made anyhow (`/tmp`, a volume): what lies in them is made there.
pub(super) fn folder_for(base: &OwnedFd, wanted: &Path, given: &[PathBuf]) -> Result<Option<PathBuf>, Failure> {
    if given.iter().any(|place| wanted.starts_with(place)) {
        return Ok(None);
    }
    let found = find(base, wanted)?;
    if found.missing.is_empty() {
        return Ok(None);
    }
    let (base_path, deepest) = (path_of(base)?, path_of(&found.deepest)?);
    // The image's links have been followed, so this is where it really is.
    let folder = deepest.strip_prefix(&base_path).map_err(Failure::of(format_args!(
        "cannot make {}: {} is not in the image",
        wanted.display(),
        deepest.display()
    )))?;
    Ok(Some(folder.to_owned()))
}

/// Mirrors one folder of `base` at the same place of `new`. The descriptor is of the new, still writable folder.
pub(super) fn mirror(base: &Path, new: &Path, folder: &Path, replaced: &Replaced) -> Result<OwnedFd, Failure> {
    let (from, to) = (base.join(folder), new.join(folder));
    let mode = fs::metadata(&from).map_or(0o755, |metadata| metadata.permissions().mode() & 0o7777);
    mount_new(
        "tmpfs",
        &to,
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        &format!("mode={mode:o}"),
    )?;
    let entries = match fs::read_dir(&from) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return open_source(&to),
        Err(error) => {
            return Err(Failure(format!(
                "cannot make anything in /{}: {error}",
                folder.display()
            )));
        }
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !replaced.contains(&name) {
            take_over(&from.join(&name), &to.join(&name))?;
        }
    }
    open_source(&to)
}

fn take_over(from: &Path, to: &Path) -> Result<(), Failure> {
    let Ok(metadata) = fs::symlink_metadata(from) else {
        return Ok(());
    };
    if metadata.is_symlink() {
        let link = fs::read_link(from).map_err(Failure::of(format_args!("cannot read the link {}", from.display())))?;
        return std::os::unix::fs::symlink(link, to).map_err(Failure::of(format_args!("cannot make {}", to.display())));
    }
    if metadata.is_dir() {
        make_folder(to)?;
    } else {
        touch(to)?;
    }
    bind(from, to)
}

/// The names in a folder.
pub(super) fn names_in(folder: &Path) -> Result<Vec<OsString>, Failure> {
    let entries =
        fs::read_dir(folder).map_err(Failure::of(format_args!("cannot read the folder {}", folder.display())))?;
    Ok(entries
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| !is_hidden(name))
        .collect())
}

/// Names that an atomic writer uses while it writes.
fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}
