//! Moving slots (R20 to R27): which jobs run, which begin now, and what the others wait for.
//!
//! What is in flight is what the servers say (R22), and what came of earlier jobs is read from their logs (R23): nothing of
//! it is kept here but the batch that goes key by key, in `status.slotMigration`. Targets are worked out anew in every pass
//! as if the jobs in flight were done, so that a job never has to be undone because of another.

mod jobs;
mod open;
#[cfg(test)]
mod tests;
mod unserved;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use usher_engine::{Finding, Stance, Tell};

use super::places::{Home, Places, disagreement, name, reads};
use super::slots::{self, Holding};
use super::step::ClusterStep;
use super::terms::Terms;
use super::topology::{Shard, Topology};
use super::work::Work;
use crate::api::{ByKeys, Method, SlotMigration};
use crate::seen::{Job, RoleSaid};
use crate::words::{NodeId, ShardId, SlotRange, SlotSet};

pub use jobs::{Trouble, in_flight, touches};
pub use open::{has_open_slots, open_slots};
pub use unserved::{Lost, Unserved, unserved};

/// R20: slots of a first job.
const BATCH: u16 = 512;
/// R20: and never more than this.
const LARGEST_BATCH: u16 = 2048;
/// R23: a pair that failed so often goes key by key.
const FAILURES: u32 = 5;
/// R23: so many slots at a time.
const BATCH_BY_KEYS: u16 = 32;
/// A job is looked at again after this long.
const MOVING: Duration = Duration::from_millis(250);
/// A destination that is not ready is looked at again after this long.
const WAITING: Duration = Duration::from_secs(1);
/// R28: a failover is given this long to come about.
const FAILOVER: SignedDuration = SignedDuration::from_secs(10);
/// R27: at rest a shard may be off its target by this many hundredths of an equal share.
const TOLERANCE_PERCENT: u32 = 2;

/// Which way a cluster is going.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leg {
    /// To more shards, or back into balance.
    Grow,
    /// To fewer.
    Shrink,
}

/// How the moves stand.
#[derive(Debug, Clone, PartialEq)]
pub struct Moves {
    /// What is to be done.
    pub work: Work,
    /// What status says of it; `None` where nothing moves in this leg.
    pub migration: Option<SlotMigration>,
    /// Slots that are still to move, those in flight included.
    pub left: u32,
    /// Jobs in flight.
    pub in_flight: usize,
}

impl Moves {
    /// SlotsRebalanced, SlotsMigrated: nothing is left to move, and nothing is in flight.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.in_flight == 0
    }
}

/// The shards of a move: those that stay, then those that are drained, with what they own.
struct Field<'a> {
    homes: Vec<&'a Home>,
    drained: Vec<&'a Shard>,
    holdings: Vec<Holding>,
    slots: u16,
}

impl<'a> Field<'a> {
    fn of(topology: &'a Topology<'_>, places: &'a Places) -> Self {
        let homes: Vec<&Home> = places.homes.iter().collect();
        let drained = places.drain.iter().filter_map(|id| Some(topology.shard(id)?.1));
        let drained: Vec<&Shard> = drained.collect();
        let staying = homes.iter().map(|home| (&home.slots, true));
        let leaving = drained.iter().map(|shard| (&shard.slots, false));
        let holdings = staying.chain(leaving).map(|(slots, stays)| Holding {
            slots: slots.clone(),
            stays,
        });
        Self {
            holdings: holdings.collect(),
            slots: topology.seen.slots,
            homes,
            drained,
        }
    }

    fn primary(&self, at: usize) -> Option<&'a NodeId> {
        let drained = || self.drained.get(at.checked_sub(self.homes.len())?);
        let home = self.homes.get(at).map(|home| &home.primary);
        home.or_else(|| drained().map(|shard| &shard.primary))
    }

    fn shard(&self, at: usize) -> Option<&'a ShardId> {
        let drained = || self.drained.get(at.checked_sub(self.homes.len())?);
        match self.homes.get(at) {
            Some(home) => home.shard.as_ref(),
            None => drained().map(|shard| &shard.id),
        }
    }

    fn at(&self, primary: &NodeId) -> Option<usize> {
        (0..self.holdings.len()).find(|at| self.primary(*at) == Some(primary))
    }

    /// R22: whether a job in flight is part of the way to the targets. It is, as long as it takes nobody who stays below an
    /// equal share and lifts nobody above one.
    fn wants(&self, job: &Job) -> bool {
        let (Some(from), Some(to)) = (self.at(&job.source), self.at(&job.target)) else {
            return false;
        };
        let (Some(giver), Some(taker)) = (self.holdings.get(from), self.holdings.get(to)) else {
            return false;
        };
        let staying = u16::try_from(self.homes.len()).unwrap_or(u16::MAX).max(1);
        let (share, over) = (self.slots / staying, self.slots % staying);
        let count = job.slots.common(&giver.slots).count();
        let given = !giver.stays || giver.slots.count().saturating_sub(count) >= share;
        let taken = taker.stays && taker.slots.count() + count <= share + u16::from(over > 0);
        given && taken
    }

    /// What everybody owns when these jobs are done.
    fn after<'j>(&self, jobs: impl IntoIterator<Item = &'j Job>) -> Vec<Holding> {
        let mut after = self.holdings.clone();
        for job in jobs {
            let (Some(from), Some(to)) = (self.at(&job.source), self.at(&job.target)) else {
                continue;
            };
            let moving = after
                .get(from)
                .map(|giver| giver.slots.common(&job.slots))
                .unwrap_or_default();
            if let Some(giver) = after.get_mut(from) {
                giver.slots = giver.slots.minus(&moving);
            }
            if let Some(taker) = after.get_mut(to) {
                taker.slots = taker.slots.union(&moving);
            }
        }
        after
    }
}

/// R27: whether some shard is off its target by more than is let be at rest, or one is missing.
pub fn is_out_of_balance(topology: &Topology<'_>, places: &Places) -> bool {
    if places.homes.iter().any(Home::is_new) || places.missing > 0 {
        return true;
    }
    let field = Field::of(topology, places);
    let targets = slots::targets(&field.holdings, field.slots);
    let share = u32::from(field.slots) / u32::from(topology.size.masters.max(1));
    let off = field.holdings.iter().zip(&targets);
    off.filter(|(holding, _)| holding.stays)
        .any(|(holding, target)| u32::from(holding.slots.count().abs_diff(*target)) * 100 > share * TOLERANCE_PERCENT)
}

/// Whether slots move at all in this leg. One that has begun is finished to the slot.
fn is_due(topology: &Topology<'_>, places: &Places, terms: &Terms, leg: Leg, begun: bool) -> bool {
    match leg {
        // With more shards than wanted nothing moves before the way down (R18).
        Leg::Grow if !places.drain.is_empty() => false,
        Leg::Grow => {
            let new = places.homes.iter().any(Home::is_new) || places.missing > 0;
            begun || new || (terms.balances && is_out_of_balance(topology, places))
        }
        Leg::Shrink => begun || !places.drain.is_empty(),
    }
}

/// The moves of this pass.
pub fn next(
    topology: &Topology<'_>,
    places: &Places,
    terms: &Terms,
    leg: Leg,
    before: Option<&SlotMigration>,
    now: Timestamp,
) -> Moves {
    let mut work = Work::default();
    let field = Field::of(topology, places);
    let jobs = in_flight(topology);
    let due = is_due(topology, places, terms, leg, before.is_some());
    let mut kept: Vec<&Job> = Vec::new();
    for job in &jobs {
        match jobs::trouble(topology, job, due && field.wants(job), now) {
            None => kept.push(job),
            Some(trouble) => {
                let on = topology.server(&job.source);
                work.steps.extend(on.map(|on| ClusterStep::CancelMigrations {
                    on,
                    why: trouble.to_string(),
                }));
            }
        }
    }
    if !jobs.is_empty() {
        work.look_again(MOVING);
    }
    if !due {
        return Moves {
            work,
            migration: None,
            left: 0,
            in_flight: jobs.len(),
        };
    }
    let targets = slots::targets(&field.holdings, field.slots);
    let left = slots::least(&field.holdings, &targets);
    let mut migration = progress(before, left);
    let after = field.after(kept.iter().copied());
    let moves = slots::moves(&after, &slots::targets(&after, field.slots));
    let mut start = Start {
        topology,
        places,
        field: &field,
        busy: kept.iter().flat_map(|job| [&job.source, &job.target]).collect(),
        room: terms.max_migrations.saturating_sub(jobs.len()),
        migration: &mut migration,
        work: &mut work,
        now,
    };
    start.begin(&moves, before);
    Moves {
        work,
        migration: Some(migration),
        left,
        in_flight: jobs.len(),
    }
}

fn progress(before: Option<&SlotMigration>, left: u32) -> SlotMigration {
    let left = i32::try_from(left).unwrap_or(i32::MAX);
    let total = before.map_or(left, |before| before.total.max(left));
    SlotMigration {
        method: Method::Atomic,
        batch_slots: BATCH.into(),
        failures: 0,
        moved: total.saturating_sub(left),
        total,
        last_error: None,
        by_keys: before.and_then(|before| before.by_keys.clone()),
    }
}

/// The beginning of jobs, in the order of the moves.
struct Start<'a, 'm> {
    topology: &'a Topology<'a>,
    places: &'a Places,
    field: &'a Field<'a>,
    /// Primaries that give or take already: one job each.
    busy: BTreeSet<&'a NodeId>,
    room: usize,
    migration: &'m mut SlotMigration,
    work: &'m mut Work,
    now: Timestamp,
}

impl<'a> Start<'a, '_> {
    fn begin(&mut self, moves: &[slots::Move], before: Option<&SlotMigration>) {
        if moves.is_empty() {
            return;
        }
        if self.places.missing > 0 {
            let missing = self.places.missing;
            return self.work.wait(
                "WaitingForMember",
                format!("{missing} shards have no member to be their primary yet"),
            );
        }
        if !self.topology.agrees() {
            self.work.look_again(WAITING);
            return self.work.wait("ViewsDisagree", disagreement(self.topology));
        }
        for one in moves {
            let (Some(from), Some(to)) = (self.field.primary(one.from), self.field.primary(one.to)) else {
                continue;
            };
            let handing = [one.from, one.to].into_iter().any(|at| self.hands_over(at));
            if self.busy.contains(from) || self.busy.contains(to) || self.room == 0 || handing {
                continue;
            }
            match self.ready(from, one.to, to) {
                Ok(()) => self.one(one, from, to, before),
                Err(why) => {
                    self.work.wait("WaitingForDestination", why);
                    self.work.look_again(WAITING);
                }
            }
        }
    }

    /// Whether a hand-over was asked for in this shard a moment ago.
    fn hands_over(&self, at: usize) -> bool {
        let shard = self.field.shard(at);
        let asked = shard.and_then(|shard| self.topology.seen.memory.failovers.get(shard));
        asked.is_some_and(|(asked, _)| self.now.duration_since(*asked) < FAILOVER)
    }

    /// R21: whether a destination can take slots, and why not where not.
    fn ready(&self, from: &NodeId, at: usize, to: &NodeId) -> Result<(), String> {
        let topology = self.topology;
        let name = |id: &NodeId| name(topology, id);
        let (Some(source), Some(says)) = (topology.says(from), topology.says(to)) else {
            return Err(format!("waiting for {} and {} to answer", name(from), name(to)));
        };
        for (id, said) in [(from, source), (to, says)] {
            if !matches!(said.role, RoleSaid::Primary { .. }) {
                return Err(format!("waiting for {} to call itself a primary", name(id)));
            }
        }
        if !says.state_ok {
            return Err(format!("{} does not say cluster_state:ok yet", name(to)));
        }
        if says.view.get(from).is_none_or(|line| line.flags.handshake) {
            return Err(format!("{} does not know {} yet", name(to), name(from)));
        }
        if !reads(source.version, says.version) {
            let (from, to) = (name(from), name(to));
            return Err(format!(
                "{to} cannot read the data of {from}, which runs a newer version"
            ));
        }
        let home = self.field.homes.get(at);
        let waits = home.is_some_and(|home| !home.attach.is_empty() || (home.is_new() && home.lacks > 0));
        let replicas = home.into_iter().flat_map(|home| &home.stays).filter(|id| *id != to);
        let not_up = replicas.filter(|id| topology.member(id).is_some_and(|member| !member.is_primary()));
        match not_up.into_iter().find(|id| !topology.link_up(id)) {
            _ if waits => Err(format!("{} has not got its replicas yet", name(to))),
            Some(id) => Err(format!("{}, a replica of {}, is not in sync", name(id), name(to))),
            None => Ok(()),
        }
    }

    fn one(&mut self, one: &slots::Move, from: &'a NodeId, to: &'a NodeId, before: Option<&SlotMigration>) {
        let topology = self.topology;
        let (Some(source), Some(says)) = (topology.says(from), topology.says(to)) else {
            return;
        };
        let atomic = source.version.moves_slots_atomically() && says.version.moves_slots_atomically();
        let history = jobs::history(&source.jobs, from, to);
        let batch = i32::from(history.batch).min(self.migration.batch_slots);
        let failures = i32::try_from(history.failures).unwrap_or(i32::MAX);
        self.migration.batch_slots = batch;
        self.migration.failures = self.migration.failures.max(failures);
        if let Some(error) = history.error.filter(|_| history.failures > 0) {
            self.migration.last_error = Some(error.to_owned());
            if jobs::lacks_rights(error) {
                self.work.block(
                    "ReplicationUserLacksRights",
                    format!(
                        "{} is refused by {}: {error}; the user that servers replicate with needs +cluster|syncslots +psync \
                         +replconf +ping +select +@write ~*",
                        name(topology, from),
                        name(topology, to),
                    ),
                );
            }
        }
        if !atomic {
            return self.by_keys(from, to, &one.slots, one.from);
        }
        if let Some(slots) = self.batch_by_keys(from, to, &one.slots, failures, before) {
            return match slots.is_empty() {
                true => {}
                false => self.by_keys(from, to, &slots, one.from),
            };
        }
        if let Some(wait) = history.back_off(self.now) {
            self.work.wait(
                "SlotMoveFailed",
                format!(
                    "slots from {} to {} are tried again in {} s, after {failures} failures: {}",
                    name(topology, from),
                    name(topology, to),
                    wait.as_secs().max(1),
                    history.error.unwrap_or_default(),
                ),
            );
            return self.work.look_again(wait);
        }
        let (Some(giver), Some(taker), Some(shard)) =
            (topology.server(from), topology.server(to), self.field.shard(one.from))
        else {
            return;
        };
        self.work.steps.push(ClusterStep::MigrateSlots {
            epoch: topology.member(from).map(|member| member.epoch).unwrap_or_default(),
            from: giver,
            shard: shard.clone(),
            to: taker,
            slots: one.slots.highest(history.batch),
        });
        self.take(from, to);
        self.work.look_again(MOVING);
    }

    fn take(&mut self, from: &'a NodeId, to: &'a NodeId) {
        self.busy.extend([from, to]);
        self.room = self.room.saturating_sub(1);
    }

    /// R23: the batch of this pair that goes key by key, as far as it has not gone yet; empty where it was only just decided,
    /// since an intent is written before it is acted on. `None`: the pair goes the servers' own way.
    fn batch_by_keys(
        &mut self,
        from: &NodeId,
        to: &NodeId,
        slots: &SlotSet,
        failures: i32,
        before: Option<&SlotMigration>,
    ) -> Option<SlotSet> {
        let recorded = before.and_then(|before| before.by_keys.as_ref());
        let ours = recorded.filter(|batch| batch.from == *from && batch.to == *to);
        let left = ours.map(|batch| {
            let ranges = batch.slots.iter().filter_map(|range| SlotRange::parse(range));
            SlotSet::of(ranges).common(slots)
        });
        if let Some(left) = left.filter(|left| !left.is_empty()) {
            return Some(left);
        }
        let tried = ours.map_or(0, |batch| batch.failures);
        if failures < i32::try_from(FAILURES).unwrap_or(i32::MAX) || failures <= tried {
            return None;
        }
        // One pair at a time: the batch of another one is finished first.
        if recorded.is_some_and(|batch| self.is_under_way(batch)) && ours.is_none() {
            return None;
        }
        let batch = slots.highest(BATCH_BY_KEYS);
        let (from_name, to_name) = (name(self.topology, from), name(self.topology, to));
        let message = format!(
            "slots {batch} go from {from_name} to {to_name} key by key: {failures} moves by the servers themselves failed"
        );
        self.work
            .findings
            .push(Finding::new(Stance::Doing, "FallbackKeyByKey", message).told(Tell::Warning));
        self.migration.method = Method::KeyByKey;
        self.migration.by_keys = Some(ByKeys {
            from: from.clone(),
            to: to.clone(),
            slots: batch.ranges().iter().map(SlotRange::to_string).collect(),
            failures,
        });
        self.work.look_again(Duration::ZERO);
        Some(SlotSet::new())
    }

    /// Whether some slot of a batch is still with the primary that gives it.
    fn is_under_way(&self, batch: &ByKeys) -> bool {
        let slots = SlotSet::of(batch.slots.iter().filter_map(|range| SlotRange::parse(range)));
        let giver = self.topology.member(&batch.from);
        giver.is_some_and(|giver| !giver.slots.common(&slots).is_empty()) && self.field.at(&batch.to).is_some()
    }

    /// R24: the highest of these slots, key by key. Slots that are open already are finished by R25 first.
    fn by_keys(&mut self, from: &'a NodeId, to: &'a NodeId, slots: &SlotSet, at: usize) {
        self.migration.method = Method::KeyByKey;
        let topology = self.topology;
        let (Some(giver), Some(taker), Some(shard), Some(slot)) = (
            topology.server(from),
            topology.server(to),
            self.field.shard(at),
            slots.top(),
        ) else {
            return;
        };
        if !open::is_open(topology, from) && !open::is_open(topology, to) {
            self.work.steps.push(ClusterStep::MoveSlotByKeys {
                slot,
                from: giver,
                shard: shard.clone(),
                to: taker,
            });
        }
        self.take(from, to);
        self.work.look_again(Duration::ZERO);
    }
}
