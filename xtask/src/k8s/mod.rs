//! `cargo xtask k8s`: a real Kubernetes control plane (etcd, kube-apiserver and, unless told otherwise,
//! kube-controller-manager and kube-scheduler; no nodes) on this machine, as the calling user, on loopback only. With
//! `--kubelet`, as root, also a [`node`] where pods run. Everything it makes is in one [`folder`]; [`state`] remembers
//! what was started; [`control_plane`] starts and stops; [`guard`] cleans up after a killed test run.
//!
//! Fault tests call `kill`, `start`, `restart` and `compact` by the binary in `USHER_XTASK`, with `--dir $USHER_K8S_DIR`.

mod arguments;
mod control_plane;
mod credentials;
mod diagnosis;
mod etcd;
mod folder;
mod guard;
mod health;
mod node;
mod ports;
mod state;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Subcommand};

pub(crate) use control_plane::Wanted;
use control_plane::{ControlPlane, Stop};
pub(crate) use folder::Folder;
pub(crate) use guard::Guarded;
use state::{Component, State};

use crate::error::{Error, Result};
use crate::process::{self, ProcessId};
use crate::progress;
use crate::setup::{self, Tools};

#[derive(Debug, Subcommand)]
pub(crate) enum K8s {
    /// Get the servers without starting them (the same as `cargo xtask setup`).
    Build,
    /// Start a control plane; if one runs already, start what is missing of it.
    Up {
        #[command(flatten)]
        place: Place,
        /// Sync every write of etcd to disk: slower, and survives a crash of the machine.
        #[arg(long)]
        durable: bool,
        /// Only etcd and kube-apiserver: nothing is collected, no namespace goes away.
        #[arg(long)]
        no_controller_manager: bool,
        /// Without kube-scheduler: pods stay where clients put them.
        #[arg(long)]
        no_scheduler: bool,
        /// With containerd and kubelet, so that pods run. As root; reached by `cargo xtask k8s exec`.
        #[arg(long, conflicts_with_all = ["no_controller_manager", "no_scheduler"])]
        kubelet: bool,
    },
    /// Run a command where the servers of `up --kubelet` are to be reached.
    Exec {
        #[command(flatten)]
        place: Place,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Stop it and remove all it stored.
    Down(Place),
    /// Show what runs; fails unless all of it is healthy.
    Status(Place),
    /// Stop one server gently and start it again with the same arguments and port.
    Restart(One),
    /// Kill one server (SIGKILL) and leave it dead.
    Kill(One),
    /// Start one server again with the same arguments and port.
    Start(One),
    /// Make etcd forget all history up to now.
    Compact(Place),
    #[command(hide = true)]
    Guard {
        #[arg(long)]
        pid: i32,
        #[arg(long)]
        start_ticks: u64,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Its folder [default: ~/.cache/usher/k8s/default]
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    component: Component,
    #[command(flatten)]
    place: Place,
}

impl K8s {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Build => setup::command(false),
            Self::Up {
                place,
                durable,
                no_controller_manager,
                no_scheduler,
                kubelet,
            } => {
                let wanted = Wanted {
                    durable,
                    controllers: !no_controller_manager,
                    // Nobody makes the accounts that pods need, so there is nothing to be placed.
                    scheduler: !no_scheduler && !no_controller_manager,
                    node: kubelet,
                };
                let tools = tools(wanted)?;
                let kubeconfig = up(Folder::locate(place.dir)?, &tools, wanted)?;
                progress::say(&format!("export KUBECONFIG={}", kubeconfig.display()));
                Ok(())
            }
            Self::Exec { place, command } => exec(&Folder::locate(place.dir)?, &command),
            Self::Down(place) => {
                let folder = Folder::locate(place.dir)?;
                match control_plane::down(&folder)?.as_slice() {
                    [] => progress::say(&format!("nothing was running in {}", folder.path().display())),
                    stopped => progress::say(&format!("stopped {}", stopped.join(", "))),
                }
                Ok(())
            }
            Self::Status(place) => status(&Folder::locate(place.dir)?),
            Self::Restart(One { component, place }) => {
                let mut there = ControlPlane::open(Folder::locate(place.dir)?)?;
                there.stop(component, Stop::Gently)?;
                there.start(component)
            }
            Self::Kill(One { component, place }) => {
                ControlPlane::open(Folder::locate(place.dir)?)?.stop(component, Stop::AtOnce)
            }
            Self::Start(One { component, place }) => ControlPlane::open(Folder::locate(place.dir)?)?.start(component),
            Self::Compact(place) => {
                let folder = Folder::locate(place.dir)?;
                State::load(&folder)?.ok_or_else(|| Error::NotRunning(folder.path().to_path_buf()))?;
                let revision = etcd::compact(&folder)?;
                progress::say(&format!("compacted to revision {revision}"));
                Ok(())
            }
            Self::Guard {
                pid,
                start_ticks,
                place,
            } => guard::watch(ProcessId { pid, start_ticks }, &Folder::locate(place.dir)?),
        }
    }
}

/// What is to be built for it.
pub(crate) fn tools(wanted: Wanted) -> Result<Tools> {
    let mut sets = vec![setup::Set::Kubernetes];
    if wanted.node {
        node::require_root()?;
        sets.push(setup::Set::Node);
    }
    setup::ensure(&sets)
}

/// A command where the servers of `up --kubelet` are to be reached.
pub(crate) fn inside(folder: &Folder, program: &OsStr, working_folder: &Path) -> Result<Command> {
    let state = State::load(folder)?.ok_or_else(|| Error::NotRunning(folder.path().to_path_buf()))?;
    let room = state.room.ok_or_else(|| {
        let why = "has no room of its own: it was started without --kubelet, and is reached from anywhere";
        Error::Machine(format!("the control plane in {} {why}", folder.path().display()))
    })?;
    Ok(room.command(Path::new(program), working_folder))
}

fn exec(folder: &Folder, words: &[OsString]) -> Result<()> {
    let Some((program, arguments)) = words.split_first() else {
        return Ok(());
    };
    let here = std::env::current_dir().map_err(Error::io("find the working folder"))?;
    let mut command = inside(folder, program, &here)?;
    command.args(arguments).env("KUBECONFIG", folder.kubeconfig());
    let status = process::run_group(&mut command, |_| Ok(()))?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Program {
        program: program.to_string_lossy().into_owned(),
        status: status.to_string(),
        output: String::new(),
    })
}

/// Returns the admin's kubeconfig.
pub(crate) fn up(folder: Folder, tools: &Tools, wanted: Wanted) -> Result<PathBuf> {
    let kubeconfig = ControlPlane::up(folder, tools, wanted)?;
    progress::line("the control plane is ready");
    Ok(kubeconfig)
}

fn status(folder: &Folder) -> Result<()> {
    let state = State::load(folder)?.ok_or_else(|| Error::NotRunning(folder.path().to_path_buf()))?;
    progress::say(&format!(
        "{:<24} {:<8} {:<8} {:<7} ADDRESS",
        "COMPONENT", "VERSION", "PID", "HEALTHY"
    ));
    let mut unhealthy = Vec::new();
    for started in &state.components {
        let name = started.component.name();
        let pid = started
            .running()
            .map_or("-".to_owned(), |process| process.pid.to_string());
        let healthy = health::Asking::of(folder, &state).is_healthy(started);
        if !healthy {
            unhealthy.push(name);
        }
        let word = if healthy { "yes" } else { "no" };
        progress::say(&format!(
            "{name:<24} {:<8} {pid:<8} {word:<7} {}",
            started.version.to_string(),
            started.address
        ));
    }
    progress::say(&format!("kubeconfig: {}", folder.kubeconfig().display()));
    if unhealthy.is_empty() {
        Ok(())
    } else {
        Err(Error::Unhealthy(unhealthy.join(", ")))
    }
}
