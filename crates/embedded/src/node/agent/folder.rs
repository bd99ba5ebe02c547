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

use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::launch::stop_signal;
use super::life::Kept;
use crate::node::machine::Machine;
use crate::node::supervisor::protocol::{Isolation, PLAN_FILE, PodPlan, PodState, STATE_FILE};

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

    /// Whether nothing was ever kept here, as opposed to what cannot be read now.
    pub(super) fn is_new(&self) -> bool {
        matches!(self.path.join(KEPT).try_exists(), Ok(false))
    }

    pub(super) fn kept(&self) -> Option<Kept> {
        read(&self.path.join(KEPT))
    }

    pub(super) fn keep(&self, kept: &Kept) -> io::Result<()> {
        write(&self.path.join(KEPT), kept)
    }

    pub(super) fn object(&self) -> Option<Pod> {
        read(&self.path.join(OBJECT))
    }

    pub(super) fn keep_object(&self, pod: &Pod) -> io::Result<()> {
        write(&self.path.join(OBJECT), pod)
    }

    /// What the supervisor wrote last.
    pub(super) fn state(&self) -> Option<PodState> {
        read(&self.path.join(STATE_FILE))
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

/// What cannot be read is as if it were not there.
fn read<T: DeserializeOwned>(file: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

fn write<T: Serialize>(file: &Path, value: &T) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, serde_json::to_vec(value)?)?;
    fs::rename(&new, file)
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
                let kept = folder.kept()?;
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

    /// Its containers are about to be stopped for no fault of theirs: they start at once when they are found again.
    pub(crate) fn forgive(&self) -> io::Result<()> {
        let mut kept = self.kept.clone();
        for container in kept.containers.values_mut() {
            container.backoff = None;
        }
        self.folder.keep(&kept)
    }

    /// Its own, at least the 2 s that every pod has.
    pub(crate) fn grace(&self) -> std::time::Duration {
        let object = self.folder.object();
        let seconds = object.and_then(|pod| pod.spec?.termination_grace_period_seconds);
        let seconds = u64::try_from(seconds.unwrap_or(30)).unwrap_or(30);
        std::time::Duration::from_secs(seconds.max(2))
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
