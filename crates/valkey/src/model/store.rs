//! What a server stores: keys with versions, the log that its replicas read, and what survives it on a volume.

use std::collections::{BTreeMap, VecDeque};

use super::server::Conf;
use crate::words::{Slot, SlotSet};

/// How many entries a primary keeps for replicas that were away (`repl-backlog-size`).
const BACKLOG: usize = 512;

/// Keys by slot, each with the number of its last write.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Keys(BTreeMap<Slot, BTreeMap<u32, u64>>);

impl Keys {
    /// A key's version.
    pub fn get(&self, slot: Slot, key: u32) -> Option<u64> {
        self.0.get(&slot)?.get(&key).copied()
    }

    /// Sets a key.
    pub fn set(&mut self, slot: Slot, key: u32, version: u64) {
        self.0.entry(slot).or_default().insert(key, version);
    }

    /// `DBSIZE`.
    pub fn count(&self) -> u64 {
        self.0.values().map(|keys| keys.len() as u64).sum()
    }

    /// How many a slot has.
    pub fn in_slot(&self, slot: Slot) -> usize {
        self.0.get(&slot).map_or(0, BTreeMap::len)
    }

    /// Everything in these slots.
    pub fn within(&self, slots: &SlotSet) -> Keys {
        let keys = self.0.iter().filter(|(slot, _)| slots.contains(**slot));
        Keys(keys.map(|(slot, keys)| (*slot, keys.clone())).collect())
    }

    /// Adds everything of the other's; the other's versions win.
    pub fn take_in(&mut self, other: &Keys) {
        for (slot, keys) in &other.0 {
            self.0.entry(*slot).or_default().extend(keys);
        }
    }

    /// Drops everything in these slots.
    pub fn drop_slots(&mut self, slots: &SlotSet) {
        self.0.retain(|slot, _| !slots.contains(*slot));
    }

    /// Slots that have keys.
    pub fn slots(&self) -> SlotSet {
        self.0
            .iter()
            .filter(|(_, keys)| !keys.is_empty())
            .map(|(slot, _)| *slot)
            .collect()
    }

    /// Every key with its slot and version.
    pub fn all(&self) -> impl Iterator<Item = (Slot, u32, u64)> + '_ {
        self.0
            .iter()
            .flat_map(|(slot, keys)| keys.iter().map(|(key, version)| (*slot, *key, *version)))
    }
}

/// One change of the data, as replicas read it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// A write.
    Set(Slot, u32, u64),
    /// Slots that came from another shard, with their keys.
    TakenIn(Keys),
    /// Slots that went away.
    Dropped(SlotSet),
    /// `FLUSHALL`.
    Flushed,
}

/// The data and its history: a log with offsets, of which the end is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Store {
    /// The keys now.
    pub keys: Keys,
    /// Which history this is (`master_replid`).
    pub history: u64,
    /// The history before a promotion, and how far it is ours too (`master_replid2`).
    pub before: Option<(u64, u64)>,
    /// How far the log goes.
    pub offset: u64,
    log: VecDeque<Change>,
}

impl Store {
    /// Nothing, with a history of its own.
    pub fn empty(history: u64) -> Self {
        Self {
            history,
            ..Self::default()
        }
    }

    /// These keys, with a history of its own.
    pub fn of(keys: Keys, history: u64) -> Self {
        Self {
            keys,
            history,
            ..Self::default()
        }
    }

    /// Changes the data, and says so to replicas.
    pub fn change(&mut self, change: Change) {
        match &change {
            Change::Set(slot, key, version) => self.keys.set(*slot, *key, *version),
            Change::TakenIn(keys) => self.keys.take_in(keys),
            Change::Dropped(slots) => self.keys.drop_slots(slots),
            Change::Flushed => self.keys = Keys::default(),
        }
        self.offset += 1;
        self.log.push_back(change);
        if self.log.len() > BACKLOG {
            self.log.pop_front();
        }
    }

    /// Begins a history of its own, as a promoted replica does; replicas of the old one may go on from here.
    pub fn promote(&mut self, history: u64) {
        self.before = Some((self.history, self.offset));
        self.history = history;
    }

    /// Whether a replica that is so far in that history can go on without all the data (partial resync).
    pub fn can_continue(&self, history: u64, offset: u64) -> bool {
        let ours = self.history == history || self.before.is_some_and(|(old, upto)| old == history && offset <= upto);
        ours && offset <= self.offset && self.offset - offset <= self.log.len() as u64
    }

    /// Reads on in the log of a primary, at most so many entries.
    pub fn follow(&mut self, primary: &Store, at_most: u64) {
        let behind = primary.offset.saturating_sub(self.offset);
        let from = primary
            .log
            .len()
            .saturating_sub(usize::try_from(behind).unwrap_or(usize::MAX));
        let more = usize::try_from(behind.min(at_most)).unwrap_or(usize::MAX);
        for change in primary.log.iter().skip(from).take(more) {
            self.change(change.clone());
        }
        (self.history, self.before) = (primary.history, primary.before);
    }
}

/// What outlives a server: its folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Disk {
    /// `nodes.conf`.
    pub conf: Option<Conf>,
    /// AOF or RDB, whichever is loaded at the next start.
    pub keys: Option<Keys>,
}
