//! Starting, stopping and restarting the servers of one folder. Whoever holds a [`ControlPlane`] holds the folder's
//! lock.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::arguments::{self, Choices};
use super::credentials;
use super::diagnosis;
use super::folder::Folder;
use super::health;
use super::node::{self, Room};
use super::ports;
use super::state::{Component, Started, State};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::process::ProcessId;
use crate::progress::Progress;
use crate::setup::{Program, Tools, debian};

/// All servers together. They take about three seconds on two cores.
const START_LIMIT: Duration = Duration::from_secs(60);
/// What a server gets between SIGTERM and SIGKILL: time to answer open requests. Both etcd and the API server would also
/// wait for clients that hold watches, which the others do until they are stopped themselves.
const STOP_GRACE: Duration = Duration::from_secs(3);
/// Looking for a free port and taking it are two steps; somebody may come between them, hardly ever twice.
const PORT_ATTEMPTS: usize = 3;

/// What a control plane is to be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Sync every write of etcd to disk.
    pub(crate) durable: bool,
    /// With kube-controller-manager. Without it nothing is collected, no namespace goes away, and what is in the objects is
    /// what clients wrote.
    pub(crate) controllers: bool,
    /// With kube-scheduler. Without it pods stay as clients left them.
    pub(crate) scheduler: bool,
    /// With containerd and kubelet, so that pods run; all of it in a [`Room`] of its own.
    pub(crate) node: bool,
}

impl Wanted {
    /// What most tests run against.
    pub(crate) const USUAL: Self = Self {
        durable: false,
        controllers: true,
        scheduler: true,
        node: false,
    };
    /// Only an API server and its etcd.
    pub(crate) const BARE: Self = Self {
        controllers: false,
        scheduler: false,
        ..Self::USUAL
    };
    /// With pods that run.
    pub(crate) const WITH_NODE: Self = Self {
        node: true,
        ..Self::USUAL
    };

    fn components(self) -> impl Iterator<Item = Component> {
        let is_wanted = move |component: &Component| match component {
            Component::Etcd | Component::KubeApiserver => true,
            Component::KubeControllerManager => self.controllers,
            Component::KubeScheduler => self.scheduler,
            Component::Containerd | Component::Kubelet => self.node,
        };
        Component::ALL.into_iter().filter(is_wanted)
    }
}

#[derive(Debug)]
pub(crate) struct ControlPlane {
    folder: Folder,
    state: State,
    _lock: File,
}

impl ControlPlane {
    /// The one that was started in this folder.
    pub(crate) fn open(folder: Folder) -> Result<Self> {
        let lock = folder.lock()?;
        let state = State::load(&folder)?.ok_or_else(|| Error::NotRunning(folder.path().to_path_buf()))?;
        Ok(Self {
            folder,
            state,
            _lock: lock,
        })
    }

    /// Makes it run: a fresh one, or what is missing of the one that is there. Returns its admin kubeconfig.
    pub(crate) fn up(folder: Folder, tools: &Tools, wanted: Wanted) -> Result<PathBuf> {
        let folder = folder.create()?;
        let lock = folder.lock()?;
        let kubeconfig = folder.kubeconfig();
        let deadline = Instant::now() + START_LIMIT;
        if let Some(state) = State::load(&folder)? {
            refuse_another_kind(&folder, &state, wanted)?;
            let mut there = Self {
                folder,
                state,
                _lock: lock,
            };
            there.start_missing(deadline)?;
            return Ok(kubeconfig);
        }
        // Logs of an attempt that failed.
        folder.clear_but_logs()?;
        let tokens = credentials::create(&folder)?;
        let mut fresh = Self {
            folder,
            state: State {
                kubectl: PathBuf::new(),
                room: None,
                components: Vec::new(),
            },
            _lock: lock,
        };
        if wanted.node {
            let room = Room::open(&fresh.folder)?;
            fresh.state.room = Some(room);
            // Known before anything else is started in it: `down` has to find it.
            fresh.state.save(&fresh.folder)?;
        }
        for attempt in 1..=PORT_ATTEMPTS {
            fresh.plan(tools, wanted)?;
            let server = &fresh.state.get(Component::KubeApiserver)?.address;
            credentials::write_kubeconfigs(&fresh.folder, &tokens, server)?;
            match fresh.start_missing(deadline) {
                Ok(()) => return Ok(kubeconfig),
                Err(error) => {
                    stop_all(&fresh.state);
                    if attempt == PORT_ATTEMPTS || !diagnosis::is_port_taken(&error) {
                        Room::close(&fresh.folder);
                        fresh.folder.clear_but_logs()?;
                        return Err(error);
                    }
                }
            }
        }
        Ok(kubeconfig)
    }

    fn plan(&mut self, tools: &Tools, wanted: Wanted) -> Result<()> {
        let choices = Choices {
            api_port: ports::pick()?,
            controller_port: ports::pick()?,
            scheduler_port: ports::pick()?,
            durable: wanted.durable,
            node: wanted.node,
        };
        let started = |component: Component| {
            let (program, version) = match component.program() {
                Some(program) => tools.get(program).map(|tool| (tool.path.clone(), tool.version))?,
                None => debian::ensure()?.containerd()?,
            };
            Ok(Started {
                component,
                program,
                version,
                arguments: arguments::arguments(component, &self.folder, choices),
                address: arguments::address(component, &self.folder, choices),
                process: None,
            })
        };
        let components = wanted.components().map(started).collect::<Result<_>>()?;
        self.state.kubectl.clone_from(&tools.get(Program::Kubectl)?.path);
        self.state.components = components;
        self.state.save(&self.folder)
    }

    fn start_missing(&mut self, deadline: Instant) -> Result<()> {
        for component in self.state.names() {
            self.start_by(component, deadline)?;
        }
        Ok(())
    }

    /// Starts one as it was started before; nothing to do if it runs.
    pub(crate) fn start(&mut self, component: Component) -> Result<()> {
        self.start_by(component, Instant::now() + START_LIMIT)
    }

    fn start_by(&mut self, component: Component, deadline: Instant) -> Result<()> {
        let mut log_from = 0;
        if self.state.get(component)?.running().is_none() {
            log_from = self.spawn(component)?;
        }
        let started = self.state.get(component)?;
        let mut progress = Progress::start(format!("waiting for {}", component.name()));
        loop {
            let asking = health::Asking::of(&self.folder, &self.state);
            let healthy = asking.is_healthy(started)
                && match component {
                    Component::KubeControllerManager => asking.controllers_work(),
                    Component::Kubelet => asking.node_is_ready(),
                    _ => true,
                };
            if healthy {
                if component == Component::Containerd {
                    node::load_images(&self.folder)?;
                }
                progress.finish("healthy");
                return Ok(());
            }
            if started.running().is_none() {
                return Err(diagnosis::failed(
                    started,
                    &self.folder,
                    log_from,
                    "ended while it started",
                ));
            }
            if Instant::now() > deadline {
                let what = format!("is not healthy after {} s", START_LIMIT.as_secs());
                return Err(diagnosis::failed(started, &self.folder, log_from, &what));
            }
            progress.tick();
            interrupt::pause(Duration::from_millis(150))?;
        }
    }

    /// Returns where in its log this run begins.
    fn spawn(&mut self, component: Component) -> Result<u64> {
        let started = self.state.get(component)?;
        let path = component.log(&self.folder);
        let mut options = OpenOptions::new();
        let log = options
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(Error::at("open", &path))?;
        let log_from = log.metadata().map_err(Error::at("read", &path))?.len();
        let both = log.try_clone().map_err(Error::at("open", &path))?;
        let name = component.name();
        let mut command = match &self.state.room {
            Some(room) => room.command(&started.program, self.folder.path()),
            None => Command::new(&started.program),
        };
        command
            .args(&started.arguments)
            .current_dir(self.folder.path())
            // The same whoever starts it: no proxy, KUBECONFIG or GODEBUG of the caller.
            .env_clear()
            .env("PATH", node::search_path(component)?)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(both)
            // Ctrl-C is for the command in the foreground; servers are stopped by `down`.
            .process_group(0);
        let child = command.spawn().map_err(Error::io(format!("start {name}")))?;
        match ProcessId::of_child(&child) {
            Some(process) => self.state.set_process(component, process),
            None => return Err(diagnosis::failed(started, &self.folder, log_from, "ended at once")),
        }
        self.state.save(&self.folder)?;
        Ok(log_from)
    }

    /// SIGTERM and time to finish, or SIGKILL as the machine would.
    pub(crate) fn stop(&self, component: Component, how: Stop) -> Result<()> {
        if let Some(process) = self.state.get(component)?.running() {
            match how {
                Stop::Gently => process.stop(STOP_GRACE),
                Stop::AtOnce => process.kill_now(),
            }
        }
        Ok(())
    }
}

/// What was started stays what it is: objects made without controllers would not be as those expect them.
fn refuse_another_kind(folder: &Folder, state: &State, wanted: Wanted) -> Result<()> {
    let (has, wants) = (state.names(), wanted.components().collect::<Vec<_>>());
    if has == wants {
        return Ok(());
    }
    let differs = |component: &Component| has.contains(component) != wants.contains(component);
    let component = Component::ALL.into_iter().find(differs).unwrap_or(Component::Etcd);
    let with = if has.contains(&component) { "with" } else { "without" };
    let flag = match (component, has.contains(&component)) {
        (Component::KubeControllerManager, true) => "leave out --no-controller-manager",
        (Component::KubeControllerManager, false) => "repeat --no-controller-manager",
        (Component::KubeScheduler, true) => "leave out --no-scheduler",
        (Component::KubeScheduler, false) => "repeat --no-scheduler",
        (_, true) => "repeat --kubelet",
        (_, false) => "leave out --kubelet",
    };
    Err(Error::Machine(format!(
        "the control plane in {dir} was started {with} {name}; {flag}, or `cargo xtask k8s down --dir {dir}` first",
        name = component.name(),
        dir = folder.path().display()
    )))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Gently,
    AtOnce,
}

/// Stops what runs in the folder and removes what it made there. Says what it stopped; fine to call again.
pub(crate) fn down(folder: &Folder) -> Result<Vec<String>> {
    if !folder.is_ours() {
        return Ok(Vec::new());
    }
    let _lock = folder.lock_for_stopping()?;
    // An unreadable state file must not keep us from stopping: `strays` finds the servers by their folder.
    let state = State::load(folder).ok().flatten();
    let mut stopped = state.as_ref().map(stop_all).unwrap_or_default();
    stop_strays(folder, &mut stopped);
    Room::close(folder);
    folder.clear()?;
    Ok(stopped)
}

fn stop_all(state: &State) -> Vec<String> {
    let running = Component::ALL.into_iter().rev().filter_map(|component| {
        state.get(component).ok()?.running()?.stop(STOP_GRACE);
        Some(component.name().to_owned())
    });
    running.collect()
}

/// Servers that were started but not recorded, because the command that started them was killed in between.
fn stop_strays(folder: &Folder, stopped: &mut Vec<String>) {
    let names = Component::ALL.map(Component::name);
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let proc = entry.path();
        let here = std::fs::read_link(proc.join("cwd")).is_ok_and(|cwd| cwd == folder.path());
        let program = std::fs::read_link(proc.join("exe")).ok();
        let name = program.as_deref().and_then(|exe| exe.file_name()?.to_str());
        let Some(name) = name.filter(|name| here && names.contains(name)) else {
            continue;
        };
        if let Some(process) = ProcessId::of(pid) {
            process.stop(STOP_GRACE);
            stopped.push(format!("{name} (unrecorded)"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths;
    use crate::setup::Version;

    fn state(wanted: Wanted) -> State {
        let started = |component| Started {
            component,
            program: PathBuf::new(),
            version: Version::new(1, 36, 3),
            arguments: Vec::new(),
            address: String::new(),
            process: None,
        };
        State {
            kubectl: PathBuf::new(),
            room: None,
            components: wanted.components().map(started).collect(),
        }
    }

    #[test]
    fn a_control_plane_stays_with_or_without_controllers_as_it_was_started() {
        let temporary = paths::temporary_folder("usher-plane").unwrap();
        let folder = Folder::locate(Some(temporary.clone())).unwrap();
        for (first, second, way_out) in [
            (Wanted::USUAL, Wanted::BARE, "leave out --no-controller-manager"),
            (Wanted::BARE, Wanted::USUAL, "repeat --no-controller-manager"),
            (Wanted::USUAL, Wanted::WITH_NODE, "leave out --kubelet"),
            (Wanted::WITH_NODE, Wanted::USUAL, "repeat --kubelet"),
        ] {
            // As another command finds it.
            state(first).save(&folder).unwrap();
            let state = State::load(&folder).unwrap().unwrap();
            assert!(refuse_another_kind(&folder, &state, first).is_ok());
            let refused = refuse_another_kind(&folder, &state, second).unwrap_err().to_string();
            assert!(refused.contains(way_out) && refused.contains("k8s down"), "{refused}");
        }
        let bare = state(Wanted::BARE);
        assert_eq!(bare.names(), [Component::Etcd, Component::KubeApiserver]);
        let missing = bare.get(Component::KubeControllerManager).unwrap_err().to_string();
        assert!(missing.contains("started without kube-controller-manager"), "{missing}");
        paths::remove(&temporary).unwrap();
    }
}
