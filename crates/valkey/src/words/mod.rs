//! The domain's words, as types: members, shards, slots, versions. Plain values without I/O.

mod id;
mod slots;
mod version;

pub use id::{Epoch, NodeId, NotAnId, Ordinal, ShardId};
pub use slots::{SLOTS, Slot, SlotRange, SlotSet};
pub use version::{DataFormat, ServerVersion};
