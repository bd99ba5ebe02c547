//! I/O in: Kubernetes and every server of a cluster, to one plain value.
//!
//! [`seen`](crate::seen) is that value; the plan knows nothing else of the world. [`client`] keeps a wire to every server, [`ask`] asks
//! all of them, [`parse`] reads what they say ([`reply`]), [`memory`] tells since when it is so, [`cluster`] is what the view
//! shows, and [`fetch`] puts it together.

pub mod ask;
pub mod client;
pub mod cluster;
pub mod fetch;
pub mod memory;
pub mod parse;
pub mod reply;

pub use crate::seen::{
    self, Answer, Flags, Job, JobState, Link, Memory, Objects, Observation, OpenSlot, PasswordSeen, Peer, PodPhase,
    PodSeen, RoleSaid, Rules, Says, SetSeen,
};
