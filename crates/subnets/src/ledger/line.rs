//! Who waits in one pool: claims that are not Bound, and those of them that stand in the queue.

use std::collections::{BTreeMap, BTreeSet};

use usher_engine::{ObjectKey, Second, Text, Uid};

use crate::records::{Ask, ClaimRecord};

/// A claim's place in its pool's queue: by age, then by name (R12).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// When the claim was created.
    pub created: Second,
    /// Its key.
    pub claim: ObjectKey,
}

/// A claim that has no range yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// Its uid.
    pub uid: Uid,
    /// Its generation.
    pub generation: i64,
    /// Whom it is for.
    pub cluster_id: Text,
    /// What it asks for.
    pub ask: Ask,
    /// Its place, should it wait.
    pub place: Place,
}

impl Unserved {
    pub(super) fn of(claim: &ClaimRecord) -> Self {
        Self {
            uid: claim.meta.uid.clone(),
            generation: claim.meta.generation,
            cluster_id: claim.cluster_id.clone(),
            ask: claim.ask,
            place: Place {
                created: claim.meta.created,
                claim: claim.meta.key.clone(),
            },
        }
    }
}

/// See the module's header.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// Who waits, by what they ask for: only the head of each line needs to be looked at (R13).
    waiting: BTreeMap<Ask, BTreeMap<Place, Uid>>,
    count: usize,
    unserved: BTreeMap<Uid, Unserved>,
    by_cluster: BTreeSet<(Text, Uid)>,
}

impl Line {
    /// Number of claims that wait.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether nobody is known here, waiting or not.
    pub fn knows_nobody(&self) -> bool {
        self.unserved.is_empty()
    }

    /// What is asked for, with the lines of those who ask it, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = (Ask, usize, impl Iterator<Item = &Unserved>)> {
        self.waiting.iter().map(|(ask, line)| {
            let claims = line.values().filter_map(|uid| self.unserved.get(uid));
            (*ask, line.len(), claims)
        })
    }

    /// Whether this claim has no range yet.
    pub fn knows(&self, uid: &Uid) -> bool {
        self.unserved.contains_key(uid)
    }

    pub(super) fn get(&self, uid: &Uid) -> Option<&Unserved> {
        self.unserved.get(uid)
    }

    /// The claim, if it stands in the queue.
    pub fn waits(&self, uid: &Uid) -> Option<&Unserved> {
        let unserved = self.unserved.get(uid)?;
        let line = self.waiting.get(&unserved.ask)?;
        line.contains_key(&unserved.place).then_some(unserved)
    }

    /// How many stand in the queue before this claim, over all sizes. For people; O(queue).
    pub fn ahead_of(&self, uid: &Uid) -> Option<usize> {
        let place = &self.waits(uid)?.place;
        Some(self.waiting.values().map(|line| line.range(..place).count()).sum())
    }

    /// Claims of this clusterID that have no range yet, by uid.
    pub(super) fn of_cluster(&self, cluster_id: &str) -> Vec<Uid> {
        let from = (cluster_id.into(), Uid::NIL);
        let same = self.by_cluster.range(from..).take_while(|(id, _)| &**id == cluster_id);
        same.map(|(_, uid)| uid.clone()).collect()
    }

    /// Keys of the claims of this clusterID that have no range yet.
    pub fn sharers(&self, cluster_id: &str) -> Vec<ObjectKey> {
        let uids = self.of_cluster(cluster_id);
        uids.iter()
            .filter_map(|uid| Some(self.unserved.get(uid)?.place.claim.clone()))
            .collect()
    }

    pub(super) fn remember(&mut self, claim: Unserved) {
        self.by_cluster.insert((claim.cluster_id.clone(), claim.uid.clone()));
        self.unserved.insert(claim.uid.clone(), claim);
    }

    pub(super) fn forget(&mut self, uid: &Uid) {
        self.stand(uid, false);
        if let Some(claim) = self.unserved.remove(uid) {
            self.by_cluster.remove(&(claim.cluster_id, claim.uid));
        }
    }

    /// Puts a claim into the queue, or takes it out of it.
    pub(super) fn stand(&mut self, uid: &Uid, waits: bool) {
        let Some(claim) = self.unserved.get(uid) else { return };
        if waits {
            let line = self.waiting.entry(claim.ask).or_default();
            if line.insert(claim.place.clone(), uid.clone()).is_none() {
                self.count += 1;
            }
        } else if let Some(line) = self.waiting.get_mut(&claim.ask) {
            if line.remove(&claim.place).is_some() {
                self.count -= 1;
            }
            if line.is_empty() {
                self.waiting.remove(&claim.ask);
            }
        }
    }
}
