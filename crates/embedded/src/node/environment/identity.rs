//! Whom a container runs as: the container's securityContext over the pod's over the image's user.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::{ConfigError, full_name};
use crate::node::images::{Image, User};

/// Ids inside the container. `None`: neither the pod nor the image says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// supplementalGroups, fsGroup and, in an image with a root of its own, the user's groups there.
    pub groups: Vec<u32>,
}

/// Whom a container runs as.
///
/// # Errors
/// runAsNonRoot is broken, or the image's user is not known.
pub fn identity(pod: &Pod, container: &Container, image: &Image) -> Result<Identity, ConfigError> {
    let own = container.security_context.as_ref();
    let pods = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let asked = own
        .and_then(|own| own.run_as_user)
        .or_else(|| pods.and_then(|pods| pods.run_as_user));
    let non_root = own
        .and_then(|own| own.run_as_non_root)
        .or_else(|| pods.and_then(|pods| pods.run_as_non_root));
    if non_root == Some(true) {
        check_non_root(pod, container, image, asked)?;
    }
    let passwd = Passwd::of(image);
    let (uid, image_gid) = match (asked, &image.user) {
        (Some(asked), _) => (Some(id(asked, "runAsUser")?), None),
        (None, None) => (None, None),
        (None, Some(User::Id { uid, gid })) => (Some(*uid), *gid),
        (None, Some(User::Name { user, group })) => {
            let missing = |name: &str, file: PathBuf| ConfigError::NoSuchUser {
                user: name.to_owned(),
                container: container.name.clone(),
                file,
            };
            let found = passwd.uid(user).ok_or_else(|| missing(user, passwd.users.clone()))?;
            let gid = match group {
                Some(group) => Some(passwd.gid(group).ok_or_else(|| missing(group, passwd.groups.clone()))?),
                None => None,
            };
            (Some(found), gid)
        }
    };
    let asked_gid = own
        .and_then(|own| own.run_as_group)
        .or_else(|| pods.and_then(|pods| pods.run_as_group));
    let gid = match asked_gid {
        Some(gid) => Some(id(gid, "runAsGroup")?),
        None => image_gid.or_else(|| passwd.main_group(uid?)),
    };
    let mut groups: Vec<u32> = Vec::new();
    for group in pods.iter().flat_map(|pods| pods.supplemental_groups.iter().flatten()) {
        groups.push(id(*group, "supplementalGroups")?);
    }
    if let Some(group) = pods.and_then(|pods| pods.fs_group) {
        groups.push(id(group, "fsGroup")?);
    }
    let strict = pods.and_then(|pods| pods.supplemental_groups_policy.as_deref()) == Some("Strict");
    // The machine's own groups are not an image's: a pod must not get into one by its user's number.
    if let (Some(uid), true, false) = (uid, image.root.is_some(), strict) {
        groups.extend(passwd.groups_of(uid));
    }
    groups.sort_unstable();
    groups.dedup();
    Ok(Identity { uid, gid, groups })
}

/// The folder of a container's user, for programs that keep something there. Nobody in particular is root, as in the
/// reference.
pub(super) fn home(image: &Image, identity: &Identity) -> String {
    let uid = identity.uid.unwrap_or(0).to_string();
    read(&Passwd::of(image).users)
        .into_iter()
        .find(|parts| parts.get(2) == Some(&uid))
        .and_then(|parts| parts.get(5).cloned())
        .filter(|home| !home.is_empty())
        .unwrap_or_else(|| "/".to_owned())
}

/// Ids are 32 bits to the kernel; the API allows no more, and less than none is nobody.
fn id(number: i64, field: &str) -> Result<u32, ConfigError> {
    u32::try_from(number)
        .ok()
        .filter(|id| *id != u32::MAX)
        .ok_or_else(|| ConfigError::Other(format!("{field} {number} is no id: use 0 to {}", i32::MAX)))
}

fn check_non_root(pod: &Pod, container: &Container, image: &Image, asked: Option<i64>) -> Result<(), ConfigError> {
    let pod = full_name(pod);
    let container = container.name.clone();
    match (asked, &image.user) {
        (Some(0), _) => Err(ConfigError::AsksForRoot { pod, container }),
        (Some(_), _) => Ok(()),
        (None, None | Some(User::Id { uid: 0, .. })) => Err(ConfigError::ImageIsRoot { pod, container }),
        (None, Some(User::Id { .. })) => Ok(()),
        (None, Some(User::Name { user, .. })) => Err(ConfigError::ImageUserUnknown {
            user: user.clone(),
            pod,
            container,
        }),
    }
}

/// The image's users and groups: two files of colon-parted lines.
struct Passwd {
    users: PathBuf,
    groups: PathBuf,
}

impl Passwd {
    fn of(image: &Image) -> Self {
        let etc = image.root.as_deref().unwrap_or_else(|| Path::new("/")).join("etc");
        Self {
            users: etc.join("passwd"),
            groups: etc.join("group"),
        }
    }

    /// `name:x:uid:gid:…`
    fn uid(&self, name: &str) -> Option<u32> {
        find(&self.users, |parts| parts.first() == Some(&name), 2)
    }

    fn main_group(&self, uid: u32) -> Option<u32> {
        let uid = uid.to_string();
        find(&self.users, |parts| parts.get(2) == Some(&uid.as_str()), 3)
    }

    /// `name:x:gid:member,member`; a number stands for itself.
    fn gid(&self, name: &str) -> Option<u32> {
        name.parse()
            .ok()
            .or_else(|| find(&self.groups, |parts| parts.first() == Some(&name), 2))
    }

    fn groups_of(&self, uid: u32) -> Vec<u32> {
        let uid = uid.to_string();
        let users = read(&self.users);
        let Some(name) = users
            .iter()
            .find(|parts| parts.get(2).is_some_and(|found| *found == uid))
            .and_then(|parts| parts.first().cloned())
        else {
            return Vec::new();
        };
        read(&self.groups)
            .iter()
            .filter(|parts| {
                parts
                    .get(3)
                    .is_some_and(|members| members.split(',').any(|member| member == name))
            })
            .filter_map(|parts| parts.get(2)?.parse().ok())
            .collect()
    }
}

fn read(file: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .map(|line| line.split(':').map(str::to_owned).collect())
        .collect()
}

fn find(file: &Path, wanted: impl Fn(&[&str]) -> bool, part: usize) -> Option<u32> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let parts: Vec<&str> = line.split(':').collect();
        if wanted(&parts) {
            parts.get(part)?.parse().ok()
        } else {
            None
        }
    })
}
