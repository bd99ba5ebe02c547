//! What a container is started with (N6): its command, variables, folder and ids, from the pod, the image and the
//! objects the pod names.
//!
//! The node's agent calls [`process`] once for each attempt to start a container, and reports an error as
//! `CreateContainerConfigError` with the error's text, which is the kubelet's. Nothing here waits, writes or keeps
//! anything: the same values in give the same values out.
//!
//! - [`variables`]: envFrom, env, valueFrom, service links. `expansion`: `$(VAR)`. `fields`: what fieldRef and
//!   resourceFieldRef name. `env_file`: fileKeyRef. `identity`: uid, gid
//!   and groups. `references`: the objects a pod names.

mod env_file;
mod expansion;
mod fields;
mod identity;
mod references;
mod services;
mod variables;

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::node::images::Image;

pub use expansion::{expand, expand_or_missing};
pub use fields::{field, resource};
pub use identity::{Identity, identity};
pub use references::{References, references};
pub use variables::variables;

/// Where programs are looked for if neither the image nor the pod says.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the node knows of itself and of one pod, beside the pod's own text.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub node_name: String,
    /// The node's addresses, the first one first.
    pub host_ips: Vec<String>,
    /// The pod's addresses; the agent knows them before the pod's status does.
    pub pod_ips: Vec<String>,
    /// What stands in for a limit that a container does not have.
    pub allocatable: BTreeMap<String, Quantity>,
    /// The folder that holds one folder for each of the pod's volumes.
    pub volumes: PathBuf,
}

/// The objects a pod may name; all are in the pod's namespace.
pub trait Objects {
    fn config_map(&self, name: &str) -> Option<ConfigMap>;
    fn secret(&self, name: &str) -> Option<Secret>;
    /// The Services of the pod's namespace, and `kubernetes` of namespace `default`.
    fn services(&self) -> Vec<Service>;
}

/// Objects read beforehand: those that [`references`] lists.
#[derive(Debug, Clone, Default)]
pub struct Gathered {
    pub config_maps: BTreeMap<String, ConfigMap>,
    pub secrets: BTreeMap<String, Secret>,
    pub services: Vec<Service>,
}

impl Objects for Gathered {
    fn config_map(&self, name: &str) -> Option<ConfigMap> {
        self.config_maps.get(name).cloned()
    }

    fn secret(&self, name: &str) -> Option<Secret> {
        self.secrets.get(name).cloned()
    }

    fn services(&self) -> Vec<Service> {
        self.services.clone()
    }
}

/// Why a container cannot be made from what the pod says, in the kubelet's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("configmap {0:?} not found")]
    NoConfigMap(String),
    #[error("secret {0:?} not found")]
    NoSecret(String),
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey {
        kind: &'static str,
        namespace: String,
        name: String,
        key: String,
    },
    #[error("unsupported fieldPath: {0}")]
    UnknownField(String),
    #[error("unsupported container resource : {0}")]
    UnknownResource(String),
    #[error("container {0} not found")]
    NoContainer(String),
    #[error("missing value for {0}")]
    NoValue(String),
    #[error("container's runAsUser breaks non-root policy (pod: {pod:?}, container: {container})")]
    AsksForRoot { pod: String, container: String },
    #[error("container has runAsNonRoot and image will run as root (pod: {pod:?}, container: {container})")]
    ImageIsRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root \
         (pod: {pod:?}, container: {container})"
    )]
    ImageUserUnknown {
        user: String,
        pod: String,
        container: String,
    },
    #[error(
        "container {container} has nothing to run: give the container a command, or the image's entry in the image \
         table an entrypoint or a cmd"
    )]
    NothingToRun { container: String },
    #[error(
        "image user {user:?} of container {container} is not in {file}: give its number in the image table, or \
         runAsUser in the pod"
    )]
    NoSuchUser {
        user: String,
        container: String,
        file: PathBuf,
    },
    /// A subPath, a fileKeyRef or another text that says all by itself.
    #[error("{0}")]
    Other(String),
}

/// How to start a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Never empty.
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub workdir: String,
    pub identity: Identity,
}

/// All a container is started with. The pod's variables go over the image's; `PATH` begins with the image's programs.
///
/// # Errors
/// What the agent reports as `CreateContainerConfigError`.
pub fn process(
    pod: &Pod,
    container: &Container,
    image: &Image,
    facts: &Facts,
    objects: &dyn Objects,
) -> Result<Process, ConfigError> {
    let identity = identity(pod, container, image)?;
    let own = variables(pod, container, facts, objects)?;
    let argv = argv(container, image, &own).ok_or_else(|| ConfigError::NothingToRun {
        container: container.name.clone(),
    })?;
    let mut env = image.env.clone();
    let path = env.remove("PATH").unwrap_or_else(|| DEFAULT_PATH.to_owned());
    let path = match &image.bin {
        Some(bin) => format!("{}:{path}", bin.display()),
        None => path,
    };
    env.insert("PATH".to_owned(), path);
    env.insert("HOSTNAME".to_owned(), hostname(pod, facts));
    env.extend(own);
    env.entry("HOME".to_owned())
        .or_insert_with(|| identity::home(image, &identity));
    let workdir = container
        .working_dir
        .clone()
        .filter(|folder| !folder.is_empty())
        .or_else(|| image.workdir.clone())
        .unwrap_or_else(|| "/".to_owned());
    Ok(Process {
        argv,
        env,
        workdir,
        identity,
    })
}

/// The name a pod has for itself, as the reference cuts it: at most 63 characters, no dash or dot last.
#[must_use]
pub fn hostname(pod: &Pod, facts: &Facts) -> String {
    let spec = pod.spec.as_ref();
    if spec.and_then(|spec| spec.host_network) == Some(true) {
        return facts.node_name.clone();
    }
    if let Some(name) = spec.and_then(|spec| spec.hostname_override.clone()) {
        return name;
    }
    let name = spec
        .and_then(|spec| spec.hostname.clone())
        .filter(|name| !name.is_empty())
        .or_else(|| pod.metadata.name.clone())
        .unwrap_or_default();
    let cut: String = name.chars().take(63).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// `name_namespace(uid)`, as the reference names a pod in its sentences.
#[must_use]
pub fn full_name(pod: &Pod) -> String {
    let of = |part: &Option<String>| part.clone().unwrap_or_default();
    format!(
        "{}_{}({})",
        of(&pod.metadata.name),
        of(&pod.metadata.namespace),
        of(&pod.metadata.uid)
    )
}

/// The pod's command goes over the image's entrypoint and takes its cmd away; the pod's args go over the cmd alone.
fn argv(container: &Container, image: &Image, env: &BTreeMap<String, String>) -> Option<Vec<String>> {
    let expanded =
        |words: &Option<Vec<String>>| -> Vec<String> { words.iter().flatten().map(|word| expand(word, env)).collect() };
    let command = expanded(&container.command);
    let args = expanded(&container.args);
    let mut argv = match (command.is_empty(), args.is_empty()) {
        (false, _) => command,
        (true, false) => image.entrypoint.clone(),
        (true, true) => [image.entrypoint.clone(), image.cmd.clone()].concat(),
    };
    argv.extend(args);
    (!argv.is_empty()).then_some(argv)
}

#[cfg(test)]
mod tests;
