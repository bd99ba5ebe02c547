//! Where events are summed up when there are too many to write each: the claims and Subnets of a pool, on the pool.

use usher_engine::ObjectKey;
use usher_operator::events::{About, Within};
use usher_operator::view::View;

use crate::records::{POOLS, PoolRecord};

/// The pool of the object `key`, and what is said there of many such events.
pub fn within(view: &View, key: &ObjectKey, pool: &str, reason: &'static str) -> Option<Within> {
    let pool = view.get::<PoolRecord>(&key.sibling(pool)?)?;
    let words = match reason {
        "SubnetAllocated" => Some(["claim bound", "claims bound"]),
        "SubnetReleased" => Some(["range released", "ranges released"]),
        "SubnetPoolExhausted" => Some(["claim must wait for room", "claims must wait for room"]),
        _ => None,
    };
    Some(Within {
        about: About::of(POOLS, &pool.meta),
        words,
    })
}
