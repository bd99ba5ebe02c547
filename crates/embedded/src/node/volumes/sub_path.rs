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

use super::Purpose;
use crate::node::environment::{ConfigError, Facts, expand_or_missing};

/// Below the pod's volumes; no volume's name begins with a dot.
const COPIES: &str = ".subpaths";

/// Where a container's copy of a part of a config volume lies.
pub(super) fn copy_folder(facts: &Facts, container: &Container, at: usize) -> PathBuf {
    facts.volumes.join(COPIES).join(&container.name).join(at.to_string())
}

/// What is looked for in a volume.
pub(super) struct Part<'a> {
    pub(super) container: &'a Container,
    pub(super) mount: &'a VolumeMount,
    pub(super) env: &'a BTreeMap<String, String>,
    pub(super) purpose: Purpose,
    /// Of config volumes: where a part of it is copied to, so that it does not change.
    pub(super) copy: Option<PathBuf>,
}

pub(super) struct Found {
    pub(super) source: PathBuf,
    pub(super) within: PathBuf,
}

impl Part<'_> {
    pub(super) fn find(&self, whole: &Path) -> Result<Found, ConfigError> {
        let volume = whole.canonicalize().map_err(|why| {
            ConfigError::Other(format!(
                "the folder {} of volume {:?} is not there: {why}",
                whole.display(),
                self.mount.name
            ))
        })?;
        let Some(wanted) = wanted(self.mount, self.env)? else {
            return Ok(Found {
                source: volume.clone(),
                within: volume,
            });
        };
        let within = match (&self.copy, self.purpose) {
            (None, _) => volume,
            (Some(copy), Purpose::Look) => copy.clone(),
            (Some(copy), Purpose::Start) => {
                let part = self.below(&volume, &wanted)?;
                let copied = copy_anew(&part, copy, &wanted);
                copied.map_err(|_| self.cannot("prepare subPath"))?;
                copy.clone()
            }
        };
        let wanted = match (&self.copy, wanted.file_name()) {
            (Some(_), Some(name)) => PathBuf::from(name),
            _ => wanted,
        };
        Ok(Found {
            source: self.below(&within, &wanted)?,
            within: within.canonicalize().map_err(|_| self.cannot("prepare subPath"))?,
        })
    }

    /// The path without links, if it does not lead out of the folder; made if it is not there and a start needs it.
    fn below(&self, folder: &Path, wanted: &Path) -> Result<PathBuf, ConfigError> {
        let folder = folder.canonicalize().map_err(|_| self.cannot("prepare subPath"))?;
        let found = match (folder.join(wanted).canonicalize(), self.purpose) {
            (Ok(found), _) => found,
            (Err(_), Purpose::Look) => return Err(self.cannot("prepare subPath")),
            (Err(_), Purpose::Start) => make(&folder, wanted).map_err(|_| self.cannot("create subPath directory"))?,
        };
        if found.starts_with(&folder) {
            Ok(found)
        } else {
            Err(self.cannot("prepare subPath"))
        }
    }

    /// Without a reason, as in the reference: it could tell of the host's files.
    fn cannot(&self, verb: &str) -> ConfigError {
        ConfigError::Other(format!(
            "failed to {verb} for volumeMount {:?} of container {:?}",
            self.mount.name, self.container.name
        ))
    }
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
fn copy_anew(from: &Path, place: &Path, wanted: &Path) -> io::Result<()> {
    if place.exists() {
        std::fs::remove_dir_all(place)?;
    }
    std::fs::create_dir_all(place)?;
    copy(from, &place.join(wanted.file_name().unwrap_or_default()))
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
