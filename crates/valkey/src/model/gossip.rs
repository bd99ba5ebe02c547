//! How servers come to know each other, and how claims on slots spread: the highest epoch wins.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::bus::{Body, Claim, Header, Letter, Rumour};
use super::server::{Around, Entry, Server};
use super::store::Change;
use crate::words::{NodeId, Slot, SlotSet};

/// How long a forgotten id is not taken in again by hearsay.
pub const BAN_MS: u64 = 60_000;

/// How often a server asks somebody by chance.
const CHAT_MS: u64 = 1_000;

/// How soon a lost link is tried again.
const RETRY_MS: u64 = 500;

impl Server {
    /// What its pings and pongs say now.
    pub fn header(&self, now: u64) -> Arc<Header> {
        let own = self.own();
        let voice = self.primary().unwrap_or(self.id());
        let spoken_for = self.conf.peers.get(voice);
        let shard = own.map(|own| own.shard.clone());
        let rumours = self.conf.peers.iter().filter(|(id, _)| *id != self.id());
        Arc::new(Header {
            sender: self.id().clone(),
            shard: shard.unwrap_or_else(|| super::server::Ids::new(0).shard()),
            address: self.address,
            current_epoch: self.conf.current_epoch,
            primary: self.primary().cloned(),
            claim: Claim {
                id: voice.clone(),
                epoch: spoken_for.map_or(0, |entry| entry.epoch),
                slots: spoken_for.map(|entry| entry.slots.clone()).unwrap_or_default(),
            },
            offset: self.store.offset,
            rumours: rumours
                .map(|(id, entry)| Rumour {
                    id: id.clone(),
                    address: entry.address,
                    shard: entry.shard.clone(),
                    primary: entry.primary.clone(),
                    failing: !entry.reachable(),
                    failed: entry.failed_at.is_some(),
                })
                .collect(),
            forgotten: self
                .banned
                .iter()
                .map(|(id, until)| (id.clone(), until.saturating_sub(now)))
                .filter(|(_, left)| *left > 0)
                .collect(),
        })
    }

    /// Sends a letter.
    pub fn send(&self, to: IpAddr, body: Body, around: &mut Around<'_>) {
        let from = self.address;
        around.out.push(Letter { from, to, body });
    }

    /// Tells everybody what has changed, unasked.
    pub fn broadcast(&self, around: &mut Around<'_>) {
        let header = self.header(around.now);
        self.send_all(&Body::Pong(header), around);
    }

    /// The same letter to everybody.
    pub fn send_all(&self, body: &Body, around: &mut Around<'_>) {
        let others = self.conf.peers.iter().filter(|(id, _)| *id != self.id());
        for address in others.filter_map(|(_, entry)| entry.address) {
            self.send(address, body.clone(), around);
        }
    }

    /// Asks others how they are: somebody by chance each second, and whoever was not asked for half the node timeout.
    pub fn chat(&mut self, around: &mut Around<'_>) {
        let (now, timeout) = (around.now, around.habits.node_timeout_ms);
        self.banned.retain(|_, until| *until > now);
        self.handshakes.retain(|_, until| *until > now);
        let chance = if now >= self.chatted + CHAT_MS {
            self.chatted = now;
            let others: Vec<NodeId> = self
                .conf
                .peers
                .keys()
                .filter(|id| **id != self.conf.id)
                .cloned()
                .collect();
            around.dice.pick(&others).cloned()
        } else {
            None
        };
        let header = self.header(now);
        let mut letters = Vec::new();
        for (id, entry) in &mut self.conf.peers {
            let Some(address) = entry.address.filter(|_| *id != self.conf.id) else {
                continue;
            };
            let waited = now.saturating_sub(entry.asked);
            // Somebody who answers but never asks has forgotten this server, which then introduces itself again.
            let strange = now > entry.inbound + 2 * timeout && now > entry.met + timeout && entry.linked;
            if strange {
                entry.met = now;
                letters.push((address, Body::Meet(header.clone())));
            }
            let due = waited >= timeout / 2 || (!entry.linked && waited >= RETRY_MS) || chance.as_ref() == Some(id);
            if due {
                entry.asked = now;
                entry.owes.get_or_insert(now);
                letters.push((address, Body::Ping(header.clone())));
            }
            if entry.owes.is_some_and(|since| now > since + timeout / 2) {
                entry.linked = false;
            }
        }
        for address in self.handshakes.keys() {
            letters.push((*address, Body::Meet(header.clone())));
        }
        for (to, body) in letters {
            self.send(to, body, around);
        }
    }

    /// Reads a letter.
    pub fn read(&mut self, letter: &Letter, around: &mut Around<'_>) {
        match &letter.body {
            Body::Ping(header) | Body::Pong(header) | Body::Meet(header) => self.hear(letter, header, around),
            Body::Update(claim) => self.corrected(claim, around),
            Body::Fail { sender, failed } => self.told_failed(sender, failed, around),
            Body::VoteFor {
                claim,
                primary,
                epoch,
                forced,
            } => self.asked_for_vote(letter.from, claim, primary, *epoch, *forced, around),
            Body::Vote { sender, epoch } => self.voted_for(sender, *epoch, around),
            Body::HandOver(replica) => self.asked_to_hand_over(letter.from, replica, around),
            Body::StandsStill { sender, offset } => {
                if let (true, Some(manual)) = (self.primary() == Some(sender), &mut self.manual) {
                    manual.upto = Some(*offset);
                }
            }
            Body::Refused => self.refused(letter.from),
        }
    }

    fn refused(&mut self, at: IpAddr) {
        for entry in self.conf.peers.values_mut().filter(|entry| entry.address == Some(at)) {
            entry.linked = false;
        }
    }

    fn hear(&mut self, letter: &Letter, header: &Header, around: &mut Around<'_>) {
        let now = around.now;
        if header.sender == *self.id() {
            return;
        }
        let answered = matches!(letter.body, Body::Pong(_));
        if !answered {
            if matches!(letter.body, Body::Meet(_)) && !self.conf.peers.contains_key(&header.sender) {
                self.begin_handshake(header.address, around);
            }
            let pong = Body::Pong(self.header(now));
            self.send(letter.from, pong, around);
        } else {
            self.answered_from(letter.from, header, around);
        }
        let Some(entry) = self.conf.peers.get_mut(&header.sender) else {
            return;
        };
        if answered {
            (entry.heard, entry.owes, entry.linked, entry.suspected) = (now, None, true, false);
            entry.reports.clear();
        } else {
            entry.inbound = now;
            if entry.address != Some(header.address) {
                // It moved, and says so itself.
                (entry.address, entry.linked, entry.asked) = (Some(header.address), true, 0);
            }
        }
        entry.offset = header.offset;
        if header.primary.is_none() {
            entry.epoch = entry.epoch.max(header.claim.epoch);
        }
        self.conf.current_epoch = self.conf.current_epoch.max(header.current_epoch);
        if answered {
            self.answers_again(&header.sender, around);
        }
        self.learn_role(header);
        self.learn_slots(letter.from, header, around);
        self.settle_epochs(header, around);
        self.hear_rumours(header, now);
        self.forget_too(header, now);
    }

    /// An answer from an address: of somebody who was met there, or of somebody else than who was there.
    fn answered_from(&mut self, from: IpAddr, header: &Header, around: &mut Around<'_>) {
        if self.handshakes.remove(&from).is_some() {
            match self.conf.peers.get_mut(&header.sender) {
                Some(entry) => entry.address = Some(from),
                None => {
                    let entry = Entry::new(from, header.shard.clone(), around.now);
                    self.conf.peers.insert(header.sender.clone(), entry);
                }
            }
        }
        // An address that had another server: that one is nobody knows where, and has failed ✓.
        let (own, sender) = (&self.conf.id, &header.sender);
        for (id, entry) in &mut self.conf.peers {
            if entry.address == Some(from) && id != own && id != sender {
                (entry.address, entry.linked) = (None, false);
                entry.failed_at.get_or_insert(around.now);
                entry.owes.get_or_insert(around.now);
            }
        }
    }

    /// Wants to know who is at an address.
    pub fn begin_handshake(&mut self, address: IpAddr, around: &mut Around<'_>) {
        if address == self.address {
            return;
        }
        let until = around.now + around.habits.node_timeout_ms.max(1_000);
        if self.handshakes.insert(address, until).is_none() {
            let meet = Body::Meet(self.header(around.now));
            self.send(address, meet, around);
        }
    }

    fn learn_role(&mut self, header: &Header) {
        let Some(entry) = self.conf.peers.get_mut(&header.sender) else {
            return;
        };
        entry.shard = header.shard.clone();
        match &header.primary {
            None => entry.primary = None,
            Some(primary) => {
                let given_up = std::mem::take(&mut entry.slots);
                entry.primary = Some(primary.clone());
                // A primary that steps down in its own shard leaves its slots to the one it follows now.
                let same = self.conf.peers.get(primary).is_some_and(|p| p.shard == header.shard);
                if same && !given_up.is_empty() {
                    self.assign(&given_up, primary);
                }
            }
        }
    }

    fn learn_slots(&mut self, from: IpAddr, header: &Header, around: &mut Around<'_>) {
        if header.primary.is_none() {
            self.take_claim(&header.claim, around);
        }
        // Somebody with a higher epoch has a slot that the sender, or the sender's primary, still claims.
        let newer = self.conf.peers.iter().find(|(id, entry)| {
            **id != header.claim.id
                && entry.epoch > header.claim.epoch
                && !entry.slots.common(&header.claim.slots).is_empty()
        });
        if let Some((id, entry)) = newer {
            let claim = Claim {
                id: id.clone(),
                epoch: entry.epoch,
                slots: entry.slots.clone(),
            };
            self.send(from, Body::Update(claim), around);
        }
    }

    /// Somebody says that this server's claim, or somebody's it repeated, is out of date.
    fn corrected(&mut self, claim: &Claim, around: &mut Around<'_>) {
        let Some(entry) = self.conf.peers.get_mut(&claim.id) else {
            return;
        };
        if entry.epoch >= claim.epoch {
            return;
        }
        (entry.epoch, entry.primary) = (claim.epoch, None);
        self.take_claim(claim, around);
    }

    /// Gives a claim what it has a right to. A server whose shard loses its last slots to it follows it.
    pub fn take_claim(&mut self, claim: &Claim, around: &mut Around<'_>) {
        let Some(sender) = self.conf.peers.get(&claim.id) else {
            return;
        };
        if sender.slots == claim.slots || claim.id == *self.id() {
            return;
        }
        // What is being taken in by hand is settled by hand.
        let by_hand: SlotSet = self.conf.importing.keys().copied().collect();
        let wanted = claim.slots.minus(&by_hand).minus(&sender.slots);
        let same_shard = self.own().is_some_and(|own| own.shard == sender.shard);
        let defended: SlotSet = (self.conf.peers.iter())
            .filter(|(id, entry)| **id != claim.id && entry.epoch >= claim.epoch)
            .fold(SlotSet::new(), |all, (_, entry)| all.union(&entry.slots));
        let won = wanted.minus(&defended);
        if won.is_empty() {
            return;
        }
        let current = self.primary().unwrap_or(self.id()).clone();
        let had = self
            .conf
            .peers
            .get(&current)
            .map(|entry| entry.slots.clone())
            .unwrap_or_default();
        let lost = had.common(&won);
        self.assign(&won, &claim.id);
        self.conf.migrating.retain(|slot, _| !won.contains(*slot));
        let all_lost = !lost.is_empty() && lost == had;
        // Of another shard, it stays an empty primary (`cluster-allow-replica-migration no`) ✓.
        if all_lost && same_shard && current != claim.id {
            self.set_primary(&claim.id, around.now);
        } else if self.is_primary() && !lost.is_empty() {
            // Keys of slots that are another's now would come back to life one day.
            self.store.change(Change::Dropped(lost));
        }
    }

    /// Two primaries with one epoch: the one with the lower id takes the next.
    fn settle_epochs(&mut self, header: &Header, around: &mut Around<'_>) {
        let clash = header.primary.is_none() && self.is_primary() && header.claim.epoch == self.epoch();
        if clash && header.sender > *self.id() {
            self.bump_epoch();
            self.broadcast(around);
        }
    }

    fn hear_rumours(&mut self, header: &Header, now: u64) {
        let votes = self.conf.peers.get(&header.sender).is_some_and(Entry::votes);
        for rumour in &header.rumours {
            if rumour.id == self.conf.id {
                continue;
            }
            match self.conf.peers.get_mut(&rumour.id) {
                Some(entry) => {
                    if votes && rumour.failing {
                        entry.reports.insert(header.sender.clone(), now);
                    } else if votes {
                        entry.reports.remove(&header.sender);
                    }
                    if !entry.reachable()
                        && !rumour.failing
                        && rumour.address.is_some()
                        && rumour.address != entry.address
                    {
                        (entry.address, entry.asked) = (rumour.address, 0);
                    }
                }
                None => {
                    // Known by hearsay from now on, without slots and without an epoch, alive or not ✓.
                    if let (false, Some(address)) = (self.banned.contains_key(&rumour.id), rumour.address) {
                        let heard_of = Entry {
                            primary: rumour.primary.clone(),
                            failed_at: rumour.failed.then_some(now),
                            linked: false,
                            ..Entry::new(address, rumour.shard.clone(), now)
                        };
                        self.conf.peers.insert(rumour.id.clone(), heard_of);
                    }
                }
            }
        }
    }

    /// `CLUSTER FORGET` travels with gossip: who hears of it forgets too.
    fn forget_too(&mut self, header: &Header, now: u64) {
        for (id, left) in &header.forgotten {
            let own = id == self.id() || self.primary() == Some(id);
            if !own && !self.banned.contains_key(id) && self.conf.peers.contains_key(id) {
                self.forget(id, now + left);
            }
        }
    }

    /// Strikes somebody off, for good or until it comes back by itself.
    pub fn forget(&mut self, id: &NodeId, until: u64) {
        self.banned.insert(id.clone(), until);
        self.conf.peers.remove(id);
        for entry in self.conf.peers.values_mut() {
            entry.reports.remove(id);
        }
        let others = |markers: &mut BTreeMap<Slot, NodeId>| markers.retain(|_, who| who != id);
        others(&mut self.conf.migrating);
        others(&mut self.conf.importing);
    }
}
