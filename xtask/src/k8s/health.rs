//! Is it up? Asked of the servers themselves, not guessed from their processes.

use std::path::Path;
use std::process::{Command, Stdio};

use super::etcd;
use super::folder::Folder;
use super::node::{self, Room};
use super::state::{Component, Started, State};

/// How the servers of a folder are asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    folder: &'a Folder,
    kubectl: &'a Path,
    room: Option<&'a Room>,
}

impl<'a> Asking<'a> {
    pub(crate) fn of(folder: &'a Folder, state: &'a State) -> Self {
        Self {
            folder,
            kubectl: &state.kubectl,
            room: state.room.as_ref(),
        }
    }

    pub(crate) fn is_healthy(self, started: &Started) -> bool {
        let server = || format!("--server={}", started.address);
        started.running().is_some()
            && match started.component {
                Component::Etcd => etcd::is_healthy(&self.folder.file("etcd.sock")),
                Component::KubeApiserver => self.answers(&["get", "--raw", "/readyz"]),
                Component::KubeControllerManager | Component::KubeScheduler | Component::Kubelet => {
                    self.answers(&["get", "--raw", "/healthz", &server()])
                }
                Component::Containerd => node::containerd_answers(self.folder),
            }
    }

    /// The controllers work once the first namespace has its ServiceAccount; before that every pod is refused.
    pub(crate) fn controllers_work(self) -> bool {
        ["serviceaccounts/default", "configmaps/kube-root-ca.crt"]
            .iter()
            .all(|object| self.answers(&["get", "--raw", &format!("/api/v1/namespaces/default/{object}")]))
    }

    /// Registered, and ready for pods.
    pub(crate) fn node_is_ready(self) -> bool {
        let node = format!("node/{}", node::NAME);
        self.answers(&["wait", "--for=condition=Ready", &node, "--timeout=1s"])
    }

    fn answers(self, question: &[&str]) -> bool {
        let mut command = match self.room {
            Some(room) => room.command(self.kubectl, self.folder.path()),
            None => Command::new(self.kubectl),
        };
        let status = command
            .args(question)
            .arg("--kubeconfig")
            .arg(self.folder.kubeconfig())
            .arg("--request-timeout=3s")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }
}
