//! I/O in: what only asking can tell. The servers' own words, the password to ask with, where nodes are.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use kube::api::DynamicObject;
use serde::Deserialize as _;
use usher_engine::{ErrorClass, Text, Uid};
use usher_operator::api::Pass;
use usher_operator::error::Failure;
use usher_operator::view::View;

use super::client::{Clients, Password};
use super::memory::Memories;
use super::seen::{Answer, Memory, Observation};
use super::{ask, cluster};
use crate::objects::secret::PASSWORD;
use crate::records::{ClusterRecord, NODES, SECRETS, SecretRecord};

/// Nodes hardly ever change their place.
const NODES_FOR: SignedDuration = SignedDuration::from_secs(60);

/// What the process keeps between passes: wires, memories, and answers that are asked for seldom. All of it can be lost.
#[derive(Debug, Default)]
pub struct Kept {
    /// Wires to servers.
    pub clients: Clients,
    /// Since when what is so.
    pub memories: Memories,
    passwords: Mutex<BTreeMap<Uid, (Uid, u64, Password)>>,
    nodes: Mutex<Option<(Timestamp, Vec<NodeLabels>)>>,
}

type NodeLabels = (Text, BTreeMap<String, String>);

/// What was fetched for one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Fetched {
    answers: BTreeMap<Uid, Answer>,
    places: BTreeMap<Text, Text>,
    memory: Memory,
}

/// Asks every server of the cluster, and remembers what it says.
pub async fn fetch(kept: &Kept, pass: &Pass, cluster: &ClusterRecord) -> Result<Fetched, Failure> {
    let mut seen = pass.view(|view| cluster::observe(view, cluster));
    let uid = &cluster.meta.uid;
    let password = kept.password(pass, cluster).await?;
    let before = kept.memories.of(uid);
    let targets = cluster::targets(&seen.pods);
    let now = pass.now();
    seen.answers = ask::everyone(&kept.clients, uid, &targets, password.as_ref(), &before, now).await;
    let nodes: Vec<&Text> = seen.pods.values().filter_map(|pod| pod.node.as_ref()).collect();
    let places = kept.places(pass, cluster, &nodes).await?;
    let memory = kept.memories.look(uid, &seen, now);
    Ok(Fetched {
        answers: seen.answers,
        places,
        memory,
    })
}

/// What the plan is made from: the view as it is now, and what was fetched.
pub fn observe(view: &View, record: &ClusterRecord, fetched: &Fetched) -> Observation {
    Observation {
        answers: fetched.answers.clone(),
        places: fetched.places.clone(),
        memory: fetched.memory.clone(),
        ..cluster::observe(view, record)
    }
}

impl Kept {
    /// With these wires.
    pub fn with(clients: Clients) -> Self {
        Self {
            clients,
            ..Self::default()
        }
    }

    /// Lets go of what is kept for a cluster that is gone.
    pub fn forget(&self, cluster: &Uid) {
        self.clients.keep_only(cluster, &std::collections::BTreeSet::new());
        self.memories.forget(cluster);
        locked(&self.passwords).remove(cluster);
    }

    /// The password in force: from our own Secret, read again when that is another version.
    pub async fn password(&self, pass: &Pass, cluster: &ClusterRecord) -> Result<Option<Password>, Failure> {
        if cluster.spec.auth.is_none() {
            return Ok(None);
        }
        let Some(key) = cluster.meta.key.sibling(&cluster.config_secret()) else {
            return Ok(None);
        };
        let version = pass.view(|view| {
            let secret = view.get::<SecretRecord>(&key)?;
            let ours = secret.meta.owned_by(&cluster.meta.uid) && secret.digest(PASSWORD).is_some();
            ours.then(|| (secret.meta.uid.clone(), secret.meta.revision))
        });
        // None is in force yet, so no server has one either.
        let Some((uid, revision)) = version else {
            return Ok(None);
        };
        if let Some((of, at, password)) = locked(&self.passwords).get(&cluster.meta.uid)
            && (of, at) == (&uid, &revision)
        {
            return Ok(Some(password.clone()));
        }
        let Some(secret) = pass.get(SECRETS, &key).await? else {
            return Err(Failure::Gone {
                object: format!("Secret {key}"),
            });
        };
        let password = String::from_utf8(value(&secret, PASSWORD).unwrap_or_default());
        let password = password.map_err(|_| Failure::Kind {
            class: ErrorClass::Transient,
            message: format!("Secret {key}: its password is no text; delete it, and it is made again from spec.auth"),
        })?;
        let password = Password::new(&password);
        locked(&self.passwords).insert(cluster.meta.uid.clone(), (uid, revision, password.clone()));
        Ok(Some(password))
    }

    /// The topology value of each of these nodes, where roles are to be spread.
    async fn places(
        &self,
        pass: &Pass,
        cluster: &ClusterRecord,
        nodes: &[&Text],
    ) -> Result<BTreeMap<Text, Text>, Failure> {
        let scheduling = &cluster.spec.scheduling;
        if !scheduling.spread_masters || nodes.is_empty() {
            return Ok(BTreeMap::new());
        }
        let now = pass.now();
        let is_fresh = |(at, known): &(Timestamp, Vec<NodeLabels>)| {
            let knows = |node: &&Text| known.iter().any(|(name, _)| name == *node);
            now.duration_since(*at) < NODES_FOR && (known.is_empty() || nodes.iter().all(knows))
        };
        let fresh = locked(&self.nodes).clone().filter(is_fresh);
        let known = match fresh {
            Some((_, known)) => known,
            None => {
                let listed = match pass.list_all(NODES).await {
                    // An operator of one namespace may not look at nodes: roles are not spread then.
                    Err(Failure::Forbidden { .. }) => Vec::new(),
                    listed => listed?,
                };
                let listed = listed.into_iter().filter_map(|node| {
                    let labels = node.metadata.labels.unwrap_or_default();
                    Some((Text::from(node.metadata.name?), labels))
                });
                let listed: Vec<NodeLabels> = listed.collect();
                *locked(&self.nodes) = Some((now, listed.clone()));
                listed
            }
        };
        let place = |(name, labels): &NodeLabels| {
            let value = labels.get(&scheduling.topology_key)?;
            Some((name.clone(), Text::from(value.as_str())))
        };
        Ok(known
            .iter()
            .filter(|(name, _)| nodes.contains(&name))
            .filter_map(place)
            .collect())
    }
}

/// One value of a Secret.
pub fn value(secret: &DynamicObject, key: &str) -> Option<Vec<u8>> {
    let encoded = secret.data.get("data")?.get(key)?;
    ByteString::deserialize(encoded).ok().map(|bytes| bytes.0)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
