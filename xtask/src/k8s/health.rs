//! Is it up? Asked of the servers themselves, not guessed from their processes.

use std::path::Path;
use std::process::{Command, Stdio};

use super::etcd;
use super::folder::Folder;
use super::state::{Component, Started};

pub(crate) fn is_healthy(started: &Started, folder: &Folder, kubectl: &Path) -> bool {
    started.running().is_some()
        && match started.component {
            Component::Etcd => etcd::is_healthy(&folder.file("etcd.sock")),
            Component::KubeApiserver => answers(kubectl, folder, &["get", "--raw", "/readyz"]),
            Component::KubeControllerManager => {
                let server = format!("--server={}", started.address);
                answers(kubectl, folder, &["get", "--raw", "/healthz", &server])
            }
        }
}

/// The controllers work once the first namespace has its ServiceAccount; before that every pod is refused.
pub(crate) fn controllers_work(folder: &Folder, kubectl: &Path) -> bool {
    ["serviceaccounts/default", "configmaps/kube-root-ca.crt"]
        .iter()
        .all(|object| {
            answers(
                kubectl,
                folder,
                &["get", "--raw", &format!("/api/v1/namespaces/default/{object}")],
            )
        })
}

fn answers(kubectl: &Path, folder: &Folder, question: &[&str]) -> bool {
    let status = Command::new(kubectl)
        .args(question)
        .arg("--kubeconfig")
        .arg(folder.kubeconfig())
        .arg("--request-timeout=3s")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
