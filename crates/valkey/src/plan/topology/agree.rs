//! Whether the servers of the cluster tell one story (R3), and who differs on what where they do not.

use std::collections::BTreeMap;
use std::fmt;

use super::Member;
use crate::seen::Says;
use crate::words::{Epoch, NodeId, Ordinal, SlotSet};

/// One thing that two servers do not agree on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// A server does not list a member that another one lists.
    Unknown {
        /// Whose view.
        viewer: Ordinal,
        /// Whom it does not know.
        member: NodeId,
    },
    /// A server has another primary for a member than the member itself.
    Primary {
        /// Whose view.
        viewer: Ordinal,
        /// Of whom.
        member: NodeId,
        /// Whose replica it is taken for; `None`: for a primary.
        taken_for: Option<NodeId>,
    },
    /// A server gives slots to another owner than the claim with the highest epoch does.
    Owner {
        /// Whose view.
        viewer: Ordinal,
        /// Whose slots they are.
        owner: NodeId,
        /// The slots that it does not give to it.
        slots: SlotSet,
    },
    /// Two primaries claim one config epoch.
    Epoch {
        /// Which.
        epoch: Epoch,
        /// The one.
        one: NodeId,
        /// The other.
        other: NodeId,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { viewer, member } => write!(f, "pod {viewer} does not know {}", member.short()),
            Self::Primary {
                viewer,
                member,
                taken_for: Some(primary),
            } => write!(
                f,
                "pod {viewer} takes {} for a replica of {}",
                member.short(),
                primary.short()
            ),
            Self::Primary {
                viewer,
                member,
                taken_for: None,
            } => write!(f, "pod {viewer} takes {} for a primary", member.short()),
            Self::Owner { viewer, owner, slots } => {
                write!(f, "pod {viewer} does not give slots {slots} to {}", owner.short())
            }
            Self::Epoch { epoch, one, other } => {
                write!(
                    f,
                    "{} and {} both claim config epoch {}",
                    one.short(),
                    other.short(),
                    epoch.0
                )
            }
        }
    }
}

/// What the views do not agree on; empty where they do.
pub fn differences(views: &[(Ordinal, &Says)], members: &BTreeMap<NodeId, Member>) -> Vec<Difference> {
    let mut differences = Vec::new();
    for (viewer, says) in views {
        let mut lines = says.view.iter().filter(|(_, line)| !line.flags.handshake).peekable();
        // Members are the union of all views, and both are in order of ids: one walk.
        for (id, member) in members {
            let Some((_, line)) = lines.next_if(|(peer, _)| *peer == id) else {
                differences.push(Difference::Unknown {
                    viewer: *viewer,
                    member: id.clone(),
                });
                continue;
            };
            if line.primary != member.primary {
                differences.push(Difference::Primary {
                    viewer: *viewer,
                    member: id.clone(),
                    taken_for: line.primary.clone(),
                });
            }
            if line.slots != member.slots {
                let slots = member.slots.minus(&line.slots);
                // What it gives to this one too much, it lacks for the owner, whose line tells.
                if !slots.is_empty() {
                    differences.push(Difference::Owner {
                        viewer: *viewer,
                        owner: id.clone(),
                        slots,
                    });
                }
            }
        }
    }
    differences.extend(collisions(members));
    differences
}

fn collisions(members: &BTreeMap<NodeId, Member>) -> Vec<Difference> {
    let mut claims: BTreeMap<Epoch, &NodeId> = BTreeMap::new();
    let mut collisions = Vec::new();
    for member in members.values() {
        // A dead primary that owns nothing any more claims nothing.
        let is_of_no_weight = !member.is_live() && member.slots.is_empty();
        if !member.is_primary() || is_of_no_weight {
            continue;
        }
        if let Some(other) = claims.insert(member.epoch, &member.id) {
            collisions.push(Difference::Epoch {
                epoch: member.epoch,
                one: other.clone(),
                other: member.id.clone(),
            });
        }
    }
    collisions
}
