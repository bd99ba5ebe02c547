//! One step of a deployment: which sets it makes, scales and forgets, and what it says. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};

use super::limits::{self, Limits};
use super::sets::{self, Set};
use super::status::{self, Progress};
use crate::controllers::pods;

/// What a step is decided upon.
pub(super) struct Seen<'a> {
    pub(super) deployment: &'a Deployment,
    /// The sets that it controls.
    pub(super) sets: Vec<Arc<ReplicaSet>>,
    /// Names of all sets there are: another's may have the name that its next one would get.
    pub(super) taken: &'a dyn Fn(&str) -> bool,
    /// Uids of sets that have pods which have not finished.
    pub(super) busy: &'a BTreeSet<String>,
    pub(super) now: Timestamp,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    /// To be made or written.
    pub(super) sets: Vec<Set>,
    /// To be deleted: history that is too long.
    pub(super) forgotten: Vec<ReplicaSet>,
    pub(super) status: DeploymentStatus,
    /// The deployment's revision, if it is known.
    pub(super) revision: Option<String>,
    pub(super) look_again: Option<Timestamp>,
}

pub(super) fn plan(seen: Seen<'_>) -> Plan {
    let Seen {
        deployment,
        sets,
        taken,
        busy,
        now,
    } = seen;
    let (new, old) = sets::sort_out(deployment, sets);
    let mut rollout = Rollout {
        deployment,
        limits: Limits::of(deployment),
        new,
        old,
        before: deployment.status.clone().unwrap_or_default(),
        forgotten: Vec::new(),
        has_collided: false,
        now,
    };
    let is_paused = deployment.spec.as_ref().and_then(|spec| spec.paused) == Some(true);
    if pods::is_deleting(&deployment.metadata) {
        rollout.follow();
        return rollout.counted();
    }
    rollout.note_pause(is_paused);
    rollout.follow();
    if is_paused || rollout.is_scaled() {
        rollout.scale();
        if is_paused {
            rollout.forget();
        }
        return rollout.counted();
    }
    if rollout.limits.is_rolling {
        rollout.roll(taken);
    } else {
        rollout.recreate(taken, busy);
    }
    if rollout.has_collided {
        return rollout.collided();
    }
    rollout.rolling()
}

struct Rollout<'a> {
    deployment: &'a Deployment,
    limits: Limits,
    new: Option<Set>,
    /// Oldest first.
    old: Vec<Set>,
    /// The status so far.
    before: DeploymentStatus,
    forgotten: Vec<ReplicaSet>,
    has_collided: bool,
    now: Timestamp,
}

impl Rollout<'_> {
    /// Time while it is paused does not count against its progress, nor does what was before.
    fn note_pause(&mut self, is_paused: bool) {
        if status::deadline_seconds(self.deployment).is_none()
            || status::has_progress(&self.before, Progress::TimedOut)
            || status::has_progress(&self.before, Progress::Paused) == is_paused
        {
            return;
        }
        let (progress, message) = if is_paused {
            (Progress::Paused, "Deployment is paused")
        } else {
            (Progress::Resumed, "Deployment is resumed")
        };
        status::put_progress(&mut self.before, progress, message.to_owned(), self.now);
    }

    /// One more than the newest of the old sets.
    fn next_revision(&self) -> i64 {
        self.old.iter().map(Set::revision).max().unwrap_or_default() + 1
    }

    /// The new set, if there is one, has the newest revision and the deployment's annotations.
    fn follow(&mut self) {
        let revision = self.next_revision();
        let Some(new) = &mut self.new else { return };
        new.follow(self.deployment, revision);
        if status::deadline_seconds(self.deployment).is_some() && !status::has_any_progress(&self.before) {
            let message = format!("Found new replica set \"{}\"", new.name());
            status::put_progress(&mut self.before, Progress::Found, message, self.now);
        }
    }

    /// Makes the new set if there is none, with as many pods as there may be at once.
    fn make(&mut self, taken: &dyn Fn(&str) -> bool) {
        if self.new.is_some() {
            return;
        }
        let collisions = self.before.collision_count;
        let mut set = Set::made(self.deployment, self.limits, collisions, self.next_revision());
        if taken(set.name()) {
            self.before.collision_count = Some(collisions.unwrap_or_default() + 1);
            self.has_collided = true;
            return;
        }
        set.scale(self.size_of_new(0), self.limits);
        if status::deadline_seconds(self.deployment).is_some() {
            let message = format!("Created new replica set \"{}\"", set.name());
            status::put_progress(&mut self.before, Progress::Created, message, self.now);
        }
        self.new = Some(set);
    }

    /// Pods that are wanted of all sets.
    fn total(&self) -> i32 {
        self.old.iter().chain(&self.new).map(Set::replicas).sum()
    }

    /// How large a new set may be that now has `size`.
    fn size_of_new(&self, size: i32) -> i32 {
        if !self.limits.is_rolling {
            return self.limits.replicas;
        }
        let room = self.limits.most() - self.total();
        if room <= 0 {
            return size;
        }
        size + room.min(self.limits.replicas - size)
    }

    /// Someone changed the number of replicas since a set was last scaled.
    fn is_scaled(&self) -> bool {
        self.old
            .iter()
            .chain(&self.new)
            .filter(|set| set.is_active())
            .any(|set| set.desired().is_some_and(|desired| desired != self.limits.replicas))
    }

    /// Brings the sets to the deployment's size without rolling on: the one that has pods, or all by their shares.
    fn scale(&mut self) {
        let limits = self.limits;
        let active = self.old.iter().chain(&self.new).filter(|set| set.is_active()).count();
        if active <= 1 {
            let only = match active {
                1 => self.old.iter_mut().chain(&mut self.new).find(|set| set.is_active()),
                _ => self.new.as_mut().or_else(|| self.old.last_mut()),
            };
            if let Some(set) = only
                && set.replicas() != limits.replicas
            {
                set.scale(limits.replicas, limits);
            }
            return;
        }
        let is_saturated = self.new.as_ref().is_some_and(|new| {
            new.replicas() == limits.replicas
                && new.desired() == Some(limits.replicas)
                && new.available() == limits.replicas
        });
        if is_saturated {
            for set in self.old.iter_mut().filter(|set| set.is_active()) {
                set.scale(0, limits);
            }
        } else if limits.is_rolling {
            self.share_out();
        }
    }

    /// Grows or shrinks all active sets by their shares; what is left by rounding goes to the largest.
    fn share_out(&mut self) {
        let limits = self.limits;
        let replicas = self.before.replicas.unwrap_or_default();
        let allowed = if limits.replicas > 0 { limits.most() } else { 0 };
        let to_add = allowed - self.total();
        let mut sets: Vec<&mut Set> = self
            .old
            .iter_mut()
            .chain(&mut self.new)
            .filter(|set| set.is_active())
            .collect();
        sets.sort_by(|one, other| {
            let by_age = one.age().cmp(&other.age());
            let by_age = if to_add > 0 { by_age.reverse() } else { by_age };
            sets::larger_then(by_age, one, other)
        });
        let mut added = 0;
        let mut sizes = Vec::with_capacity(sets.len());
        for set in &sets {
            let before = set.most().filter(|most| *most > 0).unwrap_or(replicas);
            let share = limits::proportion(limits, set.replicas(), before, to_add, added);
            added += share;
            sizes.push(set.replicas() + share);
        }
        if let Some(largest) = sizes.first_mut() {
            *largest = (*largest + to_add - added).max(0);
        }
        for (set, size) in sets.into_iter().zip(sizes) {
            set.scale(size, limits);
        }
    }

    /// One step: up with the new set, or else down with the old ones.
    fn roll(&mut self, taken: &dyn Fn(&str) -> bool) {
        self.make(taken);
        if !self.has_collided && !self.scale_up() && !self.scale_down() {
            self.finish();
        }
    }

    /// Brings the new set nearer to its size. False: there is nothing to do, or no room.
    fn scale_up(&mut self) -> bool {
        let limits = self.limits;
        let Some(size) = self.new.as_ref().map(Set::replicas) else {
            return false;
        };
        // Made in this step: that was the scaling.
        if self.new.as_ref().is_some_and(|new| new.is_made) || size == limits.replicas {
            return false;
        }
        let to = if size > limits.replicas {
            limits.replicas
        } else {
            self.size_of_new(size)
        };
        to != size && self.new.as_mut().is_some_and(|new| new.scale(to, limits))
    }

    /// Takes pods from the old sets: first those that are not available, then as many as the rest allows.
    fn scale_down(&mut self) -> bool {
        let limits = self.limits;
        let Some(new) = &self.new else { return false };
        let missing = new.replicas() - new.dependable();
        let mut unhealthy = self.total() - limits.least_available() - missing;
        if unhealthy <= 0 || !self.old.iter().any(Set::is_active) {
            return false;
        }
        let mut has_scaled = false;
        for set in &mut self.old {
            let size = set.replicas();
            let gone = (size - set.dependable()).min(unhealthy);
            if gone > 0 {
                has_scaled |= set.scale(size - gone, limits);
                unhealthy -= gone;
            }
        }
        let available: i32 = self.old.iter().chain(&self.new).map(Set::dependable).sum();
        let mut spare = available - limits.least_available();
        for set in &mut self.old {
            let size = set.replicas();
            let gone = size.min(spare);
            if gone > 0 {
                has_scaled |= set.scale(size - gone, limits);
                spare -= gone;
            }
        }
        has_scaled
    }

    /// All old pods go before the new set comes.
    fn recreate(&mut self, taken: &dyn Fn(&str) -> bool, busy: &BTreeSet<String>) {
        let limits = self.limits;
        let mut has_scaled = false;
        for set in self.old.iter_mut().filter(|set| set.is_active()) {
            has_scaled |= set.scale(0, limits);
        }
        let is_gone = |set: &Set| set.actual() == 0 && !busy.contains(set.uid());
        if has_scaled || !self.old.iter().all(is_gone) {
            return;
        }
        self.make(taken);
        if let Some(new) = &mut self.new
            && new.replicas() != limits.replicas
        {
            new.scale(limits.replicas, limits);
        }
        if !self.has_collided {
            self.finish();
        }
    }

    fn finish(&mut self) {
        let before = self.deployment.status.clone().unwrap_or_default();
        if status::is_complete(self.deployment, self.limits, &before) {
            self.forget();
        }
    }

    /// Keeps only as much history as is wanted, of sets that have ended.
    fn forget(&mut self) {
        let limit = self
            .deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.revision_history_limit);
        let Some(limit) = limit.filter(|limit| *limit != i32::MAX) else {
            return;
        };
        let mut history: Vec<&Set> = self
            .old
            .iter()
            .filter(|set| !pods::is_deleting(&set.object.metadata))
            .collect();
        let surplus = history.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        history.sort_by(|one, other| {
            let key = |set: &Set| set.revision();
            key(one).cmp(&key(other)).then_with(|| one.age().cmp(&other.age()))
        });
        let has_ended = |set: &&Set| {
            let meta = &set.object.metadata;
            let observed = set.object.status.as_ref().and_then(|status| status.observed_generation);
            set.actual() == 0
                && set.replicas() == 0
                && meta.generation.unwrap_or_default() <= observed.unwrap_or_default()
        };
        self.forgotten = history
            .into_iter()
            .take(surplus)
            .filter(has_ended)
            .map(|set| set.object.clone())
            .collect();
    }

    fn counted(self) -> Plan {
        let status = status::counted(
            self.deployment,
            &self.before,
            self.limits,
            self.new.as_ref(),
            &self.old,
            self.now,
        );
        self.done(status, None)
    }

    fn rolling(self) -> Plan {
        let (status, look_again) = status::rolling(
            self.deployment,
            &self.before,
            self.limits,
            self.new.as_ref(),
            &self.old,
            self.now,
        );
        self.done(status, look_again)
    }

    /// The next step finds a name that nobody has.
    fn collided(mut self) -> Plan {
        self.old.clear();
        let status = self.before.clone();
        self.done(status, None)
    }

    fn done(self, status: DeploymentStatus, look_again: Option<Timestamp>) -> Plan {
        let revision = self.new.as_ref().and_then(|new| new.annotation(sets::REVISION));
        Plan {
            revision: revision.map(str::to_owned),
            // The new one first, as it was decided.
            sets: self
                .new
                .into_iter()
                .chain(self.old)
                .filter(|set| set.is_made || set.is_changed)
                .collect(),
            forgotten: self.forgotten,
            status,
            look_again,
        }
    }
}
