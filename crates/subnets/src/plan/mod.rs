//! Pure decisions on plain values: (resource, observation, now) to plan. Nothing below knows a client, a clock or a task.
//!
//! [`map`] is the address arithmetic; [`pool`] serves the queue and reports; [`claim`] turns a grant into a Subnet and
//! reports; [`subnet`] commits, withdraws and releases.

pub mod claim;
pub mod map;
pub mod pool;
pub mod subnet;

use crate::records::{Ask, ClaimRecord, PoolRecord};
use ipnet::IpNet;

/// What a pool does for others. First match, as in the spec's R39.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolState {
    /// Being deleted: no grants, waits for its Subnets.
    Terminating,
    /// Its spec cannot be served.
    Invalid,
    /// A child pool whose parent does not stand for it.
    WaitingParent,
    /// Stopped by annotation.
    Paused,
    /// Grants.
    Serving,
}

impl PoolState {
    /// The state of a pool.
    pub fn of(pool: &PoolRecord) -> Self {
        if pool.meta.deleting.is_some() {
            PoolState::Terminating
        } else if pool.shortest > pool.longest {
            PoolState::Invalid
        } else if pool.parent.is_some() {
            PoolState::WaitingParent
        } else if pool.paused {
            PoolState::Paused
        } else {
            PoolState::Serving
        }
    }

    /// Reason of the pool's Ready condition.
    pub fn reason(self) -> &'static str {
        match self {
            PoolState::Terminating => "Terminating",
            PoolState::Invalid => "Error",
            PoolState::WaitingParent => "WaitingParent",
            PoolState::Paused => "Paused",
            PoolState::Serving => "CIDRAssigned",
        }
    }

    /// What it means for those who wait, and what ends it.
    pub fn sentence(self, pool: &PoolRecord) -> String {
        let name = pool.meta.key.name();
        match self {
            PoolState::Terminating => format!("pool {name} is being deleted; create it again once it is gone"),
            PoolState::Invalid => format!(
                "pool {name} allows no size: its longest allowed length /{} is shorter than /{}; correct maxBlockSize or minBlockSize",
                pool.longest, pool.shortest
            ),
            PoolState::WaitingParent => format!(
                "pool {name} is a child of {} by its label; this version does not serve child pools, remove the label to use it",
                pool.parent.as_deref().unwrap_or("?")
            ),
            PoolState::Paused => format!("pool {name} is paused; remove its annotation usher.dev/paused to go on"),
            PoolState::Serving => format!("pool {name} serves {}", pool.cidr),
        }
    }
}

/// What a claim asks of this pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Any block of this length.
    Length(u8),
    /// Just this block.
    Exact(IpNet),
}

/// What is asked, or why this pool can never give it as both stand (R7, R8).
pub fn request(ask: Ask, pool: &PoolRecord) -> Result<Request, String> {
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
    if !pool.cidr.contains(&cidr) {
        return Err(format!(
            "spec.requestedCIDR {cidr} is not inside pool {name} ({})",
            pool.cidr
        ));
    }
    if let Some(excluded) = pool.exclude.iter().find(|e| e.contains(&cidr) || cidr.contains(*e)) {
        return Err(format!(
            "spec.requestedCIDR {cidr} overlaps {excluded}, which pool {name} excludes"
        ));
    }
    Ok(Request::Exact(cidr))
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
