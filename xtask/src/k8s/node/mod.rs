//! A node where pods run, for `k8s up --kubelet`: containerd and kubelet beside the control plane, as root.
//!
//! All servers of such a control plane are started in a [`Room`]: a network namespace, so that no route, rule or port of
//! the machine is touched, and a mount namespace, whose mounts go with its last process. A process that only sleeps holds
//! both. Containers are in a cgroup of their own ([`cgroups`]). Closing the room kills what is in that cgroup and whoever
//! works below `DIR/node`, and removes both; the configuration ([`files`]) and [`images`] are below that folder, too.

mod cgroups;
mod files;
mod images;

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::folder::Folder;
use super::state::Component;
use crate::error::{Error, Result};
use crate::process::ProcessId;
use crate::setup::debian;
use crate::{interrupt, paths, process};

/// What the node is called.
pub(crate) const NAME: &str = "node-1";
/// Where kubelet tells how it is, inside of the room.
pub(crate) const KUBELET_HEALTH: &str = "http://127.0.0.1:10248";
/// The node's address, on the bridge that pods are connected to.
const ADDRESS: &str = "10.88.0.1";
const POD_RANGE: &str = "10.88.0.0/16";
const BRIDGE: &str = "cni0";
/// Making the room takes milliseconds.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// In the new namespaces; `$1` is the node's folder. Below /run, /var/lib and /var/log the servers use places that
/// nobody can choose: there they get folders of ours.
const FURNISH: &str = r#"
ip link set lo up
ip link add "$2" type bridge
ip addr add "$3" dev "$2"
ip link set "$2" up
mkdir var-lib var-log
mount --bind var-lib /var/lib
mount --bind var-log /var/log
mount -t tmpfs -o mode=755 tmpfs /run
touch ready
exec sleep infinity
"#;

/// The namespaces that the servers are in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Room {
    holder: ProcessId,
}

pub(crate) fn require_root() -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::Machine(
        "--kubelet makes namespaces, mounts and cgroups, which only root may: run it as root, or leave it out".into(),
    ))
}

impl Room {
    /// Makes the namespaces, the cgroup and the configuration. Called with the folder's lock held, nothing being there.
    pub(crate) fn open(folder: &Folder) -> Result<Self> {
        require_root()?;
        let packages = debian::ensure()?;
        let home = home(folder);
        paths::create_private_folder(&home)?;
        cgroups::create(&cgroup(folder))?;
        files::write(folder, &packages)?;
        let path = home.join("room.log");
        let log = File::create(&path).map_err(Error::at("create", &path))?;
        let both = log.try_clone().map_err(Error::at("open", &path))?;
        let mut command = Command::new("unshare");
        command
            .args(["--net", "--mount", "--propagation", "private", "--"])
            .args(["sh", "-eu", "-c", FURNISH, "sh"])
            .arg(&home)
            .args([BRIDGE, &format!("{ADDRESS}/16")])
            .current_dir(&home)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(both)
            .process_group(0);
        let child = command.spawn().map_err(Error::io("start unshare"))?;
        let holder = ProcessId::of_child(&child);
        let deadline = Instant::now() + OPEN_LIMIT;
        while !home.join("ready").exists() {
            let alive = holder.is_some_and(ProcessId::is_alive);
            if !alive || Instant::now() > deadline {
                let said = std::fs::read_to_string(&path).unwrap_or_default();
                Self::close(folder);
                return Err(Error::Machine(format!(
                    "cannot make the namespaces that pods run in: {}",
                    said.trim()
                )));
            }
            interrupt::pause(Duration::from_millis(20))?;
        }
        let holder = holder.ok_or_else(|| Error::Machine("the process that holds the namespaces ended".into()))?;
        Ok(Self { holder })
    }

    /// The program inside of the room, and as the same process that is started: who stops it need not know of the room.
    pub(crate) fn command(&self, program: &Path, working_folder: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.holder.pid.to_string(), "--net", "--mount", "--"])
            .args(["sh", "-c", "cd \"$0\" && exec \"$@\""])
            .arg(working_folder)
            .arg(program);
        command
    }

    /// Ends everything that was started in it, whether or not it was written down. Fine where there is none.
    pub(crate) fn close(folder: &Folder) {
        let home = home(folder);
        if !home.exists() {
            return;
        }
        cgroups::kill(&cgroup(folder));
        // Shims of containers, and the holder.
        let inside = |path: &Path| std::fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd.starts_with(&home));
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            if let Some(process) = pid.and_then(ProcessId::of)
                && inside(&entry.path())
            {
                process.kill_now();
            }
        }
        cgroups::remove(&cgroup(folder));
    }
}

fn home(folder: &Folder) -> PathBuf {
    folder.file("node")
}

/// The containers' cgroup: one per folder, the same at each call.
fn cgroup(folder: &Folder) -> String {
    let sum = images::checksum(folder.path().as_os_str().as_encoded_bytes());
    format!("usher-{}", sum.get(..8).unwrap_or_default())
}

pub(crate) fn socket(folder: &Folder) -> PathBuf {
    folder.file("containerd.sock")
}

pub(crate) fn containerd(folder: &Folder) -> Vec<String> {
    vec![format!("--config={}", home(folder).join("containerd.toml").display())]
}

pub(crate) fn kubelet(folder: &Folder) -> Vec<String> {
    let file = |name: &str| home(folder).join(name).display().to_string();
    vec![
        format!("--config={}", file("kubelet.yaml")),
        format!("--kubeconfig={}", folder.file("kubelet.kubeconfig").display()),
        format!("--root-dir={}", file("kubelet")),
        format!("--cert-dir={}", file("pki")),
        format!("--hostname-override={NAME}"),
        format!("--node-ip={ADDRESS}"),
    ]
}

/// What PATH is for a server.
pub(crate) fn search_path(component: Component) -> Result<String> {
    let system = "/usr/sbin:/usr/bin:/sbin:/bin";
    if component != Component::Containerd {
        return Ok(system.to_owned());
    }
    let [programs, more] = debian::ensure()?.program_folders();
    Ok(format!("{}:{}:{system}", programs.display(), more.display()))
}

pub(crate) fn containerd_answers(folder: &Folder) -> bool {
    ctr(folder).is_ok_and(|mut ctr| process::ask(ctr.arg("version")).is_some())
}

/// Gives containerd the images that pods may use: nothing is ever pulled.
pub(crate) fn load_images(folder: &Folder) -> Result<()> {
    let archive = images::write(&home(folder), &debian::ensure()?)?;
    match process::ask(ctr(folder)?.args(["images", "import"]).arg(&archive)) {
        Some(_) => Ok(()),
        None => Err(Error::Machine(format!(
            "containerd does not take the images in {}; see {}",
            archive.display(),
            Component::Containerd.log(folder).display()
        ))),
    }
}

fn ctr(folder: &Folder) -> Result<Command> {
    let mut ctr = Command::new(debian::ensure()?.file("usr/bin/ctr"));
    ctr.arg("--address").arg(socket(folder)).args(["--namespace", "k8s.io"]);
    Ok(ctr)
}
