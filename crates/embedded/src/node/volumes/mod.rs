//! A pod's volumes (N5): folders below the pod's own, filled from objects where the volume says so, and what each
//! container sees of them.
//!
//! The node's agent calls [`set_up`] before the first container starts and again until it succeeds, [`mounts`] once for
//! each attempt to start a container, and [`refresh`] when an object that the pod names changed. All of them may be
//! called again after a crash at any point: what is there already is kept. Config volumes change as a whole: a reader
//! sees the old files or the new ones, never some of each.
//!
//! - `content`: the files of a config volume. `swap`: how they get on disk. `host_path`, `sub_path`: the two places where
//!   a pod names a path, and the checks on it. `ownership`: fsGroup. `memory`: emptyDirs that are not on the disk. [`Rewriter`]: mounts without mounting (level
//!   `paths`). [`TokenKeeper`]: service-account tokens, renewed in time.

mod content;
mod host_path;
mod memory;
mod ownership;
mod rewrite;
mod sub_path;
mod swap;
mod tokens;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Volume};

use crate::node::environment::{ConfigError, Facts, Objects};

pub use host_path::HostPaths;
pub use memory::in_memory;
pub use rewrite::Rewriter;
pub use tokens::{TokenKeeper, TokenRequest};

use sub_path::Part;

/// One pod and all that its volumes are made of. Cheap to make for each call.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    pub pod: &'a Pod,
    /// Names the folder of the pod's volumes, and fills downwardAPI files.
    pub facts: &'a Facts,
    pub objects: &'a dyn Objects,
    /// The folder of a claim of the pod's namespace, or why there is none yet.
    pub claims: &'a dyn Fn(&str) -> Result<PathBuf, String>,
    /// A service-account token, or why there is none. Asked at every refresh: it gives the same one until it is to be
    /// renewed (see [`TokenKeeper`]).
    pub tokens: &'a dyn Fn(&TokenRequest) -> Result<String, String>,
    pub host_paths: &'a HostPaths,
    pub now: Timestamp,
}

impl std::fmt::Debug for Setting<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setting")
            .field("pod", &self.pod.metadata.name)
            .field("volumes", &self.facts.volumes)
            .finish_non_exhaustive()
    }
}

/// Why a volume is not there; the text of the event `FailedMount`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("MountVolume.SetUp failed for volume {volume:?} : {why}")]
pub struct MountError {
    pub volume: String,
    pub why: String,
}

/// What a container sees of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub volume: String,
    /// A folder or a file of the host, without symbolic links.
    pub source: PathBuf,
    /// The folder that `source` is or is in, and that it must not leave: whoever mounts it later looks below this one
    /// again, since a container may have put a link in meanwhile.
    pub within: PathBuf,
    /// The container's path.
    pub target: String,
    pub read_only: bool,
}

/// What a refresh did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// Volumes whose files are other ones now.
    pub changed: Vec<String>,
    /// Volumes that keep their old files, and why.
    pub errors: Vec<MountError>,
}

/// Makes every volume of the pod. All are tried, so that one error does not hide another.
///
/// # Errors
/// One for each volume that is not there.
pub fn set_up(setting: &Setting<'_>) -> Result<(), Vec<MountError>> {
    let mut errors = Vec::new();
    for volume in volumes(setting.pod) {
        if let Err(why) = set_up_one(setting, volume) {
            errors.push(MountError {
                volume: volume.name.clone(),
                why,
            });
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Brings the files of config volumes to what their objects say now. A volume whose object is gone keeps its files.
#[must_use]
pub fn refresh(setting: &Setting<'_>) -> Refreshed {
    let mut refreshed = Refreshed::default();
    for volume in volumes(setting.pod) {
        match fill(setting, volume) {
            Ok(Some(true)) => refreshed.changed.push(volume.name.clone()),
            Ok(_) => {}
            Err(why) => refreshed.errors.push(MountError {
                volume: volume.name.clone(),
                why,
            }),
        }
    }
    refreshed
}

/// What a container is to mount, in the order of its volumeMounts. Call it once for each attempt: a subPath that is not
/// there is made, and one of a config volume is copied, to stay as it is until the next attempt.
///
/// # Errors
/// What the agent reports as `CreateContainerConfigError`.
pub fn mounts(
    setting: &Setting<'_>,
    container: &Container,
    env: &BTreeMap<String, String>,
) -> Result<Vec<Mount>, ConfigError> {
    each_mount(setting, container, env, Purpose::Start)
}

/// What a running container has mounted: as [`mounts`] said at its start. Makes and copies nothing.
///
/// # Errors
/// As [`mounts`], and if a part of a volume is gone.
pub fn mounted(
    setting: &Setting<'_>,
    container: &Container,
    env: &BTreeMap<String, String>,
) -> Result<Vec<Mount>, ConfigError> {
    each_mount(setting, container, env, Purpose::Look)
}

/// Why mounts are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Start,
    Look,
}

fn each_mount(
    setting: &Setting<'_>,
    container: &Container,
    env: &BTreeMap<String, String>,
    purpose: Purpose,
) -> Result<Vec<Mount>, ConfigError> {
    if let Some(device) = container.volume_devices.iter().flatten().next() {
        return Err(ConfigError::Other(format!(
            "volumeDevices of container {:?} names {:?}, and this node has no block devices: mount the volume with \
             volumeMounts and volumeMode Filesystem",
            container.name, device.name
        )));
    }
    let mut mounts = Vec::new();
    for (at, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let volume = volumes(setting.pod)
            .find(|volume| volume.name == mount.name)
            .ok_or_else(|| {
                ConfigError::Other(format!(
                    "cannot find volume {:?} to mount into container {:?}",
                    mount.name, container.name
                ))
            })?;
        let part = Part {
            container,
            mount,
            env,
            purpose,
            copy: is_config(volume).then(|| sub_path::copy_folder(setting.facts, container, at)),
        };
        let whole = folder_of(setting, volume).map_err(ConfigError::Other)?;
        let found = part.find(&whole)?;
        if volume.host_path.is_some() {
            // A subPath may lead to what the volume's own path would not.
            let path = found.source.to_string_lossy();
            setting.host_paths.allowed(&path).map_err(ConfigError::Other)?;
        }
        mounts.push(Mount {
            volume: volume.name.clone(),
            source: found.source,
            within: found.within,
            target: format!("/{}", mount.mount_path.trim_start_matches('/')),
            read_only: mount.read_only == Some(true) || is_read_only(volume),
        });
    }
    Ok(mounts)
}

fn volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten())
}

/// Volumes whose files we write.
const fn is_config(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// Whether no container may write to the volume, whatever its mount says: config volumes never, as in the reference.
fn is_read_only(volume: &Volume) -> bool {
    is_config(volume)
        || volume
            .persistent_volume_claim
            .as_ref()
            .and_then(|claim| claim.read_only)
            == Some(true)
}

/// Where a volume is. The folder need not exist yet.
fn folder_of(setting: &Setting<'_>, volume: &Volume) -> Result<PathBuf, String> {
    if let Some(claim) = &volume.persistent_volume_claim {
        (setting.claims)(&claim.claim_name)
    } else if volume.ephemeral.is_some() {
        let pod = setting.pod.metadata.name.as_deref().unwrap_or_default();
        (setting.claims)(&format!("{pod}-{}", volume.name))
    } else if let Some(host) = &volume.host_path {
        setting.host_paths.allowed(&host.path)
    } else if volume.empty_dir.is_some() || is_config(volume) {
        own_folder(setting.facts, &volume.name)
    } else {
        Err(format!(
            "this node has no volumes of the kind that volume {:?} asks for: use emptyDir, persistentVolumeClaim, \
             ephemeral, configMap, secret, downwardAPI, projected or hostPath",
            volume.name
        ))
    }
}

/// A volume's name is one folder's name: the API sees to it, and it is checked here because paths are made of it.
fn own_folder(facts: &Facts, name: &str) -> Result<PathBuf, String> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return Err(format!("volume name {name:?} cannot be a folder's name"));
    }
    Ok(facts.volumes.join(name))
}

fn set_up_one(setting: &Setting<'_>, volume: &Volume) -> Result<(), String> {
    if fill(setting, volume)?.is_some() {
        return Ok(());
    }
    let folder = folder_of(setting, volume)?;
    if let Some(host) = &volume.host_path {
        return host_path::check(&folder, host.type_.as_deref().unwrap_or_default());
    }
    if volume.empty_dir.is_some() {
        make_folder(&folder, 0o777).map_err(|why| cannot("make", &folder, &why))?;
    } else if !folder.is_dir() {
        return Err(format!(
            "the claim's folder {} is not there: look at the claim's PersistentVolume",
            folder.display()
        ));
    }
    if is_read_only(volume) {
        return Ok(());
    }
    ownership::hand_over(setting.pod, &folder, false).map_err(|why| cannot("give to fsGroup", &folder, &why))
}

/// Writes a config volume's files. `None`: it is no config volume; else whether they changed.
fn fill(setting: &Setting<'_>, volume: &Volume) -> Result<Option<bool>, String> {
    let Some(files) = content::of(setting, volume)? else {
        return Ok(None);
    };
    let folder = own_folder(setting.facts, &volume.name)?;
    make_folder(&folder, 0o755).map_err(|why| cannot("make", &folder, &why))?;
    swap::write(&folder, &files, setting.now, |fresh| {
        ownership::hand_over(setting.pod, fresh, true)
    })
    .map(Some)
    .map_err(|why| cannot("write", &folder, &why))
}

/// A folder with exactly these rights, whatever our umask says.
fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if path.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

fn cannot(what: &str, path: &Path, why: &io::Error) -> String {
    format!("cannot {what} {}: {why}", path.display())
}

#[cfg(test)]
mod tests;
