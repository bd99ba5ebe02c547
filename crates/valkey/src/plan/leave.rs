//! Going out (R11): a leaving member owns nothing, has been replaced, and has redirected clients for a while; then it is
//! reset, struck off everywhere, and only when no view knows any of them does the set shrink.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::join::{forget, is_followed};
use super::places::{Places, disagreement, name};
use super::step::ClusterStep;
use super::terms::Terms;
use super::topology::{Member, Standing, Topology};
use super::work::Work;
use crate::words::{NodeId, ShardId};

/// Takes out whoever may go now, at most one member of each shard, and says what the others wait for.
pub fn leave(topology: &Topology<'_>, places: &Places, terms: &Terms, now: Timestamp) -> Work {
    let mut work = Work::default();
    // What has been reset or is gone is in nobody's way; its entries go first, or gossip would bring them back.
    let gone: Vec<&Member> = topology
        .standing(Standing::Orphan)
        .filter(|member| member.slots.is_empty() && on_tail(topology, member))
        .collect();
    let mut leaving: Vec<&Member> = topology.leaving().collect();
    // Replicas before the primary that they follow: no server strikes off its own primary.
    leaving.sort_by_key(|member| (member.is_primary(), member.ordinal, &member.id));
    let settled: BTreeSet<&NodeId> = gone.iter().map(|member| &member.id).collect();
    if (!gone.is_empty() || !leaving.is_empty()) && !topology.agrees_but_for(&settled) {
        work.wait("ViewsDisagree", disagreement(topology));
        return work;
    }
    for member in gone {
        if is_followed(topology, &member.id) {
            let name = name(topology, &member.id);
            work.wait(
                "WaitingForReplicas",
                format!("waiting for the replicas that still follow {name}"),
            );
        } else {
            work.steps.extend(forget(topology, &member.id));
        }
    }
    let mut touched: BTreeSet<&ShardId> = BTreeSet::new();
    let mut going: Vec<&Member> = Vec::new();
    for member in leaving {
        if let Some(why) = stays_for_now(topology, places, member) {
            let name = name(topology, &member.id);
            work.wait("WaitingToLeave", format!("{name} cannot leave yet: {why}"));
            continue;
        }
        if let Some(left) = linger(topology, terms, &member.id, now).filter(|_| member.is_live()) {
            let name = name(topology, &member.id);
            work.wait(
                "Lingering",
                format!("{name} redirects clients for a moment before it leaves"),
            );
            work.look_again(left);
            continue;
        }
        if touched.insert(&member.shard) {
            going.push(member);
        }
    }
    // Who goes in this pass strikes nobody off any more: by then it is somebody else.
    let goes = |id: &NodeId| going.iter().any(|member| member.id == *id);
    for member in &going {
        if let Some(on) = topology.server(&member.id) {
            work.steps.push(ClusterStep::ResetMember { on });
        }
        let forgets = forget(topology, &member.id).into_iter();
        work.steps
            .extend(forgets.filter(|step| !matches!(step, ClusterStep::Forget { by, .. } if goes(&by.id))));
    }
    work
}

fn on_tail(topology: &Topology<'_>, member: &Member) -> bool {
    member.ordinal.is_some_and(|ordinal| !topology.is_head(ordinal))
}

/// Why a leaving member is still needed; `None`: it may go.
fn stays_for_now(topology: &Topology<'_>, places: &Places, member: &Member) -> Option<String> {
    if !member.slots.is_empty() {
        return Some(format!("it owns {} slots", member.slots.count()));
    }
    if is_followed(topology, &member.id) {
        return Some("its replicas are still there".into());
    }
    // One that does not answer is not reset, only struck off: it must be dead for its peers too, or it would come back.
    if !member.is_live() && !member.failed {
        return Some("it does not answer, and its peers do not show it as failed".into());
    }
    let (_, shard) = topology.shard_of(&member.id).filter(|(_, shard)| shard.owns())?;
    let Some(home) = places.home(&shard.id) else {
        return Some("its shard still gives slots away".into());
    };
    let primary = name(topology, &home.primary);
    if !topology.is_head_member(&home.primary) || !topology.primary_serves(shard) {
        return Some(format!("{primary}, its primary, has not handed over to one that stays"));
    }
    let wanted = usize::from(topology.size.replicas);
    let replicas = shard.replicas.iter().filter(|id| topology.is_head_member(id));
    let in_sync = replicas.filter(|id| topology.link_up(id)).count();
    (in_sync < wanted).then(|| format!("{in_sync} of {wanted} replicas of {primary} that stay are in sync"))
}

/// How long a member still has to redirect clients; `None`: it has done so.
fn linger(topology: &Topology<'_>, terms: &Terms, id: &NodeId, now: Timestamp) -> Option<Duration> {
    let Some(since) = topology.seen.memory.slotless_since.get(id) else {
        return Some(terms.linger);
    };
    let passed = Duration::try_from(now.duration_since(*since).max(SignedDuration::ZERO)).unwrap_or_default();
    let left = terms.linger.saturating_sub(passed);
    (!left.is_zero()).then_some(left)
}

/// Whether no view knows anybody who leaves (I5), and why not where not.
pub fn all_left(topology: &Topology<'_>) -> Result<(), String> {
    // An entry without a known pod might be one of theirs.
    let ours = |member: &&Member| match member.ordinal {
        Some(ordinal) => !topology.is_head(ordinal),
        None => member.standing == Standing::Orphan,
    };
    match topology.members.values().find(ours) {
        Some(member) => Err(format!("{} is still in a view", name(topology, &member.id))),
        None => Ok(()),
    }
}

/// T2, downwards: the set shrinks to the wanted size, when nobody beyond it is in any view and every slot is served.
pub fn shrink(topology: &Topology<'_>) -> Work {
    let mut work = Work::default();
    let wanted = topology.size.pods();
    let Some(set) = topology.seen.set.as_ref().filter(|set| set.replicas > wanted) else {
        return work;
    };
    let why = match () {
        () if !topology.agrees() => Some(disagreement(topology)),
        () if !topology.has_majority() || !topology.all_served() => Some("some slots have no live primary".into()),
        () => all_left(topology).err(),
    };
    match why {
        Some(why) => work.wait(
            "WaitingToShrink",
            format!("the StatefulSet keeps its {} pods: {why}", set.replicas),
        ),
        None => work.steps.push(ClusterStep::SetReplicas {
            from: set.replicas,
            to: wanted,
            set: set.uid.clone(),
            revision: set.revision,
        }),
    }
    work
}

/// T2, upwards: the set grows to the wanted size; more pods disturb nobody.
pub fn grow(topology: &Topology<'_>) -> Option<ClusterStep> {
    let wanted = topology.size.pods();
    let set = topology.seen.set.as_ref().filter(|set| set.replicas < wanted)?;
    Some(ClusterStep::SetReplicas {
        from: set.replicas,
        to: wanted,
        set: set.uid.clone(),
        revision: set.revision,
    })
}

#[cfg(test)]
mod tests;
