//! Claims and their volumes (C7).
//!
//! - [`binding`]: which volume a claim gets. Pure. [`claim`], [`volume`]: one sync of either, step by step; each step can be
//!   the last one before a crash. [`provision`]: new volumes of `usher.dev/directory`. [`growth`]: claims that want more.
//! - [`classes`]: the storage classes that every cluster has. [`folders`]: where the data is, and how it goes.
//!
//! A volume is a folder, `<data>/volumes/<name>` ([`folder`]). The objects know nothing of paths: a volume's source is
//! `csi` with our driver and the volume's name as its handle, and the node that mounts it asks [`folder`].

mod binding;
mod claim;
mod classes;
mod folders;
mod growth;
mod provision;
mod volume;

use std::collections::BTreeSet;
use std::path::Path;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim, Pod};

use super::hand::{annotation, place, reference};
use super::protection::claims_of;
use super::{Census, Control, Hand, Next, Wishes};
use crate::fault::Fault;
use crate::store::{Entry, LogEntry};

pub(crate) use classes::CLASSES;
pub(crate) use folders::folder;

const COMPONENT: &str = "persistentvolume-controller";
/// Who makes our volumes: what classes say.
const PROVISIONER: &str = "usher.dev/directory";
/// By which name nodes know them: the same, as names of drivers are written.
pub(crate) const DRIVER: &str = "directory.usher.dev";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The scheduler's word on where the first pod of a claim runs.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const STORAGE: &str = "storage";
/// Keys.
const CLAIM: &str = "claim/";
const VOLUME: &str = "volume/";
const FOLDER: &str = "folder/";

/// Keys are `claim/namespace/name`, `volume/name` and `folder/name`.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    /// Nodes that could hold a volume.
    homes: BTreeSet<String>,
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    annotation(&claim.metadata, BIND_COMPLETED).is_some()
}

impl Volumes {
    /// Claims that still wait for something may have it now.
    fn waiting(hand: &Hand, namespace: Option<&str>, wishes: &mut Wishes) {
        for claim in hand.mirror.claims.list(namespace) {
            if !is_bound(&claim) {
                wishes.sync(format!("{CLAIM}{}", place(&claim.metadata)));
            }
        }
    }

    /// What a pod's coming or starting means to its claims.
    fn used(hand: &Hand, pod: &Pod, wishes: &mut Wishes) {
        let namespace = pod.metadata.namespace.as_deref();
        for name in claims_of(pod) {
            let claim = hand.mirror.claims.get(namespace, name);
            if claim.is_some_and(|claim| !is_bound(&claim) || growth::is_pending(&claim)) {
                wishes.sync(format!("{CLAIM}{}/{name}", namespace.unwrap_or_default()));
            }
        }
    }
}

impl Control for Volumes {
    fn begin(&mut self, hand: &Hand, _: &[Entry], _: &Census, wishes: &mut Wishes) {
        let nodes = hand.mirror.nodes.list(None);
        let homes = nodes.iter().filter(|node| provision::is_home(node));
        self.homes = homes
            .map(|node| super::hand::name_of(&node.metadata).to_owned())
            .collect();
        for claim in hand.mirror.claims.list(None) {
            wishes.sync(format!("{CLAIM}{}", place(&claim.metadata)));
        }
        for volume in hand.mirror.volumes.list(None) {
            wishes.sync(format!("{VOLUME}{}", super::hand::name_of(&volume.metadata)));
        }
        // What an earlier start was about to take away.
        for name in hand
            .settings
            .data
            .get()
            .map(|data| folders::doomed(data))
            .unwrap_or_default()
        {
            wishes.sync(format!("{FOLDER}{name}"));
        }
    }

    fn see(&mut self, hand: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        let namespace = line.key.namespace();
        let name = line.key.name();
        match (line.key.group(), line.key.resource()) {
            ("", "persistentvolumeclaims") => {
                wishes.sync(format!("{CLAIM}{}/{name}", namespace.unwrap_or_default()));
                // The volume of a claim that is gone, or that has found one.
                for volume in hand.mirror.volumes.list(None) {
                    if binding::names(&volume, namespace.unwrap_or_default(), name) {
                        wishes.sync(format!("{VOLUME}{}", super::hand::name_of(&volume.metadata)));
                    }
                }
            }
            ("", "persistentvolumes") => {
                wishes.sync(format!("{VOLUME}{name}"));
                match hand.mirror.volumes.get(None, name) {
                    None => {
                        wishes.sync(format!("{FOLDER}{name}"));
                        for claim in hand.mirror.claims.list(None) {
                            if binding::wants(&claim, name) {
                                wishes.sync(format!("{CLAIM}{}", place(&claim.metadata)));
                            }
                        }
                    }
                    Some(volume) => match volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) {
                        Some(to) => wishes.sync(format!(
                            "{CLAIM}{}/{}",
                            to.namespace.as_deref().unwrap_or_default(),
                            to.name.as_deref().unwrap_or_default()
                        )),
                        None => Self::waiting(hand, None, wishes),
                    },
                }
            }
            ("storage.k8s.io", "storageclasses") => Self::waiting(hand, None, wishes),
            ("", "nodes") => match hand.mirror.nodes.get(None, name) {
                Some(node) if provision::is_home(&node) => {
                    if self.homes.insert(name.to_owned()) {
                        Self::waiting(hand, None, wishes);
                    }
                }
                _ => {
                    self.homes.remove(name);
                }
            },
            ("", "pods") => {
                if let Some(pod) = hand.mirror.pods.get(namespace, name) {
                    Self::used(hand, &pod, wishes);
                }
            }
            _ => {}
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            if let Some((namespace, name)) = key.strip_prefix(CLAIM).and_then(|key| key.split_once('/')) {
                if let Some(found) = hand.mirror.claims.get(Some(namespace), name) {
                    claim::sync(hand, namespace, &found).await?;
                }
            } else if let Some(name) = key.strip_prefix(VOLUME) {
                if let Some(found) = hand.mirror.volumes.get(None, name) {
                    volume::sync(hand, &found).await?;
                }
            } else if let Some(name) = key.strip_prefix(FOLDER)
                && let Some(data) = hand.settings.data.get()
                && hand.mirror.volumes.get(None, name).is_none()
            {
                folders::remove(data, name);
            }
            Ok(Next::Done)
        }
        .boxed()
    }
}

async fn tell(hand: &Hand, about: ObjectReference, kind: &str, reason: &str, message: String) {
    hand.say(COMPONENT, about, kind, reason, message).await;
}

async fn tell_claim(hand: &Hand, claim: &PersistentVolumeClaim, kind: &str, reason: &str, message: impl Into<String>) {
    tell(hand, reference(claim), kind, reason, message.into()).await;
}

/// The folder of a volume is made when the volume is; whoever mounts it makes it too, for clusters whose data folder came
/// later.
fn make_folder(hand: &Hand, name: &str) -> Result<(), Fault> {
    let Some(data) = hand.settings.data.get() else {
        return Ok(());
    };
    let path = folder(data, name);
    std::fs::create_dir_all(&path).map_err(|error| unusable(&path, &error))
}

fn unusable(path: &Path, error: &std::io::Error) -> Fault {
    Fault::internal(format!(
        "{} cannot be made: {error}; check the space and the owner of its folder",
        path.display()
    ))
}
