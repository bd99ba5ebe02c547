//! One server: who it is, whom it knows, what it believes of slots and roles.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::dice::{Dice, mix};
use super::jobs::SlotJob;
use super::store::{Disk, Keys, Store};
use crate::words::{NodeId, ServerVersion, ShardId, Slot, SlotSet};

/// Where a server sits: the ordinal of its pod. Strangers sit at [`STRANGERS`] and above.
pub type Seat = u16;

/// First seat of servers that are no pod of ours.
pub const STRANGERS: Seat = 10_000;

/// Times and habits of all servers of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Habits {
    /// How many slots there are.
    pub slots: u16,
    /// `cluster-node-timeout`.
    pub node_timeout_ms: u64,
    /// `cluster-replica-validity-factor`.
    pub validity_factor: u64,
    /// The longest way of a message.
    pub delay_ms: u64,
    /// How long reading the data takes at a start.
    pub load_ms: u64,
    /// How long a full sync takes.
    pub sync_ms: u64,
    /// How long each stage of a slot job takes.
    pub job_stage_ms: u64,
    /// `appendonly`.
    pub aof: bool,
    /// `save`.
    pub rdb: bool,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            slots: crate::words::SLOTS,
            node_timeout_ms: 5_000,
            validity_factor: 10,
            delay_ms: 40,
            load_ms: 200,
            sync_ms: 600,
            job_stage_ms: 150,
            aof: true,
            rdb: true,
        }
    }
}

/// What happens around a server while it acts.
#[derive(Debug)]
pub struct Around<'w> {
    /// Milliseconds since the world began.
    pub now: u64,
    /// Chance.
    pub dice: &'w mut Dice,
    /// Letters it sends.
    pub out: &'w mut Vec<super::bus::Letter>,
    /// Makes ids.
    pub ids: &'w mut Ids,
    /// Times and habits.
    pub habits: &'w Habits,
}

/// Makes ids that read as servers' do, always the same ones for the same salt: who is first is chance, but not by the hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids {
    salt: u64,
    made: u64,
}

impl Ids {
    /// Ids of this salt.
    pub fn new(salt: u64) -> Self {
        Self { salt, made: 0 }
    }

    /// A number that nobody has had.
    pub fn number(&mut self) -> u64 {
        self.made += 1;
        mix(self.salt ^ self.made.wrapping_mul(0x1000_0001))
    }

    fn text(&mut self) -> String {
        let (a, b) = (self.number(), self.number());
        format!("{a:016x}{b:016x}{:08x}", (a ^ b) >> 32)
    }

    /// A node's id.
    pub fn node(&mut self) -> NodeId {
        loop {
            if let Ok(id) = NodeId::parse(&self.text()) {
                return id;
            }
        }
    }

    /// A shard's id.
    pub fn shard(&mut self) -> ShardId {
        loop {
            if let Ok(id) = ShardId::parse(&self.text()) {
                return id;
            }
        }
    }
}

/// What one server knows of another, or of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it is, as far as known.
    pub address: Option<IpAddr>,
    /// Whose replica it is.
    pub primary: Option<NodeId>,
    /// Its shard.
    pub shard: ShardId,
    /// Its config epoch.
    pub epoch: u64,
    /// Its slots.
    pub slots: SlotSet,
    /// Since when a majority could not reach it.
    pub failed_at: Option<u64>,
    /// Whether this server cannot reach it.
    pub suspected: bool,
    /// Whether there is a link to it.
    pub linked: bool,
    /// When it last answered.
    pub heard: u64,
    /// When it last asked by itself.
    pub inbound: u64,
    /// When it was last asked.
    pub asked: u64,
    /// Since when it owes an answer.
    pub owes: Option<u64>,
    /// When it was last met again, because it does not ask by itself.
    pub met: u64,
    /// Which voters said that they cannot reach it, and when.
    pub reports: BTreeMap<NodeId, u64>,
    /// When a replica of it was last voted for.
    pub voted_at: Option<u64>,
    /// How far its data goes, as it said.
    pub offset: u64,
}

impl Entry {
    /// Somebody new, without slots.
    pub fn new(address: IpAddr, shard: ShardId, now: u64) -> Self {
        Self {
            address: Some(address),
            primary: None,
            shard,
            epoch: 0,
            slots: SlotSet::new(),
            failed_at: None,
            suspected: false,
            linked: true,
            heard: now,
            inbound: now,
            asked: 0,
            owes: None,
            met: now,
            reports: BTreeMap::new(),
            voted_at: None,
            offset: 0,
        }
    }

    /// Whether it can be counted on.
    pub fn reachable(&self) -> bool {
        self.failed_at.is_none() && !self.suspected
    }

    /// Whether it has a vote: a primary with slots.
    pub fn votes(&self) -> bool {
        self.primary.is_none() && !self.slots.is_empty()
    }
}

/// What `nodes.conf` keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conf {
    /// Who this is.
    pub id: NodeId,
    /// Everybody known, itself included.
    pub peers: BTreeMap<NodeId, Entry>,
    /// The highest epoch heard of.
    pub current_epoch: u64,
    /// The epoch of the last vote.
    pub voted_epoch: u64,
    /// Slots that are leaving, and to whom.
    pub migrating: BTreeMap<Slot, NodeId>,
    /// Slots that are coming, and from whom.
    pub importing: BTreeMap<Slot, NodeId>,
}

/// Where a process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// The start script waits (start gate).
    Gated(u64),
    /// Reads its data.
    Loading(u64),
    /// Answers.
    Running,
    /// Stopped by a signal: alive and silent.
    Frozen,
}

/// A replica's way to its primary's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// No connection.
    Down,
    /// All the data is on its way.
    Full(u64),
    /// The log is read as it grows.
    Up,
}

/// A failover that was asked for by command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manual {
    /// When it is given up.
    pub until: u64,
    /// The offset the primary stopped at, once it said.
    pub upto: Option<u64>,
    /// Without the primary.
    pub forced: bool,
}

/// A vote that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// When it begins.
    pub at: u64,
    /// Its epoch, once it has begun.
    pub epoch: Option<u64>,
    /// Who voted.
    pub votes: BTreeSet<NodeId>,
    /// Votes count although the primary lives.
    pub forced: bool,
}

/// A server process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Where it sits.
    pub seat: Seat,
    /// Its address.
    pub address: IpAddr,
    /// Its version.
    pub version: ServerVersion,
    /// Where it stands.
    pub life: Life,
    /// What it knows and keeps.
    pub conf: Conf,
    /// Its data.
    pub store: Store,
    /// What RDB would bring back.
    pub saved: Option<Keys>,
    /// What the AOF has beside the keys in memory: a replica's reset empties memory only ✓.
    pub aof_only: Option<Keys>,
    /// When the process began.
    pub started: u64,
    /// Addresses that were met and have not answered, and until when.
    pub handshakes: BTreeMap<IpAddr, u64>,
    /// Ids that are not taken in again by hearsay, and until when.
    pub banned: BTreeMap<NodeId, u64>,
    /// Its link to its primary.
    pub sync: Sync,
    /// When it last read from its primary.
    pub synced_at: u64,
    /// A failover by command, on the replica.
    pub manual: Option<Manual>,
    /// A failover by command, on the primary: who takes over, and until when writes wait.
    pub handing_over: Option<(NodeId, u64)>,
    /// A vote.
    pub election: Option<Election>,
    /// No new vote before this.
    pub no_election_before: u64,
    /// `cluster_state:ok`.
    pub state_ok: bool,
    /// When it last was with a minority.
    pub minority_at: u64,
    /// Slot jobs, newest first: in memory only.
    pub jobs: Vec<SlotJob>,
    /// When it last sent a ping to somebody by chance.
    pub chatted: u64,
    /// `min-replicas-to-write`.
    pub min_replicas: u16,
}

impl Server {
    /// A process that starts on this disk.
    pub fn start(seat: Seat, address: IpAddr, version: ServerVersion, disk: &Disk, around: &mut Around<'_>) -> Self {
        let now = around.now;
        // The start gate of 3.2: with no data at all, a primary with a replica comes back as somebody new.
        let kept = disk.conf.clone().filter(|conf| {
            let habits = around.habits;
            habits.aof || habits.rdb || !Self::was_followed(conf)
        });
        let mut conf = kept.unwrap_or_else(|| {
            let (id, shard) = (around.ids.node(), around.ids.shard());
            Conf {
                peers: [(id.clone(), Entry::new(address, shard, now))].into(),
                id,
                current_epoch: 0,
                voted_epoch: 0,
                migrating: BTreeMap::new(),
                importing: BTreeMap::new(),
            }
        });
        let id = conf.id.clone();
        for (peer, entry) in &mut conf.peers {
            let own = *peer == id;
            *entry = Entry {
                address: if own { Some(address) } else { entry.address },
                primary: entry.primary.clone(),
                epoch: entry.epoch,
                slots: entry.slots.clone(),
                failed_at: entry.failed_at.map(|_| now),
                linked: own,
                ..Entry::new(address, entry.shard.clone(), now)
            };
        }
        let keys = disk.keys.clone().unwrap_or_default();
        let gate = now + Self::gate_ms(&conf, around.habits);
        Self {
            seat,
            address,
            version,
            life: if gate > now {
                Life::Gated(gate)
            } else {
                Life::Loading(now + around.habits.load_ms)
            },
            conf,
            saved: disk.keys.clone(),
            aof_only: None,
            started: now,
            store: Store::of(keys, around.ids.number()),
            handshakes: BTreeMap::new(),
            banned: BTreeMap::new(),
            sync: Sync::Down,
            synced_at: now,
            manual: None,
            handing_over: None,
            election: None,
            no_election_before: 0,
            state_ok: false,
            minority_at: now,
            jobs: Vec::new(),
            chatted: 0,
            min_replicas: 0,
        }
    }

    /// The start gate of 3.2: without AOF, a primary with a replica waits until a replica with newer data is promoted.
    fn gate_ms(conf: &Conf, habits: &Habits) -> u64 {
        if habits.aof || !Self::was_followed(conf) {
            return 0;
        }
        3 * habits.node_timeout_ms
    }

    /// Whether `nodes.conf` says `myself,master` and names a replica.
    fn was_followed(conf: &Conf) -> bool {
        let primary = conf.peers.get(&conf.id).is_some_and(|own| own.primary.is_none());
        let mut peers = conf.peers.values();
        primary && peers.any(|peer| peer.primary.as_ref() == Some(&conf.id))
    }

    /// Who it is.
    pub fn id(&self) -> &NodeId {
        &self.conf.id
    }

    /// Its entry of itself. Every table has one; a fresh one stands in where it would not.
    pub fn own(&self) -> Option<&Entry> {
        self.conf.peers.get(&self.conf.id)
    }

    /// The same, to change.
    pub fn own_mut(&mut self) -> Option<&mut Entry> {
        self.conf.peers.get_mut(&self.conf.id)
    }

    /// Whether it says that it is a primary.
    pub fn is_primary(&self) -> bool {
        self.own().is_some_and(|own| own.primary.is_none())
    }

    /// Its primary, where it is a replica.
    pub fn primary(&self) -> Option<&NodeId> {
        self.own()?.primary.as_ref()
    }

    /// Its slots.
    pub fn slots(&self) -> SlotSet {
        self.own().map(|own| own.slots.clone()).unwrap_or_default()
    }

    /// Its config epoch.
    pub fn epoch(&self) -> u64 {
        self.own().map_or(0, |own| own.epoch)
    }

    /// Who owns a slot, as it believes.
    pub fn owner_of(&self, slot: Slot) -> Option<&NodeId> {
        let owner = self.conf.peers.iter().find(|(_, entry)| entry.slots.contains(slot));
        owner.map(|(id, _)| id)
    }

    /// Whether it answers commands.
    pub fn answers(&self) -> bool {
        self.life == Life::Running
    }

    /// Whether it is alive on the bus.
    pub fn on_the_bus(&self) -> bool {
        // A server that loads does not turn its event loop often enough to be counted on, and one that is gated or
        // frozen does not at all.
        self.life == Life::Running
    }

    /// Takes the next epoch for itself, asking nobody.
    pub fn bump_epoch(&mut self) {
        let highest = self.conf.peers.values().map(|peer| peer.epoch).max().unwrap_or(0);
        self.conf.current_epoch = self.conf.current_epoch.max(highest) + 1;
        let epoch = self.conf.current_epoch;
        if let Some(own) = self.own_mut() {
            own.epoch = epoch;
        }
    }

    /// Moves slots to an owner in this table, whoever had them.
    pub fn assign(&mut self, slots: &SlotSet, owner: &NodeId) {
        for (id, entry) in &mut self.conf.peers {
            if id == owner {
                entry.slots = entry.slots.union(slots);
            } else if !entry.slots.common(slots).is_empty() {
                entry.slots = entry.slots.minus(slots);
            }
        }
    }

    /// Becomes a replica of a primary that it knows.
    pub fn set_primary(&mut self, primary: &NodeId, now: u64) {
        let Some(shard) = self.conf.peers.get(primary).map(|entry| entry.shard.clone()) else {
            return;
        };
        if let Some(own) = self.own_mut() {
            own.primary = Some(primary.clone());
            own.shard = shard;
            own.slots = SlotSet::new();
        }
        self.conf.migrating.clear();
        self.conf.importing.clear();
        self.fail_jobs("Slots are no longer owned by myself");
        self.sync = Sync::Down;
        self.synced_at = now;
        (self.manual, self.handing_over, self.election) = (None, None, None);
    }

    /// Has read its data: slots that have keys and no owner are claimed, those of others are marked as coming ✓.
    pub fn loaded(&mut self) {
        self.life = Life::Running;
        if !self.is_primary() {
            return;
        }
        let id = self.id().clone();
        for slot in self.store.keys.slots().iter() {
            match self.owner_of(slot).cloned() {
                None => self.assign(&SlotSet::one(slot), &id),
                Some(owner) if owner != id => {
                    self.conf.importing.insert(slot, owner);
                }
                Some(_) => {}
            }
        }
    }

    /// What it would leave on its disk if it died now. `orderly`: it had time to save.
    pub fn disk(&self, habits: &Habits, orderly: bool) -> Disk {
        let mut now = self.store.keys.clone();
        let keys = if habits.aof {
            if let Some(more) = &self.aof_only {
                now.take_in(more);
            }
            Some(now)
        } else if habits.rdb {
            if orderly { Some(now) } else { self.saved.clone() }
        } else {
            None
        };
        Disk {
            conf: Some(self.conf.clone()),
            keys,
        }
    }
}
