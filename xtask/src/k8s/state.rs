//! `state.json`: what runs in a folder, as it was started, so that another command can stop, check or start it again.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::folder::Folder;
use super::node::Room;
use crate::error::{Error, Result};
use crate::paths;
use crate::process::ProcessId;
use crate::setup::{Program, Version};

/// In the order in which they start; they stop the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Component {
    Etcd,
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    Containerd,
    Kubelet,
}

impl Component {
    pub(crate) const ALL: [Self; 6] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Containerd,
        Self::Kubelet,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
        }
    }

    /// What `setup` builds for it; containerd comes from Debian.
    pub(crate) const fn program(self) -> Option<Program> {
        match self {
            Self::Etcd => Some(Program::Etcd),
            Self::KubeApiserver => Some(Program::ApiServer),
            Self::KubeControllerManager => Some(Program::ControllerManager),
            Self::KubeScheduler => Some(Program::Scheduler),
            Self::Containerd => None,
            Self::Kubelet => Some(Program::Kubelet),
        }
    }

    pub(crate) fn log(self, folder: &Folder) -> PathBuf {
        folder.file(&format!("{}.log", self.name()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) kubectl: PathBuf,
    /// What the servers are started in, where pods run beside them.
    pub(crate) room: Option<Room>,
    pub(crate) components: Vec<Started>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Started {
    pub(crate) component: Component,
    pub(crate) program: PathBuf,
    pub(crate) version: Version,
    pub(crate) arguments: Vec<String>,
    /// Where it serves: a URL, or the path of a socket.
    pub(crate) address: String,
    /// `None` until its first start.
    pub(crate) process: Option<ProcessId>,
}

impl Started {
    /// The running process, if it runs.
    pub(crate) fn running(&self) -> Option<ProcessId> {
        self.process.filter(|process| process.is_alive())
    }
}

impl State {
    /// `None` when nothing was started there.
    pub(crate) fn load(folder: &Folder) -> Result<Option<Self>> {
        let path = folder.state();
        match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::at("read", &path)(error)),
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| {
                let path = path.display();
                Error::Machine(format!(
                    "{path} is of another version ({error}); run `cargo xtask k8s down` first"
                ))
            }),
        }
    }

    pub(crate) fn save(&self, folder: &Folder) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::io("write state.json")(error.into()))?;
        paths::write_private(&folder.state(), &text)
    }

    pub(crate) fn get(&self, component: Component) -> Result<&Started> {
        let found = self.components.iter().find(|started| started.component == component);
        found.ok_or_else(|| {
            let name = component.name();
            Error::Machine(format!(
                "this control plane was started without {name}; `cargo xtask k8s down`, then `up` starts one with it"
            ))
        })
    }

    /// Those that it consists of, in the order in which they start.
    pub(crate) fn names(&self) -> Vec<Component> {
        let here = |component: &Component| self.get(*component).is_ok();
        Component::ALL.into_iter().filter(here).collect()
    }

    pub(crate) fn set_process(&mut self, component: Component, process: ProcessId) {
        for started in &mut self.components {
            if started.component == component {
                started.process = Some(process);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_survives_its_file_and_components_go_by_their_program_names() {
        let temporary = paths::temporary_folder("usher-state").unwrap();
        let folder = Folder::locate(Some(temporary.clone())).unwrap();
        assert_eq!(State::load(&folder).unwrap(), None);
        let mut state = State {
            kubectl: "/bin/kubectl".into(),
            room: None,
            components: vec![Started {
                component: Component::KubeApiserver,
                program: "/bin/kube-apiserver".into(),
                version: Version::new(1, 36, 3),
                arguments: vec!["--secure-port=1".into()],
                address: "https://127.0.0.1:1".into(),
                process: None,
            }],
        };
        state.set_process(
            Component::KubeApiserver,
            ProcessId {
                pid: i32::MAX,
                start_ticks: 7,
            },
        );
        state.save(&folder).unwrap();
        assert_eq!(State::load(&folder).unwrap().as_ref(), Some(&state));
        assert!(paths::read(&folder.state()).unwrap().contains("\"kube-apiserver\""));
        assert_eq!(state.get(Component::KubeApiserver).unwrap().running(), None);
        assert!(state.get(Component::Etcd).is_err());
        paths::remove(&temporary).unwrap();
    }

    #[test]
    fn a_damaged_state_file_says_how_to_go_on() {
        let temporary = paths::temporary_folder("usher-state").unwrap();
        let folder = Folder::locate(Some(temporary.clone())).unwrap();
        paths::write_private(&folder.state(), "{").unwrap();
        assert!(State::load(&folder).unwrap_err().to_string().contains("k8s down"));
        paths::remove(&temporary).unwrap();
    }
}
