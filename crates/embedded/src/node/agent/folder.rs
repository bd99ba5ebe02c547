//! A pod's folder `<data>/pods/<uid>/`, as far as it is the agent's.
//!
//! | file | what |
//! |---|---|
//! | `agent.json` | [`Kept`] |
//! | `object.json` | the pod as it was when it was prepared: how to stop it when its object is gone |
//! | `own.d/volumes/` | one folder for each volume |
//! | `own.d/etc/` | what containers have in /etc |
//! | `own.d/messages/` | what containers leave behind to say |
//!
//! Names with a dot: no container can be called so, and containers' logs are in folders of their names. The rest is the
//! supervisor's ([`protocol`](crate::node::supervisor::protocol)).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Agent;
use super::chores::{Context, Subject};
use super::launch::stop_signal;
use super::life::{Kept, is_sidecar};
use crate::node::hooks::Moment;
use crate::node::machine::Machine;
use crate::node::supervisor::client::{self, Found, Supervisor};
use crate::node::supervisor::protocol::{Isolation, PLAN_FILE, PodPlan, PodState, STATE_FILE};
use crate::serve::folder::swap_in;

const KEPT: &str = "agent.json";
const OBJECT: &str = "object.json";

#[derive(Debug, Clone)]
pub(super) struct PodFolder {
    path: PathBuf,
}

impl PodFolder {
    pub(super) fn new(data: &Path, uid: &str) -> Self {
        Self {
            path: data.join("pods").join(uid),
        }
    }

    /// Of all pods that have one, with their uids.
    pub(super) fn all(data: &Path) -> Vec<(String, Self)> {
        let Ok(entries) = fs::read_dir(data.join("pods")) else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| {
                let uid = entry.file_name().to_str()?.to_owned();
                Some((uid, Self { path: entry.path() }))
            })
            .collect()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn own(&self) -> PathBuf {
        self.path.join("own.d")
    }

    pub(super) fn volumes(&self) -> PathBuf {
        self.own().join("volumes")
    }

    pub(super) fn message(&self, container: &str, attempt: u32) -> PathBuf {
        self.own().join("messages").join(format!("{container}.{attempt}"))
    }

    pub(super) fn logs(&self, container: &str) -> PathBuf {
        self.path.join(container)
    }

    pub(super) fn make(&self) -> io::Result<()> {
        fs::create_dir_all(self.own().join("messages"))
    }

    /// How its containers are kept apart: as they were when its supervisor was given its plan, whatever was chosen since.
    pub(super) fn isolation(&self, machine: &Machine) -> Isolation {
        let plan: Option<PodPlan> = read(&self.path.join(PLAN_FILE));
        plan.map_or_else(|| machine.isolation(), |plan| plan.isolation)
    }

    /// `None`: nothing was ever kept here. That is not the same as what cannot be read now: nobody is killed for an error.
    pub(super) fn kept(&self) -> io::Result<Option<Kept>> {
        match fs::read(self.path.join(KEPT)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn keep(&self, kept: &Kept) -> io::Result<()> {
        write(&self.path.join(KEPT), kept)
    }

    /// Kills what runs of the pod: its supervisor first, if it can be found alive.
    pub(super) async fn kill(&self, uid: &str) -> Result<(), String> {
        let killed = match client::find(&self.path).map_err(|why| format!("its state cannot be read: {why}"))? {
            Found::Alive(supervisor) => client::put_down(&supervisor, uid).await,
            Found::Dead(_) => client::remains(uid).await,
        };
        killed.map(|_| ()).map_err(|why| why.to_string())
    }

    pub(super) fn object(&self) -> Option<Pod> {
        read(&self.path.join(OBJECT))
    }

    pub(super) fn keep_object(&self, pod: &Pod) -> io::Result<()> {
        write(&self.path.join(OBJECT), pod)
    }

    /// For the supervisor, before it is started.
    pub(super) fn keep_plan(&self, plan: &PodPlan) -> io::Result<()> {
        write(&self.path.join(PLAN_FILE), plan)
    }

    /// What the supervisor wrote last.
    pub(super) fn state(&self) -> Option<PodState> {
        read(&self.path.join(STATE_FILE))
    }

    /// The volumes that are the pod's own.
    pub(super) fn clear(&self) -> io::Result<()> {
        remove_all(&self.volumes())
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        remove_all(&self.path)
    }
}

fn remove_all(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// What cannot be read is as if it were not there: for what can be done without.
fn read<T: DeserializeOwned>(file: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

fn write<T: Serialize>(file: &Path, value: &T) -> io::Result<()> {
    swap_in(file, &serde_json::to_vec(value)?)
}

/// A pod that nobody looks after now, as its folder tells.
#[derive(Debug)]
pub(crate) struct PodAtRest {
    uid: String,
    folder: PodFolder,
    kept: Kept,
}

impl PodAtRest {
    pub(crate) fn all(data: &Path) -> Vec<Self> {
        PodFolder::all(data)
            .into_iter()
            .filter_map(|(uid, folder)| {
                let kept = folder.kept().ok()??;
                Some(Self { uid, folder, kept })
            })
            .collect()
    }

    /// `namespace/name`.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.kept.namespace, self.kept.name)
    }

    pub(crate) fn uid(&self) -> &str {
        &self.uid
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whose it is.
    pub(crate) fn node(&self) -> &str {
        &self.kept.node
    }

    /// Runs the hook that a container has for its end, if it has one that has not been run, for at most that long.
    pub(crate) async fn pre_stop(
        &self,
        agent: &Arc<Agent>,
        supervisor: &Supervisor,
        container: &str,
        attempt: u32,
        within: Duration,
    ) -> Result<(), String> {
        let Some(pod) = self.folder.object() else {
            return Ok(());
        };
        let spec = pod.spec.clone().unwrap_or_default();
        let mut all = spec.init_containers.into_iter().flatten().chain(spec.containers);
        let kept = self.kept.containers.get(container);
        let is_done = kept.is_some_and(|kept| kept.pre_stop == Some(attempt));
        let Some(container) = all.find(|one| one.name == container).filter(|_| !is_done) else {
            return Ok(());
        };
        let address = self.kept.address.map(|address| address.to_string());
        let subject = Subject {
            supervisor: supervisor.clone(),
            pod: Arc::new(pod),
            container,
            attempt,
            address: address.unwrap_or_default(),
        };
        let context = Arc::new(Context::new(agent.clone(), self.uid.clone(), self.folder.clone()));
        let done = context.hook(subject, Moment::PreStop, Some(within)).await;
        done.map_err(|why| why.to_string())
    }

    /// Its containers are about to be stopped for no fault of theirs: they start at once when they are found again.
    pub(crate) fn forgive(&self) -> io::Result<()> {
        let mut kept = self.kept.clone();
        for container in kept.containers.values_mut() {
            container.backoff = None;
        }
        self.folder.keep(&kept)
    }

    /// Its own, at least the 2 s that every pod has.
    pub(crate) fn grace(&self) -> Duration {
        let object = self.folder.object();
        let seconds = object.and_then(|pod| pod.spec?.termination_grace_period_seconds);
        let seconds = u64::try_from(seconds.unwrap_or(30)).unwrap_or(30);
        Duration::from_secs(seconds.max(2))
    }

    /// Init containers that run beside the others and stop after them, the last one first (N7).
    pub(crate) fn sidecars(&self) -> Vec<String> {
        let spec = self.folder.object().and_then(|pod| pod.spec).unwrap_or_default();
        let all = spec.init_containers.into_iter().flatten();
        all.filter(is_sidecar).map(|container| container.name).collect()
    }

    /// By which each of its containers is asked to stop.
    pub(crate) fn stop_signals(&self, machine: &Machine) -> BTreeMap<String, i32> {
        let spec = self.folder.object().and_then(|pod| pod.spec).unwrap_or_default();
        let containers = spec.init_containers.into_iter().flatten().chain(spec.containers);
        containers
            .map(|container| (container.name.clone(), stop_signal(machine, &container)))
            .collect()
    }
}
