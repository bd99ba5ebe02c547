//! What a mount shows of a volume: the whole, or the part that its subPath names.
//!
//! A container may have put symbolic links into its volume. A subPath is followed step by step, and a link that leads out
//! of the volume is an error; so the host's files cannot be reached through it.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, VolumeMount};

use super::Setting;
use crate::node::environment::{ConfigError, expand_or_missing};

/// Below the pod's volumes; no volume's name begins with a dot.
const COPIES: &str = ".subpaths";

pub(super) fn source(
    setting: &Setting<'_>,
    container: &Container,
    at: usize,
    mount: &VolumeMount,
    whole: &Path,
    env: &BTreeMap<String, String>,
    config: bool,
) -> Result<PathBuf, ConfigError> {
    let cannot = |verb: &str| {
        ConfigError::Other(format!(
            "failed to {verb} for volumeMount {:?} of container {:?}",
            mount.name, container.name
        ))
    };
    let volume = whole.canonicalize().map_err(|why| {
        ConfigError::Other(format!(
            "the folder {} of volume {:?} is not there: {why}",
            whole.display(),
            mount.name
        ))
    })?;
    let wanted = wanted(mount, env)?;
    let Some(wanted) = wanted else {
        return Ok(volume);
    };
    let found = match volume.join(&wanted).canonicalize() {
        Ok(found) => found,
        Err(_) => make(&volume, &wanted).map_err(|_| cannot("create subPath directory"))?,
    };
    if !found.starts_with(&volume) {
        return Err(cannot("prepare subPath"));
    }
    if !config {
        return Ok(found);
    }
    let place = setting
        .facts
        .volumes
        .join(COPIES)
        .join(&container.name)
        .join(at.to_string());
    copy_anew(&found, &place, &wanted).map_err(|_| cannot("prepare subPath"))
}

/// The path below the volume, `None` for the whole.
fn wanted(mount: &VolumeMount, env: &BTreeMap<String, String>) -> Result<Option<PathBuf>, ConfigError> {
    let text = match mount.sub_path_expr.as_deref().filter(|text| !text.is_empty()) {
        Some(expression) => expand_or_missing(expression, env)?,
        None => mount.sub_path.clone().unwrap_or_default(),
    };
    let path = PathBuf::from(&text);
    if path.is_absolute() {
        return Err(ConfigError::Other(format!(
            "error SubPath `{text}` must not be an absolute path"
        )));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(ConfigError::Other(format!(
            "unable to provision SubPath `{text}`: must not contain '..'"
        )));
    }
    let path: PathBuf = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    Ok((!path.as_os_str().is_empty()).then_some(path))
}

/// Makes the folders that are not there, each with the volume's own rights, going through no link that leads outside.
fn make(volume: &Path, wanted: &Path) -> io::Result<PathBuf> {
    let rights = std::fs::metadata(volume)?;
    let mut here = volume.to_owned();
    for part in wanted.components() {
        let next = here.join(part);
        match std::fs::create_dir(&next) {
            Ok(()) => {
                // Not ours to give without root: then it is ours to use.
                super::ownership::where_allowed(chown(&next, Some(rights.uid()), Some(rights.gid())))?;
                std::fs::set_permissions(&next, Permissions::from_mode(rights.mode() & 0o7777))?;
            }
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
            Err(why) => return Err(why),
        }
        here = next.canonicalize()?;
        if !here.starts_with(volume) {
            return Err(io::Error::other("leads out of the volume"));
        }
    }
    Ok(here)
}

/// A copy that no refresh touches, under the part's own name: programs look at endings.
fn copy_anew(from: &Path, place: &Path, wanted: &Path) -> io::Result<PathBuf> {
    if place.exists() {
        std::fs::remove_dir_all(place)?;
    }
    std::fs::create_dir_all(place)?;
    let name = wanted.file_name().unwrap_or_default();
    let to = place.join(name);
    copy(from, &to)?;
    to.canonicalize()
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let found = std::fs::metadata(from)?;
    if found.is_dir() {
        std::fs::create_dir(to)?;
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else {
        std::fs::copy(from, to)?;
    }
    super::ownership::where_allowed(chown(to, Some(found.uid()), Some(found.gid())))?;
    std::fs::set_permissions(to, found.permissions())
}
