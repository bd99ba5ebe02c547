//! The holder of a child pool: the Subnet in its parent that stands for it (R26, R45).
//!
//! A pool that somebody labelled by hand gets its holder from here; one that was made for a pool claim has the Subnet of
//! that claim. Either way the child grants nothing before its holder was seen Allocated by a read that began after the
//! child was seen: whoever takes the holder away later lists the pools first, and finds this one.

use usher_engine::{Stance, Uid};

use super::pool::{PoolStep, PoolView};
use super::{Lineage, PoolState};
use crate::api::FINALIZER;
use crate::records::{Meta, PoolRecord, SubnetRecord};

/// What is to be done about a pool's holder now, and why.
#[derive(Debug)]
pub struct Next {
    /// The step, if there is one to take.
    pub step: Option<PoolStep>,
    /// For people.
    pub stance: Stance,
}

fn step(step: PoolStep) -> Option<Next> {
    Some(Next {
        step: Some(step),
        stance: Stance::Doing,
    })
}

/// What a pool does about its holder. `None`: nothing; it has none to have, or it stands.
pub fn next(pool: &PoolRecord, seen: &PoolView<'_>) -> Option<Next> {
    if seen.standing.state() == PoolState::Terminating || seen.standing.state() == PoolState::Invalid {
        return None;
    }
    let wait = Some(Next {
        step: None,
        stance: Stance::Waiting,
    });
    let (parent, holder) = match &seen.standing.lineage {
        Lineage::Root => return None,
        Lineage::Orphan { .. } | Lineage::Cycle { .. } | Lineage::Spare { .. } => return wait,
        Lineage::Left { holder } => (None, Some(*holder)),
        Lineage::Child { parent, holder } => (Some(*parent), *holder),
    };
    match (holder, parent) {
        (Some(holder), _) if holder.settled() => {
            if pool.held || seen.holder_confirmed || holder.meta.deleting.is_some() {
                return (!pool.held).then_some(()).and(wait);
            }
            step(PoolStep::ConfirmHolder {
                holder: holder.meta.key.clone(),
            })
        }
        // R45: as long as it has not its range, it follows what the pool asks for.
        (Some(holder), parent) if holder.child().is_some() && !follows(holder, pool, parent) => {
            step(PoolStep::ReplaceHolder {
                holder: Box::new(holder.meta.clone()),
            })
        }
        (Some(_), _) => wait,
        // A pool claim's child has the Subnet of the internal claim; nothing is made for it here.
        (None, Some(parent)) if pool.owner().is_none() && pool.parent.is_some() => {
            let ready = parent.meta.has_finalizer(FINALIZER)
                && parent.meta.deleting.is_none()
                && parent.cidr.contains(&pool.cidr);
            // One that is on its way out goes first: the name is the same.
            match ready && !seen.holder_leaving {
                true => step(PoolStep::CreateHolder {
                    parent: parent.meta.key.clone(),
                }),
                false => wait,
            }
        }
        _ => wait,
    }
}

fn follows(holder: &SubnetRecord, pool: &PoolRecord, parent: Option<&PoolRecord>) -> bool {
    holder.cidr == pool.cidr && parent.is_some_and(|parent| *holder.pool == *parent.meta.key.name())
}

/// What a quorum read of a holder must show for its child to be Held (R26).
pub fn stands(holder: &SubnetRecord, child: &Meta, holder_id: &str) -> bool {
    *holder.cluster_id == *holder_id
        && holder.phase() == Some(crate::api::SubnetPhase::Allocated)
        && holder.meta.deleting.is_none()
        && child.deleting.is_none()
}

/// Whether a listed pool keeps a holder of this clusterID from going (R26): it is the child itself, or was made for the
/// pool claim of that uid.
pub fn keeps(pool: &PoolRecord, cluster_id: &str) -> bool {
    let id = Uid::from(cluster_id);
    pool.meta.uid == id || pool.meta.owned_by(&id)
}
