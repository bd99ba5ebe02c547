//! Steps that give and move slots.

use std::time::{Duration, Instant};

use redis::Cmd;
use usher_operator::error::Failure;

use super::reach::{Held, Reach, is_well};
use crate::observe::client::{PORT, command};
use crate::observe::reply::Reply;
use crate::observe::seen::OpenSlot;
use crate::plan::step::Server;
use crate::words::{Epoch, NodeId, Slot, SlotSet};

/// Keys and time that one step moves at most (R24): the next pass goes on.
const KEYS_A_STEP: usize = 1_000;
const TIME_A_STEP: Duration = Duration::from_millis(500);
/// Keys in one `MIGRATE`.
const KEYS_AT_ONCE: usize = 100;
/// What `MIGRATE` itself may take, and what we wait for its answer.
const MIGRATE_MILLISECONDS: u32 = 5_000;
const MIGRATE_LIMIT: Duration = Duration::from_secs(12);

/// T5.
pub async fn add(reach: &Reach<'_>, to: &Server, slots: &SlotSet) -> Result<(), Failure> {
    let held = reach.hold(to).await?;
    held.require(held.is_primary(), "it is no primary")?;
    let missing = slots.minus(&held.myself().slots);
    if missing.is_empty() {
        return Ok(());
    }
    for (id, peer) in &held.says().view {
        let taken = peer.slots.common(&missing);
        held.require(taken.is_empty(), &format!("slots {taken} are owned by {}", id.short()))?;
    }
    let add = ranges(&mut command("CLUSTER ADDSLOTSRANGE"), &missing);
    held.tell("give slots to", &add).await.map(drop)
}

/// T10. A job that has begun already is not begun again.
pub async fn migrate(
    reach: &Reach<'_>,
    from: &Server,
    epoch: Epoch,
    to: &Server,
    slots: &SlotSet,
) -> Result<(), Failure> {
    let (source, target) = (reach.hold(from).await?, reach.hold(to).await?);
    if slots.minus(&target.myself().slots).is_empty() {
        return Ok(());
    }
    let mut in_flight = source.says().jobs.iter().filter(|job| job.exports && !job.is_over());
    if let Some(job) = in_flight.next() {
        let same = job.target == to.id && job.slots == *slots;
        return source.require(same, "it is moving other slots");
    }
    let own = source.myself();
    source.require(source.is_primary(), "it is no primary any more")?;
    source.require(own.epoch == epoch, "its epoch is another")?;
    source.require(own.open.is_empty(), "it has open slots")?;
    let foreign = slots.minus(&own.slots);
    source.require(foreign.is_empty(), &format!("slots {foreign} are not its own"))?;
    source.require(
        source.knows(&to.id).is_some_and(is_well),
        "it does not reach the target",
    )?;
    // R21: what is told here is what clients would be told: a member that has just joined refuses them.
    target.require(target.is_primary(), "it is no primary")?;
    target.require(target.says().state_ok, "it does not say cluster_state:ok yet")?;
    target.require(
        target.knows(&from.id).is_some_and(is_well),
        "it does not reach the source",
    )?;
    let migrate = ranges(&mut command("CLUSTER MIGRATESLOTS SLOTSRANGE"), slots);
    let migrate = migrate.clone().arg("NODE").arg(to.id.as_str()).to_owned();
    source.tell("begin to move slots of", &migrate).await.map(drop)
}

/// T11. All that it exports; R20 makes that one.
pub async fn cancel(reach: &Reach<'_>, on: &Server) -> Result<(), Failure> {
    let held = reach.hold(on).await?;
    if held.says().jobs.iter().all(|job| !job.exports || job.is_over()) {
        return Ok(());
    }
    match held.try_tell(&command("CLUSTER CANCELSLOTMIGRATIONS")).await? {
        Err(trouble) if trouble.says("no migrations ongoing") => Ok(()),
        other => other
            .map(drop)
            .map_err(|trouble| held.failure("call off the moves of", trouble)),
    }
}

/// T12. Resumable at any line: how far it is, the two servers' markers and keys tell.
pub async fn move_by_keys(reach: &Reach<'_>, slot: Slot, from: &Server, to: &Server) -> Result<(), Failure> {
    let (source, target) = (reach.hold(from).await?, reach.hold(to).await?);
    target.require(target.is_primary(), "it is no primary")?;
    if !target.myself().slots.contains(slot) {
        source.require(source.is_primary(), "it is no primary any more")?;
        source.require(source.myself().slots.contains(slot), "the slot is not its own any more")?;
        open(&source, &target, slot).await?;
        if !move_keys(reach, &source, &target, slot).await? {
            return Ok(());
        }
    }
    // The target first: if we die in between, it has the slot with the higher epoch, and its source gives way.
    give(&target, slot, &to.id).await?;
    if source.is_primary() {
        give(&source, slot, &to.id).await?;
    }
    for pod in reach.pods.keys().filter(|pod| **pod != from.pod && **pod != to.pod) {
        let Some(other) = reach.whoever(pod, "another pod").await else {
            continue;
        };
        if other.is_primary() && other.knows(&to.id).is_some() {
            // It would hear of it by gossip; so its clients are told a moment earlier.
            let _ = give(&other, slot, &to.id).await;
        }
    }
    Ok(())
}

/// Marks the slot at both ends; the taking one first, or clients are sent to somebody who refuses them.
async fn open(source: &Held<'_>, target: &Held<'_>, slot: Slot) -> Result<(), Failure> {
    let marker = |held: &Held<'_>| held.myself().open.into_iter().find(|open| slot_of(open) == slot);
    let importing = OpenSlot::Importing {
        slot,
        from: source.id().clone(),
    };
    match marker(target) {
        Some(marker) => target.require(marker == importing, "the slot is open towards another")?,
        None => mark(target, slot, "IMPORTING", source.id()).await?,
    }
    let migrating = OpenSlot::Migrating {
        slot,
        to: target.id().clone(),
    };
    match marker(source) {
        Some(marker) => source.require(marker == migrating, "the slot is open towards another"),
        None => mark(source, slot, "MIGRATING", target.id()).await,
    }
}

fn slot_of(open: &OpenSlot) -> Slot {
    match open {
        OpenSlot::Migrating { slot, .. } | OpenSlot::Importing { slot, .. } => *slot,
    }
}

async fn mark(on: &Held<'_>, slot: Slot, how: &str, other: &NodeId) -> Result<(), Failure> {
    let mark = setslot(slot).arg(how).arg(other.as_str()).to_owned();
    on.tell("open a slot of", &mark).await.map(drop)
}

async fn give(on: &Held<'_>, slot: Slot, to: &NodeId) -> Result<(), Failure> {
    let give = setslot(slot).arg("NODE").arg(to.as_str()).to_owned();
    on.tell("say the owner of a slot to", &give).await.map(drop)
}

/// Moves keys, as many as one step may; true when none is left.
async fn move_keys(reach: &Reach<'_>, source: &Held<'_>, target: &Held<'_>, slot: Slot) -> Result<bool, Failure> {
    let (began, mut moved) = (Instant::now(), 0);
    loop {
        let keys = keys_in(source, slot).await?;
        if keys.is_empty() {
            return Ok(true);
        }
        if moved >= KEYS_A_STEP || began.elapsed() >= TIME_A_STEP {
            return Ok(false);
        }
        moved += keys.len();
        send_keys(reach, source, target, &keys, true)
            .await?
            .map_err(|trouble| source.failure("move keys of", trouble))?;
    }
}

async fn keys_in(held: &Held<'_>, slot: Slot) -> Result<Vec<Vec<u8>>, Failure> {
    let list = command("CLUSTER GETKEYSINSLOT")
        .arg(slot.0)
        .arg(KEYS_AT_ONCE)
        .to_owned();
    let listed = held.ask("list keys of", &list).await?;
    let keys = listed.list().unwrap_or_default().iter();
    Ok(keys
        .filter_map(|key| match key {
            Reply::Bytes(key) => Some(key.clone()),
            _ => None,
        })
        .collect())
}

/// `MIGRATE`: whole keys, gone here when they are there.
async fn send_keys(
    reach: &Reach<'_>,
    from: &Held<'_>,
    to: &Held<'_>,
    keys: &[Vec<u8>],
    replace: bool,
) -> Result<Result<(), crate::observe::client::Trouble>, Failure> {
    let mut migrate = command("MIGRATE");
    migrate.arg(to.address().to_string()).arg(PORT).arg("").arg(0);
    migrate.arg(MIGRATE_MILLISECONDS);
    if replace {
        migrate.arg("REPLACE");
    }
    if let Some(password) = &reach.password {
        migrate.arg("AUTH").arg(password.reveal());
    }
    migrate.arg("KEYS").arg(keys);
    Ok(from.try_tell_within(&migrate, MIGRATE_LIMIT).await?.map(drop))
}

/// T13. Keys first, the marker last: without it nobody could reach them any more.
pub async fn stabilize(reach: &Reach<'_>, slot: Slot, on: &Server, owner: Option<&Server>) -> Result<(), Failure> {
    let held = reach.hold(on).await?;
    let marked = held.myself().open.iter().any(|open| slot_of(open) == slot);
    if !marked {
        return Ok(());
    }
    let owner = owner.filter(|owner| owner.id != on.id);
    if let Some(owner) = owner.filter(|_| !held.myself().slots.contains(slot)) {
        let owner = reach.hold(owner).await?;
        if !settle(reach, &held, &owner, slot).await? {
            return Ok(());
        }
    }
    close(&held, slot).await
}

async fn close(held: &Held<'_>, slot: Slot) -> Result<(), Failure> {
    let stable = setslot(slot).arg("STABLE").to_owned();
    held.tell("close a slot of", &stable).await.map(drop)
}

/// Brings keys to the slot's owner that it lacks, and drops those it has: what the owner has is what clients read. True
/// when none is left.
async fn settle(reach: &Reach<'_>, held: &Held<'_>, owner: &Held<'_>, slot: Slot) -> Result<bool, Failure> {
    owner.require(owner.is_primary(), "it is no primary any more")?;
    owner.require(owner.myself().slots.contains(slot), "the slot is not its own any more")?;
    let (began, mut moved) = (Instant::now(), 0);
    loop {
        let keys = keys_in(held, slot).await?;
        if keys.is_empty() {
            return Ok(true);
        }
        // An owner that is giving the slot away takes no keys for it: it turns back first. Until its keys are back, that is
        // for the next moments, it does not find them.
        if moved == 0 && owner.myself().open.iter().any(|open| slot_of(open) == slot) {
            close(owner, slot).await?;
        }
        for key in &keys {
            if moved >= KEYS_A_STEP || began.elapsed() >= TIME_A_STEP {
                return Ok(false);
            }
            moved += 1;
            match send_keys(reach, held, owner, std::slice::from_ref(key), false).await? {
                Ok(()) => {}
                Err(trouble) if trouble.says("busykey") => {
                    let drop_it = command("DEL").arg(key).to_owned();
                    held.tell_all("drop a second copy on", &[command("ASKING"), drop_it])
                        .await?;
                }
                Err(trouble) => return Err(held.failure("move keys of", trouble)),
            }
        }
    }
}

fn setslot(slot: Slot) -> Cmd {
    command("CLUSTER SETSLOT").arg(slot.0).to_owned()
}

fn ranges(command: &mut Cmd, slots: &SlotSet) -> Cmd {
    for range in slots.ranges() {
        command.arg(range.first.0).arg(range.last.0);
    }
    command.to_owned()
}
