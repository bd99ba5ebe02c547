//! Clusters drawn in a line, for tests: `0* 3 | 1* 4 | 2* 5` is three shards of pods, `*` their primaries. Slots are split
//! evenly over the shards; a shard written with `-` behind it owns none.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use jiff::Timestamp;
use usher_engine::Uid;

use super::topology::{Past, Size, Topology};
use crate::seen::{Answer, Flags, Job, JobState, Link, Observation, Peer, PodPhase, PodSeen, RoleSaid, Says, SetSeen};
use crate::words::{Epoch, NodeId, Ordinal, SLOTS, ServerVersion, ShardId, SlotSet};

/// A cluster that agrees with itself, to be spoilt by the test.
#[derive(Debug, Clone)]
pub struct Sketch {
    pub seen: Observation,
    pub past: Past,
    pub size: Size,
}

pub fn node(ordinal: u16) -> NodeId {
    NodeId::parse(&format!("{ordinal:08}{:032}", 0)).unwrap()
}

pub fn shard_id(primary: u16) -> ShardId {
    ShardId::parse(&format!("s{primary:07}{:032}", 0)).unwrap()
}

pub fn start() -> Timestamp {
    "2026-11-16T12:00:00Z".parse().unwrap()
}

fn address(ordinal: u16) -> IpAddr {
    let [high, low] = ordinal.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, 1, high, low + 1))
}

/// One shard of a drawing: its primary, everybody in it, and its slots.
struct Drawn {
    primary: u16,
    members: Vec<u16>,
    slots: SlotSet,
}

impl Sketch {
    /// Reads a drawing. The size that is wanted is `masters` times one and `replicas`.
    pub fn of(drawing: &str, masters: u16, replicas: u16) -> Self {
        Self::with_slots(drawing, masters, replicas, SLOTS)
    }

    pub fn with_slots(drawing: &str, masters: u16, replicas: u16, slots: u16) -> Self {
        let mut shards: Vec<Drawn> = drawing
            .split('|')
            .filter(|text| !text.trim().is_empty())
            .map(drawn)
            .collect();
        let owning = shards.iter().filter(|shard| !shard.slots.is_empty()).count();
        let mut left = SlotSet::first(slots);
        let givers = shards.iter_mut().filter(|shard| !shard.slots.is_empty());
        for (counted, shard) in givers.enumerate() {
            let share = usize::from(slots) / owning + usize::from(counted < usize::from(slots) % owning);
            shard.slots = left.lowest_of(share.try_into().unwrap());
            left = left.minus(&shard.slots);
        }
        let mut view = BTreeMap::new();
        for (at, shard) in shards.iter().enumerate() {
            for member in &shard.members {
                let primary = *member == shard.primary;
                let peer = Peer {
                    address: Some(address(*member)),
                    flags: Flags {
                        primary,
                        replica: !primary,
                        ..Flags::default()
                    },
                    primary: (!primary).then(|| node(shard.primary)),
                    connected: true,
                    epoch: Epoch(at as u64 + 1),
                    slots: if primary { shard.slots.clone() } else { SlotSet::new() },
                    open: Vec::new(),
                };
                view.insert(node(*member), peer);
            }
        }
        let mut sketch = Self {
            seen: Observation {
                slots,
                ..Observation::default()
            },
            past: Past::default(),
            size: Size {
                masters,
                replicas,
                surge: false,
            },
        };
        for shard in &shards {
            for member in &shard.members {
                let primary = *member == shard.primary;
                let replicas = shard.members.iter().filter(|other| **other != shard.primary);
                let role = match primary {
                    true => RoleSaid::Primary {
                        offset: 1000,
                        replicas: replicas.map(|other| (address(*other), 1000)).collect(),
                    },
                    false => RoleSaid::Replica {
                        link: Link::Up,
                        offset: 1000,
                    },
                };
                sketch.add_pod(*member, node(*member), shard_id(shard.primary), role, view.clone());
                if primary && !shard.slots.is_empty() {
                    sketch.past.owned.insert(shard_id(*member), shard.slots.clone());
                }
            }
        }
        sketch.remember();
        sketch
    }

    /// Pods that have just started: alone and empty.
    pub fn fresh(mut self, ordinals: impl IntoIterator<Item = u16>) -> Self {
        for ordinal in ordinals {
            self.restart_as(ordinal, node(ordinal));
        }
        self
    }

    /// The pod answers as an empty member that nobody knows.
    pub fn restart_as(&mut self, ordinal: u16, id: NodeId) {
        let role = RoleSaid::Primary {
            offset: 0,
            replicas: BTreeMap::new(),
        };
        let alone = Peer {
            address: Some(address(ordinal)),
            flags: Flags {
                primary: true,
                ..Flags::default()
            },
            connected: true,
            ..Peer::default()
        };
        let view = BTreeMap::from([(id.clone(), alone)]);
        self.add_pod(ordinal, id.clone(), id.as_shard(), role, view);
    }

    fn add_pod(&mut self, ordinal: u16, id: NodeId, shard: ShardId, role: RoleSaid, view: BTreeMap<NodeId, Peer>) {
        let uid = Uid::from(format!("pod-{ordinal}").as_str());
        let pod = PodSeen {
            name: format!("vc-{ordinal}").as_str().into(),
            uid: uid.clone(),
            revision: 1,
            address: Some(address(ordinal)),
            node: Some("node".into()),
            phase: PodPhase::Running,
            ready: true,
            ready_changed: start(),
            deleting: None,
            template: None,
            trouble: None,
            labelled: BTreeMap::new(),
        };
        let says = Says {
            id,
            shard,
            version: ServerVersion::parse("9.1.2").unwrap(),
            role,
            state_ok: true,
            current_epoch: view.values().map(|line| line.epoch).max().unwrap_or_default(),
            view,
            keys: 0,
            min_replicas: None,
            jobs: Vec::new(),
        };
        self.seen.pods.insert(Ordinal(ordinal), pod);
        self.seen
            .volumes
            .insert(Ordinal(ordinal), Uid::from(format!("volume-{ordinal}").as_str()));
        self.seen.answers.insert(uid, Answer::Says(Box::new(says)));
        let replicas = self.seen.pods.keys().map(|ordinal| ordinal.0 + 1).max().unwrap_or(0);
        self.seen.set = Some(SetSeen {
            uid: Uid::from("set"),
            revision: 1,
            ours: true,
            replicas,
            template: None,
            deleting: false,
        });
    }

    /// Takes what is seen now for what the last pass saw.
    pub fn remember(&mut self) {
        let bindings = self.topology().bindings();
        self.past.bindings = bindings;
    }

    pub fn topology(&self) -> Topology<'_> {
        Topology::of(&self.seen, &self.past, self.size)
    }

    pub fn says(&mut self, ordinal: u16) -> &mut Says {
        let uid = self.seen.pods[&Ordinal(ordinal)].uid.clone();
        match self.seen.answers.get_mut(&uid).unwrap() {
            Answer::Says(says) => says,
            other => panic!("pod {ordinal} does not speak: {other:?}"),
        }
    }

    /// Changes one line in everybody's view.
    pub fn lines(&mut self, of: &NodeId, change: impl Fn(&mut Peer)) {
        for answer in self.seen.answers.values_mut() {
            if let Answer::Says(says) = answer {
                says.view.get_mut(of).into_iter().for_each(&change);
            }
        }
    }

    /// The pod's server does not answer; peers show it as failed.
    pub fn silence(&mut self, ordinal: u16) {
        let uid = self.seen.pods[&Ordinal(ordinal)].uid.clone();
        self.seen.answers.insert(
            uid,
            Answer::Silent {
                error: "connection refused".into(),
                since: start(),
                refused: false,
            },
        );
        self.lines(&node(ordinal), |peer| {
            peer.flags.failed = true;
            peer.connected = false;
        });
    }

    /// A job in the log of its giving server, newest first.
    pub fn job(&mut self, from: u16, to: u16, slots: SlotSet, state: JobState, message: &str) {
        let log = &mut self.says(from).jobs;
        let name = format!("job-{from}-{to}-{}", log.len()).as_str().into();
        log.insert(
            0,
            Job {
                name,
                exports: true,
                source: node(from),
                target: node(to),
                slots,
                state,
                message: message.to_owned(),
                updated: Some(start()),
                remaining: None,
            },
        );
    }
}

fn drawn(text: &str) -> Drawn {
    let owns = !text.contains('-');
    let text = text.replace('-', " ");
    let mut primary = None;
    let mut members = Vec::new();
    for word in text.split_whitespace() {
        let ordinal: u16 = word.trim_end_matches('*').parse().unwrap();
        if word.ends_with('*') {
            primary = Some(ordinal);
        }
        members.push(ordinal);
    }
    Drawn {
        primary: primary.unwrap(),
        members,
        slots: if owns { SlotSet::first(1) } else { SlotSet::new() },
    }
}

/// Everybody's place in one line, as a drawing: `0* 3 | 1* 4 +6`, `+` for those who are to be attached.
pub fn draw(topology: &Topology<'_>, places: &super::places::Places) -> String {
    let at = |id: &NodeId| {
        topology
            .member(id)
            .and_then(|member| member.ordinal)
            .unwrap()
            .to_string()
    };
    let homes = places.homes.iter().map(|home| {
        let stays = home.stays.iter().map(|id| match *id == home.primary {
            true => format!("{}*", at(id)),
            false => at(id),
        });
        let tail = Some(&home.primary).filter(|id| !home.stays.contains(id));
        let tail = tail.map(|id| format!("({}*)", at(id)));
        let attach = home.attach.iter().map(|id| format!("+{}", at(id)));
        stays.chain(tail).chain(attach).collect::<Vec<_>>().join(" ")
    });
    homes.collect::<Vec<_>>().join(" | ")
}
