//! Steps that make, change and end memberships.

use redis::Cmd;
use usher_operator::error::Failure;

use super::reach::{Held, Reach, is_well};
use crate::observe::client::command;
use crate::observe::parse::Info;
use crate::observe::seen::RoleSaid;
use crate::plan::step::Server;
use crate::words::{Epoch, NodeId, SlotSet};

/// T3.
pub async fn set_config_epoch(reach: &Reach<'_>, on: &Server, epoch: Epoch) -> Result<(), Failure> {
    let held = reach.hold(on).await?;
    let own = held.myself().epoch;
    if own == epoch {
        return Ok(());
    }
    held.require(held.says().is_alone(), "it knows others already")?;
    held.require(own == Epoch(0), "it has an epoch already")?;
    let set = command("CLUSTER SET-CONFIG-EPOCH").arg(epoch.0).to_owned();
    held.tell("give an epoch to", &set).await.map(drop)
}

/// T4. Both ways: either may be the one that the other cannot reach.
pub async fn meet(reach: &Reach<'_>, from: &Server, to: &Server) -> Result<(), Failure> {
    let (from, to) = (reach.hold(from).await?, reach.hold(to).await?);
    let reaches = |one: &Held<'_>, other: &Held<'_>| {
        one.knows(other.id())
            .is_some_and(|peer| is_well(peer) && peer.address == Some(other.address()))
    };
    if reaches(&from, &to) && reaches(&to, &from) {
        return Ok(());
    }
    from.meet(to.address()).await?;
    to.meet(from.address()).await
}

/// T6. It is emptied for good: what is only in memory now would be back with its files after a restart, and with it a claim
/// on the slots of every key.
pub async fn clean(reach: &Reach<'_>, on: &Server) -> Result<(), Failure> {
    let mut held = reach.hold(on).await?;
    let others: Vec<_> = reach.pods.values().filter(|ip| **ip != held.address()).collect();
    let joined =
        held.says().view.iter().find(|(id, peer)| {
            *id != held.id() && is_well(peer) && peer.address.is_some_and(|ip| others.contains(&&ip))
        });
    if let Some((member, _)) = joined {
        return Err(held.moved(&format!("it is connected with {}", member.short())));
    }
    held.require(!has_replicas(&held), "it has replicas")?;
    if !held.is_primary() {
        // A replica refuses to be emptied. Resetting makes it a primary, under another id.
        held.tell("reset", &command("CLUSTER RESET HARD")).await?;
        let again = reach.whoever(&on.pod, "the pod that was reset").await;
        held = again.ok_or_else(|| held.moved("it was reset and does not answer"))?;
    }
    empty(&held).await?;
    held.tell("take all slots from", &command("CLUSTER FLUSHSLOTS")).await?;
    held.tell("reset", &command("CLUSTER RESET HARD")).await.map(drop)
}

/// T7.
pub async fn replicate(reach: &Reach<'_>, on: &Server, primary: &NodeId) -> Result<(), Failure> {
    let held = reach.hold(on).await?;
    let myself = held.myself();
    if !held.is_primary() && myself.primary.as_ref() == Some(primary) {
        return Ok(());
    }
    held.require(myself.slots.is_empty(), "it owns slots")?;
    held.require(!held.is_primary() || held.says().keys == 0, "it holds keys of its own")?;
    held.require(!has_replicas(&held), "it has replicas")?;
    let known = held.knows(primary).filter(|peer| peer.flags.primary && is_well(peer));
    held.require(known.is_some(), "it does not know its primary to be")?;
    let replicate = command("CLUSTER REPLICATE").arg(primary.as_str()).to_owned();
    held.tell("make a replica of", &replicate).await.map(drop)
}

/// T8.
pub async fn reset(reach: &Reach<'_>, on: &Server) -> Result<(), Failure> {
    let held = reach.hold(on).await?;
    held.require(held.myself().slots.is_empty(), "it owns slots")?;
    held.require(!has_replicas(&held), "it has replicas")?;
    if held.is_primary() && held.says().keys > 0 {
        // Leftovers of slots that it gave away: a primary with keys cannot be reset.
        empty(&held).await?;
    }
    held.tell("reset", &command("CLUSTER RESET HARD")).await?;
    empty(&held).await
}

/// T9.
pub async fn detach(reach: &Reach<'_>, on: &Server) -> Result<(), Failure> {
    let held = reach.hold(on).await?;
    if held.is_primary() {
        let own = held.myself().slots;
        return held.require(own.is_empty(), "it is a primary with slots");
    }
    if held.says().version.moves_slots_atomically() {
        return held
            .tell("detach", &command("CLUSTER REPLICATE NO ONE"))
            .await
            .map(drop);
    }
    let primary = held.myself().primary.and_then(|primary| held.knows(&primary)?.address);
    let primary = primary.ok_or_else(|| held.moved("it does not know where its primary is"))?;
    held.tell("detach", &command("CLUSTER RESET SOFT")).await?;
    empty(&held).await?;
    held.meet(primary).await
}

/// T16.
pub async fn forget(reach: &Reach<'_>, member: &NodeId, by: &Server, given_up: &SlotSet) -> Result<(), Failure> {
    let held = reach.hold(by).await?;
    held.require(held.id() != member, "it cannot forget itself")?;
    let Some(entry) = held.says().view.get(member) else {
        return Ok(());
    };
    let kept = entry.slots.minus(given_up);
    held.require(kept.is_empty(), "the member to forget owns slots in its view")?;
    let follows = |(_, peer): (&NodeId, &crate::observe::Peer)| peer.primary.as_ref() == Some(member);
    let followed = held.says().view.iter().filter(|(_, peer)| is_well(peer)).any(follows);
    held.require(!followed, "the member to forget has replicas in its view")?;
    let forget = command("CLUSTER FORGET").arg(member.as_str()).to_owned();
    match held.try_tell(&forget).await? {
        Err(trouble) if trouble.says("unknown node") => Ok(()),
        other => other
            .map(drop)
            .map_err(|trouble| held.failure("strike a member off", trouble)),
    }
}

/// Takes all keys, and sees to it that none is back after a restart.
async fn empty(held: &Held<'_>) -> Result<(), Failure> {
    held.tell("empty", &command("FLUSHALL ASYNC")).await?;
    let info = held.ask("look at", &command("INFO persistence")).await?;
    let info = info.text().unwrap_or_default().into_owned();
    if Info::read(&info).is("aof_enabled", "0") {
        // Without a log of commands, a file from an earlier sync would be read again.
        held.tell("save the empty", &command("SAVE")).await?;
    }
    Ok(())
}

/// Whether somebody replicates it at this moment: what empties it would empty them.
fn has_replicas(held: &Held<'_>) -> bool {
    matches!(&held.says().role, RoleSaid::Primary { replicas, .. } if !replicas.is_empty())
}

/// T19. `CONFIG GET` first: a value that is there needs no command.
pub async fn set_min_replicas(reach: &Reach<'_>, on: &Server, replicas: u16) -> Result<(), Failure> {
    let held = reach.hold(on).await?;
    held.require(held.is_primary(), "it is no primary any more")?;
    let name = "min-replicas-to-write";
    let now = held.ask("look at", &one("CONFIG GET", name)).await?;
    let value = now.list().and_then(|parts| parts.get(1)?.number());
    if value == Some(replicas.into()) {
        return Ok(());
    }
    let set = one("CONFIG SET", name).arg(replicas).to_owned();
    held.tell("set min-replicas-to-write of", &set).await.map(drop)
}

fn one(words: &str, argument: &str) -> Cmd {
    command(words).arg(argument).to_owned()
}
