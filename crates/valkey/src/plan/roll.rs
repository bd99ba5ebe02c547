//! Rolling changes without an upgrade: restarts pods one at a time, and never a primary (R34 to R38).
//!
//! The order of the walk is here; whose turn it is within it, and that only one is down, is `usher_engine::rollout`'s. The
//! pod that goes is on record (`status.roll`) in a pass before it is deleted, so that a crash in between forgets nothing.

use std::cmp::Reverse;
use std::time::Duration;

use jiff::Timestamp;
use usher_engine::rollout::{self, Down, Member as Walker, Revision, Turn};
use usher_engine::{Tell, Text, Uid};

use super::failover::{self, Urgency};
use super::step::ClusterStep;
use super::topology::{Member, Shard, Standing, Topology};
use super::work::{Work, blocked, seconds_since, waiting};
use crate::api::Roll;
use crate::seen::PodSeen;
use crate::words::{NodeId, Ordinal};

/// A pod that is not back within this stops the roll (R35).
pub const BACK_SECONDS: u64 = 600;

/// What a roll is made from.
#[derive(Debug, Clone, Copy)]
pub struct Rolling<'a> {
    /// The cluster.
    pub topology: &'a Topology<'a>,
    /// The revision that the spec asks for.
    pub wanted: &'a Text,
    /// `status.roll`.
    pub on_record: Option<&'a Roll>,
    /// How long a member that has handed over answers MOVED before it goes.
    pub linger_seconds: i64,
    /// `usher.dev/allow-primary-restart`, with volumes to come back from (R36).
    pub in_place: bool,
    /// Whether data outlives a pod.
    pub persistent: bool,
    /// What a primary wants before it takes writes (R37).
    pub min_replicas: u16,
    /// Now.
    pub now: Timestamp,
}

/// What a roll comes to in this pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Rolled {
    /// `status.roll` from here on.
    pub roll: Option<Roll>,
    /// What to do, and why not.
    pub work: Work,
    /// Whether it stands at a pod that does not come back.
    pub stalled: bool,
}

/// Whether a pod is of another revision than the one wanted.
pub fn outdated(pod: &PodSeen, wanted: &Text) -> bool {
    pod.template.as_ref() != Some(wanted)
}

/// The name of the pod that is planned down, within its time.
pub fn planned_down(roll: Option<&Roll>, now: Timestamp) -> Option<&str> {
    let roll = roll?;
    let patience = i64::try_from(BACK_SECONDS).unwrap_or(i64::MAX);
    roll.pod
        .as_deref()
        .filter(|_| seconds_since(roll.since, now) < patience)
}

impl<'a> Rolling<'a> {
    /// Whether any pod is outdated.
    pub fn pending(&self) -> bool {
        let mut pods = self.topology.seen.pods.values();
        pods.any(|pod| outdated(pod, self.wanted))
    }

    /// Whether the walk needs one pod more: a shard without replicas has nobody to hand over to (R36). Where the spec wants
    /// replicas and all shards are without, they have never had any; where one is, it is being repaired.
    fn needs_surge(&self) -> bool {
        let topology = self.topology;
        let alone = |shard: &Shard| {
            let mut replicas = shard.replicas.iter().filter_map(|id| topology.member(id));
            !replicas.any(|member| matches!(member.standing, Standing::Live | Standing::Silent))
        };
        let (mut some, mut all) = (false, true);
        for shard in topology.owning() {
            let alone = alone(shard);
            some |= alone;
            all &= alone;
        }
        !self.in_place && some && (all || topology.size.replicas == 0)
    }

    /// Before there are slots nothing is at stake: what is outdated goes, one a pass.
    pub fn unformed(&self) -> Work {
        let ready = self.carries_template();
        let pods = self.topology.seen.pods.values();
        let mut stale = pods.filter(|pod| outdated(pod, self.wanted) && pod.deleting.is_none());
        match stale.next() {
            Some(pod) if ready => Work::of(restart(pod, "it is of an older revision, and has no data yet")),
            _ => Work::default(),
        }
    }

    /// Whether the set would make pods of the wanted revision.
    fn carries_template(&self) -> bool {
        let set = self.topology.seen.set.as_ref();
        set.is_some_and(|set| set.template.as_ref() == Some(self.wanted))
    }

    /// The roll's next step.
    pub fn plan(&self) -> Rolled {
        let walkers = self.walkers();
        let wanted = Revision::written(self.wanted);
        let down = self.on_record.and_then(down);
        let patience = Duration::from_secs(BACK_SECONDS);
        let turn = rollout::turn(&walkers, &wanted, down.as_ref(), patience, self.now);
        let Some(on_record) = self.on_record.filter(|roll| roll.revision == **self.wanted) else {
            return self.begin(&turn);
        };
        let keep = |work: Work| Rolled {
            roll: Some(on_record.clone()),
            work,
            stalled: false,
        };
        if !self.carries_template() {
            return keep(Work::waits(waiting(
                "RollWaits",
                "the StatefulSet does not carry the new template yet",
            )));
        }
        match turn {
            Turn::Over => Rolled {
                roll: None,
                work: Work::default(),
                stalled: false,
            },
            Turn::Waits { name, since } => keep(Work::waits(
                waiting("RollWaits", format!("waiting for pod {name} to come back: {}", self.state_of(&name))).since(since),
            )),
            Turn::Stalled { name, since } => Rolled {
                stalled: true,
                ..keep(Work::waits(
                    blocked(
                        "RollStalled",
                        format!(
                            "pod {name} has not come back within {BACK_SECONDS} s: {}; nothing else is restarted. Correct the spec: going back works at once",
                            self.state_of(&name)
                        ),
                    )
                    .since(since),
                ))
            },
            Turn::Held { name } => keep(Work::waits(waiting(
                "RollHeld",
                format!("no pod is restarted while pod {name} is not whole: {}", self.state_of(&name)),
            ))),
            Turn::Of(walker) => self.take(on_record, walker),
        }
    }

    /// Puts the roll on record; what it covers comes in a later pass (R7).
    fn begin(&self, turn: &Turn<'_>) -> Rolled {
        if *turn == Turn::Over {
            return Rolled {
                roll: None,
                work: Work::default(),
                stalled: false,
            };
        }
        // A pod that was taken down for another revision is still the one that is down.
        let kept = self.on_record.filter(|roll| roll.pod.is_some());
        let roll = Roll {
            revision: self.wanted.to_string(),
            shard: None,
            pod: kept.and_then(|roll| roll.pod.clone()),
            pod_uid: kept.and_then(|roll| roll.pod_uid.clone()),
            since: kept.map_or(self.now, |roll| roll.since),
            surge: self.needs_surge() || self.on_record.is_some_and(|roll| roll.surge),
        };
        Rolled {
            roll: Some(roll),
            work: Work::default(),
            stalled: false,
        }
    }

    /// Everybody, in the order of the walk: those in no shard, then shard by shard, replicas before their primary.
    fn walkers(&self) -> Vec<Walker> {
        let topology = self.topology;
        let mut order: Vec<Ordinal> = Vec::new();
        for shard in &topology.shards {
            let mut replicas: Vec<&Member> = shard.replicas.iter().filter_map(|id| topology.member(id)).collect();
            replicas.sort_by_key(|member| {
                let pod = member.ordinal.and_then(|ordinal| topology.seen.pods.get(&ordinal));
                (
                    pod.is_some_and(|pod| pod.ready),
                    Reverse(topology.lag_bytes(&member.id)),
                    Reverse(member.ordinal),
                )
            });
            let primary = topology.member(&shard.primary);
            order.extend(replicas.into_iter().chain(primary).filter_map(|member| member.ordinal));
        }
        let strays = topology
            .seen
            .pods
            .keys()
            .filter(|ordinal| !order.contains(ordinal))
            .copied();
        let mut all: Vec<Ordinal> = strays.collect();
        all.extend(order);
        let mut walkers: Vec<Walker> = Vec::new();
        for ordinal in all {
            let Some(pod) = topology.seen.pods.get(&ordinal) else {
                continue;
            };
            if walkers.iter().any(|walker| walker.name == pod.name) {
                continue;
            }
            walkers.push(Walker {
                name: pod.name.clone(),
                uid: pod.uid.clone(),
                revision: pod.template.as_deref().map(Revision::written),
                whole: self.is_whole(ordinal, pod),
            });
        }
        walkers
    }

    /// Ready, in the cluster, and where it is a replica, in sync.
    fn is_whole(&self, ordinal: Ordinal, pod: &PodSeen) -> bool {
        let topology = self.topology;
        let Some(member) = topology.at(ordinal).filter(|member| member.is_live()) else {
            return false;
        };
        let serves = member.is_primary() || topology.link_up(&member.id);
        pod.ready && pod.deleting.is_none() && serves && !member.failed
    }

    /// It is this one's turn: hands over where it serves, restarts it where it does not.
    fn take(&self, on_record: &Roll, walker: &Walker) -> Rolled {
        let topology = self.topology;
        let keep = |work: Work| Rolled {
            roll: Some(on_record.clone()),
            work,
            stalled: false,
        };
        let hold = |why: String| {
            keep(Work::waits(waiting(
                "RollHeld",
                format!("pod {} is next: {why}", walker.name),
            )))
        };
        let Some((ordinal, pod)) = topology.seen.pods.iter().find(|(_, pod)| pod.uid == walker.uid) else {
            return hold("it is not there".into());
        };
        if pod.deleting.is_some() {
            return hold("it is going".into());
        }
        let member = topology.at(*ordinal);
        let place = member.and_then(|member| topology.shard_of(&member.id));
        if let (Some(member), Some((index, shard))) = (member, place) {
            if let Err(why) = self.shard_allows(index, shard, member, walker) {
                return hold(why);
            }
            let owns = !member.slots.is_empty();
            if owns && member.is_live() && !self.in_place {
                return self.hand_over(on_record, walker, shard);
            }
            if owns && !member.is_live() && !self.persistent {
                return hold("its server does not answer and its slots have no other copy; it is waited for".into());
            }
        }
        if let Some(member) = member
            && member.is_live()
            && let Some(left) = self.lingers(&member.id)
        {
            return hold(format!("it handed over and answers clients for {left} s more"));
        }
        self.restart(on_record, pod, member, place.map(|(_, shard)| shard))
    }

    /// What must hold of a shard before one of its pods goes.
    fn shard_allows(&self, index: usize, shard: &Shard, member: &Member, walker: &Walker) -> Result<(), String> {
        let topology = self.topology;
        if let Some(difference) = topology.differences.first() {
            return Err(format!("views do not agree: {difference}"));
        }
        if let Some(why) = failover::busy(topology, shard) {
            return Err(why);
        }
        let somebody_lives = shard.replicas.iter().any(|id| topology.says(id).is_some());
        if shard.owns() && !topology.primary_serves(shard) && somebody_lives {
            return Err(format!(
                "shard {index} is without its primary; nothing is restarted in it (R31)"
            ));
        }
        // Who has just come back says so itself; until then clients are refused, and nobody else goes.
        let mut views = topology.views();
        if let Some((at, _)) = views.find(|(_, says)| !says.state_ok).filter(|_| walker.whole) {
            return Err(format!("pod {at} does not say cluster_state:ok"));
        }
        // A broken one takes nothing away; else everybody else of the shard must be there.
        let others = shard.members().filter(|id| **id != member.id);
        let missing = |id: &&NodeId| {
            let Some(other) = topology.member(id) else {
                return false;
            };
            let bound = matches!(other.standing, Standing::Live | Standing::Silent);
            bound && !(other.id == shard.primary && other.is_live() || topology.link_up(&other.id))
        };
        match others.into_iter().find(missing) {
            Some(other) if walker.whole => Err(format!("{} of its shard is not in sync", other.short())),
            _ => Ok(()),
        }
    }

    /// Seconds for which a member that gave its slots away still answers MOVED.
    fn lingers(&self, id: &NodeId) -> Option<i64> {
        let since = self.topology.seen.memory.slotless_since.get(id)?;
        let left = self.linger_seconds - seconds_since(*since, self.now);
        (left > 0).then_some(left)
    }

    /// An outdated primary hands over to an updated replica; without one, the spare comes first (R36).
    fn hand_over(&self, on_record: &Roll, walker: &Walker, shard: &Shard) -> Rolled {
        let topology = self.topology;
        let updated = |member: &Member| {
            let pod = member.ordinal.and_then(|ordinal| topology.seen.pods.get(&ordinal));
            pod.is_some_and(|pod| !outdated(pod, self.wanted) && pod.deleting.is_none())
        };
        // The one that was down is back, or it would not be the next one's turn.
        let roll = Roll {
            shard: Some(shard.id.clone()),
            pod: None,
            pod_uid: None,
            ..on_record.clone()
        };
        let keep = |work: Work| Rolled {
            roll: Some(roll.clone()),
            work,
            stalled: false,
        };
        let hold = |why: String| {
            keep(Work::waits(waiting(
                "RollHeld",
                format!("pod {} is next: {why}", walker.name),
            )))
        };
        let has_updated = shard.replicas.iter().filter_map(|id| topology.member(id)).any(updated);
        if has_updated {
            let step = failover::hand_over(topology, shard, Urgency::Planned, Some(self.wanted), self.now, updated);
            return match step {
                Ok(step) => keep(Work::of(step)),
                Err(why) => hold(why),
            };
        }
        let spare = topology
            .members
            .values()
            .filter(|member| updated(member))
            .find(|member| {
                let (_, of) = match topology.shard_of(&member.id) {
                    Some(shard) => shard,
                    None => return false,
                };
                let spare = member.slots.is_empty() && member.is_live() && of.id != shard.id;
                // In a shard of its own it is empty; in another's it is one more than that needs.
                let needed = topology.size.replicas;
                spare && (!of.owns() || topology.in_sync(of).count() > usize::from(needed))
            });
        match spare.and_then(|member| topology.server(&member.id)) {
            Some(spare) if !self.says_keys(&spare.id) || self.is_replica(&spare.id) => {
                keep(Work::of(ClusterStep::Replicate {
                    on: spare,
                    primary: shard.primary.clone(),
                }))
            }
            _ => hold("no updated pod is there that could take over".into()),
        }
    }

    fn is_replica(&self, id: &NodeId) -> bool {
        self.topology.member(id).is_some_and(|member| !member.is_primary())
    }

    fn says_keys(&self, id: &NodeId) -> bool {
        self.topology.says(id).is_none_or(|says| says.keys > 0)
    }

    /// Restarts it, once it is on record that it goes.
    fn restart(&self, on_record: &Roll, pod: &PodSeen, member: Option<&Member>, shard: Option<&Shard>) -> Rolled {
        let uid = pod.uid.to_string();
        if on_record.pod_uid.as_deref() != Some(&uid) {
            let roll = Roll {
                shard: shard.map(|shard| shard.id.clone()),
                pod: Some(pod.name.to_string()),
                pod_uid: Some(uid),
                since: self.now,
                ..on_record.clone()
            };
            return Rolled {
                roll: Some(roll),
                work: Work::default(),
                stalled: false,
            };
        }
        let serves = member.is_some_and(|member| !member.slots.is_empty());
        let why = match serves {
            true => {
                "it is of an older revision; its slots are not served until it is back (usher.dev/allow-primary-restart)"
            }
            false => "it is of an older revision",
        };
        let mut work = Work::of(restart(pod, why));
        if let (Some(member), Some(shard)) = (member, shard)
            && member.id != shard.primary
            && let Some(step) = self.lower_min_replicas(shard, &member.id)
        {
            let message = format!(
                "{}: while pod {} restarts",
                usher_engine::Step::describe(&step),
                pod.name
            );
            work.steps.insert(0, step);
            work.findings
                .push(waiting("MinReplicasLowered", message).told(Tell::Normal));
        }
        Rolled {
            roll: Some(on_record.clone()),
            work,
            stalled: false,
        }
    }

    /// R37: a primary that wants more replicas than will be left takes no writes meanwhile.
    fn lower_min_replicas(&self, shard: &Shard, going: &NodeId) -> Option<ClusterStep> {
        let topology = self.topology;
        let left = topology.in_sync(shard).filter(|id| *id != going).count();
        let left = u16::try_from(left).unwrap_or(u16::MAX);
        let wants = topology.says(&shard.primary)?.min_replicas?;
        (wants > left).then_some(ClusterStep::SetMinReplicas {
            on: topology.server(&shard.primary)?,
            replicas: left,
        })
    }

    /// R37: after a restart, primaries want again what the spec says, where they have it.
    pub fn restore_min_replicas(&self) -> Work {
        let topology = self.topology;
        let mut steps = Vec::new();
        for shard in topology.owning() {
            let wants = topology.says(&shard.primary).and_then(|says| says.min_replicas);
            let current = topology.member(&shard.primary).and_then(|member| member.ordinal);
            let pod = current.and_then(|ordinal| topology.seen.pods.get(&ordinal));
            let of_this_revision = pod.is_some_and(|pod| !outdated(pod, self.wanted));
            let has = topology.in_sync(shard).count();
            if wants.is_some_and(|wants| wants != self.min_replicas)
                && of_this_revision
                && has >= usize::from(self.min_replicas)
                && let Some(on) = topology.server(&shard.primary)
            {
                steps.push(ClusterStep::SetMinReplicas {
                    on,
                    replicas: self.min_replicas,
                });
            }
        }
        Work {
            steps,
            ..Work::default()
        }
    }

    /// Why a pod is not whole, in its own words.
    fn state_of(&self, name: &str) -> String {
        let topology = self.topology;
        let Some((ordinal, pod)) = topology.seen.pods.iter().find(|(_, pod)| pod.name == *name) else {
            return "it is not there yet".into();
        };
        if let Some(trouble) = &pod.trouble {
            return trouble.clone();
        }
        if let Some(unheard) = topology.unheard.iter().find(|unheard| unheard.ordinal == *ordinal) {
            return unheard.why.clone();
        }
        match topology.at(*ordinal) {
            None => "it is not in the cluster yet".into(),
            Some(member) if !member.is_primary() && !topology.link_up(&member.id) => "it is not in sync yet".into(),
            Some(_) if !pod.ready => "it is not Ready".into(),
            Some(_) => "others do not reach it yet".into(),
        }
    }
}

fn restart(pod: &PodSeen, why: &str) -> ClusterStep {
    ClusterStep::DeletePod {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        revision: pod.revision,
        why: why.to_owned(),
    }
}

fn down(roll: &Roll) -> Option<Down> {
    Some(Down {
        name: roll.pod.as_deref()?.into(),
        uid: Uid::from(roll.pod_uid.as_deref()?),
        since: roll.since,
    })
}

#[cfg(test)]
mod tests;
