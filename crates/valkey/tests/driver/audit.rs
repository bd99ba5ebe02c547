//! The invariants of the spec, looked at at every point of a path.

use std::collections::{BTreeMap, BTreeSet};

use usher_engine::ConditionStatus;
use usher_valkey::api::Phase;
use usher_valkey::model::World;
use usher_valkey::model::server::Server;
use usher_valkey::model::{Stage, Sync};
use usher_valkey::plan::phase::TABLE;
use usher_valkey::plan::step::ClusterStep;
use usher_valkey::records::ClusterRecord;
use usher_valkey::words::{NodeId, Ordinal, ShardId, SlotSet};

use super::Decision;

/// What is watched, and what was found first.
#[derive(Debug, Clone)]
pub struct Audit {
    /// The first violation.
    pub broken: Option<String>,
    /// Slots that a live primary served when last looked.
    served: SlotSet,
    /// A fault has happened, and not all is well again since.
    faulty: bool,
    /// A fault has happened since the operator last looked.
    fault_since_look: bool,
    /// Since when all is well.
    well_since: Option<u64>,
    /// Since when whole.
    volumes: BTreeSet<Ordinal>,
    /// Pods that we deleted, and that are not back.
    deleted: BTreeSet<Ordinal>,
    /// What was served before the step that is being taken.
    served_before: SlotSet,
    /// What the step that is being taken would break: it counts if it is done, and not if its guard refuses it.
    would_break: Option<String>,
    /// Replicas per shard before and after the last edit.
    replicas: (u16, u16),
    /// Slots that have moved to another shard since the last edit, those that did so more than once, and how many moves.
    moved: SlotSet,
    pub moved_again: SlotSet,
    moves: u32,
    owners: BTreeMap<ShardId, SlotSet>,
    /// What the last edit costs at the least (R18).
    pub least: u32,
    /// Client errors that were excused.
    excused: usize,
}

impl Audit {
    pub fn new(world: &World) -> Self {
        Self {
            broken: None,
            served: SlotSet::new(),
            faulty: false,
            fault_since_look: false,
            well_since: None,
            volumes: world.kube.volumes.keys().copied().collect(),
            deleted: BTreeSet::new(),
            served_before: SlotSet::new(),
            would_break: None,
            replicas: (u16::MAX, 0),
            moved: SlotSet::new(),
            moved_again: SlotSet::new(),
            moves: 0,
            owners: BTreeMap::new(),
            least: 0,
            excused: 0,
        }
    }

    fn breaks(&mut self, rule: &str, how: impl Into<String>) {
        let how = how.into();
        self.broken.get_or_insert_with(|| format!("{rule}: {how}"));
    }

    fn require(&mut self, holds: bool, rule: &str, how: impl FnOnce() -> String) {
        if !holds {
            self.breaks(rule, how());
        }
    }

    /// A fault happens now: what it takes away is not ours.
    pub fn fault(&mut self) {
        (self.faulty, self.fault_since_look, self.well_since) = (true, true, None);
    }

    /// The operator looks.
    pub fn looked(&mut self) {
        self.fault_since_look = false;
    }

    /// Whether a fault still shows.
    pub fn is_faulty(&self) -> bool {
        self.faulty
    }

    /// The spec has changed.
    pub fn edited(&mut self, record: &ClusterRecord, world: &World) {
        self.replicas = (self.replicas.1, record.replicas_per_master());
        (self.moved, self.moved_again, self.moves) = (SlotSet::new(), SlotSet::new(), 0);
        self.least = least_moves(world, record.masters());
    }

    /// Whether every slot has exactly one live owner, everybody agrees, and every shard has its replicas.
    pub fn is_whole(&self, record: &ClusterRecord, world: &World) -> bool {
        let pods = record.size();
        let all = SlotSet::first(world.habits.slots);
        let primaries = owners(world);
        let owned: u16 = primaries.iter().map(|server| server.slots().count()).sum();
        let followed = primaries
            .iter()
            .all(|primary| in_sync(world, primary) >= usize::from(record.replicas_per_master()));
        let ids: BTreeSet<&NodeId> = world.servers.values().map(Server::id).collect();
        let known = |server: &Server| server.conf.peers.keys().collect::<BTreeSet<_>>() == ids;
        world.servers.len() == usize::from(pods)
            && owned == all.count()
            && primaries.len() == usize::from(record.masters())
            && followed
            && world.servers.values().all(known)
            && world.kube.pods.values().all(|pod| pod.ready.0 && pod.deleted.is_none())
    }

    /// Looks at the world between steps.
    pub fn look(&mut self, record: &ClusterRecord, world: &World) {
        let now = world.served();
        if self.faulty && is_well(world) {
            // A moment longer: what clients had under way is answered by then.
            let since = *self.well_since.get_or_insert(world.now);
            self.faulty = world.now < since + 6_000;
        } else {
            self.well_since = None;
        }
        let gone = self.served.minus(&now);
        let faulty = self.faulty;
        self.require(faulty || gone.is_empty(), "I1", || {
            format!("slots {gone} have no live primary any more")
        });
        self.served = now;
        self.count_moves(world);
        self.look_at_clients(world);
        let asked = world.servers.values().filter(|server| server.manual.is_some()).count();
        self.require(faulty || asked <= 1, "I4", || format!("{asked} failovers at once"));
        for server in world.servers.values() {
            let exports = server.exports().count();
            self.require(exports <= 1, "I4", || {
                format!("pod {} exports {exports} times at once", server.seat)
            });
            let imports = server
                .jobs
                .iter()
                .filter(|job| !job.exports && !job.stage.over())
                .count();
            self.require(imports <= 1, "I4", || {
                format!("pod {} imports {imports} times at once", server.seat)
            });
        }
        let back = |at: &Ordinal| {
            world
                .kube
                .pods
                .get(at)
                .is_some_and(|pod| pod.ready.0 && pod.deleted.is_none())
        };
        self.deleted.retain(|at| !back(at));
        let volumes: BTreeSet<Ordinal> = world.kube.volumes.keys().copied().collect();
        let lost: Vec<Ordinal> = self.volumes.difference(&volumes).copied().collect();
        self.require(faulty || lost.is_empty(), "I9", || {
            format!("volumes of {lost:?} are gone")
        });
        self.volumes = volumes;
        if !faulty
            && record
                .status
                .phase
                .is_some_and(|phase| phase > Phase::VerifyingClusterHealth)
        {
            self.look_at_copies(world);
        }
    }

    /// I12: planned work leaves every shard that owns slots with all but one of its replicas.
    fn look_at_copies(&mut self, world: &World) {
        let least = self.replicas.0.min(self.replicas.1);
        if least == u16::MAX || least < 2 {
            return;
        }
        for primary in owners(world) {
            let copies = in_sync(world, primary);
            self.require(copies + 1 >= usize::from(least), "I12", || {
                format!("the shard of pod {} has {copies} replicas in sync", primary.seat)
            });
        }
    }

    fn look_at_clients(&mut self, world: &World) {
        let troubles = world.clients.troubles.get(self.excused..).unwrap_or_default();
        for trouble in troubles {
            let lost = trouble.what.contains("acknowledged");
            if lost || !self.faulty {
                let rule = if lost { "I2" } else { "I1" };
                self.breaks(rule, format!("slot {} for a client: {}", trouble.slot.0, trouble.what));
                return;
            }
        }
        self.excused = world.clients.troubles.len();
    }

    fn count_moves(&mut self, world: &World) {
        let mut now: BTreeMap<ShardId, SlotSet> = BTreeMap::new();
        for server in owners(world) {
            let Some(own) = server.own() else { continue };
            let slots = now.entry(own.shard.clone()).or_default();
            *slots = slots.union(&own.slots);
        }
        if now == self.owners {
            return;
        }
        let before = self.owners.values().fold(SlotSet::new(), |all, slots| all.union(slots));
        for (shard, slots) in &now {
            let had = self.owners.get(shard).cloned().unwrap_or_default();
            let came = slots.minus(&had).common(&before);
            self.moves += u32::from(came.count());
            self.moved_again = self.moved_again.union(&came.common(&self.moved));
            self.moved = self.moved.union(&came);
        }
        self.owners = now;
    }

    /// How many slots have moved since the last edit.
    pub fn moves(&self) -> u32 {
        self.moves
    }

    /// A decision was made.
    pub fn decided(&mut self, record: &ClusterRecord, decision: &Decision, world: &World) {
        let was = record.status.phase.unwrap_or_default();
        let is = decision.status.phase.unwrap_or_default();
        self.require(leads_to(was, is), "I7", || {
            format!("no way from {was:?} to {is:?} in the table")
        });
        let generation = decision.status.observed_generation;
        self.require(generation <= Some(record.meta.generation), "I8", || {
            format!("observedGeneration {generation:?}")
        });
        let mut conditions = decision.status.conditions.iter();
        let ready = conditions.any(|c| c.type_ == "Ready" && c.status == ConditionStatus::True);
        if ready {
            let outdated = (world.kube.pods.values())
                .filter(|pod| world.kube.set.as_ref().is_some_and(|set| set.template != pod.template))
                .count();
            let moving = world.moving();
            let whole = self.is_whole(record, world) || self.faulty;
            self.require(whole && outdated == 0 && !moving, "I8", || {
                format!(
                    "Ready is True: whole {whole}, outdated pods {outdated}, moving {moving}: {}",
                    super::picture(world)
                )
            });
        }
        let said = decision
            .status
            .assigned_slots
            .split('/')
            .next()
            .and_then(|n| n.parse::<u16>().ok());
        let seen = decision
            .seen
            .answers
            .values()
            .fold(SlotSet::new(), |all, answer| match answer {
                usher_valkey::observe::Answer::Says(says) => {
                    says.view.values().fold(all, |all, peer| all.union(&peer.slots))
                }
                _ => all,
            });
        let seen = seen.count();
        self.require(said.unwrap_or(0) <= seen, "I8", || {
            format!("assignedSlots {said:?}, seen {seen}")
        });
    }

    /// A step is about to be taken.
    pub fn before(&mut self, step: &ClusterStep, record: &ClusterRecord, world: &World) {
        let broken = self.broken.take();
        self.judge(step, record, world);
        (self.would_break, self.broken) = (self.broken.take(), broken);
    }

    fn judge(&mut self, step: &ClusterStep, record: &ClusterRecord, world: &World) {
        self.served_before = world.served();
        let says = usher_engine::Step::describe(step);
        let harmed: Vec<&Server> = harmed(step, world);
        for server in harmed {
            // What it claims and a member of the cluster serves is not its own.
            let others = world
                .servers
                .values()
                .filter(|other| other.seat != server.seat && other.answers());
            let served = others.fold(SlotSet::new(), |all, other| all.union(&other.slots()));
            let alone = server.conf.peers.len() == 1;
            let own = if alone {
                server.slots().minus(&served)
            } else {
                server.slots()
            };
            let owns = server.is_primary() && server.answers() && !own.is_empty();
            self.require(!owns, "I3", || format!("{says}: it owns {}", server.slots()));
            // What died a moment ago nobody can have seen.
            let last = !self.fault_since_look && is_last_copy(world, server);
            self.require(!last, "I3", || format!("{says}: it is the only copy of its shard"));
        }
        match step {
            ClusterStep::SetReplicas { from, to, .. } if to < from => {
                for ordinal in *to..*from {
                    let Some(tail) = world.servers.get(&ordinal) else {
                        continue;
                    };
                    let known = world
                        .servers
                        .values()
                        .any(|other| other.seat < *to && other.answers() && other.conf.peers.contains_key(tail.id()));
                    self.require(!known, "I5", || format!("{says}: pod {ordinal} is in a view"));
                }
            }
            ClusterStep::ForceFailover { to, .. } => {
                let primary = world.servers.get(&to.ordinal.0).and_then(|server| server.primary());
                let lives = primary
                    .and_then(|id| world.seat_of(id))
                    .and_then(|seat| world.servers.get(&seat));
                let lives = lives.is_some_and(Server::answers);
                self.require(!lives, "I4", || format!("{says}: its primary lives"));
            }
            ClusterStep::Forget { member, .. } | ClusterStep::ForgetLost { member, .. } => {
                let seat = world.seat_of(member);
                let head = seat.is_some_and(|seat| seat < record.size());
                self.require(!head, "I9", || format!("{says}: it answers from pod {seat:?}"));
            }
            ClusterStep::DeletePod { uid, .. } => {
                let found = world.kube.pods.iter().find(|(_, pod)| pod.uid == *uid);
                let at = found.map(|(at, _)| *at);
                // One that has not come back may be tried once more.
                let others = self.deleted.iter().filter(|other| Some(**other) != at).count();
                self.require(others == 0, "I4", || format!("{says}: another is down already"));
                self.deleted.extend(at);
            }
            ClusterStep::MigrateSlots { from, to, .. } => self.formats(world, from.ordinal.0, to.ordinal.0, &says),
            ClusterStep::Replicate { on, primary } => {
                if let Some(seat) = world.seat_of(primary) {
                    self.formats(world, seat, on.ordinal.0, &says);
                }
            }
            ClusterStep::SetReplicas { .. } | ClusterStep::AddSlots { .. } => {}
            _ => {}
        }
    }

    /// I10: data goes from older to newer, never back.
    fn formats(&mut self, world: &World, from: u16, to: u16, says: &str) {
        let format = |seat: u16| world.servers.get(&seat).and_then(|server| server.version.data_format());
        let (from, to) = (format(from), format(to));
        self.require(from.is_none() || to.is_none() || from <= to, "I10", || {
            format!("{says}: from newer to older")
        });
    }

    /// A step was taken.
    pub fn after(&mut self, step: &ClusterStep, done: bool, world: &World) {
        if let (true, Some(broken)) = (done, self.would_break.take()) {
            self.broken.get_or_insert(broken);
        }
        let gone = self.served_before.minus(&world.served());
        let says = usher_engine::Step::describe(step);
        self.require(gone.is_empty() || !done, "I1", || {
            format!("{says}: slots {gone} are not served any more")
        });
    }
}

/// Primaries that live and own slots.
fn owners(world: &World) -> Vec<&Server> {
    let owns = |server: &&Server| server.answers() && server.is_primary() && !server.slots().is_empty();
    world.servers.values().filter(owns).collect()
}

fn in_sync(world: &World, primary: &Server) -> usize {
    let follows = |other: &&Server| other.primary() == Some(primary.id()) && other.sync == Sync::Up && other.answers();
    world.servers.values().filter(follows).count()
}

/// Every slot is served, and everybody who answers says that all is well.
fn is_well(world: &World) -> bool {
    let pods = world.kube.pods.values();
    let fine = |server: &Server| {
        let peers = server.conf.peers.values();
        server.answers() && server.state_ok && peers.clone().all(|peer| peer.reachable() && peer.linked)
    };
    world.served() == SlotSet::first(world.habits.slots)
        && world.servers.values().all(fine)
        && pods.clone().all(|pod| pod.ready.0)
}

/// Servers that a step takes something from.
fn harmed<'w>(step: &ClusterStep, world: &'w World) -> Vec<&'w Server> {
    match step {
        ClusterStep::DeletePod { uid, .. } => {
            let pods = world.kube.pods.iter().filter(|(_, pod)| pod.uid == *uid);
            pods.filter_map(|(at, _)| world.servers.get(&at.0)).collect()
        }
        ClusterStep::ResetMember { on } | ClusterStep::Detach { on } | ClusterStep::CleanMember { on } => {
            world.servers.get(&on.ordinal.0).into_iter().collect()
        }
        ClusterStep::Forget { member, .. } | ClusterStep::ForgetLost { member, .. } => world
            .seat_of(member)
            .and_then(|seat| world.servers.get(&seat))
            .into_iter()
            .collect(),
        ClusterStep::SetReplicas { from, to, .. } if to < from => {
            (*to..*from).filter_map(|ordinal| world.servers.get(&ordinal)).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether a replica is all that is left of a shard with slots.
fn is_last_copy(world: &World, server: &Server) -> bool {
    let Some(primary) = server.primary() else {
        return false;
    };
    let owns = server
        .conf
        .peers
        .get(primary)
        .is_some_and(|entry| !entry.slots.is_empty());
    let lives = world
        .seat_of(primary)
        .and_then(|seat| world.servers.get(&seat))
        .is_some_and(Server::answers);
    let others = world.servers.values().filter(|other| {
        other.seat != server.seat && other.primary() == Some(primary) && other.store.offset >= server.store.offset
    });
    owns && !lives && others.count() == 0
}

/// Whether the table has a way, of any number of hops.
fn leads_to(from: Phase, to: Phase) -> bool {
    let mut reached = vec![from];
    let mut at = 0;
    while at < reached.len() {
        let here = reached[at];
        for hop in TABLE.hops().filter(|hop| hop.from == here) {
            if !reached.contains(&hop.to) {
                reached.push(hop.to);
            }
        }
        at += 1;
    }
    from == to || reached.contains(&to)
}

/// R18: what a change to so many shards must move at the least, from where slots are now.
fn least_moves(world: &World, masters: u16) -> u32 {
    let mut now: Vec<u16> = owners(world).iter().map(|server| server.slots().count()).collect();
    now.sort_unstable_by(|a, b| b.cmp(a));
    let (slots, masters) = (world.habits.slots, masters.max(1));
    let drained: u16 = now.iter().skip(masters.into()).sum();
    let target = |at: usize| slots / masters + u16::from(at < usize::from(slots % masters));
    let kept = now.iter().take(masters.into()).enumerate();
    let surplus: u16 = kept.map(|(at, count)| count.saturating_sub(target(at))).sum();
    u32::from(drained + surplus)
}

/// Whether a job is in its last stages: a moment that tests look for.
pub fn is_paused(world: &World) -> bool {
    let mut servers = world.servers.values();
    servers.any(|server| server.exports().any(|job| job.stage >= Stage::Paused))
}
