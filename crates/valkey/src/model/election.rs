//! Who cannot be reached, who takes over, and whether a server dares to serve.

use std::net::IpAddr;

use super::bus::{Body, Claim};
use super::server::{Around, Election, Manual, Server, Sync};
use crate::words::NodeId;

/// How long a primary holds its writes for a replica that takes over by command.
const MANUAL_MS: u64 = 5_000;

/// How long a primary waits after its start before it serves.
const WRITABLE_MS: u64 = 2_000;

/// How often a primary pings its replicas, which is how old an idle replica's data may look.
const REPLICA_PING_MS: u64 = 10_000;

impl Server {
    fn quorum(&self) -> usize {
        self.conf.peers.values().filter(|peer| peer.votes()).count() / 2 + 1
    }

    /// Who owes an answer for too long is suspected; whom a majority of voters suspects has failed.
    pub fn look_for_failures(&mut self, around: &mut Around<'_>) {
        let (now, timeout) = (around.now, around.habits.node_timeout_ms);
        let (quorum, own_vote) = (self.quorum(), self.own().is_some_and(|own| own.votes()));
        let own = self.conf.id.clone();
        let mut failed = Vec::new();
        for (id, entry) in self.conf.peers.iter_mut().filter(|(id, _)| **id != own) {
            if entry.owes.is_some_and(|since| now > since + timeout) {
                entry.suspected = true;
            }
            entry.reports.retain(|_, at| now <= *at + 2 * timeout);
            let voices = entry.reports.len() + usize::from(own_vote);
            if entry.suspected && entry.failed_at.is_none() && voices >= quorum {
                entry.failed_at = Some(now);
                failed.push(id.clone());
            }
        }
        for failed in failed {
            let sender = self.id().clone();
            self.send_all(&Body::Fail { sender, failed }, around);
        }
    }

    /// Somebody says that a majority cannot reach a member.
    pub fn told_failed(&mut self, sender: &NodeId, failed: &NodeId, around: &mut Around<'_>) {
        let known = self.conf.peers.contains_key(sender) && failed != self.id();
        if let (true, Some(entry)) = (known, self.conf.peers.get_mut(failed)) {
            entry.failed_at.get_or_insert(around.now);
        }
    }

    /// A failed member answers: replicas and those without slots are back at once, a primary that nobody replaced later.
    pub fn answers_again(&mut self, id: &NodeId, around: &mut Around<'_>) {
        let timeout = around.habits.node_timeout_ms;
        if let Some(entry) = self.conf.peers.get_mut(id) {
            let late = entry.failed_at.is_some_and(|at| around.now > at + 2 * timeout);
            if !entry.votes() || late {
                entry.failed_at = None;
            }
        }
    }

    /// `cluster_state`: a majority of voters must be in reach, and a primary waits a while before it believes that.
    pub fn update_state(&mut self, around: &Around<'_>, started: u64) {
        let now = around.now;
        let voters = self.conf.peers.iter().filter(|(_, peer)| peer.votes());
        let reachable = voters.filter(|(id, peer)| *id == self.id() || peer.reachable()).count();
        if reachable < self.quorum() {
            (self.state_ok, self.minority_at) = (false, now);
            return;
        }
        let rejoin = around.habits.node_timeout_ms.clamp(500, 5_000);
        let early = now < started + WRITABLE_MS || now < self.minority_at + rejoin;
        if !(self.is_primary() && early) {
            self.state_ok = true;
        }
    }

    /// A replica's part of a failover: begins a vote when it should, claims when it has won.
    pub fn stand_for_election(&mut self, around: &mut Around<'_>) {
        let now = around.now;
        if self.manual.as_ref().is_some_and(|manual| now > manual.until) {
            (self.manual, self.election) = (None, None);
        }
        if self.handing_over.as_ref().is_some_and(|(_, until)| now > *until) {
            self.handing_over = None;
        }
        let Some(primary) = self.primary().cloned() else {
            (self.manual, self.election) = (None, None);
            return;
        };
        let Some(entry) = self.conf.peers.get(&primary) else {
            return;
        };
        let (forced, manual_ready) = match &self.manual {
            Some(manual) if manual.forced => (true, true),
            Some(manual) => (true, manual.upto.is_some_and(|upto| self.store.offset >= upto)),
            None => (false, false),
        };
        let timeout = around.habits.node_timeout_ms;
        let age = now.saturating_sub(self.synced_at).saturating_sub(timeout);
        let valid = age <= REPLICA_PING_MS + timeout * around.habits.validity_factor;
        let wanted = if forced {
            manual_ready
        } else {
            entry.failed_at.is_some() && !entry.slots.is_empty() && valid && now >= self.no_election_before
        };
        if !wanted {
            // A vote that is asked for and not won runs out with its time.
            if !forced && entry.failed_at.is_none() {
                self.election = None;
            }
            return;
        }
        let rank = self.rank(&primary);
        match &mut self.election {
            None => {
                let wait = if forced {
                    0
                } else {
                    500 + around.dice.roll(500) + rank * 1_000
                };
                self.election = Some(Election {
                    at: now + wait,
                    epoch: None,
                    votes: std::collections::BTreeSet::new(),
                    forced,
                });
            }
            Some(election) if election.epoch.is_none() && now >= election.at => {
                self.conf.current_epoch += 1;
                election.epoch = Some(self.conf.current_epoch);
                self.ask_for_votes(&primary, around);
            }
            Some(election) if now > election.at + 2 * timeout => {
                self.election = None;
                self.no_election_before = now + 2 * timeout;
            }
            Some(_) => {}
        }
    }

    /// How many replicas of this shard have more of the data.
    fn rank(&self, primary: &NodeId) -> u64 {
        let better = |(id, peer): &(&NodeId, &super::server::Entry)| {
            *id != self.id()
                && peer.primary.as_ref() == Some(primary)
                && peer.reachable()
                && peer.offset > self.store.offset
        };
        self.conf.peers.iter().filter(better).count() as u64
    }

    fn ask_for_votes(&mut self, primary: &NodeId, around: &mut Around<'_>) {
        let (Some(election), Some(entry)) = (&self.election, self.conf.peers.get(primary)) else {
            return;
        };
        let body = Body::VoteFor {
            claim: Claim {
                id: self.id().clone(),
                epoch: entry.epoch,
                slots: entry.slots.clone(),
            },
            primary: primary.clone(),
            epoch: election.epoch.unwrap_or_default(),
            forced: election.forced,
        };
        self.send_all(&body, around);
    }

    /// A replica asks for this server's vote.
    pub fn asked_for_vote(
        &mut self,
        from: IpAddr,
        claim: &Claim,
        primary: &NodeId,
        epoch: u64,
        forced: bool,
        around: &mut Around<'_>,
    ) {
        let now = around.now;
        if !self.conf.peers.contains_key(&claim.id) || !self.own().is_some_and(|own| own.votes()) {
            return;
        }
        self.conf.current_epoch = self.conf.current_epoch.max(epoch);
        let stale = epoch < self.conf.current_epoch || self.conf.voted_epoch >= self.conf.current_epoch;
        let newer = self.conf.peers.iter().any(|(id, entry)| {
            id != primary && entry.epoch > claim.epoch && !entry.slots.common(&claim.slots).is_empty()
        });
        let Some(entry) = self.conf.peers.get_mut(primary) else {
            return;
        };
        let timeout = around.habits.node_timeout_ms;
        let lately = entry.voted_at.is_some_and(|at| now < at + 2 * timeout);
        let lives = entry.failed_at.is_none() && !forced;
        if stale || newer || lives || (lately && !forced) {
            return;
        }
        entry.voted_at = Some(now);
        self.conf.voted_epoch = epoch;
        let sender = self.id().clone();
        self.send(from, Body::Vote { sender, epoch }, around);
    }

    /// A vote has come.
    pub fn voted_for(&mut self, sender: &NodeId, epoch: u64, around: &mut Around<'_>) {
        let voter = self.conf.peers.get(sender).is_some_and(|peer| peer.votes());
        let quorum = self.quorum();
        let Some(election) = self.election.as_mut().filter(|e| voter && e.epoch == Some(epoch)) else {
            return;
        };
        election.votes.insert(sender.clone());
        if election.votes.len() >= quorum {
            self.take_over(epoch, around);
        }
    }

    /// Becomes the primary of its shard, with all its slots.
    pub fn take_over(&mut self, epoch: u64, around: &mut Around<'_>) {
        let Some(old) = self.primary().cloned() else {
            return;
        };
        let id = self.id().clone();
        let slots = self
            .conf
            .peers
            .get(&old)
            .map(|entry| entry.slots.clone())
            .unwrap_or_default();
        self.assign(&slots, &id);
        if let Some(own) = self.own_mut() {
            (own.primary, own.epoch) = (None, epoch);
        }
        self.conf.current_epoch = self.conf.current_epoch.max(epoch);
        self.store.promote(around.ids.number());
        self.sync = Sync::Down;
        (self.manual, self.election) = (None, None);
        self.broadcast(around);
    }

    /// A replica asks this primary to hand over. It is not heard unless this primary knows it as its own ✓.
    pub fn asked_to_hand_over(&mut self, from: IpAddr, replica: &NodeId, around: &mut Around<'_>) {
        let mine = self
            .conf
            .peers
            .get(replica)
            .is_some_and(|peer| peer.primary.as_ref() == Some(self.id()));
        if !self.is_primary() || !mine {
            return;
        }
        self.handing_over = Some((replica.clone(), around.now + MANUAL_MS));
        let body = Body::StandsStill {
            sender: self.id().clone(),
            offset: self.store.offset,
        };
        self.send(from, body, around);
    }

    /// `CLUSTER FAILOVER`, on a replica.
    pub fn failover(&mut self, around: &mut Around<'_>) -> Result<(), &'static str> {
        let Some((primary, entry)) = self.followed()? else {
            return Err("ERR I'm a replica but my master is unknown to me");
        };
        let (address, down) = (entry.address, entry.failed_at.is_some() || !entry.linked);
        let Some(address) = address.filter(|_| !down) else {
            return Err("ERR Master is down or failed, please use CLUSTER FAILOVER FORCE");
        };
        let _ = primary;
        self.manual = Some(Manual {
            until: around.now + MANUAL_MS,
            upto: None,
            forced: false,
        });
        self.election = None;
        let own = self.id().clone();
        self.send(address, Body::HandOver(own), around);
        Ok(())
    }

    /// `CLUSTER FAILOVER FORCE`: without the primary, with the others' votes.
    pub fn failover_force(&mut self, around: &mut Around<'_>) -> Result<(), &'static str> {
        self.followed()?;
        self.manual = Some(Manual {
            until: around.now + MANUAL_MS,
            upto: None,
            forced: true,
        });
        self.election = None;
        Ok(())
    }

    /// `CLUSTER FAILOVER TAKEOVER`: without anybody.
    pub fn failover_takeover(&mut self, around: &mut Around<'_>) -> Result<(), &'static str> {
        self.followed()?;
        self.bump_epoch();
        let epoch = self.conf.current_epoch;
        self.take_over(epoch, around);
        Ok(())
    }

    fn followed(&self) -> Result<Option<(&NodeId, &super::server::Entry)>, &'static str> {
        match self.primary() {
            None => Err("ERR You should send CLUSTER FAILOVER to a replica"),
            Some(primary) => Ok(self.conf.peers.get_key_value(primary)),
        }
    }
}
