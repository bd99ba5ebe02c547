//! What was seen: a plain value, made by one pass and thrown away after it.
//!
//! Unknown is not zero (R2): a server that did not answer is [`Answer::Silent`], and nothing is ever concluded from what it
//! did not say. Nothing is read from one chosen node: every pod's server speaks for itself, and what they agree on is worked
//! out by `plan::topology`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use usher_engine::{Text, Uid};

use crate::words::{Epoch, NodeId, Ordinal, SLOTS, ServerVersion, ShardId, Slot, SlotSet};

/// A cluster as one pass saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// How many slots there are: 16,384, fewer in small worlds.
    pub slots: u16,
    /// The StatefulSet of the cluster's name, whoever's it is.
    pub set: Option<SetSeen>,
    /// The set's pods.
    pub pods: BTreeMap<Ordinal, PodSeen>,
    /// The claims `data-<cluster>-<ordinal>`: which volume a pod of that ordinal gets.
    pub volumes: BTreeMap<Ordinal, Uid>,
    /// What each pod's server answered, by the pod's uid. A pod without an address was not asked, and is not in here.
    pub answers: BTreeMap<Uid, Answer>,
    /// The topology value of each node (`scheduling.topologyKey`), where it has one.
    pub places: BTreeMap<Text, Text>,
    /// What the cluster owns beside pods, and what its spec names.
    pub objects: Objects,
    /// What the settings of this operator ask of every cluster.
    pub rules: Rules,
    /// Since when things are as they are, as far as this process has watched.
    pub memory: Memory,
}

impl Default for Observation {
    fn default() -> Self {
        Self {
            slots: SLOTS,
            set: None,
            pods: BTreeMap::new(),
            volumes: BTreeMap::new(),
            answers: BTreeMap::new(),
            places: BTreeMap::new(),
            objects: Objects::default(),
            rules: Rules::default(),
            memory: Memory::default(),
        }
    }
}

impl Observation {
    /// What the server of this pod says, if it does.
    pub fn says(&self, ordinal: Ordinal) -> Option<&Says> {
        match self.answers.get(&self.pods.get(&ordinal)?.uid)? {
            Answer::Says(says) => Some(says),
            Answer::Silent { .. } | Answer::Loading { .. } => None,
        }
    }
}

/// What the cluster owns beside pods, and what its spec names, held against what it should be. By default all is well.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Objects {
    /// Owned objects that are missing or not as rendered, in the order in which they are applied; the set is not among them.
    pub unsettled: Vec<(&'static str, Text)>,
    /// The set is not as rendered: its template would change if it were applied. A set that is missing is `Observation::set`.
    pub set_differs: bool,
    /// Owned objects that the spec does not want any more.
    pub unwanted: Vec<(&'static str, Text)>,
    /// Objects under our names that are somebody else's.
    pub foreign: Vec<(&'static str, Text)>,
    /// How the password stands.
    pub password: PasswordSeen,
}

/// What the settings of this operator ask of every cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    /// `valkey.requireTls`: no cluster without encryption.
    pub require_tls: bool,
    /// `valkey.requireAuth`: no cluster without a password.
    pub require_auth: bool,
}

/// How the password that the spec names stands to the one in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PasswordSeen {
    /// There is none to be had, or both are the same.
    #[default]
    Settled,
    /// None is in force yet, and the one that the spec names is not there: which Secret, and what is wrong with it.
    Missing {
        /// Name of the Secret.
        secret: Text,
        /// What is wrong, as half a sentence.
        problem: String,
    },
    /// One is in force, and the spec's Secret is gone or says something else: not applied.
    Differs {
        /// Name of the Secret.
        secret: Text,
    },
}

/// The StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetSeen {
    /// Its uid.
    pub uid: Uid,
    /// Its resourceVersion.
    pub revision: u64,
    /// Whether our cluster controls it.
    pub ours: bool,
    /// S: `spec.replicas`.
    pub replicas: u16,
    /// Revision of the template (annotation `usher.dev/revision` of its pods).
    pub template: Option<Text>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// What a pod's phase says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers have started.
    Pending,
    /// They have.
    Running,
    /// It has ended, either way.
    Ended,
    /// Its node does not say.
    Unknown,
}

/// One pod of the set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSeen {
    /// Its name.
    pub name: Text,
    /// Which incarnation.
    pub uid: Uid,
    /// Its resourceVersion.
    pub revision: u64,
    /// Where it answers.
    pub address: Option<IpAddr>,
    /// Where it runs.
    pub node: Option<Text>,
    /// Its phase.
    pub phase: PodPhase,
    /// Whether it is Ready, and since when it is or is not.
    pub ready: bool,
    /// When `ready` became what it is.
    pub ready_changed: Timestamp,
    /// Its deletion mark.
    pub deleting: Option<Timestamp>,
    /// Which revision of the spec shaped it (annotation `usher.dev/revision`).
    pub template: Option<Text>,
    /// Why it does not run, in its own words (`ImagePullBackOff: …`, `Unschedulable: …`).
    pub trouble: Option<String>,
    /// What we wrote on it last: role, shard, node id. Never read for a decision, only to know whether to write.
    pub labelled: BTreeMap<Text, Text>,
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Nothing, or an error in place of an answer.
    Silent {
        /// What went wrong, without secrets.
        error: String,
        /// Since when.
        since: Timestamp,
        /// Whether it refused the password: the server lives, and nothing may be concluded.
        refused: bool,
    },
    /// It is reading its data.
    Loading {
        /// Since when.
        since: Timestamp,
    },
    /// Everything that was asked.
    Says(Box<Says>),
}

/// One server's answers of one pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Says {
    /// `CLUSTER MYID`.
    pub id: NodeId,
    /// `CLUSTER MYSHARDID`.
    pub shard: ShardId,
    /// `INFO server`.
    pub version: ServerVersion,
    /// `ROLE` and `INFO replication`.
    pub role: RoleSaid,
    /// Whether it says `cluster_state:ok` itself.
    pub state_ok: bool,
    /// The highest epoch it has heard of.
    pub current_epoch: Epoch,
    /// `CLUSTER NODES`: everybody it knows, itself included.
    pub view: BTreeMap<NodeId, Peer>,
    /// `DBSIZE`.
    pub keys: u64,
    /// `CONFIG GET min-replicas-to-write`: how many replicas it wants before it takes writes (R37).
    pub min_replicas: Option<u16>,
    /// `CLUSTER GETSLOTMIGRATIONS`, newest first; empty before 9.0.
    pub jobs: Vec<Job>,
}

impl Says {
    /// Its entry of itself.
    pub fn myself(&self) -> Option<&Peer> {
        self.view.get(&self.id)
    }

    /// Slots it claims for itself.
    pub fn own_slots(&self) -> SlotSet {
        self.myself().map(|peer| peer.slots.clone()).unwrap_or_default()
    }

    /// Whether it knows nobody but itself.
    pub fn is_alone(&self) -> bool {
        self.view.keys().all(|id| *id == self.id)
    }
}

/// What a server says of its own role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleSaid {
    /// A primary.
    Primary {
        /// How far its stream goes.
        offset: u64,
        /// Its connected replicas by address, and how far each has acknowledged.
        replicas: BTreeMap<IpAddr, u64>,
    },
    /// A replica.
    Replica {
        /// How its link stands.
        link: Link,
        /// How far it has read.
        offset: u64,
    },
}

/// A replica's link to its primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Up, and no sync is running.
    Up,
    /// A sync is running.
    Syncing,
    /// Down.
    Down,
}

/// What a `CLUSTER NODES` line says of one peer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Peer {
    /// Its address, where the line has one.
    pub address: Option<IpAddr>,
    /// Its flags.
    pub flags: Flags,
    /// Whose replica it is.
    pub primary: Option<NodeId>,
    /// Whether the link to it is connected.
    pub connected: bool,
    /// Its config epoch.
    pub epoch: Epoch,
    /// Its slots.
    pub slots: SlotSet,
    /// Slots being moved by hand or key by key; only in a server's line of itself.
    pub open: Vec<OpenSlot>,
}

/// The flags of a `CLUSTER NODES` line: a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// `master`.
    pub primary: bool,
    /// `slave`.
    pub replica: bool,
    /// `fail?`: this one server cannot reach it.
    pub suspected: bool,
    /// `fail`: a majority cannot.
    pub failed: bool,
    /// `handshake`: met, not yet known.
    pub handshake: bool,
    /// `noaddr`: nobody knows where it is.
    pub no_address: bool,
}

/// A marker of a slot that is open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpenSlot {
    /// `[slot->-to]`: it is leaving this server.
    Migrating {
        /// Which.
        slot: Slot,
        /// Whereto.
        to: NodeId,
    },
    /// `[slot-<-from]`: it is coming to this server.
    Importing {
        /// Which.
        slot: Slot,
        /// Wherefrom.
        from: NodeId,
    },
}

/// One atomic slot migration, as the server it leaves or reaches tells.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The server's name for it.
    pub name: Text,
    /// Whether this server gives (`EXPORT`) or takes.
    pub exports: bool,
    /// The giving server.
    pub source: NodeId,
    /// The taking server.
    pub target: NodeId,
    /// Which slots.
    pub slots: SlotSet,
    /// How it stands.
    pub state: JobState,
    /// What the server says of it.
    pub message: String,
    /// When it last moved, by the server's clock.
    pub updated: Option<Timestamp>,
    /// Bytes that it holds back or still has to send, where the server tells (9.1).
    pub remaining: Option<u64>,
}

impl Job {
    /// Whether it has come to an end, whichever.
    pub fn is_over(&self) -> bool {
        !matches!(self.state, JobState::InFlight(_))
    }
}

/// How a job stands (R22: in flight is what is not over).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// Under way, in the server's own word for where.
    InFlight(Text),
    /// Done.
    Success,
    /// Not done, and why is in the message.
    Failed,
    /// Called off.
    Cancelled,
}

/// Since when things are as they are. Kept by the process between passes, and empty after a start: what waits for a time to
/// pass then waits a little longer, and nothing is done too early.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memory {
    /// When this process began to watch this cluster; `None` before its first look.
    pub began: Option<Timestamp>,
    /// Pods whose servers do not answer, or load.
    pub silent_since: BTreeMap<Uid, Timestamp>,
    /// Members that every server that answers shows as failed.
    pub failed_since: BTreeMap<NodeId, Timestamp>,
    /// Members that live and own no slot.
    pub slotless_since: BTreeMap<NodeId, Timestamp>,
    /// Views that do not agree (R3).
    pub disagreeing_since: Option<Timestamp>,
    /// No pod was Ready.
    pub none_ready_since: Option<Timestamp>,
    /// When a MEET was last sent for a member's address (R8).
    pub met: BTreeMap<NodeId, Timestamp>,
    /// Failovers that were asked for and have not come about: when, and how often in a row (R28).
    pub failovers: BTreeMap<ShardId, (Timestamp, u32)>,
    /// Who was to take over in each of these.
    pub promised: BTreeMap<ShardId, NodeId>,
    /// The primary of each shard with slots, as last seen in views that agree.
    pub primaries: BTreeMap<ShardId, NodeId>,
    /// When one of these last became another, planned or not (R33).
    pub primaries_changed: Option<Timestamp>,
    /// Jobs in flight as they last moved: state, when by the server's clock, and bytes left.
    pub moving: BTreeMap<Text, (JobState, Option<Timestamp>, Option<u64>)>,
    /// Jobs in flight whose bytes and state stand still, and since when (R22).
    pub still_since: BTreeMap<Text, Timestamp>,
    /// Jobs that were over when a pass before this one looked: what came of them was counted then (R23), and is counted
    /// once. What was over before this process began is not counted at all.
    pub judged: BTreeSet<Text>,
    /// Jobs that are over now: judged from the next pass on.
    pub over: BTreeSet<Text>,
}
