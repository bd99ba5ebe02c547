//! What status says of earlier passes: which pod was which member, and which shard had which slots.

use std::collections::BTreeMap;

use usher_engine::Uid;

use super::Topology;
use crate::api::{self, ValkeyClusterStatus};
use crate::words::{NodeId, Ordinal, ShardId, SlotRange, SlotSet};

/// A pod and the member that it was, as the last passes saw it (`status.bindings`). A pod can have several: what it was
/// before stays as long as some view still lists it, and the newest is the last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    /// The pod's place.
    pub ordinal: Ordinal,
    /// The pod's uid.
    pub pod: Uid,
    /// Its volume's uid, where it has one.
    pub volume: Option<Uid>,
    /// The member.
    pub id: NodeId,
    /// The member's shard.
    pub shard: ShardId,
}

/// What status says of earlier passes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Past {
    /// `status.bindings`, oldest first.
    pub bindings: Vec<Binding>,
    /// The slots that each shard owned, by `status.topology`.
    pub owned: BTreeMap<ShardId, SlotSet>,
}

impl Past {
    /// Reads what the last passes wrote. What cannot be read was not written by us and says nothing.
    pub fn of(status: &ValkeyClusterStatus) -> Self {
        let bindings = status.bindings.iter().filter_map(|bound| {
            let (_, ordinal) = bound.pod.rsplit_once('-')?;
            Some(Binding {
                ordinal: Ordinal(ordinal.parse().ok()?),
                pod: bound.pod_uid.as_str().into(),
                volume: bound.pvc_uid.as_deref().map(Uid::from),
                id: bound.node_id.clone(),
                shard: bound.shard_id.clone(),
            })
        });
        let mut owned: BTreeMap<ShardId, SlotSet> = BTreeMap::new();
        for master in status.topology.iter().flat_map(|topology| &topology.masters) {
            let ranges = master.slot_ranges.iter().filter_map(|range| SlotRange::parse(range));
            let slots = SlotSet::of(ranges);
            if !slots.is_empty() {
                let shard = master.shard_id.clone().unwrap_or_else(|| master.node_id.as_shard());
                let all = owned.entry(shard).or_default();
                *all = all.union(&slots);
            }
        }
        Self {
            bindings: bindings.collect(),
            owned,
        }
    }

    /// Whether any slot was ever owned, as far as status tells.
    pub fn owned_any(&self) -> bool {
        !self.owned.is_empty()
    }
}

impl Binding {
    /// As status has it.
    pub fn written(&self, cluster: &str) -> api::Binding {
        api::Binding {
            pod: format!("{cluster}-{}", self.ordinal),
            pod_uid: self.pod.to_string(),
            pvc_uid: self.volume.as_ref().map(Uid::to_string),
            node_id: self.id.clone(),
            shard_id: self.shard.clone(),
        }
    }
}

impl Topology<'_> {
    /// The slots that are to be remembered of shards that no view knows any more: nobody owns them now, and somebody did.
    /// They stay in `status.topology` (primary: none) until they have an owner again, or a restart would take a cluster that
    /// lost its data for one that never had any (R26).
    pub fn remembered(&self) -> BTreeMap<ShardId, SlotSet> {
        let lost = self
            .past
            .owned
            .iter()
            .map(|(shard, slots)| (shard, slots.common(&self.unowned)));
        lost.filter(|(_, slots)| !slots.is_empty())
            .map(|(shard, slots)| (shard.clone(), slots))
            .collect()
    }

    /// The bindings to keep for the next pass: what every pod is, and what it was as long as a view lists that, or as long
    /// as slots are remembered that only its data has.
    pub fn bindings(&self) -> Vec<Binding> {
        let seen = self.seen;
        let remembered = self.remembered();
        let answers = |id: &NodeId| self.says(id).is_some() || self.outside.values().any(|outside| outside == id);
        let matters = |binding: &Binding| {
            self.member(&binding.id).is_some()
                || remembered.contains_key(&binding.shard)
                || seen.says(binding.ordinal).is_none()
        };
        let kept = self.past.bindings.iter();
        let mut bindings: Vec<Binding> = kept
            .filter(|binding| !answers(&binding.id) && matters(binding))
            .cloned()
            .collect();
        for (ordinal, pod) in &seen.pods {
            if let Some(says) = seen.says(*ordinal) {
                bindings.push(Binding {
                    ordinal: *ordinal,
                    pod: pod.uid.clone(),
                    volume: seen.volumes.get(ordinal).cloned(),
                    id: says.id.clone(),
                    shard: says.shard.clone(),
                });
            }
        }
        bindings
    }
}
