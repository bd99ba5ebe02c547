//! What Usher can do to a Valkey cluster: the spec's T1 to T19, each guarded by what it expects to find.

use usher_engine::{Step, Text, Uid};

use crate::words::{Epoch, NodeId, Ordinal, ShardId, Slot, SlotSet};

/// A server, by all that must still be true of it when a command is sent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Server {
    /// Its pod's ordinal, and so its name.
    pub ordinal: Ordinal,
    /// The pod's uid: a connection belongs to it.
    pub pod: Uid,
    /// Who it must say it is.
    pub id: NodeId,
}

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub enum ClusterStep {
    /// T1: applies one owned object, by kind and name; the set with its size unchanged.
    ApplyObject {
        /// Kind of the object.
        kind: &'static str,
        /// Its name.
        name: Text,
    },
    /// T1: deletes an owned object that the spec no longer wants (the read service).
    DeleteObject {
        /// Kind of the object.
        kind: &'static str,
        /// Its name.
        name: Text,
    },
    /// Puts our finalizer on, or takes it off.
    Finalizer {
        /// On.
        on: bool,
    },
    /// T2: resizes the set.
    SetReplicas {
        /// Size it must have.
        from: u16,
        /// Size it gets.
        to: u16,
        /// The set's uid.
        set: Uid,
        /// The set's resourceVersion.
        revision: u64,
    },
    /// T3: gives an isolated server its epoch.
    SetConfigEpoch {
        /// Which server.
        on: Server,
        /// The epoch.
        epoch: Epoch,
    },
    /// T4: makes two servers known to each other, both ways.
    Meet {
        /// Who is told.
        from: Server,
        /// Of whom.
        to: Server,
    },
    /// T5: gives slots that nobody owns.
    AddSlots {
        /// To whom.
        to: Server,
        /// Which.
        slots: SlotSet,
    },
    /// T6: empties a server that no view knows, so that it can join.
    CleanMember {
        /// Which server.
        on: Server,
    },
    /// T7: makes a member a replica.
    Replicate {
        /// Which member; it owns nothing.
        on: Server,
        /// Of which primary.
        primary: NodeId,
    },
    /// T8: takes a leaving member out: alone and empty.
    ResetMember {
        /// Which member.
        on: Server,
    },
    /// T9: makes a surplus replica an empty primary.
    Detach {
        /// Which replica.
        on: Server,
    },
    /// T10: begins one atomic slot migration.
    MigrateSlots {
        /// The giving primary.
        from: Server,
        /// Its epoch when this was planned.
        epoch: Epoch,
        /// The giving shard.
        shard: ShardId,
        /// The taking primary.
        to: Server,
        /// Which slots.
        slots: SlotSet,
    },
    /// T11: calls off what a server exports.
    CancelMigrations {
        /// Which server.
        on: Server,
        /// Why, for people.
        why: String,
    },
    /// T12: moves a bounded part of one slot, key by key.
    MoveSlotByKeys {
        /// Which slot.
        slot: Slot,
        /// The giving primary.
        from: Server,
        /// The giving shard.
        shard: ShardId,
        /// The taking primary.
        to: Server,
    },
    /// T13: settles an open slot's keys and takes its marker off.
    StabilizeSlot {
        /// Which slot.
        slot: Slot,
        /// Whose marker.
        on: Server,
        /// Who owns it and gets the keys that it lacks; `None` where nobody else does.
        owner: Option<Server>,
    },
    /// T14: a planned failover.
    Failover {
        /// Which shard.
        shard: ShardId,
        /// Its primary.
        from: Server,
        /// The replica that takes over.
        to: Server,
        /// The primary's epoch when this was planned.
        epoch: Epoch,
    },
    /// T15: a failover without the primary.
    ForceFailover {
        /// Which shard.
        shard: ShardId,
        /// The replica that takes over.
        to: Server,
        /// Without the others' votes (`TAKEOVER`).
        takeover: bool,
    },
    /// T16: strikes a member off one server's list.
    Forget {
        /// Who.
        member: NodeId,
        /// By whom.
        by: Server,
    },
    /// T16, for a member whose data is gone for good: its slots are given up with it (R26).
    ForgetLost {
        /// Who.
        member: NodeId,
        /// By whom.
        by: Server,
        /// The slots that are given up; it must own no others.
        slots: SlotSet,
    },
    /// T17: restarts an outdated pod.
    DeletePod {
        /// Its name.
        name: Text,
        /// Its uid.
        uid: Uid,
        /// Its resourceVersion.
        revision: u64,
        /// Why, for people.
        why: String,
    },
    /// T18: says on the pod what it is.
    LabelPod {
        /// Its name.
        name: Text,
        /// Its uid.
        uid: Uid,
        /// Labels to set.
        labels: Vec<(Text, Text)>,
        /// Annotations to set.
        annotations: Vec<(Text, Text)>,
    },
    /// T19: how many replicas a primary wants before it takes writes.
    SetMinReplicas {
        /// Which primary.
        on: Server,
        /// How many.
        replicas: u16,
    },
    /// Removes an annotation that has been obeyed (`usher.dev/switchover`).
    ClearAnnotation {
        /// Which.
        annotation: &'static str,
    },
}

impl ClusterStep {
    /// The shard it disrupts: at most one disruptive step per shard is in flight. `None` where the whole cluster is.
    pub fn shard(&self) -> Option<&ShardId> {
        match self {
            Self::MigrateSlots { shard, .. } | Self::MoveSlotByKeys { shard, .. } | Self::Failover { shard, .. } => {
                Some(shard)
            }
            _ => None,
        }
    }
}

impl Step for ClusterStep {
    fn name(&self) -> &'static str {
        match self {
            Self::ApplyObject { .. } => "ApplyObject",
            Self::DeleteObject { .. } => "DeleteObject",
            Self::Finalizer { .. } => "Finalizer",
            Self::SetReplicas { .. } => "SetReplicas",
            Self::SetConfigEpoch { .. } => "SetConfigEpoch",
            Self::Meet { .. } => "Meet",
            Self::AddSlots { .. } => "AddSlots",
            Self::CleanMember { .. } => "CleanMember",
            Self::Replicate { .. } => "Replicate",
            Self::ResetMember { .. } => "ResetMember",
            Self::Detach { .. } => "Detach",
            Self::MigrateSlots { .. } => "MigrateSlots",
            Self::CancelMigrations { .. } => "CancelMigrations",
            Self::MoveSlotByKeys { .. } => "MoveSlotByKeys",
            Self::StabilizeSlot { .. } => "StabilizeSlot",
            Self::Failover { .. } => "Failover",
            Self::ForceFailover { .. } => "ForceFailover",
            Self::Forget { .. } => "Forget",
            Self::ForgetLost { .. } => "ForgetLost",
            Self::DeletePod { .. } => "DeletePod",
            Self::LabelPod { .. } => "LabelPod",
            Self::SetMinReplicas { .. } => "SetMinReplicas",
            Self::ClearAnnotation { .. } => "ClearAnnotation",
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::ApplyObject { kind, name } => format!("apply {kind} {name}"),
            Self::DeleteObject { kind, name } => format!("delete {kind} {name}, which the spec does not want any more"),
            Self::Finalizer { on: true } => "put the finalizer on".into(),
            Self::Finalizer { on: false } => "take the finalizer off".into(),
            Self::SetReplicas { from, to, .. } => format!("resize the StatefulSet from {from} to {to} pods"),
            Self::SetConfigEpoch { on, epoch } => format!("give {} the config epoch {}", on.name(), epoch.0),
            Self::Meet { from, to } => format!("make {} and {} known to each other", from.name(), to.name()),
            Self::AddSlots { to, slots } => format!("give slots {slots} to {}", to.name()),
            Self::CleanMember { on } => format!("empty {}, whose data no member knows, so that it can join", on.name()),
            Self::Replicate { on, primary } => format!("make {} a replica of {}", on.name(), primary.short()),
            Self::ResetMember { on } => format!("take {} out of the cluster", on.name()),
            Self::Detach { on } => format!("make the surplus replica {} an empty primary", on.name()),
            Self::MigrateSlots { from, to, slots, .. } => {
                format!(
                    "move {} slots ({slots}) from {} to {}",
                    slots.count(),
                    from.name(),
                    to.name()
                )
            }
            Self::CancelMigrations { on, why } => format!("call off the slot moves of {}: {why}", on.name()),
            Self::MoveSlotByKeys { slot, from, to, .. } => {
                format!("move slot {} key by key from {} to {}", slot.0, from.name(), to.name())
            }
            Self::StabilizeSlot { slot, on, .. } => format!("close slot {} on {}", slot.0, on.name()),
            Self::Failover { from, to, .. } => format!("hand over from {} to {}", from.name(), to.name()),
            Self::ForceFailover { to, takeover, .. } => {
                let how = if *takeover {
                    "without a vote"
                } else {
                    "without its primary"
                };
                format!("promote {} {how}", to.name())
            }
            Self::Forget { member, by } => format!("strike {} off the list of {}", member.short(), by.name()),
            Self::ForgetLost { member, by, slots } => format!(
                "strike {} off the list of {}, and give up slots {slots}, whose data is gone",
                member.short(),
                by.name()
            ),
            Self::DeletePod { name, why, .. } => format!("restart pod {name}: {why}"),
            Self::LabelPod { name, .. } => format!("label pod {name} with what it is"),
            Self::SetMinReplicas { on, replicas } => {
                format!("let {} take writes with {replicas} replicas connected", on.name())
            }
            Self::ClearAnnotation { annotation } => {
                format!("remove the annotation {annotation}, which has been obeyed")
            }
        }
    }

    fn disruptive(&self) -> bool {
        match self {
            Self::ResetMember { .. }
            | Self::Detach { .. }
            | Self::MigrateSlots { .. }
            | Self::MoveSlotByKeys { .. }
            | Self::Failover { .. }
            | Self::ForceFailover { .. }
            | Self::DeletePod { .. } => true,
            Self::SetReplicas { from, to, .. } => to < from,
            _ => false,
        }
    }
}

impl Server {
    /// For people: the pod's place, and who it is.
    pub fn name(&self) -> String {
        format!("pod {} ({})", self.ordinal, self.id.short())
    }
}
