//! One pass, in order (R7): what ends a cluster's life; what it is not valid for; its objects; healing; the work of its
//! phase; rolling; spreading. The first group with a step is the last one that is asked; healing may go with any.
//!
//! Intents go first: a pass that writes a new `status.scale` or `status.roll` does nothing that these cover. The next pass
//! reads them back.

use std::time::Duration;

use usher_engine::condition::whole_seconds;
use usher_engine::{Finding, Plan, Stance, Step, Tell};

use super::facts::{Ground, Judged};
use super::phase::{self, Hop, Phase};
use super::report::Account;
use super::roll::{Rolled, Rolling};
use super::step::ClusterStep;
use super::topology::Standing;
use super::validate;
use super::work::{Work, blocked, seconds_since, waiting};
use super::{failover, health, join, labels, moves};
use crate::api::{Cause, CauseClass, Roll, Scale, ValkeyClusterStatus};
use crate::objects;
use crate::records::SETS;
use crate::seen::PodPhase;

/// When to look again: at rest …
const IDLE: Duration = Duration::from_secs(10);
/// … where something is lost or wrong …
const TROUBLED: Duration = Duration::from_secs(5);
/// … while members join, sync or start …
const STARTING: Duration = Duration::from_secs(1);
/// … while slots or roles are on their way.
const MOVING: Duration = Duration::from_millis(250);
/// An intent was written: as soon as it is read back.
const AT_ONCE: Duration = Duration::from_millis(20);

/// The plan of a cluster.
pub type ClusterPlan = Plan<ClusterStep, ValkeyClusterStatus>;

/// A cause for Failed, and its sentence.
type Failure = (Cause, String);

impl Ground<'_> {
    /// The decision.
    pub fn decide(&self) -> ClusterPlan {
        let record = self.record;
        let was = record.status.phase.unwrap_or_default();
        if record.meta.deleting.is_some() {
            return self.deleting(was);
        }
        if !record.meta.has_finalizer(crate::api::FINALIZER) {
            let status = record.status.clone();
            return Plan::report(status).step(ClusterStep::Finalizer { on: true });
        }
        let unserved = moves::unserved(self.topology, self.places, self.terms);
        let failure = self.failure(&unserved);
        let troubles = health::troubles(self.topology);
        let judged = Judged {
            failure: failure.is_some(),
            recovery: was == Phase::Failed && self.recovers(failure.as_ref()),
            healthy: troubles.is_empty(),
        };
        let hops = match record.wishes.paused {
            true => Vec::new(),
            false => phase::run(
                was,
                |phase, hops| self.facts(phase, hops, judged),
                |phase| !self.phase_work(phase, &unserved).steps.is_empty(),
            ),
        };
        let phase = hops.last().map_or(was, |hop| hop.to);
        let failure = self.failure_on_record(phase, failure);
        let scale = self.scale(phase, &hops);
        let mut work = self.heal(phase, &unserved);
        let rolled = self.act(phase, scale.as_ref(), &unserved, &mut work);
        self.admit(&mut work);
        let account = Account {
            record,
            topology: self.topology,
            phase,
            hops: &hops,
            troubles: &troubles,
            degraded: self.missed(phase).is_some(),
            outdated: self.outdated(),
            slot_migration: self.moves(phase).and_then(|moves| moves.migration),
            scale,
            roll: rolled.roll,
            stalled: rolled.stalled,
            failure,
            steps: &work.steps,
            findings: &work.findings,
            now: self.now,
        };
        let status = account.status();
        let events = account.events();
        let intends = status.scale != record.status.scale || status.roll != record.status.roll;
        let next = self.next(phase, &work, intends && !record.wishes.paused);
        let mut plan = Plan::report(status).again_after(next);
        plan.findings = work.findings;
        plan.findings.extend(events);
        plan.steps = work.steps;
        plan
    }

    /// A cluster that goes: no data-plane step; what it owns is collected, volumes stay.
    fn deleting(&self, was: Phase) -> ClusterPlan {
        let record = self.record;
        let mut status = record.status.clone();
        if was != Phase::Deleting {
            status.phase = Some(Phase::Deleting);
            status.last_phase_transition = Some(whole_seconds(self.now));
            status.message = Some("it is being deleted; its volumes stay".into());
            let mut conditions = usher_engine::Conditions::from_existing(&status.conditions);
            let generation = record.meta.generation;
            conditions.set("Ready", false, "Deleting", "it is being deleted", generation, self.now);
            status.conditions = conditions.into_vec();
        }
        let plan = Plan::report(status);
        match record.meta.has_finalizer(crate::api::FINALIZER) {
            true => plan.step(ClusterStep::Finalizer { on: false }),
            false => plan,
        }
    }

    /// What cannot be served as it stands, or needs a person.
    fn failure(&self, unserved: &moves::Unserved) -> Option<Failure> {
        let record = self.record;
        let cause = |class, reason: &str| Cause {
            class,
            reason: reason.to_owned(),
            generation: record.meta.generation,
            retry: record.wishes.retry.as_ref().map(ToString::to_string),
        };
        if let Some(invalid) = validate::validate(record, self.topology.seen) {
            return Some((cause(invalid.class, invalid.reason), invalid.message));
        }
        if let Some(lost) = unserved.lost.first() {
            return Some((cause(CauseClass::Permanent, "SlotsLost"), lost.message()));
        }
        // A pod that has not answered yet may be whom we take for a stranger.
        let mut strangers = self
            .topology
            .standing(Standing::Foreign)
            .filter(|member| !member.slots.is_empty());
        strangers.next().filter(|_| self.topology.unheard.is_empty())?;
        let foreign = join::foreign(self.topology).findings.into_iter().next()?;
        Some((cause(CauseClass::Permanent, "ForeignMember"), foreign.message))
    }

    /// RecoveryInitiated: a new generation, a new wish to retry, or the cause is gone.
    fn recovers(&self, failure: Option<&Failure>) -> bool {
        let record = self.record;
        let Some(cause) = &record.status.failure else {
            return true;
        };
        let pods_lost = cause.reason == PODS_LOST && !self.topology.seen.pods.values().any(|pod| pod.ready);
        let gone = failure.is_none_or(|(now, _)| now.reason != cause.reason) && !pods_lost;
        let retry = record.wishes.retry.as_deref();
        gone || cause.generation != record.meta.generation || cause.retry.as_deref() != retry
    }

    /// Why it is Failed, if it is.
    fn failure_on_record(&self, phase: Phase, failure: Option<Failure>) -> Option<Failure> {
        if phase != Phase::Failed {
            return None;
        }
        failure.or_else(|| {
            let record = self.record;
            let cause = Cause {
                class: CauseClass::Permanent,
                reason: PODS_LOST.into(),
                generation: record.meta.generation,
                retry: record.wishes.retry.as_ref().map(ToString::to_string),
            };
            let mut pods = self.topology.seen.pods.values();
            let trouble = pods.find_map(|pod| Some(format!(": pod {}: {}", pod.name, pod.trouble.as_ref()?)));
            let why = trouble.unwrap_or_default();
            Some((cause, format!("no pod is Ready{why}; it goes on when one is")))
        })
    }

    /// `status.scale` from here on: begun by a hop, kept while it lasts, gone at rest.
    fn scale(&self, phase: Phase, hops: &[Hop]) -> Option<Scale> {
        let record = self.record;
        let on_record = record.status.scale.as_ref();
        let begun = hops.iter().any(phase::begins_scale);
        match phase {
            Phase::Running => return None,
            _ if !begun && on_record.is_none() => return None,
            _ => {}
        }
        let same = on_record.filter(|_| !self.resized());
        // Shards that were chosen stay on the list when they have nothing left: it tells drained ones from new ones.
        let chosen = same.map(|scale| scale.drain.as_slice()).unwrap_or_default();
        let mut drain = chosen.to_vec();
        if begun || phase.is_scaling() {
            drain.extend(
                self.places
                    .drain
                    .iter()
                    .filter(|shard| !chosen.contains(shard))
                    .cloned(),
            );
        }
        if !begun && same.is_none() {
            return on_record.cloned();
        }
        let tail = self.wanted_size()..self.set_size();
        Some(Scale {
            generation: same.map_or(record.meta.generation, |scale| scale.generation),
            masters: record.spec.masters,
            replicas_per_master: record.spec.replicas_per_master,
            drain,
            leave: tail
                .map(|at| record.pod_name(crate::words::Ordinal(at)).to_string())
                .collect(),
            started_at: same.map_or(whole_seconds(self.now), |scale| scale.started_at),
        })
    }

    /// What comes after healing, the first of it that has a step.
    fn act(&self, phase: Phase, scale: Option<&Scale>, unserved: &moves::Unserved, work: &mut Work) -> Rolled {
        let record = self.record;
        let kept = |roll: Option<&Roll>| Rolled {
            roll: roll.cloned(),
            work: Work::default(),
            stalled: false,
        };
        let on_record = record.status.roll.as_ref();
        if record.wishes.paused || phase == Phase::Deleting {
            return kept(on_record);
        }
        let disrupts = |work: &Work| work.steps.iter().any(Step::disruptive);
        let healing = disrupts(work);
        let objects = self.objects(phase);
        if !objects.steps.is_empty() {
            work.and(objects);
            return kept(on_record);
        }
        work.and(objects);
        if phase == Phase::Failed || (self.formed() && !self.topology.has_majority()) {
            return kept(on_record);
        }
        let intended = scale == record.status.scale.as_ref();
        let mut own = self.phase_work(phase, unserved);
        if !intended || healing {
            own.steps.retain(|step| !step.disruptive() && intended);
        }
        let worked = !own.steps.is_empty();
        work.and(own);
        work.and(labels::labels(self));
        if worked || healing || !intended {
            return kept(on_record);
        }
        let rolling = self.rolling();
        if !self.formed() {
            work.and(rolling.unformed());
            return kept(on_record);
        }
        match phase {
            Phase::Running | Phase::Degraded | Phase::VerifyingClusterHealth => {}
            Phase::WaitingForNewPods => {
                work.and(self.renew());
                return kept(on_record);
            }
            _ => return kept(on_record),
        }
        let rolled = rolling.plan();
        let busy = !rolled.work.steps.is_empty() || rolled.roll.is_some();
        work.and(rolled.work.clone());
        if !busy {
            work.and(self.at_rest(phase, &rolling));
        }
        rolled
    }

    /// Objects: applied where they differ; the set's template only when no scale is under way (R34).
    fn objects(&self, phase: Phase) -> Work {
        let seen = self.topology.seen;
        let record = self.record;
        let mut work = Work::default();
        if phase == Phase::Failed {
            return work;
        }
        let apply = |(kind, name): &(&'static str, usher_engine::Text)| ClusterStep::ApplyObject {
            kind,
            name: name.clone(),
        };
        work.steps.extend(seen.objects.unsettled.iter().map(apply));
        work.steps.extend(
            seen.objects
                .unwanted
                .iter()
                .map(|(kind, name)| ClusterStep::DeleteObject {
                    kind,
                    name: name.clone(),
                }),
        );
        let set = (SETS.kind, usher_engine::Text::from(record.name()));
        match &seen.set {
            None if work.steps.is_empty() => work.steps.push(apply(&set)),
            Some(here) if here.ours && !here.deleting && seen.objects.set_differs => {
                if !phase.is_scaling() || self.held_by_new_pod() {
                    work.steps.push(apply(&set));
                } else {
                    work.wait(
                        "RollWaits",
                        "the change of the pods' template waits for the end of this scale",
                    );
                }
            }
            Some(here) if here.deleting => {
                work.wait("SetIsGoing", "the StatefulSet is being deleted; it is made again")
            }
            _ => {}
        }
        work
    }

    /// Whether a new pod of this scale has not started for so long that another template may be what it needs.
    fn held_by_new_pod(&self) -> bool {
        let mut pods = self.topology.seen.pods.iter();
        pods.any(|(at, pod)| {
            let old = seconds_since(pod.ready_changed, self.now) >= health::SCALE_HELD_SECONDS;
            self.is_new(*at) && pod.phase != PodPhase::Running && old
        })
    }

    /// A new pod of the old template that never became a member and does not run: it has nothing to lose.
    fn renew(&self) -> Work {
        let seen = self.topology.seen;
        let carried = seen.set.as_ref().and_then(|set| set.template.as_ref());
        let mut stale = seen.pods.iter().filter(|(at, pod)| {
            let broken = !pod.ready && seen.says(**at).is_none() && pod.deleting.is_none();
            self.is_new(**at) && broken && carried == Some(self.wanted) && super::roll::outdated(pod, self.wanted)
        });
        match stale.next() {
            Some((_, pod)) => Work::of(ClusterStep::DeletePod {
                name: pod.name.clone(),
                uid: pod.uid.clone(),
                revision: pod.revision,
                why: "it is of an older revision and never joined".into(),
            }),
            None => Work::default(),
        }
    }

    fn rolling(&self) -> Rolling<'_> {
        let record = self.record;
        let persistent = record.spec.persistence.enabled;
        Rolling {
            topology: self.topology,
            wanted: self.wanted,
            on_record: record.status.roll.as_ref(),
            linger_seconds: i64::try_from(record.wishes.linger.as_secs()).unwrap_or(i64::MAX),
            in_place: record.wishes.allow_primary_restart && persistent,
            persistent,
            min_replicas: objects::conf::min_replicas(record),
            now: self.now,
        }
    }

    /// What is done when nothing else is.
    fn at_rest(&self, phase: Phase, rolling: &Rolling<'_>) -> Work {
        let (topology, now) = (self.topology, self.now);
        let mut work = rolling.restore_min_replicas();
        if !work.steps.is_empty() {
            return work;
        }
        if let Some(pod) = &self.record.wishes.switchover {
            match failover::switchover(topology, pod, now) {
                Ok(step) => return Work::of(step),
                Err(why) => work
                    .findings
                    .push(waiting("SwitchoverHeld", format!("{pod} is to be promoted: {why}")).told(Tell::Normal)),
            }
        }
        if phase == Phase::Running && self.record.spec.scheduling.spread_masters && work.is_done() {
            work.steps.extend(failover::spread(topology, now));
        }
        work
    }

    /// R7, I4: of what the groups want, no more than may be in flight at once.
    fn admit(&self, work: &mut Work) {
        let mut alone = false;
        let mut shards = Vec::new();
        work.steps.retain(|step| {
            let single = matches!(
                step,
                ClusterStep::Failover { .. } | ClusterStep::ForceFailover { .. } | ClusterStep::DeletePod { .. }
            );
            if single && std::mem::replace(&mut alone, true) {
                return false;
            }
            match step.shard() {
                Some(shard) if shards.contains(shard) => false,
                Some(shard) => {
                    shards.push(shard.clone());
                    true
                }
                None => true,
            }
        });
        if self.record.wishes.paused {
            let message = "paused: remove the annotation usher.dev/paused to go on";
            work.findings.push(Finding::new(Stance::Waiting, "Paused", message));
        }
        work.findings.extend(validate::remarks(self.record, self.topology.seen));
        if let Some(since) = self.topology.seen.memory.disagreeing_since {
            let timeout_ms = objects::conf::node_timeout_ms(self.record);
            let limit = i64::try_from(timeout_ms * 4 / 1000).unwrap_or(i64::MAX);
            if seconds_since(since, self.now) >= limit
                && let Some(difference) = self.topology.differences.first()
            {
                let finding = blocked(
                    "ViewsDisagree",
                    format!("the servers' views do not agree: {difference}"),
                );
                work.findings.push(finding.since(since));
            }
        }
    }

    /// When to look again, if nothing changes before.
    fn next(&self, phase: Phase, work: &Work, intends: bool) -> Duration {
        let topology = self.topology;
        let base = match phase {
            Phase::Running if self.record.status.roll.is_some() => STARTING,
            Phase::Running => IDLE,
            Phase::Degraded | Phase::Failed => TROUBLED,
            Phase::Deleting => IDLE,
            _ => STARTING,
        };
        let moving = !health::slots_rest(topology) || failover::in_flight(topology, self.now).is_some();
        let mut next = base;
        if let Some(again) = work.again {
            next = next.min(again);
        }
        if moving {
            next = next.min(MOVING);
        }
        if !work.steps.is_empty() {
            next = next.min(MOVING);
        }
        if intends {
            next = next.min(AT_ONCE);
        }
        next
    }
}

/// Why a cluster whose pods are all gone is Failed.
const PODS_LOST: &str = "PodsLost";
