//! fsGroup: a volume's files belong to the pod's group, which may read and (where the volume can be written) write them.
//!
//! Giving files away needs rights that we have as root alone. Without them the pod's processes run under our own id, to
//! which the files belong anyway: then nothing is done, and nothing is wrong.

use std::fs::{Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

const SET_GROUP: u32 = 0o2000;

pub(super) fn fs_group(pod: &Pod) -> Option<u32> {
    let group = pod.spec.as_ref()?.security_context.as_ref()?.fs_group?;
    u32::try_from(group).ok()
}

/// Gives a volume's folder and all below it to the pod's fsGroup.
pub(super) fn hand_over(pod: &Pod, folder: &Path, read_only: bool) -> io::Result<()> {
    let Some(group) = fs_group(pod) else {
        return Ok(());
    };
    let security = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let once = security.and_then(|security| security.fs_group_change_policy.as_deref()) == Some("OnRootMismatch");
    let mode = Access::of(read_only);
    if once && mode.is_given(&std::fs::metadata(folder)?, group) {
        return Ok(());
    }
    let mut open: Vec<PathBuf> = vec![folder.to_owned()];
    // The volume's own folder last: it says that the rest is done.
    let mut folders = Vec::new();
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(&path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            } else if !give(&entry.path(), group, mode)? {
                return Ok(());
            }
        }
        folders.push(path);
    }
    for path in folders.iter().rev() {
        if !give(path, group, mode)? {
            return Ok(());
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Access {
    file: u32,
    folder: u32,
}

impl Access {
    const fn of(read_only: bool) -> Self {
        if read_only {
            Self {
                file: 0o440,
                folder: 0o550 | SET_GROUP,
            }
        } else {
            Self {
                file: 0o660,
                folder: 0o770 | SET_GROUP,
            }
        }
    }

    fn is_given(self, folder: &Metadata, group: u32) -> bool {
        folder.gid() == group && folder.mode() & self.folder == self.folder
    }
}

/// Whether we may.
fn give(path: &Path, group: u32, mode: Access) -> io::Result<bool> {
    let found = std::fs::symlink_metadata(path)?;
    if found.gid() != group && !where_allowed(lchown(path, None, Some(group)))? {
        return Ok(false);
    }
    let more = match found.file_type() {
        kind if kind.is_symlink() => return Ok(true),
        kind if kind.is_dir() => mode.folder,
        _ => mode.file,
    };
    let wanted = found.mode() & 0o7777 | more;
    if wanted != found.mode() & 0o7777 {
        std::fs::set_permissions(path, Permissions::from_mode(wanted))?;
    }
    Ok(true)
}

/// A change of owner: whether it was allowed to us. An id that our user namespace does not have is one that is not.
pub(super) fn where_allowed(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(why)
            if matches!(
                why.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
            ) =>
        {
            Ok(false)
        }
        Err(why) => Err(why),
    }
}
