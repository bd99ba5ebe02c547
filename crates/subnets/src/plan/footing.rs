//! What a Subnet stands on: what is read past the view before it is committed (R25, R44).
//!
//! Two halves, the same for each ground. Whoever commits a Subnet reads the ground after the Subnet was there, and finds no
//! deletion mark on it; whoever lets the ground go lists the Subnets after the mark was there. So the mark came after the
//! Subnet, and that list finds it, whoever was paused for how long.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use usher_engine::{ObjectKey, Uid};

use crate::records::{PoolRecord, SubnetRecord};

/// What must stand for a Subnet to be committed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ground {
    /// The child pool it is in (R25).
    Pool(ObjectKey),
    /// The pool claim that its claim was made for (R44).
    PoolClaim(ObjectKey),
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ground::Pool(pool) => write!(f, "child pool {}", pool.name()),
            Ground::PoolClaim(claim) => write!(f, "pool claim {}", claim.name()),
        }
    }
}

/// What a quorum read of a child pool must show for a Subnet of it to be committed (R25).
pub fn confirms(pool: &PoolRecord) -> bool {
    pool.held && pool.meta.deleting.is_none()
}

/// Whether a Subnet keeps the pool claim of this uid from going (R44, I10): it is made for that claim, and has a range or
/// may still get one.
///
/// A withdrawn one does not: it is committed only as another version than it has now, which is confirmed by a read from
/// after the deletion mark. Nor does one made by hand that names the claim: Usher may not delete it (R33), so that the
/// claim would wait for ever; what was imported stays when its claim goes (R11), and no pool is left that lives from it.
pub fn keeps_pool_claim(subnet: &SubnetRecord, claim: &Uid) -> bool {
    claim.is(&subnet.cluster_id) && !subnet.by_hand() && !subnet.withdrawn()
}

/// What is known of a ground, past the view.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Footing {
    /// A read that began after this version of the Subnet was seen shows that it stands.
    Confirmed,
    /// Such a read shows that it does not.
    Denied {
        /// When.
        at: Timestamp,
    },
    /// Such a read is under way.
    Asked {
        /// Since when.
        at: Timestamp,
    },
    /// Nobody has asked yet.
    Unconfirmed,
}

/// A question that was not answered for this long was lost with whoever asked it. Longer than any call may take.
const LOST_AFTER: SignedDuration = SignedDuration::from_secs(12);
/// A no is asked again after this long: it may have been a moment too early.
const NO_AGAIN: SignedDuration = SignedDuration::from_secs(1);

impl Footing {
    /// Whether the ground must be asked for (again) now.
    pub fn is_open(self, now: Timestamp) -> bool {
        match self {
            Footing::Confirmed => false,
            Footing::Denied { at } => now.duration_since(at) >= NO_AGAIN,
            Footing::Asked { at } => now.duration_since(at) >= LOST_AFTER,
            Footing::Unconfirmed => true,
        }
    }
}
