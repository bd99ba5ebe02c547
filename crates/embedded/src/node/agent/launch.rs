//! From a pod's container to everything the supervisor needs to start it: image, words, variables, ids, mounts.
//!
//! Called once for each attempt, on a thread that may wait for the disk.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::folder::PodFolder;
use super::surroundings::Surroundings;
use crate::node::environment::{Facts, process};
use crate::node::images::Image;
use crate::node::machine::Machine;
use crate::node::net::HostsFolder;
use crate::node::supervisor::protocol::{ContainerPlan, Mount};
use crate::node::volumes::{self, Rewriter, Setting};

/// Why a container is not started, as its waiting state says, and what is told besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn config(message: impl std::fmt::Display) -> Self {
        Self {
            reason: "CreateContainerConfigError",
            message: message.to_string(),
        }
    }
}

/// How to run a container's image, or why it cannot be.
pub(super) fn image(machine: &Machine, container: &Container) -> Result<Image, Refusal> {
    let name = container.image.as_deref().unwrap_or_default();
    machine.images().resolve(name).map_err(|missing| Refusal {
        reason: missing.reason(),
        message: missing.to_string(),
    })
}

/// What a node cannot give to a pod whatever else is the case (X4), each with what to do about it.
pub(super) fn refused(pod: &Pod, container: &Container) -> Option<Refusal> {
    let security = container.security_context.as_ref();
    if security.and_then(|security| security.privileged) == Some(true) {
        return Some(Refusal::config(format!(
            "container {:?} asks for securityContext.privileged, which this cluster gives to nobody: its pods are \
             processes of this machine; take the field away",
            container.name
        )));
    }
    let spec = pod.spec.as_ref()?;
    for (field, is_set) in [
        ("hostPID", spec.host_pid == Some(true)),
        ("hostIPC", spec.host_ipc == Some(true)),
    ] {
        if is_set {
            return Some(Refusal::config(format!(
                "the pod asks for {field}, which this cluster gives to nobody: its pods are processes of this machine; \
                 take the field away"
            )));
        }
    }
    None
}

/// Everything for one attempt.
pub(super) fn plan(
    machine: &Machine,
    pod: &Pod,
    container: &Container,
    attempt: u32,
    image: &Image,
    facts: &Facts,
    folder: &PodFolder,
) -> Result<ContainerPlan, Refusal> {
    let objects = Surroundings::new(machine, pod);
    let mut words = process(pod, container, image, facts, &objects).map_err(Refusal::config)?;
    let claims = |name: &str| objects.claim(machine.data(), name);
    let tokens = |request: &volumes::TokenRequest| machine.tokens().token(pod, request);
    let setting = Setting {
        pod,
        facts,
        objects: &objects,
        claims: &claims,
        tokens: &tokens,
        host_paths: machine.host_paths(),
        now: machine.hand().now(),
    };
    let mounts = volumes::mounts(&setting, container, &words.env).map_err(Refusal::config)?;
    let has_root = folder.isolation(machine).has_private_root();
    if !has_root {
        Rewriter::new(&mounts).process(&mut words);
    }
    let message = folder.message(&container.name, attempt);
    std::fs::write(&message, b"").map_err(|why| Refusal {
        reason: "CreateContainerError",
        message: format!("cannot write {}: {why}", message.display()),
    })?;
    let mut mounts: Vec<Mount> = mounts
        .into_iter()
        .map(|mount| Mount {
            source: mount.source,
            below: None,
            target: PathBuf::from(mount.target),
            read_only: mount.read_only,
        })
        .collect();
    mounts.push(Mount {
        target: PathBuf::from(message_path(container)),
        source: open_to_all(message),
        below: None,
        read_only: false,
    });
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let (own_uid, own_gid) = machine.own_ids();
    let security = container.security_context.as_ref();
    let asked = |id: Option<u32>, own: u32| id.unwrap_or(if own == 0 { 0 } else { own });
    Ok(ContainerPlan {
        name: container.name.clone(),
        attempt,
        id: container_id(uid, &container.name, attempt),
        argv: words.argv,
        env: words.env,
        workdir: PathBuf::from(words.workdir),
        uid: asked(words.identity.uid, own_uid),
        gid: asked(words.identity.gid, own_gid),
        groups: words.identity.groups,
        root: image.root.clone(),
        read_only_root: security.and_then(|security| security.read_only_root_filesystem) == Some(true),
        etc: has_root.then(|| HostsFolder::new(&folder.own()).path().to_owned()),
        mounts: if has_root { mounts } else { Vec::new() },
        tty: container.tty == Some(true),
    })
}

/// Where a container leaves what it wants to say at its end.
fn message_path(container: &Container) -> &str {
    container
        .termination_message_path
        .as_deref()
        .filter(|path| !path.is_empty())
        .unwrap_or("/dev/termination-log")
}

/// The container's user may be another one than ours.
fn open_to_all(file: PathBuf) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let _ = std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666));
    file
}

/// 64 hexadecimal digits, as runtimes have them: the same for the same attempt, and different for all others.
fn container_id(uid: &str, container: &str, attempt: u32) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, format!("{uid}/{container}/{attempt}").as_bytes());
    let mut id = "usher://".to_owned();
    for byte in digest.as_ref() {
        id.push_str(&format!("{byte:02x}"));
    }
    id
}

/// The signal that asks a container to stop: the pod's wish, the image's, or SIGTERM.
pub(super) fn stop_signal(machine: &Machine, container: &Container) -> i32 {
    let own = container
        .lifecycle
        .as_ref()
        .and_then(|lifecycle| lifecycle.stop_signal.clone());
    let named = own.or_else(|| image(machine, container).ok()?.stop_signal);
    named.and_then(|name| signal_number(&name)).unwrap_or(15)
}

/// `SIGTERM`, `TERM` or `15`.
pub(crate) fn signal_number(name: &str) -> Option<i32> {
    if let Ok(number) = name.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let long = if name.starts_with("SIG") {
        name.to_owned()
    } else {
        format!("SIG{name}")
    };
    if let Some(rest) = long.strip_prefix("SIGRTMIN") {
        let offset: i32 = if rest.is_empty() {
            0
        } else {
            rest.strip_prefix('+')?.parse().ok()?
        };
        return (0..=30).contains(&offset).then_some(34 + offset);
    }
    const NAMES: [&str; 31] = [
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGILL",
        "SIGTRAP",
        "SIGABRT",
        "SIGBUS",
        "SIGFPE",
        "SIGKILL",
        "SIGUSR1",
        "SIGSEGV",
        "SIGUSR2",
        "SIGPIPE",
        "SIGALRM",
        "SIGTERM",
        "SIGSTKFLT",
        "SIGCHLD",
        "SIGCONT",
        "SIGSTOP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGXCPU",
        "SIGXFSZ",
        "SIGVTALRM",
        "SIGPROF",
        "SIGWINCH",
        "SIGIO",
        "SIGPWR",
        "SIGSYS",
    ];
    let position = NAMES.iter().position(|name| *name == long)?;
    i32::try_from(position + 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_known_by_name_and_number() {
        for (name, number) in [
            ("SIGTERM", Some(15)),
            ("TERM", Some(15)),
            ("9", Some(9)),
            ("SIGRTMIN+3", Some(37)),
            ("SIGSYS", Some(31)),
            ("SIGNOTHING", None),
            ("0", None),
            ("-1", None),
        ] {
            assert_eq!(signal_number(name), number, "{name}");
        }
    }

    #[test]
    fn every_attempt_has_an_id_of_its_own() {
        let first = container_id("u", "c", 0);
        assert_eq!(first.len(), "usher://".len() + 64);
        assert_eq!(first, container_id("u", "c", 0));
        assert_ne!(first, container_id("u", "c", 1));
    }
}
