//! What can be told to a server. Each answers as servers do, refusals included.

use super::gossip::BAN_MS;
use super::server::{Around, Conf, Entry, Server, Sync};
use super::store::{Change, Store};
use crate::words::{NodeId, Slot, SlotSet};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What a server answers: done, or its own words why not.
pub type Reply = Result<(), String>;

fn refuse<T>(why: &str) -> Result<T, String> {
    Err(why.to_owned())
}

impl Server {
    /// `CLUSTER MEET`.
    pub fn meet(&mut self, address: IpAddr, around: &mut Around<'_>) -> Reply {
        self.begin_handshake(address, around);
        Ok(())
    }

    /// `CLUSTER FORGET`.
    pub fn told_to_forget(&mut self, id: &NodeId, around: &mut Around<'_>) -> Reply {
        if id == self.id() {
            return refuse("ERR I tried hard but I can't forget myself...");
        }
        if self.primary() == Some(id) {
            return refuse("ERR Can't forget my master!");
        }
        if !self.conf.peers.contains_key(id) {
            return refuse("ERR Unknown node");
        }
        self.forget(id, around.now + BAN_MS);
        Ok(())
    }

    /// `CLUSTER SET-CONFIG-EPOCH`.
    pub fn set_config_epoch(&mut self, epoch: u64) -> Reply {
        if self.conf.peers.len() > 1 {
            return refuse("ERR The user can assign a config epoch only when the node does not know any other node.");
        }
        if self.epoch() != 0 {
            return refuse("ERR Node config epoch is already non-zero");
        }
        self.conf.current_epoch = self.conf.current_epoch.max(epoch);
        if let Some(own) = self.own_mut() {
            own.epoch = epoch;
        }
        Ok(())
    }

    /// `CLUSTER ADDSLOTSRANGE`.
    pub fn add_slots(&mut self, slots: &SlotSet) -> Reply {
        if let Some(busy) = slots.iter().find(|slot| self.owner_of(*slot).is_some()) {
            return refuse(&format!("ERR Slot {} is already busy", busy.0));
        }
        let id = self.id().clone();
        self.assign(slots, &id);
        self.conf.importing.retain(|slot, _| !slots.contains(*slot));
        Ok(())
    }

    /// `CLUSTER FLUSHSLOTS`.
    pub fn flush_slots(&mut self) -> Reply {
        if self.store.keys.count() > 0 {
            return refuse("ERR DB must be empty to perform CLUSTER FLUSHSLOTS.");
        }
        if let Some(own) = self.own_mut() {
            own.slots = SlotSet::new();
        }
        Ok(())
    }

    /// `FLUSHALL`.
    pub fn flush_all(&mut self) -> Reply {
        if !self.is_primary() {
            return refuse("READONLY You can't write against a read only replica.");
        }
        self.store.change(Change::Flushed);
        // What AOF and RDB would bring back is empty from here on.
        self.saved = Some(super::store::Keys::default());
        self.aof_only = None;
        self.fail_jobs("Data was flushed");
        Ok(())
    }

    /// `CLUSTER RESET HARD`, or `SOFT`. A replica's data goes with it in memory; its AOF stays as it is ✓.
    pub fn reset(&mut self, hard: bool, around: &mut Around<'_>) -> Reply {
        if self.is_primary() && self.store.keys.count() > 0 {
            return refuse("ERR CLUSTER RESET can't be called with master nodes containing keys");
        }
        let replica = !self.is_primary();
        let shard = self.own().map(|own| own.shard.clone());
        let id = if hard { around.ids.node() } else { self.id().clone() };
        let shard = match shard {
            Some(shard) if !hard && !replica => shard,
            _ => around.ids.shard(),
        };
        let mut own = Entry::new(self.address, shard, around.now);
        if !hard {
            own.epoch = self.epoch();
        }
        self.conf = Conf {
            peers: [(id.clone(), own)].into(),
            id,
            current_epoch: if hard { 0 } else { self.conf.current_epoch },
            voted_epoch: if hard { 0 } else { self.conf.voted_epoch },
            migrating: BTreeMap::new(),
            importing: BTreeMap::new(),
        };
        if replica {
            let old = std::mem::replace(&mut self.store, Store::empty(around.ids.number()));
            self.aof_only = Some(old.keys);
        }
        self.handshakes.clear();
        self.banned.clear();
        self.jobs.clear();
        (self.manual, self.handing_over, self.election) = (None, None, None);
        (self.sync, self.state_ok, self.minority_at) = (Sync::Down, false, around.now);
        Ok(())
    }

    /// `CLUSTER REPLICATE`.
    pub fn replicate(&mut self, primary: &NodeId, around: &mut Around<'_>) -> Reply {
        if primary == self.id() {
            return refuse("ERR Can't replicate myself");
        }
        match self.conf.peers.get(primary) {
            None => return refuse(&format!("ERR Unknown node {primary}")),
            Some(entry) if entry.primary.is_some() => {
                return refuse("ERR I can only replicate a master, not a replica.");
            }
            Some(_) => {}
        }
        if self.is_primary() && !(self.slots().is_empty() && self.store.keys.count() == 0) {
            return refuse("ERR To set a master the node must be empty and without assigned slots.");
        }
        if self.primary() != Some(primary) {
            self.set_primary(primary, around.now);
            self.broadcast(around);
        }
        Ok(())
    }

    /// `CLUSTER REPLICATE NO ONE`: an empty primary, in a shard of its own.
    pub fn replicate_no_one(&mut self, around: &mut Around<'_>) -> Reply {
        if self.is_primary() {
            return Ok(());
        }
        if !self.version.moves_slots_atomically() {
            return refuse("ERR Unknown subcommand or wrong number of arguments for 'REPLICATE'.");
        }
        let shard = around.ids.shard();
        if let Some(own) = self.own_mut() {
            (own.primary, own.shard) = (None, shard);
        }
        self.store = Store::empty(around.ids.number());
        (self.manual, self.election, self.sync) = (None, None, Sync::Down);
        self.broadcast(around);
        Ok(())
    }

    /// `CLUSTER SETSLOT … IMPORTING`.
    pub fn set_importing(&mut self, slot: Slot, from: &NodeId) -> Reply {
        self.may_set_slot(from)?;
        if self.owner_of(slot) == Some(self.id()) {
            return refuse(&format!("ERR I'm already the owner of hash slot {}", slot.0));
        }
        self.conf.importing.insert(slot, from.clone());
        Ok(())
    }

    /// `CLUSTER SETSLOT … MIGRATING`.
    pub fn set_migrating(&mut self, slot: Slot, to: &NodeId) -> Reply {
        self.may_set_slot(to)?;
        if self.owner_of(slot) != Some(self.id()) {
            return refuse(&format!("ERR I'm not the owner of hash slot {}", slot.0));
        }
        self.conf.migrating.insert(slot, to.clone());
        Ok(())
    }

    /// `CLUSTER SETSLOT … STABLE`.
    pub fn set_stable(&mut self, slot: Slot) -> Reply {
        self.conf.importing.remove(&slot);
        self.conf.migrating.remove(&slot);
        Ok(())
    }

    /// `CLUSTER SETSLOT … NODE`.
    pub fn set_owner(&mut self, slot: Slot, owner: &NodeId, around: &mut Around<'_>) -> Reply {
        self.may_set_slot(owner)?;
        let own = owner == self.id();
        let had = self.owner_of(slot) == Some(self.id());
        if had && !own && self.store.keys.in_slot(slot) > 0 {
            return refuse(&format!(
                "ERR Can't assign hashslot {} to a different node while I still hold keys for this hash slot.",
                slot.0
            ));
        }
        self.assign(&SlotSet::one(slot), owner);
        self.conf.migrating.remove(&slot);
        if own && self.conf.importing.remove(&slot).is_some() {
            // What has come by hand must win over the giver's claim.
            self.bump_epoch();
            self.broadcast(around);
        }
        Ok(())
    }

    fn may_set_slot(&self, other: &NodeId) -> Reply {
        if !self.is_primary() {
            return refuse("ERR You can use SETSLOT only with masters.");
        }
        match self.conf.peers.get(other) {
            None => refuse(&format!("ERR Unknown node {other}")),
            Some(entry) if entry.primary.is_some() => refuse("ERR Target node is not a master"),
            Some(_) => Ok(()),
        }
    }
}
