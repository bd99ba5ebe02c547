//! Bringing members to their places: Replicate (T7) and Detach (T9), and what is waited for.

use super::{Home, Places};
use crate::plan::step::ClusterStep;
use crate::plan::topology::{Member, Topology};
use crate::plan::work::Work;
use crate::seen::RoleSaid;
use crate::words::{NodeId, ServerVersion};

/// Which shards are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// New ones only: they get their replicas before slots.
    New,
    /// All.
    All,
}

/// The steps that bring free members to their places, as far as they may be taken now, and what the others wait for.
pub fn settle(topology: &Topology<'_>, places: &Places, which: Which) -> Work {
    let mut work = Work::default();
    if !topology.agrees() {
        if !places.is_settled(topology) {
            work.wait("ViewsDisagree", disagreement(topology));
        }
        return work;
    }
    let mut detached = false;
    for home in places.homes.iter().filter(|home| which == Which::All || home.is_new()) {
        let primary = topology.member(&home.primary);
        if primary.is_some_and(|primary| !primary.is_primary()) {
            // At most one: a replica less in a shard is a disruption.
            if !detached {
                detached = detach(topology, places, home, &mut work);
            }
            continue;
        }
        for id in &home.attach {
            attach(topology, places, home, id, &mut work);
        }
    }
    work
}

/// The first thing that the views do not agree on, for people.
pub fn disagreement(topology: &Topology<'_>) -> String {
    let differences = &topology.differences;
    match (differences.first(), differences.len()) {
        (Some(first), 1) => format!("the servers' views do not agree yet: {first}"),
        (Some(first), count) => format!("the servers' views do not agree yet: {first}, and {} more", count - 1),
        (None, _) => "the servers' views agree".into(),
    }
}

fn detach(topology: &Topology<'_>, places: &Places, home: &Home, work: &mut Work) -> bool {
    if let Some(why) = still_needed(topology, places, &home.primary) {
        work.wait("WaitingForReplicas", why);
        return false;
    }
    let Some(on) = topology.server(&home.primary) else {
        return false;
    };
    work.steps.push(ClusterStep::Detach { on });
    true
}

fn attach(topology: &Topology<'_>, places: &Places, home: &Home, id: &NodeId, work: &mut Work) {
    let (Some(on), Some(says), Some(primary)) = (topology.server(id), topology.says(id), topology.says(&home.primary))
    else {
        let name = name(topology, &home.primary);
        return work.wait(
            "WaitingForMember",
            format!("waiting for {name} to answer, to give it a replica"),
        );
    };
    if !matches!(primary.role, RoleSaid::Primary { .. }) {
        let name = name(topology, &home.primary);
        return work.wait(
            "WaitingForMember",
            format!("waiting for {name} to call itself a primary"),
        );
    }
    if !reads(primary.version, says.version) {
        let (from, to) = (primary.version, says.version);
        let name = on.name();
        return work.wait(
            "DataFormat",
            format!("{name} runs {to} and cannot read the data of {from}"),
        );
    }
    if topology.member(id).is_some_and(Member::is_primary) && says.keys > 0 {
        let (name, keys) = (on.name(), says.keys);
        return work.wait(
            "WaitingForKeys",
            format!("waiting for {name} to drop {keys} keys of slots that it gave away"),
        );
    }
    if topology.leads(id) {
        return release(topology, id, work);
    }
    if let Some(why) = still_needed(topology, places, id) {
        return work.wait("WaitingForReplicas", why);
    }
    work.steps.push(ClusterStep::Replicate {
        on,
        primary: home.primary.clone(),
    });
}

/// A primary of an empty shard follows nobody while others follow it. Those who stay have places of their own to go to; those
/// who leave become empty primaries, which costs no sync, until they are taken out (R11).
fn release(topology: &Topology<'_>, id: &NodeId, work: &mut Work) {
    let followers = topology.shard_of(id).map(|(_, shard)| shard.replicas.as_slice());
    let leaving = followers
        .into_iter()
        .flatten()
        .filter(|id| !topology.is_head_member(id));
    for on in leaving.filter_map(|id| topology.server(id)) {
        work.steps.push(ClusterStep::Detach { on });
    }
    let name = name(topology, id);
    let message = format!("waiting for the replicas of {name} to go: then it becomes a replica itself");
    work.wait("WaitingForReplicas", message);
}

/// I10: whether a server of version `to` reads what one of version `from` writes.
pub fn reads(from: ServerVersion, to: ServerVersion) -> bool {
    match (from.data_format(), to.data_format()) {
        (Some(from), Some(to)) => from <= to,
        _ => from <= to,
    }
}

/// Make before break (I12): why a surplus replica cannot leave the shard that it is in yet. `None`: it can.
fn still_needed(topology: &Topology<'_>, places: &Places, id: &NodeId) -> Option<String> {
    let (_, shard) = topology.shard_of(id)?;
    if !shard.owns() || shard.primary == *id {
        return None;
    }
    let home = places.home(&shard.id)?;
    let wanted = usize::from(topology.size.replicas);
    let stay = home.stays.iter().filter(|other| *other != id);
    let in_sync = stay.filter(|other| topology.link_up(other)).count();
    (in_sync < wanted).then(|| {
        let name = name(topology, &shard.primary);
        format!("waiting for the replicas of {name} that stay: {in_sync} of {wanted} are in sync")
    })
}

/// A member for people: its pod where it has one.
pub fn name(topology: &Topology<'_>, id: &NodeId) -> String {
    match topology.member(id).and_then(|member| member.ordinal) {
        Some(ordinal) => format!("pod {ordinal} ({})", id.short()),
        None => id.short().to_owned(),
    }
}
