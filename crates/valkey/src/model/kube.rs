//! As much of Kubernetes as a cluster of servers notices: a StatefulSet (Parallel, OnDelete), its pods and their volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use usher_engine::{Text, Uid};

use super::store::Disk;
use crate::words::{Ordinal, ServerVersion};

/// The StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Its uid.
    pub uid: Uid,
    /// Its resourceVersion.
    pub revision: u64,
    /// `spec.replicas`.
    pub replicas: u16,
    /// Revision of its template.
    pub template: Text,
    /// The server that its image has.
    pub version: ServerVersion,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its uid.
    pub uid: Uid,
    /// Its resourceVersion.
    pub revision: u64,
    /// Its address, once it has one.
    pub address: Option<IpAddr>,
    /// Its node.
    pub node: Text,
    /// When its container starts, or starts again; `None` while it runs.
    pub starts_at: Option<u64>,
    /// Ready, and since when it is or is not.
    pub ready: (bool, u64),
    /// When it was deleted.
    pub deleted: Option<u64>,
    /// When SIGTERM was sent.
    pub signalled: Option<u64>,
    /// Revision it was made from.
    pub template: Text,
    /// Its server's version.
    pub version: ServerVersion,
    /// What is written on it.
    pub labels: BTreeMap<Text, Text>,
    /// Its folder, where there is no volume.
    pub folder: Disk,
}

/// A volume, with its claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The claim's uid.
    pub uid: Uid,
    /// What is on it.
    pub disk: Disk,
}

/// What is to be rendered from the spec: what an applied set looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Size of a set that is made.
    pub replicas: u16,
    /// Revision of the template.
    pub template: Text,
    /// Server of the image.
    pub version: ServerVersion,
}

/// The API server and its controllers, as far as they matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kube {
    /// The cluster's name, and so its set's.
    pub cluster: Text,
    /// Objects that the spec wants beside the set, in their order.
    pub owned: Vec<(&'static str, Text)>,
    /// Whether the cluster has our finalizer.
    pub finalizer: bool,
    /// Annotations that were removed.
    pub cleared: Vec<&'static str>,
    /// The set.
    pub set: Option<Set>,
    /// Its pods.
    pub pods: BTreeMap<Ordinal, Pod>,
    /// Its volumes.
    pub volumes: BTreeMap<Ordinal, Volume>,
    /// Whether pods have volumes.
    pub persistence: bool,
    /// How many nodes there are.
    pub nodes: u16,
    /// Objects that were applied, by kind and name.
    pub applied: BTreeSet<(&'static str, Text)>,
    /// What would be applied now.
    pub wanted: Wanted,
    /// Pods that do not start, and why.
    pub stuck: BTreeMap<Ordinal, String>,
    /// Images, by revision, whose pods do not start.
    pub bad_templates: BTreeSet<Text>,
    /// Whether a pod that starts anew has another address.
    pub new_addresses: bool,
    counter: u64,
}

impl Kube {
    /// Nothing, yet.
    pub fn new(persistence: bool, nodes: u16, version: ServerVersion) -> Self {
        let cluster: Text = "vc".into();
        let named = |suffix: &str| Text::from(format!("{cluster}{suffix}").as_str());
        Self {
            owned: vec![
                ("Secret", named("-config")),
                ("Service", named("-headless")),
                ("Service", named("")),
                ("PodDisruptionBudget", named("")),
            ],
            cluster,
            finalizer: false,
            cleared: Vec::new(),
            set: None,
            pods: BTreeMap::new(),
            volumes: BTreeMap::new(),
            persistence,
            nodes: nodes.max(1),
            applied: BTreeSet::new(),
            wanted: Wanted {
                replicas: 0,
                template: "1".into(),
                version,
            },
            stuck: BTreeMap::new(),
            bad_templates: BTreeSet::new(),
            new_addresses: true,
            counter: 0,
        }
    }

    /// The next resourceVersion; uids and addresses come from the same count.
    pub fn count(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// How many changes there have been: whoever waits for one looks at this.
    pub fn changes(&self) -> u64 {
        self.counter
    }

    /// A uid that nothing has had.
    pub fn uid(&mut self, what: &str) -> Uid {
        let number = self.count();
        Uid::from(format!("{what}-{number}").as_str())
    }

    /// An address that nobody has had.
    pub fn address(&mut self) -> IpAddr {
        let number = self.count();
        let [.., a, b, c] = number.to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(10, a, b, c))
    }

    /// Makes the set, or brings its template up to date. Its size stays as it is.
    pub fn apply_set(&mut self) {
        let (revision, wanted) = (self.count(), self.wanted.clone());
        match &mut self.set {
            Some(set) => {
                if (&set.template, set.version) != (&wanted.template, wanted.version) {
                    (set.template, set.version, set.revision) = (wanted.template, wanted.version, revision);
                }
            }
            None => {
                let uid = self.uid("set");
                self.set = Some(Set {
                    uid,
                    revision,
                    replicas: wanted.replicas,
                    template: wanted.template,
                    version: wanted.version,
                });
            }
        }
    }

    /// The set's controller: pods that are missing are made, pods beyond its size are deleted.
    pub fn control(&mut self, now: u64, starts_in: &mut dyn FnMut() -> u64) {
        let Some(set) = self.set.clone() else {
            return;
        };
        for ordinal in (0..set.replicas).map(Ordinal) {
            if self.pods.contains_key(&ordinal) {
                continue;
            }
            if self.persistence && !self.volumes.contains_key(&ordinal) {
                let (uid, disk) = (self.uid("volume"), Disk::default());
                self.volumes.insert(ordinal, Volume { uid, disk });
            }
            let pod = Pod {
                uid: self.uid("pod"),
                revision: self.count(),
                address: None,
                node: format!("node-{}", ordinal.0 % self.nodes).into(),
                starts_at: Some(now + starts_in()),
                ready: (false, now),
                deleted: None,
                signalled: None,
                template: set.template.clone(),
                version: set.version,
                labels: BTreeMap::new(),
                folder: Disk::default(),
            };
            self.pods.insert(ordinal, pod);
        }
        let condemned: Vec<Ordinal> = self.pods.keys().filter(|o| o.0 >= set.replicas).copied().collect();
        for ordinal in condemned {
            self.delete_pod(ordinal, now);
        }
    }

    /// Marks a pod for deletion.
    pub fn delete_pod(&mut self, ordinal: Ordinal, now: u64) {
        if self.pods.get(&ordinal).is_none_or(|pod| pod.deleted.is_some()) {
            return;
        }
        let revision = self.count();
        if let Some(pod) = self.pods.get_mut(&ordinal) {
            (pod.deleted, pod.revision) = (Some(now), revision);
        }
    }

    /// Where a pod's server keeps its files.
    pub fn disk(&mut self, ordinal: Ordinal) -> Option<&mut Disk> {
        if self.persistence {
            return self.volumes.get_mut(&ordinal).map(|volume| &mut volume.disk);
        }
        self.pods.get_mut(&ordinal).map(|pod| &mut pod.folder)
    }

    /// Why a pod does not start.
    pub fn trouble(&self, ordinal: Ordinal, pod: &Pod) -> Option<String> {
        if let Some(why) = self.stuck.get(&ordinal) {
            return Some(why.clone());
        }
        let bad = self.bad_templates.contains(&pod.template);
        bad.then(|| "ImagePullBackOff: no such image".to_owned())
    }

    /// Whether a pod is Ready now; says when that changed.
    pub fn set_ready(&mut self, ordinal: Ordinal, ready: bool, now: u64) {
        if self.pods.get(&ordinal).is_none_or(|pod| pod.ready.0 == ready) {
            return;
        }
        let revision = self.count();
        if let Some(pod) = self.pods.get_mut(&ordinal) {
            (pod.ready, pod.revision) = ((ready, now), revision);
        }
    }
}
