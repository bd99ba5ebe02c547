//! What the operator sees of a world: the same value that it makes of real servers.

use std::collections::BTreeMap;

use usher_engine::Text;

use super::jobs::{SlotJob, Stage};
use super::kube::Pod;
use super::server::{Entry, Ids, Life, Server, Sync};
use super::world::World;
use crate::seen::{
    Answer, Flags, Job, JobState, Link, Memory, Observation, OpenSlot, Peer, PodPhase, PodSeen, RoleSaid, Says, SetSeen,
};
use crate::words::{Epoch, NodeId, Ordinal};

impl World {
    /// Everything as it is now, with what the passes before remember of it.
    pub fn observe(&mut self, memory: &Memory) -> Observation {
        let mut seen = Observation {
            slots: self.habits.slots,
            set: self.kube.set.as_ref().map(|set| SetSeen {
                uid: set.uid.clone(),
                revision: set.revision,
                ours: true,
                replicas: set.replicas,
                template: Some(set.template.clone()),
                deleting: false,
            }),
            pods: (self.kube.pods.iter())
                .map(|(at, pod)| (*at, self.pod_seen(*at, pod)))
                .collect(),
            volumes: (self.kube.volumes.iter())
                .map(|(at, volume)| (*at, volume.uid.clone()))
                .collect(),
            places: (0..self.kube.nodes)
                .map(|node| (format!("node-{node}").into(), format!("node-{node}").into()))
                .collect(),
            ..Observation::default()
        };
        for (ordinal, pod) in &self.kube.pods {
            if pod.address.is_none() {
                continue;
            }
            let answer = self.answer(*ordinal);
            if matches!(answer, Answer::Says(_)) {
                self.silent_since.remove(&pod.uid);
            } else {
                self.silent_since.entry(pod.uid.clone()).or_insert(self.now);
            }
            seen.answers.insert(pod.uid.clone(), answer);
        }
        self.see_objects(&mut seen);
        seen.memory = memory.after(&seen, self.time());
        seen
    }

    fn see_objects(&self, seen: &mut Observation) {
        let wanted = self.kube.owned.iter();
        let unsettled = wanted.filter(|object| !self.kube.applied.contains(object));
        seen.objects.unsettled = unsettled.cloned().collect();
        let rendered = (&self.kube.wanted.template, self.kube.wanted.version);
        let set = self.kube.set.as_ref();
        seen.objects.set_differs = set.is_some_and(|set| (&set.template, set.version) != rendered);
    }

    fn pod_seen(&self, ordinal: Ordinal, pod: &Pod) -> PodSeen {
        let running = self.servers.contains_key(&ordinal.0) || (pod.address.is_some() && pod.signalled.is_none());
        PodSeen {
            name: self.pod_name(ordinal),
            uid: pod.uid.clone(),
            revision: pod.revision,
            address: pod.address,
            node: Some(pod.node.clone()),
            phase: if running { PodPhase::Running } else { PodPhase::Pending },
            ready: pod.ready.0,
            ready_changed: self.time_at(pod.ready.1),
            deleting: pod.deleted.map(|at| self.time_at(at)),
            template: Some(pod.template.clone()),
            trouble: self.kube.trouble(ordinal, pod),
            labelled: pod.labels.clone(),
        }
    }

    /// A pod's name.
    pub fn pod_name(&self, ordinal: Ordinal) -> Text {
        format!("{}-{ordinal}", self.kube.cluster).into()
    }

    /// What one pod's server answers.
    pub fn answer(&self, ordinal: Ordinal) -> Answer {
        let uid = self.kube.pods.get(&ordinal).map(|pod| pod.uid.clone());
        let since = uid.and_then(|uid| self.silent_since.get(&uid)).copied();
        let since = self.time_at(since.unwrap_or(self.now));
        let silent = |error: &str| Answer::Silent {
            error: error.to_owned(),
            since,
            refused: false,
        };
        if self.faults.unseen.contains(&ordinal.0) {
            return silent("no answer within 2 s");
        }
        match self.servers.get(&ordinal.0) {
            None => silent("connection refused"),
            Some(server) => match server.life {
                Life::Running => Answer::Says(Box::new(self.says(server))),
                Life::Loading(_) => Answer::Loading { since },
                Life::Gated(_) => silent("connection refused"),
                Life::Frozen => silent("no answer within 2 s"),
            },
        }
    }

    fn says(&self, server: &Server) -> Says {
        let follows = |other: &&Server| other.primary() == Some(server.id()) && other.sync == Sync::Up;
        let role = if server.is_primary() {
            RoleSaid::Primary {
                offset: server.store.offset,
                replicas: (self.servers.values().filter(follows))
                    .map(|replica| (replica.address, replica.store.offset))
                    .collect(),
            }
        } else {
            RoleSaid::Replica {
                link: match server.sync {
                    Sync::Up => Link::Up,
                    Sync::Full(_) => Link::Syncing,
                    Sync::Down => Link::Down,
                },
                offset: server.store.offset,
            }
        };
        let own = server.own();
        Says {
            id: server.id().clone(),
            shard: own.map_or_else(|| Ids::new(0).shard(), |own| own.shard.clone()),
            version: server.version,
            role,
            state_ok: server.state_ok,
            current_epoch: Epoch(server.conf.current_epoch),
            view: view(server),
            keys: server.store.keys.count(),
            min_replicas: Some(server.min_replicas),
            jobs: server.jobs.iter().map(|job| self.job_seen(job)).collect(),
        }
    }

    fn job_seen(&self, job: &SlotJob) -> Job {
        Job {
            name: job.name.clone(),
            exports: job.exports,
            source: job.source.clone(),
            target: job.target.clone(),
            slots: job.slots.clone(),
            state: match job.stage {
                Stage::Success => JobState::Success,
                Stage::Failed => JobState::Failed,
                Stage::Cancelled => JobState::Cancelled,
                under_way => JobState::InFlight(under_way.word().into()),
            },
            message: job.message.clone(),
            updated: Some(self.time_at(job.since)),
            remaining: None,
        }
    }
}

/// `CLUSTER NODES`.
fn view(server: &Server) -> BTreeMap<NodeId, Peer> {
    let mut view: BTreeMap<NodeId, Peer> = (server.conf.peers.iter())
        .map(|(id, entry)| (id.clone(), peer(server, id, entry)))
        .collect();
    for address in server.handshakes.keys() {
        // Nobody knows yet who that is: servers make up a name.
        let number = match address {
            std::net::IpAddr::V4(v4) => u64::from(v4.to_bits()),
            std::net::IpAddr::V6(v6) => v6.to_bits() as u64,
        };
        let line = Peer {
            address: Some(*address),
            flags: Flags {
                handshake: true,
                ..Flags::default()
            },
            ..Peer::default()
        };
        view.insert(Ids::new(number).node(), line);
    }
    view
}

fn peer(server: &Server, id: &NodeId, entry: &Entry) -> Peer {
    let own = id == server.id();
    let mut open = Vec::new();
    if own {
        for (slot, to) in &server.conf.migrating {
            let (slot, to) = (*slot, to.clone());
            open.push(OpenSlot::Migrating { slot, to });
        }
        for (slot, from) in &server.conf.importing {
            let (slot, from) = (*slot, from.clone());
            open.push(OpenSlot::Importing { slot, from });
        }
    }
    let known = entry
        .primary
        .clone()
        .filter(|primary| server.conf.peers.contains_key(primary));
    Peer {
        address: entry.address,
        flags: Flags {
            primary: entry.primary.is_none(),
            replica: entry.primary.is_some(),
            suspected: entry.suspected && entry.failed_at.is_none(),
            failed: entry.failed_at.is_some(),
            handshake: false,
            no_address: entry.address.is_none(),
        },
        primary: known,
        connected: own || entry.linked,
        epoch: Epoch(entry.epoch),
        slots: entry.slots.clone(),
        open,
    }
}
