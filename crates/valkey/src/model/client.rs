//! Clients: they write counting versions through slot maps that grow old, follow redirects, and write down every answer
//! that they should not have had.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::server::{Life, Seat, Server};
use super::store::Change;
use crate::words::Slot;

/// How long a held write may take before it is an error.
const PATIENCE_MS: u64 = 5_000;

/// How often a lazy client uses a key: less often than a drained member lingers (R11), or it could not know.
const LAZY_MS: u64 = 3_000;

/// How many redirects are followed for one command.
const REDIRECTS: usize = 5;

/// What a server answers to a command on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served {
    /// Done; the version that was read.
    Done(Option<u64>),
    /// Another server has the slot for good.
    Moved(Option<IpAddr>),
    /// Another server has the key, this once.
    Ask(Option<IpAddr>),
    /// Held for a moment.
    Held,
    /// An error.
    Error(&'static str),
}

impl Server {
    /// Serves a read, or a write of `version`.
    pub fn serve(&mut self, slot: Slot, key: u32, write: Option<u64>, asking: bool) -> Served {
        match self.life {
            Life::Running => {}
            Life::Loading(_) => return Served::Error("LOADING"),
            Life::Gated(_) => return Served::Error("refused"),
            Life::Frozen => return Served::Held,
        }
        if !self.state_ok {
            return Served::Error("CLUSTERDOWN The cluster is down");
        }
        let Some(owner) = self.owner_of(slot).cloned() else {
            return Served::Error("CLUSTERDOWN Hash slot not served");
        };
        let address = |id| self.conf.peers.get(id).and_then(|peer| peer.address);
        let importing = asking && self.conf.importing.contains_key(&slot);
        if owner != *self.id() && !importing {
            return Served::Moved(address(&owner));
        }
        if let (Some(to), None) = (self.conf.migrating.get(&slot), self.store.keys.get(slot, key)) {
            return Served::Ask(address(to));
        }
        if let Some(version) = write {
            if self.holds(slot) {
                return Served::Held;
            }
            self.store.change(Change::Set(slot, key, version));
        }
        Served::Done(self.store.keys.get(slot, key))
    }
}

/// Something that went wrong for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// When.
    pub at: u64,
    /// For which slot.
    pub slot: Slot,
    /// What.
    pub what: String,
}

/// All clients of a world.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Clients {
    /// Whether they have begun.
    pub on: bool,
    /// Whether some use their keys only every now and then.
    pub lazy: bool,
    /// Which keys they use.
    pub keys: Vec<(Slot, u32)>,
    /// Where they believe slots to be.
    pub map: BTreeMap<Slot, IpAddr>,
    /// The version of each key that was acknowledged last.
    pub acknowledged: BTreeMap<u32, u64>,
    /// Writes that are held, and since when.
    pub held: BTreeMap<u32, u64>,
    /// The longest that a write was held.
    pub longest_hold_ms: u64,
    /// What went wrong.
    pub troubles: Vec<Trouble>,
    next: u64,
}

impl Clients {
    /// Clients that use this many keys, spread evenly.
    pub fn spread(slots: u16, keys: u32) -> Self {
        let place = |key: u32| Slot(u16::try_from(u64::from(key) * u64::from(slots) / u64::from(keys)).unwrap_or(0));
        Self {
            on: true,
            keys: (0..keys).map(|key| (place(key), key)).collect(),
            ..Self::default()
        }
    }

    /// One round: every key is written and read.
    pub fn round(&mut self, now: u64, servers: &mut BTreeMap<Seat, Server>) {
        for (slot, key) in self.keys.clone() {
            if self.lazy && key.is_multiple_of(2) && !now.is_multiple_of(LAZY_MS) && !self.held.contains_key(&key) {
                continue;
            }
            self.next += 1;
            let version = self.next;
            match self.command(slot, key, Some(version), servers) {
                Served::Done(_) => {
                    self.acknowledged.insert(key, version);
                    if let Some(since) = self.held.remove(&key) {
                        self.longest_hold_ms = self.longest_hold_ms.max(now.saturating_sub(since));
                    }
                }
                Served::Held => {
                    let since = *self.held.entry(key).or_insert(now);
                    if now > since + PATIENCE_MS {
                        self.held.remove(&key);
                        self.trouble(now, slot, "no answer for 5 s".into());
                    }
                    continue;
                }
                other => {
                    self.trouble(now, slot, format!("write: {other:?}"));
                    self.ask_around(servers);
                    continue;
                }
            }
            match self.command(slot, key, None, servers) {
                Served::Done(read) => {
                    let known = self.acknowledged.get(&key).copied();
                    if read < known {
                        self.trouble(
                            now,
                            slot,
                            format!("key {key}: read {read:?} after {known:?} was acknowledged"),
                        );
                        self.acknowledged.insert(key, read.unwrap_or(0));
                    }
                }
                Served::Held => {}
                other => self.trouble(now, slot, format!("read: {other:?}")),
            }
        }
    }

    /// After an error a client asks whoever answers where slots are now.
    fn ask_around(&mut self, servers: &BTreeMap<Seat, Server>) {
        if let Some(server) = servers.values().find(|server| server.answers() && server.state_ok) {
            self.learn(server);
        }
    }

    fn trouble(&mut self, at: u64, slot: Slot, what: String) {
        self.troubles.push(Trouble { at, slot, what });
    }

    fn command(&mut self, slot: Slot, key: u32, write: Option<u64>, servers: &mut BTreeMap<Seat, Server>) -> Served {
        let Some(mut at) = self.map.get(&slot).copied() else {
            self.ask_around(servers);
            return Served::Error("nobody to ask");
        };
        let mut asking = false;
        for _ in 0..REDIRECTS {
            let Some(server) = servers.values_mut().find(|server| server.address == at) else {
                return Served::Error("refused");
            };
            let served = server.serve(slot, key, write, asking);
            if let Served::Moved(_) = served {
                self.learn(server);
            }
            (at, asking) = match served {
                Served::Moved(Some(to)) => (to, false),
                Served::Ask(Some(to)) => (to, true),
                other => return other,
            };
        }
        Served::Error("too many redirects")
    }

    /// Reads the whole slot map of a server.
    pub fn learn(&mut self, server: &Server) {
        for entry in server.conf.peers.values() {
            for (slot, _) in &self.keys {
                if let (true, Some(address)) = (entry.slots.contains(*slot), entry.address) {
                    self.map.insert(*slot, address);
                }
            }
        }
    }
}
