//! The files that a config volume has: keys of ConfigMaps and Secrets, fields of the pod, tokens.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use k8s_openapi::api::core::v1::{ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, Volume, VolumeProjection};

use super::{Setting, TokenRequest};
use crate::node::environment::{field, resource};

/// What files are readable for where nothing is said.
const DEFAULT_MODE: i32 = 0o644;
/// A token is its user's alone, where that user or its group is known.
const TOKEN_MODE: u32 = 0o600;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) bytes: Vec<u8>,
    pub(super) mode: u32,
    pub(super) owner: Option<u32>,
}

/// By path below the volume.
pub(super) type Files = BTreeMap<String, File>;

/// The files of a volume, or the kubelet's words on what is not there. `None`: it is no config volume.
pub(super) fn of(setting: &Setting<'_>, volume: &Volume) -> Result<Option<Files>, String> {
    let files = if let Some(source) = &volume.config_map {
        let keys = Keys {
            items: source.items.as_deref(),
            default_mode: source.default_mode,
            optional: source.optional,
        };
        keys.of_config_map(setting, &source.name)
    } else if let Some(source) = &volume.secret {
        let keys = Keys {
            items: source.items.as_deref(),
            default_mode: source.default_mode,
            optional: source.optional,
        };
        keys.of_secret(setting, source.secret_name.as_deref().unwrap_or_default())
    } else if let Some(source) = &volume.downward_api {
        fields(setting, source.items.as_deref(), source.default_mode)
    } else if let Some(source) = &volume.projected {
        let sources = source.sources.as_deref().unwrap_or_default();
        projected(setting, sources, source.default_mode)
    } else {
        return Ok(None);
    }?;
    for path in files.keys() {
        check(path)?;
    }
    Ok(Some(files))
}

/// Which keys of an object become which files.
struct Keys<'a> {
    items: Option<&'a [KeyToPath]>,
    default_mode: Option<i32>,
    optional: Option<bool>,
}

impl Keys<'_> {
    fn of_config_map(&self, setting: &Setting<'_>, name: &str) -> Result<Files, String> {
        let found = setting.objects.config_map(name);
        if found.is_none() && self.optional != Some(true) {
            return Err(format!("configmap {name:?} not found"));
        }
        self.files(found.map(bytes_of_config_map).unwrap_or_default(), |key| {
            format!("configmap references non-existent config key: {key}")
        })
    }

    fn of_secret(&self, setting: &Setting<'_>, name: &str) -> Result<Files, String> {
        let found = setting.objects.secret(name);
        if found.is_none() && self.optional != Some(true) {
            return Err(format!("secret {name:?} not found"));
        }
        self.files(found.map(bytes_of_secret).unwrap_or_default(), |key| {
            format!("references non-existent secret key: {key}")
        })
    }

    fn files(&self, mut keys: BTreeMap<String, Vec<u8>>, missing: impl Fn(&str) -> String) -> Result<Files, String> {
        let Some(items) = self.items.filter(|items| !items.is_empty()) else {
            let all = keys
                .into_iter()
                .map(|(key, bytes)| (key, file(bytes, None, self.default_mode)));
            return Ok(all.collect());
        };
        let mut files = Files::new();
        for item in items {
            match keys.get_mut(&item.key) {
                Some(bytes) => {
                    files.insert(item.path.clone(), file(bytes.clone(), item.mode, self.default_mode));
                }
                None if self.optional == Some(true) => {}
                None => return Err(missing(&item.key)),
            }
        }
        Ok(files)
    }
}

fn bytes_of_config_map(map: ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let texts = map
        .data
        .into_iter()
        .flatten()
        .map(|(key, text)| (key, text.into_bytes()));
    let binaries = map.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
    texts.chain(binaries).collect()
}

fn bytes_of_secret(secret: Secret) -> BTreeMap<String, Vec<u8>> {
    secret
        .data
        .into_iter()
        .flatten()
        .map(|(key, bytes)| (key, bytes.0))
        .collect()
}

fn fields(
    setting: &Setting<'_>,
    items: Option<&[DownwardAPIVolumeFile]>,
    default_mode: Option<i32>,
) -> Result<Files, String> {
    let mut files = Files::new();
    for item in items.unwrap_or_default() {
        let text = if let Some(source) = &item.field_ref {
            field(setting.pod, setting.facts, &source.field_path)
        } else if let Some(source) = &item.resource_field_ref {
            resource(setting.pod, None, setting.facts, source)
        } else {
            continue;
        };
        let text = text.map_err(|why| why.to_string())?;
        files.insert(item.path.clone(), file(text.into_bytes(), item.mode, default_mode));
    }
    Ok(files)
}

/// All sources are tried, so that one error does not hide another. A later source goes over an earlier one.
fn projected(setting: &Setting<'_>, sources: &[VolumeProjection], default_mode: Option<i32>) -> Result<Files, String> {
    let mut files = Files::new();
    let mut errors = Vec::new();
    for source in sources {
        match one_projected(setting, source, default_mode) {
            Ok(more) => files.extend(more),
            Err(why) => errors.push(why),
        }
    }
    match errors.as_slice() {
        [] => Ok(files),
        [only] => Err(only.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

fn one_projected(setting: &Setting<'_>, source: &VolumeProjection, default_mode: Option<i32>) -> Result<Files, String> {
    if let Some(source) = &source.config_map {
        let keys = Keys {
            items: source.items.as_deref(),
            default_mode,
            optional: source.optional,
        };
        return keys.of_config_map(setting, &source.name);
    }
    if let Some(source) = &source.secret {
        let keys = Keys {
            items: source.items.as_deref(),
            default_mode,
            optional: source.optional,
        };
        return keys.of_secret(setting, &source.name);
    }
    if let Some(source) = &source.downward_api {
        return fields(setting, source.items.as_deref(), default_mode);
    }
    if let Some(source) = &source.service_account_token {
        let token =
            (setting.tokens)(&TokenRequest::of(source)).map_err(|why| format!("failed to fetch token: {why}"))?;
        let owner = only_user(setting.pod);
        let mut file = file(token.into_bytes(), None, default_mode);
        if owner.is_some() || super::ownership::fs_group(setting.pod).is_some() {
            file.mode = TOKEN_MODE;
            file.owner = owner;
        }
        return Ok([(source.path.clone(), file)].into());
    }
    if let Some(source) = &source.cluster_trust_bundle
        && source.optional == Some(true)
    {
        return Ok(Files::new());
    }
    Err(
        "this node fills projected volumes from configMap, secret, downwardAPI and serviceAccountToken alone: leave the \
         other source out"
            .to_owned(),
    )
}

/// The user all containers of the pod run as, if the pod says so and it is one.
fn only_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let pods = spec.security_context.as_ref().and_then(|pods| pods.run_as_user);
    let mut users = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
        .map(|container| {
            let own = container.security_context.as_ref().and_then(|own| own.run_as_user);
            own.or(pods)
        });
    let first = users.next()??;
    if users.all(|user| user == Some(first)) {
        u32::try_from(first).ok()
    } else {
        None
    }
}

fn file(bytes: Vec<u8>, mode: Option<i32>, default_mode: Option<i32>) -> File {
    let mode = mode.or(default_mode).unwrap_or(DEFAULT_MODE);
    File {
        bytes,
        mode: u32::try_from(mode).unwrap_or_default() & 0o777,
        owner: None,
    }
}

/// The API sees to it; it is checked here because files are written by it.
fn check(path: &str) -> Result<(), String> {
    let plain = Path::new(path)
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if path.is_empty() || !plain || path.starts_with("..") {
        return Err(format!(
            "path {path:?} must be relative, without \"..\": correct the volume's items"
        ));
    }
    Ok(())
}
