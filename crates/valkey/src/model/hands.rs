//! What the operator does to a world: each step as `act` performs it, its guard asked again on the live server just before.
//! With [`super::Faults::blind`] no guard is asked, to see what they are good for.

use std::collections::BTreeSet;

use super::command::Reply;
use super::jobs::Stage;
use super::server::{Around, Seat, Server, Sync};
use super::store::Change;
use super::world::World;
use crate::plan::step::{ClusterStep, Server as Named};
use crate::words::{NodeId, Ordinal, Slot, SlotSet};

/// How many keys one step moves at most.
const KEYS_A_STEP: usize = 1_000;

/// How far behind a candidate may be, in entries of this model's log.
const LAG: u64 = 1 << 20;

impl World {
    /// Performs a step. What it finds otherwise than planned is refused, in words.
    pub fn apply(&mut self, step: &ClusterStep) -> Reply {
        if std::mem::take(&mut self.faults.next_not_done) {
            return Ok(());
        }
        let unanswered = std::mem::take(&mut self.faults.next_unanswered);
        let done = self.perform(step);
        if unanswered {
            return Err("no answer: it may have been done".into());
        }
        done
    }

    fn perform(&mut self, step: &ClusterStep) -> Reply {
        match step {
            ClusterStep::ApplyObject { kind, name } => {
                if *kind == "StatefulSet" {
                    self.kube.apply_set();
                } else {
                    self.kube.applied.insert((kind, name.clone()));
                }
                Ok(())
            }
            ClusterStep::DeleteObject { kind, name } => {
                self.kube.applied.remove(&(*kind, name.clone()));
                Ok(())
            }
            ClusterStep::Finalizer { on } => {
                self.kube.finalizer = *on;
                Ok(())
            }
            ClusterStep::SetReplicas {
                from,
                to,
                set,
                revision,
            } => self.resize(*from, *to, set, *revision),
            ClusterStep::SetConfigEpoch { on, epoch } => self.tell(on, |server, _| {
                if server.epoch() == epoch.0 {
                    return Ok(());
                }
                server.set_config_epoch(epoch.0)
            }),
            ClusterStep::Meet { from, to } => self.introduce(from, to),
            ClusterStep::AddSlots { to, slots } => self.tell(to, |server, _| {
                let missing = slots.minus(&server.slots());
                if missing.is_empty() {
                    Ok(())
                } else {
                    server.add_slots(&missing)
                }
            }),
            ClusterStep::CleanMember { on } => self.clean(on),
            ClusterStep::Replicate { on, primary } => self.tell(on, |server, around| server.replicate(primary, around)),
            ClusterStep::ResetMember { on } => self.reset_member(on),
            ClusterStep::Detach { on } => self.detach(on),
            ClusterStep::MigrateSlots {
                from, epoch, to, slots, ..
            } => self.migrate(from, epoch.0, to, slots),
            ClusterStep::CancelMigrations { on, .. } => self.tell(on, |server, around| {
                server.cancel_migrations(around);
                Ok(())
            }),
            ClusterStep::MoveSlotByKeys { slot, from, to, .. } => self.move_by_keys(*slot, from, to),
            ClusterStep::StabilizeSlot { slot, on, owner } => self.stabilize(*slot, on, owner.as_ref()),
            ClusterStep::Failover { from, to, epoch, .. } => self.hand_over(from, to, epoch.0),
            ClusterStep::ForceFailover { to, takeover, .. } => self.force(to, *takeover),
            ClusterStep::Forget { member, by } => self.strike_off(member, by, &SlotSet::new()),
            ClusterStep::ForgetLost { member, by, slots } => self.strike_off(member, by, slots),
            ClusterStep::DeletePod {
                name, uid, revision, ..
            } => self.delete(name.as_str(), uid, *revision),
            ClusterStep::LabelPod {
                name,
                uid,
                labels,
                annotations,
            } => {
                let pod = self.kube.pods.values_mut().find(|pod| pod.uid == *uid);
                let Some(pod) = pod else {
                    return Err(format!("pod {name} is another"));
                };
                let written = labels.iter().chain(annotations);
                pod.labels.extend(written.cloned());
                Ok(())
            }
            ClusterStep::SetMinReplicas { on, replicas } => self.tell(on, |server, _| {
                server.min_replicas = *replicas;
                Ok(())
            }),
            ClusterStep::ClearAnnotation { annotation } => {
                self.kube.cleared.push(annotation);
                Ok(())
            }
        }
    }

    /// The seat of a server that is still who the plan took it for.
    fn hold(&self, server: &Named) -> Result<Seat, String> {
        let pod = self.kube.pods.get(&server.ordinal).filter(|pod| pod.uid == server.pod);
        if pod.is_none() {
            return Err(format!("pod {} is gone or another", server.ordinal));
        }
        let seat = server.ordinal.0;
        let answers = self.servers.get(&seat).filter(|_| !self.faults.unseen.contains(&seat));
        let Some(there) = answers.filter(|there| there.answers()) else {
            return Err(format!("pod {} does not answer", server.ordinal));
        };
        if *there.id() == server.id {
            Ok(seat)
        } else {
            Err(format!("pod {} is {} now", server.ordinal, there.id().short()))
        }
    }

    fn tell(&mut self, on: &Named, act: impl FnOnce(&mut Server, &mut Around<'_>) -> Reply) -> Reply {
        let seat = self.hold(on)?;
        self.with(seat, act).unwrap_or_else(|| Err("gone".into()))
    }

    fn require(&self, holds: bool, why: &str) -> Reply {
        if holds || self.faults.blind {
            Ok(())
        } else {
            Err(why.to_owned())
        }
    }

    fn at(&self, seat: Seat) -> Result<&Server, String> {
        self.servers.get(&seat).ok_or_else(|| "gone".to_owned())
    }

    /// Whether one server counts another as reached and well.
    fn is_well(&self, seat: Seat, id: &NodeId) -> bool {
        let peer = self.servers.get(&seat).and_then(|server| server.conf.peers.get(id));
        peer.is_some_and(|peer| peer.linked && peer.reachable() && peer.address.is_some())
    }

    /// Whether somebody replicates it now: what empties it would empty them.
    fn has_replicas(&self, seat: Seat) -> bool {
        let Some(server) = self.servers.get(&seat).filter(|server| server.is_primary()) else {
            return false;
        };
        let mut others = self.servers.values();
        others.any(|other| other.primary() == Some(server.id()) && other.sync == Sync::Up)
    }

    fn resize(&mut self, from: u16, to: u16, uid: &usher_engine::Uid, revision: u64) -> Reply {
        let next = self.kube.count();
        match &mut self.kube.set {
            Some(set) if set.uid == *uid && set.revision == revision && set.replicas == from => {
                (set.replicas, set.revision) = (to, next);
                Ok(())
            }
            _ => Err("the StatefulSet has changed".into()),
        }
    }

    fn introduce(&mut self, from: &Named, to: &Named) -> Reply {
        let (a, b) = (self.hold(from)?, self.hold(to)?);
        let (one, other) = (self.at(a)?.address, self.at(b)?.address);
        let reaches = |world: &Self, seat, id: &NodeId, address| {
            let known = world.servers.get(&seat).and_then(|server| server.conf.peers.get(id));
            world.is_well(seat, id) && known.is_some_and(|peer| peer.address == Some(address))
        };
        if reaches(self, a, &to.id, other) && reaches(self, b, &from.id, one) {
            return Ok(());
        }
        self.tell(from, |server, around| server.meet(other, around))?;
        self.tell(to, |server, around| server.meet(one, around))
    }

    fn clean(&mut self, on: &Named) -> Reply {
        let seat = self.hold(on)?;
        let pods: BTreeSet<_> = self.kube.pods.values().filter_map(|pod| pod.address).collect();
        let server = self.at(seat)?;
        let joined = server.conf.peers.iter().any(|(id, peer)| {
            id != server.id() && self.is_well(seat, id) && peer.address.is_some_and(|ip| pods.contains(&ip))
        });
        self.require(!joined, "it is connected with members")?;
        self.require(!self.has_replicas(seat), "it has replicas")?;
        self.with(seat, |server, around| {
            if !server.is_primary() {
                server.reset(true, around)?;
            }
            server.flush_all()?;
            server.flush_slots()?;
            server.reset(true, around)
        })
        .unwrap_or(Ok(()))
    }

    fn reset_member(&mut self, on: &Named) -> Reply {
        let seat = self.hold(on)?;
        self.require(self.at(seat)?.slots().is_empty(), "it owns slots")?;
        self.require(!self.has_replicas(seat), "it has replicas")?;
        self.with(seat, |server, around| {
            if server.is_primary() {
                server.flush_all()?;
            }
            server.reset(true, around)?;
            server.flush_all()
        })
        .unwrap_or(Ok(()))
    }

    fn detach(&mut self, on: &Named) -> Reply {
        let seat = self.hold(on)?;
        let server = self.at(seat)?;
        if server.is_primary() {
            return self.require(server.slots().is_empty(), "it is a primary with slots");
        }
        if server.version.moves_slots_atomically() {
            return self.tell(on, |server, around| server.replicate_no_one(around));
        }
        let primary = server.primary().and_then(|id| server.conf.peers.get(id)?.address);
        let Some(primary) = primary else {
            return Err("it does not know where its primary is".into());
        };
        self.tell(on, |server, around| {
            server.reset(false, around)?;
            server.flush_all()?;
            server.meet(primary, around)
        })
    }

    fn migrate(&mut self, from: &Named, epoch: u64, to: &Named, slots: &SlotSet) -> Reply {
        let (source, target) = (self.hold(from)?, self.hold(to)?);
        let (giver, taker) = (self.at(source)?, self.at(target)?);
        if slots.minus(&taker.slots()).is_empty() {
            return Ok(());
        }
        if let Some(job) = giver.exports().next().filter(|_| !self.faults.blind) {
            let same = job.target == to.id && job.slots == *slots;
            return if same {
                Ok(())
            } else {
                Err("it is moving other slots".into())
            };
        }
        self.require(giver.epoch() == epoch, "its epoch is another")?;
        self.require(
            giver.conf.migrating.is_empty() && giver.conf.importing.is_empty(),
            "it has open slots",
        )?;
        self.require(self.is_well(source, &to.id), "it does not reach the target")?;
        self.require(taker.is_primary(), "it is no primary")?;
        self.require(taker.state_ok, "it does not say cluster_state:ok yet")?;
        self.require(self.is_well(target, &from.id), "it does not reach the source")?;
        self.tell(from, |server, around| server.migrate_slots(slots, &to.id, around))
    }

    fn hand_over(&mut self, from: &Named, to: &Named, epoch: u64) -> Reply {
        let (old, new) = (self.hold(from)?, self.hold(to)?);
        let (primary, replica) = (self.at(old)?, self.at(new)?);
        if replica.is_primary() {
            return self.require(!replica.slots().is_empty(), "it is a primary without slots");
        }
        self.require(primary.is_primary(), "it is no primary any more")?;
        self.require(replica.primary() == Some(primary.id()), "it follows another primary")?;
        self.require(replica.sync == Sync::Up, "its link is not up")?;
        self.require(replica.state_ok, "it does not say cluster_state:ok")?;
        let lag = primary.store.offset.saturating_sub(replica.store.offset);
        self.require(lag <= LAG, "it lags behind")?;
        self.require(primary.epoch() == epoch, "its epoch is another")?;
        let listed = primary
            .conf
            .peers
            .get(replica.id())
            .and_then(|peer| peer.primary.as_ref());
        let listed = listed == Some(primary.id()) && self.is_well(old, replica.id());
        self.require(listed, "it does not list the candidate as its replica")?;
        let moves = primary.jobs.iter().any(|job| !job.stage.over());
        self.require(!moves, "its slots are being moved")?;
        let open = !(primary.conf.migrating.is_empty() && primary.conf.importing.is_empty());
        self.require(!open, "it has open slots")?;
        self.tell(to, |server, around| server.failover(around).map_err(str::to_owned))
    }

    fn force(&mut self, to: &Named, takeover: bool) -> Reply {
        let seat = self.hold(to)?;
        let replica = self.at(seat)?;
        let Some(primary) = replica.primary() else {
            return self.require(!replica.slots().is_empty(), "it is a primary without slots");
        };
        self.require(replica.sync == Sync::Down, "its primary still sends to it")?;
        self.require(!self.is_well(seat, primary), "it still reaches its primary")?;
        self.tell(to, |server, around| {
            let done = if takeover {
                server.failover_takeover(around)
            } else {
                server.failover_force(around)
            };
            done.map_err(str::to_owned)
        })
    }

    fn strike_off(&mut self, member: &NodeId, by: &Named, given_up: &SlotSet) -> Reply {
        let seat = self.hold(by)?;
        let server = self.at(seat)?;
        let Some(entry) = server.conf.peers.get(member) else {
            return Ok(());
        };
        let kept = entry.slots.minus(given_up);
        self.require(kept.is_empty(), "the member to forget owns slots in its view")?;
        let mut followers = server.conf.peers.iter();
        let followed = followers.any(|(id, peer)| peer.primary.as_ref() == Some(member) && self.is_well(seat, id));
        self.require(!followed, "the member to forget has replicas in its view")?;
        self.tell(by, |server, around| server.told_to_forget(member, around))
    }

    fn delete(&mut self, name: &str, uid: &usher_engine::Uid, revision: u64) -> Reply {
        let found = self.kube.pods.iter().find(|(_, pod)| pod.uid == *uid);
        let Some((ordinal, pod)) = found else {
            return Err(format!("pod {name} is gone or another"));
        };
        let ordinal = *ordinal;
        self.require(pod.revision == revision, "the pod has changed")?;
        let hears = !self.faults.unseen.contains(&ordinal.0);
        let server = self.servers.get(&ordinal.0).filter(|server| hears && server.answers());
        let owns = server.is_some_and(|server| server.is_primary() && !server.slots().is_empty());
        self.require(!owns, "it is to be restarted and owns slots")?;
        self.kube.delete_pod(ordinal, self.now);
        Ok(())
    }

    /// R24, as far as one step goes.
    fn move_by_keys(&mut self, slot: Slot, from: &Named, to: &Named) -> Reply {
        let (source, target) = (self.hold(from)?, self.hold(to)?);
        if !self.at(target)?.slots().contains(slot) {
            let owns = self.at(source)?.slots().contains(slot);
            self.require(owns, "the slot is not its own any more")?;
            if self.at(target)?.conf.importing.get(&slot) != Some(&from.id) {
                self.tell(to, |server, _| server.set_importing(slot, &from.id))?;
            }
            if self.at(source)?.conf.migrating.get(&slot) != Some(&to.id) {
                self.tell(from, |server, _| server.set_migrating(slot, &to.id))?;
            }
            if self.at(source)?.store.keys.in_slot(slot) > KEYS_A_STEP {
                return Err("more keys than one step of this model moves".into());
            }
            let one = SlotSet::one(slot);
            let keys = self.at(source)?.store.keys.within(&one);
            self.tell(to, |server, _| {
                server.store.change(Change::TakenIn(keys));
                Ok(())
            })?;
            self.tell(from, |server, _| {
                server.store.change(Change::Dropped(one));
                Ok(())
            })?;
        }
        self.tell(to, |server, around| server.set_owner(slot, &to.id, around))?;
        if self.at(source)?.is_primary() {
            self.tell(from, |server, around| server.set_owner(slot, &to.id, around))?;
        }
        let others: Vec<Seat> = self
            .servers
            .keys()
            .copied()
            .filter(|s| *s != source && *s != target)
            .collect();
        for seat in others {
            self.with(seat, |server, around| server.set_owner(slot, &to.id, around));
        }
        Ok(())
    }

    /// R25: keys first, the marker last.
    fn stabilize(&mut self, slot: Slot, on: &Named, owner: Option<&Named>) -> Reply {
        let seat = self.hold(on)?;
        let one = SlotSet::one(slot);
        let server = self.at(seat)?;
        if !server.conf.importing.contains_key(&slot) && !server.conf.migrating.contains_key(&slot) {
            return Ok(());
        }
        let keys = server.store.keys.within(&one);
        let elsewhere = owner.filter(|owner| owner.id != on.id && !server.slots().contains(slot));
        if let (Some(owner), true) = (elsewhere, keys.count() > 0) {
            let at = self.hold(owner)?;
            self.require(self.at(at)?.slots().contains(slot), "the slot is not its own any more")?;
            self.tell(owner, |server, _| {
                server.set_stable(slot)?;
                let mut lacking = keys;
                lacking.take_in(&server.store.keys.within(&one));
                server.store.change(Change::TakenIn(lacking));
                Ok(())
            })?;
            self.tell(on, |server, _| {
                server.store.change(Change::Dropped(SlotSet::one(slot)));
                Ok(())
            })?;
        }
        self.tell(on, |server, _| server.set_stable(slot))
    }

    /// Whether a slot job is under way somewhere.
    pub fn moving(&self) -> bool {
        self.servers
            .values()
            .any(|server| server.jobs.iter().any(|job| job.stage < Stage::Success))
    }

    /// A pod's ordinal, by its name.
    pub fn ordinal_of(&self, pod: &str) -> Option<Ordinal> {
        let number = pod.rsplit_once('-')?.1;
        number.parse().ok().map(Ordinal)
    }
}
