//! A whole world: servers, the bus between them, the pods they run in, and clients. Time is virtual, chance has a seed, and
//! a world can be copied: what would happen next is found out by letting it happen to a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use usher_engine::Uid;

use super::bus::{Body, Letter};
use super::client::Clients;
use super::dice::Dice;
use super::jobs::{self, Stage};
use super::kube::Kube;
use super::server::{Around, Habits, Ids, Life, Seat, Server, Sync};
use super::store::Disk;
use crate::words::{NodeId, Ordinal, ServerVersion, Slot, SlotSet};

/// Letters are delivered this often.
const QUANTUM_MS: u64 = 20;

/// Servers and controllers look around this often.
const TICK_MS: u64 = 100;

/// How long a pod may take to end before it is killed.
const GRACE_MS: u64 = 60_000;

/// How long `preStop` waits for a primary to be relieved.
const PRESTOP_MS: u64 = 10_000;

/// How often `preStop` looks.
const PRESTOP_TURN_MS: u64 = 500;

/// What a world is made of.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Times and habits of the servers.
    pub habits: Habits,
    /// Whether pods have volumes.
    pub persistence: bool,
    /// How many nodes pods are spread over.
    pub nodes: u16,
    /// What servers run.
    pub version: ServerVersion,
    /// Chance.
    pub seed: u64,
    /// Which ids servers give themselves: another salt, other ids, all else alike.
    pub salt: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            habits: Habits::default(),
            persistence: true,
            nodes: 1,
            version: ServerVersion {
                major: 9,
                minor: 1,
                patch: 2,
            },
            seed: 1,
            salt: 1,
        }
    }
}

/// What may go wrong.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faults {
    /// Letters and streams from the first to the second do not arrive.
    pub cut: BTreeSet<(Seat, Seat)>,
    /// Servers that the operator does not reach.
    pub unseen: BTreeSet<Seat>,
    /// Jobs fail at this stage.
    pub jobs_fail_at: Option<Stage>,
    /// The next command is answered OK and not done.
    pub next_not_done: bool,
    /// The next command is done and not answered.
    pub next_unanswered: bool,
    /// Steps do not look again before they act.
    pub blind: bool,
    /// The next SIGTERM is lost ✓.
    pub next_signal_lost: bool,
}

/// A world.
#[derive(Debug, Clone)]
pub struct World {
    /// Times and habits of the servers.
    pub habits: Habits,
    /// Milliseconds since it began.
    pub now: u64,
    /// Servers that run, by seat.
    pub servers: BTreeMap<Seat, Server>,
    /// Kubernetes.
    pub kube: Kube,
    /// Clients.
    pub clients: Clients,
    /// What is wrong now.
    pub faults: Faults,
    pub(super) silent_since: BTreeMap<Uid, u64>,
    dice: Dice,
    ids: Ids,
    letters: BTreeMap<(u64, u64), Letter>,
    sent: u64,
    lanes: BTreeMap<(IpAddr, IpAddr), u64>,
}

impl World {
    /// A world without anything in it.
    pub fn new(setup: Setup) -> Self {
        Self {
            kube: Kube::new(setup.persistence, setup.nodes, setup.version),
            habits: setup.habits,
            now: 0,
            servers: BTreeMap::new(),
            clients: Clients::default(),
            faults: Faults::default(),
            silent_since: BTreeMap::new(),
            dice: Dice::new(setup.seed),
            ids: Ids::new(setup.salt),
            letters: BTreeMap::new(),
            sent: 0,
            lanes: BTreeMap::new(),
        }
    }

    /// What the clock says.
    pub fn time(&self) -> Timestamp {
        self.time_at(self.now)
    }

    /// What the clock said then. Worlds begin with the year 2030.
    pub fn time_at(&self, ms: u64) -> Timestamp {
        let begin = 1_893_456_000_000;
        Timestamp::from_millisecond(begin + i64::try_from(ms).unwrap_or(0)).unwrap_or_default()
    }

    /// Lets time pass.
    pub fn advance(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            let step = (QUANTUM_MS - self.now % QUANTUM_MS).min(end - self.now);
            self.now += step;
            if self.now.is_multiple_of(TICK_MS) {
                self.tick();
            }
            self.deliver();
        }
    }

    /// Lets a server act.
    pub fn with<R>(&mut self, seat: Seat, act: impl FnOnce(&mut Server, &mut Around<'_>) -> R) -> Option<R> {
        let mut out = Vec::new();
        let server = self.servers.get_mut(&seat)?;
        let mut around = Around {
            now: self.now,
            dice: &mut self.dice,
            out: &mut out,
            ids: &mut self.ids,
            habits: &self.habits,
        };
        let result = act(server, &mut around);
        self.post(out);
        Some(result)
    }

    /// Lets two servers act on one connection; the second where the first reaches it.
    fn with_two(
        &mut self,
        seat: Seat,
        other: Option<Seat>,
        act: impl FnOnce(&mut Server, Option<&mut Server>, &mut Around<'_>),
    ) {
        let mut out = Vec::new();
        let Some(mut server) = self.servers.remove(&seat) else {
            return;
        };
        let mut around = Around {
            now: self.now,
            dice: &mut self.dice,
            out: &mut out,
            ids: &mut self.ids,
            habits: &self.habits,
        };
        act(
            &mut server,
            other.and_then(|other| self.servers.get_mut(&other)),
            &mut around,
        );
        self.servers.insert(seat, server);
        self.post(out);
    }

    fn post(&mut self, letters: Vec<Letter>) {
        for letter in letters {
            let arrives = self.now + self.dice.between(1, self.habits.delay_ms);
            // One connection keeps its order.
            let lane = self.lanes.entry((letter.from, letter.to)).or_default();
            *lane = arrives.max(*lane);
            self.sent += 1;
            self.letters.insert((*lane, self.sent), letter);
        }
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.letters.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            let letter = entry.remove();
            let from = self.seat_at(letter.from);
            let to = self.seat_at(letter.to);
            match (from, to) {
                (Some(from), Some(to)) if self.faults.cut.contains(&(from, to)) => {}
                (_, Some(to)) => {
                    self.with(to, |server, around| {
                        if server.on_the_bus() {
                            server.read(&letter, around);
                        }
                    });
                }
                (Some(from), None) if letter.body != Body::Refused => {
                    let back = Letter {
                        from: letter.to,
                        to: letter.from,
                        body: Body::Refused,
                    };
                    self.with(from, |server, around| server.read(&back, around));
                }
                _ => {}
            }
        }
    }

    /// Who sits at an address, as far as a process runs there.
    pub fn seat_at(&self, address: IpAddr) -> Option<Seat> {
        let at = self.servers.iter().find(|(_, server)| server.address == address);
        at.map(|(seat, _)| *seat)
    }

    /// Who says that it is this.
    pub fn seat_of(&self, id: &NodeId) -> Option<Seat> {
        let at = self.servers.iter().find(|(_, server)| server.id() == id);
        at.map(|(seat, _)| *seat)
    }

    fn reaches(&self, from: Seat, to: Seat) -> bool {
        !self.faults.cut.contains(&(from, to)) && !self.faults.cut.contains(&(to, from))
    }

    fn tick(&mut self) {
        self.run_pods();
        let seats: Vec<Seat> = self.servers.keys().copied().collect();
        for seat in &seats {
            self.with(*seat, |server, around| {
                let now = around.now;
                match server.life {
                    Life::Gated(until) if now >= until => server.life = Life::Loading(now + around.habits.load_ms),
                    Life::Loading(until) if now >= until => server.loaded(),
                    Life::Running => {
                        server.chat(around);
                        server.look_for_failures(around);
                        server.follow_the_leader(now);
                        server.stand_for_election(around);
                        server.update_state(around, server.started);
                    }
                    _ => {}
                }
            });
        }
        for seat in seats {
            self.stream(seat);
        }
        if self.clients.on {
            let mut clients = std::mem::take(&mut self.clients);
            clients.round(self.now, &mut self.servers);
            self.clients = clients;
        }
    }

    /// Replication and slot jobs of one server.
    fn stream(&mut self, seat: Seat) {
        let Some(server) = self.servers.get(&seat).filter(|server| server.answers()) else {
            return;
        };
        let reached = |world: &Self, id: &NodeId| {
            let address = server.conf.peers.get(id)?.address?;
            let other = world.seat_at(address)?;
            let there = world.servers.get(&other)?;
            (there.id() == id && there.answers() && world.reaches(seat, other)).then_some(other)
        };
        if let Some(primary) = server.primary() {
            let other = reached(self, primary);
            self.with_two(seat, other, |replica, primary, around| {
                jobs::read_on(replica, primary.as_deref(), around);
            });
            return;
        }
        let target = server.exports().next().map(|job| job.target.clone());
        if let Some(target) = target {
            let (other, broken) = (reached(self, &target), self.faults.jobs_fail_at);
            self.with_two(seat, other, |source, target, around| {
                jobs::work(source, target, broken, around)
            });
        }
        // A job whose giver is gone ends on the taker too.
        let lost: Vec<usize> = (self.servers.get(&seat).into_iter())
            .flat_map(|server| server.jobs.iter().enumerate())
            .filter(|(_, job)| !job.exports && !job.stage.over())
            .filter(|(_, job)| {
                let source = self.seat_of(&job.source).and_then(|seat| self.servers.get(&seat));
                !source.is_some_and(|source| source.exports().any(|export| export.name == job.name))
            })
            .map(|(at, _)| at)
            .collect();
        if let Some(server) = self.servers.get_mut(&seat) {
            for at in lost {
                if let Some(job) = server.jobs.get_mut(at) {
                    (job.stage, job.message) = (Stage::Failed, "Connection lost".into());
                }
            }
        }
    }

    fn run_pods(&mut self) {
        let (now, dice) = (self.now, &mut self.dice);
        self.kube.control(now, &mut || dice.between(300, 1_500));
        let ordinals: Vec<Ordinal> = self.kube.pods.keys().copied().collect();
        for ordinal in ordinals {
            self.start_if_due(ordinal);
            self.end_if_due(ordinal);
            let server = self.servers.get(&ordinal.0);
            let ready =
                server.is_some_and(|server| server.answers() && (server.is_primary() || server.sync == Sync::Up));
            self.kube.set_ready(ordinal, ready, now);
        }
    }

    fn start_if_due(&mut self, ordinal: Ordinal) {
        let Some(pod) = self.kube.pods.get(&ordinal) else {
            return;
        };
        let due = pod.starts_at.is_some_and(|at| self.now >= at) && pod.signalled.is_none();
        if !due || self.kube.trouble(ordinal, pod).is_some() {
            return;
        }
        let version = pod.version;
        let address = match pod.address {
            Some(address) => address,
            None => self.kube.address(),
        };
        let disk = self.kube.disk(ordinal).cloned().unwrap_or_default();
        self.seat(ordinal.0, address, version, &disk);
        let revision = self.kube.count();
        if let Some(pod) = self.kube.pods.get_mut(&ordinal) {
            (pod.address, pod.starts_at, pod.revision) = (Some(address), None, revision);
        }
    }

    /// Starts a server.
    pub fn seat(&mut self, seat: Seat, address: IpAddr, version: ServerVersion, disk: &Disk) {
        let mut out = Vec::new();
        let mut around = Around {
            now: self.now,
            dice: &mut self.dice,
            out: &mut out,
            ids: &mut self.ids,
            habits: &self.habits,
        };
        let server = Server::start(seat, address, version, disk, &mut around);
        self.servers.insert(seat, server);
        self.post(out);
    }

    /// A pod on its way out: `preStop`, SIGTERM, and after a minute SIGKILL.
    fn end_if_due(&mut self, ordinal: Ordinal) {
        let Some(deleted) = self.kube.pods.get(&ordinal).and_then(|pod| pod.deleted) else {
            return;
        };
        let signalled = self.kube.pods.get(&ordinal).and_then(|pod| pod.signalled);
        if !self.servers.contains_key(&ordinal.0) {
            self.kube.pods.remove(&ordinal);
            return;
        }
        if self.now >= deleted + GRACE_MS {
            self.end(ordinal.0, false);
            self.kube.pods.remove(&ordinal);
            return;
        }
        let heir = self.heir(ordinal.0);
        if signalled.is_none() {
            let waited = self.now.saturating_sub(deleted);
            let between_looks = !waited.is_multiple_of(PRESTOP_TURN_MS);
            if waited < PRESTOP_MS && (heir.is_some() || between_looks) {
                return;
            }
            if let Some(pod) = self.kube.pods.get_mut(&ordinal) {
                pod.signalled = Some(self.now);
            }
            if std::mem::take(&mut self.faults.next_signal_lost) {
                return;
            }
            // `shutdown-on-sigterm failover`: the best replica stands for election, and the process ends.
            if let Some(heir) = heir {
                self.with(heir, |server, around| server.failover_force(around).ok());
            }
            self.end(ordinal.0, true);
            self.kube.pods.remove(&ordinal);
        }
    }

    /// A replica that has all that a primary has.
    fn heir(&self, seat: Seat) -> Option<Seat> {
        let primary = self
            .servers
            .get(&seat)
            .filter(|server| server.is_primary() && server.answers())?;
        let follows = |server: &&Server| server.primary() == Some(primary.id()) && server.sync == Sync::Up;
        let heir = self
            .servers
            .values()
            .filter(follows)
            .max_by_key(|server| server.store.offset)?;
        Some(heir.seat)
    }

    /// Ends a process; its files stay.
    fn end(&mut self, seat: Seat, orderly: bool) {
        if !orderly {
            self.forgive(seat);
        }
        if let Some(server) = self.servers.remove(&seat) {
            let left = server.disk(&self.habits, orderly);
            if let Some(disk) = self.kube.disk(Ordinal(seat)) {
                *disk = left;
            }
        }
    }

    /// Writes that only a dying primary has are lost without anybody's fault.
    fn forgive(&mut self, seat: Seat) {
        let Some(dying) = self.servers.get(&seat) else {
            return;
        };
        let copies = |slot: Slot, key: u32| {
            let others = self.servers.values().filter(|other| other.seat != seat);
            others
                .filter_map(|other| other.store.keys.get(slot, key))
                .max()
                .unwrap_or(0)
        };
        let owned = dying.slots();
        let mut known = BTreeMap::new();
        for (slot, key) in self.clients.keys.iter().filter(|(slot, _)| owned.contains(*slot)) {
            known.insert(*key, copies(*slot, *key));
        }
        for (key, copied) in known {
            if let Some(acknowledged) = self.clients.acknowledged.get_mut(&key) {
                *acknowledged = copied.min(*acknowledged);
            }
        }
    }

    /// Kills a server; its container starts again.
    pub fn kill(&mut self, ordinal: Ordinal) {
        self.end(ordinal.0, false);
        let starts = self.now + self.dice.between(300, 1_000);
        if let Some(pod) = self.kube.pods.get_mut(&ordinal) {
            pod.starts_at = Some(starts);
        }
    }

    /// A pod and its server vanish, as with their node; the set makes a new one.
    pub fn lose_pod(&mut self, ordinal: Ordinal) {
        self.end(ordinal.0, false);
        self.kube.pods.remove(&ordinal);
    }

    /// A pod, its server and its volume vanish.
    pub fn lose_volume(&mut self, ordinal: Ordinal) {
        self.lose_pod(ordinal);
        self.kube.volumes.remove(&ordinal);
    }

    /// Cuts a server off from all others, both ways; or joins it again.
    pub fn isolate(&mut self, seat: Seat, cut: bool) {
        let others: Vec<Seat> = self.servers.keys().copied().filter(|other| *other != seat).collect();
        for other in others {
            for pair in [(seat, other), (other, seat)] {
                if cut {
                    self.faults.cut.insert(pair);
                } else {
                    self.faults.cut.remove(&pair);
                }
            }
        }
    }

    /// Slots that a live primary would serve, whatever others believe: it owns them, and nobody with a higher epoch does.
    pub fn served(&self) -> SlotSet {
        let alive = self
            .servers
            .values()
            .filter(|server| server.answers() && server.is_primary());
        alive.fold(SlotSet::new(), |all, server| all.union(&server.slots()))
    }
}

impl Server {
    /// A replica whose primary follows somebody else follows that one.
    fn follow_the_leader(&mut self, now: u64) {
        let next = self
            .primary()
            .and_then(|primary| self.conf.peers.get(primary)?.primary.clone())
            .filter(|next| next != self.id() && self.conf.peers.contains_key(next));
        if let Some(next) = next {
            self.set_primary(&next, now);
        }
    }
}
