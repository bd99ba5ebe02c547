//! What real servers do, of every version that there is: the facts that Usher stands on (marked ✓ in the spec), and its own
//! steps, performed on them. A version that breaks one is noticed here, not by a user.
//!
//! [`town`] has the servers. They are got by `cargo xtask setup`, and where they are missing these tests fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod clients;
mod failovers;
mod members;
mod slots;
mod town;
