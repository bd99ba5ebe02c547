//! `cargo xtask k8s`: a real Kubernetes control plane (etcd, kube-apiserver and, unless told otherwise,
//! kube-controller-manager; no nodes) on this machine, as the calling user, on loopback only. Everything it makes is in one [`folder`]; [`state`] remembers what was
//! started; [`control_plane`] starts and stops; [`guard`] cleans up after a killed test run.
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
mod ports;
mod state;

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) use control_plane::Wanted;
use control_plane::{ControlPlane, Stop};
pub(crate) use folder::Folder;
pub(crate) use guard::Guarded;
use state::{Component, State};

use crate::error::{Error, Result};
use crate::process::ProcessId;
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
            Self::Build => setup::command(),
            Self::Up {
                place,
                durable,
                no_controller_manager,
            } => {
                let tools = setup::ensure(&[setup::Set::Kubernetes])?;
                let wanted = Wanted {
                    durable,
                    controllers: !no_controller_manager,
                };
                let kubeconfig = up(Folder::locate(place.dir)?, &tools, wanted)?;
                progress::say(&format!("export KUBECONFIG={}", kubeconfig.display()));
                Ok(())
            }
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
        let healthy = health::is_healthy(started, folder, &state.kubectl);
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
