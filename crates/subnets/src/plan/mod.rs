//! Pure decisions on plain values: (resource, observation, now) to plan. Nothing below knows a client, a clock or a task.
//!
//! [`map`] is the address arithmetic; [`pool`] serves the queue and reports; [`claim`] turns a grant into a Subnet and
//! reports, `promise` is what it shares and keeps; [`subnet`] commits, withdraws and releases, on
//! what [`footing`] says; [`pool_claim`] makes a pool out of a claim and takes it down.

pub mod claim;
pub mod footing;
pub mod holder;
pub mod map;
pub mod pool;
pub mod pool_claim;
pub mod pool_report;
mod promise;
mod serve;
pub mod subnet;

use crate::api::ClaimPhase;
use crate::ledger;
use crate::records::{Ask, ClaimRecord, PoolRecord, SubnetRecord};
use ipnet::IpNet;
use jiff::Timestamp;
use usher_engine::{Condition, Conditions};

/// What a pool does for others. First match, as in the spec's R39.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolState {
    /// Being deleted: no grants, waits for its Subnets.
    Terminating,
    /// Its spec cannot be served.
    Invalid,
    /// A child pool whose parent does not stand for it.
    WaitingParent,
    /// Its map is being counted anew.
    Rebuilding,
    /// Stopped by annotation.
    Paused,
    /// Grants.
    Serving,
}

impl PoolState {
    /// Reason of the pool's Ready condition.
    pub fn reason(self) -> &'static str {
        match self {
            PoolState::Terminating => "Terminating",
            PoolState::Invalid => "Error",
            PoolState::WaitingParent => "WaitingParent",
            PoolState::Rebuilding => "Rebuilding",
            PoolState::Paused => "Paused",
            PoolState::Serving => "CIDRAssigned",
        }
    }
}

/// Where a pool comes from, as far as it is in view.
#[derive(Debug, Clone, PartialEq)]
pub enum Lineage<'v> {
    /// It stands on its own.
    Root,
    /// It names a parent that is not there.
    Orphan {
        /// The parent's name.
        parent: &'v str,
    },
    /// It is its own ancestor.
    Cycle {
        /// The names on the way, from itself to itself.
        through: Vec<&'v str>,
    },
    /// It is taken from a parent, or to be.
    Child {
        /// The parent.
        parent: &'v PoolRecord,
        /// The Subnet in the parent that stands for it, where there is one that is not withdrawn.
        holder: Option<&'v SubnetRecord>,
    },
    /// Another pool of the same pool claim has the range; upstream made this one as well (R44). Two that serve would give
    /// it out twice.
    Spare {
        /// The pool that has it.
        of: &'v str,
    },
    /// It was taken from a parent that is gone by force, while its holder stays.
    Left {
        /// The Subnet that stands for it.
        holder: &'v SubnetRecord,
    },
}

/// A pool as it stands among others.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing<'v> {
    /// The pool.
    pub pool: &'v PoolRecord,
    /// Where it comes from.
    pub lineage: Lineage<'v>,
    /// Its map is being counted anew.
    pub rebuilding: bool,
}

impl<'v> Standing<'v> {
    /// The holder that is in place.
    pub fn holder(&self) -> Option<&'v SubnetRecord> {
        match &self.lineage {
            Lineage::Child { holder, .. } => holder.filter(|holder| holder.settled()),
            Lineage::Left { holder } => Some(*holder).filter(|holder| holder.settled()),
            _ => None,
        }
    }

    /// What it may serve from (R39): its range, for a child cut to its holder.
    pub fn serving(&self) -> Option<IpNet> {
        match &self.lineage {
            Lineage::Root => Some(self.pool.cidr),
            _ => ledger::shared(self.holder()?.cidr, self.pool.cidr),
        }
    }

    /// Its state, first match (R39).
    pub fn state(&self) -> PoolState {
        let pool = self.pool;
        if pool.meta.deleting.is_some() {
            PoolState::Terminating
        } else if pool.shortest > pool.longest || matches!(self.lineage, Lineage::Cycle { .. }) {
            PoolState::Invalid
        } else if self.lineage != Lineage::Root && !(pool.held && self.serving().is_some()) {
            PoolState::WaitingParent
        } else if self.rebuilding {
            PoolState::Rebuilding
        } else if pool.paused {
            PoolState::Paused
        } else {
            PoolState::Serving
        }
    }

    /// What its state means for those who wait, and what ends it.
    pub fn sentence(&self) -> String {
        let (pool, name) = (self.pool, self.pool.meta.key.name());
        match self.state() {
            PoolState::Terminating => format!("pool {name} is being deleted; create it again once it is gone"),
            PoolState::Invalid => match &self.lineage {
                Lineage::Cycle { through } => format!(
                    "pool {name} is its own ancestor by the labels plexaubnet.io/parent: {}; correct one of them",
                    through.join(" -> ")
                ),
                _ => format!(
                    "pool {name} allows no size: its longest allowed length /{} is shorter than /{}; correct maxBlockSize or minBlockSize",
                    pool.longest, pool.shortest
                ),
            },
            PoolState::WaitingParent => self.waiting(),
            PoolState::Rebuilding => format!("pool {name} is being counted anew; it goes on by itself"),
            PoolState::Paused => format!("pool {name} is paused; remove its annotation usher.dev/paused to go on"),
            PoolState::Serving => format!("pool {name} serves {}", self.serving().unwrap_or(pool.cidr)),
        }
    }

    /// What a child pool waits for.
    fn waiting(&self) -> String {
        let (pool, name) = (self.pool, self.pool.meta.key.name());
        let (parent, holder) = match &self.lineage {
            Lineage::Orphan { parent } => {
                return format!("pool {name} waits for its parent {parent}, which does not exist; create it");
            }
            Lineage::Spare { of } => {
                return format!(
                    "pool {name} was made for the same pool claim as pool {of}, which has its range; delete this one once nobody uses it"
                );
            }
            Lineage::Left { holder } => (&*holder.pool, Some(*holder)),
            Lineage::Child { parent, holder } if holder.is_none() && !parent.cidr.contains(&pool.cidr) => {
                return format!(
                    "pool {name}: {} is not inside its parent {} ({}); correct spec.cidr",
                    pool.cidr,
                    parent.meta.key.name(),
                    parent.cidr
                );
            }
            Lineage::Child { parent, holder } => (parent.meta.key.name(), *holder),
            Lineage::Root | Lineage::Cycle { .. } => return String::new(),
        };
        match holder {
            None => format!("pool {name} waits for its range {} in parent {parent}", pool.cidr),
            Some(holder) if !holder.settled() => {
                let why = holder.message().unwrap_or("it is being placed");
                format!("pool {name} waits for {} in parent {parent}: {why}", holder.cidr)
            }
            Some(holder) if self.serving().is_none() => format!(
                "pool {name}: {} is not what it has in parent {parent}, {}; set spec.cidr to that",
                pool.cidr, holder.cidr
            ),
            Some(holder) if holder.meta.deleting.is_some() => format!(
                "pool {name} cannot have {} in parent {parent}: somebody deleted Subnet {}; delete this pool and make it again",
                holder.cidr,
                holder.meta.key.name()
            ),
            Some(holder) => format!(
                "pool {name} has {} in parent {parent}, which is being confirmed",
                holder.cidr
            ),
        }
    }
}

/// Conditions of a claim, or of a pool claim, that has not what it asks for: why, and whether it asks in vain.
fn not_ready(
    existing: &[Condition],
    phase: ClaimPhase,
    (reason, message): (&str, &str),
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = Conditions::from_existing(existing);
    conditions.set("Ready", false, reason, message, generation, now);
    if phase == ClaimPhase::Error {
        conditions.set("Stalled", true, reason, message, generation, now);
    } else {
        conditions.remove("Stalled");
    }
    conditions.into_vec()
}

/// What a claim asks of this pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Any block of this length.
    Length(u8),
    /// Just this block.
    Exact(IpNet),
}

/// What is asked, or why this pool can never give it as both stand (R7, R8). `serving` is what the pool serves from.
pub fn request(ask: Ask, pool: &PoolRecord, serving: IpNet) -> Result<Request, String> {
    let (name, shortest, longest) = (pool.meta.key.name(), pool.shortest, pool.longest);
    let length = match ask {
        Ask::Default => pool.default,
        Ask::Length(length) => length,
        Ask::Exact(cidr) => cidr.prefix_len(),
    };
    let named = match ask {
        Ask::Default => "the pool's default size",
        Ask::Length(_) => "spec.blockSize",
        Ask::Exact(_) => "spec.requestedCIDR",
    };
    if let Ask::Exact(cidr) = ask
        && cidr.addr().is_ipv4() != pool.cidr.addr().is_ipv4()
    {
        return Err(format!(
            "spec.requestedCIDR {cidr} is of another family than pool {name} ({})",
            pool.cidr
        ));
    }
    if length < shortest || length > longest {
        return Err(format!(
            "{named} /{length} is outside what pool {name} grants: /{shortest} to /{longest}; ask for a size in between"
        ));
    }
    let Ask::Exact(cidr) = ask else {
        return Ok(Request::Length(length));
    };
    if !serving.contains(&cidr) {
        return Err(format!(
            "spec.requestedCIDR {cidr} is not inside pool {name} ({serving})"
        ));
    }
    if let Some(excluded) = pool.exclude.iter().find(|e| ledger::overlap(**e, cidr)) {
        return Err(format!(
            "spec.requestedCIDR {cidr} overlaps {excluded}, which pool {name} excludes"
        ));
    }
    Ok(Request::Exact(cidr))
}

/// Whether the pool, as it stands, would give just this range to whoever asks so.
fn gives(pool: &PoolRecord, serving: IpNet, ask: Ask, cidr: IpNet) -> bool {
    let asked = match request(ask, pool, serving) {
        Ok(Request::Length(length)) => cidr.prefix_len() == length,
        Ok(Request::Exact(exact)) => cidr == exact,
        Err(_) => false,
    };
    asked && serving.contains(&cidr) && !pool.exclude.iter().any(|excluded| ledger::overlap(*excluded, cidr))
}

/// Whether a Subnet of this range is what the claim asks for; the pool's default may have changed since it was made.
pub fn fulfils(claim: &ClaimRecord, pool: &str, cluster_id: &str, cidr: IpNet) -> bool {
    let size = match claim.ask {
        Ask::Default => true,
        Ask::Length(length) => cidr.prefix_len() == length,
        Ask::Exact(asked) => cidr == asked,
    };
    size && &*claim.pool == pool && &*claim.cluster_id == cluster_id
}
