//! Replication and slot jobs: what needs two servers at once.

use usher_engine::Text;

use super::bus::Claim;
use super::server::{Around, Life, Server, Sync};
use super::store::Change;
use crate::words::{NodeId, SlotSet};

/// How many entries of the log a replica reads in a tenth of a second.
const PER_TICK: u64 = 1_000;

/// How long a job waits for the other side.
const JOB_TIMEOUT_MS: u64 = 10_000;

/// How many ended jobs a server remembers (`cluster-slot-migration-log-max-len`).
const JOB_LOG: usize = 100;

/// One atomic slot migration, as one of its two servers has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotJob {
    /// Its name, the same on both.
    pub name: Text,
    /// Whether this server gives.
    pub exports: bool,
    /// The giver.
    pub source: NodeId,
    /// The taker.
    pub target: NodeId,
    /// Which slots.
    pub slots: SlotSet,
    /// How far it is.
    pub stage: Stage,
    /// When it got there.
    pub since: u64,
    /// What the server says of it.
    pub message: String,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing has been sent.
    Connecting,
    /// The keys as they were at the beginning are on their way.
    Snapshot,
    /// What was written since is.
    Streaming,
    /// The giver holds its writes.
    Paused,
    /// The taker may claim.
    Granted,
    /// Over, done.
    Success,
    /// Over, not done.
    Failed,
    /// Called off.
    Cancelled,
}

impl Stage {
    /// Whether it is over.
    pub fn over(self) -> bool {
        self >= Stage::Success
    }

    /// The stages that a job goes through.
    pub const WAY: [Stage; 5] = [
        Stage::Connecting,
        Stage::Snapshot,
        Stage::Streaming,
        Stage::Paused,
        Stage::Granted,
    ];

    fn next(self) -> Stage {
        match self {
            Stage::Connecting => Stage::Snapshot,
            Stage::Snapshot => Stage::Streaming,
            Stage::Streaming => Stage::Paused,
            Stage::Paused => Stage::Granted,
            _ => Stage::Success,
        }
    }

    /// The server's own word.
    pub fn word(self) -> &'static str {
        match self {
            Stage::Connecting => "connecting",
            Stage::Snapshot => "snapshotting",
            Stage::Streaming => "streaming-updates",
            Stage::Paused => "draining-before-pause",
            Stage::Granted => "failover-granted",
            Stage::Success => "success",
            Stage::Failed => "failed",
            Stage::Cancelled => "cancelled",
        }
    }
}

impl Server {
    /// `CLUSTER MIGRATESLOTS SLOTSRANGE … NODE`.
    pub fn migrate_slots(
        &mut self,
        slots: &SlotSet,
        target: &NodeId,
        around: &mut Around<'_>,
    ) -> super::command::Reply {
        if !self.version.moves_slots_atomically() {
            return Err("ERR unknown subcommand 'MIGRATESLOTS'.".into());
        }
        if !self.is_primary() {
            return Err("ERR Slot migration can only be used on primary nodes.".into());
        }
        if let Some(not) = slots.iter().find(|slot| self.owner_of(*slot) != Some(self.id())) {
            return Err(format!("ERR Slot {} is not served by this node", not.0));
        }
        match self.conf.peers.get(target) {
            None => return Err("ERR Unknown node".into()),
            Some(peer) if peer.primary.is_some() => return Err("ERR Target node is not a primary".into()),
            Some(_) => {}
        }
        if self.exports().any(|job| !job.slots.common(slots).is_empty()) {
            return Err("ERR Slots are already being migrated".into());
        }
        let name: Text = format!("job-{:016x}", around.ids.number()).into();
        let job = SlotJob {
            name,
            exports: true,
            source: self.id().clone(),
            target: target.clone(),
            slots: slots.clone(),
            stage: Stage::Connecting,
            since: around.now,
            message: String::new(),
        };
        self.jobs.insert(0, job);
        self.jobs.truncate(JOB_LOG);
        Ok(())
    }

    /// `CLUSTER CANCELSLOTMIGRATIONS`: everything it exports.
    pub fn cancel_migrations(&mut self, around: &Around<'_>) {
        for job in self.jobs.iter_mut().filter(|job| job.exports && !job.stage.over()) {
            (job.stage, job.since) = (Stage::Cancelled, around.now);
            job.message = "Cancelled by user".into();
        }
    }

    /// Exports that are under way.
    pub fn exports(&self) -> impl Iterator<Item = &SlotJob> {
        self.jobs.iter().filter(|job| job.exports && !job.stage.over())
    }

    /// Whether writes to a slot wait.
    pub fn holds(&self, slot: crate::words::Slot) -> bool {
        let paused = |job: &SlotJob| job.stage >= Stage::Paused && job.slots.contains(slot);
        self.handing_over.is_some() || self.exports().any(paused)
    }

    /// Ends everything that it exports or takes in.
    pub fn fail_jobs(&mut self, why: &str) {
        for job in self.jobs.iter_mut().filter(|job| !job.stage.over()) {
            job.stage = Stage::Failed;
            job.message = why.to_owned();
        }
    }

    /// The job of that name, where the other server has one.
    fn job(&mut self, name: &Text) -> Option<&mut SlotJob> {
        self.jobs.iter_mut().find(|job| job.name == *name)
    }
}

/// One tenth of a second of a job: `source` gives, `target` is who it reaches, if anybody. `broken` makes it fail here.
pub fn work(source: &mut Server, target: Option<&mut Server>, broken: Option<Stage>, around: &mut Around<'_>) {
    let Some(at) = source.jobs.iter().position(|job| job.exports && !job.stage.over()) else {
        return;
    };
    let (now, id, owned) = (around.now, source.id().clone(), source.slots());
    let primary = source.is_primary();
    let Some(job) = source.jobs.get_mut(at) else {
        return;
    };
    let end = |job: &mut SlotJob, why: &str| {
        (job.stage, job.since, job.message) = (Stage::Failed, now, why.to_owned());
    };
    if !primary || job.source != id || !job.slots.minus(&owned).is_empty() {
        return end(job, "Slots are no longer owned by myself");
    }
    let Some(target) = target.filter(|target| target.is_primary() && *target.id() == job.target) else {
        if now > job.since + JOB_TIMEOUT_MS || job.stage > Stage::Connecting {
            end(job, "Connection to the target was lost");
        }
        return;
    };
    if !target.conf.peers.contains_key(&id) {
        return end(job, "Unknown node: the target does not know the source");
    }
    if broken == Some(job.stage) {
        let name = job.name.clone();
        end(job, "Connection lost");
        if let Some(other) = target.job(&name) {
            end(other, "Connection lost");
        }
        return;
    }
    if now < job.since + around.habits.job_stage_ms {
        return;
    }
    if job.stage == Stage::Connecting {
        let import = SlotJob {
            exports: false,
            stage: Stage::Snapshot,
            since: now,
            ..job.clone()
        };
        target.jobs.insert(0, import);
        target.jobs.truncate(JOB_LOG);
    } else if target.job(&job.name).is_none_or(|other| other.stage.over()) {
        return end(job, "Connection lost");
    }
    (job.stage, job.since) = (job.stage.next(), now);
    if job.stage == Stage::Success {
        let (name, slots) = (job.name.clone(), job.slots.clone());
        hand_slots_over(source, target, &slots, around);
        if let Some(other) = target.job(&name) {
            (other.stage, other.since) = (Stage::Success, now);
        }
    }
}

/// The taker claims the slots with all their keys, and the giver hears it on the same connection.
fn hand_slots_over(source: &mut Server, target: &mut Server, slots: &SlotSet, around: &mut Around<'_>) {
    target.store.change(Change::TakenIn(source.store.keys.within(slots)));
    let taker = target.id().clone();
    target.conf.current_epoch = target.conf.current_epoch.max(source.conf.current_epoch);
    target.assign(slots, &taker);
    target.bump_epoch();
    target.broadcast(around);
    let claim = Claim {
        id: taker.clone(),
        epoch: target.epoch(),
        slots: target.slots(),
    };
    if let Some(entry) = source.conf.peers.get_mut(&taker) {
        entry.epoch = entry.epoch.max(claim.epoch);
    }
    source.conf.current_epoch = source.conf.current_epoch.max(claim.epoch);
    source.take_claim(&claim, around);
}

/// One tenth of a second of a replica: it reads from `primary`, if it reaches it.
pub fn read_on(replica: &mut Server, primary: Option<&Server>, around: &mut Around<'_>) {
    let now = around.now;
    let Some(primary) = primary.filter(|primary| primary.life == Life::Running) else {
        replica.sync = Sync::Down;
        return;
    };
    let readable = primary.version.data_format() <= replica.version.data_format();
    match replica.sync {
        Sync::Down => {
            let (history, offset) = (replica.store.history, replica.store.offset);
            if primary.store.can_continue(history, offset) {
                replica.sync = Sync::Up;
            } else if readable {
                replica.sync = Sync::Full(now + around.habits.sync_ms);
            }
        }
        Sync::Full(until) if now >= until => {
            replica.store = primary.store.clone();
            (replica.sync, replica.synced_at, replica.aof_only) = (Sync::Up, now, None);
            replica.saved = Some(replica.store.keys.clone());
        }
        Sync::Full(_) => {}
        Sync::Up => {
            if primary.store.can_continue(replica.store.history, replica.store.offset) {
                replica.store.follow(&primary.store, PER_TICK);
                replica.synced_at = now;
            } else {
                replica.sync = Sync::Down;
            }
        }
    }
}
