//! Who is killed by what a folder says, and who is not because it cannot be read (N2, N12). The processes are real.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::Agent;
use super::folder::PodFolder;
use super::life::Kept;
use crate::node::supervisor::protocol::{POD_UID_VARIABLE, STATE_FILE};

/// A process that says that it is a pod's; gone with this value.
struct Stray(Child);

impl Stray {
    fn of(uid: &str) -> Self {
        let mut command = Command::new("sleep");
        command.arg("1000").env(POD_UID_VARIABLE, uid);
        let streams = command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(streams.spawn().unwrap())
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is in a pod's folder.
enum Written {
    Nothing,
    /// Of this node.
    Kept(&'static str),
    /// `agent.json` is cut off.
    Unreadable,
    /// Of this node, and the supervisor's state is cut off.
    StateUnreadable(&'static str),
}

fn pod(data: &Path, name: &str, written: &Written) -> (PodFolder, Stray) {
    let uid = format!("{name}-{}", std::process::id());
    let folder = PodFolder::new(data, &uid);
    folder.make().unwrap();
    let keep = |node: &str| {
        let kept = Kept {
            node: node.to_owned(),
            ..Kept::default()
        };
        folder.keep(&kept).unwrap();
    };
    match written {
        Written::Nothing => {}
        Written::Kept(node) => keep(node),
        Written::Unreadable => std::fs::write(folder.path().join("agent.json"), "{\"na").unwrap(),
        Written::StateUnreadable(node) => {
            keep(node);
            std::fs::write(folder.path().join(STATE_FILE), "{\"ui").unwrap();
        }
    }
    (folder, Stray::of(&uid))
}

#[tokio::test]
async fn n2_pods_of_other_nodes_are_cleared_and_nobody_is_killed_for_what_cannot_be_read() {
    let data = tempfile::tempdir().unwrap();
    let nodes = ["here".to_owned()];
    let cases = [
        ("clear-nothing", Written::Nothing, false),
        ("clear-here", Written::Kept("here"), true),
        ("clear-gone", Written::Kept("gone"), false),
        ("clear-unreadable", Written::Unreadable, true),
        ("clear-state", Written::StateUnreadable("gone"), true),
    ];
    let mut pods: Vec<_> = cases
        .iter()
        .map(|(name, written, _)| pod(data.path(), name, written))
        .collect();
    Agent::clear_others(data.path(), &nodes).await;
    for ((name, _, is_left), (folder, stray)) in cases.iter().zip(&mut pods) {
        assert_eq!((stray.lives(), folder.path().exists()), (*is_left, *is_left), "{name}");
    }
}

#[tokio::test]
async fn n2_a_killed_node_takes_its_own_pods_along_and_nobody_whose_files_cannot_be_read() {
    let data = tempfile::tempdir().unwrap();
    let cases = [
        ("kill-nothing", Written::Nothing, true),
        ("kill-here", Written::Kept("here"), false),
        ("kill-other", Written::Kept("other"), true),
        ("kill-unreadable", Written::Unreadable, true),
        ("kill-state", Written::StateUnreadable("here"), true),
    ];
    let mut pods: Vec<_> = cases
        .iter()
        .map(|(name, written, _)| pod(data.path(), name, written))
        .collect();
    Agent::kill_all(data.path(), "here").await;
    for ((name, _, is_left), (folder, stray)) in cases.iter().zip(&mut pods) {
        assert_eq!(stray.lives(), *is_left, "{name}");
        assert!(
            folder.path().exists(),
            "{name}: the folder tells the next agent what was"
        );
    }
}
